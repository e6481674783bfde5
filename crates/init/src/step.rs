//! The steps of making a world, and how each is taken. The rule of [`crate::bare`] holds here.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, open, symlinkat, unlink};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, chdir, set_dumpable_behavior};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use substrate_sys::mount::{self, Change, Expected};
use substrate_sys::seccomp::Filter;
use substrate_sys::{caps, landlock, netlink};

use crate::bare::{exit, loopback_up};
use crate::control::{self, Kind};

/// A place where a step leaves a descriptor for a later one.
pub type Slot = usize;

/// A parameter of a new filesystem.
#[derive(Debug, Clone)]
pub enum Parameter {
    /// On by being there.
    Flag,
    /// A text.
    Text(CString),
    /// The path of what a slot holds. The kernel takes at most 255 bytes of text and gives
    /// some of them a meaning; a path through `/proc/self/fd` has neither problem.
    Slot(Slot),
}

/// One step of making a world.
#[derive(Debug)]
pub enum Step {
    /// Waits until the parent has written the id maps.
    AwaitMaps,
    /// Writes a file that exists.
    Write(CString, Vec<u8>),
    /// Writes to a descriptor that was opened before the clone.
    WriteTo(OwnedFd, Vec<u8>),
    /// Names the machine.
    Hostname(CString),
    /// Brings up the loopback interface.
    LoopbackUp,
    /// Waits for the network that another process makes, and takes it for its own.
    JoinNetwork(OwnedFd),
    /// Opens a directory.
    Open(CString, Slot),
    /// Opens what a path names that has no symlink in it.
    OpenPlace(CString, Slot),
    /// Copies the mount at a path, with what is mounted below it.
    CloneTree(CString, Slot),
    /// Makes a filesystem.
    NewFilesystem {
        /// Its kind.
        kind: CString,
        /// Its parameters.
        parameters: Vec<(CString, Parameter)>,
        /// Attributes of the mount.
        attributes: u64,
        /// Where it is left.
        slot: Slot,
    },
    /// Fails when what a slot holds is read-only.
    CheckWritable(Slot),
    /// Changes a detached tree.
    ChangeTree(Slot, Change),
    /// Changes the mount at a path.
    ChangeAt(CString, Change),
    /// Hands a detached tree to the parent.
    HandOut(Slot),
    /// Puts a detached tree in place.
    Attach(Slot, CString),
    /// Mounts what is at a path on itself, with these attributes.
    Fix(CString, u64),
    /// Covers a path with a detached tree.
    Cover(Slot, CString, Expected),
    /// Makes what a slot holds the root; the path is any directory.
    Pivot(Slot, CString),
    /// Makes a directory that may be there already.
    MakeDir(CString, u32),
    /// Makes a file with these contents.
    MakeFile(CString, u32, Vec<u8>),
    /// Makes a symlink: what it says, and where it is.
    MakeLink(CString, CString),
    /// Removes a file.
    Remove(CString),
    /// Goes to a directory.
    ChangeDir(CString),
    /// Limits a resource of every process.
    Limit(u32, u64),
    /// Other processes of the world cannot look into this one, whose memory is a copy of its
    /// maker's.
    Unreadable,
    /// No privileges from here on.
    NoNewPrivs,
    /// Landlock: what is handled, and the rights of paths.
    Landlock(landlock::Handled, Vec<(CString, u64)>),
    /// Hands the parent a socket by which it learns of the sockets of this network.
    AskSockets,
    /// Gives up all capabilities.
    DropCaps,
    /// The system call filter; its listener, if it has one, is handed to the parent.
    Seccomp(Filter),
}

/// Whether a world can start without a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It cannot.
    Required,
    /// It can; the parent is told.
    Optional,
}

/// Takes a step; what it makes for the parent comes back.
pub(crate) fn take(
    step: &Step,
    slots: &mut [Option<OwnedFd>],
    control: BorrowedFd<'_>,
) -> io::Result<Option<OwnedFd>> {
    match step {
        Step::AwaitMaps => match control::receive(control)? {
            Some(received) if received.message.kind == Kind::Go => {}
            _ => exit(1),
        },
        Step::Write(path, value) => write_file(path, value)?,
        Step::WriteTo(fd, value) => write_all(fd.as_fd(), value)?,
        Step::Hostname(name) => {
            rustix::system::sethostname(name.to_bytes())?;
        }
        Step::LoopbackUp => loopback_up()?,
        Step::JoinNetwork(socket) => join_network(socket.as_fd())?,
        Step::Open(path, slot) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            put(slots, *slot, open(path, flags, Mode::empty())?)?;
        }
        Step::OpenPlace(path, slot) => {
            put(slots, *slot, mount::open_place(path)?)?;
        }
        Step::CloneTree(path, slot) => {
            put(slots, *slot, mount::clone_tree(path, true)?)?;
        }
        Step::NewFilesystem {
            kind,
            parameters,
            attributes,
            slot,
        } => {
            let new = filesystem(kind, parameters, *attributes, slots)?;
            put(slots, *slot, new)?;
        }
        Step::CheckWritable(slot) => mount::check_writable(held(slots, *slot)?)?,
        Step::ChangeTree(slot, change) => mount::change_tree(held(slots, *slot)?, *change)?,
        Step::ChangeAt(path, change) => mount::change_at(path, *change)?,
        Step::HandOut(slot) => return Ok(slots.get_mut(*slot).ok_or(Errno::BADF)?.take()),
        Step::Attach(slot, path) => {
            mount::attach(held(slots, *slot)?, path)?;
            *slots.get_mut(*slot).ok_or(Errno::BADF)? = None;
        }
        Step::Fix(path, attributes) => mount::fix(path, *attributes)?,
        Step::Cover(slot, path, expected) => {
            mount::cover(held(slots, *slot)?, path, *expected)?;
        }
        Step::Pivot(slot, place) => mount::pivot(held(slots, *slot)?, place)?,
        Step::MakeDir(path, mode) => make_dir(path, *mode)?,
        Step::MakeFile(path, mode, content) => make_file(path, *mode, content)?,
        Step::MakeLink(to, path) => symlinkat(to, CWD, path)?,
        Step::Remove(path) => unlink(path)?,
        Step::ChangeDir(path) => chdir(path)?,
        Step::Limit(resource, value) => limit(*resource, *value)?,
        Step::Unreadable => set_dumpable_behavior(DumpableBehavior::NotDumpable)?,
        Step::NoNewPrivs => caps::no_new_privs()?,
        Step::Landlock(handled, rules) => {
            let set = landlock::create(handled)?;
            for (path, access) in rules {
                landlock::allow(&set, path, access & handled.fs)?;
            }
            landlock::restrict_self(&set)?;
        }
        Step::AskSockets => return netlink::open(netlink::SOCK_DIAG).map(Some),
        Step::DropCaps => caps::drop_all()?,
        Step::Seccomp(filter) => return filter.install(),
    }
    Ok(None)
}

fn held(slots: &[Option<OwnedFd>], slot: Slot) -> io::Result<BorrowedFd<'_>> {
    let fd = slots.get(slot).and_then(Option::as_ref);
    Ok(fd.map(AsFd::as_fd).ok_or(Errno::BADF)?)
}

fn put(slots: &mut [Option<OwnedFd>], slot: Slot, fd: OwnedFd) -> io::Result<()> {
    *slots.get_mut(slot).ok_or(Errno::BADF)? = Some(fd);
    Ok(())
}

fn filesystem(
    kind: &CStr,
    parameters: &[(CString, Parameter)],
    attributes: u64,
    slots: &[Option<OwnedFd>],
) -> io::Result<OwnedFd> {
    let new = mount::NewFilesystem::open(kind)?;
    for (key, parameter) in parameters {
        match parameter {
            Parameter::Flag => new.set(key, None)?,
            Parameter::Text(value) => new.set(key, Some(value))?,
            Parameter::Slot(slot) => {
                let path = FdPath::new(held(slots, *slot)?.as_raw_fd());
                new.set(key, Some(path.as_c_str()))?;
            }
        }
    }
    new.mount(attributes)
}

/// By libc, which takes any number for a resource.
fn limit(resource: u32, value: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: the pointer describes `limit`.
    match unsafe { libc::setrlimit(resource as _, &raw const limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `/proc/self/fd/N` on the stack.
struct FdPath([u8; 32]);

impl FdPath {
    fn new(fd: RawFd) -> FdPath {
        let mut bytes = [0u8; 32];
        let prefix = b"/proc/self/fd/";
        let mut digits = [0u8; 10];
        let (mut rest, mut count) = (fd.unsigned_abs(), 0);
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            count += 1;
            if rest == 0 {
                break;
            }
        }
        let tail = digits.len() - count;
        for (place, byte) in bytes
            .iter_mut()
            .zip(prefix.iter().chain(digits.iter().skip(tail)))
        {
            *place = *byte;
        }
        FdPath(bytes)
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

/// Writes the whole value to a file that exists, in one call as the kernel's files ask.
fn write_file(path: &CStr, value: &[u8]) -> io::Result<()> {
    let fd = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    write_all(fd.as_fd(), value)
}

fn write_all(fd: BorrowedFd<'_>, value: &[u8]) -> io::Result<()> {
    match rustix::io::write(fd, value)? == value.len() {
        true => Ok(()),
        false => Err(Errno::IO.into()),
    }
}

fn make_dir(path: &CStr, mode: u32) -> io::Result<()> {
    match mkdirat(CWD, path, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn make_file(path: &CStr, mode: u32, content: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = open(path, flags, Mode::from_raw_mode(mode))?;
    match content.is_empty() {
        true => Ok(()),
        false => write_all(fd.as_fd(), content),
    }
}

fn join_network(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut received = control::receive(socket)?.ok_or(Errno::PIPE)?;
    let Some(network) = received.fds[0].take() else {
        return Err(io::Error::from_raw_os_error(received.message.b));
    };
    // SAFETY: nobody looks at the socket again, and what owns it here is never dropped.
    unsafe { libc::close(socket.as_raw_fd()) };
    Ok(move_into_link_name_space(
        network.as_fd(),
        Some(LinkNameSpaceType::Network),
    )?)
}
