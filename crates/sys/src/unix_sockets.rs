//! Unix sockets with a path: which of them listen, and connecting one on behalf of another process.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::retry_on_intr;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::mask::Mask;
use crate::netlink;

/// Enough for one system call.
const STACK: usize = 16 * 1024;

const BY_FAMILY: u16 = 20;
const DUMP: u16 = 0x301;
const SHOW_FILE: u32 = 2;
const LISTENS: u32 = 1 << 10;
/// The attribute that names the file of a socket.
const FILE: u16 = 1;
/// What of a message comes before its attributes.
const FIXED: usize = 16;

/// The file that a socket is bound to, as the kernel itself numbers devices and files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bound {
    /// `major << 20 | minor`.
    pub device: u32,
    /// The low half of the file's number.
    pub number: u32,
}

impl Bound {
    /// From the numbers that programs know.
    pub fn new(major: u32, minor: u32, number: u64) -> Bound {
        Bound {
            device: major << 20 | minor,
            number: number as u32,
        }
    }

    /// From what `stat` says.
    pub fn from_stat(device: u64, number: u64) -> Bound {
        Bound::new(libc::major(device), libc::minor(device), number)
    }
}

/// The files of all sockets that listen in the network namespace that a `SOCK_DIAG` socket belongs
/// to, whatever their names are by now.
pub fn listening(diag: BorrowedFd<'_>) -> io::Result<Vec<Bound>> {
    let words: [u32; 6] = [libc::AF_UNIX as u32, LISTENS, 0, SHOW_FILE, 0, 0];
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let request = netlink::Messages::default()
        .message(BY_FAMILY, DUMP, &body)
        .finish();
    netlink::send(diag, &request)?;
    let mut found = Vec::new();
    let mut buffer = vec![0; 32 * 1024];
    loop {
        let got = match netlink::receive(diag, &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        for (kind, body) in netlink::messages(&buffer[..got]) {
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(found),
                libc::NLMSG_ERROR => {
                    let code = body.first_chunk().map_or(0, |b| i32::from_ne_bytes(*b));
                    return Err(io::Error::from_raw_os_error(-code));
                }
                _ => found.extend(body.get(FIXED..).and_then(file_of)),
            }
        }
    }
}

/// The file among the attributes of a socket.
fn file_of(attributes: &[u8]) -> Option<Bound> {
    let (_, value) = netlink::attributes(attributes).find(|(kind, _)| *kind == FILE)?;
    Some(Bound {
        number: u32::from_ne_bytes(*value.first_chunk()?),
        device: u32::from_ne_bytes(*value.get(4..)?.first_chunk()?),
    })
}

/// A socket that keeps message boundaries and listens at a path.
pub fn listen_for_messages(path: &Path) -> io::Result<OwnedFd> {
    let socket = message_socket()?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The next connection to such a socket.
pub fn accept(listening: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(retry_on_intr(|| {
        net::accept_with(listening, SocketFlags::CLOEXEC)
    })?)
}

/// Listens at a socket that somebody else has bound, perhaps listened at too: who connects from now on finds
/// us there, where he asks the kernel.
pub fn take_over(listening: BorrowedFd<'_>) -> io::Result<()> {
    Ok(net::listen(listening, BACKLOG)?)
}

/// Has whoever waits for connections at such a socket stop: accepting is an invalid argument from now on.
pub fn shut(listening: BorrowedFd<'_>) {
    // One that is shut already is as it should be.
    let _ = net::shutdown(listening, net::Shutdown::Both);
}

/// A connection to such a socket.
pub fn connect_for_messages(path: &Path) -> io::Result<OwnedFd> {
    let socket = message_socket()?;
    retry_on_intr(|| net::connect(&socket, &SocketAddrUnix::new(path)?))?;
    Ok(socket)
}

fn message_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Connections that wait to be taken.
const BACKLOG: i32 = 128;

/// Connects a socket to an address that is given as the kernel takes it.
pub fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(address.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the pointer and length describe `address`; the kernel copies it before it looks.
    let rc = unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), length) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// What a process that connects and ends is given.
struct Errand {
    socket: libc::c_int,
    address: *const libc::c_void,
    length: libc::socklen_t,
    error: libc::c_int,
}

/// The same in a process that ends with it: who listens must not take the one that calls this for his
/// peer and trust it with what its caller may not. That one is a child of ours while it lives.
pub fn connect_apart(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let mut errand = Errand {
        socket: socket.as_raw_fd(),
        address: address.as_ptr().cast(),
        length: libc::socklen_t::try_from(address.len()).unwrap_or(libc::socklen_t::MAX),
        error: 0,
    };
    let mut stack = vec![MaybeUninit::<u128>::uninit(); STACK / size_of::<u128>()];
    // No signal of its end: those who wait for any child of ours are not told of this one.
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    let before = Mask::ALL.block();
    // SAFETY: CLONE_VFORK keeps this thread still until the child has exited, so the stack, the
    // address and `errand` outlive its use of them.
    let child = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        libc::clone(run_errand, top.cast(), flags, (&raw mut errand).cast())
    };
    let failed = io::Error::last_os_error();
    before.set();
    if child < 0 {
        return Err(failed);
    }
    // SAFETY: a null status is legal.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WALL) };
    match errand.error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

extern "C" fn run_errand(errand: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `connect_apart` passes its own errand and waits for us; everything here is a system
    // call on data that was laid out before.
    unsafe {
        let errand = &mut *errand.cast::<Errand>();
        if libc::connect(errand.socket, errand.address.cast(), errand.length) < 0 {
            errand.error = io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO);
        }
        libc::_exit(0)
    }
}

/// Whether this is a unix socket that sends datagrams, each to whom it likes.
pub fn sends_datagrams(socket: BorrowedFd<'_>) -> bool {
    sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(socket) == Ok(SocketType::DGRAM)
}

/// Whether calls on a descriptor wait.
pub fn waits(fd: BorrowedFd<'_>) -> bool {
    fcntl_getfl(fd).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    fn unbound() -> OwnedFd {
        // SAFETY: plain system call without pointers; the descriptor is nobody else's.
        unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)) }
    }

    #[test]
    fn listeners_are_found_by_file_whatever_they_are_called() {
        let diag = netlink::open(netlink::SOCK_DIAG).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (first, later) = (dir.path().join("first"), dir.path().join("la\nter"));
        let listener = UnixListener::bind(&first).unwrap();
        std::fs::rename(&first, &later).unwrap();
        let meta = std::fs::metadata(&later).unwrap();
        let bound = Bound::from_stat(meta.dev(), meta.ino());
        assert!(listening(diag.as_fd()).unwrap().contains(&bound));
        let socket = UnixStream::pair().unwrap().0;
        assert!(waits(socket.as_fd()));
        assert!(!sends_datagrams(socket.as_fd()));
        assert!(sends_datagrams(UnixDatagram::unbound().unwrap().as_fd()));
        let who = |socket: &UnixStream| crate::peer::of(socket).map(|peer| peer.pid);
        let address = |path: &std::path::Path| {
            let path = path.as_os_str().as_encoded_bytes();
            [&(libc::AF_UNIX as u16).to_ne_bytes(), path, &[0]].concat()
        };
        for (apart, own) in [(false, true), (true, false)] {
            let socket = unbound();
            match apart {
                true => connect_apart(socket.as_fd(), &address(&later)).unwrap(),
                false => connect(socket.as_fd(), &address(&later)).unwrap(),
            }
            let there = listener.accept().unwrap().0;
            assert_eq!(who(&there).is_ok_and(|pid| pid == std::process::id()), own);
        }
        let gone = connect_apart(unbound().as_fd(), &address(&first)).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENOENT));
        drop(listener);
        assert!(!listening(diag.as_fd()).unwrap().contains(&bound));
    }
}
