//! Whether a line is complete: the shell's own answer, not a parser's.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether the shell would run this text, or wait for more of it.
///
/// What the shell calls a syntax error is complete: the engine says what is wrong with it.
pub fn is_complete(text: &[u8], shell: &Path, bash: bool) -> bool {
    if is_plain(text) {
        return true;
    }
    if ends_in_continuation(text) {
        return false;
    }
    let Some(said) = check(text, shell, bash) else {
        return true;
    };
    !INCOMPLETE.iter().any(|sign| said.contains(sign))
}

/// What bash and dash say, in the C locale, when the text ends too early.
const INCOMPLETE: [&str; 7] = [
    "unexpected end of file",
    "unexpected EOF while looking for",
    "delimited by end-of-file",
    "unexpected token `EOF'",
    "end of file unexpected",
    "Unterminated quoted string",
    "Missing '",
];

/// Words and simple separators alone are always complete, and need no process to tell.
fn is_plain(text: &[u8]) -> bool {
    let special = |byte: &u8| {
        matches!(
            byte,
            b'\''
                | b'"'
                | b'`'
                | b'\\'
                | b'('
                | b')'
                | b'{'
                | b'}'
                | b'['
                | b'<'
                | b'>'
                | b'|'
                | b'&'
                | b'\n'
        )
    };
    if text.iter().any(special) {
        return false;
    }
    // A reserved word may open what a later line closes.
    let opens = |word: &[u8]| {
        matches!(
            word,
            b"if"
                | b"for"
                | b"while"
                | b"until"
                | b"case"
                | b"select"
                | b"function"
                | b"do"
                | b"then"
                | b"time"
                | b"coproc"
                | b"!"
                | b"else"
                | b"elif"
        )
    };
    !text
        .split(|byte| byte.is_ascii_whitespace() || *byte == b';')
        .any(opens)
}

/// A backslash at the very end asks for another line, unless a comment holds it.
fn ends_in_continuation(text: &[u8]) -> bool {
    let backslashes = text.iter().rev().take_while(|byte| **byte == b'\\').count();
    if backslashes % 2 == 0 {
        return false;
    }
    let start = text
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let last_line = text.get(start..).unwrap_or_default();
    last_line.trim_ascii_start().first() != Some(&b'#')
}

fn check(text: &[u8], shell: &Path, bash: bool) -> Option<String> {
    let mut command = Command::new(shell);
    if bash {
        // Patterns such as `!(a)` are words or errors depending on an option the engine may have.
        command.args(["--norc", "--noprofile", "-O", "extglob"]);
    }
    let mut child = command
        .args(["-n", "-s"])
        .env_clear()
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    if let Some(mut stdin) = child.stdin.take() {
        // The shell stops reading at the first error, so a broken pipe is an answer, too.
        let _ = stdin.write_all(text).and_then(|()| stdin.write_all(b"\n"));
    }
    let output = child.wait_with_output().ok()?;
    Some(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(text: &str) -> bool {
        is_complete(text.as_bytes(), Path::new("/bin/bash"), true)
    }

    #[test]
    fn bash_decides() {
        for text in [
            "",
            "ls -l",
            "echo 'a b'",
            "a | b",
            "rm !(a)",
            "x=(1 2)",
            "cat 3<>file",
            "echo )",
            "# it's \\",
            "if true; then echo; fi",
            "f() { echo; }",
            "cat <<E\nx\nE",
            "echo $((1+2))",
            "time ls",
            "coproc C { cat; }",
            "[[ a == b ]]",
            "case x in x) ;; esac",
            "echo \\\\",
        ] {
            assert!(complete(text), "{text:?} is complete");
        }
        for text in [
            "echo 'a",
            "echo \"a",
            "a |",
            "a &&",
            "echo $(",
            "if true",
            "if true; then",
            "for x in a; do",
            "f() {",
            "cat <<E",
            "cat <<E\nx",
            "case x in",
            "echo a \\",
            "(",
            "{ echo",
            "echo `ls",
            "x=(",
            "[[ a &&",
            "while :",
        ] {
            assert!(!complete(text), "{text:?} is not complete");
        }
    }
}
