//! The first process of a world that is ready: starts what its owner asks for, tells what becomes of it,
//! and ends with the owner. The rule of [`crate::bare`] holds here.

use std::ffi::CStr;
use std::io;
use std::mem::{MaybeUninit, forget};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, open};
use rustix::io::{Errno, fcntl_dupfd_cloexec, read};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, chdir, getpid, ioctl_tiocsctty, kill_process,
    set_child_subreaper, setsid, umask, wait, waitpid,
};
use substrate_sys::mask::Mask;
use substrate_sys::terminal::{self, Size};

use crate::bare::{close_on_exec, exit, number};
use crate::control::{self, Kind, Message, Stage};
use crate::own_starts;
use crate::request::Request;

/// Where the descriptor of the starter stands in a message, before those of the command; not there where
/// none is needed.
const STARTER: usize = 2;

/// More commands at once than a session will ever have.
pub(crate) const MAX_RUNNING: usize = 128;

pub(crate) struct Running {
    pid: i32,
    id: u32,
    events: OwnedFd,
}

/// A world's first process at work.
pub(crate) struct Keeper<'a> {
    pub control: BorrowedFd<'a>,
    /// Memory for the stack of a starting command.
    pub stack: &'a mut [MaybeUninit<u8>],
    /// Where terminals come from.
    pub ptmx: &'a CStr,
    /// The world ends with its first command.
    pub one_shot: bool,
    /// Its end ends all others.
    pub owns_processes: bool,
    /// Where its guard hears of them: they were judged before they were asked for, or are judged by and by.
    pub own_starts: Option<RawFd>,
    pub running: [Option<Running>; MAX_RUNNING],
}

/// SIGCHLD as a descriptor. Every signal is blocked here; commands start with none blocked.
fn child_signals() -> io::Result<OwnedFd> {
    Mask::ALL.set();
    // SAFETY: the set is initialised by the call that takes it; the descriptor is new and nobody else's.
    unsafe {
        let mut chld: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut chld);
        libc::sigaddset(&raw mut chld, libc::SIGCHLD);
        // An owner that ignores SIGCHLD would leave nothing to wait for.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        match libc::signalfd(-1, &raw const chld, flags) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// The first number above those that the descriptors of a command get.
fn above(request: &Request) -> RawFd {
    let highest = request.fd_numbers().max().unwrap_or(0);
    highest.max(libc::STDERR_FILENO) + 1
}

/// A copy of a descriptor out of the way of those numbers: far above them, or just above where a small limit
/// leaves no more room.
fn park(fd: BorrowedFd<'_>, above: RawFd) -> rustix::io::Result<OwnedFd> {
    match fcntl_dupfd_cloexec(fd, PARKED.max(above)) {
        Err(Errno::INVAL) => fcntl_dupfd_cloexec(fd, above),
        other => other,
    }
}

/// Whether nobody but us is left in our process namespace. Nobody but us could start somebody then.
fn alone() -> bool {
    // SAFETY: plain system call without pointers; signal 0 is never delivered.
    let nobody = unsafe { libc::kill(-1, 0) } < 0;
    nobody && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

impl Keeper<'_> {
    /// Starts what the owner asks for and buries what ends, until the owner is gone.
    pub(crate) fn serve(mut self) -> ! {
        let Ok(children) = child_signals() else {
            exit(1)
        };
        if !self.owns_processes {
            let _ = set_child_subreaper(Some(getpid()));
        }
        loop {
            let mut wanted = [
                PollFd::from_borrowed_fd(self.control, PollFlags::IN),
                PollFd::new(&children, PollFlags::IN),
            ];
            if poll(&mut wanted, None).is_err() {
                continue;
            }
            let [asked, ended] = wanted.map(|entry| !entry.revents().is_empty());
            if ended {
                self.bury(&children);
            }
            if asked {
                match control::receive(self.control) {
                    Ok(Some(received)) => self.obey(received),
                    _ => self.end(),
                }
            }
        }
    }

    /// Takes the status of every child that ended, ours and orphans alike.
    fn bury(&mut self, children: &OwnedFd) {
        let _ = read(children, &mut [0u8; 128]);
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            self.tell(pid.as_raw_nonzero().get(), status);
        }
    }

    /// Tells the owner what became of a command of his.
    fn tell(&mut self, pid: i32, status: WaitStatus) {
        let ours =
            |place: &&mut Option<Running>| place.as_ref().is_some_and(|running| running.pid == pid);
        let Some(place) = self.running.iter_mut().find(ours) else {
            return;
        };
        if let Some(signal) = status.stopping_signal() {
            if let Some(running) = place {
                let mut message = Message::new(Kind::Stopped);
                message.id = running.id;
                message.a = signal;
                let _ = message.send(running.events.as_fd(), &[]);
            }
            return;
        }
        if let Some(running) = place.take() {
            let mut message = Message::new(Kind::Ended);
            message.id = running.id;
            message.a = status.as_raw();
            message.b = (self.owns_processes && alone()).into();
            let _ = message.send(running.events.as_fd(), &[]);
            if self.one_shot {
                self.end();
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

    fn obey(&mut self, received: control::Received) {
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
            Kind::Start => self.start(received),
            _ => {}
        }
    }

    /// Starts a command, or tells why that cannot be.
    fn start(&mut self, mut received: control::Received) {
        let id = received.message.id;
        let Some(events) = received.fds[0].take() else {
            return;
        };
        match self.try_start(id, &mut received, &events) {
            Ok(pid) => {
                if let Some(free) = self.running.iter_mut().find(|r| r.is_none()) {
                    *free = Some(Running { pid, id, events });
                }
            }
            Err((stage, error)) => {
                let mut failed = Message::new(Kind::NotStarted);
                failed.id = id;
                failed.a = stage as i32;
                failed.b = number(&error);
                let _ = failed.send(events.as_fd(), &[]);
                if self.one_shot {
                    self.end();
                }
            }
        }
    }

    fn try_start(
        &mut self,
        id: u32,
        received: &mut control::Received,
        events: &OwnedFd,
    ) -> Result<i32, (Stage, io::Error)> {
        let at = |stage: Stage| move |error: io::Error| (stage, error);
        if self.running.iter().all(Option::is_some) {
            return Err((Stage::Fork, Errno::AGAIN.into()));
        }
        let file = received.fds[1].take().ok_or(Errno::BADF.into());
        let mut request = file
            .and_then(|file| Request::map(&file))
            .map_err(at(Stage::Receive))?;
        if request.is_judged() {
            let starter = received.fds[STARTER].take();
            let starter = starter.ok_or((Stage::Receive, Errno::BADF.into()))?;
            let starter = park(starter.as_fd(), above(&request))
                .map_err(|error| (Stage::Descriptors, error.into()))?;
            request.use_starter(starter);
        } else if is_bare_script(request.program()) {
            request.use_sh();
        }
        let terminal = self
            .terminal(id, &request, events)
            .map_err(at(Stage::Terminal))?;
        let becoming = Becoming {
            id,
            request: &request,
            fds: &received.fds,
            terminal: terminal.as_ref().map(AsFd::as_fd),
            events: events.as_fd(),
            own_starts: self.own_starts,
            failed: None,
        };
        self.fork(becoming)
    }

    /// The terminal that a command asks for; its master goes to the owner.
    fn terminal(
        &self,
        id: u32,
        request: &Request,
        events: &OwnedFd,
    ) -> io::Result<Option<OwnedFd>> {
        if request.terminal_for() == 0 {
            return Ok(None);
        }
        let (rows, columns) = request.size();
        let pty = terminal::open_pty_at(self.ptmx, Size { rows, columns })?;
        let mut message = Message::new(Kind::Terminal);
        message.id = id;
        message.send(events.as_fd(), &[pty.master.as_fd()])?;
        Ok(Some(pty.slave))
    }

    fn fork(&mut self, mut becoming: Becoming<'_>) -> Result<i32, (Stage, io::Error)> {
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
                let _ = waitpid(Pid::from_raw(pid), WaitOptions::empty());
                Err((stage, io::Error::from_raw_os_error(errno)))
            }
        }
    }
}

/// What a starting command shares with its parent, which waits for it.
struct Becoming<'a> {
    id: u32,
    request: &'a Request,
    fds: &'a [Option<OwnedFd>; control::MAX_FDS],
    terminal: Option<BorrowedFd<'a>>,
    events: BorrowedFd<'a>,
    own_starts: Option<RawFd>,
    failed: Option<(Stage, i32)>,
}

extern "C" fn become_command(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `fork` passes a `Becoming` that it does not touch until this process is gone
    // or has become another program.
    let becoming = unsafe { &mut *argument.cast::<Becoming<'_>>() };
    let (stage, error) = becoming.become_or_fail();
    becoming.failed = Some((stage, number(&error)));
    exit(127)
}

impl Becoming<'_> {
    fn become_or_fail(&self) -> (Stage, io::Error) {
        match self.prepare() {
            Ok(()) => (Stage::Exec, self.request.exec()),
            Err(failed) => failed,
        }
    }

    fn prepare(&self) -> Result<(), (Stage, io::Error)> {
        let at = |stage: Stage| move |error: io::Error| (stage, error);
        // A session of its own: no controlling terminal of the host, nothing to read or type
        // into there, and one process group to signal.
        let _ = setsid();
        if let Some(slave) = self.terminal {
            ioctl_tiocsctty(slave).map_err(|error| (Stage::TakeTerminal, error.into()))?;
        }
        close_on_exec();
        self.place_descriptors().map_err(at(Stage::Descriptors))?;
        if let Some(mask) = self.request.umask() {
            umask(Mode::from_raw_mode(mask));
        }
        chdir(self.request.cwd()).map_err(|error| (Stage::Cwd, error.into()))?;
        self.default_signals();
        let mut message = Message::new(Kind::Starting);
        message.id = self.id;
        let _ = message.send(self.events, &[]);
        // The last thing before the start itself, which waits for the guard's answer.
        match self.own_starts {
            None => Ok(()),
            Some(guard) => {
                // SAFETY: the owner of the world kept it open for the life of this process.
                let guard = unsafe { BorrowedFd::borrow_raw(guard) };
                own_starts::announce(guard, self.request.tag()).map_err(at(Stage::Exec))
            }
        }
    }

    /// Signals as a program expects them.
    fn default_signals(&self) {
        const KEYS: [libc::c_int; 7] = [
            libc::SIGHUP,
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGTERM,
            libc::SIGTSTP,
            libc::SIGTTIN,
            libc::SIGTTOU,
        ];
        // On a terminal of its own the keys mean what they always mean, whatever the
        // owner, perhaps a shell or started in the background, ignores.
        let keys = self.terminal.map_or(&KEYS[..0], |_| &KEYS[..]);
        // The runtime of the owner ignores SIGPIPE; a command must not inherit that.
        for signal in keys.iter().chain(&[libc::SIGPIPE]) {
            // SAFETY: setting a disposition to its default is always sound.
            unsafe { libc::signal(*signal, libc::SIG_DFL) };
        }
        Mask::NONE.set();
    }

    fn place_descriptors(&self) -> io::Result<()> {
        let mut parked = [const { None }; control::MAX_FDS];
        let sources = self.fds.iter().skip(STARTER).flatten();
        for (place, source) in parked.iter_mut().zip(sources) {
            *place = Some(park(source.as_fd(), above(self.request))?);
        }
        for (source, number) in parked.iter().flatten().zip(self.request.fd_numbers()) {
            put(source.as_fd(), number)?;
        }
        // Here and below: the exec closes it, without a call for each.
        forget(parked);
        for (number, mode) in self.request.null_for() {
            let flags = OFlags::from_bits_retain(mode.cast_unsigned());
            let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
            // Never one of the standard numbers itself: those are all open.
            let null = open(c"/dev/null", flags, Mode::empty())?;
            put(null.as_fd(), number)?;
            forget(null);
        }
        if let Some(slave) = self.terminal {
            for number in (0..3).filter(|n| self.request.terminal_for() & 1 << n != 0) {
                put(slave, number)?;
            }
            if let Some(number) = self.request.terminal_at() {
                put(slave, number)?;
            }
        }
        Ok(())
    }
}

/// Above every number that a command asks for, below every sensible limit.
const PARKED: RawFd = 200;

/// By libc: rustix puts a descriptor only where something owns the number.
fn put(source: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: plain system call without pointers; this process has nothing at these numbers that it
    // still needs.
    match unsafe { libc::dup2(source.as_raw_fd(), number) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Whether a file may be run and is text without an interpreter line, which the kernel does not
/// run and shells run by themselves.
fn is_bare_script(path: &CStr) -> bool {
    let mut head = [0u8; 128];
    if accessat(CWD, path, Access::EXEC_OK, AtFlags::empty()).is_err() {
        return false;
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let got = open(path, flags, Mode::empty()).and_then(|file| read(&file, &mut head));
    let head = got.ok().and_then(|got| head.get(..got));
    head.is_some_and(|head| !head.starts_with(b"#!") && !head.contains(&0))
}

/// Kills and buries children until there are none; orphans arrive while their parents die.
fn end_children() {
    loop {
        let mut list = [0u8; 4096];
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = open(c"/proc/thread-self/children", flags, Mode::empty());
        let got = file.and_then(|file| read(&file, &mut list)).unwrap_or(0);
        let mut pid = 0i32;
        for byte in list.get(..got).unwrap_or_default() {
            if byte.is_ascii_digit() {
                pid = pid.wrapping_mul(10).wrapping_add(i32::from(byte - b'0'));
                continue;
            }
            // Only a number that the list ends with a space is whole. It is a child that was not
            // waited for yet, so the number is still its.
            if pid > 1
                && let Some(child) = Pid::from_raw(pid)
            {
                let _ = kill_process(child, Signal::KILL);
            }
            pid = 0;
        }
        if matches!(wait(WaitOptions::empty()), Err(Errno::CHILD)) {
            return;
        }
    }
}
