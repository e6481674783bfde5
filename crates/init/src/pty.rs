//! New terminals from a world's own instance, made between clone and exec: see [`crate::child`].
//! Everything else about terminals is in [`substrate_sys::terminal`].

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

fn check(rc: libc::c_int) -> io::Result<libc::c_int> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(rc)
    }
}

/// Opens a new terminal: master and slave, of this many rows and columns. Allocates nothing.
pub fn open(ptmx: &CStr, size: (u16, u16)) -> io::Result<(OwnedFd, OwnedFd)> {
    // SAFETY: `ptmx` is a C string; the ioctls take an int pointer, a winsize pointer and a
    // number, which is what they get; each new descriptor is owned by nobody else.
    unsafe {
        let master = check(libc::open(
            ptmx.as_ptr(),
            libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC,
        ))?;
        let master = OwnedFd::from_raw_fd(master);
        let unlocked: libc::c_int = 0;
        check(libc::ioctl(
            master.as_raw_fd(),
            libc::TIOCSPTLCK,
            &raw const unlocked,
        ))?;
        set_size(&master, size)?;
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        let slave = check(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags))?;
        Ok((master, OwnedFd::from_raw_fd(slave)))
    }
}

fn set_size(master: &OwnedFd, size: (u16, u16)) -> io::Result<()> {
    let size = libc::winsize {
        ws_row: size.0,
        ws_col: size.1,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCSWINSZ reads a winsize, which is what is passed.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) })?;
    Ok(())
}
