//! Internet sockets: what the standard library does not offer (non-blocking connects,
//! transparent binds, sockets that are used again).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt,
};

/// TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A stream.
    Tcp,
    /// Datagrams.
    Udp,
}

/// Options that are switched on by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// An address may be bound again at once.
    ReuseAddress,
    /// An IPv6 socket stays away from IPv4.
    OnlyV6,
    /// Addresses that are not ours may be bound and accepted (IPv4).
    TransparentV4,
    /// The same for IPv6.
    TransparentV6,
    /// Small writes go out at once.
    NoDelay,
    /// A dead peer is noticed.
    KeepAlive,
    /// Its peer is on this machine: the simplest way to deal with a crowded network will do, and
    /// every kernel has it. Those that measure a network hold back what could go at once.
    Local,
}

/// Creates a non-blocking, close-on-exec socket in the thread's network namespace.
pub fn socket(kind: Kind, v6: bool) -> io::Result<OwnedFd> {
    let family = if v6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let kind = match kind {
        Kind::Tcp => SocketType::STREAM,
        Kind::Udp => SocketType::DGRAM,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(family, kind, flags, None)?)
}

/// Sets one of the options above.
pub fn set(fd: BorrowedFd<'_>, flag: Flag) -> io::Result<()> {
    match flag {
        Flag::ReuseAddress => sockopt::set_socket_reuseaddr(fd, true)?,
        Flag::OnlyV6 => sockopt::set_ipv6_v6only(fd, true)?,
        Flag::TransparentV4 => set_number(fd, libc::SOL_IP, libc::IP_TRANSPARENT, 1)?,
        Flag::TransparentV6 => set_number(fd, libc::SOL_IPV6, libc::IPV6_TRANSPARENT, 1)?,
        Flag::NoDelay => sockopt::set_tcp_nodelay(fd, true)?,
        Flag::KeepAlive => sockopt::set_socket_keepalive(fd, true)?,
        Flag::Local => sockopt::set_tcp_congestion(fd, "reno")?,
    }
    Ok(())
}

/// Makes the next close send a reset instead of an orderly end.
pub fn reset_on_close(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(fd, Some(Duration::ZERO))?)
}

/// For the options that rustix does not know.
fn set_number(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `value`, which outlives the call.
    check(unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(fd.as_raw_fd(), level, name, value, length)
    })
}

/// Binds to an address.
pub fn bind(fd: BorrowedFd<'_>, address: &SocketAddr) -> io::Result<()> {
    Ok(net::bind(fd, address)?)
}

/// Starts listening.
pub fn listen(fd: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    Ok(net::listen(fd, backlog)?)
}

/// Starts a connect on a non-blocking socket: true when it is done at once.
pub fn connect(fd: BorrowedFd<'_>, address: &SocketAddr) -> io::Result<bool> {
    match net::connect(fd, address) {
        Ok(()) => Ok(true),
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Takes a socket back to its unconnected state, so that it can connect again.
pub fn disconnect(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(net::connect_unspec(fd)?)
}

/// Accepts one connection, non-blocking and close-on-exec.
pub fn accept(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::accept_with(fd, flags)?)
}

/// The address a socket is bound to; for a transparently accepted one, what the peer dialled.
pub fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    Ok(net::getsockname(fd)?.try_into()?)
}

/// The address of the peer.
pub fn peer_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let peer = net::getpeername(fd)?.ok_or(Errno::NOTCONN)?;
    Ok(peer.try_into()?)
}

/// The error a socket has pending, which is cleared by asking.
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::socket_error(fd)??)
}

/// Sends the end of our direction.
pub fn shutdown_write(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(net::shutdown(fd, Shutdown::Write)?)
}

/// How many bytes wait to be read.
pub fn available(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let count = rustix::io::ioctl_fionread(fd)?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// How many bytes that were sent have not arrived yet.
pub fn unsent(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the request writes one int to the pointer, which is live for the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ as _, &raw mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Receives bytes; `peek` leaves them in place.
pub fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8], peek: bool) -> io::Result<usize> {
    let flags = if peek {
        RecvFlags::PEEK
    } else {
        RecvFlags::empty()
    };
    let (got, _) = net::recv(fd, buffer, flags | RecvFlags::DONTWAIT)?;
    Ok(got)
}

/// Sends bytes; a peer that is gone is an error, never a signal.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(net::send(
        fd,
        bytes,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )?)
}

/// The inode that names the network namespace of a socket, as in `/proc/PID/ns/net`.
pub fn namespace_inode(fd: BorrowedFd<'_>) -> io::Result<u64> {
    const SIOCGSKNS: libc::c_ulong = 0x894C;
    // SAFETY: this request takes no argument and returns a new descriptor.
    let ns = unsafe { libc::ioctl(fd.as_raw_fd(), SIOCGSKNS as _) };
    if ns < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `ns` was just returned by the kernel and nobody else owns it.
    let ns = unsafe { OwnedFd::from_raw_fd(ns) };
    Ok(rustix::fs::fstat(ns)?.st_ino)
}

/// The addresses of this machine's interfaces.
pub fn interface_addresses() -> io::Result<Vec<IpAddr>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `list` receives a list that is freed below.
    check(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut found = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: `at` is an element of the list, which is alive until freed below.
        let entry = unsafe { &*at };
        if !entry.ifa_addr.is_null() {
            // SAFETY: `ifa_addr` points to an address whose family says how long it is.
            found.extend(unsafe { address_at(entry.ifa_addr) });
        }
        at = entry.ifa_next;
    }
    // SAFETY: `list` came from getifaddrs and is not used afterwards.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// # Safety
/// `address` points to a socket address as long as its family requires.
unsafe fn address_at(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller vouches for `address`, whose family says which of the two it is.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let number = (*address.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                Some(Ipv4Addr::from(number.to_ne_bytes()).into())
            }
            libc::AF_INET6 => {
                let address = &*address.cast::<libc::sockaddr_in6>();
                Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

fn check(rc: i32) -> io::Result<()> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn addresses_survive_the_trip_through_the_kernel() {
        for text in ["127.0.0.1:0", "[::1]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let fd = socket(Kind::Tcp, address.is_ipv6()).unwrap();
            bind(fd.as_fd(), &address).unwrap();
            let bound = local_address(fd.as_fd()).unwrap();
            assert_eq!(bound.ip(), address.ip());
            assert_ne!(bound.port(), 0);
        }
        let all = interface_addresses().unwrap();
        assert!(all.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)), "{all:?}");
    }

    #[test]
    fn one_socket_connects_again_after_a_disconnect() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let fd = socket(Kind::Tcp, false).unwrap();
        for round in 0..3u8 {
            connect(fd.as_fd(), &address).unwrap();
            let (mut peer, _) = server.accept().unwrap();
            std::io::Write::write_all(&mut peer, &[round]).unwrap();
            let mut byte = [9];
            while receive(fd.as_fd(), &mut byte, false).is_err() {
                std::thread::yield_now();
            }
            assert_eq!(byte, [round]);
            disconnect(fd.as_fd()).unwrap();
            let _ = take_error(fd.as_fd());
        }
    }

    #[test]
    fn a_reset_reaches_the_peer() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let accepted = accept(server.as_fd()).unwrap();
        reset_on_close(accepted.as_fd()).unwrap();
        drop(accepted);
        let error = std::io::Read::read(&mut client, &mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
