//! Who is at the other end of a unix socket, as the kernel noted it when the connection was made.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// `SO_PEERPIDFD` of asm-generic/socket.h, Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

/// The process that connected.
#[derive(Debug)]
pub struct Peer {
    /// Its id in our namespace; never 0.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// A handle that never comes to mean another process.
    pub pidfd: OwnedFd,
}

/// The peer of a connected socket. One whose process this namespace does not show is an error, and so
/// is a kernel that cannot name the process without a race.
pub fn of(socket: impl AsFd) -> io::Result<Peer> {
    let credentials: libc::ucred = option(&socket, libc::SO_PEERCRED)?;
    let pid = u32::try_from(credentials.pid).ok().filter(|pid| *pid > 0);
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let pidfd: libc::c_int = option(&socket, SO_PEERPIDFD)?;
    Ok(Peer {
        pid,
        uid: credentials.uid,
        // SAFETY: the kernel just made this descriptor for us, and nobody else owns it.
        pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
    })
}

/// Not by rustix, which says of the number of a process that it is not 0: for one that this namespace
/// does not show the kernel answers just that.
fn option<T: Copy>(socket: &impl AsFd, name: libc::c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is writable for `length` bytes.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    if length as usize != size_of::<T>() {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    // SAFETY: the kernel filled all of it.
    Ok(unsafe { value.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_our_own_peer() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = of(&one).unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert!(crate::pidfd::is_alive(peer.pidfd.as_fd()));
    }
}
