//! The text sent to the engine, and the reading of what it answers.

use super::bound::{Bound, Then};
use super::quote;

/// Descriptor numbers the engine uses, out of the way of what people type.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// The terminal.
    pub terminal: i32,
    /// The wrapper, a sealed file in memory that runs a line as a sourced file would.
    pub wrapper: i32,
    /// What the front end can ask, read when it first does.
    pub questions: i32,
    /// The definitions, read once.
    pub setup: i32,
}

impl Numbers {
    /// Four numbers below the limit and below those that bash itself prefers.
    pub fn below(limit: u64) -> Self {
        let top = i32::try_from(limit.min(255)).unwrap_or(255) - 5;
        Self {
            terminal: top,
            wrapper: top - 1,
            questions: top - 2,
            setup: top - 3,
        }
    }
}

/// The definitions for an engine with these descriptors, and what it runs first.
pub fn setup(numbers: Numbers, startup: &[u8]) -> Vec<u8> {
    let mut text = fill(include_str!("setup.bash"), numbers).into_bytes();
    text.extend_from_slice(b"__substrate_m=s __substrate_l=");
    text.extend_from_slice(&quote::ansi_c(startup));
    text.push(b'\n');
    text
}

/// What the front end can ask an engine with these descriptors.
pub fn questions(numbers: Numbers) -> String {
    fill(include_str!("questions.bash"), numbers)
}

/// The wrapper for an engine with these descriptors.
pub fn wrapper(numbers: Numbers) -> String {
    fill(include_str!("wrapper.bash"), numbers)
}

fn fill(text: &str, numbers: Numbers) -> String {
    text.replace("@TERMINAL@", &numbers.terminal.to_string())
        .replace("@WRAPPER@", &numbers.wrapper.to_string())
        .replace("@QUESTIONS@", &numbers.questions.to_string())
}

/// What the engine said about itself after a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// `$?`, as the shell claims it.
    pub status: i32,
    /// The expanded `PS1`; `None` if it is unset.
    pub prompt: Option<Vec<u8>>,
    /// `set -o vi` is on.
    pub vi: bool,
    /// History expansion (`!!`) is on.
    pub history_expansion: bool,
    /// The characters of history expansion.
    pub history_characters: Vec<u8>,
    /// The engine is a login shell.
    pub login: bool,
    /// The letters of `$-` that are put aside while the front end speaks.
    pub options: Vec<u8>,
    /// `HISTCONTROL`.
    pub history_control: Vec<u8>,
    /// `IGNOREEOF`, empty if unset.
    pub ignore_eof: Vec<u8>,
    /// The editor for `fc` and for the line.
    pub editor: Vec<u8>,
    /// `PATH`.
    pub search_path: Vec<u8>,
    /// `HOME`, if it is set.
    pub home: Option<Vec<u8>>,
    /// The text of the DEBUG trap, if one is set.
    pub debug_trap: Option<Vec<u8>>,
    /// The text of the RETURN trap, if one is set.
    pub return_trap: Option<Vec<u8>>,
}

const REPORT_FIELDS: usize = 11;

/// Takes a report out of what has been received, if it is complete.
pub fn take_report(received: &mut Vec<u8>) -> Option<Report> {
    let start = find_last(received, b"\0R\0")?;
    let body = received.get(start + 3..)?;
    let fields: Vec<&[u8]> = body.split(|&byte| byte == 0).collect();
    // Every field ends in a NUL, so a complete report has one more, empty, piece.
    if fields.len() <= REPORT_FIELDS {
        return None;
    }
    let field = |index: usize| fields.get(index).copied().unwrap_or_default();
    let options = field(3);
    let printed = received.get(..start).unwrap_or_default();
    let debug_trap = trap(printed, b" DEBUG\n").map(|text| without_filter(&text));
    let report = Report {
        status: number(field(0)),
        prompt: (field(1) == b"1").then(|| field(2).to_vec()),
        vi: options.contains(&b'v'),
        history_expansion: options.contains(&b'H'),
        login: options.contains(&b'l'),
        options: field(4).to_vec(),
        history_control: field(5).to_vec(),
        ignore_eof: field(6).to_vec(),
        editor: field(7).to_vec(),
        history_characters: field(8).to_vec(),
        search_path: field(9).to_vec(),
        home: field(10).strip_prefix(b"=").map(<[u8]>::to_vec),
        debug_trap,
        return_trap: trap(printed, b" RETURN\n"),
    };
    received.clear();
    Some(report)
}

fn number(text: &[u8]) -> i32 {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

fn find_last(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .rposition(|window| window == needle)
}

const TRAP_HEAD: &[u8] = b"trap -- ";
const FILTER_HEAD: &[u8] = b"case $BASH_COMMAND${FUNCNAME-} in *__substrate_*) ;; *) ";
const FILTER_TAIL: &[u8] = b"\n;; esac";

/// A trap out of what `trap -p` printed, told by the name after it; the latest if there are several.
fn trap(printed: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let mut latest = None;
    let mut rest = printed;
    while let Some(at) = rest
        .windows(TRAP_HEAD.len())
        .position(|part| part == TRAP_HEAD)
    {
        rest = rest.get(at + TRAP_HEAD.len()..)?;
        let (word, after) = rest.split_at(quote::word_length(rest));
        if after.starts_with(name) {
            latest = Some(quote::unquote(word));
        }
        rest = after;
    }
    latest
}

/// The user's part of a DEBUG trap.
fn without_filter(text: &[u8]) -> Vec<u8> {
    let own = text
        .strip_prefix(FILTER_HEAD)
        .and_then(|text| text.strip_suffix(FILTER_TAIL));
    own.unwrap_or(text).to_vec()
}

/// The control text that runs a line: it asks for the terminal, runs it, reports.
pub fn line(text: &[u8], run: &Run<'_>, numbers: Numbers) -> Vec<u8> {
    let mut before = Vec::new();
    let tracing = run.before.options.contains(&b'x');
    let options = run.before.options.iter().filter(|&&option| option != b'x');
    for option in options {
        before.extend_from_slice(b"\\builtin set -");
        before.extend_from_slice(&[*option, b'\n']);
    }
    if let Some(prefix) = run.prefix {
        before.extend_from_slice(prefix);
        before.push(b'\n');
    }
    if let Some(trap) = &run.before.return_trap {
        before.extend_from_slice(b"\\builtin trap -- ");
        before.extend_from_slice(&quote::single(trap));
        before.extend_from_slice(b" RETURN\n");
    }
    if let Some(trap) = &run.before.debug_trap {
        // The trap must not hear of the front end's own commands.
        let filtered = [FILTER_HEAD, trap, FILTER_TAIL].concat();
        before.extend_from_slice(b"\\builtin trap -- ");
        before.extend_from_slice(&quote::single(&filtered));
        before.extend_from_slice(b" DEBUG");
    }
    // Tracing starts with the line itself, or it would show what leads up to it.
    // The status of the line before comes back after it, unless that would end a shell under `set -e`.
    let head: &[u8] = match (tracing, run.before.options.contains(&b'e')) {
        (false, _) => b"",
        (true, true) => b"\\builtin set -x\n",
        (true, false) => b"{ \\builtin set -x; __substrate_t; } 2>/dev/null\n",
    };
    let program = [head, text, LINE_TAIL].concat();
    let mut control = Vec::with_capacity(program.len() * 2 + 256);
    control.extend_from_slice(b"__substrate_w=");
    control.extend_from_slice(&quote::ansi_c(run.remembered));
    control.extend_from_slice(b" __substrate_pre=");
    control.extend_from_slice(&quote::ansi_c(&before));
    control.extend_from_slice(b" __substrate_l=");
    control.extend_from_slice(&quote::ansi_c(&program));
    control.extend_from_slice(b" __substrate_m=l; __substrate_b ");
    control.push(if run.remembered.is_empty() {
        b'0'
    } else {
        b'1'
    });
    control.extend_from_slice(b"; \\builtin . /dev/fd/");
    control.extend_from_slice(numbers.wrapper.to_string().as_bytes());
    control.push(b'\n');
    control.extend_from_slice(REPORT.as_bytes());
    control
}

/// The line that runs a command bound to a key: it knows the line that is edited, changes nothing of
/// the status, and a failure is none of the shell's.
pub fn key(bound: &Bound, line: &[u8], cursor: usize) -> Vec<u8> {
    let mut text = b"__substrate_quiet=1 READLINE_LINE=".to_vec();
    text.extend_from_slice(&quote::ansi_c(line));
    text.extend_from_slice(format!(" READLINE_POINT={cursor} READLINE_MARK={cursor}\n").as_bytes());
    match bound.then {
        Then::Edit => {
            text.extend_from_slice(b"if {\n");
            text.extend_from_slice(&bound.command);
            text.extend_from_slice(b"\n}; then :; fi\n");
        }
        Then::Replace | Then::Submit => {
            text.extend_from_slice(b"if READLINE_LINE=$(\n");
            text.extend_from_slice(&bound.command);
            text.extend_from_slice(b"\n); then :; fi\nREADLINE_POINT=${#READLINE_LINE}\n");
        }
    }
    text.extend_from_slice(
        b"__substrate_rl=${READLINE_LINE-} __substrate_rp=$((${READLINE_POINT:-0}))\n\
          \\builtin unset -v READLINE_LINE READLINE_POINT READLINE_MARK\n\
          __substrate_t \"$__substrate_u\"",
    );
    text
}

/// Keeps `$?` and `$_` as the line left them, for the next one.
const LINE_TAIL: &[u8] = b"\n{ __substrate_s=$? __substrate_u=$_; } >/dev/null 2>&1";

/// How a line is to be run.
pub struct Run<'a> {
    /// What the engine reported before it.
    pub before: &'a Report,
    /// The line as the engine's own history keeps it; empty if it does not.
    pub remembered: &'a [u8],
    /// Commands of the front end's to run first, in the line's own context.
    pub prefix: Option<&'a [u8]>,
}

/// Asks for a report, twice: an interrupt while the engine reads the first leaves the second.
pub const REPORT: &str = concat!(
    "{ __substrate_e; \\builtin trap -p DEBUG RETURN $__substrate_ >&0; \\builtin trap - DEBUG RETURN $__substrate_; } >/dev/null 2>&1; __substrate_r\n",
    "{ __substrate_e; \\builtin trap -p DEBUG RETURN $__substrate_ >&0; \\builtin trap - DEBUG RETURN $__substrate_; } >/dev/null 2>&1; __substrate_r\n",
);

/// The control text that asks one question, followed by a mark that ends the answer.
pub fn question(words: &[&[u8]], mark: u64, numbers: Numbers) -> Vec<u8> {
    let mut control = b"__substrate_m=q; __substrate_a=(".to_vec();
    for word in words {
        control.extend_from_slice(&quote::ansi_c(word));
        control.push(b' ');
    }
    control.extend_from_slice(
        format!(
            "); \\builtin . /dev/fd/{}\n\\builtin printf '\\0\\0A{mark}\\0' >&0\n",
            numbers.wrapper
        )
        .as_bytes(),
    );
    control
}

/// Takes the answer that ends with this mark out of what has been received.
pub fn take_answer(received: &mut Vec<u8>, mark: u64) -> Option<Vec<u8>> {
    let end = format!("\0\0A{mark}\0");
    let at = find_last(received, end.as_bytes())?;
    let mut answer = std::mem::take(received);
    answer.truncate(at);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAP_TAIL: &[u8] = b" DEBUG\n";

    #[test]
    fn a_report_is_read_and_an_incomplete_one_waits() {
        let mut received =
            b"trap -- 'echo '\\''x'\\''' DEBUG\n\0R\x001\x001\0$ \0vH\0ex\0ignoreboth\0\0vi\0!^#\0/bin\0=/srv/x\0"
                .to_vec();
        let whole = received.clone();
        let report = take_report(&mut received).unwrap();
        assert_eq!(report.status, 1);
        assert_eq!(report.prompt.as_deref(), Some(&b"$ "[..]));
        assert!(report.vi && report.history_expansion && !report.login);
        assert_eq!(report.home.as_deref(), Some(&b"/srv/x"[..]));
        assert_eq!(report.debug_trap.as_deref(), Some(&b"echo 'x'"[..]));
        assert!(received.is_empty());
        let mut partial = whole[..whole.len() - 1].to_vec();
        assert_eq!(take_report(&mut partial), None);
    }

    #[test]
    fn the_filter_around_a_trap_comes_off_again() {
        let filtered = [FILTER_HEAD, b"echo hi", FILTER_TAIL].concat();
        let printed = [TRAP_HEAD, &quote::single(&filtered), TRAP_TAIL].concat();
        let text = trap(&printed, TRAP_TAIL).unwrap();
        assert_eq!(without_filter(&text), b"echo hi");
    }

    #[test]
    fn traps_are_told_apart_whatever_their_text_says() {
        let printed = b"trap -- 'trap -- '\\''x'\\'' DEBUG\n' RETURN\ntrap -- 'd' DEBUG\n";
        assert_eq!(trap(printed, TRAP_TAIL).as_deref(), Some(&b"d"[..]));
        let own = trap(printed, b" RETURN\n").unwrap();
        assert_eq!(own, b"trap -- 'x' DEBUG\n");
    }
}
