//! The standard streams of a command on their way into a world.
//!
//! A descriptor keeps the mount that it was opened on: whoever holds one of a host file can
//! change its mode and times past every mount of the world. So a file that is only read, a device
//! and a named pipe are opened again on read-only mounts of their own, which the first process
//! took from the host. A file that is written and that the world may not write anyway has no such
//! mount; its bytes are carried over from a pipe.

use crate::host_file::Named;
use crate::host_file::look;
use crate::host_file::null_mode;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use substrate_sys::{mask, poll, terminal, unix_sockets};
use substrate_trace::Level;

use crate::inside::Inside;
use crate::layout::{Layout, What};
use substrate_world::backend::{ExecStreams, Stdio};
use substrate_world::error::WorldError;

/// The paths that the first process of a world has to take from the host for a command.
pub(crate) fn to_take(streams: &ExecStreams) -> Vec<PathBuf> {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let standard: Vec<BorrowedFd<'_>> = match &streams.stdio {
        Stdio::Inherit => vec![stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
        Stdio::Given(fds) => fds.iter().map(AsFd::as_fd).collect(),
        Stdio::Terminal(..) => Vec::new(),
    };
    let others = streams.fds.iter().map(|(number, fd)| (*number, fd.as_fd()));
    let mut paths: Vec<PathBuf> = (0..)
        .zip(standard)
        .chain(others)
        .filter(|(number, fd)| null_mode(*number, *fd).is_none())
        .filter_map(|(number, fd)| look(number, fd).ok().flatten())
        .filter(|named| !(named.regular && named.writes))
        .filter_map(|named| named.path)
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

/// The streams of one command, as they are sent into its world.
#[derive(Default)]
pub(crate) struct Streams {
    pub numbers: Vec<i32>,
    pub fds: Vec<OwnedFd>,
    /// Which of 0, 1 and 2 become a terminal of the world, as a bit set.
    pub terminal_for: u8,
    /// Which of them lead to the world's own `/dev/null`, and the mode that it is opened with.
    pub null_for: [Option<i32>; 3],
    pub size: (u16, u16),
    carried: Carried,
    /// Outputs that are carried over already, and where into.
    pipes: Vec<((u64, u64), i32, OwnedFd)>,
    /// Inputs that are carried over once it is certain that somebody will read them.
    inputs: Vec<(File, io::PipeWriter)>,
}

/// What still has to be done about streams once their command has ended.
#[derive(Default)]
pub struct Carried {
    /// The stream of ours, and how far the command has read in what it got instead.
    positions: Vec<(File, File)>,
    outputs: Vec<Output>,
}

/// An output that is carried over.
struct Output {
    /// Ends when nobody writes any more.
    thread: JoinHandle<io::Result<()>>,
    /// Gone with that. Whoever has it locked knows that nothing is on its way.
    pipe: Weak<Mutex<io::PipeReader>>,
}

impl Output {
    /// Whether all that was written so far has arrived.
    fn has_arrived(&self) -> bool {
        let Some(pipe) = self.pipe.upgrade() else {
            return true;
        };
        let Ok(pipe) = pipe.try_lock() else {
            return false;
        };
        poll::unread(pipe.as_fd()).map_or(true, |bytes| bytes == 0)
    }
}

impl Carried {
    /// Whoever reads on from our stream starts where the command stopped.
    pub(crate) fn take_over_positions(&mut self) {
        for (mut ours, mut theirs) in self.positions.drain(..) {
            if let Ok(at) = theirs.stream_position() {
                let _ = ours.seek(SeekFrom::Start(at));
            }
        }
    }

    /// Waits until everything that was written has arrived; nobody may write any more. Says what
    /// could not be written, of which the command has only heard that nobody reads.
    pub(crate) fn finish(&mut self) -> Vec<String> {
        self.take_over_positions();
        let ended = self.outputs.drain(..).map(|output| output.thread.join());
        ended
            .filter_map(|ended| ended.ok()?.err())
            .map(|error| format!("an output could not be written: {error}"))
            .collect()
    }

    /// Waits until what was written so far has arrived, but not for ever: the other side may not read.
    pub(crate) fn settle(&mut self) {
        self.take_over_positions();
        let end = Instant::now() + ARRIVAL;
        for output in &self.outputs {
            while !output.has_arrived() && Instant::now() < end {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Leaves what is still to be done to another.
    pub(crate) fn append(&mut self, other: &mut Carried) {
        self.positions.append(&mut other.positions);
        self.outputs.append(&mut other.outputs);
    }
}

fn own(what: &'static str) -> impl FnOnce(io::Error) -> WorldError {
    WorldError::own(what)
}

impl Streams {
    /// The standard streams of a command.
    pub(crate) fn add(&mut self, stdio: &Stdio, inside: &Inside<'_>) -> Result<(), WorldError> {
        match stdio {
            Stdio::Terminal(rows, columns) => {
                self.terminal_for = 0b111;
                self.size = (*rows, *columns);
            }
            Stdio::Given(fds) => {
                for (number, fd) in fds.iter().enumerate() {
                    self.pass(number as i32, fd.as_fd(), inside)?;
                }
            }
            Stdio::Inherit => {
                let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
                for (number, fd) in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()]
                    .into_iter()
                    .enumerate()
                {
                    if fd.is_terminal() {
                        self.terminal_for |= 1 << number;
                        if let Ok(size) = terminal::size(fd) {
                            self.size = (size.rows, size.columns);
                        }
                    } else {
                        self.pass(number as i32, fd, inside)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// One descriptor. A directory would be a door: from it every path of the host can be
    /// reached, past every mount of the world.
    pub(crate) fn pass(
        &mut self,
        number: i32,
        fd: BorrowedFd<'_>,
        inside: &Inside<'_>,
    ) -> Result<(), WorldError> {
        // Without mounts of its own a world has none but the host's.
        let null = null_mode(number, fd).filter(|_| inside.level == Level::Full);
        if let (Some(mode), Ok(number)) = (null, usize::try_from(number)) {
            self.null_for[number] = Some(mode);
            return Ok(());
        }
        // Who has one can send to any socket whose file he finds, as he could make none himself.
        if inside.level == Level::Full && unix_sockets::sends_datagrams(fd) {
            return Err(WorldError::OpenDatagrams(number));
        }
        let closed = || File::options().read(true).write(true).open("/dev/null");
        let fd = match poll::leads_elsewhere(fd) {
            Ok(true) => return Err(WorldError::OpenDirectory(number)),
            Ok(false) => self
                .fit(number, fd, inside)
                .map_err(own("hand a descriptor to the world"))?,
            Err(_) => closed().map_err(own("open /dev/null"))?.into(),
        };
        self.numbers.push(number);
        self.fds.push(fd);
        Ok(())
    }

    fn fit(&mut self, number: i32, fd: BorrowedFd<'_>, inside: &Inside<'_>) -> io::Result<OwnedFd> {
        // Without mounts of its own a world has no other place for a file to be opened on.
        let named = match inside.level {
            Level::Full => look(number, fd)?,
            _ => None,
        };
        let Some(named) = named else {
            return fd.try_clone_to_owned();
        };
        if named.regular && named.writes {
            let path = named.path.as_deref();
            if path.is_some_and(|path| is_writable(inside.layout, path)) {
                return fd.try_clone_to_owned();
            }
            return self.carry_out(&named, fd);
        }
        let mut known = inside.streams.iter();
        let known = known.find(|stream| stream.identity == named.identity);
        let Some(mut file) = known.and_then(|stream| stream.open(&named).ok()) else {
            return match named.reads {
                true => self.carry_in(fd),
                false => self.carry_out(&named, fd),
            };
        };
        if named.regular {
            let mut ours = File::from(fd.try_clone_to_owned()?);
            file.seek(SeekFrom::Start(ours.stream_position()?))?;
            self.carried.positions.push((ours, file.try_clone()?));
        }
        Ok(file.into())
    }

    /// A pipe whose bytes go where a descriptor leads. Two that lead to the same place share one,
    /// so that what is written stays in order.
    fn carry_out(&mut self, named: &Named, fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let same = |(identity, flags, _): &&((u64, u64), i32, OwnedFd)| {
            (*identity, *flags) == (named.identity, named.flags)
        };
        if let Some((_, _, known)) = self.pipes.iter().find(same) {
            return known.try_clone();
        }
        let (from, end) = io::pipe()?;
        let pipe = Arc::new(Mutex::new(from));
        self.carried.outputs.push(Output {
            pipe: Arc::downgrade(&pipe),
            thread: carry_over(pipe, File::from(fd.try_clone_to_owned()?))?,
        });
        let end = OwnedFd::from(end);
        let known = (named.identity, named.flags, end.try_clone()?);
        self.pipes.push(known);
        Ok(end)
    }

    /// A pipe that brings what a descriptor has to read.
    fn carry_in(&mut self, fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let (end, to) = io::pipe()?;
        let from = File::from(fd.try_clone_to_owned()?);
        self.inputs.push((from, to));
        Ok(end.into())
    }

    /// Begins to read for a command that will run. Says what is to be done when it has ended.
    pub(crate) fn begin(&mut self) -> io::Result<Carried> {
        for (from, to) in self.inputs.drain(..) {
            // It ends when the command has gone or the input is over; nothing depends on it.
            carry(from, to)?;
        }
        Ok(std::mem::take(&mut self.carried))
    }
}

/// How long a command's end waits for somebody to take what it wrote.
const ARRIVAL: Duration = Duration::from_secs(2);

/// Carries over what comes out of a pipe until nobody writes any more.
fn carry_over(
    pipe: Arc<Mutex<io::PipeReader>>,
    mut to: impl Write + Send + 'static,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let waiting = pipe
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_fd()
        .try_clone_to_owned()?;
    let pump = move || {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            poll::readable(&[waiting.as_fd()], None)?;
            let mut from = pipe.lock().unwrap_or_else(PoisonError::into_inner);
            match from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(got) => to.write_all(&buffer[..got])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    };
    // Signals are for the thread that waits for the command.
    mask::without_signals(|| std::thread::Builder::new().spawn(pump))
}

fn carry(
    mut from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
) -> io::Result<JoinHandle<io::Result<()>>> {
    // Not by splicing: that takes the position of a file before it waits for bytes, and would then
    // write over what others, who share the open file, have written meanwhile.
    let pump = move || {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(got) => to.write_all(&buffer[..got])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    };
    // Signals are for the thread that waits for the command.
    mask::without_signals(|| std::thread::Builder::new().spawn(pump))
}

/// Whether a world can write this file of the host's anyway.
fn is_writable(layout: &Layout, path: &Path) -> bool {
    matches!(
        layout.nearest(path),
        Some((_, What::Host { writable: true } | What::Anchored))
    )
}
