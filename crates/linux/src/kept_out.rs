//! Names that a policy protects and that nothing has yet. A mount needs something to lie on, so whatever
//! comes into being under such a name in a session's project is put aside as soon as it is there: under another
//! name beside it, where nothing believes it and nothing is lost.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
/// How soon is looked again while somebody goes on making such names, and where the kernel has no more watches to
/// give: a user has 128 instances, and editors take many.
const AGAIN: Duration = Duration::from_millis(5);

/// Watches the names of one world until it is dropped.
#[derive(Debug)]
pub struct KeptOut {
    names: Arc<Names>,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Names {
    all: Vec<Name>,
    ears: Ears,
    put_aside: Mutex<BTreeSet<PutAside>>,
}

/// What hears of names that come into being.
#[derive(Debug)]
struct Ears {
    arrivals: Option<Arrivals>,
    /// Something is not heard of, and has to be looked at.
    deaf: AtomicBool,
}

impl Ears {
    fn new() -> Ears {
        let arrivals = Arrivals::new().ok();
        Ears {
            deaf: AtomicBool::new(arrivals.is_none()),
            arrivals,
        }
    }

    /// Listens to the directory that was opened, whatever its name leads to by now.
    fn hear(&self, dir: i32) {
        let heard = self
            .arrivals
            .as_ref()
            .map(|arrivals| arrivals.watch(format!("/proc/self/fd/{dir}")));
        if heard.is_none_or(|heard| heard.is_err()) {
            self.deaf.store(true, Ordering::Relaxed);
        }
    }
}

/// A name that nothing has yet, from the nearest directory that was there when the world began. That one is held
/// open: what is renamed meanwhile stays watched.
#[derive(Debug)]
struct Name {
    path: PathBuf,
    base: Arc<File>,
    rest: Vec<OsString>,
}

impl KeptOut {
    /// Watches these paths, none of which exists.
    pub fn watch(paths: &BTreeSet<PathBuf>) -> io::Result<Option<KeptOut>> {
        Self::with(Ears::new(), paths)
    }

    fn with(ears: Ears, paths: &BTreeSet<PathBuf>) -> io::Result<Option<KeptOut>> {
        let mut all: Vec<Name> = Vec::new();
        for path in paths {
            let known = |dir: &Path| all.iter().find(|name| name.base_path() == dir);
            let Some((base, rest)) = nearest(path) else {
                continue;
            };
            let open = match known(&base) {
                Some(name) => Arc::clone(&name.base),
                None => Arc::new(open_dir(&base)?),
            };
            ears.hear(open.as_raw_fd());
            all.push(Name {
                path: path.clone(),
                base: open,
                rest,
            });
        }
        if all.is_empty() {
            return Ok(None);
        }
        let names = Arc::new(Names {
            all,
            ears,
            put_aside: Mutex::default(),
        });
        // Directories on the way that came since are heard of from now on.
        names.sweep();
        let stop = Arc::new(EventFd::new()?);
        let (ours, end) = (Arc::clone(&names), Arc::clone(&stop));
        let builder = std::thread::Builder::new().name("kept-out".to_owned());
        let thread = builder.spawn(move || serve(&ours, &end))?;
        Ok(Some(KeptOut {
            names,
            stop,
            thread: Some(thread),
        }))
    }

    /// Everything that was put aside since the world began, with what is there right now.
    pub fn sweep(&self) -> Vec<PutAside> {
        self.names.sweep();
        self.names.told().iter().cloned().collect()
    }
}

impl Drop for KeptOut {
    fn drop(&mut self) {
        self.stop.signal();
        let _ = self.thread.take().map(JoinHandle::join);
        self.names.sweep();
    }
}

/// The nearest directory above a path that is there, and what is missing below it.
fn nearest(path: &Path) -> Option<(PathBuf, Vec<OsString>)> {
    let base = path.ancestors().skip(1).find(|dir| dir.is_dir())?;
    let below = path.strip_prefix(base).ok()?.components();
    let rest = below.map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        _ => None,
    });
    Some((base.to_owned(), rest.collect::<Option<_>>()?))
}

fn open_dir(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags::O_DIRECTORY | flags::O_NOFOLLOW)
        .open(path)
}

fn serve(names: &Names, stop: &EventFd) {
    let mut found = false;
    loop {
        // Who goes on making one is looked after until he stops, heard or not.
        let looks = found || names.ears.deaf.load(Ordering::Relaxed);
        let again = looks.then(|| Instant::now() + AGAIN);
        let mut wanted = vec![Wanted::read(stop.as_fd())];
        wanted.extend(
            names
                .ears
                .arrivals
                .iter()
                .map(|arrivals| Wanted::read(arrivals.as_fd())),
        );
        match poll::wait_until(&mut wanted, again).as_deref() {
            Ok([false, ..]) => {}
            _ => return,
        }
        if let Some(arrivals) = &names.ears.arrivals {
            arrivals.clear();
        }
        found = names.sweep();
    }
}

impl Names {
    fn told(&self) -> MutexGuard<'_, BTreeSet<PutAside>> {
        self.put_aside
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts everything aside that is there; whether anything was. Whatever takes long comes after all of that.
    fn sweep(&self) -> bool {
        let mut found = false;
        let mut too_many = Vec::new();
        for name in &self.all {
            let Some((dir, at, path)) = name.arrived(&self.ears) else {
                continue;
            };
            found = true;
            let (aside, extra) = put_aside(dir, at, path);
            too_many.extend(extra);
            let mut told = self.told();
            if told.len() < MOST_OF_ONE * self.all.len() {
                told.insert(aside);
            }
        }
        if !too_many.is_empty() {
            // Trees of any size: nobody waits for their end.
            let removed = move || {
                for (dir, name) in too_many {
                    let _ = remove::remove(&dir, &name);
                }
            };
            let _ = std::thread::Builder::new().spawn(removed);
        }
        found
    }
}

impl Name {
    fn base_path(&self) -> &Path {
        let above = self.path.ancestors().nth(self.rest.len());
        above.unwrap_or(Path::new("/"))
    }

    /// What stands under it now: itself, or something on the way to it that is no directory and may lead elsewhere. A
    /// directory on the way is listened to.
    fn arrived(&self, ears: &Ears) -> Option<(OwnedFd, &OsStr, PathBuf)> {
        let mut dir: OwnedFd = self.base.try_clone().ok()?.into();
        let mut path = self.base_path().to_owned();
        let (last, way) = self.rest.split_last()?;
        for name in way {
            path.push(name);
            at::stat(&dir, name).ok()?;
            match at::open_dir(&dir, name) {
                Ok(inner) => {
                    ears.hear(inner.as_raw_fd());
                    dir = inner;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
                Err(_) => return Some((dir, name, path)),
            }
        }
        path.push(last);
        at::stat(&dir, last).ok()?;
        Some((dir, last, path))
    }
}

/// Gives what is there another name; what is more than is kept of one name is to be removed.
fn put_aside(dir: OwnedFd, name: &OsStr, path: PathBuf) -> (PutAside, Option<(OwnedFd, OsString)>) {
    let mut moved = rename(&dir, name);
    let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    if moved.as_ref().is_err_and(denied) && reopen_for_us(&dir).is_ok() {
        moved = rename(&dir, name);
    }
    let mut aside = PutAside {
        path,
        now: None,
        error: None,
    };
    match moved {
        Ok((now, true)) => aside.now = Some(aside.path.with_file_name(now)),
        Ok((now, false)) => return (aside, Some((dir, now))),
        // Gone by itself in the meantime.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => aside.error = Some(error.to_string()),
    }
    (aside, None)
}

/// Its new name, and whether it is kept under that. One that nobody can have guessed is left at last.
fn rename(dir: &OwnedFd, name: &OsStr) -> io::Result<(OsString, bool)> {
    for count in 0..MOST_OF_ONE {
        let mut aside = name.to_owned();
        aside.push(SUFFIX);
        if count > 0 {
            aside.push(format!("-{count}"));
        }
        match at::rename(dir, name, dir, &aside, Rename::NoReplace) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // Some file systems do not know how; see below.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
            done => return done.map(|()| (aside, true)),
        }
    }
    let mut aside = name.to_owned();
    aside.push(format!("{SUFFIX}-{}", substrate_trace::unique("x")));
    at::rename(dir, name, dir, &aside, Rename::Replace)?;
    Ok((aside, false))
}

/// A directory of this user's from which he took his own right to write.
fn reopen_for_us(dir: &OwnedFd) -> io::Result<()> {
    let open = File::from(dir.try_clone()?);
    let mode = open.metadata()?.permissions().mode();
    open.set_permissions(Permissions::from_mode(mode & 0o7777 | 0o700))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn watch(dir: &Path, names: &[&str]) -> KeptOut {
        let paths: BTreeSet<PathBuf> = names.iter().map(|name| dir.join(name)).collect();
        KeptOut::watch(&paths).unwrap().unwrap()
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
        until(|| fs::read_dir(&moved).unwrap().count() <= MOST_OF_ONE);
        drop(kept_out);
        fs::write(moved.join("name"), "nobody watches any more").unwrap();
    }

    #[test]
    fn a_way_that_is_made_or_replaced_later_is_followed_and_links_on_it_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let kept_out = watch(dir.path(), &["info/attributes", "deep/er/hook"]);
        for round in 0..3 {
            fs::create_dir(at("info")).unwrap();
            fs::write(at("info/exclude"), "work").unwrap();
            fs::write(at("info/attributes"), "evil").unwrap();
            until(|| !at("info/attributes").exists());
            assert!(at("info/exclude").exists());
            fs::rename(at("info"), at(&format!("info-{round}"))).unwrap();
        }
        // Made whole somewhere else, and moved there.
        fs::create_dir_all(at("other/er")).unwrap();
        fs::write(at("other/er/hook"), "evil").unwrap();
        fs::rename(at("other"), at("deep")).unwrap();
        until(|| !at("deep/er/hook").exists());
        fs::create_dir(at("evil")).unwrap();
        fs::write(at("evil/attributes"), "evil").unwrap();
        std::os::unix::fs::symlink("evil", at("info")).unwrap();
        until(|| !at("info").is_symlink());
        let found = kept_out.sweep();
        assert!(
            found.iter().any(|aside| aside.path == at("info")),
            "{found:?}"
        );
    }

    #[test]
    fn where_nothing_is_heard_everything_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("sub/name");
        let deaf = Ears {
            arrivals: None,
            deaf: AtomicBool::new(true),
        };
        let kept_out = KeptOut::with(deaf, &BTreeSet::from([name.clone()]));
        let kept_out = kept_out.unwrap().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(&name, "evil").unwrap();
        until(|| !name.exists());
        drop(kept_out);
    }

    #[test]
    fn whoever_goes_on_keeps_nobody_elses_name_there() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let kept_out = watch(dir.path(), &["a", "b"]);
        for number in 0..MOST_OF_ONE + 4 {
            let heavy = at(&format!("heavy-{number}"));
            fs::create_dir(&heavy).unwrap();
            for file in 0..200 {
                fs::write(heavy.join(file.to_string()), "").unwrap();
            }
            fs::rename(&heavy, at("a")).unwrap();
            until(|| !at("a").exists());
        }
        let begin = Instant::now();
        fs::write(at("b"), "").unwrap();
        until(|| !at("b").exists());
        assert!(begin.elapsed() < Duration::from_secs(5));
        let found = kept_out.sweep();
        assert!(found.iter().any(|aside| aside.path == at("b")), "{found:?}");
        until(|| fs::read_dir(dir.path()).unwrap().count() <= MOST_OF_ONE + 2);
    }
}
