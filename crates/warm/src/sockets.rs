//! Where the sockets of the service lie, and whom one meets there.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use substrate_broker::Caller;
use substrate_sys::{flags, identity, unix_sockets};

/// The socket of the API.
pub const API: &str = "agent.sock";
/// The socket at which worlds are borrowed.
pub const WORLDS: &str = "worlds.sock";

/// The directory of the sockets that belong to a home.
#[derive(Debug)]
pub struct Place {
    directory: File,
    path: PathBuf,
}

impl Place {
    /// The directory below this home, if it is there and nobody else's.
    pub fn open(home: &Path) -> io::Result<Place> {
        let path = home.join("sock");
        let mut options = fs::OpenOptions::new();
        let flags = flags::O_DIRECTORY | flags::O_NOFOLLOW | flags::O_CLOEXEC;
        let directory = options.read(true).custom_flags(flags).open(&path)?;
        let about = directory.metadata()?;
        if about.uid() != identity::effective_user_id() || about.mode() & 0o077 != 0 {
            let text = format!("{} is not a directory of this user's alone", path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(Place { directory, path })
    }

    /// The same, made where it is not there.
    pub fn make(home: &Path) -> io::Result<Place> {
        let made = DirBuilder::new().mode(0o700).create(home.join("sock"));
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Place::open(home),
        }
    }

    /// The path of a socket or file there, as people know it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The same through the open directory: the address of a socket is short, homes need not be, and nobody can
    /// put another directory in its place.
    fn short(&self, name: &str) -> PathBuf {
        PathBuf::from(format!(
            "/proc/self/fd/{}/{name}",
            self.directory.as_raw_fd()
        ))
    }

    /// Listens for the API. Whatever was there is gone; the caller holds the lock.
    pub fn listen(&self) -> io::Result<UnixListener> {
        self.forget(API);
        UnixListener::bind(self.short(API))
    }

    /// Listens for borrowers.
    pub fn listen_for_borrowers(&self) -> io::Result<OwnedFd> {
        self.forget(WORLDS);
        unix_sockets::listen_for_messages(&self.short(WORLDS))
    }

    /// Removes a socket that nobody listens at any more.
    pub fn forget(&self, name: &str) {
        let _ = fs::remove_file(self.path(name));
    }

    /// A connection to the API.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(self.short(API))?;
        is_the_service(stream.as_fd())?;
        Ok(stream)
    }

    /// A connection to who keeps worlds.
    pub fn connect_to_borrow(&self) -> io::Result<OwnedFd> {
        let socket = unix_sockets::connect_for_messages(&self.short(WORLDS))?;
        is_the_service(socket.as_fd())?;
        Ok(socket)
    }
}

/// The kind of error for a service whose program file was replaced by ours: it should end.
pub const REPLACED: io::ErrorKind = io::ErrorKind::StaleNetworkFileHandle;

/// Whether a process runs what lay where this program lies now.
pub fn was_ours(pid: u32) -> bool {
    let program = |process: &str| fs::read_link(format!("/proc/{process}/exe")).ok();
    let (ours, theirs) = (program("self"), program(&pid.to_string()));
    let before = ours.map(|mut ours| {
        ours.as_mut_os_string().push(" (deleted)");
        ours
    });
    before.is_some() && before == theirs
}

/// Whether this is a manager of services, which starts ours when somebody connects.
fn is_manager(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim().starts_with("systemd")
}

/// Whoever listens must be this very program, run by this user: what is sent to him is what a person types.
fn is_the_service(socket: impl AsFd) -> io::Result<()> {
    let refused = |what: &str| io::Error::new(io::ErrorKind::PermissionDenied, what.to_owned());
    let peer = Caller::peer(socket)?;
    if is_manager(peer.pid()) {
        // It holds the socket until the service, which this connection starts, has taken it over.
        return Err(io::Error::new(
            io::ErrorKind::NotConnected,
            "the service is being started",
        ));
    }
    if peer.uid() != identity::effective_user_id() {
        return Err(refused("another user listens at the service's socket"));
    }
    let identity = |path: String| fs::metadata(path).map(|about| (about.dev(), about.ino()));
    let ours = identity("/proc/self/exe".to_owned())?;
    let theirs = identity(format!("/proc/{}/exe", peer.pid()));
    if theirs.ok() != Some(ours) {
        return Err(match was_ours(peer.pid()) {
            true => io::Error::new(REPLACED, "the service is of a version that was replaced"),
            false => refused("another program listens at the service's socket"),
        });
    }
    match peer.is_alive() {
        true => Ok(()),
        false => Err(io::ErrorKind::ConnectionReset.into()),
    }
}
