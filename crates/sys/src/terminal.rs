//! Terminals: modes, window size, the foreground process group and pseudo-terminals.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, retry_on_intr};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{
    ControlModes, InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex,
    Termios, Winsize, tcflush, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr, tcsetpgrp,
    tcsetwinsize,
};

use crate::mask::Mask;

/// The modes of a terminal as `tcgetattr` gave them.
#[derive(Clone)]
pub struct Modes(Termios);

/// Rows and columns of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of rows; zero when the terminal does not know.
    pub rows: u16,
    /// Number of columns; zero when the terminal does not know.
    pub columns: u16,
}

/// A pseudo-terminal: the side we hold and the side that programs see.
pub struct Pty {
    /// Our side: what is written here is typed, what is read here was printed.
    pub master: OwnedFd,
    /// The terminal itself.
    pub slave: OwnedFd,
}

impl Modes {
    /// Reads the modes of a terminal.
    pub fn of(terminal: impl AsFd) -> io::Result<Self> {
        Ok(Self(tcgetattr(terminal)?))
    }

    /// Sets these modes once everything written before has left, without dropping typed input.
    pub fn apply(&self, terminal: impl AsFd) -> io::Result<()> {
        let once_written = OptionalActions::Drain;
        Ok(retry_on_intr(|| {
            tcsetattr(&terminal, once_written, &self.0)
        })?)
    }

    /// These modes with byte-wise unechoed input and no signals from keys; output is left as it is.
    ///
    /// A return stays what it is for programs: what is typed ahead now may be read by one later.
    #[must_use]
    pub fn editing(&self) -> Self {
        let Self(mut modes) = self.clone();
        modes.input_modes -=
            InputModes::BRKINT | InputModes::INPCK | InputModes::ISTRIP | InputModes::IXON;
        modes.control_modes |= ControlModes::CS8;
        modes.local_modes -=
            LocalModes::ECHO | LocalModes::ICANON | LocalModes::IEXTEN | LocalModes::ISIG;
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        Self(modes)
    }

    /// These modes with what is typed not shown.
    #[must_use]
    pub fn unechoed(&self) -> Self {
        let Self(mut modes) = self.clone();
        modes.local_modes -= LocalModes::ECHO;
        Self(modes)
    }

    /// These modes with neither input nor output processed, for passing bytes through.
    #[must_use]
    pub fn transparent(&self) -> Self {
        let Self(mut modes) = self.clone();
        modes.make_raw();
        Self(modes)
    }

    /// Whether keys are gathered into lines and echoed, as programs expect to find a terminal.
    pub fn is_line_mode(&self) -> bool {
        let wanted = LocalModes::ICANON | LocalModes::ECHO;
        self.0.local_modes.contains(wanted)
    }

    /// Whether an interrupt key raises a signal.
    pub fn signals(&self) -> bool {
        self.0.local_modes.contains(LocalModes::ISIG)
    }

    /// The byte that ends the file in line mode.
    pub fn end_of_file_key(&self) -> u8 {
        self.0.special_codes[SpecialCodeIndex::VEOF]
    }

    /// The byte that interrupts.
    pub fn interrupt_key(&self) -> u8 {
        self.0.special_codes[SpecialCodeIndex::VINTR]
    }
}

/// The process group that the terminal belongs to now; 0 for one that our process namespace does not show.
pub fn foreground(terminal: impl AsFd) -> io::Result<i32> {
    match tcgetpgrp(terminal) {
        Ok(group) => Ok(group.as_raw_nonzero().get()),
        // What rustix makes of a 0.
        Err(Errno::OPNOTSUPP) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Gives the terminal to a process group, also when the caller is in the background itself. Makes
/// system calls only, so it may run between clone and exec.
pub fn set_foreground(terminal: impl AsFd, group: i32) -> io::Result<()> {
    let group = crate::pidfd::number(group)?;
    // Blocked so that a background caller succeeds.
    let before = Mask::of([libc::SIGTTOU]).block();
    let result = tcsetpgrp(terminal, group);
    before.set();
    Ok(result?)
}

/// The window size of a terminal.
pub fn size(terminal: impl AsFd) -> io::Result<Size> {
    let size = tcgetwinsize(terminal)?;
    Ok(Size {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// Sets the window size; the kernel tells the foreground process group when it changed.
pub fn set_size(terminal: impl AsFd, size: Size) -> io::Result<()> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(terminal, size)?)
}

/// Throws away what was typed but not read yet.
pub fn discard_input(terminal: impl AsFd) -> io::Result<()> {
    Ok(tcflush(terminal, QueueSelector::IFlush)?)
}

/// Whether a read would return something now.
///
/// Polling also makes the kernel finish what is still on its way from the other side of a
/// pseudo-terminal, which counting the waiting bytes does not.
pub fn has_input(terminal: impl AsFd) -> bool {
    crate::poll::readable(&[terminal.as_fd()], Some(Duration::ZERO))
        .is_ok_and(|ready| ready.contains(&true))
}

/// How many bytes wait to be read. In line mode an unfinished line does not count.
pub fn waiting(terminal: impl AsFd) -> usize {
    if !has_input(&terminal) {
        return 0;
    }
    let waiting = rustix::io::ioctl_fionread(&terminal);
    waiting.map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX))
}

/// Opens a pseudo-terminal; neither side becomes a controlling terminal or is inherited.
pub fn open_pty() -> io::Result<Pty> {
    let master = openpt(OPEN)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    other_side(master)
}

/// Opens a pseudo-terminal of the instance that `ptmx` belongs to, with this size from the beginning.
/// Allocates nothing.
pub fn open_pty_at(ptmx: &CStr, size: Size) -> io::Result<Pty> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = open(ptmx, flags, Mode::empty())?;
    unlockpt(&master)?;
    set_size(&master, size)?;
    other_side(master)
}

/// The other side of a pseudo-terminal whose master we hold, wherever its name may live.
pub fn other_side(master: OwnedFd) -> io::Result<Pty> {
    let slave = ioctl_tiocgptpeer(&master, OPEN)?;
    Ok(Pty { master, slave })
}

const OPEN: OpenptFlags = OpenptFlags::RDWR
    .union(OpenptFlags::NOCTTY)
    .union(OpenptFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pty_has_modes_and_a_size() {
        let pty = open_pty().unwrap();
        let modes = Modes::of(&pty.slave).unwrap();
        assert!(modes.is_line_mode());
        modes.editing().apply(&pty.slave).unwrap();
        assert!(!Modes::of(&pty.slave).unwrap().is_line_mode());
        let wanted = Size {
            rows: 31,
            columns: 101,
        };
        set_size(&pty.slave, wanted).unwrap();
        assert_eq!(size(&pty.master).unwrap(), wanted);
    }
}
