//! Bytes and signals between our terminal and a command's own terminal in a world.

pub mod display;
mod ended;

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use substrate_init::launch::{self, Command, End};
use substrate_sys::poll::{self, Wanted};
use substrate_sys::signals::{self, Signals};
use substrate_sys::terminal::{self, Modes};

use substrate_world::backend::Beside;

use display::Display;
pub use ended::{start_error, status_of};

/// Most bytes that wait for a command which does not read.
const WAITING: usize = 64 * 1024;

/// Most looks at what was printed before a question: more than a terminal holds.
const SHOWN_FIRST: usize = 64;

/// Signals that are meant for the command and reach us instead: it is in a session of its own.
const FORWARDED: [i32; 6] = [
    signals::HANGUP,
    signals::INTERRUPT,
    signals::QUIT,
    signals::TERMINATE,
    signals::USER_1,
    signals::USER_2,
];

/// Takes over the signals that a running command needs; do this before the command starts, so
/// that none is lost.
pub fn take_signals() -> io::Result<Signals> {
    let mut wanted = FORWARDED.to_vec();
    wanted.extend([
        signals::TERMINAL_STOP,
        signals::CONTINUE,
        signals::WINDOW_CHANGE,
    ]);
    Signals::take(&wanted)
}

/// Our side of a relayed terminal.
struct Outside<'a> {
    master: File,
    /// Held open, so that a command which closes its streams before it ends is not hung up on.
    _slave: OwnedFd,
    /// The terminal that is shown on; its size is the size of the inner one.
    screen: BorrowedFd<'a>,
    keys: Option<Keys<'a>>,
    to_master: Vec<u8>,
    display: Display,
}

/// The keyboard, in raw mode while we are in the foreground.
struct Keys<'a> {
    terminal: BorrowedFd<'a>,
    modes: Modes,
    raw: bool,
}

impl Keys<'_> {
    /// A process in the background must leave the terminal as it is.
    fn take(&mut self) {
        let ours = terminal::foreground(self.terminal)
            .is_ok_and(|group| group == substrate_sys::process_group::own_group());
        if ours && !self.raw {
            self.raw = self.modes.transparent().apply(self.terminal).is_ok();
        }
    }

    fn give_back(&mut self) {
        if self.raw {
            // A terminal that is gone has nothing to restore.
            let _ = self.modes.apply(self.terminal);
            self.raw = false;
        }
    }
}

impl Drop for Keys<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// What a command may take before it is told to end, and then ended.
struct Clock {
    next: Option<Instant>,
    ran_out: bool,
    abandoned: bool,
}

impl Clock {
    /// What a command has for putting its things in order.
    const GRACE: Duration = Duration::from_secs(2);

    fn start(patience: Option<Duration>) -> Clock {
        Clock {
            next: patience.map(|patience| Instant::now() + patience),
            ran_out: false,
            abandoned: false,
        }
    }

    /// What a person takes to answer a question is not the command's.
    fn stand_still(&mut self, since: Instant) {
        if let Some(next) = &mut self.next {
            *next += since.elapsed();
        }
    }

    /// Nobody waits for the command any more, so its time is over.
    fn abandon(&mut self) {
        self.abandoned = true;
        self.next = Some(Instant::now());
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// The signal that it is time for.
    fn due(&mut self) -> Option<i32> {
        let due = self.next.filter(|next| *next <= Instant::now())?;
        self.next = (!self.ran_out).then(|| due + Self::GRACE);
        let signal = match self.ran_out {
            false => signals::TERMINATE,
            true => signals::KILL,
        };
        self.ran_out = true;
        Some(signal)
    }
}

/// What there is to be watched besides a command.
#[derive(Debug, Default)]
pub struct Watch<'a> {
    /// Signals that are meant for it.
    pub signals: Option<&'a Signals>,
    /// How long it may take.
    pub patience: Option<Duration>,
    /// Readable once nobody waits for it any more.
    pub abandoned: Option<BorrowedFd<'a>>,
}

/// Waits for a command's end, relaying its terminal and our signals meanwhile. One that takes
/// longer than it may is ended, which the answer tells, and so is one that nobody waits for.
pub fn run(
    command: &mut Command,
    send: &dyn Fn(&Command, i32) -> io::Result<()>,
    watch: &Watch<'_>,
    tap: &mut dyn FnMut(&[u8]),
    mut beside: Option<&mut Beside<'_>>,
) -> io::Result<(End, bool)> {
    let mut clock = Clock::start(watch.patience);
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let stderr = io::stderr();
    let mut outside = match command.take_terminal() {
        None => None,
        Some(master) => Some(open_outside(
            master,
            [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
        )?),
    };
    let end = loop {
        let mut wanted = Wants::default();
        wanted.add(News::Command, Some(Wanted::read(command.events())));
        wanted.add(
            News::Signal,
            watch.signals.map(|signals| Wanted::read(signals.as_fd())),
        );
        let abandoned = watch.abandoned.filter(|_| !clock.is_abandoned());
        wanted.add(News::Abandoned, abandoned.map(Wanted::read));
        if let Some(outside) = &outside {
            let master = outside.master.as_fd();
            wanted.add(
                News::Terminal,
                Some(match outside.to_master.is_empty() {
                    true => Wanted::read(master),
                    false => Wanted::both(master),
                }),
            );
            let keys = outside
                .keys
                .as_ref()
                .filter(|keys| keys.raw && outside.to_master.len() < WAITING);
            wanted.add(News::Keys, keys.map(|keys| Wanted::read(keys.terminal)));
        }
        wanted.add(
            News::Beside,
            beside.as_ref().map(|beside| Wanted::read(beside.fd)),
        );
        let ready = wanted.wait(clock.next)?;
        if ready.contains(&News::Abandoned) {
            clock.abandon();
        }
        if let Some(signal) = clock.due() {
            // A command that has just ended has nothing to be told.
            let _ = send(command, signal);
        }
        if ready.contains(&News::Beside)
            && let Some(other) = beside.as_mut()
        {
            let since = Instant::now();
            let more = match outside.as_mut() {
                Some(outside) => outside.give_way(tap, other.call),
                None => (other.call)(),
            };
            if !more {
                beside = None;
            }
            clock.stand_still(since);
            continue;
        }
        if ready.contains(&News::Signal)
            && let Some(signals) = watch.signals
        {
            if let Some(signal) = signals.next()? {
                let send = |signal| send(command, signal);
                on_signal(signal, &send, outside.as_mut())?;
            }
            continue;
        }
        if let Some(this) = outside.as_mut() {
            let keys_ready = ready.contains(&News::Keys);
            if keys_ready {
                this.read_keys();
            }
            if (ready.contains(&News::Terminal) || keys_ready) && !this.pump(tap) {
                outside = None;
                continue;
            }
        }
        if ready.contains(&News::Command)
            && let launch::News::Ended(end) = command.next()?
        {
            break end;
        }
    };
    if let Some(this) = outside.as_mut() {
        // What the command wrote last may still be on its way.
        while this.show(tap) == Shown::Some {}
    }
    Ok((end, clock.ran_out && !clock.abandoned))
}

/// What can happen while a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    Command,
    Signal,
    Abandoned,
    Terminal,
    Keys,
    Beside,
}

/// What is waited for, by name.
#[derive(Default)]
struct Wants<'a> {
    names: Vec<News>,
    wanted: Vec<Wanted<'a>>,
}

impl<'a> Wants<'a> {
    fn add(&mut self, name: News, wanted: Option<Wanted<'a>>) {
        if let Some(wanted) = wanted {
            self.names.push(name);
            self.wanted.push(wanted);
        }
    }

    fn wait(mut self, until: Option<Instant>) -> io::Result<Vec<News>> {
        let ready = poll::wait_until(&mut self.wanted, until)?;
        let named = self.names.into_iter().zip(ready);
        Ok(named
            .filter_map(|(name, ready)| ready.then_some(name))
            .collect())
    }
}

fn open_outside<'a>(master: OwnedFd, streams: [BorrowedFd<'a>; 3]) -> io::Result<Outside<'a>> {
    poll::set_nonblocking(master.as_fd())?;
    let terminal = |fd: &BorrowedFd<'a>| fd.is_terminal();
    let screen = streams
        .iter()
        .rev()
        .copied()
        .find(terminal)
        .unwrap_or(streams[1]);
    let mut keys = None;
    if streams[0].is_terminal() {
        let modes = Modes::of(streams[0])?;
        // The inner terminal starts with the settings the user is used to.
        let _ = modes.apply(&master);
        let mut taken = Keys {
            terminal: streams[0],
            modes,
            raw: false,
        };
        taken.take();
        keys = Some(taken);
    }
    let pty = terminal::other_side(master)?;
    Ok(Outside {
        master: pty.master.into(),
        _slave: pty.slave,
        screen,
        keys,
        to_master: Vec::new(),
        display: Display::default(),
    })
}

fn on_signal(
    signal: i32,
    send: &dyn Fn(i32) -> io::Result<()>,
    outside: Option<&mut Outside<'_>>,
) -> io::Result<()> {
    match signal {
        signals::WINDOW_CHANGE => {
            if let Some(outside) = outside {
                outside.copy_size();
            }
        }
        signals::CONTINUE => {
            if let Some(outside) = outside {
                outside.copy_size();
                if let Some(keys) = outside.keys.as_mut() {
                    keys.take();
                }
            }
        }
        signals::TERMINAL_STOP => {
            // Stopped and continued together, as members of one job would be.
            let mut outside = outside;
            if let Some(keys) = outside.as_mut().and_then(|o| o.keys.as_mut()) {
                keys.give_back();
            }
            send(signals::STOP)?;
            signals::stop_self();
            send(signals::CONTINUE)?;
            if let Some(keys) = outside.as_mut().and_then(|o| o.keys.as_mut()) {
                keys.take();
            }
        }
        other => send(other)?,
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
enum Shown {
    Some,
    NothingNow,
    Over,
}

impl Outside<'_> {
    fn copy_size(&self) {
        if let Ok(size) = terminal::size(self.screen) {
            let _ = terminal::set_size(&self.master, size);
        }
    }

    /// Lets somebody else have our terminal as it was before, and the command its own again.
    fn give_way(&mut self, tap: &mut dyn FnMut(&[u8]), call: &mut dyn FnMut() -> bool) -> bool {
        // What led to this is shown first, but nobody can put the question off by printing.
        for _ in 0..SHOWN_FIRST {
            if self.show(tap) != Shown::Some {
                break;
            }
        }
        let _ = poll::write_all(self.screen, &self.display.plain());
        if let Some(keys) = self.keys.as_mut() {
            keys.give_back();
        }
        let more = call();
        if let Some(keys) = self.keys.as_mut() {
            keys.take();
        }
        let _ = poll::write_all(self.screen, &self.display.again());
        display::repaint(&self.master);
        more
    }

    fn read_keys(&mut self) {
        let Some(keys) = self.keys.as_mut() else {
            return;
        };
        let mut buffer = [0; 4096];
        match poll::read(keys.terminal, &mut buffer) {
            Ok(got) if got > 0 => self.to_master.extend_from_slice(&buffer[..got]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => {
                // The keyboard is gone; the command may still have something to say.
                self.keys = None;
            }
        }
    }

    /// Moves what can be moved; false when the inner terminal is over.
    fn pump(&mut self, tap: &mut dyn FnMut(&[u8])) -> bool {
        while !self.to_master.is_empty() {
            match self.master.write(&self.to_master) {
                Ok(sent) => {
                    self.to_master.drain(..sent);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        self.show(tap) != Shown::Over
    }

    fn show(&mut self, tap: &mut dyn FnMut(&[u8])) -> Shown {
        let mut buffer = [0; 16 * 1024];
        loop {
            return match self.master.read(&mut buffer) {
                Ok(0) => Shown::Over,
                Ok(got) => {
                    tap(&buffer[..got]);
                    self.display.saw(&buffer[..got]);
                    match poll::write_all(self.screen, &buffer[..got]) {
                        Ok(()) => Shown::Some,
                        Err(_) => Shown::Over,
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Shown::NothingNow,
                // EIO: nobody has the other side open any more.
                Err(_) => Shown::Over,
            };
        }
    }
}
