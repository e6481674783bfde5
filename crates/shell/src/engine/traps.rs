//! The user's traps, which are put aside or fenced in while the front end speaks.

use super::door::Door;
use super::quote;

/// Traps, by the text that the user gave them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traps {
    /// DEBUG.
    pub on_command: Option<Vec<u8>>,
    /// RETURN.
    pub on_return: Option<Vec<u8>>,
    /// ERR.
    pub on_error: Option<Vec<u8>>,
    /// Those of signals, with the signal's name. They can come at any moment, also while the engine waits.
    pub on_signal: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What comes before a list of all traps; DEBUG and its like may have been told of before it.
pub const LIST: &[u8] = b"\0T\0";

const HEAD: &[u8] = b"trap -- ";

/// Around a DEBUG trap, which must not hear of the front end's own commands.
const FILTER_HEAD: &[u8] = b"case $BASH_COMMAND${FUNCNAME-} in *__substrate_*) ;; *) ";
const FILTER_TAIL: &[u8] = b"\n;; esac";
/// Inside it, where a `return` would leave the file that a line is for bash.
const KEPT_HEAD: &[u8] = b"__substrate_debug ";

/// Around the trap of a signal: a standard input that it replaces is replaced for the trap only.
const FENCE_HEAD: &[u8] = b"{ ";
const FENCE_TAIL: &[u8] = b"\n\\builtin :\n} <>";

impl Traps {
    /// Reads what `trap -p` has printed.
    pub fn read(printed: &[u8]) -> Self {
        let list = printed
            .windows(LIST.len())
            .rposition(|part| part == LIST)
            .unwrap_or(0);
        let mut traps = Self::default();
        for (at, name, text) in (Entries { printed, at: 0 }) {
            match name {
                b"DEBUG" => traps.on_command = Some(without_filter(text)),
                b"RETURN" => traps.on_return = Some(text),
                b"ERR" => traps.on_error = Some(text),
                b"EXIT" => {}
                // One that is ignored does nothing.
                _ if text.is_empty() || at < list => {}
                _ => traps
                    .on_signal
                    .push((name.to_vec(), without_fence(&text).to_vec())),
            }
        }
        traps
    }

    /// The commands that set them again, the one that hears of commands last.
    pub fn give_back(&self, control: &mut Vec<u8>) {
        for (name, text) in &self.on_signal {
            set(control, text, name);
        }
        for (text, name) in [(&self.on_return, &b"RETURN"[..]), (&self.on_error, b"ERR")] {
            if let Some(text) = text {
                set(control, text, name);
            }
        }
        if let Some(text) = &self.on_command {
            set(control, &filtered(text), b"DEBUG");
        }
    }

    /// The commands that fence in the traps of signals; nothing where there is none.
    pub fn fenced(&self, door: &Door) -> Option<Vec<u8>> {
        let mut commands = Vec::new();
        for (name, text) in &self.on_signal {
            let end = [FENCE_TAIL, door.terminal()].concat();
            commands.extend_from_slice(b"\\builtin trap -- ");
            commands.extend_from_slice(&quote::ansi_c(&[FENCE_HEAD, text, &end].concat()));
            commands.extend_from_slice(&[b" ", name.as_slice(), b"; "].concat());
        }
        commands.extend_from_slice(b"\\builtin :");
        (!self.on_signal.is_empty()).then(|| [&door.scoped(&commands), &b"\n"[..]].concat())
    }
}

fn set(control: &mut Vec<u8>, text: &[u8], name: &[u8]) {
    control.extend_from_slice(b"\\builtin trap -- ");
    control.extend_from_slice(&quote::single(text));
    control.extend_from_slice(&[b" ", name, b"\n"].concat());
}

fn filtered(text: &[u8]) -> Vec<u8> {
    let returns = text.windows(6).any(|part| part == b"return");
    let own = match returns {
        true => [KEPT_HEAD, &quote::single(text)].concat(),
        false => text.to_vec(),
    };
    [FILTER_HEAD, &own, FILTER_TAIL].concat()
}

/// The user's part of a DEBUG trap.
fn without_filter(text: Vec<u8>) -> Vec<u8> {
    let own = text
        .strip_prefix(FILTER_HEAD)
        .and_then(|text| text.strip_suffix(FILTER_TAIL));
    match own.map(|own| (own, own.strip_prefix(KEPT_HEAD))) {
        Some((_, Some(kept))) => quote::unquote(kept),
        Some((own, None)) => own.to_vec(),
        None => text,
    }
}

fn without_fence(text: &[u8]) -> &[u8] {
    let end = text
        .windows(FENCE_TAIL.len())
        .rposition(|part| part == FENCE_TAIL);
    end.and_then(|end| text.get(..end)?.strip_prefix(FENCE_HEAD))
        .unwrap_or(text)
}

/// What `trap -p` has printed, one by one.
struct Entries<'a> {
    printed: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Entries<'a> {
    /// Where it stands, the name and the text.
    type Item = (usize, &'a [u8], Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.printed.get(self.at..)?;
            let found = rest.windows(HEAD.len()).position(|part| part == HEAD)?;
            let at = self.at + found;
            let rest = self.printed.get(at + HEAD.len()..)?;
            let (word, after) = rest.split_at(quote::word_length(rest));
            self.at = at + HEAD.len() + word.len();
            let name = after.strip_prefix(b" ")?;
            let name = name.split(|byte| *byte == b'\n').next()?;
            // Under POSIX rules bash also prints what has no trap, as a bare dash.
            if word != b"-" {
                return Some((at, name, quote::unquote(word)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &[u8], name: &str) -> Vec<u8> {
        let name = format!(" {name}\n");
        [HEAD, &quote::single(text), name.as_bytes()].concat()
    }

    #[test]
    fn what_is_around_a_trap_comes_off_again() {
        for text in [&b"echo hi"[..], b"[[ $x ]] || return 1", b"return 'x'", b""] {
            let traps = Traps::read(&printed(&filtered(text), "DEBUG"));
            assert_eq!(traps.on_command.as_deref(), Some(text));
        }
        let door = Door::below(256).on(b"/dev/pts/1");
        let signal = Traps {
            on_signal: vec![(b"SIGUSR1".to_vec(), b"echo 'a'; exec </dev/tty".to_vec())],
            ..Traps::default()
        };
        let fenced = String::from_utf8(signal.fenced(&door).unwrap()).unwrap();
        let word = fenced.split_once("trap -- ").unwrap().1;
        let word = &word.as_bytes()[..quote::word_length(word.as_bytes())];
        let read = Traps::read(&[HEAD, word, b" SIGUSR1\n"].concat());
        assert_eq!(read, signal);
        assert_eq!(Traps::default().fenced(&door), None);
    }

    #[test]
    fn traps_are_told_apart_whatever_their_text_says() {
        let text =
            b"trap -- 'trap -- '\\''x'\\'' DEBUG\n' RETURN\ntrap -- 'd' DEBUG\ntrap -- '' SIGINT\n\
            trap -- - SIGHUP\ntrap -- - ERR\n";
        let traps = Traps::read(text);
        assert_eq!(traps.on_command.as_deref(), Some(&b"d"[..]));
        assert_eq!(
            traps.on_return.as_deref(),
            Some(&b"trap -- 'x' DEBUG\n"[..])
        );
        assert_eq!((traps.on_error, traps.on_signal), (None, Vec::new()));
    }

    #[test]
    fn of_signals_the_last_list_counts() {
        let first = printed(b"gone", "SIGUSR1");
        let all = [
            &first,
            &printed(b"kept", "DEBUG")[..],
            LIST,
            &printed(b"now", "SIGUSR2"),
        ]
        .concat();
        let traps = Traps::read(&all);
        assert_eq!(traps.on_command.as_deref(), Some(&b"kept"[..]));
        assert_eq!(traps.on_signal, [(b"SIGUSR2".to_vec(), b"now".to_vec())]);
    }
}
