//! Internet sockets: what the standard library does not offer (non-blocking connects,
//! transparent binds, sockets that are used again).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

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

const ON: &[u8] = &1i32.to_ne_bytes();

impl Flag {
    fn option(self) -> (i32, i32, &'static [u8]) {
        match self {
            Flag::ReuseAddress => (libc::SOL_SOCKET, libc::SO_REUSEADDR, ON),
            Flag::OnlyV6 => (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, ON),
            Flag::TransparentV4 => (libc::SOL_IP, libc::IP_TRANSPARENT, ON),
            Flag::TransparentV6 => (libc::SOL_IPV6, libc::IPV6_TRANSPARENT, ON),
            Flag::NoDelay => (libc::IPPROTO_TCP, libc::TCP_NODELAY, ON),
            Flag::KeepAlive => (libc::SOL_SOCKET, libc::SO_KEEPALIVE, ON),
            Flag::Local => (libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"reno"),
        }
    }
}

/// Creates a non-blocking, close-on-exec socket in the thread's network namespace.
pub fn socket(kind: Kind, v6: bool) -> io::Result<OwnedFd> {
    let domain = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    let kind = match kind {
        Kind::Tcp => libc::SOCK_STREAM,
        Kind::Udp => libc::SOCK_DGRAM,
    };
    // SAFETY: plain system call without pointers.
    let fd = unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just returned by the kernel and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets one of the options above.
pub fn set(fd: BorrowedFd<'_>, flag: Flag) -> io::Result<()> {
    let (level, name, value) = flag.option();
    set_bytes(fd, level, name, value)
}

/// Makes the next close send a reset instead of an orderly end.
pub fn reset_on_close(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut linger = [0u8; 8];
    linger[..4].copy_from_slice(&1i32.to_ne_bytes());
    set_bytes(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
}

fn set_bytes(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`, which outlives the call.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    check(rc)
}

/// Binds to an address.
pub fn bind(fd: BorrowedFd<'_>, address: &SocketAddr) -> io::Result<()> {
    let (storage, length) = encode(address);
    // SAFETY: `storage` holds a socket address of `length` bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const storage).cast(), length) })
}

/// Starts listening.
pub fn listen(fd: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    // SAFETY: plain system call without pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) })
}

/// Starts a connect on a non-blocking socket: true when it is done at once.
pub fn connect(fd: BorrowedFd<'_>, address: &SocketAddr) -> io::Result<bool> {
    let (storage, length) = encode(address);
    // SAFETY: `storage` holds a socket address of `length` bytes.
    let rc = unsafe { libc::connect(fd.as_raw_fd(), (&raw const storage).cast(), length) };
    if rc == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EINPROGRESS | libc::EINTR) => Ok(false),
        _ => Err(error),
    }
}

/// Takes a socket back to its unconnected state, so that it can connect again.
pub fn disconnect(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an all-zero sockaddr is valid; its family is AF_UNSPEC.
    let none: libc::sockaddr = unsafe { std::mem::zeroed() };
    let length = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: pointer and length describe `none`.
    check(unsafe { libc::connect(fd.as_raw_fd(), &raw const none, length) })
}

/// Accepts one connection, non-blocking and close-on-exec.
pub fn accept(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: null address and length are legal and mean that neither is wanted.
    let new = unsafe {
        libc::accept4(
            fd.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            flags,
        )
    };
    if new < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `new` was just returned by the kernel and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

/// The address a socket is bound to; for a transparently accepted one, what the peer dialled.
pub fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    name(fd, libc::getsockname)
}

/// The address of the peer.
pub fn peer_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    name(fd, libc::getpeername)
}

type NameCall = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32;

fn name(fd: BorrowedFd<'_>, call: NameCall) -> io::Result<SocketAddr> {
    // SAFETY: an all-zero sockaddr_storage is valid.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: pointer and length describe `storage`, which has room for any address.
    check(unsafe { call(fd.as_raw_fd(), (&raw mut storage).cast(), &raw mut length) })?;
    decode(&storage).ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
}

/// The error a socket has pending, which is cleared by asking.
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut code = 0i32;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: pointer and length describe `code`.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut code).cast(),
            &raw mut length,
        )
    })?;
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(code))
    }
}

/// Sends the end of our direction.
pub fn shutdown_write(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain system call without pointers.
    check(unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) })
}

/// How many bytes wait to be read.
pub fn available(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the request writes one int to the pointer, which is live for the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD as _, &raw mut count) })?;
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
    let flags = if peek { libc::MSG_PEEK } else { 0 } | libc::MSG_DONTWAIT;
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

/// Sends bytes; a peer that is gone is an error, never a signal.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the pointer and length describe `bytes`.
    let sent = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(sent as usize)
    }
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
    // SAFETY: an all-zero stat is valid, and the kernel fills it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is writable for the call.
    check(unsafe { libc::fstat(ns.as_raw_fd(), &raw mut stat) })?;
    Ok(stat.st_ino)
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
            let address = unsafe { decode_raw(entry.ifa_addr) };
            found.extend(address.map(|a| a.ip()));
        }
        at = entry.ifa_next;
    }
    // SAFETY: `list` came from getifaddrs and is not used afterwards.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// # Safety
/// `address` points to a socket address as long as its family requires.
unsafe fn decode_raw(address: *const libc::sockaddr) -> Option<SocketAddr> {
    // SAFETY: an all-zero sockaddr_storage is valid.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    // SAFETY: the caller vouches for `address`.
    let length = match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    // SAFETY: source holds `length` bytes by its family, the target is larger.
    unsafe {
        std::ptr::copy_nonoverlapping(
            address.cast::<u8>(),
            (&raw mut storage).cast::<u8>(),
            length,
        );
    }
    decode(&storage)
}

fn check(rc: i32) -> io::Result<()> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn encode(address: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: an all-zero sockaddr_storage is valid.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let length = match address {
        SocketAddr::V4(v4) => {
            // SAFETY: sockaddr_storage is large and aligned enough for every address.
            let out = unsafe { &mut *(&raw mut storage).cast::<libc::sockaddr_in>() };
            out.sin_family = libc::AF_INET as libc::sa_family_t;
            out.sin_port = v4.port().to_be();
            out.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above.
            let out = unsafe { &mut *(&raw mut storage).cast::<libc::sockaddr_in6>() };
            out.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            out.sin6_port = v6.port().to_be();
            out.sin6_flowinfo = v6.flowinfo();
            out.sin6_addr.s6_addr = v6.ip().octets();
            out.sin6_scope_id = v6.scope_id();
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length as libc::socklen_t)
}

fn decode(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that the storage holds this type.
            let v4 = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that the storage holds this type.
            let v6 = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
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
