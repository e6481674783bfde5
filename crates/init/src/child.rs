//! The first process of a world: from the clone to the end of its last command.
//!
//! The rule of this file: after the clone, the other threads of the process are gone and may
//! have left the allocator locked. So nothing here allocates, takes a lock, panics or returns;
//! everything a step needs was prepared before as C strings, numbers and descriptors. When a
//! step fails, its number and the errno go to the parent, which knows what they mean.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::control::{self, Kind, Message};
use crate::request::Mapped;
use crate::{own_starts, pty};
use substrate_sys::mask::Mask;
use substrate_sys::mount::{self, Change, Expected};
use substrate_sys::seccomp::Filter;
use substrate_sys::{caps, landlock, netlink};

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

/// Stages of starting a command inside a world, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Stage {
    /// The request did not arrive whole.
    Receive = 1,
    /// A terminal could not be made.
    Terminal = 2,
    /// No process could be made.
    Fork = 3,
    /// The terminal could not be taken over.
    TakeTerminal = 4,
    /// A descriptor could not be put in place.
    Descriptors = 5,
    /// The working directory could not be entered.
    Cwd = 6,
    /// The program could not be executed.
    Exec = 7,
}

impl Stage {
    pub(crate) fn from_number(n: i32) -> Stage {
        [
            Stage::Receive,
            Stage::Terminal,
            Stage::Fork,
            Stage::TakeTerminal,
            Stage::Descriptors,
            Stage::Cwd,
        ]
        .into_iter()
        .find(|stage| *stage as i32 == n)
        .unwrap_or(Stage::Exec)
    }
}

/// All that the first process needs, prepared before the clone.
pub(crate) struct Birth<'a> {
    pub steps: &'a [(Step, Need)],
    pub slots: &'a mut [Option<OwnedFd>],
    /// Its end of the control socket.
    pub control: RawFd,
    /// Where the guard of its filter hears of the starts that are its own.
    pub own_starts: Option<RawFd>,
    /// Something harmless for descriptors 0 to 2.
    pub null: RawFd,
    /// Descriptors to keep, in rising order.
    pub keep: &'a [RawFd],
    /// Memory for the stack of a starting command.
    pub stack: &'a mut [MaybeUninit<u8>],
    /// Where terminals come from.
    pub ptmx: &'a CStr,
    /// The world ends with its first command.
    pub one_shot: bool,
    /// The process is the first of a process namespace, so its end ends all others.
    pub owns_processes: bool,
    /// End when the thread that made the world ends.
    pub die_with_thread: bool,
}

/// Lives the life of a world's first process.
pub(crate) fn live(birth: Birth<'_>) -> ! {
    // SAFETY: the parent kept the control socket open across the clone.
    let control = unsafe { BorrowedFd::borrow_raw(birth.control) };
    // SAFETY: plain system calls; the numbers come from the parent.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        // Out of the owner's session: its terminal is none of the world's business, and a stop
        // of the owner's job is no stop of the world.
        libc::setsid();
        for fd in 0..3 {
            libc::dup2(birth.null, fd);
        }
        libc::prctl(libc::PR_SET_NAME, c"substrate-world".as_ptr(), 0, 0, 0);
    }
    close_all_but(birth.keep);
    substrate_sys::fdlimit::restore();
    // The mask of the owner must not decide about the files of a world; commands get it back.
    // SAFETY: plain system call without pointers.
    let mask = unsafe { libc::umask(0) };
    for (number, (step, need)) in birth.steps.iter().enumerate() {
        let mut message = Message::new(Kind::Missing);
        message.a = number as i32;
        match run(step, birth.slots, control) {
            Ok(None) => {}
            Ok(Some(fd)) => {
                message.kind = Kind::Export;
                if message.send(control, &[fd.as_raw_fd()]).is_err() {
                    exit(1);
                }
            }
            Err(error) => {
                message.b = error.raw_os_error().unwrap_or(libc::EIO);
                if *need == Need::Required {
                    message.kind = Kind::Failed;
                }
                if message.send(control, &[]).is_err() || *need == Need::Required {
                    exit(1);
                }
            }
        }
    }
    for slot in birth.slots.iter_mut() {
        *slot = None;
    }
    // SAFETY: plain system call without pointers.
    unsafe { libc::umask(mask) };
    if !birth.die_with_thread {
        // From here on the closed control socket is the sign that the owner is gone.
        // SAFETY: plain system call without pointers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0, 0) };
    }
    if Message::new(Kind::Ready).send(control, &[]).is_err() {
        exit(1);
    }
    serve(Keeper {
        control,
        stack: birth.stack,
        ptmx: birth.ptmx,
        one_shot: birth.one_shot,
        owns_processes: birth.owns_processes,
        own_starts: birth.own_starts,
        running: [const { None }; MAX_RUNNING],
    })
}

pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(code) }
}

pub(crate) fn check(rc: libc::c_int) -> io::Result<libc::c_int> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(rc)
    }
}

/// Descriptors of the parent that stay open would be doors: to its directories past every
/// mount, and to the control sockets of other worlds, which then would not notice its end.
pub(crate) fn close_all_but(keep: &[RawFd]) {
    let mut from = 3u32;
    for fd in keep.iter().map(|fd| *fd as u32).filter(|fd| *fd >= 3) {
        if fd > from {
            // SAFETY: plain system call without pointers.
            unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) };
        }
        from = fd + 1;
    }
    // SAFETY: plain system call without pointers.
    unsafe { libc::syscall(libc::SYS_close_range, from, u32::MAX, 0) };
}

fn run(
    step: &Step,
    slots: &mut [Option<OwnedFd>],
    control: BorrowedFd<'_>,
) -> io::Result<Option<OwnedFd>> {
    let missing = || io::Error::from_raw_os_error(libc::EBADF);
    match step {
        Step::AwaitMaps => match control::receive(control)? {
            Some(received) if received.message.kind == Kind::Go => {}
            _ => exit(1),
        },
        Step::Write(path, value) => write_file(path, value)?,
        Step::WriteTo(fd, value) => write_all(fd.as_fd(), value)?,
        Step::Hostname(name) => {
            let name = name.to_bytes();
            // SAFETY: the pointer and length describe `name`.
            check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })?;
        }
        Step::LoopbackUp => loopback_up()?,
        Step::JoinNetwork(socket) => join_network(socket.as_fd())?,
        Step::Open(path, slot) => {
            let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
            // SAFETY: `path` is a C string that outlives the call.
            let fd = check(unsafe { libc::open(path.as_ptr(), flags) })?;
            // SAFETY: the kernel just returned this descriptor and nobody else owns it.
            *slots.get_mut(*slot).ok_or_else(missing)? = Some(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Step::OpenPlace(path, slot) => {
            *slots.get_mut(*slot).ok_or_else(missing)? = Some(mount::open_place(path)?);
        }
        Step::CloneTree(path, slot) => {
            *slots.get_mut(*slot).ok_or_else(missing)? = Some(mount::clone_tree(path, true)?);
        }
        Step::NewFilesystem {
            kind,
            parameters,
            attributes,
            slot,
        } => {
            let new = mount::NewFilesystem::open(kind)?;
            for (key, parameter) in parameters {
                match parameter {
                    Parameter::Flag => new.set(key, None)?,
                    Parameter::Text(value) => new.set(key, Some(value))?,
                    Parameter::Slot(slot) => {
                        let fd = slots.get(*slot).and_then(Option::as_ref);
                        let path = FdPath::new(fd.ok_or_else(missing)?.as_raw_fd());
                        new.set(key, Some(path.as_c_str()))?;
                    }
                }
            }
            *slots.get_mut(*slot).ok_or_else(missing)? = Some(new.mount(*attributes)?);
        }
        Step::CheckWritable(slot) => mount::check_writable(held(slots, *slot)?)?,
        Step::ChangeTree(slot, change) => mount::change_tree(held(slots, *slot)?, *change)?,
        Step::ChangeAt(path, change) => mount::change_at(path, *change)?,
        Step::HandOut(slot) => return Ok(slots.get_mut(*slot).ok_or_else(missing)?.take()),
        Step::Attach(slot, path) => {
            mount::attach(held(slots, *slot)?, path)?;
            *slots.get_mut(*slot).ok_or_else(missing)? = None;
        }
        Step::Fix(path, attributes) => mount::fix(path, *attributes)?,
        Step::Cover(slot, path, expected) => {
            mount::cover(held(slots, *slot)?, path, *expected)?;
        }
        Step::Pivot(slot, place) => mount::pivot(held(slots, *slot)?, place)?,
        Step::MakeDir(path, mode) => make_dir(path, *mode)?,
        Step::MakeFile(path, mode, content) => make_file(path, *mode, content)?,
        Step::MakeLink(to, path) => {
            // SAFETY: both are C strings that outlive the call.
            check(unsafe { libc::symlink(to.as_ptr(), path.as_ptr()) })?;
        }
        Step::Remove(path) => {
            // SAFETY: `path` is a C string that outlives the call.
            check(unsafe { libc::unlink(path.as_ptr()) })?;
        }
        Step::ChangeDir(path) => {
            // SAFETY: `path` is a C string that outlives the call.
            check(unsafe { libc::chdir(path.as_ptr()) })?;
        }
        Step::Limit(resource, value) => {
            let limit = libc::rlimit {
                rlim_cur: *value,
                rlim_max: *value,
            };
            // SAFETY: the pointer describes `limit`.
            check(unsafe { libc::setrlimit(*resource as _, &raw const limit) })?;
        }
        Step::Unreadable => {
            // SAFETY: plain system call without pointers.
            check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })?;
        }
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
    slots
        .get(slot)
        .and_then(Option::as_ref)
        .map(AsFd::as_fd)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
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
pub(crate) fn write_file(path: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: `path` is a C string that outlives the call.
    let fd = check(unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) })?;
    // SAFETY: the kernel just returned this descriptor and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    write_all(fd.as_fd(), value)
}

fn write_all(fd: BorrowedFd<'_>, value: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`.
    let written = unsafe { libc::write(fd.as_raw_fd(), value.as_ptr().cast(), value.len()) };
    if written < 0 {
        return Err(io::Error::last_os_error());
    }
    if written as usize != value.len() {
        return Err(io::Error::from_raw_os_error(libc::EIO));
    }
    Ok(())
}

fn make_dir(path: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: `path` is a C string that outlives the call.
    match check(unsafe { libc::mkdir(path.as_ptr(), mode) }) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        other => other.map(|_| ()),
    }
}

fn make_file(path: &CStr, mode: u32, content: &[u8]) -> io::Result<()> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: `path` is a C string that outlives the call.
    let fd = check(unsafe { libc::open(path.as_ptr(), flags, mode) })?;
    // SAFETY: the kernel just returned this descriptor and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    if content.is_empty() {
        return Ok(());
    }
    write_all(fd.as_fd(), content)
}

fn join_network(socket: BorrowedFd<'_>) -> io::Result<()> {
    let Some(mut received) = control::receive(socket)? else {
        return Err(io::Error::from_raw_os_error(libc::EPIPE));
    };
    let Some(network) = received.fds[0].take() else {
        return Err(io::Error::from_raw_os_error(received.message.b));
    };
    // SAFETY: plain system calls without pointers. Nobody looks at the socket again, and what owns
    // it here is never dropped.
    unsafe {
        libc::close(socket.as_raw_fd());
        check(libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET)).map(|_| ())
    }
}

pub(crate) fn loopback_up() -> io::Result<()> {
    // SAFETY: plain system call without pointers.
    let fd =
        check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel just returned this descriptor and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which is what is passed.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) })?;
    Ok(())
}

/// More commands at once than a session will ever have.
const MAX_RUNNING: usize = 128;

struct Running {
    pid: i32,
    id: u32,
    events: OwnedFd,
}

struct Keeper<'a> {
    control: BorrowedFd<'a>,
    stack: &'a mut [MaybeUninit<u8>],
    ptmx: &'a CStr,
    one_shot: bool,
    owns_processes: bool,
    /// Where its guard hears of them: they were judged before they were asked for.
    own_starts: Option<RawFd>,
    running: [Option<Running>; MAX_RUNNING],
}

/// Starts what the owner asks for and buries what ends, until the owner is gone.
fn serve(mut keeper: Keeper<'_>) -> ! {
    let Ok(children) = child_signals() else {
        exit(1)
    };
    if !keeper.owns_processes {
        // SAFETY: plain system call without pointers.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    }
    let entry = |fd: RawFd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    loop {
        let mut wanted = [
            entry(keeper.control.as_raw_fd()),
            entry(children.as_raw_fd()),
        ];
        // SAFETY: the pointer and count describe `wanted`.
        if unsafe { libc::poll(wanted.as_mut_ptr(), 2, -1) } < 0 {
            continue;
        }
        if wanted[1].revents != 0 {
            keeper.bury(&children);
        }
        if wanted[0].revents != 0 {
            match control::receive(keeper.control) {
                Ok(Some(received)) => keeper.obey(received),
                _ => keeper.end(),
            }
        }
    }
}

/// SIGCHLD as a descriptor. Every signal is blocked here; commands start with none blocked.
fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the sets are initialised by the calls that take them.
    unsafe {
        Mask::ALL.set();
        let mut chld: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut chld);
        libc::sigaddset(&raw mut chld, libc::SIGCHLD);
        // An owner that ignores SIGCHLD would leave nothing to wait for.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let fd = check(libc::signalfd(
            -1,
            &raw const chld,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Whether nobody but us is left in our process namespace. Nobody but us could start somebody then.
fn alone() -> bool {
    // SAFETY: plain system call without pointers; signal 0 is never delivered.
    unsafe { libc::kill(-1, 0) < 0 && *libc::__errno_location() == libc::ESRCH }
}

impl Keeper<'_> {
    /// Takes the status of every child that ended, ours and orphans alike.
    fn bury(&mut self, children: &OwnedFd) {
        let mut info = [0u8; 128];
        // SAFETY: the pointer and length describe `info`.
        unsafe { libc::read(children.as_raw_fd(), info.as_mut_ptr().cast(), info.len()) };
        loop {
            let mut status = 0;
            // SAFETY: `status` is writable for the call.
            let pid =
                unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED) };
            if pid <= 0 {
                return;
            }
            let ours = |place: &&mut Option<Running>| {
                place.as_ref().is_some_and(|running| running.pid == pid)
            };
            let known = self.running.iter_mut().find(ours);
            if libc::WIFSTOPPED(status) {
                if let Some(Some(running)) = known {
                    let mut message = Message::new(Kind::Stopped);
                    message.id = running.id;
                    message.a = libc::WSTOPSIG(status);
                    let _ = message.send(running.events.as_fd(), &[]);
                }
                continue;
            }
            if let Some(running) = known.and_then(Option::take) {
                let mut message = Message::new(Kind::Ended);
                message.id = running.id;
                message.a = status;
                message.b = (self.owns_processes && alone()).into();
                let _ = message.send(running.events.as_fd(), &[]);
                if self.one_shot {
                    self.end();
                }
            }
        }
    }

    /// Ends the world. In its own process namespace the kernel ends every other process with
    /// this one; elsewhere they are ours to end, as orphans come to a subreaper.
    fn end(&mut self) -> ! {
        if !self.owns_processes {
            end_children();
        }
        exit(0)
    }

    fn obey(&mut self, mut received: control::Received) {
        let id = received.message.id;
        match received.message.kind {
            Kind::Signal => {
                let running = self.running.iter().flatten().find(|r| r.id == id);
                if let Some(running) = running {
                    // The command leads a session and a process group of its own.
                    // SAFETY: plain system call without pointers.
                    unsafe { libc::kill(-running.pid, received.message.a) };
                }
            }
            Kind::Start => {
                let Some(events) = received.fds.first_mut().and_then(Option::take) else {
                    return;
                };
                let mut failed = Message::new(Kind::NotStarted);
                failed.id = id;
                match self.start(id, &mut received, &events) {
                    Ok(pid) => {
                        let running = Running { pid, id, events };
                        if let Some(free) = self.running.iter_mut().find(|r| r.is_none()) {
                            *free = Some(running);
                        }
                        return;
                    }
                    Err((stage, error)) => {
                        failed.a = stage as i32;
                        failed.b = error.raw_os_error().unwrap_or(libc::EIO);
                    }
                }
                let _ = failed.send(events.as_fd(), &[]);
                if self.one_shot {
                    self.end();
                }
            }
            _ => {}
        }
    }

    fn start(
        &mut self,
        id: u32,
        received: &mut control::Received,
        events: &OwnedFd,
    ) -> Result<i32, (Stage, io::Error)> {
        let at = |stage: Stage| move |error: io::Error| (stage, error);
        if self.running.iter().all(Option::is_some) {
            return Err((Stage::Fork, io::Error::from_raw_os_error(libc::EAGAIN)));
        }
        let file = received.fds.get_mut(1).and_then(Option::take);
        let file = file.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF));
        let file = file.map_err(at(Stage::Receive))?;
        // SAFETY: only the owner of the world can send on this socket, and it sends blocks.
        let block = unsafe { Mapped::new(&file) }.map_err(at(Stage::Receive))?;
        let mut terminal = None;
        if block.terminal_for() != 0 {
            let (master, slave) =
                pty::open(self.ptmx, block.size()).map_err(at(Stage::Terminal))?;
            let mut message = Message::new(Kind::Terminal);
            message.id = id;
            message
                .send(events.as_fd(), &[master.as_raw_fd()])
                .map_err(at(Stage::Terminal))?;
            terminal = Some(slave);
        }
        let mut becoming = Becoming {
            id,
            block: &block,
            fds: &received.fds,
            terminal: terminal.as_ref().map(AsRawFd::as_raw_fd),
            events: events.as_fd(),
            own_starts: self.own_starts,
            failed: None,
        };
        // The stack grows down from its end, which must be aligned.
        let top = (self.stack.as_mut_ptr() as usize + self.stack.len()) & !15;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the child runs `become_command` on memory of its own while this process
        // waits; it ends by exec or exit, and `becoming` stays alive and unused until then.
        let pid = unsafe {
            libc::clone(
                become_command,
                top as *mut libc::c_void,
                flags,
                (&raw mut becoming).cast(),
            )
        };
        if pid < 0 {
            return Err((Stage::Fork, io::Error::last_os_error()));
        }
        match becoming.failed.take() {
            None => Ok(pid),
            Some((stage, errno)) => {
                // SAFETY: the child has ended; a null status is legal.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
                Err((stage, io::Error::from_raw_os_error(errno)))
            }
        }
    }
}

/// What a starting command shares with its parent, which waits for it.
struct Becoming<'a> {
    id: u32,
    block: &'a Mapped,
    fds: &'a [Option<OwnedFd>; control::MAX_FDS],
    terminal: Option<RawFd>,
    events: BorrowedFd<'a>,
    own_starts: Option<RawFd>,
    failed: Option<(Stage, i32)>,
}

extern "C" fn become_command(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start` passes a `Becoming` that it does not touch until this process is gone
    // or has become another program.
    let becoming = unsafe { &mut *argument.cast::<Becoming<'_>>() };
    let (stage, error) = become_or_fail(becoming);
    becoming.failed = Some((stage, error.raw_os_error().unwrap_or(libc::EIO)));
    exit(127)
}

fn become_or_fail(this: &Becoming<'_>) -> (Stage, io::Error) {
    // SAFETY: plain system calls; the block's pointers are to C strings and null-terminated
    // arrays of them that stay mapped.
    unsafe {
        // A session of its own: no controlling terminal of the host, nothing to read or type
        // into there, and one process group to signal.
        libc::setsid();
        if let Some(slave) = this.terminal
            && libc::ioctl(slave, libc::TIOCSCTTY, 0) < 0
        {
            return (Stage::TakeTerminal, io::Error::last_os_error());
        }
        libc::syscall(
            libc::SYS_close_range,
            3u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
        if let Err(error) = place_descriptors(this) {
            return (Stage::Descriptors, error);
        }
        if let Some(mask) = this.block.umask() {
            libc::umask(mask as libc::mode_t);
        }
        if libc::chdir(this.block.cwd().as_ptr()) < 0 {
            return (Stage::Cwd, io::Error::last_os_error());
        }
        // The runtime of the owner ignores SIGPIPE; a command must not inherit that.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if this.terminal.is_some() {
            // On a terminal of its own the keys mean what they always mean, whatever the
            // owner, perhaps a shell or started in the background, ignores.
            for signal in [
                libc::SIGHUP,
                libc::SIGINT,
                libc::SIGQUIT,
                libc::SIGTERM,
                libc::SIGTSTP,
                libc::SIGTTIN,
                libc::SIGTTOU,
            ] {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
        Mask::NONE.set();
        let mut message = Message::new(Kind::Starting);
        message.id = this.id;
        let _ = message.send(this.events, &[]);
        let (program, argv) = match is_bare_script(this.block.program()) {
            true => (c"/bin/sh", this.block.argv_for_sh()),
            false => (this.block.program(), this.block.argv()),
        };
        // The last thing before the start itself, which waits for the guard's answer.
        if let Some(guard) = this.own_starts
            && let Err(error) = own_starts::announce(BorrowedFd::borrow_raw(guard))
        {
            return (Stage::Exec, error);
        }
        libc::execve(program.as_ptr(), argv, this.block.env());
        (Stage::Exec, io::Error::last_os_error())
    }
}

/// Whether a file may be run and is text without an interpreter line, which the kernel does not
/// run and shells run by themselves.
fn is_bare_script(path: &CStr) -> bool {
    let mut head = [0u8; 128];
    // SAFETY: `path` is a C string, and the buffer is as long as is said.
    let got = unsafe {
        if libc::access(path.as_ptr(), libc::X_OK) != 0 {
            return false;
        }
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        let fd = libc::open(path.as_ptr(), flags);
        if fd < 0 {
            return false;
        }
        let got = libc::read(fd, head.as_mut_ptr().cast(), head.len());
        libc::close(fd);
        got
    };
    let head = head.get(..got.max(0) as usize).unwrap_or(&[]);
    got >= 0 && !head.starts_with(b"#!") && !head.contains(&0)
}

/// Above every number that a command asks for, below every sensible limit.
const PARKED: RawFd = 200;

fn place_descriptors(this: &Becoming<'_>) -> io::Result<()> {
    let mut parked = [-1; control::MAX_FDS];
    let sources = this.fds.iter().skip(2).flatten();
    // SAFETY: plain system calls without pointers.
    unsafe {
        for (place, source) in parked.iter_mut().zip(sources) {
            *place = check(libc::fcntl(
                source.as_raw_fd(),
                libc::F_DUPFD_CLOEXEC,
                PARKED,
            ))?;
        }
        for (source, number) in parked.iter().zip(this.block.fd_numbers()) {
            check(libc::dup2(*source, number))?;
        }
        for (number, mode) in this.block.null_for() {
            let flags = mode | libc::O_CLOEXEC | libc::O_NOCTTY;
            // Never one of the standard numbers itself: those are all open.
            let null = check(libc::open(c"/dev/null".as_ptr(), flags))?;
            check(libc::dup2(null, number))?;
        }
        if let Some(slave) = this.terminal {
            for number in (0..3).filter(|n| this.block.terminal_for() & 1 << n != 0) {
                check(libc::dup2(slave, number))?;
            }
            if let Some(number) = this.block.terminal_at() {
                check(libc::dup2(slave, number))?;
            }
        }
    }
    Ok(())
}

/// Kills and buries children until there are none; orphans arrive while their parents die.
fn end_children() {
    loop {
        let mut list = [0u8; 4096];
        let mut got = 0;
        // SAFETY: the path is a C string, and the buffer is as long as is said.
        unsafe {
            let fd = libc::open(
                c"/proc/thread-self/children".as_ptr(),
                libc::O_RDONLY | libc::O_CLOEXEC,
            );
            if fd >= 0 {
                got = libc::read(fd, list.as_mut_ptr().cast(), list.len() - 1);
                libc::close(fd);
            }
        }
        let mut pid = 0i32;
        for byte in list.get(..got.max(0) as usize).unwrap_or(&[]) {
            if byte.is_ascii_digit() {
                pid = pid.wrapping_mul(10).wrapping_add(i32::from(byte - b'0'));
                continue;
            }
            // Only a number that the list ends with a space is whole.
            if pid > 1 {
                // SAFETY: a child that was not waited for yet, so the number is still its.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            pid = 0;
        }
        // SAFETY: a null status is legal.
        if unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } < 0
            && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD)
        {
            return;
        }
    }
}
