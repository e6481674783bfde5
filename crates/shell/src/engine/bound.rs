//! Keys that the user has bound to commands of the shell: `bind -x`, and macros that have the shell
//! expand a command in the line, as fzf's do.

/// A key, or keys, and what is done when they are pressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What the terminal sends.
    pub keys: Vec<u8>,
    /// The command.
    pub command: Vec<u8>,
    /// What it does to the line.
    pub then: Then,
}

/// What becomes of the line when a bound command has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is what the command has left in `READLINE_LINE`.
    Edit,
    /// It is what the command prints.
    Replace,
    /// The same, and it is submitted.
    Submit,
    /// What it prints is the answer of a completion.
    Complete,
}

/// Reads what `bind -X` and `bind -s` print.
pub fn read(commands: &[u8], macros: &[u8]) -> Vec<Bound> {
    let commands = commands.split(|&byte| byte == b'\n').filter_map(|line| {
        let (keys, command) = entry(line)?;
        let keys = decode(keys);
        let command = unquote(command);
        Some(Bound {
            keys,
            command,
            then: Then::Edit,
        })
    });
    let macros = macros.split(|&byte| byte == b'\n').filter_map(|line| {
        let (keys, text) = entry(line)?;
        let mut parts = text.split(|&byte| byte == b'`').skip(1);
        let command = unquote(parts.next()?);
        // The shell expands the line when the macro presses Meta-Control-E.
        let rest = parts.next()?.strip_prefix(br"\e\C-e")?;
        let submitted = rest.windows(4).any(|part| part == br"\C-m");
        Some(Bound {
            keys: decode(keys),
            command,
            then: match submitted {
                true => Then::Submit,
                false => Then::Replace,
            },
        })
    });
    commands
        .chain(macros)
        .filter(|bound| !bound.keys.is_empty() && !bound.command.is_empty())
        .collect()
}

/// The two quoted parts of `"keys": "text"`.
fn entry(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let at = line.windows(4).position(|part| part == b"\": \"")?;
    Some((line.get(..at)?, line.get(at + 4..)?))
}

fn unquote(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => out.extend(bytes.next()),
            _ => out.push(byte),
        }
    }
    out
}

/// The bytes of keys in readline's notation; nothing where it says something that is not known here.
fn decode(mut text: &[u8]) -> Vec<u8> {
    let mut keys = Vec::new();
    while let Some((&first, rest)) = text.split_first() {
        if first != b'\\' {
            keys.push(first);
            text = rest;
        } else if let [b'C', b'-', key, rest @ ..] = rest {
            keys.push(if *key == b'?' { 0x7f } else { key & 0x1f });
            text = rest;
        } else if let [b'M', b'-', rest @ ..] = rest {
            keys.push(0x1b);
            text = rest;
        } else if let [b'e', rest @ ..] = rest {
            keys.push(0x1b);
            text = rest;
        } else if let [key @ (b'\\' | b'"'), rest @ ..] = rest {
            keys.push(*key);
            text = rest;
        } else {
            return Vec::new();
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_are_read_as_bash_prints_them() {
        let bound = read(
            b"\"\\C-r\": \"__fzf_history__\"\n\"\\C-x\\\\\": \"echo \\\"x\\\"\"\n",
            b"\"\\ec\": \" \\C-b\\C-k \\C-u`__fzf_cd__`\\e\\C-e\\er\\C-m\\C-y\"\n\"\\C-xa\": \"plain text\"\n",
        );
        let seen: Vec<(&[u8], &[u8], Then)> = bound
            .iter()
            .map(|bound| (&bound.keys[..], &bound.command[..], bound.then))
            .collect();
        assert_eq!(
            seen,
            [
                (&b"\x12"[..], &b"__fzf_history__"[..], Then::Edit),
                (b"\x18\\", b"echo \"x\"", Then::Edit),
                (b"\x1bc", b"__fzf_cd__", Then::Submit),
            ]
        );
        assert_eq!(read(b"nonsense\n\"\\F1\": \"x\"\n", b""), []);
    }
}
