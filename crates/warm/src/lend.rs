//! The keeper's side of a conversation: somebody runs a command in a world that is kept for him.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use substrate_broker::Caller;
use substrate_broker::person::Barrier;
use substrate_executor::approval;
use substrate_executor::front::{
    Choice, Front, Given, HeldChanges, Inquiry, Kind, Streams, shows_unicode,
};
use substrate_executor::line::Line;
use substrate_sys::process_group::readable;
use substrate_sys::{identity, signals, unix_sockets};
use substrate_world::backend::{ExecStreams, Held, News, Running, Stdio};
use substrate_world::error::WorldError;
use substrate_world::progress::Progress;

use crate::channel::Channel;
use crate::keep::{Command, Keeper, Kept, Lent, lock};
use crate::surroundings::Surroundings;
use crate::words::{Asked, Borrow, Started, ToBorrower, ToKeeper, VERSION};

/// What a command whose borrower is gone has for putting its things in order.
const GRACE: Duration = Duration::from_secs(2);

/// Takes connections and lends worlds, each on a thread of its own, until the socket is shut.
pub fn serve(keeper: &Arc<Keeper>, listening: &OwnedFd) -> io::Result<()> {
    loop {
        let socket = match unix_sockets::accept(listening.as_fd()) {
            Ok(socket) => socket,
            // Shut by somebody who wants an end.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(()),
            Err(error) if is_passing(&error) => {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            Err(error) => return Err(error),
        };
        let keeper = Arc::clone(keeper);
        let lent = std::thread::Builder::new()
            .name("substrate-lend".to_owned())
            .spawn(move || lend(&keeper, socket));
        // Whoever gets no thread finds the connection closed, and makes a world of his own.
        drop(lent);
    }
}

/// Whether an error says something about this moment only.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, OutOfMemory, WouldBlock};
    let descriptors = matches!(error.raw_os_error(), Some(23 | 24));
    descriptors
        || matches!(
            error.kind(),
            ConnectionAborted | Interrupted | OutOfMemory | WouldBlock
        )
}

/// One conversation with whoever connects.
fn lend(keeper: &Keeper, socket: OwnedFd) {
    let Ok(caller) = Caller::peer(&socket) else {
        return;
    };
    if caller.uid() != identity::effective_user_id() {
        return;
    }
    let enclosed = caller
        .enclosure()
        .map(|_| "a session encloses who asks".to_owned());
    // Looked at before anything of this process is used for him.
    match enclosed.or_else(|| Surroundings::differ(caller.pid())) {
        Some(why) => {
            let _ = Channel::new(socket).send(&ToBorrower::Cold(why), &[]);
        }
        None => converse(keeper, socket),
    }
}

/// One conversation with somebody of whom it is known who he is. Whatever goes wrong in it ends the
/// connection, and with it the command.
pub fn converse(keeper: &Keeper, socket: OwnedFd) {
    let channel = Arc::new(Channel::new(socket));
    let cold = |why: &str| channel.send(&ToBorrower::Cold(why.to_owned()), &[]);
    let (borrow, fds) = match channel.receive() {
        Ok(Some((ToKeeper::Borrow(borrow), fds))) => (borrow, fds),
        Ok(_) => return,
        Err(error) => {
            let _ = cold(&error.to_string());
            return;
        }
    };
    if borrow.v != VERSION {
        let _ = cold("the service speaks another version; `substrate daemon restart` helps");
        return;
    }
    let kept = match keeper.world(&borrow.terms) {
        Ok(kept) => kept,
        Err(why) => {
            let _ = cold(&why.to_string());
            return;
        }
    };
    // The other side being gone is no news for anybody else.
    let _ = run(keeper, &kept, &channel, *borrow, fds);
}

/// Runs a command and attends to it until its borrower says that it has ended, or is gone.
fn run(
    keeper: &Keeper,
    kept: &Kept,
    channel: &Arc<Channel>,
    borrow: Borrow,
    fds: Vec<OwnedFd>,
) -> io::Result<()> {
    let Borrow {
        request,
        line,
        numbers,
        terminal,
        attended,
        ..
    } = borrow;
    let streams = streams(&numbers, terminal, fds)?;
    let variable = |name: &str| {
        let found = request.env.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| std::os::unix::ffi::OsStrExt::as_bytes(value.as_os_str()).to_vec())
    };
    let speaker = Arc::clone(channel);
    let lent = Lent {
        line: line.clone(),
        first: request.env.clone(),
        speaker: Arc::new(move |kind, text: &str| {
            let _ = speaker.send(&ToBorrower::Say(kind, text.to_owned()), &[]);
        }),
        unicode: shows_unicode(variable),
        attended,
    };
    let mut command = match kept.start(&request, &streams, lent) {
        Ok(command) => command,
        Err(error @ WorldError::Gone(_)) => {
            return channel.send(&ToBorrower::Cold(error.to_string()), &[]);
        }
        Err(error) => return channel.send(&ToBorrower::NotStarted(error), &[]),
    };
    // What came with the request is the command's alone from here on.
    drop(streams);
    let started = ToBorrower::Started(Started {
        pid: command.running.pid(),
        world: kept.world().id,
        enforced: kept.enforced().clone(),
    });
    let terminal = command.running.take_terminal();
    let events = command.running.events().try_clone_to_owned()?;
    let mut along = vec![events.as_fd()];
    along.extend(terminal.as_ref().map(AsFd::as_fd));
    let sent = channel.send(&started, &along);
    drop(terminal);
    let attended = sent.and_then(|()| attend(keeper, &mut command, channel, &line, attended));
    if !matches!(attended, Ok(Left::InOrder)) {
        end_abandoned(command.running.as_mut());
    }
    attended.map(drop)
}

/// How a borrower left.
enum Left {
    /// After the end of the command.
    InOrder,
    /// While it ran.
    Early,
}

fn attend(
    keeper: &Keeper,
    command: &mut Command<'_>,
    channel: &Arc<Channel>,
    line: &Line,
    attended: bool,
) -> io::Result<Left> {
    let front = Arc::new(Borrower {
        channel: Arc::clone(channel),
        attended,
        signals: Mutex::default(),
    });
    loop {
        for signal in lock(&front.signals).drain(..) {
            let _ = command.running.signal(signal);
        }
        let bell = command.questions.bell();
        let ready = readable(&[channel.as_fd(), bell], None)?;
        if ready.get(1) == Some(&true) {
            let session = command.session(front.clone(), keeper.worlds(), line);
            approval::answer(&session, &command.questions);
        }
        if ready.first() != Some(&true) {
            continue;
        }
        match channel.receive()?.map(|(message, _)| message) {
            None => return Ok(Left::Early),
            Some(ToKeeper::Signal(signal)) => {
                // A command that has just ended has nothing to be told.
                let _ = command.running.signal(signal);
            }
            Some(ToKeeper::Ended) => {
                command.running.settle();
                let used = command.used();
                channel.send(&ToBorrower::Used(used), &[])?;
                return Ok(Left::InOrder);
            }
            // An answer to a question that is not asked any more.
            Some(ToKeeper::Borrow(_) | ToKeeper::Fits(..) | ToKeeper::Answer(_)) => {}
        }
    }
}

/// Ends a command that nobody waits for.
fn end_abandoned(running: &mut dyn Running) {
    for signal in [signals::HANGUP, signals::TERMINATE] {
        let _ = running.signal(signal);
    }
    let end = std::time::Instant::now() + GRACE;
    loop {
        let left = end.saturating_duration_since(std::time::Instant::now());
        match readable(&[running.events()], Some(left)) {
            Ok(ready) if ready.contains(&true) => match running.next() {
                Ok(News::Stopped(_)) => {}
                _ => return,
            },
            _ if left.is_zero() => break,
            _ => {}
        }
    }
    let _ = running.signal(signals::KILL);
}

/// The streams that came with a request.
fn streams(
    numbers: &[i32],
    terminal: Option<(u16, u16)>,
    fds: Vec<OwnedFd>,
) -> io::Result<ExecStreams> {
    let mut standard = [None, None, None];
    let mut others = Vec::new();
    for (number, fd) in numbers.iter().copied().zip(fds) {
        let place = usize::try_from(number).ok();
        match place.and_then(|place| standard.get_mut(place)) {
            Some(place) if terminal.is_none() => *place = Some(fd),
            _ => others.push((number, fd)),
        }
    }
    let stdio = match terminal {
        Some((rows, columns)) => Stdio::Terminal(rows, columns),
        None => {
            let given = standard.map(|fd| fd.map_or_else(null, Ok));
            let [stdin, stdout, stderr] = given;
            Stdio::Given([stdin?, stdout?, stderr?])
        }
    };
    Ok(ExecStreams {
        stdio,
        fds: others,
        ..ExecStreams::default()
    })
}

fn null() -> io::Result<OwnedFd> {
    let null = File::options().read(true).write(true).open("/dev/null");
    Ok(null?.into())
}

/// Whoever borrows, as the front of questions about what his command starts.
struct Borrower {
    channel: Arc<Channel>,
    attended: bool,
    /// Signals that came while he was asked.
    signals: Mutex<Vec<i32>>,
}

impl Front for Borrower {
    fn say(&self, kind: Kind, text: &str) {
        let _ = self
            .channel
            .send(&ToBorrower::Say(kind, text.to_owned()), &[]);
    }

    fn line(&self, kind: Kind, text: &str) -> String {
        format!("{}{text}", kind.sign(true))
    }

    fn barrier(&self, _: &Caller) -> Option<Barrier> {
        (!self.attended).then_some(Barrier::NoTerminal)
    }

    fn ask(&self, inquiry: &dyn Inquiry) -> io::Result<Given> {
        let asked = Asked {
            text: inquiry.text(),
            can_be_remembered: inquiry.can_be_remembered(),
            proposed: inquiry.proposed().to_vec(),
        };
        self.channel.send(&ToBorrower::Ask(asked), &[])?;
        loop {
            match self.channel.receive()?.map(|(message, _)| message) {
                None => return Ok(Given::denied()),
                Some(ToKeeper::Answer(given)) => return Ok(given),
                Some(ToKeeper::Fits(at, pattern)) => {
                    let fits = inquiry.fits(at, &pattern);
                    self.channel.send(&ToBorrower::Fit(fits), &[])?;
                }
                Some(ToKeeper::Signal(signal)) => lock(&self.signals).push(signal),
                Some(ToKeeper::Borrow(_) | ToKeeper::Ended) => return Ok(Given::denied()),
            }
        }
    }

    fn settle(&self, _: &Held, _: &dyn HeldChanges) -> Option<Choice> {
        None
    }

    fn progress(&self) -> Box<dyn FnMut(Progress) -> bool> {
        Box::new(|_| true)
    }

    fn streams(&self) -> io::Result<Streams> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
