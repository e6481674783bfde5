//! The text sent to the engine, and the reading of what it answers.

use super::bound::{Bound, Then};
use super::door::{self, Door};
use super::quote;
use super::traps::Traps;

/// What the engine reads first, as a file rather than as control lines, which bash takes in byte by byte: the
/// definitions and these start-up files.
pub fn setup(door: &Door, startup: &[u8]) -> Vec<u8> {
    let mut text = include_bytes!("state.bash").to_vec();
    text.extend_from_slice(door.definitions().as_bytes());
    text.extend_from_slice(b"__substrate_l=");
    text.extend_from_slice(&quote::ansi_c(startup));
    text.push(b'\n');
    text
}

/// The first control text: that file and the terminal have these numbers, which are not needed any more once
/// the terminal's name is known.
pub fn first(door: &Door, setup: i32, terminal: i32) -> Vec<u8> {
    let find = format!(
        "__substrate_tty=/dev/tty; for __substrate_x in /dev/pts/[0-9]* /dev/console /dev/tty[A-Za-z0-9]*; do \
         if [[ $__substrate_x -ef /dev/fd/{terminal} && -r $__substrate_x && -w $__substrate_x ]]; then \
         __substrate_tty=$__substrate_x; \\builtin break; fi; done"
    );
    let start = "{ __substrate_edits; \\builtin eval \"$__substrate_l\" <>\"$__substrate_tty\"; __substrate_e whole; }";
    let mut control = format!(
        "\\builtin set +o history; \\builtin . /dev/fd/{setup}; {find}; \\exec {setup}>&- {terminal}>&-\n"
    )
    .into_bytes();
    control.extend_from_slice(&door::source(start));
    control.push(b'\n');
    control.extend_from_slice(&report(door));
    control
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
    /// Aliases are expanded.
    pub aliases: bool,
    /// The expanded `PS2`.
    pub continuation: Vec<u8>,
    /// The prompt shows that this is Substrate.
    pub sign: bool,
    /// `autocd` is on.
    pub changes_directory: bool,
    /// `cmdhist` is on, and `lithist` is not.
    pub joins_lines: bool,
    /// What the engine calls its terminal.
    pub terminal: Vec<u8>,
    /// The traps.
    pub traps: Traps,
    /// Words of the shell's own that are switched off, of those that the front end stands on.
    pub off: Vec<Vec<u8>>,
}

const REPORT_FIELDS: usize = 14;

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
        aliases: options.contains(&b'a'),
        terminal: field(11).to_vec(),
        continuation: field(12).to_vec(),
        sign: field(13) != b"off",
        changes_directory: options.contains(&b'c'),
        joins_lines: options.contains(&b'j'),
        traps: Traps::read(printed),
        off: switched_off(printed),
    };
    received.clear();
    Some(report)
}

/// What `enable -n` has printed, in each of its places, which end with a mark.
fn switched_off(printed: &[u8]) -> Vec<Vec<u8>> {
    let mut off = Vec::new();
    for (at, _) in printed
        .windows(3)
        .enumerate()
        .filter(|(_, mark)| mark == b"\0E\0")
    {
        let before = printed.get(..at).unwrap_or_default();
        let list = before.rsplit(|byte| *byte == 0).next().unwrap_or_default();
        let lines = list.split(|byte| *byte == b'\n');
        off.extend(lines.filter_map(|line| Some(line.strip_prefix(b"enable -n ")?.to_vec())));
    }
    off
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

/// The control text that runs a line, once the engine has asked for the terminal and was told to go on.
pub fn line(text: &[u8], run: &Run<'_>, door: &Door) -> Vec<u8> {
    let Report { options, traps, .. } = run.before;
    let mut before = Vec::new();
    for option in options.iter().filter(|option| !LOUD.contains(option)) {
        before.extend_from_slice(b"\\builtin set -");
        before.extend_from_slice(&[*option, b'\n']);
    }
    if let Some(prefix) = run.prefix {
        before.extend_from_slice(prefix);
        before.push(b'\n');
    }
    if run.before.aliases {
        before.extend_from_slice(b"__substrate_aliases\n");
    }
    traps.give_back(&mut before);
    let program = [&head(run.before), text, tail(run.before, text)].concat();
    let mut start = door.tell();
    start.extend_from_slice(b"__substrate_w=");
    start.extend_from_slice(&quote::ansi_c(run.remembered));
    start.extend_from_slice(b" __substrate_pre=");
    start.extend_from_slice(&quote::ansi_c(&before));
    start.extend_from_slice(b" __substrate_l=");
    start.extend_from_slice(&quote::ansi_c(&program));
    start.extend_from_slice(match run.remembered.is_empty() {
        true => b"; \\__substrate_b 0",
        false => b"; \\__substrate_b 1",
    });
    let returns = traps.on_return.is_some() || contains(text, b"RETURN");
    let words = door.words();
    let end = format!("{{ {STATUS}; {words}; __substrate_e whole; }} >/dev/null 2>&1");
    let steps = [
        &door.scoped(&start),
        &b" && "[..],
        &door.run_line(returns),
        b"; ",
        &door.scoped(end.as_bytes()),
    ];
    let mut control = steps.concat();
    control.push(b'\n');
    control
}

/// Keeps `$?` of a line that was cut short.
const STATUS: &str = "__substrate_s=${__substrate_s-$?}";

/// The letters of tracing and echoing.
const LOUD: &[u8] = b"xv";

/// Tracing and echoing start with the line itself, or they would show what leads up to it, and words are switched
/// off when nothing else needs them. The status of the line before comes back after that, as part of a list,
/// which neither `set -e` nor an ERR trap heeds.
fn head(before: &Report) -> Vec<u8> {
    let mut head = Vec::new();
    let needed: [&[u8]; 2] = [b"builtin", b"return"];
    let off = before
        .off
        .iter()
        .filter(|word| !needed.contains(&word.as_slice()));
    for word in off {
        head.extend_from_slice(
            &[
                b"\\builtin enable -n ",
                word.as_slice(),
                b" $__substrate_; ",
            ]
            .concat(),
        );
    }
    let loud = before.options.iter().filter(|option| LOUD.contains(option));
    for option in loud {
        head.extend_from_slice(&[b"\\builtin set -", &[*option][..], b" $__substrate_; "].concat());
    }
    if head.is_empty() {
        return head;
    }
    const BEFORE: &[u8] =
        b"__substrate_t \"$__substrate_u\" && __substrate_t \"$__substrate_u\"; } 2>/dev/null\n";
    [b"{ ", head.as_slice(), BEFORE].concat()
}

/// Keeps `$?` and `$_` as the line left them, for the next one. With `set -v` bash would show that; then `$?` is
/// kept after it, and `$_` is not.
fn tail(before: &Report, text: &[u8]) -> &'static [u8] {
    let shown = before.options.contains(&b'v') || may_echo(text);
    match shown && before.traps.on_error.is_none() {
        true => b"",
        false => b"\n{ __substrate_s=$? __substrate_u=$_; } >/dev/null 2>&1",
    }
}

/// Whether a line looks as if it switched on `set -v`.
fn may_echo(text: &[u8]) -> bool {
    let words = || text.split(|byte| byte.is_ascii_whitespace() || b";&|(){}".contains(byte));
    let letter = |word: &[u8]| word.starts_with(b"-") && word.contains(&b'v');
    words().any(|word| word == b"verbose")
        || words().any(|word| word == b"set") && words().any(letter)
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
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
        Then::Replace | Then::Submit | Then::Complete => {
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
pub fn report(door: &Door) -> Vec<u8> {
    let aside = format!(
        "{}; __substrate_e; \\builtin trap -p $__substrate_ >&{}; \\builtin trap - DEBUG RETURN ERR $__substrate_",
        door.words(),
        door.control()
    );
    let text = format!(
        "if [[ ${{__substrate_f-}} != 0 ]]; then {aside}; fi; \
         \\builtin declare -F __substrate_r; __substrate_x=$?; }} >/dev/null 2>&1; \
         if [[ $__substrate_x == 0 ]]; then __substrate_r; fi"
    );
    let steps = [
        b"{ ",
        STATUS.as_bytes(),
        b"; ",
        &door.tell(),
        text.as_bytes(),
    ];
    let mut once = door.scoped(&steps.concat());
    once.push(b'\n');
    once.repeat(2)
}

/// The control text that asks one question, with marks around the answer; the first one brings along what can be
/// asked.
pub fn question(words: &[&[u8]], mark: u64, first: bool, door: &Door) -> Vec<u8> {
    let mut text = door.tell();
    if first {
        text.extend_from_slice(b"\\builtin eval ");
        text.extend_from_slice(&quote::ansi_c(door.questions().as_bytes()));
        text.extend_from_slice(b"; ");
    }
    let start = format!(
        "\\builtin printf '\\0\\0Q{mark}\\0' >&{}; __substrate_a=(",
        door.control()
    );
    text.extend_from_slice(start.as_bytes());
    for word in words {
        text.extend_from_slice(&quote::ansi_c(word));
        text.push(b' ');
    }
    text.extend_from_slice(b"); ");
    text.extend_from_slice(&door::source("__substrate_q \"${__substrate_a[@]}\""));
    let end = format!("; \\builtin printf '\\0\\0A{mark}\\0' >&{}", door.control());
    text.extend_from_slice(end.as_bytes());
    [&door.scoped(&text), &b"\n"[..]].concat()
}

/// Takes the answer that ends with this mark out of what has been received.
pub fn take_answer(received: &mut Vec<u8>, mark: u64) -> Option<Vec<u8>> {
    let end = format!("\0\0A{mark}\0");
    let at = find_last(received, end.as_bytes())?;
    let start = format!("\0\0Q{mark}\0");
    let mut answer = std::mem::take(received);
    answer.truncate(at);
    let before = find_last(&answer, start.as_bytes()).map_or(0, |at| at + start.len());
    answer.drain(..before);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_and_an_incomplete_one_waits() {
        let mut received =
            b"trap -- 'echo '\\''x'\\''' DEBUG\n\0R\x001\x001\0$ \0vH\0ex\0ignoreboth\0\0vi\0!^#\0/bin\0=/srv/x\0/dev/pts/4\0> \0off\0"
                .to_vec();
        let whole = received.clone();
        let report = take_report(&mut received).unwrap();
        assert_eq!(report.status, 1);
        assert_eq!(report.prompt.as_deref(), Some(&b"$ "[..]));
        assert!(report.vi && report.history_expansion && !report.login);
        assert_eq!(report.home.as_deref(), Some(&b"/srv/x"[..]));
        assert_eq!(report.traps.on_command.as_deref(), Some(&b"echo 'x'"[..]));
        assert!(!report.sign && report.continuation == b"> ");
        assert!(!report.aliases && report.terminal == b"/dev/pts/4");
        assert!(received.is_empty());
        let mut partial = whole[..whole.len() - 1].to_vec();
        assert_eq!(take_report(&mut partial), None);
    }
}
