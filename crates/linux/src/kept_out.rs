//! Names that a policy protects and that nothing has yet. A mount needs something to lie on, so whatever
//! comes into being under such a name in a session's project is put aside as soon as it is there: under another
//! name beside it, where nothing believes it and nothing is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use substrate_changes::remove;
use substrate_sys::at::{self, Rename};
use substrate_sys::epoll::EventFd;
use substrate_sys::flags;
use substrate_sys::inotify::Arrivals;
use substrate_sys::poll::{self, Wanted};
use substrate_world::backend::PutAside;

/// What is added to the name of what was put aside.
const SUFFIX: &str = ".refused";
/// How many of one name are kept; whoever goes on making them loses them.
const MOST_OF_ONE: usize = 16;

/// Watches the names of one world until it is dropped.
#[derive(Debug)]
pub struct KeptOut {
    names: Arc<Names>,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

/// The directories, held open: what is renamed meanwhile stays watched.
#[derive(Debug)]
struct Names {
    dirs: Vec<Dir>,
    put_aside: Mutex<BTreeSet<PutAside>>,
}

#[derive(Debug)]
struct Dir {
    path: PathBuf,
    open: File,
    names: Vec<OsString>,
}

impl KeptOut {
    /// Watches these paths, none of which exists. A directory that is gone needs no watching.
    pub fn watch(paths: BTreeSet<PathBuf>) -> io::Result<Option<KeptOut>> {
        let mut by_dir: BTreeMap<&Path, Vec<OsString>> = BTreeMap::new();
        for path in &paths {
            if let (Some(dir), Some(name)) = (path.parent(), path.file_name()) {
                by_dir.entry(dir).or_default().push(name.to_owned());
            }
        }
        let arrivals = Arrivals::new()?;
        let mut dirs = Vec::new();
        for (path, names) in by_dir {
            let open = match open_dir(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                open => open?,
            };
            // The directory that was opened, whatever the name leads to by now.
            arrivals.watch(format!("/proc/self/fd/{}", open.as_raw_fd()))?;
            let path = path.to_owned();
            dirs.push(Dir { path, open, names });
        }
        if dirs.is_empty() {
            return Ok(None);
        }
        let names = Arc::new(Names {
            dirs,
            put_aside: Mutex::default(),
        });
        let stop = Arc::new(EventFd::new()?);
        let (ours, end) = (Arc::clone(&names), Arc::clone(&stop));
        let builder = std::thread::Builder::new().name("kept-out".to_owned());
        let thread = builder.spawn(move || serve(&arrivals, &ours, &end))?;
        Ok(Some(KeptOut {
            names,
            stop,
            thread: Some(thread),
        }))
    }

    /// Everything that was put aside since the world began, with what is there right now.
    pub fn sweep(&self) -> Vec<PutAside> {
        self.names.sweep();
        let found = self.names.put_aside.lock();
        let found = found.unwrap_or_else(PoisonError::into_inner);
        found.iter().cloned().collect()
    }
}

impl Drop for KeptOut {
    fn drop(&mut self) {
        self.stop.signal();
        let _ = self.thread.take().map(JoinHandle::join);
        self.names.sweep();
    }
}

fn open_dir(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags::O_DIRECTORY | flags::O_NOFOLLOW)
        .open(path)
}

fn serve(arrivals: &Arrivals, names: &Names, stop: &EventFd) {
    loop {
        let mut wanted = [Wanted::read(arrivals.as_fd()), Wanted::read(stop.as_fd())];
        match poll::wait(&mut wanted).as_deref() {
            Ok([_, false]) => {}
            _ => return,
        }
        arrivals.clear();
        names.sweep();
    }
}

impl Names {
    fn sweep(&self) {
        for dir in &self.dirs {
            for name in &dir.names {
                // What is made while it is put aside is found the next time round.
                if at::stat(&dir.open, name).is_ok() {
                    let found = dir.put_aside(name);
                    let mut known = self
                        .put_aside
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    known.insert(found);
                }
            }
        }
    }
}

impl Dir {
    fn put_aside(&self, name: &OsStr) -> PutAside {
        let mut moved = self.rename(name);
        let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        if moved.as_ref().is_err_and(denied) && self.reopen_for_us().is_ok() {
            moved = self.rename(name);
        }
        let (now, error) = match moved {
            Ok(now) => (now.map(|now| self.path.join(now)), None),
            // Gone by itself in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => (None, None),
            Err(error) => (None, Some(error.to_string())),
        };
        PutAside {
            path: self.path.join(name),
            now,
            error,
        }
    }

    /// Its new name, or none where too many were kept already.
    fn rename(&self, name: &OsStr) -> io::Result<Option<OsString>> {
        for count in 0..MOST_OF_ONE {
            let mut aside = name.to_owned();
            aside.push(SUFFIX);
            if count > 0 {
                aside.push(format!("-{count}"));
            }
            match at::rename(&self.open, name, &self.open, &aside, Rename::NoReplace) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                done => return done.map(|()| Some(aside)),
            }
        }
        remove::remove(&self.open, name)?;
        Ok(None)
    }

    /// A directory of this user's from which he took his own right to write.
    fn reopen_for_us(&self) -> io::Result<()> {
        let mode = self.open.metadata()?.permissions().mode();
        self.open
            .set_permissions(Permissions::from_mode(mode & 0o7777 | 0o700))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn watch(dir: &Path, names: &[&str]) -> KeptOut {
        let paths = names.iter().map(|name| dir.join(name)).collect();
        KeptOut::watch(paths).unwrap().unwrap()
    }

    fn until(what: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !what() {
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_appears_under_a_watched_name_is_put_aside_at_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let kept_out = watch(dir.path(), &["commondir", "hooks"]);
        fs::write(at("commondir"), "../evil").unwrap();
        until(|| !at("commondir").exists());
        fs::write(at("index"), "").unwrap();
        fs::create_dir(at("other")).unwrap();
        fs::write(at("other/pre-commit"), "evil").unwrap();
        fs::rename(at("other"), at("hooks")).unwrap();
        until(|| !at("hooks").exists());
        std::os::unix::fs::symlink("index", at("commondir")).unwrap();
        until(|| at("commondir.refused-1").is_symlink());
        assert_eq!(fs::read(at("commondir.refused")).unwrap(), b"../evil");
        assert!(at("hooks.refused/pre-commit").exists() && at("index").exists());
        let found = kept_out.sweep();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().all(|aside| aside.error.is_none()));
        assert!(found.iter().any(|aside| aside.path == at("hooks")
            && aside.now.as_deref() == Some(at("hooks.refused").as_path())));
    }

    #[test]
    fn no_trick_with_the_directory_keeps_a_name_there() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let kept_out = watch(&inner, &["name"]);
        let moved = dir.path().join("moved");
        fs::rename(&inner, &moved).unwrap();
        fs::write(moved.join("name"), "").unwrap();
        until(|| !moved.join("name").exists());
        // Made by whoever owns the directory, and closed behind him.
        fs::write(moved.join("x"), "").unwrap();
        fs::rename(moved.join("x"), moved.join("name")).unwrap();
        fs::set_permissions(&moved, Permissions::from_mode(0o500)).unwrap();
        until(|| {
            kept_out.sweep();
            !moved.join("name").exists()
        });
        fs::set_permissions(&moved, Permissions::from_mode(0o700)).unwrap();
        for _ in 0..2 * MOST_OF_ONE {
            // It may be gone between the two steps.
            let _ = fs::create_dir_all(moved.join("name/deep"));
            kept_out.sweep();
            until(|| !moved.join("name").exists());
        }
        assert!(fs::read_dir(&moved).unwrap().count() <= MOST_OF_ONE);
        drop(kept_out);
        fs::write(moved.join("name"), "nobody watches any more").unwrap();
    }
}
