//! Whether a person sits at this terminal and nobody who is guarded could answer for him.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use substrate_sys::{process_group, terminal};

use super::caller::Caller;
use super::enclosure::Trace;
use super::process::{Stat, chain_of};

/// Why nothing can be approved, trusted or changed from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Barrier {
    /// A session encloses this process.
    #[error("a Substrate session encloses this process ({}); use a terminal outside it, or the session's own prompt", how(.0))]
    Enclosed(Trace),
    /// There is no terminal.
    #[error("there is no terminal here that a person could answer at")]
    NoTerminal,
    /// Another program has the terminal.
    #[error("this process runs in the background of its terminal")]
    Background,
}

fn how(trace: &Trace) -> String {
    match trace {
        Trace::World => "this is a world".to_owned(),
        Trace::Ancestor(pid) => format!("process {pid} above it is Substrate"),
        Trace::Started(pid) => format!("Substrate started process {pid}"),
        Trace::Gone => "it has ended".to_owned(),
        Trace::Mark => {
            "it carries the mark of one: a real-time limit, see `ulimit -H -R`".to_owned()
        }
    }
}

/// What stands between a caller and a person. The kernel is asked; only the absence of a terminal is
/// told apart by opening it. Ours is not the terminal of whoever asks through a socket.
pub fn barrier(caller: &Caller) -> Option<Barrier> {
    barrier_of(caller, caller.enclosure())
}

/// The same where it is known which session encloses the caller, if one does.
pub fn barrier_of(caller: &Caller, enclosed: Option<Trace>) -> Option<Barrier> {
    enclosed
        .map(Barrier::Enclosed)
        .or_else(|| match caller.is_own() {
            true => no_terminal(),
            false => Some(Barrier::NoTerminal),
        })
}

/// Whether nobody can be asked on the terminal.
pub fn no_terminal() -> Option<Barrier> {
    let Ok(tty) = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/tty")
    else {
        return Some(Barrier::NoTerminal);
    };
    if terminal::foreground(&tty).ok() != Some(process_group::own_group()) {
        return Some(Barrier::Background);
    }
    None
}

/// The engine behind our own prompt, which has the terminal and waits while a person is asked.
static ENGINE: AtomicU32 = AtomicU32::new(0);

/// Says which process on the terminal is the engine that waits for us.
pub fn engine_waits(pid: u32) {
    ENGINE.store(pid, Ordering::Relaxed);
}

/// Watches, from before a question stands on the screen until it is answered, whether somebody else
/// could have typed the answer.
#[derive(Debug)]
pub struct Watch {
    crowded: bool,
    engine: u32,
    switches: Option<u64>,
}

impl Watch {
    /// Begins to watch. What was typed before must be dropped after this.
    pub fn begin() -> Self {
        let engine = ENGINE.load(Ordering::Relaxed);
        let mut switches = switches(engine);
        // It may be on its way to sleep; what it does from then on is somebody's doing.
        for _ in 0..SETTLING {
            std::thread::sleep(Duration::from_millis(10));
            let now = self::switches(engine);
            if std::mem::replace(&mut switches, now) == now {
                break;
            }
        }
        Self {
            crowded: others_on_the_terminal(engine),
            engine,
            switches,
        }
    }

    /// Whether keys could have come from a program: the kernel permits it, and another process has the
    /// terminal, or the engine has done something, such as run a trap, while it had nothing to do.
    pub fn keys_could_be_faked(&self) -> bool {
        programs_may_type()
            && (self.crowded
                || others_on_the_terminal(self.engine)
                || (self.engine != 0 && switches(self.engine) != self.switches))
    }
}

/// How often we look whether the engine has come to rest.
const SETTLING: u32 = 30;

/// Whether the kernel lets programs type into their terminal (`TIOCSTI`).
pub fn programs_may_type() -> bool {
    fs::read("/proc/sys/dev/tty/legacy_tiocsti").map_or(true, |value| value.trim_ascii() != b"0")
}

/// How often a process was given or gave up the processor; `None` when it is gone.
fn switches(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let counts = status
        .lines()
        .filter(|line| line.contains("ctxt_switches:"))
        .filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    Some(counts.sum())
}

/// Whether anybody has our terminal but us, those above us, who were there before us, and the engine.
fn others_on_the_terminal(engine: u32) -> bool {
    let Some(own) = Stat::of("self").filter(|own| own.terminal != 0) else {
        return false;
    };
    let mut known: Vec<u32> = chain_of(std::process::id()).collect();
    known.extend([std::process::id(), engine]);
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            name.as_bytes()
                .iter()
                .all(u8::is_ascii_digit)
                .then(|| name.to_str()?.parse::<u32>().ok())?
        })
        .filter(|pid| !known.contains(pid))
        .filter_map(|pid| Stat::of(&pid.to_string()))
        // A terminal belongs to one session; the number alone is also that of other worlds' terminals.
        .any(|stat| stat.terminal == own.terminal && stat.session == own.session && !stat.ended)
}
