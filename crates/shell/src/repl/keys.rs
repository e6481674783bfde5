//! Keys, one at a time, from the terminal to the line editor.
//!
//! The editor reads ahead and would swallow what was typed for the program that a line starts.
//! So it reads a terminal of its own, fed from here: after every key that may submit the line the
//! feeding pauses until the editor has decided, and the rest stays where the program finds it.
//! Bytes that are not UTF-8 are passed as characters of a private range and turned back later.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use substrate_sys::process_group;
use substrate_sys::terminal::{self, Modes, Pty};

use crate::engine::Console;

const PRIVATE: u32 = 0x10_fe00;

/// What the editor and the feeding tell each other.
#[derive(Default)]
pub struct Flow {
    held: Mutex<bool>,
    changed: Condvar,
    lost: AtomicBool,
    /// So many of the next keys were typed while a program had the terminal.
    left: AtomicUsize,
    /// One of them was passed to the editor.
    took_left: AtomicBool,
    /// Where the editor reads its keys from, for one that nobody pressed.
    sink: Mutex<Option<OwnedFd>>,
}

/// The key that nobody can press, by which the editor is told to hand the line over.
pub const HAND_OVER: u8 = 0x1e;

impl Flow {
    /// Has the editor read the key by which it hands the line over.
    pub fn hand_over(&self) {
        let sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sink) = sink.as_ref() {
            let _ = process_group::write_all(sink, &[HAND_OVER]);
        }
    }

    /// The editor goes on with the line: more keys, please.
    pub fn go_on(&self) {
        self.set(false);
    }

    /// Whether the terminal or the engine went away while the line was edited.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    fn read_one(&self) {
        let one_less = |left: usize| left.checked_sub(1);
        let was_left = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        self.took_left.fetch_or(was_left.is_ok(), Ordering::SeqCst);
    }

    fn set(&self, held: bool) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
        self.changed.notify_all();
    }

    /// Waits until the editor goes on; a key it did not take for a submission releases by time.
    fn wait(&self, patience: Duration) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(held, patience, |held| *held);
        drop(waited);
        self.set(false);
    }
}

/// The editor's own terminal and what feeds it.
pub struct Keys {
    pty: Pty,
    flow: Arc<Flow>,
    pending: Vec<u8>,
    /// Some of them were typed for a program that did not read them.
    foreign: bool,
}

impl Keys {
    /// Makes the terminal, which is our standard input only while a line is edited: whatever else
    /// the front end runs reads the person's own.
    pub fn install() -> io::Result<Self> {
        let pty = terminal::open_pty()?;
        let flow = Flow {
            sink: Mutex::new(Some(pty.master.try_clone()?)),
            ..Flow::default()
        };
        Ok(Self {
            pty,
            flow: Arc::new(flow),
            pending: Vec::new(),
            foreign: false,
        })
    }

    /// The other end of the conversation with the editor.
    pub fn flow(&self) -> Arc<Flow> {
        Arc::clone(&self.flow)
    }

    /// Keys that come before what is typed from now on.
    pub fn push_pending(&mut self, bytes: &[u8]) {
        self.foreign |= !bytes.is_empty();
        self.pending.extend_from_slice(bytes);
    }

    /// So many keys wait on the terminal that were typed while a program had it.
    pub fn set_left(&mut self, left: usize) {
        self.flow.left.store(left, Ordering::SeqCst);
    }

    /// Whether keys wait that were typed for a program.
    pub fn has_foreign(&self) -> bool {
        self.foreign
    }

    /// Whether one of those that a program left was in the line.
    pub fn took_left(&self) -> bool {
        self.flow.took_left.swap(false, Ordering::SeqCst)
    }

    /// Keys that wait for the next line that is edited, for a program that comes first.
    pub fn take_pending(&mut self) -> Vec<u8> {
        self.foreign = false;
        std::mem::take(&mut self.pending)
    }

    /// Feeds the editor from the terminal while `edit` runs; `None` if it cannot be fed.
    pub fn feed<T>(
        &mut self,
        console: &Console,
        engine: Engine<'_>,
        modes: &Modes,
        edit: impl FnOnce() -> T,
    ) -> Option<T> {
        let _ = modes.transparent().apply(&self.pty.slave);
        let _ = process_group::replace_stdin(&self.pty.slave);
        self.flow.set(false);
        self.flow.lost.store(false, Ordering::SeqCst);
        let pending = std::mem::take(&mut self.pending);
        let Ok((stop_reader, stop_writer)) = io::pipe() else {
            self.flow.lost.store(true, Ordering::SeqCst);
            return None;
        };
        let feeder = Feeder {
            console,
            engine,
            stop: stop_reader.as_fd(),
            sink: self.pty.master.as_fd(),
            flow: &self.flow,
            interrupt: modes.interrupt_key(),
            end_of_file: modes.end_of_file_key(),
            decoder: Decoder::default(),
            paste: Paste::default(),
            before: 0,
        };
        let (result, rest) = std::thread::scope(|scope| {
            let feeding = scope.spawn(move || feeder.run(pending));
            let result = edit();
            drop(stop_writer);
            self.flow.go_on();
            (result, feeding.join().unwrap_or_default())
        });
        let _ = process_group::replace_stdin(console.terminal());
        self.pending = rest;
        self.gather();
        self.foreign &= !self.pending.is_empty();
        Some(result)
    }

    /// Keys that the editor was fed but did not read.
    fn gather(&mut self) {
        let mut buffer = [0_u8; 1024];
        let mut unread = Vec::new();
        while terminal::has_input(&self.pty.slave) {
            match process_group::read(&self.pty.slave, &mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => unread.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            }
        }
        if !unread.is_empty() {
            unread.append(&mut self.pending);
            self.pending = unread;
        }
    }
}

/// What is watched of the engine while a line is edited.
#[derive(Clone, Copy, Default)]
pub struct Engine<'a> {
    /// Readable once it ended.
    pub ended: Option<BorrowedFd<'a>>,
    /// What its jobs print, if that is not our own terminal.
    pub output: Option<BorrowedFd<'a>>,
}

struct Feeder<'a> {
    console: &'a Console,
    engine: Engine<'a>,
    stop: BorrowedFd<'a>,
    sink: BorrowedFd<'a>,
    flow: &'a Flow,
    interrupt: u8,
    end_of_file: u8,
    decoder: Decoder,
    paste: Paste,
    /// The byte before this one.
    before: u8,
}

/// The two keys that open the line in an editor.
const OPEN_EDITOR: (u8, u8) = (0x18, 0x05);

impl Feeder<'_> {
    /// Feeds until told to stop; the answer is what was not fed.
    fn run(mut self, pending: Vec<u8>) -> Vec<u8> {
        let mut pending = pending.into_iter();
        while let Some(byte) = pending.next() {
            if self.stopped() {
                return std::iter::once(byte).chain(pending).collect();
            }
            self.pass(byte);
        }
        let source = self.console.terminal();
        let mut fds = vec![self.stop, source, self.console.signals()];
        // What is missing is watched for as the stop, which ends everything anyway.
        fds.push(self.engine.ended.unwrap_or(self.stop));
        fds.push(self.engine.output.unwrap_or(self.stop));
        let mut byte = [0_u8; 1];
        loop {
            let Ok(ready) = process_group::readable(&fds, None) else {
                self.lose();
                return Vec::new();
            };
            if ready.first() == Some(&true) {
                return Vec::new();
            }
            let hung_up = ready.get(2) == Some(&true) && self.console.asked().hang_up;
            if hung_up || ready.get(3) == Some(&true) {
                self.lose();
                return Vec::new();
            }
            if ready.get(4) == Some(&true) {
                self.show_output();
            }
            if ready.get(1) != Some(&true) {
                continue;
            }
            match process_group::read(source, &mut byte) {
                Ok(1) if byte[0] == 0x1b && self.takes_report() => {}
                Ok(1) => {
                    self.flow.read_one();
                    self.pass(byte[0]);
                }
                Ok(_) => {
                    self.lose();
                    return Vec::new();
                }
                Err(_) => {
                    // Something took the terminal for a moment, or it is gone for good.
                    std::thread::sleep(Duration::from_millis(20));
                    let own = process_group::own_group();
                    if terminal::set_foreground(source, own).is_err() {
                        self.lose();
                        return Vec::new();
                    }
                }
            }
        }
    }

    /// Takes in the rest of a terminal's report that it is well, which completions ask for to have the line
    /// drawn anew; what else begins like it is passed on.
    fn takes_report(&mut self) -> bool {
        let source = self.console.terminal();
        let mut taken = Vec::new();
        let mut byte = [0_u8; 1];
        for expected in b"[0n" {
            let waits = process_group::readable(&[source], Some(Duration::ZERO));
            if !waits.is_ok_and(|waits| waits.contains(&true)) {
                break;
            }
            let Ok(1) = process_group::read(source, &mut byte) else {
                break;
            };
            taken.push(byte[0]);
            if byte[0] != *expected {
                break;
            }
        }
        if taken == b"[0n" {
            return true;
        }
        for byte in [0x1b].into_iter().chain(taken) {
            self.flow.read_one();
            self.pass(byte);
        }
        true
    }

    /// Shows what a job in the background printed on the engine's own terminal.
    fn show_output(&self) {
        let mut buffer = [0_u8; 16 * 1024];
        if let Some(output) = self.engine.output
            && let Ok(count) = process_group::read(output, &mut buffer)
        {
            let text = buffer.get(..count).unwrap_or_default();
            let _ = process_group::write_all(self.console.terminal(), text);
        }
    }

    fn stopped(&self) -> bool {
        process_group::readable(&[self.stop], Some(Duration::ZERO))
            .is_ok_and(|ready| ready.first() == Some(&true))
    }

    fn lose(&self) {
        self.flow.lost.store(true, Ordering::SeqCst);
        if self.paste.inside {
            let _ = process_group::write_all(self.sink, PASTE_END);
        }
        // After an escape, in a search or a quoted insert the editor takes one for something else.
        let _ = process_group::write_all(self.sink, &[self.interrupt; 4]);
    }

    fn pass(&mut self, byte: u8) {
        let text = self.decoder.push(byte);
        if text.is_empty() {
            return;
        }
        let in_paste = self.paste.push(byte);
        let before = std::mem::replace(&mut self.before, byte);
        let patience = match byte {
            _ if in_paste => None,
            // The editor answers this one unless it asks something itself; on a busy machine, late.
            b'\r' | b'\n' => Some(Duration::from_secs(2)),
            _ if byte == self.interrupt || (before, byte) == OPEN_EDITOR => {
                Some(Duration::from_millis(400))
            }
            _ if byte == self.end_of_file => Some(Duration::from_millis(40)),
            _ => None,
        };
        if patience.is_some() {
            self.flow.set(true);
        }
        // The editor knows the key by the byte a terminal sends for it.
        let text = if byte == b'\n' && !in_paste {
            vec![b'\r']
        } else {
            text
        };
        let _ = process_group::write_all(self.sink, &text);
        if let Some(patience) = patience {
            self.flow.wait(patience);
        }
    }
}

/// What a terminal sends after a paste.
const PASTE_END: &[u8; 6] = b"\x1b[201~";

/// Recognises a bracketed paste.
#[derive(Default)]
struct Paste {
    recent: [u8; 6],
    inside: bool,
}

impl Paste {
    /// Takes one byte; true while inside a paste.
    fn push(&mut self, byte: u8) -> bool {
        self.recent.rotate_left(1);
        if let Some(last) = self.recent.last_mut() {
            *last = byte;
        }
        match &self.recent {
            b"\x1b[200~" => self.inside = true,
            PASTE_END => self.inside = false,
            _ => {}
        }
        self.inside
    }
}

/// Cuts bytes into characters; what is none becomes a private one.
#[derive(Default)]
struct Decoder {
    partial: Vec<u8>,
}

impl Decoder {
    fn push(&mut self, byte: u8) -> Vec<u8> {
        let mut out = Vec::new();
        let continues = (0x80..0xc0).contains(&byte);
        if !continues && !self.partial.is_empty() {
            for stray in std::mem::take(&mut self.partial) {
                push_private(&mut out, stray);
            }
        }
        self.partial.push(byte);
        match std::str::from_utf8(&self.partial) {
            Ok(_) => out.append(&mut self.partial),
            Err(error) if error.error_len().is_none() => {}
            Err(_) => {
                for stray in std::mem::take(&mut self.partial) {
                    push_private(&mut out, stray);
                }
            }
        }
        out
    }
}

fn push_private(out: &mut Vec<u8>, byte: u8) {
    if let Some(character) = char::from_u32(PRIVATE + u32::from(byte)) {
        let mut buffer = [0; 4];
        out.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
    }
}

/// The bytes a line stands for.
pub fn to_bytes(line: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(line.len());
    let mut buffer = [0; 4];
    for character in line.chars() {
        match u32::from(character).checked_sub(PRIVATE).map(u8::try_from) {
            Some(Ok(byte)) => bytes.push(byte),
            _ => bytes.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes()),
        }
    }
    bytes
}

/// The text that stands for bytes; the reverse of [`to_bytes`].
pub fn to_text(mut bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    loop {
        match std::str::from_utf8(bytes) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => {
                let (valid, rest) = bytes.split_at(error.valid_up_to());
                text.push_str(std::str::from_utf8(valid).unwrap_or_default());
                let count = error.error_len().unwrap_or(rest.len());
                for &stray in rest.iter().take(count) {
                    text.extend(char::from_u32(PRIVATE + u32::from(stray)));
                }
                bytes = rest.get(count..).unwrap_or_default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_whatever_they_are() {
        let bytes = b"caf\xe9 \xc3\xa9 \xff\xfe ok \xe2\x82";
        assert_eq!(to_bytes(&to_text(bytes)), bytes);
        let mut decoder = Decoder::default();
        let mut fed = Vec::new();
        for &byte in bytes.iter().chain(b"\n") {
            fed.extend(decoder.push(byte));
        }
        let line = String::from_utf8(fed).unwrap();
        assert_eq!(to_bytes(&line), [&bytes[..], b"\n"].concat());
    }

    #[test]
    fn a_paste_is_seen_to_its_end() {
        let mut paste = Paste::default();
        let states: Vec<bool> = b"a\x1b[200~x\x1b[201~b"
            .iter()
            .map(|b| paste.push(*b))
            .collect();
        assert_eq!(states.iter().filter(|inside| **inside).count(), 7);
        assert_eq!(states.last(), Some(&false));
    }
}
