//! The words before the cursor, as completion needs them.

/// A word of the command under the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Where it starts in the line.
    pub start: usize,
    /// As typed, quotes included.
    pub raw: String,
    /// Without quotes.
    pub plain: String,
    /// The quote that is still open at its end.
    pub open_quote: Option<char>,
}

/// The command that the cursor is in: its words up to the cursor, the last one under it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Where the command starts in the line.
    pub start: usize,
    /// Its words; the last is the one to complete and may be empty.
    pub words: Vec<Word>,
    /// The word under the cursor is the target of a redirection.
    pub redirection: bool,
}

/// Cuts the text before the cursor into the words of its last command.
pub fn command_at_end(text: &str) -> Command {
    let mut command = Command::default();
    let mut word: Option<Word> = None;
    let mut quote: Option<char> = None;
    let mut redirection = false;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let open = |word: &mut Option<Word>| {
            word.get_or_insert_with(|| Word {
                start: at,
                raw: String::new(),
                plain: String::new(),
                open_quote: None,
            });
        };
        if let Some(mark) = quote {
            open(&mut word);
            let Some(current) = word.as_mut() else {
                continue;
            };
            current.raw.push(character);
            if character == mark {
                quote = None;
            } else if character == '\\' && mark == '"' {
                if let Some((_, next)) = characters.next() {
                    current.raw.push(next);
                    if !matches!(next, '"' | '\\' | '$' | '`') {
                        current.plain.push('\\');
                    }
                    current.plain.push(next);
                }
            } else {
                current.plain.push(character);
            }
            continue;
        }
        match character {
            ' ' | '\t' => {
                if let Some(done) = word.take() {
                    command.words.push(done);
                    redirection = false;
                }
            }
            ';' | '|' | '&' | '\n' | '(' | ')' | '`' => {
                // `$(` and `` ` `` start a command of their own inside the word.
                word = None;
                command = Command {
                    start: at + 1,
                    ..Command::default()
                };
                redirection = false;
            }
            '<' | '>' => {
                if let Some(done) = word.take() {
                    command.words.push(done);
                }
                redirection = true;
            }
            '\'' | '"' => {
                quote = Some(character);
                open(&mut word);
                if let Some(current) = word.as_mut() {
                    current.raw.push(character);
                }
            }
            '\\' => {
                open(&mut word);
                if let (Some(current), Some((_, next))) = (word.as_mut(), characters.next()) {
                    current.raw.push(character);
                    current.raw.push(next);
                    if next != '\n' {
                        current.plain.push(next);
                    }
                }
            }
            _ => {
                open(&mut word);
                if let Some(current) = word.as_mut() {
                    current.raw.push(character);
                    current.plain.push(character);
                }
            }
        }
    }
    let mut last = word.unwrap_or(Word {
        start: text.len(),
        raw: String::new(),
        plain: String::new(),
        open_quote: None,
    });
    last.open_quote = quote;
    command.words.push(last);
    command.redirection = redirection;
    drop_leading_assignments(&mut command);
    command
}

/// Assignments and words such as `sudo`'s place before a command are not the command.
fn drop_leading_assignments(command: &mut Command) {
    while command.words.len() > 1 {
        let is_assignment = command.words.first().is_some_and(|word| {
            word.raw.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            })
        });
        let is_keyword = command.words.first().is_some_and(|word| {
            matches!(
                word.raw.as_str(),
                "if" | "then" | "else" | "elif" | "while" | "until" | "do" | "time" | "!" | "{"
            )
        });
        if !is_assignment && !is_keyword {
            break;
        }
        command.words.remove(0);
    }
    if let Some(first) = command.words.first() {
        command.start = first.start;
    }
}

/// What readline breaks words at while nobody has set `COMP_WORDBREAKS`.
pub const BREAKS: &str = " \t\n\"'@><=;|&(:";

/// The text before the cursor that a completion takes the place of, as readline finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where it starts in the line; after a quote that is open.
    pub start: usize,
    /// As typed.
    pub raw: String,
    /// Without quotes.
    pub plain: String,
    /// The quote that is open around it.
    pub quote: Option<char>,
}

/// Finds it.
pub fn target(text: &str, breaks: &str) -> Target {
    let mut quote: Option<(char, usize)> = None;
    let mut start = 0;
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        let end = at + character.len_utf8();
        match quote {
            Some(('\'', _)) if character == '\\' => {}
            _ if character == '\\' => {
                characters.next();
            }
            Some((mark, _)) if character == mark => quote = None,
            Some(_) => {}
            None if matches!(character, '"' | '\'') => quote = Some((character, end)),
            None if breaks.contains(character) => {
                // A host is told by what stands before it.
                start = if character == '@' { at } else { end };
            }
            None => {}
        }
    }
    let (start, quote) = match quote {
        Some((mark, after)) => (after, Some(mark)),
        None => (start, None),
    };
    let raw = text.get(start..).unwrap_or_default().to_owned();
    Target {
        start,
        plain: without_quotes(&raw, quote),
        raw,
        quote,
    }
}

/// A text without its quotes, of which one may be open already.
pub fn without_quotes(text: &str, open: Option<char>) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut quote = open;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some('\''), '\'') => quote = None,
            (Some('\''), _) => plain.push(character),
            (Some(_), '"') => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            (inside, '\\') => {
                let Some(next) = characters.next() else {
                    break;
                };
                if inside.is_some() && !matches!(next, '"' | '\\' | '$' | '`') {
                    plain.push('\\');
                }
                plain.push(next);
            }
            _ => plain.push(character),
        }
    }
    plain
}

/// Words as `COMP_WORDS` has them: cut at blanks, and at the other breaks, runs of which are words too.
pub fn completion_words(text: &str, breaks: &str) -> Vec<String> {
    let breaks: String = breaks
        .chars()
        .filter(|c| !matches!(c, '"' | '\'') && !c.is_whitespace())
        .collect();
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote: Option<char> = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match quote {
            None if character.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            None if breaks.contains(character) => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                let mut run = String::from(character);
                while let Some(next) = characters.next_if(|next| breaks.contains(*next)) {
                    run.push(next);
                }
                words.push(run);
                continue;
            }
            None if matches!(character, '"' | '\'') => quote = Some(character),
            Some(mark) if character == mark => quote = None,
            _ => {}
        }
        word.push(character);
        if character == '\\' && quote != Some('\'') {
            word.extend(characters.next());
        }
    }
    let after_break = text
        .chars()
        .next_back()
        .is_some_and(|last| breaks.contains(last));
    if !word.is_empty() || !after_break {
        words.push(word);
    }
    words
}

/// What bash quotes a name for, if it has one of these at all.
const TRIGGERS: &str = " \t\n\\\"'@<>=;|&()#$`?*[!:{~";
/// What a backslash is put before.
const SPECIAL: &str = " \t\n!\"$&'()*,;<>?[\\]^`{|}";

/// Whether bash quotes a name at all.
pub fn needs_quotes(name: &str, kept: usize) -> bool {
    let rest = name.get(kept..).unwrap_or(name);
    rest.contains(|c| TRIGGERS.contains(c))
}

/// A name as bash's completion puts it into the line. `kept` bytes at its beginning, a `~user` or `$NAME` that
/// means something, stay as they are.
pub fn quote_match(name: &str, kept: usize, quote: Option<char>, breaks: &str) -> String {
    let (head, rest) = name.split_at_checked(kept).unwrap_or(("", name));
    if !needs_quotes(name, kept) {
        return name.to_owned();
    }
    let mut quoted = head.to_owned();
    for (at, character) in rest.char_indices() {
        let first = at == 0 && head.is_empty();
        match quote {
            Some('\'') if character == '\'' => quoted.push_str("'\\''"),
            Some('"') if matches!(character, '"' | '\\' | '$' | '`') => {
                quoted.push('\\');
                quoted.push(character);
            }
            Some(_) => quoted.push(character),
            None => {
                let special = SPECIAL.contains(character) || breaks.contains(character);
                if special || first && matches!(character, '#' | '~') {
                    quoted.push('\\');
                }
                quoted.push(character);
            }
        }
    }
    quoted
}

/// Whether the text looks like the beginning of a longer one: a guess that costs nothing.
pub fn goes_on(text: &str) -> bool {
    let open_quote = command_at_end(text)
        .words
        .last()
        .is_some_and(|word| word.open_quote.is_some());
    let more = |open: char, close: char| text.matches(open).count() > text.matches(close).count();
    let word = |wanted: &[&str]| {
        text.split(|c: char| c.is_whitespace() || c == ';')
            .any(|word| wanted.contains(&word))
    };
    open_quote
        || text.trim_end().ends_with(['|', '&', '\\', '(', '{'])
        || more('(', ')')
        || more('{', '}')
        || text.matches('`').count() % 2 == 1
        || (word(&["if", "then", "else"]) && !word(&["fi"]))
        || (word(&["for", "while", "until", "select", "do"]) && !word(&["done"]))
        || (word(&["case"]) && !word(&["esac"]))
        || text.contains("<<")
}

/// Quotes a name so that it can stand in the word being typed.
pub fn quote_name(name: &str, open_quote: Option<char>) -> String {
    let mut quoted = String::with_capacity(name.len());
    for character in name.chars() {
        match open_quote {
            Some('\'') if character == '\'' => quoted.push_str("'\\''"),
            Some('"') if matches!(character, '"' | '\\' | '$' | '`') => {
                quoted.push('\\');
                quoted.push(character);
            }
            Some(_) => quoted.push(character),
            None => {
                if " \t\n\\'\"`$&|;<>()[]{}*?!#~=".contains(character)
                    && !(character == '~' || character == '=')
                    || (matches!(character, '~' | '#') && quoted.is_empty())
                {
                    quoted.push('\\');
                }
                quoted.push(character);
            }
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Vec<String> {
        command_at_end(text)
            .words
            .into_iter()
            .map(|word| word.plain)
            .collect()
    }

    #[test]
    fn the_last_command_is_found() {
        assert_eq!(plain("ls; git che"), ["git", "che"]);
        assert_eq!(plain("A=1 B=2 git "), ["git", ""]);
        assert_eq!(plain("echo $(cat fi"), ["cat", "fi"]);
        assert_eq!(plain("if git st"), ["git", "st"]);
        assert_eq!(plain("cp a\\ b 'c d"), ["cp", "a b", "c d"]);
        assert!(command_at_end("cat > fo").redirection);
        assert_eq!(
            command_at_end("cp 'c d").words.last().unwrap().open_quote,
            Some('\'')
        );
    }

    #[test]
    fn half_a_line_is_told_from_a_whole_one() {
        for half in [
            "echo \"a",
            "a |",
            "a $(b",
            "for x in 1; do",
            "if a",
            "f() {",
            "a `b",
            "cat <<E",
        ] {
            assert!(goes_on(half), "{half}");
        }
        for whole in [
            "echo \"a\"",
            "a | b",
            "a $(b)",
            "for x in 1; do b; done",
            "f() { a; }",
            "make done",
        ] {
            assert!(!goes_on(whole), "{whole}");
        }
    }

    #[test]
    fn words_are_cut_like_readline_does() {
        let words = |text: &str| completion_words(text, BREAKS);
        assert_eq!(words("dd if=/etc/pa"), ["dd", "if", "=", "/etc/pa"]);
        assert_eq!(words("git checkout "), ["git", "checkout", ""]);
        assert_eq!(words("a b::c 'd e"), ["a", "b", "::", "c", "'d e"]);
        assert_eq!(words("dd if="), ["dd", "if", "="]);
        assert_eq!(words("a b\\ c"), ["a", "b\\ c"]);
    }

    #[test]
    fn what_is_replaced_starts_where_readline_says() {
        for (text, start, plain, quote) in [
            ("ls /et", 3, "/et", None),
            ("ls \"/home/my d", 4, "/home/my d", Some('"')),
            ("ls 'a\\", 4, "a\\", Some('\'')),
            ("ls \"my d\"/x", 3, "my d/x", None),
            ("ls my\\ d", 3, "my d", None),
            ("FOO=~/x", 4, "~/x", None),
            ("ssh me@ho", 6, "@ho", None),
            ("PATH=/a:/b", 8, "/b", None),
            ("cat >fi", 5, "fi", None),
            ("a ", 2, "", None),
        ] {
            let found = target(text, BREAKS);
            assert_eq!(
                (found.start, found.plain.as_str(), found.quote),
                (start, plain, quote),
                "{text}"
            );
        }
    }

    #[test]
    fn names_are_quoted_as_bash_quotes_them() {
        for (name, kept, quote, quoted) in [
            ("my docs", 0, None, "my\\ docs"),
            ("a,b", 0, None, "a,b"),
            ("a,b c", 0, None, "a\\,b\\ c"),
            ("a:b@c", 0, None, "a\\:b\\@c"),
            ("~/my docs", 1, None, "~/my\\ docs"),
            ("~x", 0, None, "\\~x"),
            ("$HOME/x y", 5, None, "$HOME/x\\ y"),
            ("it's", 0, Some('\''), "it'\\''s"),
            ("a\"b c", 0, Some('"'), "a\\\"b c"),
        ] {
            assert_eq!(quote_match(name, kept, quote, BREAKS), quoted, "{name}");
        }
    }

    #[test]
    fn names_are_quoted_for_where_they_stand() {
        assert_eq!(quote_name("a b$c", None), "a\\ b\\$c");
        assert_eq!(quote_name("a b$c", Some('"')), "a b\\$c");
        assert_eq!(quote_name("it's", Some('\'')), "it'\\''s");
        assert_eq!(quote_name("~x", None), "\\~x");
    }
}
