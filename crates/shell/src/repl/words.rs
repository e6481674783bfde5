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

/// Words as `COMP_WORDS` has them: also cut at `=` and `:`, which become words themselves.
///
/// The answer is the words, and where in the line the last of them starts.
pub fn completion_words(command: &Command) -> (Vec<String>, usize) {
    let mut words = Vec::new();
    let mut last_start = command.start;
    for word in &command.words {
        last_start = word.start;
        if word.raw.starts_with(['\'', '"']) {
            words.push(word.raw.clone());
            continue;
        }
        let mut piece = String::new();
        for (at, character) in word.raw.char_indices() {
            if character == '=' || character == ':' {
                if !piece.is_empty() {
                    words.push(std::mem::take(&mut piece));
                }
                words.push(character.to_string());
                last_start = word.start + at + 1;
            } else {
                piece.push(character);
            }
        }
        if !piece.is_empty() || word.raw.is_empty() {
            words.push(piece);
        }
    }
    (words, last_start)
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
        let command = command_at_end("dd if=/etc/pa");
        assert_eq!(
            completion_words(&command),
            (
                vec!["dd".into(), "if".into(), "=".into(), "/etc/pa".into()],
                6
            )
        );
        let command = command_at_end("git checkout ");
        assert_eq!(completion_words(&command).0, ["git", "checkout", ""]);
    }

    #[test]
    fn names_are_quoted_for_where_they_stand() {
        assert_eq!(quote_name("a b$c", None), "a\\ b\\$c");
        assert_eq!(quote_name("a b$c", Some('"')), "a b\\$c");
        assert_eq!(quote_name("it's", Some('\'')), "it'\\''s");
        assert_eq!(quote_name("~x", None), "\\~x");
    }
}
