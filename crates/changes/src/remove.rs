//! Removing trees that resist: closed modes, any depth, any name. Never across a mount.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use substrate_sys::{at, getdents};

use crate::entry::{Entry, is_absent};
use crate::trail::Trail;

/// Removes a name in an open directory and everything below it; it is no error if it is not there.
pub fn remove(dir: impl AsFd, name: &OsStr) -> io::Result<()> {
    remove_while(dir, name, &mut || true)
}

/// The same for as long as it may go on; what is left then is [`io::ErrorKind::Interrupted`].
fn remove_while(dir: impl AsFd, name: &OsStr, goes_on: &mut dyn FnMut() -> bool) -> io::Result<()> {
    let dir = dir.as_fd();
    let Some(entry) = Entry::look(dir, name)? else {
        return Ok(());
    };
    if !entry.is_dir() {
        return gone(at::unlink(dir, name));
    }
    let mut trail = Trail::new(dir.try_clone_to_owned()?);
    let mut open: Vec<(OsString, Vec<OsString>)> = Vec::new();
    gone(enter(&mut trail, &mut open, name.to_owned(), &entry))?;
    while let Some((_, rest)) = open.last_mut() {
        if !goes_on() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let here = trail.here()?;
        let Some(name) = rest.pop() else {
            trail.leave();
            if let Some((done, _)) = open.pop() {
                gone(at::rmdir(trail.here()?, &done))?;
            }
            continue;
        };
        match Entry::look(&here, &name)? {
            None => {}
            Some(child) if !child.is_dir() => gone(at::unlink(&here, &name))?,
            Some(child) if child.dev != entry.dev => {
                return Err(io::ErrorKind::CrossesDevices.into());
            }
            // Somebody else may be removing the same tree.
            Some(child) => gone(enter(&mut trail, &mut open, name, &child))?,
        }
    }
    Ok(())
}

fn enter(
    trail: &mut Trail,
    open: &mut Vec<(OsString, Vec<OsString>)>,
    name: OsString,
    entry: &Entry,
) -> io::Result<()> {
    let here = trail.here()?;
    if entry.mode & 0o700 != 0o700 {
        // An overlay leaves `work/work` with mode 000, and a world may leave anything.
        at::chmod(&here, &name, entry.mode | 0o700)?;
    }
    trail.enter(&name)?;
    let names = match getdents::read_dir(trail.here()?) {
        Ok(names) => names,
        Err(error) => {
            trail.leave();
            return Err(error);
        }
    };
    open.push((name, names.into_iter().map(|(name, _)| name).collect()));
    Ok(())
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if is_absent(&e) => Ok(()),
        other => other,
    }
}

/// Removes a path and everything below it; it is no error if it is not there.
pub fn remove_path(path: &Path) -> io::Result<()> {
    remove_path_while(path, &mut || true)
}

/// The same for as long as it may go on; what is left then is [`io::ErrorKind::Interrupted`].
pub(crate) fn remove_path_while(path: &Path, goes_on: &mut dyn FnMut() -> bool) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir: OwnedFd = match at::open_dir_path(parent) {
        Ok(dir) => dir,
        Err(e) if is_absent(&e) => return Ok(()),
        Err(e) => return Err(e),
    };
    remove_while(dir, name, goes_on)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn closed_and_deep_trees_go_and_what_they_point_to_stays() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("f"), "x").unwrap();
        let top = dir.path().join("top");
        fs::create_dir_all(top.join("work/work/inner")).unwrap();
        std::os::unix::fs::symlink(&kept, top.join("link")).unwrap();
        let mut here: OwnedFd = fs::File::open(&top).unwrap().into();
        for _ in 0..3000 {
            at::mkdir(&here, "a directory", 0o700).unwrap();
            here = at::open_dir(&here, "a directory").unwrap();
        }
        at::create_new(&here, "leaf", 0).unwrap();
        drop(here);
        fs::set_permissions(top.join("work/work"), Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(&top, Permissions::from_mode(0o400)).unwrap();
        remove_path(&top).unwrap();
        assert!(!top.exists());
        assert!(kept.join("f").exists());
        remove_path(&top).unwrap();
        remove_path(&dir.path().join("no/such")).unwrap();
    }

    #[test]
    fn two_may_remove_the_same_tree() {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let top = dir.path().join(format!("top{round}"));
            for n in 0..60 {
                fs::create_dir_all(top.join(format!("a{n}/b/c"))).unwrap();
                fs::write(top.join(format!("a{n}/b/f")), "x").unwrap();
            }
            std::thread::scope(|scope| {
                let both: Vec<_> = (0..2).map(|_| scope.spawn(|| remove_path(&top))).collect();
                for one in both {
                    one.join().unwrap().unwrap();
                }
            });
            assert!(!top.exists());
        }
    }
}
