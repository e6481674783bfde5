//! Commands that would have somebody else run the rest of a stream, or have the shell read it otherwise than it is
//! judged. No world holds what comes after, so where the policy enforces they are refused.

use substrate_command::{Invocation, Line, RedirectKind};

/// Shells, which take commands from standard input where nothing else is said.
const SHELLS: [&[u8]; 12] = [
    b"ash", b"bash", b"busybox", b"csh", b"dash", b"fish", b"ksh", b"mksh", b"rbash", b"sh",
    b"tcsh", b"zsh",
];

/// Programs that start a shell where no command is named.
const LEAD_TO_SHELLS: [&[u8]; 10] = [
    b"chroot", b"doas", b"login", b"newgrp", b"nsenter", b"script", b"sg", b"su", b"sudo",
    b"unshare",
];

/// Programs that pass on what they read.
const FILTERS: [&[u8]; 12] = [
    b"awk", b"base64", b"cat", b"cut", b"grep", b"gunzip", b"head", b"sed", b"tail", b"tee", b"tr",
    b"zcat",
];

/// What the stream is called by its readers.
const STREAM: [&[u8]; 4] = [b"-", b"/dev/stdin", b"/dev/fd/0", b"/proc/self/fd/0"];

const REST: &str = "it would run the rest of standard input, which nobody would have judged; \
    run the text as a script: `substrate FILE`";
const INPUT: &str =
    "the shell would read its commands from somewhere else, and nobody would have judged them";
const WORDS: &str = "the shell would replace words of later lines after they were judged";

/// Why a command of a stream must not run.
pub fn takes_over(line: &Line, text: &[u8], expands_aliases: bool) -> Option<&'static str> {
    let of = |invocation: &Invocation| {
        let name = invocation.argv.first()?.value()?;
        let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
        let leads = LEAD_TO_SHELLS.contains(&name) && !wraps(line, invocation);
        let shell = SHELLS.contains(&name) && reads_commands(invocation);
        if (leads || shell) && is_on_the_stream(line, invocation, text) {
            return Some(REST);
        }
        if name == b"exec" && replaces_input(text, invocation) {
            return Some(INPUT);
        }
        changes_words(name, invocation, expands_aliases).then_some(WORDS)
    };
    let posix = |invocation: &Invocation| {
        let mut sets = invocation.assignments.iter();
        sets.any(|set| matches!(set.name.as_slice(), b"POSIXLY_CORRECT" | b"BASH_ALIASES"))
    };
    let mut all = line.invocations.iter();
    let sets = line.invocations.iter().any(posix).then_some(WORDS);
    all.find_map(of).or(sets)
}

/// Whether a command runs another one that the line shows, or names one to be run.
fn wraps(line: &Line, invocation: &Invocation) -> bool {
    let at = line
        .invocations
        .iter()
        .position(|other| std::ptr::eq(other, invocation));
    let inner = line
        .invocations
        .iter()
        .any(|other| other.parent.is_some() && other.parent == at);
    inner || words(invocation).any(|word| word == Some(b"-c"))
}

fn words(invocation: &Invocation) -> impl Iterator<Item = Option<&[u8]>> {
    invocation.argv.iter().skip(1).map(|word| word.value())
}

/// Whether a shell with these arguments takes its commands from standard input.
fn reads_commands(invocation: &Invocation) -> bool {
    let mut rest = words(invocation);
    while let Some(word) = rest.next() {
        match word {
            None => return true,
            Some(b"--") => return rest.next().is_none_or(is_stream),
            Some(word) if STREAM.contains(&word) => return true,
            Some(b"--rcfile" | b"--init-file" | b"-o" | b"+o" | b"-O" | b"+O") => {
                rest.next();
            }
            Some(word) if word.starts_with(b"--") => {}
            Some(word) if word.starts_with(b"-") || word.starts_with(b"+") => {
                if word.contains(&b'c') {
                    return false;
                }
                if word.contains(&b's') {
                    return true;
                }
            }
            // busybox names the shell itself first.
            Some(word) if SHELLS.contains(&word) => {}
            Some(_) => return false,
        }
    }
    true
}

fn is_stream(word: Option<&[u8]>) -> bool {
    word.is_none_or(|word| STREAM.contains(&word))
}

/// Whether the standard input of a command is the stream itself, or passed on from it.
fn is_on_the_stream(line: &Line, invocation: &Invocation, text: &[u8]) -> bool {
    if invocation.pipeline.index > 0 {
        let first = line.invocations.iter().find(|other| {
            other.pipeline.pipeline == invocation.pipeline.pipeline && other.pipeline.index == 0
        });
        let name = first.and_then(|first| first.argv.first()?.value());
        return name.is_none_or(|name| FILTERS.contains(&name));
    }
    let own = |kind: RedirectKind| {
        matches!(
            kind,
            RedirectKind::Read | RedirectKind::ReadWrite | RedirectKind::Text
        )
    };
    let elsewhere = invocation
        .redirects
        .iter()
        .any(|redirect| own(redirect.kind) && !is_stream(redirect.target.value()));
    // Which descriptor a redirection is for, the analysis does not say.
    !elsewhere || inputs(text).any(|number| number != 0)
}

/// Whether `exec` without a command gives the shell another standard input.
fn replaces_input(text: &[u8], invocation: &Invocation) -> bool {
    let source = text.get(invocation.source.clone()).unwrap_or(text);
    invocation.argv.len() == 1
        && inputs_with_targets(source).any(|(number, target)| {
            let target = target.trim_ascii_start();
            let same = [&b"/dev/stdin"[..], b"/dev/fd/0", b"/proc/self/fd/0", b"&0"];
            number == 0 && !same.iter().any(|same| target.starts_with(same))
        })
}

/// The descriptors that a text redirects for reading.
fn inputs(text: &[u8]) -> impl Iterator<Item = u32> {
    inputs_with_targets(text).map(|(number, _)| number)
}

/// The same, and what follows each; `{name}<` picks a free one.
fn inputs_with_targets(text: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    (0..text.len()).filter_map(|at| {
        let (before, after) = text.split_at_checked(at)?;
        if after.first() != Some(&b'<') || before.last() == Some(&b'<') {
            return None;
        }
        let digits = before
            .iter()
            .rev()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let start = before.len() - digits;
        let is_number = digits > 0
            && before
                .get(..start)?
                .last()
                .is_none_or(|byte| b" \t;&|(\n".contains(byte));
        let number = match (before.last(), is_number) {
            (Some(b'}'), _) => 3,
            (_, true) => std::str::from_utf8(before.get(start..)?)
                .ok()?
                .parse()
                .unwrap_or(u32::MAX),
            _ => 0,
        };
        Some((number, after.get(1..).unwrap_or_default()))
    })
}

/// Whether a builtin switches on something that replaces words of later lines.
fn changes_words(name: &[u8], invocation: &Invocation, expands_aliases: bool) -> bool {
    let mut words = words(invocation);
    match name {
        b"alias" => {
            expands_aliases && words.any(|word| word.is_none_or(|word| word.contains(&b'=')))
        }
        b"shopt" => {
            words.any(|word| word.is_none_or(|word| word == b"expand_aliases" || word == b"-o"))
        }
        b"set" => {
            let letters = |word: &[u8]| {
                matches!(word.first(), Some(b'-')) && word.contains(&b'H')
                    || OPTIONS.contains(&word)
            };
            words
                .take_while(|word| *word != Some(b"--"))
                .any(|word| word.is_none_or(letters))
        }
        _ => false,
    }
}

/// Options of `set` by which the shell reads otherwise.
const OPTIONS: [&[u8]; 3] = [b"histexpand", b"history", b"posix"];

#[cfg(test)]
mod tests {
    use super::*;
    use substrate_command::{Context, Models, Tool, analyse};
    use substrate_policy::tools;

    struct Shipped(Vec<Tool>);

    impl Models for Shipped {
        fn tool(&self, name: &[u8]) -> Option<Tool> {
            let known = |tool: &&Tool| tool.names.iter().any(|known| known.as_bytes() == name);
            self.0.iter().find(known).cloned()
        }
    }

    fn shipped() -> Shipped {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/tools");
        let files = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let models = files.flat_map(|file| {
            let text = std::fs::read_to_string(&file).unwrap();
            tools::parse(&text, "shipped").unwrap()
        });
        Shipped(models.collect())
    }

    fn refused(models: &Shipped, text: &str, expands_aliases: bool) -> bool {
        let line = analyse(text.as_bytes(), &Context::new(models));
        takes_over(&line, text.as_bytes(), expands_aliases).is_some()
    }

    #[test]
    fn who_would_take_the_rest_is_told_from_who_would_not() {
        let shipped = shipped();
        for text in [
            "bash",
            "sh",
            "bash -s a",
            "bash -x",
            "/bin/sh -",
            "env A=1 bash",
            "exec bash",
            "sudo -s",
            "sudo bash",
            "su",
            "su - user",
            "cat | sh",
            "sed s/a/b/ | bash -s",
            "bash /dev/stdin",
            "bash 3< file",
            "sh $x",
            "busybox sh",
            "{ bash; }",
            "if true; then sh; fi",
            "exec < file",
            "exec 0<file",
            "exec 0<&3",
            "exec < <(x)",
            "exec <<< x",
            "shopt -s expand_aliases",
            "set -H",
            "set -eH",
            "set -o histexpand",
            "set -o posix",
            "set $x",
            "POSIXLY_CORRECT=1",
            "chroot /x",
        ] {
            assert!(refused(&shipped, text, false), "{text}");
        }
        for text in [
            "bash -c 'echo a'",
            "bash file",
            "sh ./x.sh -s",
            "bash < file",
            "bash <<< 'echo a'",
            "bash -o errexit file",
            "echo ls | sh",
            "sudo ls",
            "su -c ls",
            "exec 3< file",
            "exec {fd}<file",
            "exec > log 2>&1",
            "exec </dev/stdin",
            "exec ls",
            "set -e",
            "set -- $x",
            "set -o errexit",
            "shopt -s nullglob",
            "alias x=y",
            "cat",
            "while read x; do :; done < file",
            "chroot /x ls",
        ] {
            assert!(!refused(&shipped, text, false), "{text}");
        }
        assert!(refused(&shipped, "alias x=y", true) && !refused(&shipped, "alias", true));
    }
}
