//! Words that carry a meaning inside: URLs, hosts, remote paths, mounts, modes, SQL.

use crate::effect::{Action, Effect, Object};
use crate::flow::push_piece;
use crate::word::{Piece, Word};

/// An effect on a path, unless the path is no file at all.
pub(crate) fn path(action: Action, word: &Word, effects: &mut Vec<Effect>) {
    if is_stream(word) {
        return;
    }
    if let Some(connection) = network_device(word) {
        effects.push(connection);
        return;
    }
    effects.push(Effect::path(action, word.clone()));
}

/// Standard streams, the null device, and process substitutions.
pub(crate) fn is_stream(word: &Word) -> bool {
    if let Some(Piece::Unknown(source)) = word.pieces.first() {
        return word.pieces.len() == 1 && (source.starts_with(b"<(") || source.starts_with(b">("));
    }
    word.value().is_some_and(|path| {
        matches!(
            path,
            b"-" | b"/dev/null" | b"/dev/stdin" | b"/dev/stdout" | b"/dev/stderr" | b"/dev/tty"
        ) || path.starts_with(b"/dev/fd/")
    })
}

/// `/dev/tcp/host/port`, which bash turns into a connection.
pub(crate) fn network_device(word: &Word) -> Option<Effect> {
    let prefix = word.known_prefix();
    if !prefix.starts_with(b"/dev/tcp/") && !prefix.starts_with(b"/dev/udp/") {
        return None;
    }
    let rest = word.tail(b"/dev/tcp/".len());
    let host = until(&rest, b"/");
    let port = rest
        .value()
        .and_then(|text| text.split(|&byte| byte == b'/').nth(1))
        .and_then(|port| std::str::from_utf8(port).ok()?.parse().ok());
    Some(Effect::new(Action::Connect, Object::Host { host, port }))
}

/// The word up to the first of these bytes in a known part.
fn until(word: &Word, ends: &[u8]) -> Word {
    let mut head = Word {
        quoted: word.quoted,
        ..Word::default()
    };
    for piece in &word.pieces {
        if let Piece::Known(bytes) = piece
            && let Some(end) = bytes.iter().position(|byte| ends.contains(byte))
        {
            head.push_known(&bytes[..end]);
            return head;
        }
        push_piece(&mut head.pieces, piece.clone());
    }
    head
}

fn scheme_port(scheme: &[u8]) -> Option<u16> {
    Some(match scheme.to_ascii_lowercase().as_slice() {
        b"http" | b"ws" => 80,
        b"https" | b"wss" => 443,
        b"ftp" => 21,
        b"ssh" | b"sftp" | b"scp" | b"git+ssh" => 22,
        b"git" => 9418,
        b"ldap" => 389,
        b"ldaps" => 636,
        b"rsync" => 873,
        b"postgres" | b"postgresql" => 5432,
        b"mysql" => 3306,
        b"redis" => 6379,
        b"mongodb" => 27017,
        b"smb" => 445,
        b"telnet" => 23,
        _ => return None,
    })
}

/// What fetching from or sending to a URL does.
pub(crate) fn url(word: &Word, effects: &mut Vec<Effect>) {
    let prefix = word.known_prefix();
    let marker = prefix.windows(3).position(|window| window == b"://");
    let (scheme, rest) = match marker {
        Some(at) => (&prefix[..at], word.tail(at + 3)),
        None => (b"http".as_slice(), word.clone()),
    };
    if scheme.eq_ignore_ascii_case(b"file") {
        effects.push(Effect::path(Action::Read, rest));
        return;
    }
    let authority = until(&rest, b"/?#");
    effects.push(connection(
        &authority,
        if marker.is_some() {
            scheme_port(scheme)
        } else {
            None
        },
    ));
}

/// What reaching `[user@]host[:port]` does.
pub(crate) fn host(word: &Word, effects: &mut Vec<Effect>) {
    if word
        .known_prefix()
        .windows(3)
        .any(|window| window == b"://")
    {
        url(word, effects);
    } else {
        effects.push(connection(word, None));
    }
}

fn connection(authority: &Word, default_port: Option<u16>) -> Effect {
    let mut host = authority.clone();
    // Credentials in front; in a word that is partly unknown only a known part can hold the `@`.
    if let Some(at) = host.known_prefix().iter().rposition(|&byte| byte == b'@') {
        host = host.tail(at + 1);
    } else if let Some(position) = host
        .pieces
        .iter()
        .rposition(|piece| matches!(piece, Piece::Known(bytes) if bytes.contains(&b'@')))
    {
        host.pieces.drain(..position);
        let at = host
            .known_prefix()
            .iter()
            .rposition(|&byte| byte == b'@')
            .unwrap_or(0);
        host = host.tail(at + 1);
    }
    let mut port = default_port;
    if let Some(text) = host.value().map(<[u8]>::to_vec) {
        let (name, number) = match text.strip_prefix(b"[").and_then(|text| {
            let end = text.iter().position(|&byte| byte == b']')?;
            Some((&text[..end], text[end + 1..].strip_prefix(b":")))
        }) {
            Some(bracketed) => bracketed,
            None => match text.iter().filter(|&&byte| byte == b':').count() {
                1 => {
                    let at = text
                        .iter()
                        .position(|&byte| byte == b':')
                        .unwrap_or(text.len());
                    (&text[..at], Some(&text[at + 1..]))
                }
                _ => (text.as_slice(), None),
            },
        };
        if let Some(number) = number {
            port = std::str::from_utf8(number)
                .ok()
                .and_then(|text| text.parse().ok())
                .or(port);
        }
        host = Word {
            pieces: Vec::new(),
            ..host
        };
        host.push_known(name);
    }
    Effect::new(Action::Connect, Object::Host { host, port })
}

/// A local path, `host:path` or a URL.
pub(crate) fn remote(word: &Word, actions: &[Action], effects: &mut Vec<Effect>) {
    let prefix = word.known_prefix();
    if prefix.windows(3).any(|window| window == b"://") {
        url(word, effects);
        return;
    }
    let colon = prefix.iter().position(|&byte| byte == b':');
    let slash = prefix
        .iter()
        .position(|&byte| byte == b'/')
        .unwrap_or(usize::MAX);
    match colon {
        Some(at) if at > 0 && at < slash => {
            let name = Word::literal(&prefix[..at]);
            effects.push(connection(&name, Some(22)));
        }
        _ => {
            // `$host:path`: a colon right behind an unknown start is a remote place too.
            let behind = word.pieces.iter().find_map(|piece| match piece {
                Piece::Known(bytes) => Some(bytes),
                _ => None,
            });
            if prefix.is_empty()
                && behind.is_some_and(|bytes| bytes.starts_with(b":") || bytes.starts_with(b"@"))
            {
                effects.push(connection(&until(word, b":"), Some(22)));
                return;
            }
            for &action in actions {
                path(action, word, effects);
            }
        }
    }
}

/// `host-path:target[:ro]` or `type=bind,source=…` of a container mount.
pub(crate) fn volume(word: &Word, effects: &mut Vec<Effect>) {
    let text = word.text();
    let (source, read_only) =
        if text.starts_with(b"type=") || text.windows(7).any(|window| window == b"source=") {
            let field = |name: &[u8]| {
                text.split(|&byte| byte == b',')
                    .find_map(|field| field.strip_prefix(name))
            };
            let Some(source) = field(b"source=").or_else(|| field(b"src=")) else {
                return;
            };
            let only = text
                .split(|&byte| byte == b',')
                .any(|field| matches!(field, b"readonly" | b"ro" | b"readonly=true"));
            (Word::literal(source), only)
        } else {
            (until(word, b":"), word.known_suffix().ends_with(b":ro"))
        };
    // A bare name is a volume of the engine's own.
    let named = source.value().is_some_and(|path| {
        !path.starts_with(b"/") && !path.starts_with(b".") && !path.starts_with(b"~")
    });
    if named || source.pieces.is_empty() {
        return;
    }
    let mut read = Effect::path(Action::Read, source.clone());
    read.recursive = true;
    effects.push(read);
    if !read_only {
        let mut write = Effect::path(Action::Write, source);
        write.recursive = true;
        effects.push(write);
    }
}

/// `@path`, `name@path`, `name=@path` and `name=<path`: the file is read.
pub(crate) fn at_file(word: &Word, effects: &mut Vec<Effect>) {
    let prefix = word.known_prefix();
    let start = match prefix.iter().position(|byte| b"=@<".contains(byte)) {
        Some(at) if prefix[at] == b'@' => at + 1,
        Some(at) if prefix[at] == b'=' && matches!(prefix.get(at + 1), Some(b'@' | b'<')) => at + 2,
        Some(0) if prefix[0] == b'<' => 1,
        _ => return,
    };
    // curl lets `;type=…` follow the name.
    path(Action::Read, &until(&word.tail(start), b";"), effects);
}

/// A word of which only its program knows what it is for. What looks like a path may be read; text
/// with blanks in it is no path that anybody means.
pub(crate) fn argument(word: &Word, effects: &mut Vec<Effect>) {
    let known = word.known_prefix();
    let blank = |piece: &Piece| matches!(piece, Piece::Known(bytes) if bytes.iter().any(u8::is_ascii_whitespace));
    if word.pieces.iter().any(blank) || known.windows(3).any(|part| part == b"://") {
        return;
    }
    // `--file=/x`, `key:/x`, `@/x`, `-f/x`: the path starts behind the last mark before its first slash.
    let slash = known.iter().position(|&byte| byte == b'/');
    let head = &known[..slash.unwrap_or(known.len())];
    let mark = head.iter().rposition(|byte| b"=:@,<".contains(byte));
    let start = match (mark, slash) {
        (Some(mark), _) => mark + 1,
        (None, Some(slash)) if known.starts_with(b"-") => {
            slash - usize::from(head.ends_with(b"~") || head.ends_with(b"."))
        }
        (None, None) if known.starts_with(b"-") => return,
        _ => 0,
    };
    let looks_like_a_path = slash.is_some()
        || matches!(known.get(start), Some(b'.' | b'~'))
        || word.pieces.len() > 1 && word.known_suffix().contains(&b'/');
    if looks_like_a_path {
        let first = effects.len();
        path(Action::Read, &word.tail(start), effects);
        // Nobody knows what it does with a directory; that somebody means the whole machine by a lone
        // slash is least likely.
        let root = word.value() == Some(b"/");
        for effect in &mut effects[first..] {
            effect.recursive |= matches!(effect.object, Object::Path(_)) && !root;
        }
    }
}

/// Whether a mode of `chmod` sets the set-user or set-group bit.
pub(crate) fn sets_identity(word: &Word) -> bool {
    let Some(mode) = word.value() else {
        return false;
    };
    if !mode.is_empty() && mode.iter().all(|byte| (b'0'..=b'7').contains(byte)) {
        let special = if mode.len() > 3 {
            mode[mode.len() - 4] - b'0'
        } else {
            0
        };
        return special & 6 != 0;
    }
    mode.split(|&byte| byte == b',').any(|clause| {
        clause
            .iter()
            .position(|byte| b"+=".contains(byte))
            .is_some_and(|at| clause[at..].contains(&b's'))
    })
}

/// What SQL text does beyond queries. Text that is no SQL to the parser is looked at word by word as it is.
pub(crate) fn sql(word: &Word, effects: &mut Vec<Effect>) {
    let text = word.text();
    match sql_parts(&text) {
        Some(parts) => parts.iter().for_each(|part| sql_words(part, effects)),
        None => sql_words(&text, effects),
    }
}

#[cfg(not(feature = "parse"))]
fn sql_parts(_text: &[u8]) -> Option<Vec<Vec<u8>>> {
    None
}

/// The statements of SQL text that do not only query, without comments, strings and quoted names.
#[cfg(feature = "parse")]
fn sql_parts(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    use sqlparser::ast::{SetExpr, Statement};
    use sqlparser::dialect::GenericDialect;
    use sqlparser::parser::Parser;
    use sqlparser::tokenizer::{Token, Tokenizer};

    const MAX_SQL: usize = 16 * 1024;
    const MAX_DEPTH: usize = 40;
    let text = std::str::from_utf8(text)
        .ok()
        .filter(|text| text.len() <= MAX_SQL && !runs_text(text))?;
    let dialect = GenericDialect {};
    let queries = |statement: &Statement| match statement {
        // Only a plain query is surely one: `WITH x AS (DELETE …)` is a query too.
        Statement::Query(query) => {
            query.with.is_none()
                && matches!(
                    *query.body,
                    SetExpr::Select(_) | SetExpr::Values(_) | SetExpr::SetOperation { .. }
                )
        }
        _ => false,
    };
    let parsed = Parser::new(&dialect)
        .with_recursion_limit(MAX_DEPTH)
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_statements());
    if let Ok(statements) = &parsed
        && statements.iter().all(queries)
    {
        return Some(Vec::new());
    }
    let tokens = Tokenizer::new(&dialect, text).tokenize().ok()?;
    let mut parts = vec![Vec::new()];
    for token in tokens {
        let part = match token {
            Token::SemiColon => {
                parts.push(Vec::new());
                continue;
            }
            Token::Whitespace(_) => " ".to_owned(),
            Token::Word(word) if word.quote_style.is_some() => "quoted".to_owned(),
            // Left out, so that a condition such as `1=1` still looks like one.
            Token::Word(_) | Token::Number(..) => token.to_string(),
            // The body of a procedure, which `DO` runs.
            Token::DollarQuotedString(body) => body.value,
            _ => " ".to_owned(),
        };
        if let Some(last) = parts.last_mut() {
            last.extend_from_slice(part.as_bytes());
        }
    }
    Some(parts)
}

/// Whether some database runs what looks like a comment or a string to others: `/*!…*/` and `--x` are
/// code to MySQL, and `EXECUTE '…'` is everywhere.
#[cfg(feature = "parse")]
fn runs_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    let pairs = || bytes.windows(3);
    let upper = text.to_ascii_uppercase();
    pairs().any(|part| part == b"/*!" || part == b"/*M")
        || pairs().any(|part| part.starts_with(b"--") && !part[2].is_ascii_whitespace())
        || ["EXEC", "PREPARE", "EVAL", "QUERY_TO_XML", "DBLINK"]
            .iter()
            .any(|word| upper.contains(word))
}

/// What SQL does, by its words.
fn sql_words(text: &[u8], effects: &mut Vec<Effect>) {
    let text = text.to_ascii_uppercase();
    for statement in text.split(|&byte| byte == b';') {
        let tokens: Vec<&[u8]> = statement
            .split(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'))
            .filter(|token| !token.is_empty())
            .collect();
        let has = |token: &[u8]| tokens.contains(&token);
        let follows = |one: &[u8], other: &[u8]| {
            tokens
                .windows(2)
                .any(|pair| pair[0] == one && pair[1] == other)
        };
        let starts = tokens.first().copied().unwrap_or_default();
        let drops = [
            b"DATABASE".as_slice(),
            b"TABLE",
            b"SCHEMA",
            b"VIEW",
            b"INDEX",
            b"USER",
            b"ROLE",
            b"COLUMN",
            b"COLLECTION",
        ]
        .iter()
        .any(|kind| follows(b"DROP", kind));
        // A condition that always holds chooses nothing.
        let chooses = has(b"WHERE") && !follows(b"WHERE", b"TRUE") && !follows(b"WHERE", b"1");
        let alters = starts == b"ALTER" && has(b"DROP");
        if drops
            || starts == b"DROP"
            || alters
            || starts == b"TRUNCATE"
            || follows(b"TRUNCATE", b"TABLE")
            || (follows(b"DELETE", b"FROM") && !chooses)
            || (starts == b"UPDATE" && has(b"SET") && !chooses)
            || follows(b"DETACH", b"DELETE")
            || matches!(starts, b"FLUSHALL" | b"FLUSHDB")
        {
            let deleted = Effect::new(Action::Delete, Object::Resource("database".to_owned()));
            if !effects.contains(&deleted) {
                effects.push(deleted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(check: impl Fn(&mut Vec<Effect>)) -> Vec<(String, Option<u16>)> {
        let mut effects = Vec::new();
        check(&mut effects);
        effects
            .iter()
            .map(|effect| match &effect.object {
                Object::Host { host, port } => {
                    (String::from_utf8_lossy(&host.text()).into_owned(), *port)
                }
                Object::Path(path) => (
                    format!("path {}", String::from_utf8_lossy(&path.text())),
                    None,
                ),
                other => (format!("{other:?}"), None),
            })
            .collect()
    }

    #[test]
    fn urls_give_host_and_port() {
        let cases = [
            ("https://example.com/x", "example.com", Some(443)),
            ("http://user:pw@example.com:8080", "example.com", Some(8080)),
            ("example.com/path", "example.com", None),
            ("https://[::1]:9/", "::1", Some(9)),
            ("ftp://example.com", "example.com", Some(21)),
            ("file:///etc/passwd", "path /etc/passwd", None),
        ];
        for (text, host, port) in cases {
            assert_eq!(
                hosts(|effects| url(&Word::from(text), effects)),
                [(host.to_owned(), port)],
                "{text}"
            );
        }
    }

    #[test]
    fn remote_places_are_told_from_paths() {
        let cases = [
            ("user@example.com:dir", "example.com", Some(22)),
            ("example.com:", "example.com", Some(22)),
            ("./a:b", "path ./a:b", None),
            ("dir/file", "path dir/file", None),
            ("ssh://git@example.com/x", "example.com", Some(22)),
        ];
        for (text, host, port) in cases {
            assert_eq!(
                hosts(|effects| remote(&Word::from(text), &[Action::Read], effects)),
                [(host.to_owned(), port)],
                "{text}"
            );
        }
    }

    #[test]
    fn network_devices_are_connections() {
        let effect = network_device(&Word::from("/dev/tcp/10.0.0.1/4444")).unwrap();
        assert_eq!(
            effect.object,
            Object::Host {
                host: Word::from("10.0.0.1"),
                port: Some(4444)
            }
        );
        assert!(network_device(&Word::from("/dev/null")).is_none());
    }

    #[test]
    fn arguments_that_look_like_paths_may_be_read() {
        let read = |text: &str| -> Vec<String> {
            let found = hosts(|effects| argument(&Word::from(text), effects));
            found.into_iter().map(|(path, _)| path).collect()
        };
        for (text, path) in [
            ("/root/.ssh/id_rsa", "/root/.ssh/id_rsa"),
            ("--file=/etc/shadow", "/etc/shadow"),
            ("-f/etc/shadow", "/etc/shadow"),
            ("-f./x/y", "./x/y"),
            ("@/etc/shadow", "/etc/shadow"),
            ("FILE:/etc/shadow,ro", "/etc/shadow,ro"),
            ("key=@../x", "../x"),
            (".env", ".env"),
            ("--env=.env", ".env"),
            ("a/b", "a/b"),
        ] {
            assert_eq!(read(text), [format!("path {path}")], "{text}");
        }
        for text in [
            "status",
            "-x",
            "--all",
            "https://x/y",
            "see /etc/shadow",
            "",
        ] {
            assert_eq!(read(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn modes_that_raise_privilege() {
        for mode in ["u+s", "4755", "g=rxs", "a+x,u+s", "6755"] {
            assert!(sets_identity(&Word::from(mode)), "{mode}");
        }
        for mode in ["755", "u+x", "0755", "u-s", "1777"] {
            assert!(!sets_identity(&Word::from(mode)), "{mode}");
        }
    }

    #[test]
    fn destructive_sql_is_noticed() {
        let deletes = |text: &str| {
            let mut effects = Vec::new();
            sql(&Word::from(text), &mut effects);
            !effects.is_empty()
        };
        assert!(deletes("drop table users"));
        assert!(deletes("select 1; TRUNCATE logs"));
        assert!(deletes("DELETE FROM users"));
        assert!(deletes("DROP KEYSPACE k"));
        assert!(deletes("DELETE FROM users WHERE 1=1"));
        assert!(deletes("MATCH (n) DETACH DELETE n"));
        assert!(deletes("ALTER TABLE t DROP CONSTRAINT c"));
        assert!(!deletes("ALTER TABLE t ADD c int"));
        assert!(!deletes("DELETE FROM users WHERE id = 1"));
        assert!(!deletes("select * from dropped"));
        assert!(deletes(
            "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x"
        ));
        assert!(deletes("EXPLAIN ANALYZE DELETE FROM users"));
        assert!(deletes("select 1; -- just looking\ndrop table \"users\""));
        assert!(deletes("\\echo x\ndrop table users"));
        assert!(deletes("DROP/**/TABLE users"));
        assert!(deletes("dElEtE fRoM users"));
        assert!(deletes("select 1 /*!50000 ; drop table users */"));
        assert!(deletes("select 5--1; drop table users"));
        assert!(deletes("do $$ begin drop table users; end $$"));
        assert!(deletes("execute immediate 'drop table users'"));
    }

    #[cfg(feature = "parse")]
    #[test]
    fn text_in_sql_is_no_statement() {
        for text in [
            "select count(*) from t where a = 'drop table x'",
            "SELECT 1 -- drop table x",
            "select /* truncate t */ 2",
            "SELECT \"delete\" FROM t",
            "insert into notes values ('DELETE FROM users')",
            "update t set note = 'drop table x' where id = 3",
            "create table t (a int) -- truncate x",
        ] {
            let mut effects = Vec::new();
            sql(&Word::from(text), &mut effects);
            assert!(effects.is_empty(), "{text}");
        }
        let deep = format!("select {}1{}", "(".repeat(5000), ")".repeat(5000));
        sql(&Word::from(deep.as_str()), &mut Vec::new());
    }

    #[test]
    fn mounts_are_read_and_written() {
        let count = |text: &str| {
            let mut effects = Vec::new();
            volume(&Word::from(text), &mut effects);
            effects.len()
        };
        assert_eq!(count("/:/host"), 2);
        assert_eq!(count("./src:/src:ro"), 1);
        assert_eq!(count("data:/var/lib"), 0);
        assert_eq!(count("type=bind,source=/etc,target=/x"), 2);
    }
}
