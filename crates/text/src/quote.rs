//! An argument vector as a line that a shell would read back as the same words.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Joins words with spaces and quotes those that need it.
pub fn command_line<W: AsRef<OsStr>>(argv: &[W]) -> OsString {
    let mut line = Vec::new();
    for (at, word) in argv.iter().enumerate() {
        if at > 0 {
            line.push(b' ');
        }
        let word = word.as_ref().as_bytes();
        // An assignment in front would otherwise not be the command's name any more.
        let plain = |byte: &u8| {
            byte.is_ascii_alphanumeric()
                || matches!(
                    byte,
                    b'_' | b'-' | b'.' | b'/' | b':' | b'@' | b'%' | b'+' | b','
                )
                || *byte == b'=' && at > 0
        };
        if !word.is_empty() && word.iter().all(plain) {
            line.extend_from_slice(word);
            continue;
        }
        line.push(b'\'');
        for &byte in word {
            match byte {
                b'\'' => line.extend_from_slice(b"'\\''"),
                other => line.push(other),
            }
        }
        line.push(b'\'');
    }
    OsString::from_vec(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_where_needed() {
        for (argv, line) in [
            (&["ls", "-l", "/tmp"][..], "ls -l /tmp"),
            (&["printf", "%s\n", "a b"], "printf '%s\n' 'a b'"),
            (&["echo", "", "it's", "$x"], "echo '' 'it'\\''s' '$x'"),
            (&["A=1", "B=2"], "'A=1' B=2"),
            (&["x", "~", "#a", "*"], "x '~' '#a' '*'"),
        ] {
            assert_eq!(command_line(argv), line);
        }
    }

    #[test]
    fn a_shell_reads_the_same_words() {
        let argv: &[&[u8]] = &[
            b"printf",
            b"<%s>",
            b"a\xffb",
            b"x'y\"z\\",
            b"",
            b" \t\n",
            b"!-$(x)`y`",
        ];
        let words: Vec<&OsStr> = argv.iter().map(|word| OsStr::from_bytes(word)).collect();
        let output = std::process::Command::new("/bin/sh")
            .arg("-c")
            .arg(command_line(&words))
            .output()
            .unwrap();
        let expected: Vec<u8> = argv[2..]
            .iter()
            .flat_map(|word| [b"<", *word, b">"].concat())
            .collect();
        assert_eq!(output.stdout, expected);
    }
}
