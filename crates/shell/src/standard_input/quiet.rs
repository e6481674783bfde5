//! Lines that read nothing and change nothing about how later lines are read: many of them can be judged
//! and handed over at once.

/// Whether a line consists of assignments and of builtins that only write or set.
pub fn is_quiet(line: &[u8]) -> bool {
    let Some(commands) = commands(line) else {
        return false;
    };
    commands.iter().all(|words| {
        let command = words.iter().find(|word| !is_assignment(word));
        command.is_none_or(|name| is_quiet_builtin(name))
    })
}

/// Whether a builtin neither reads nor changes what later words mean.
pub fn is_quiet_builtin(name: &[u8]) -> bool {
    matches!(
        name,
        b"echo"
            | b"printf"
            | b":"
            | b"true"
            | b"false"
            | b"test"
            | b"pwd"
            | b"cd"
            | b"export"
            | b"umask"
            | b"shift"
    )
}

fn is_assignment(word: &[u8]) -> bool {
    let name = word.split(|byte| *byte == b'=').next().unwrap_or_default();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.len() < word.len()
        && !name.first().is_none_or(u8::is_ascii_digit)
        && name.iter().all(plain)
}

/// The words of each simple command, quotes taken off; `None` for a line that has anything else.
fn commands(line: &[u8]) -> Option<Vec<Vec<Vec<u8>>>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' | b'\n' | b';' => {
                commands.last_mut()?.extend(word.take());
                if byte == b';' {
                    commands.push(Vec::new());
                }
            }
            b'#' if word.is_none() => break,
            b'\'' | b'"' => {
                let text = word.get_or_insert_default();
                // A quoted name is no keyword and no assignment.
                text.push(b'\'');
                loop {
                    match bytes.next()? {
                        end if end == byte => break,
                        b'\\' | b'`' if byte == b'"' => return None,
                        b'$' if byte == b'"' && !bytes.peek().is_some_and(is_name) => return None,
                        other => text.push(other),
                    }
                }
            }
            b'$' if !bytes.peek().is_some_and(is_name) => return None,
            b'\\' | b'`' | b'(' | b')' | b'{' | b'}' | b'[' | b'<' | b'>' | b'|' | b'&' | b'!'
            | 0 => {
                return None;
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    commands.last_mut()?.extend(word.take());
    Some(commands)
}

/// What makes a plain parameter after `$`.
fn is_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'?' | b'#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_reads_nothing_is_quiet() {
        for line in [
            "",
            "# it's",
            "echo a b",
            "x=1; echo \"$x\" 'y z' $?",
            "A=1 B=2 printf %s a",
            "cd /tmp # there",
            "export X=1",
        ] {
            assert!(is_quiet(line.as_bytes()), "{line:?}");
        }
        for line in [
            "read x",
            "ls",
            "echo $(x)",
            "echo \"$(x)\"",
            "echo \"${x@P}\"",
            "echo 'a",
            "echo a \\",
            "echo a | cat",
            "$x y",
            "x=1 $y",
            "'read' x",
            "a[1]=2",
            "echo a > b",
            "f() { :; }",
            "trap x DEBUG",
        ] {
            assert!(!is_quiet(line.as_bytes()), "{line:?}");
        }
    }
}
