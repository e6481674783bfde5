//! The terminal as the front end holds it: who owns it, its modes, and the signals around it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use substrate_sys::process_group::{self, signal};
use substrate_sys::terminal::{self, Modes, Size};

/// The terminal of a session.
pub struct Console {
    terminal: OwnedFd,
    own_group: i32,
    first_owner: Option<i32>,
    modes: Option<Modes>,
    signals: OwnedFd,
    hung_up: AtomicBool,
    /// Keys that an engine was given on a terminal of its own and that nobody there read.
    typed: Vec<u8>,
    /// How many keys waited when the terminal was last taken back.
    left: Option<usize>,
}

/// What a signal asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The terminal hung up.
    pub hang_up: bool,
    /// The window changed its size.
    pub resized: bool,
}

impl Console {
    /// Takes over the terminal: waits until we are in the foreground, leads a process group of
    /// our own, and keeps the keyboard's signals away from us.
    pub fn take_over(terminal: OwnedFd) -> io::Result<Self> {
        let first_owner = terminal::foreground(&terminal).ok();
        let mut owner = first_owner;
        // Started in the background: stop, like any job that wants the terminal.
        while owner.is_some_and(|group| group != process_group::own_group() && group > 0) {
            process_group::send_group(process_group::own_group(), signal::TTIN)?;
            owner = terminal::foreground(&terminal).ok();
        }
        for number in [
            signal::INT,
            signal::QUIT,
            signal::TERM,
            signal::TSTP,
            signal::TTIN,
            signal::TTOU,
            signal::PIPE,
        ] {
            process_group::ignore(number, true);
        }
        let signals = process_group::catch(&[signal::HUP, signal::WINCH, signal::CHLD])?;
        // A session leader cannot change its group, and need not.
        let _ = process_group::lead_own_group();
        let own_group = process_group::own_group();
        let _ = terminal::set_foreground(&terminal, own_group);
        let modes = Modes::of(&terminal).ok();
        Ok(Self {
            terminal,
            own_group,
            first_owner,
            modes,
            signals,
            hung_up: AtomicBool::new(false),
            typed: Vec::new(),
            left: None,
        })
    }

    /// Keeps keys for the next engine.
    pub fn keep_typed(&mut self, keys: Vec<u8>) {
        self.typed.extend(keys);
    }

    /// Keys that an earlier engine left.
    pub fn take_typed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.typed)
    }

    /// The terminal's descriptor.
    pub fn terminal(&self) -> BorrowedFd<'_> {
        self.terminal.as_fd()
    }

    /// Readable when a signal arrived; see [`Console::asked`].
    pub fn signals(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// Which signals arrived since the last call; a hang-up is not forgotten.
    pub fn asked(&self) -> Asked {
        let mut asked = Asked::default();
        let mut numbers = [0_u8; 64];
        while let Ok(count) = process_group::read(&self.signals, &mut numbers) {
            for &number in numbers.iter().take(count) {
                asked.hang_up |= i32::from(number) == signal::HUP;
                asked.resized |= i32::from(number) == signal::WINCH;
            }
            if count < numbers.len() {
                break;
            }
        }
        if asked.hang_up {
            self.hung_up.store(true, Ordering::SeqCst);
        }
        asked.hang_up = self.hung_up.load(Ordering::SeqCst);
        asked
    }

    /// Gives the terminal to another process group, in the modes that programs left it in.
    pub fn give(&self, group: i32) {
        self.restore();
        let _ = terminal::set_foreground(&self.terminal, group);
    }

    /// Takes the terminal back and remembers the modes it is in now, and how much waits there that was typed while it
    /// was somebody else's.
    pub fn take(&mut self) {
        let _ = terminal::set_foreground(&self.terminal, self.own_group);
        if let Ok(modes) = Modes::of(&self.terminal) {
            // Whoever had it may have read half a line.
            let _ = modes.editing().apply(&self.terminal);
            self.left = Some(terminal::waiting(&self.terminal));
            let _ = modes.apply(&self.terminal);
            self.modes = Some(modes);
        }
    }

    /// How many keys waited when the terminal was taken back, if that happened since this was last asked.
    pub fn take_left(&mut self) -> Option<usize> {
        self.left.take()
    }

    /// Sets the modes that programs left the terminal in.
    pub fn restore(&self) {
        if let Some(modes) = &self.modes {
            let _ = modes.apply(&self.terminal);
        }
    }

    /// Sets the modes for editing a line.
    pub fn edit(&self) -> Option<Modes> {
        let modes = self.modes.as_ref()?;
        let _ = terminal::set_foreground(&self.terminal, self.own_group);
        let _ = modes.editing().apply(&self.terminal);
        Some(modes.clone())
    }

    /// Sets the modes for passing bytes through to a terminal of the engine's own.
    pub fn pass_through(&self) {
        if let Some(modes) = &self.modes {
            let _ = modes.transparent().apply(&self.terminal);
        }
    }

    /// The window size, if the terminal knows it.
    pub fn size(&self) -> Option<Size> {
        terminal::size(&self.terminal).ok()
    }

    /// Whether the terminal belongs to us now.
    pub fn is_ours(&self) -> bool {
        terminal::foreground(&self.terminal).is_ok_and(|group| group == self.own_group)
    }

    /// Stops ourselves until somebody continues us, with the terminal given back meanwhile.
    pub fn suspend(&mut self) {
        if let Some(group) = self.first_owner.filter(|group| *group != self.own_group) {
            let _ = terminal::set_foreground(&self.terminal, group);
        }
        let _ = process_group::send_group(self.own_group, signal::STOP);
        let _ = terminal::set_foreground(&self.terminal, self.own_group);
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.restore();
        if let Some(group) = self.first_owner.filter(|group| *group != self.own_group) {
            let _ = terminal::set_foreground(&self.terminal, group);
        }
    }
}
