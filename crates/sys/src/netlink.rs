//! Netlink: one request, its acknowledgements, nothing allocated on the way.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Routes, links and addresses.
pub const ROUTE: i32 = libc::NETLINK_ROUTE;
/// nftables and packet logging.
pub const NETFILTER: i32 = libc::NETLINK_NETFILTER;
/// Questions about sockets.
pub const SOCK_DIAG: i32 = libc::NETLINK_SOCK_DIAG;

/// How long an answer of the kernel may take before the request counts as failed.
const REPLY_SECONDS: i64 = 5;

const HEADER: usize = 16;

/// Opens a netlink socket in the calling thread's network namespace.
pub fn open(protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain system call without pointers.
    let fd = unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            protocol,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just returned by the kernel and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let wait = libc::timeval {
        tv_sec: REPLY_SECONDS,
        tv_usec: 0,
    };
    // SAFETY: the pointer and length describe `wait`, which outlives the call.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const wait).cast(),
            size_of::<libc::timeval>() as libc::socklen_t,
        )
    };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(fd)
    }
}

/// Sends bytes that already are complete netlink messages.
pub fn send(fd: BorrowedFd<'_>, request: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and length describe `request`.
    let sent = unsafe { libc::send(fd.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Receives one datagram; `flags` as in recv(2).
pub fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8], flags: i32) -> io::Result<usize> {
    // SAFETY: the pointer and length describe `buffer`, which is writable for the call.
    let got = unsafe {
        libc::recv(
            fd.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            flags,
        )
    };
    if got < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(got as usize)
    }
}

/// Sends a request and waits for `acks` acknowledgements; the kernel's first error is returned.
///
/// Uses only the stack, so it may run between clone and exec.
pub fn transact(fd: BorrowedFd<'_>, request: &[u8], acks: usize) -> io::Result<()> {
    send(fd, request)?;
    let mut left = acks;
    let mut buffer = [0u8; 4096];
    while left > 0 {
        let got = match receive(fd, &mut buffer, 0) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        for (kind, body) in messages(&buffer[..got]) {
            if kind != libc::NLMSG_ERROR as u16 {
                continue;
            }
            let code = body
                .first_chunk()
                .map_or(-libc::EBADMSG, |b| i32::from_ne_bytes(*b));
            if code != 0 {
                return Err(io::Error::from_raw_os_error(-code));
            }
            left = left.saturating_sub(1);
        }
    }
    Ok(())
}

/// The messages of a datagram: type and what follows the header.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(*rest.get(4..)?.first_chunk()?);
        let body = rest.get(HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, body))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn messages_stop_at_the_first_that_does_not_fit() {
        let mut bytes = vec![20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
        bytes.extend_from_slice(&[200, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let seen: Vec<_> = messages(&bytes).collect();
        assert_eq!(seen, vec![(2, &[1u8, 2, 3, 4][..])]);
        assert_eq!(messages(&[3, 0, 0]).count(), 0);
        assert_eq!(
            messages(&[0; 64]).count(),
            0,
            "a length of zero ends the walk"
        );
    }

    #[test]
    fn the_kernel_answers_a_bad_request_with_its_error() {
        let fd = open(ROUTE).unwrap();
        // RTM_GETLINK for an interface index that nobody has.
        let mut bytes = 32u32.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&18u16.to_ne_bytes());
        bytes.extend_from_slice(&5u16.to_ne_bytes());
        bytes.extend_from_slice(&[0; 12]);
        bytes.extend_from_slice(&i32::MAX.to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        let error = transact(fd.as_fd(), &bytes, 1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
