//! The life of the service: one for each home, from its lock to the end of its last world.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use listenfd::ListenFd;
use substrate_broker::Home;
use substrate_sys::{identity, unix_sockets};
use substrate_warm::keep::Keeper;
use substrate_warm::lend;
use substrate_warm::sockets::{API, Place, WORLDS};

use crate::lock::Lock;
use crate::service::Service;
use crate::setup::Setup;
use crate::{http, ready};

/// How often worlds are looked after.
const ROUND: Duration = Duration::from_secs(2);
/// What running commands have for their end once the service is to end.
const DRAIN: Duration = Duration::from_secs(10);

/// Why there is no service.
#[derive(Debug, thiserror::Error)]
pub enum NoService {
    /// There is one already.
    #[error("a service already runs for {}", .0.display())]
    Running(PathBuf),
    /// It cannot have what it needs.
    #[error("the service cannot {what}: {source}")]
    Cannot {
        /// What could not be done.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

fn cannot(what: &'static str) -> impl FnOnce(io::Error) -> NoService {
    move |source| NoService::Cannot { what, source }
}

/// Serves until somebody ends it.
pub fn run(setup: Setup) -> Result<(), NoService> {
    let home = setup.home.path.clone();
    setup
        .home
        .ensure(&home)
        .map_err(cannot("make its directory"))?;
    let place = Place::make(&home).map_err(cannot("open the directory of its sockets"))?;
    let lock = Lock::take(&place.path(""), &setup.version).map_err(cannot("take its lock"))?;
    let lock = lock.ok_or_else(|| NoService::Running(home.clone()))?;
    let given = ListenFd::from_env().take_unix_listener(0);
    let given = given.map_err(cannot("take the socket that it was given"))?;
    let own_socket = given.is_none();
    let api = match given {
        Some(listener) => unix_sockets::take_over(listener.as_fd()).map(|()| listener),
        None => place.listen(),
    };
    let api = api.map_err(cannot("listen for the API"))?;
    let borrowers = place
        .listen_for_borrowers()
        .map_err(cannot("listen for borrowers"))?;
    let borrowers = Arc::new(borrowers);
    let links = links(&setup.home, &place.path(API));
    let keeper = Arc::new(Keeper::new(
        setup.home.clone(),
        Arc::clone(&setup.worlds),
        setup.bounds,
    ));
    let service = Service::new(&setup, Arc::clone(&keeper));
    let service = Arc::new(service);
    lend_on_a_thread(&keeper, &borrowers).map_err(cannot("start a thread"))?;
    let stands = Stands {
        lock,
        sockets: [API, WORLDS].map(|name| Socket::of(&place.path(name))),
    };
    look_after(&service, stands, setup.idle).map_err(cannot("start a thread"))?;
    let served = http::serve(&service, api, ready::ready);
    ready::stopping();
    // What was taken down here must not be taken for the service's by the next client.
    if own_socket {
        place.forget(API);
    }
    place.forget(WORLDS);
    links
        .iter()
        .for_each(|link| drop(std::fs::remove_file(link)));
    unix_sockets::shut(borrowers.as_fd());
    service.drain(DRAIN);
    keeper.end_all();
    served.map_err(cannot("serve its socket"))
}

fn lend_on_a_thread(keeper: &Arc<Keeper>, borrowers: &Arc<OwnedFd>) -> io::Result<()> {
    let (keeper, borrowers) = (Arc::clone(keeper), Arc::clone(borrowers));
    let lend = move || {
        if let Err(error) = lend::serve(&keeper, &borrowers) {
            crate::log(&format!("no more worlds are lent: {error}"));
        }
    };
    std::thread::Builder::new()
        .name("substrate-lender".to_owned())
        .spawn(lend)
        .map(drop)
}

/// A socket as it was when it was made.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    path: PathBuf,
    file: Option<(u64, u64)>,
}

impl Socket {
    fn of(path: &Path) -> Socket {
        let file = std::fs::symlink_metadata(path).ok();
        Socket {
            path: path.to_owned(),
            file: file.map(|file| (file.dev(), file.ino())),
        }
    }
}

/// What has to stand where others look for it, or they will never find this service again.
struct Stands {
    lock: Lock,
    sockets: [Socket; 2],
}

impl Stands {
    fn all(&self) -> bool {
        let there = |socket: &Socket| Socket::of(&socket.path) == *socket;
        self.lock.stands() && self.sockets.iter().all(there)
    }
}

/// Ends worlds that nobody needs, and the service when nobody can find or needs it.
fn look_after(service: &Arc<Service>, stands: Stands, idle: Option<Duration>) -> io::Result<()> {
    let service = Arc::clone(service);
    let rounds = move || {
        while !service.is_ending() {
            std::thread::sleep(ROUND);
            service.keeper.sweep();
            let unneeded = idle.is_some_and(|idle| service.unused_for() >= idle);
            if unneeded || !stands.all() {
                service.end();
            }
        }
    };
    std::thread::Builder::new()
        .name("substrate-rounds".to_owned())
        .spawn(rounds)
        .map(drop)
}

/// Other names of the socket, for the user's own home only: the runtime directory, and as root the one
/// that everybody knows.
fn links(home: &Home, socket: &Path) -> Vec<PathBuf> {
    if home.path != home.user.join(".substrate") {
        return Vec::new();
    }
    let mut wanted = Vec::new();
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        let directory = Path::new(&runtime).join("substrate");
        let made = std::fs::create_dir(&directory);
        if made.is_ok() || directory.is_dir() {
            wanted.push(directory.join(API));
        }
    }
    if identity::effective_user_id() == 0 {
        wanted.push(PathBuf::from("/run/substrate.sock"));
    }
    let link = |name: &PathBuf| {
        let ours = std::fs::symlink_metadata(name).is_ok_and(|about| about.is_symlink());
        if ours {
            let _ = std::fs::remove_file(name);
        }
        symlink(socket, name).is_ok()
    };
    wanted.retain(link);
    wanted
}
