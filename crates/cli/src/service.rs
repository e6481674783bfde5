//! The service of this user: found, started where it is needed, and asked.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use substrate_broker::Home;
use substrate_broker::env::{SUBSTRATE_HOME, SUBSTRATE_SERVICE};
use substrate_daemon::{lock, ready};
use substrate_executor::front::{Front, Kind};
use substrate_sys::process_group::readable;
use substrate_sys::{flags, pidfd, process_group, signals, start};
use substrate_warm::borrow::{Cold, Lender};
use substrate_warm::sockets::{Place, REPLACED, was_ours};

use crate::failure::Failure;

/// How long a service may take to listen.
const STARTING: Duration = Duration::from_secs(5);
/// Ends itself when nobody has needed it for so many seconds.
const IDLE: u64 = 600;
/// Longest log that is kept when a service starts.
const LONGEST_LOG: u64 = 1 << 20;

/// Variables that a service is started with; commands get theirs from whoever asks for them.
const HANDED_ON: [&str; 17] = [
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    SUBSTRATE_HOME,
    "SUBSTRATE_HEAVY_ISOLATION",
    "SUBSTRATE_TEST_WORLD_LEVEL",
];

/// Whether the service is used at all by this process.
pub fn is_wanted() -> bool {
    std::env::var_os(SUBSTRATE_SERVICE).is_none_or(|value| value != "off")
}

/// Where the service of a home keeps its log.
pub fn log_file(home: &Path) -> PathBuf {
    home.join("service.log")
}

/// The service of a home, as who keeps worlds.
pub struct Keepers {
    home: PathBuf,
}

impl Keepers {
    /// Of this home.
    pub fn of(home: &Home) -> Keepers {
        Keepers {
            home: home.path.clone(),
        }
    }
}

impl Lender for Keepers {
    fn connect(&self) -> Result<OwnedFd, String> {
        let connect = || Place::open(&self.home)?.connect_to_borrow();
        reach(&self.home, &connect).map_err(|error| error.to_string())
    }

    fn missed(&self, front: &dyn Front, observes: bool, missed: &Cold) {
        static SAID: AtomicBool = AtomicBool::new(false);
        // Word for word what programs that watch for it expect, once. Where a policy enforces, or a service that is
        // there has no world for this command, nothing ran differently, and there is nothing to warn of.
        let nobody = matches!(missed, Cold::Nobody(_));
        if observes && nobody && !SAID.swap(true, Ordering::Relaxed) {
            front.say(
                Kind::Info,
                "warn: shell world-agent exec failed, running direct",
            );
        }
    }
}

/// A connection to the API, for which a service is started if there is none.
pub fn connect(home: &Path) -> Result<UnixStream, Failure> {
    let connect = || Place::open(home)?.connect();
    reach(home, &connect).map_err(unreachable(home))
}

/// The same, where nothing is started.
pub fn find(home: &Path) -> Result<Option<UnixStream>, Failure> {
    match Place::open(home).and_then(|place| place.connect()) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(unreachable(home)(error)),
    }
}

fn unreachable(home: &Path) -> impl FnOnce(io::Error) -> Failure {
    let what = format!("the service of {}", home.display());
    move |error| Failure::File { what, error }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::NotConnected
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
    )
}

fn reach<T>(home: &Path, connect: &dyn Fn() -> io::Result<T>) -> io::Result<T> {
    match connect() {
        Err(error) if is_absent(&error) => {}
        Err(error) if error.kind() == REPLACED => {
            retire(home);
            return Err(error);
        }
        other => return other,
    }
    // Connecting is what has a manager of services start ours.
    let managed = Place::open(home).and_then(|place| place.connect());
    if managed.is_err_and(|error| error.kind() != io::ErrorKind::NotConnected) {
        launch(home, Some(IDLE))?;
    }
    let end = Instant::now() + STARTING;
    loop {
        match connect() {
            Err(error) if is_absent(&error) && Instant::now() < end => {}
            other => return other,
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Has a service whose program was replaced end, once what runs there has: the next command starts ours.
fn retire(home: &Path) {
    let Ok(Some(holder)) = holder(home) else {
        return;
    };
    let Ok(pid) = i32::try_from(holder.pid) else {
        return;
    };
    // Held, so that its number cannot come to mean another process meanwhile.
    if let Ok(process) = pidfd::open(pid)
        && was_ours(holder.pid)
        && pidfd::is_alive(process.as_fd())
    {
        // One that has just ended needs no telling.
        let _ = process_group::send(pid, signals::TERMINATE);
    }
}

/// Starts a service, and waits until it listens or has found another that does.
pub fn launch(home: &Path, idle: Option<u64>) -> io::Result<()> {
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0_substrate()
        .args(["daemon", "run"])
        .env_clear()
        .envs(handed_on())
        .env(SUBSTRATE_HOME, home)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(log(home)?);
    if let Some(idle) = idle {
        command.arg(format!("--idle={idle}"));
    }
    start::as_nobodys_child(&mut command);
    let mut between = command.spawn()?;
    drop(command);
    between.wait()?;
    let mut said = Vec::new();
    if readable(&[reader.as_fd()], Some(STARTING))?.contains(&true) {
        (&reader)
            .take(ready::READY.len() as u64)
            .read_to_end(&mut said)?;
    }
    // One that ended at once found another; the connection tells.
    Ok(())
}

fn handed_on() -> Vec<(&'static str, OsString)> {
    let value = |name: &&'static str| Some((*name, std::env::var_os(name)?));
    HANDED_ON.iter().filter_map(value).collect()
}

fn log(home: &Path) -> io::Result<File> {
    let path = log_file(home);
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    options.custom_flags(flags::O_NOFOLLOW | flags::O_CLOEXEC);
    let file = options.open(path)?;
    if file.metadata()?.len() > LONGEST_LOG {
        file.set_len(0)?;
    }
    Ok(file)
}

/// The service that runs for a home, if one does.
pub fn holder(home: &Path) -> io::Result<Option<lock::Holder>> {
    match Place::open(home) {
        Ok(place) => lock::holder(&place.path("")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Names a program as people know it, in lists of processes.
trait Named {
    fn arg0_substrate(&mut self) -> &mut Self;
}

impl Named for Command {
    fn arg0_substrate(&mut self) -> &mut Self {
        std::os::unix::process::CommandExt::arg0(self, "substrate")
    }
}
