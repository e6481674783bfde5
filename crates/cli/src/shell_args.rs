//! Arguments in shell mode: those of bash, wherever a program would call `$SHELL`, and our own
//! long options in front of them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// What a shell invocation asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ShellArgs {
    /// `-c`: the first operand is the line.
    pub command: bool,
    /// `-l`, `--login`, or a name that begins with a dash.
    pub login: bool,
    /// `-i`.
    pub interactive: bool,
    /// `-s`: commands come from standard input.
    pub stdin: bool,
    /// Options that bash gets as they are.
    pub options: Vec<OsString>,
    /// `-o` or `-O` as the last word: bash lists its settings, then goes on.
    pub listing: Option<Listing>,
    /// Line or script, and parameters.
    pub operands: Vec<OsString>,
    /// `--policy`.
    pub policy: Option<OsString>,
    /// `--require-approval`.
    pub require_approval: bool,
    /// `--no-world`.
    pub no_world: bool,
    /// `--record`.
    pub record: bool,
    /// `--json-errors`.
    pub json_errors: bool,
    /// `--replay SPAN`.
    pub replay: Option<OsString>,
    /// `--replay-verbose`.
    pub replay_verbose: bool,
    /// `--help` or `--version`.
    pub about: Option<About>,
}

/// What is asked about Substrate itself.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum About {
    /// `--help`
    Help,
    /// `--version`
    Version,
}

/// Settings that bash is asked to list.
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Listing {
    /// The option as bash gets it.
    pub option: &'static str,
    /// The command that prints the same.
    pub command: &'static str,
}

impl Listing {
    fn of(sign: char, letter: u8) -> Self {
        let (option, command) = match (sign, letter) {
            ('-', b'o') => ("-o", "set -o"),
            (_, b'o') => ("+o", "set +o"),
            ('-', _) => ("-O", "shopt"),
            (..) => ("+O", "shopt -p"),
        };
        Self { option, command }
    }
}

/// Long options that bash gets as they are.
const PASSED_ON: &[&str] = &[
    "debug",
    "debugger",
    "dump-po-strings",
    "dump-strings",
    "noediting",
    "noprofile",
    "norc",
    "posix",
    "pretty-print",
    "restricted",
    "verbose",
];

/// The letters that bash's `set` knows; they are passed on.
const SET_LETTERS: &[u8] = b"abefhkmnprtuvxBCEHPTD";

/// Reads the arguments after the program's name.
pub fn parse(arguments: &[OsString]) -> Result<ShellArgs, String> {
    let mut args = ShellArgs {
        login: arguments
            .first()
            .is_some_and(|name| name.as_bytes().starts_with(b"-")),
        ..ShellArgs::default()
    };
    // Alone, they ask about Substrate; among others, `-h` is bash's.
    match arguments {
        [_, only] if only == "-h" => args.about = Some(About::Help),
        [_, only] if only == "-V" => args.about = Some(About::Version),
        _ => {}
    }
    if args.about.is_some() {
        return Ok(args);
    }
    let mut rest = arguments.iter().skip(1);
    // In front of everything else, bash takes its long options with one dash as well.
    let mut long_only = true;
    while let Some(argument) = rest.next() {
        let bytes = argument.as_bytes();
        if bytes == b"--" || bytes == b"-" {
            break;
        }
        if let Some(name) = bytes.strip_prefix(b"--") {
            args.long(name, &mut rest)?;
        } else if long_only && bytes.strip_prefix(b"-").is_some_and(is_bash_long) {
            args.long(&bytes[1..], &mut rest)?;
        } else if matches!(bytes.first(), Some(b'-' | b'+')) {
            long_only = false;
            args.short(argument, &mut rest)?;
        } else {
            args.operands.push(argument.clone());
            break;
        }
    }
    args.operands.extend(rest.cloned());
    if args.command && args.operands.is_empty() {
        return Err("-c: option requires an argument".to_owned());
    }
    Ok(args)
}

/// Whether bash has a long option of this name.
fn is_bash_long(name: &[u8]) -> bool {
    matches!(
        name,
        b"help" | b"version" | b"login" | b"rcfile" | b"init-file"
    ) || PASSED_ON.iter().any(|known| known.as_bytes() == name)
}

impl ShellArgs {
    fn long<'a>(
        &mut self,
        name: &[u8],
        rest: &mut impl Iterator<Item = &'a OsString>,
    ) -> Result<(), String> {
        let (name, attached) = match name.iter().position(|byte| *byte == b'=') {
            Some(at) => (
                &name[..at],
                Some(OsStr::from_bytes(&name[at + 1..]).to_owned()),
            ),
            None => (name, None),
        };
        let shown = String::from_utf8_lossy(name).into_owned();
        let mut value = || {
            attached
                .clone()
                .or_else(|| rest.next().cloned())
                .ok_or_else(|| format!("--{shown}: option requires an argument"))
        };
        match name {
            b"policy" => self.policy = Some(value()?),
            b"replay" => self.replay = Some(value()?),
            b"rcfile" | b"init-file" => {
                let file = value()?;
                self.options.extend([OsString::from("--rcfile"), file]);
            }
            _ if attached.is_some() => return Err(format!("--{shown}: option takes no argument")),
            b"replay-verbose" => self.replay_verbose = true,
            b"require-approval" => self.require_approval = true,
            b"no-world" => self.no_world = true,
            b"record" => self.record = true,
            b"json-errors" => self.json_errors = true,
            b"login" => self.login = true,
            b"help" => self.about = Some(About::Help),
            b"version" => self.about = Some(About::Version),
            _ if PASSED_ON.contains(&shown.as_str()) => {
                self.options.push(OsString::from(format!("--{shown}")));
            }
            _ => return Err(format!("--{shown}: invalid option")),
        }
        Ok(())
    }

    fn short<'a>(
        &mut self,
        argument: &OsStr,
        rest: &mut impl Iterator<Item = &'a OsString>,
    ) -> Result<(), String> {
        let bytes = argument.as_bytes();
        let sign = char::from(bytes[0]);
        for letter in &bytes[1..] {
            match letter {
                // For these bash does not look at the sign.
                b'c' => self.command = true,
                b'l' => self.login = true,
                b's' => self.stdin = true,
                b'i' => self.interactive = sign == '-',
                b'o' | b'O' => match rest.next() {
                    Some(name) => {
                        let option = OsString::from(format!("{sign}{}", char::from(*letter)));
                        self.options.extend([option, name.clone()]);
                    }
                    None => {
                        self.listing = Some(Listing::of(sign, *letter));
                        return Ok(());
                    }
                },
                letter if SET_LETTERS.contains(letter) => {
                    self.options
                        .push(OsString::from(format!("{sign}{}", char::from(*letter))));
                }
                _ => return Err(format!("{}: invalid option", argument.display())),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> Result<ShellArgs, String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        parse(&words)
    }

    #[test]
    fn what_programs_say_to_a_shell() {
        for (words, command, login, interactive, operands) in [
            (
                &["substrate", "-c", "echo hi"][..],
                true,
                false,
                false,
                &["echo hi"][..],
            ),
            (
                &["substrate", "-lc", "echo hi", "name", "a"],
                true,
                true,
                false,
                &["echo hi", "name", "a"],
            ),
            (&["substrate", "-ic", "x"], true, false, true, &["x"]),
            (&["-substrate", "-c", "x"], true, true, false, &["x"]),
            (
                &["substrate", "-c", "--", "-x"],
                true,
                false,
                false,
                &["-x"],
            ),
            (
                &["substrate", "script", "-c"],
                false,
                false,
                false,
                &["script", "-c"],
            ),
            (
                &["substrate", "--", "-script"],
                false,
                false,
                false,
                &["-script"],
            ),
            (&["substrate", "-c", "-e", "x"], true, false, false, &["x"]),
            (
                &["substrate", "-c", "--", "--", "x"],
                true,
                false,
                false,
                &["--", "x"],
            ),
            (&["substrate", "-c", "-", "x"], true, false, false, &["x"]),
            (&["substrate", "-c", "+", "x"], true, false, false, &["x"]),
            (&["substrate", "+c", "x"], true, false, false, &["x"]),
            (&["substrate", "-i", "+i", "x"], false, false, false, &["x"]),
            (
                &["substrate", "-login", "-c", "x"],
                true,
                true,
                false,
                &["x"],
            ),
            (&["substrate"], false, false, false, &[]),
        ] {
            let parsed = args(words).unwrap();
            assert_eq!(
                (parsed.command, parsed.login, parsed.interactive),
                (command, login, interactive),
                "{words:?}"
            );
            assert_eq!(parsed.operands, operands, "{words:?}");
        }
    }

    #[test]
    fn options_are_passed_on() {
        let parsed = args(&["substrate", "-euxo", "pipefail", "--norc", "-c", "x"]).unwrap();
        assert_eq!(
            parsed.options,
            ["-e", "-u", "-x", "-o", "pipefail", "--norc"]
        );
        let own = args(&["substrate", "--policy=dev", "--require-approval", "-c", "x"]).unwrap();
        assert_eq!(
            (own.policy, own.require_approval),
            (Some("dev".into()), true)
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (words, text) in [
            (&["substrate", "-c"][..], "-c: option requires an argument"),
            (&["substrate", "--polic", "x"], "--polic: invalid option"),
            (&["substrate", "-Z"], "-Z: invalid option"),
            (
                &["substrate", "--no-world=yes"],
                "--no-world: option takes no argument",
            ),
            (
                &["substrate", "--policy"],
                "--policy: option requires an argument",
            ),
        ] {
            assert_eq!(args(words).unwrap_err(), text);
        }
    }
}
