//! Connecting sockets for the processes of a world. A network namespace does not hold unix sockets that
//! have a path: whoever finds the file can connect to whoever listens. So the guard finds it, looks
//! whether the world made it, and connects. What it read is what it uses: neither the address, nor the
//! file, nor the descriptor can be another one by then.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use substrate_sys::errno::{
    EACCES, EAGAIN, ECONNREFUSED, EFAULT, EINTR, EINVAL, EIO, EISCONN, EPERM,
};
use substrate_sys::memory::{self, ReadError};
use substrate_sys::notify::Call;
use substrate_sys::openat2::{self, Links};
use substrate_sys::unix_sockets::{self, Bound};
use substrate_sys::{at, kernel_file, pidfd};

use super::{Shared, say};
use crate::mountinfo;
use substrate_starts::look::{self, View};

/// How often a socket is looked for before it is nobody's.
const LOOKS: usize = 8;
/// Longest address that the kernel takes.
const LONGEST: u64 = 128;
/// Most connections that wait for the other side at once.
const MOST_WAITING: usize = 64;

const AF_UNIX: u16 = 1;
const AF_NETLINK: u16 = 16;

/// Which sockets with a path a world may connect to.
#[derive(Debug)]
pub struct Sockets {
    /// Asks the kernel for those that listen in the world's network.
    diag: Mutex<OwnedFd>,
    own_network: bool,
    /// What listened there before the world began: where its network is the host's.
    before: Vec<Bound>,
    /// Paths that the policy lets in, with what is below them.
    admitted: Vec<PathBuf>,
}

impl Sockets {
    /// Takes down what listens already, unless the network is the world's own.
    pub fn new(diag: OwnedFd, own_network: bool, admitted: Vec<PathBuf>) -> io::Result<Sockets> {
        let before = match own_network {
            true => Vec::new(),
            false => unix_sockets::listening(diag.as_fd())?,
        };
        Ok(Sockets {
            diag: Mutex::new(diag),
            own_network,
            before,
            admitted,
        })
    }

    fn are_the_worlds(&self, file: Bound) -> bool {
        if self.before.contains(&file) {
            return false;
        }
        // One question at a time: answers have no addressee but the socket.
        let diag = self.diag.lock().unwrap_or_else(PoisonError::into_inner);
        // Others come and go while the kernel lists them, and it may then leave one out.
        (0..LOOKS).any(|_| {
            unix_sockets::listening(diag.as_fd()).is_ok_and(|listening| listening.contains(&file))
        })
    }
}

/// Connects for a caller; the error is the caller's.
pub(super) fn connect(shared: &Arc<Shared>, call: &Call) -> Result<(), i32> {
    let [number, at, length, ..] = call.args;
    let address = address(call.thread, at, length)?;
    // Older kernels know whole processes only.
    let process = pidfd::open_thread(call.thread)
        .or_else(|_| pidfd::open(say::leader(call.thread).unwrap_or(call.thread)));
    let socket = process
        .and_then(|process| pidfd::descriptor(process.as_fd(), number as i32))
        .map_err(errno)?;
    // The number of the thread still meant the caller when all that was read.
    if !shared.listener.is_waiting(call) {
        return Err(EINTR);
    }
    match Family::of(&address) {
        Family::Path(path) => {
            let (file, whose) = find(shared, call.thread, path)?;
            let connect = match whose {
                Whose::Worlds => unix_sockets::connect,
                Whose::Hosts => unix_sockets::connect_apart,
            };
            carry_out(shared, socket.as_fd(), &through(&file), connect)
        }
        // A caller without privileges may talk to the kernel, and the guard has more than he.
        Family::Netlink if address.get(4..12) != Some(&[0; 8]) => Err(EPERM),
        // Landlock keeps a process from those outside its world, and the guard is no such process.
        Family::Abstract if !shared.sockets.as_ref().is_some_and(|s| s.own_network) => Err(EPERM),
        Family::Netlink | Family::Abstract | Family::Other => {
            carry_out(shared, socket.as_fd(), &address, unix_sockets::connect)
        }
    }
}

fn errno(error: io::Error) -> i32 {
    error.raw_os_error().unwrap_or(EIO)
}

fn address(thread: i32, at: u64, length: u64) -> Result<Vec<u8>, i32> {
    // The kernel takes it for a signed half.
    let length = u64::from(length as u32);
    if length > LONGEST {
        return Err(EINVAL);
    }
    memory::bytes(thread, at, length as usize).map_err(|error| match error {
        ReadError::Refused(_) => EACCES,
        _ => EFAULT,
    })
}

/// What an address is about.
enum Family<'a> {
    /// A unix socket with this path.
    Path(&'a [u8]),
    /// A unix socket with a name that is no path.
    Abstract,
    Netlink,
    Other,
}

impl Family<'_> {
    fn of(address: &[u8]) -> Family<'_> {
        let Some((family, rest)) = address.split_first_chunk() else {
            return Family::Other;
        };
        match u16::from_ne_bytes(*family) {
            AF_UNIX => match rest.first() {
                None => Family::Other,
                Some(0) => Family::Abstract,
                Some(_) => Family::Path(rest.split(|byte| *byte == 0).next().unwrap_or(rest)),
            },
            AF_NETLINK => Family::Netlink,
            _ => Family::Other,
        }
    }
}

/// Who listens at a file.
enum Whose {
    Worlds,
    /// Somebody of the host's, whom the policy lets in.
    Hosts,
}

/// The file that a path means to a thread, if it may be connected to.
fn find(shared: &Shared, thread: i32, path: &[u8]) -> Result<(OwnedFd, Whose), i32> {
    let sockets = shared.sockets.as_ref().ok_or(EACCES)?;
    let view = View::of(thread, &shared.root, shared.terms.roots_change).map_err(errno)?;
    let cwd = std::fs::read_link(format!("/proc/{thread}/cwd")).map_err(errno)?;
    let path = cwd.join(OsStr::from_bytes(path));
    let file = openat2::in_root(view.root(), path.as_os_str(), Links::Follow).map_err(errno)?;
    let stat = at::stat(&file, "").map_err(errno)?;
    if stat.mode & 0o170_000 != 0o140_000 {
        return Err(ECONNREFUSED);
    }
    let is_admitted = |path: &Path| sockets.admitted.iter().any(|known| path.starts_with(known));
    let admitted = look::path_of(&file).is_ok_and(|path| is_admitted(&path));
    let made = || sockets.are_the_worlds(Bound::from_stat(stat.dev, stat.ino));
    // Some file systems show other devices than the kernel knows them by.
    let made_below = || {
        let device = device(thread, &file);
        let bound = device.map(|(major, minor)| Bound::new(major, minor, stat.ino));
        bound.is_some_and(|bound| sockets.are_the_worlds(bound))
    };
    match admitted {
        true => Ok((file, Whose::Hosts)),
        false if made() || made_below() => Ok((file, Whose::Worlds)),
        false => Err(EACCES),
    }
}

/// The device of the mount that a file was found on.
fn device(thread: i32, file: &OwnedFd) -> Option<(u32, u32)> {
    let id = at::mount_id(file)?;
    let table = kernel_file::read(format!("/proc/{thread}/mountinfo")).ok()?;
    let mounts = mountinfo::parse(&table);
    let mount = mounts.iter().find(|mount| u64::from(mount.id) == id)?;
    let (major, minor) = mount.device.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The address of a file that is open.
fn through(file: &OwnedFd) -> Vec<u8> {
    let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    [&AF_UNIX.to_ne_bytes(), path.as_bytes()].concat()
}

/// Connects. Who waits for the other side keeps no other call of the world waiting.
fn carry_out(
    shared: &Arc<Shared>,
    socket: BorrowedFd<'_>,
    address: &[u8],
    connect: fn(BorrowedFd<'_>, &[u8]) -> io::Result<()>,
) -> Result<(), i32> {
    let _waiting = match unix_sockets::waits(socket) {
        true => Some(Waiting::begin(shared)?),
        false => None,
    };
    let mut again = false;
    loop {
        match connect(socket, address).map_err(errno) {
            // It goes on by itself; asking again waits for its end.
            Err(EINTR) => again = true,
            Err(EISCONN) if again => return Ok(()),
            other => return other,
        }
    }
}

/// A worker that may have to wait for somebody else.
struct Waiting<'a>(&'a Shared);

impl<'a> Waiting<'a> {
    fn begin(shared: &'a Arc<Shared>) -> Result<Self, i32> {
        let waiting = Shared::add(&shared.connecting);
        let own = Waiting(shared);
        if waiting > MOST_WAITING {
            return Err(EAGAIN);
        }
        if shared.idle.load(Ordering::Acquire) == 0 {
            // One worker less is slower, not weaker.
            let _ = (shared.another)(shared);
        }
        Ok(own)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        Shared::take(&self.0.connecting);
    }
}
