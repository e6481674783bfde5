//! What is recorded around a command beyond its line: what its streams led to and what passed
//! through them, and which programs it named.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use substrate_broker::Evaluation;
use substrate_command::is_builtin;
use substrate_policy::settings::OutputRecord;
use substrate_snapshots::Capture;
use substrate_sys::mask;
use substrate_sys::usage::{self, Usage};
use substrate_trace::{FsDiff, Key, Output, SpanInfo, Stdin, Used, Via};
use substrate_world::backend::Tap;

use crate::front::{Kind, OwnStreams};
use crate::session::Session;

/// Longer files on standard input, or that output went to, are not read for their digest.
const MOST: u64 = 256 << 20;

/// The digest of a file that is standard input, from where the command will read it.
fn stdin_content(file: &File, key: &Key) -> Option<Stdin> {
    let meta = file.metadata().ok().filter(|meta| meta.is_file())?;
    let start = { file }.stream_position().ok()?;
    let capture = range(file, start, meta.len())?;
    let stream = capture.stream(key, Via::File);
    Some(Stdin::Content {
        digest: stream.digest,
        bytes: stream.bytes,
    })
}

/// Reads a part of a file without moving its position.
fn range(file: &File, start: u64, end: u64) -> Option<Capture> {
    part(file, start, end, false)
}

fn part(file: &File, start: u64, end: u64, copy: bool) -> Option<Capture> {
    let length = end.checked_sub(start).filter(|length| *length <= MOST)?;
    let mut capture = Capture::new(copy);
    let reader = At { file, at: start };
    capture.feed_from(reader.take(length)).ok()?;
    Some(capture)
}

struct At<'a> {
    file: &'a File,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Notes in a span what a replay compares with today: the kernel, the programs that the line
/// names, and the digest of a file on standard input.
pub fn circumstances(
    session: &Session,
    evaluation: &Evaluation,
    program: &Path,
    span: &mut SpanInfo,
) {
    let search_path = session.search_path();
    let mut paths = vec![program.to_owned()];
    for invocation in &evaluation.line.invocations {
        let name = invocation.argv.first().and_then(|word| word.value());
        if let Some(name) = name.filter(|name| !is_builtin(name)) {
            let name = OsString::from_vec(name.to_vec());
            paths.extend(evaluation.program(&name, &search_path, &span.cwd));
        }
    }
    let Some(replay) = &mut span.replay else {
        return;
    };
    replay.tools = substrate_snapshots::tools(&session.broker.home().path, &paths);
    replay.world_image_version = Some(image("direct"));
    if replay.stdin == Stdin::Unknown
        && let Some((file, key)) = session.front.stdin_file().zip(session.key())
        && let Some(content) = stdin_content(&file, &key)
    {
        replay.stdin = content;
    }
}

/// What a command used of files, as far as what changed tells.
pub fn write_scopes(diff: Option<&FsDiff>) -> impl Iterator<Item = OsString> {
    let changed = diff.into_iter().flat_map(|diff| {
        let FsDiff {
            writes,
            mods,
            deletes,
            ..
        } = diff;
        writes.iter().chain(mods).chain(deletes)
    });
    changed.map(|path| {
        let mut scope = OsString::from("fs.write:");
        scope.push(path);
        scope
    })
}

/// What our children used since then. The memory is that of the largest of them all, so it is known only
/// where none before was as large.
pub fn used_since(before: Usage) -> Used {
    let now = usage::of_children();
    Used {
        cpu: now.cpu.saturating_sub(before.cpu),
        memory: (now.memory > before.memory).then_some(now.memory),
    }
}

/// The kernel, and what a command runs in.
pub fn image(level: &str) -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("linux-{}/{level}", kernel.trim())
}

/// Follows what a command prints.
#[derive(Default)]
pub struct Recording {
    copy: bool,
    sources: [Source; 2],
    merged: bool,
    /// Streams that lead through us meanwhile, and what they were.
    taken: Vec<(u8, OwnedFd)>,
    /// Whose streams they are.
    own: Option<Box<dyn OwnStreams>>,
}

#[derive(Default)]
enum Source {
    #[default]
    Nothing,
    /// Read when the command has ended.
    File(File, u64),
    /// Read as it passes.
    Pipe(JoinHandle<Capture>),
    Terminal(Arc<Mutex<Capture>>),
}

impl Recording {
    /// Begins, where the policy or `--record` wants it. The streams of a command outside worlds are
    /// left alone unless a person said `--record`; files are read afterwards.
    pub fn begin(session: &Session, own: Box<dyn OwnStreams>, world: bool) -> Self {
        let wanted = session.output_record();
        if wanted == OutputRecord::Off || session.key().is_none() {
            return Self::default();
        }
        let (Ok(stdout), Ok(stderr)) = (own.copy(1), own.copy(2)) else {
            return Self::default();
        };
        let mut this = Self {
            copy: wanted == OutputRecord::Bounded,
            own: Some(own),
            ..Self::default()
        };
        let found = [stdout.as_fd(), stderr.as_fd()].map(|fd| Some((via(fd)?, status(fd).ok()?)));
        if let [Some((via, one)), Some((_, other))] = &found {
            let same =
                (one.dev(), one.ino(), one.rdev()) == (other.dev(), other.ino(), other.rdev());
            // One terminal serves both streams in a world, whatever they are here.
            this.merged =
                same || *via == Via::Terminal && found[1].as_ref().is_some_and(|f| f.0 == *via);
        }
        for (at, fd) in [stdout.as_fd(), stderr.as_fd()].into_iter().enumerate() {
            let Some((via, _)) = found[at].as_ref().filter(|_| at == 0 || !this.merged) else {
                continue;
            };
            this.sources[at] = match via {
                Via::File => {
                    file(fd).map_or(Source::Nothing, |(file, start)| Source::File(file, start))
                }
                Via::Pipe if world || session.record => {
                    this.follow(at as u8 + 1).unwrap_or_default()
                }
                Via::Terminal if world => {
                    Source::Terminal(Arc::new(Mutex::new(Capture::new(this.copy))))
                }
                Via::Terminal if session.record => {
                    session.front.say(
                        Kind::Warning,
                        "what goes to the terminal is not recorded: --record follows pipes and files",
                    );
                    Source::Nothing
                }
                Via::Pipe | Via::Terminal => Source::Nothing,
            };
        }
        this
    }

    /// Begins for a line at the prompt of a session world, whose terminal passes through us.
    pub fn begin_at_prompt(session: &Session) -> Self {
        let wanted = session.output_record();
        if wanted == OutputRecord::Off || session.key().is_none() {
            return Self::default();
        }
        let copy = wanted == OutputRecord::Bounded;
        let capture = Arc::new(Mutex::new(Capture::new(copy)));
        Self {
            copy,
            sources: [Source::Terminal(capture), Source::Nothing],
            merged: true,
            taken: Vec::new(),
            own: None,
        }
    }

    /// Leads a stream, and its twin, through this process.
    fn follow(&mut self, number: u8) -> io::Result<Source> {
        let Some(own) = &self.own else {
            return Ok(Source::Nothing);
        };
        let (mut from, end) = io::pipe()?;
        let before = own.replace(number, end.as_fd())?;
        let mut to = File::from(before.try_clone()?);
        self.taken.push((number, before));
        if self.merged {
            self.taken.push((2, own.replace(2, end.as_fd())?));
        }
        let copy = self.copy;
        // Signals are for the thread that waits for the command.
        let pump = move || {
            let mut capture = Capture::new(copy);
            let mut buffer = vec![0; 64 << 10];
            while let Ok(read @ 1..) = from.read(&mut buffer) {
                capture.feed(&buffer[..read]);
                // Nobody listens any more; the command learns it as it would have.
                if to.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
            capture
        };
        let thread = mask::without_signals(|| std::thread::Builder::new().spawn(pump))?;
        Ok(Source::Pipe(thread))
    }

    /// Listens to a world's terminal.
    pub fn tap(&self) -> Option<Tap> {
        let terminal = self.sources.iter().find_map(|source| match source {
            Source::Terminal(capture) => Some(capture.clone()),
            _ => None,
        })?;
        Some(Tap(Box::new(move |bytes| {
            let mut capture = terminal.lock().unwrap_or_else(PoisonError::into_inner);
            capture.feed(bytes);
        })))
    }

    /// What was printed. Waits until everything that still writes has ended.
    pub fn finish(mut self, session: &Session) -> Output {
        for (number, before) in self.taken.drain(..) {
            // What we say from here on is our own.
            let _ = self.own.as_ref().map(|own| own.put_back(number, before));
        }
        let Some(key) = session.key() else {
            return Output::Off;
        };
        let copy = self.copy;
        let [stdout, stderr] = self.sources.map(|source| {
            let (capture, via) = match source {
                Source::Nothing => return None,
                Source::File(file, start) => (written(&file, start, copy)?, Via::File),
                Source::Pipe(thread) => (thread.join().ok()?, Via::Pipe),
                Source::Terminal(capture) => {
                    let mut capture = capture.lock().unwrap_or_else(PoisonError::into_inner);
                    (std::mem::take(&mut *capture), Via::Terminal)
                }
            };
            Some(capture.stream(&key, via))
        });
        match (&stdout, &stderr) {
            (None, None) => Output::Off,
            _ => Output::Recorded {
                merged: self.merged && stdout.is_some(),
                stdout,
                stderr,
            },
        }
    }
}

/// What a descriptor leads to.
fn status(fd: BorrowedFd<'_>) -> io::Result<Metadata> {
    File::from(fd.try_clone_to_owned()?).metadata()
}

/// What a stream leads to; `None` for what says nothing, such as `/dev/null`.
fn via(fd: BorrowedFd<'_>) -> Option<Via> {
    let kind = status(fd).ok()?.file_type();
    match () {
        () if kind.is_file() => Some(Via::File),
        () if kind.is_fifo() || kind.is_socket() => Some(Via::Pipe),
        () if fd.is_terminal() => Some(Via::Terminal),
        () => None,
    }
}

/// A file that is written to, and where the next byte goes.
fn file(fd: BorrowedFd<'_>) -> Option<(File, u64)> {
    use std::os::fd::AsRawFd;
    let file = File::from(fd.try_clone_to_owned().ok()?);
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let flags = i32::from_str_radix(flags.trim(), 8).ok()?;
    let start = match flags & substrate_sys::flags::O_APPEND != 0 {
        true => file.metadata().ok()?.len(),
        false => (&file).stream_position().ok()?,
    };
    Some((file, start))
}

/// What was written since. The command wrote through the same open file, so its position is ours.
fn written(file: &File, start: u64, copy: bool) -> Option<Capture> {
    use std::os::fd::AsRawFd;
    let end = { file }.stream_position().ok()?.max(start);
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    part(&File::open(path).ok()?, start, end, copy)
}
