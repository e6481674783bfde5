//! Terminals: modes, window size, the foreground process group and pseudo-terminals.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::mask::Mask;

/// The modes of a terminal as `tcgetattr` gave them.
#[derive(Clone, Copy)]
pub struct Modes(libc::termios);

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

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl Modes {
    /// Reads the modes of a terminal.
    pub fn of(terminal: impl AsFd) -> io::Result<Self> {
        // SAFETY: termios is plain data for which all zeroes is a valid value.
        let mut modes: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is borrowed for the call and `modes` is a valid termios to fill.
        check(unsafe { libc::tcgetattr(terminal.as_fd().as_raw_fd(), &raw mut modes) })?;
        Ok(Self(modes))
    }

    /// Sets these modes once everything written before has left, without dropping typed input.
    pub fn apply(&self, terminal: impl AsFd) -> io::Result<()> {
        loop {
            // SAFETY: the descriptor is borrowed for the call and `self.0` came from tcgetattr.
            let result = check(unsafe {
                libc::tcsetattr(
                    terminal.as_fd().as_raw_fd(),
                    libc::TCSADRAIN,
                    &raw const self.0,
                )
            });
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// These modes with byte-wise unechoed input and no signals from keys; output is left as it is.
    ///
    /// A return stays what it is for programs: what is typed ahead now may be read by one later.
    #[must_use]
    pub fn editing(mut self) -> Self {
        self.0.c_iflag &= !(libc::BRKINT | libc::INPCK | libc::ISTRIP | libc::IXON);
        self.0.c_cflag |= libc::CS8;
        self.0.c_lflag &= !(libc::ECHO | libc::ICANON | libc::IEXTEN | libc::ISIG);
        self.0.c_cc[libc::VMIN] = 1;
        self.0.c_cc[libc::VTIME] = 0;
        self
    }

    /// These modes with what is typed not shown.
    #[must_use]
    pub fn unechoed(mut self) -> Self {
        self.0.c_lflag &= !libc::ECHO;
        self
    }

    /// These modes with neither input nor output processed, for passing bytes through.
    #[must_use]
    pub fn transparent(mut self) -> Self {
        // SAFETY: cfmakeraw only rewrites fields of the termios it is given.
        unsafe { libc::cfmakeraw(&raw mut self.0) };
        self
    }

    /// Whether keys are gathered into lines and echoed, as programs expect to find a terminal.
    pub fn is_line_mode(&self) -> bool {
        let wanted = libc::ICANON | libc::ECHO;
        self.0.c_lflag & wanted == wanted
    }

    /// Whether an interrupt key raises a signal.
    pub fn signals(&self) -> bool {
        self.0.c_lflag & libc::ISIG != 0
    }

    /// The byte that ends the file in line mode.
    pub fn end_of_file_key(&self) -> u8 {
        self.0.c_cc[libc::VEOF]
    }

    /// The byte that interrupts.
    pub fn interrupt_key(&self) -> u8 {
        self.0.c_cc[libc::VINTR]
    }
}

/// The process group that the terminal belongs to now.
pub fn foreground(terminal: impl AsFd) -> io::Result<i32> {
    // SAFETY: the descriptor is borrowed for the call.
    let group = unsafe { libc::tcgetpgrp(terminal.as_fd().as_raw_fd()) };
    if group == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(group)
}

/// Gives the terminal to a process group, also when the caller is in the background itself.
pub fn set_foreground(terminal: impl AsFd, group: i32) -> io::Result<()> {
    set_foreground_raw(terminal.as_fd().as_raw_fd(), group)
}

/// As [`set_foreground`], usable between fork and exec: only async-signal-safe calls.
pub(crate) fn set_foreground_raw(terminal: i32, group: i32) -> io::Result<()> {
    // Blocked so that a background caller succeeds.
    let before = Mask::of([libc::SIGTTOU]).block();
    // SAFETY: plain system call without pointers.
    let result = check(unsafe { libc::tcsetpgrp(terminal, group) });
    before.set();
    result
}

/// The window size of a terminal.
pub fn size(terminal: impl AsFd) -> io::Result<Size> {
    // SAFETY: winsize is plain data for which all zeroes is a valid value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: TIOCGWINSZ fills the winsize it is given; the descriptor is borrowed for the call.
    check(unsafe {
        libc::ioctl(
            terminal.as_fd().as_raw_fd(),
            libc::TIOCGWINSZ,
            &raw mut size,
        )
    })?;
    Ok(Size {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// Sets the window size; the kernel tells the foreground process group when it changed.
pub fn set_size(terminal: impl AsFd, size: Size) -> io::Result<()> {
    let size = libc::winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCSWINSZ reads the winsize it is given; the descriptor is borrowed for the call.
    check(unsafe {
        libc::ioctl(
            terminal.as_fd().as_raw_fd(),
            libc::TIOCSWINSZ,
            &raw const size,
        )
    })
}

/// Throws away what was typed but not read yet.
pub fn discard_input(terminal: impl AsFd) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed for the call.
    check(unsafe { libc::tcflush(terminal.as_fd().as_raw_fd(), libc::TCIFLUSH) })
}

/// Whether a read would return something now.
///
/// Polling also makes the kernel finish what is still on its way from the other side of a
/// pseudo-terminal, which counting the waiting bytes does not.
pub fn has_input(terminal: impl AsFd) -> bool {
    crate::process_group::readable(&[terminal.as_fd()], Some(std::time::Duration::ZERO))
        .is_ok_and(|ready| ready.contains(&true))
}

/// Opens a pseudo-terminal; neither side becomes a controlling terminal or is inherited.
pub fn open_pty() -> io::Result<Pty> {
    // SAFETY: no pointers are passed; the result is checked before it is owned.
    let master = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) };
    if master == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: posix_openpt just returned this descriptor and nobody else owns it.
    let master = unsafe { OwnedFd::from_raw_fd(master) };
    // SAFETY: grantpt and unlockpt only look at the descriptor, which is open.
    check(unsafe { libc::grantpt(master.as_raw_fd()) })?;
    // SAFETY: as above.
    check(unsafe { libc::unlockpt(master.as_raw_fd()) })?;
    let mut name = [0; 128];
    // SAFETY: the buffer is as long as the length given and ptsname_r ends it with a NUL.
    let error = unsafe { libc::ptsname_r(master.as_raw_fd(), name.as_mut_ptr(), name.len()) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: ptsname_r succeeded, so the buffer holds a NUL-terminated string.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    // SAFETY: `name` is a valid C string; the result is checked before it is owned.
    let slave = unsafe {
        libc::open(
            name.as_ptr(),
            libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC,
        )
    };
    if slave == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(Pty {
        master,
        // SAFETY: open just returned this descriptor and nobody else owns it.
        slave: unsafe { OwnedFd::from_raw_fd(slave) },
    })
}

/// The other side of a pseudo-terminal whose master we hold, wherever its name may live.
pub fn other_side(master: OwnedFd) -> io::Result<Pty> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes open flags by value; the descriptor is open for the call.
    let slave = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) };
    check(slave)?;
    Ok(Pty {
        master,
        // SAFETY: the kernel just returned this descriptor and nobody else owns it.
        slave: unsafe { OwnedFd::from_raw_fd(slave) },
    })
}

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
