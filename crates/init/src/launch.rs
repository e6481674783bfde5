//! Making a world and talking to its first process: the owner's side of [`crate::child`].

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub use crate::control::Stage;
use crate::control::{self, Kind, Message, Received};
use crate::netplan::NetPlan;
use crate::own_starts::OwnStarts;
pub use crate::request::{MAX_COMMAND_FDS, Parts};
pub use crate::step::{Need, Parameter, Slot, Step};
use crate::{child, network_maker, request, starter};
use substrate_sys::namespace::{self, Namespaces, Side};
use substrate_sys::{pidfd, poll};

/// Enough for the few calls between clone and exec.
const STACK: usize = 64 * 1024;

/// Everything a world is made from.
#[derive(Debug)]
pub struct Plan {
    /// The namespaces that are new.
    pub namespaces: Namespaces,
    /// Lines for the id maps when the owner has to write them; a [`Step::AwaitMaps`] waits.
    pub maps: Option<Maps>,
    /// The steps, in order.
    pub steps: Vec<(Step, Need)>,
    /// How many slots they use.
    pub slots: usize,
    /// Where the world's terminals come from.
    pub ptmx: CString,
    /// The world ends with its first command.
    pub one_shot: bool,
    /// The world ends when the thread that made it does, not only with the process.
    pub die_with_thread: bool,
    /// A network that is made beside the first steps; a [`Step::JoinNetwork`] waits for it.
    pub network: Option<NewNetwork>,
}

/// A network namespace in the making.
#[derive(Debug)]
pub struct NewNetwork {
    /// What is prepared in it.
    pub plan: NetPlan,
    /// Over which its sockets come out, or why there are none.
    pub sockets: OwnedFd,
    /// Over which it is handed to the world.
    handover: OwnedFd,
}

impl NewNetwork {
    /// With what its [`Step::JoinNetwork`] needs.
    pub fn new(plan: NetPlan, sockets: OwnedFd) -> io::Result<(NewNetwork, OwnedFd)> {
        let (handover, joining) = control::pair()?;
        let network = NewNetwork {
            plan,
            sockets,
            handover,
        };
        Ok((network, joining))
    }
}

/// Who is who in a new user namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maps {
    /// Lines of `uid_map`.
    pub users: String,
    /// Lines of `gid_map`.
    pub groups: String,
}

/// Why a world could not be made.
#[derive(Debug)]
pub enum LaunchError {
    /// Something on the owner's side, before or besides the steps.
    Own(&'static str, io::Error),
    /// The process or its namespaces.
    Clone(io::Error),
    /// The id maps.
    Maps(io::Error),
    /// A step, by its number.
    Step {
        /// Which one.
        number: usize,
        /// Why.
        error: io::Error,
    },
    /// The first process ended without a word.
    Died,
}

/// A world's first process.
#[derive(Debug)]
pub struct Init {
    pid: i32,
    pidfd: OwnedFd,
    control: OwnedFd,
    own_starts: Option<OwnStarts>,
    next: AtomicU32,
    /// What it was made from, whose memory it shares: freed while it lives, each page of that would
    /// be copied first.
    _made_from: (Vec<(Step, Need)>, Option<NetPlan>),
}

/// A world whose first process is taking its steps.
#[derive(Debug)]
pub struct Launching {
    /// Makes the network, which the first process joins, and then what the gate needs in it.
    maker: Option<Maker>,
    init: Init,
}

/// The process that makes a world's network, ended with this.
#[derive(Debug)]
struct Maker(OwnedFd);

impl Drop for Maker {
    fn drop(&mut self) {
        let _ = pidfd::kill(self.0.as_fd());
        let _ = pidfd::wait(self.0.as_fd());
    }
}

/// Makes the world that a plan describes.
pub fn launch(plan: Plan) -> Result<Init, LaunchError> {
    let launching = begin(plan)?;
    while !matches!(launching.next(None)?, Progress::Ready) {}
    Ok(launching.into_init())
}

/// Sets the first process of a world on its way, which leaves time for other things.
pub fn begin(plan: Plan) -> Result<Launching, LaunchError> {
    let own = |what| move |error| LaunchError::Own(what, error);
    let (control, theirs) = control::pair().map_err(own("make the control socket"))?;
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(own("open /dev/null"))?;
    let mut keep: Vec<RawFd> = vec![theirs.as_raw_fd(), null.as_raw_fd()];
    let (mut own_starts, mut announcing) = (None, None);
    for (step, _) in &plan.steps {
        match step {
            Step::WriteTo(fd, _) | Step::JoinNetwork(fd) => keep.push(fd.as_raw_fd()),
            Step::Seccomp(filter) if filter.judges_starts() => {
                let pair = OwnStarts::pair().map_err(own("make a socket for the guard"))?;
                keep.push(pair.1.as_raw_fd());
                (own_starts, announcing) = (Some(pair.0), Some(pair.1));
            }
            _ => {}
        }
    }
    keep.sort_unstable();
    // Not a byte of it is touched here.
    let mut stack = Box::new_uninit_slice(STACK);
    let mut slots: Vec<Option<OwnedFd>> = Vec::new();
    slots.resize_with(plan.slots, || None);
    // SAFETY: the child enters `live`, which keeps the rules of its file and never returns.
    let side = unsafe { namespace::fork_into(plan.namespaces) }.map_err(LaunchError::Clone)?;
    let (pid, pidfd) = match side {
        Side::Child => child::live(child::Birth {
            steps: &plan.steps,
            slots: &mut slots,
            control: theirs.as_raw_fd(),
            own_starts: announcing.as_ref().map(AsRawFd::as_raw_fd),
            null: null.as_raw_fd(),
            keep: &keep,
            stack: &mut stack,
            ptmx: &plan.ptmx,
            one_shot: plan.one_shot,
            owns_processes: plan.namespaces.has(Namespaces::PID),
            die_with_thread: plan.die_with_thread,
        }),
        Side::Parent { pid, pidfd } => (pid, pidfd),
    };
    drop((theirs, announcing));
    let mut init = Init {
        pid,
        pidfd,
        control,
        own_starts,
        next: AtomicU32::new(1),
        _made_from: (Vec::new(), None),
    };
    if let Some(maps) = &plan.maps {
        write_maps(pid, maps).map_err(LaunchError::Maps)?;
        Message::new(Kind::Go)
            .send(init.control.as_fd(), &[])
            .map_err(|_| LaunchError::Died)?;
    }
    let network = plan.network.as_ref();
    let maker = network.map(|network| make_network(network, &init));
    let maker = maker.transpose()?;
    let mut steps = plan.steps;
    for (step, _) in &mut steps {
        if matches!(step, Step::WriteTo(..) | Step::JoinNetwork(_)) {
            // Its descriptor is the world's alone from here on.
            *step = Step::NoNewPrivs;
        }
    }
    init._made_from = (steps, plan.network.map(|network| network.plan));
    Ok(Launching { maker, init })
}

/// Has a process of its own make the network: the kernel takes its time for one, in which the first
/// process gets to its files.
fn make_network(network: &NewNetwork, init: &Init) -> Result<Maker, LaunchError> {
    let world = init.pidfd.as_fd();
    let (sockets, handover) = (network.sockets.as_fd(), network.handover.as_fd());
    let mut keep = [world, sockets, handover].map(|fd| fd.as_raw_fd());
    keep.sort_unstable();
    // SAFETY: the child enters `live`, which keeps the rules of its file and never returns.
    let forked = unsafe { namespace::fork_into(Namespaces::NONE) };
    match forked.map_err(|error| LaunchError::Own("make a process", error))? {
        Side::Child => network_maker::live(world, &network.plan, sockets, handover, &keep),
        Side::Parent { pidfd, .. } => Ok(Maker(pidfd)),
    }
}

/// How far a world has come.
#[derive(Debug)]
pub enum Progress {
    /// The other descriptor can be read.
    Other,
    /// It does without a step that failed.
    Missing(usize),
    /// A step gave this descriptor.
    Export(usize, OwnedFd),
    /// It takes commands now.
    Ready,
}

impl Progress {
    /// What a message of the first process says about it.
    pub fn told(mut received: Received) -> Result<Progress, LaunchError> {
        let message = received.message;
        let number = message.a as usize;
        match (message.kind, received.fds[0].take()) {
            (Kind::Ready, _) => Ok(Progress::Ready),
            (Kind::Missing, _) => Ok(Progress::Missing(number)),
            (Kind::Export, Some(fd)) => Ok(Progress::Export(number, fd)),
            _ => Err(LaunchError::Step {
                number,
                error: io::Error::from_raw_os_error(message.b),
            }),
        }
    }
}

impl Launching {
    /// Waits until the world has come further, or until another descriptor can be read.
    pub fn next(&self, other: Option<BorrowedFd<'_>>) -> Result<Progress, LaunchError> {
        let own = |error| LaunchError::Own("hear from the world", error);
        let control = self.init.control.as_fd();
        while let Some(other) = other {
            let ready = poll::readable(&[other, control], None).map_err(own)?;
            match ready.as_slice() {
                [_, true] => break,
                [true, _] => return Ok(Progress::Other),
                // Interrupted.
                _ => {}
            }
        }
        match control::receive(control).map_err(own)? {
            Some(received) => Progress::told(received),
            None => Err(LaunchError::Died),
        }
    }

    /// Asks for a command, which starts as soon as the world is ready.
    pub fn ask(&self, parts: &Parts<'_>, fds: &[BorrowedFd<'_>]) -> Result<Command, StartError> {
        self.init.ask(parts, fds)
    }

    /// The first process of a world that is ready, once all of its network is made.
    pub fn into_init(self) -> Init {
        if let Some(Maker(process)) = &self.maker {
            // One that died was missed before.
            let _ = pidfd::wait(process.as_fd());
        }
        self.init
    }
}

fn write_maps(pid: i32, maps: &Maps) -> io::Result<()> {
    std::fs::write(format!("/proc/{pid}/uid_map"), &maps.users)?;
    std::fs::write(format!("/proc/{pid}/gid_map"), &maps.groups)
}

impl Init {
    /// Its process id on the host.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// For the guard of its filter, once: which starts are its own.
    pub fn take_own_starts(&mut self) -> Option<OwnStarts> {
        self.own_starts.take()
    }

    /// Readable once it has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Asks for a command. `fds` get the numbers of `parts.fds`.
    pub fn ask(&self, parts: &Parts<'_>, fds: &[BorrowedFd<'_>]) -> Result<Command, StartError> {
        let own = |error| StartError::Own(error);
        let block = request::to_memory_file(parts).map_err(own)?;
        let (events, theirs) = control::pair().map_err(own)?;
        let mut message = Message::new(Kind::Start);
        message.id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut all = vec![theirs.as_fd(), block.as_fd()];
        if parts.judged {
            all.push(starter::file().map_err(own)?);
        }
        all.extend(fds);
        message
            .send(self.control.as_fd(), &all)
            .map_err(|_| StartError::Gone)?;
        Ok(Command::over(message.id, events))
    }

    /// Sends a signal to the process group of a command.
    pub fn signal(&self, command: &Command, signal: i32) -> io::Result<()> {
        let mut message = Message::new(Kind::Signal);
        message.id = command.id;
        message.a = signal;
        message.send(self.control.as_fd(), &[])
    }

    /// Waits until it has ended; everything in the world has ended before it.
    pub fn wait(&self) -> io::Result<()> {
        pidfd::wait(self.pidfd.as_fd())
    }

    /// Ends the world and everything in it.
    pub fn kill(&self) -> io::Result<()> {
        self.begin_end()?;
        self.wait()
    }

    /// Has the world and everything in it end, without waiting for that.
    pub fn begin_end(&self) -> io::Result<()> {
        pidfd::kill(self.pidfd.as_fd())
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        // Without its owner a world must not go on; one that has ended is only buried here.
        let _ = pidfd::kill(self.pidfd.as_fd());
        let _ = self.wait();
    }
}

/// Why a command did not start.
#[derive(Debug)]
pub enum StartError {
    /// Something on the owner's side.
    Own(io::Error),
    /// The world is not there any more.
    Gone,
    /// A stage inside the world.
    Stage(Stage, io::Error),
}

impl StartError {
    fn from_message(message: Message) -> StartError {
        StartError::Stage(
            Stage::from_number(message.a),
            io::Error::from_raw_os_error(message.b),
        )
    }
}

/// A command inside a world.
#[derive(Debug)]
pub struct Command {
    id: u32,
    pid: i32,
    terminal: Option<OwnedFd>,
    events: OwnedFd,
    /// It has ended, and nothing was left in its world.
    last: AtomicBool,
}

/// What happened to a command.
#[derive(Debug)]
pub enum News {
    /// This signal stopped it.
    Stopped(i32),
    /// It ended.
    Ended(End),
}

/// How a command ended.
#[derive(Debug)]
pub enum End {
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it.
    Signaled(i32),
    /// It never became its program.
    NotStarted(StartError),
}

impl Command {
    /// A command of which is heard over this socket.
    pub fn over(id: u32, events: OwnedFd) -> Command {
        Command {
            id,
            pid: 0,
            terminal: None,
            events,
            last: AtomicBool::new(false),
        }
    }

    /// One that another process has waited for until it was about to become its program.
    pub fn begun(pid: i32, events: OwnedFd, terminal: Option<OwnedFd>) -> Command {
        Command {
            pid,
            terminal,
            ..Command::over(0, events)
        }
    }

    /// Waits until it is about to become its program, or could not be prepared.
    pub fn await_start(&mut self) -> Result<(), StartError> {
        while self.pid == 0 {
            let received = control::receive(self.events.as_fd()).map_err(StartError::Own)?;
            let Some(mut received) = received else {
                return Err(StartError::Gone);
            };
            match received.message.kind {
                Kind::Terminal => self.terminal = received.fds[0].take(),
                Kind::Starting => self.pid = received.pid,
                _ => return Err(StartError::from_message(received.message)),
            }
        }
        Ok(())
    }

    /// Its process id on the host, once it is about to become its program.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it has ended as the last process of its world but the first: nothing runs there any
    /// more, and nothing will.
    pub fn was_last(&self) -> bool {
        self.last.load(Ordering::Relaxed)
    }

    /// The master of its terminal, once.
    pub fn take_terminal(&mut self) -> Option<OwnedFd> {
        self.terminal.take()
    }

    /// Readable when [`Command::next`] will not block.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Waits for its end.
    pub fn wait(&self) -> io::Result<End> {
        loop {
            if let News::Ended(end) = self.next()? {
                return Ok(end);
            }
        }
    }

    /// Waits for the next thing that happens to it.
    pub fn next(&self) -> io::Result<News> {
        let end = match control::receive(self.events.as_fd())? {
            None => End::NotStarted(StartError::Gone),
            Some(received) if received.message.kind == Kind::Stopped => {
                return Ok(News::Stopped(received.message.a));
            }
            Some(received) if received.message.kind == Kind::Ended => {
                let status = received.message.a;
                self.last.store(received.message.b != 0, Ordering::Relaxed);
                if libc::WIFSIGNALED(status) {
                    End::Signaled(libc::WTERMSIG(status))
                } else {
                    End::Exited(libc::WEXITSTATUS(status))
                }
            }
            Some(received) => End::NotStarted(StartError::from_message(received.message)),
        };
        Ok(News::Ended(end))
    }
}
