//! Opening files that must be private, plain and ours.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::OnceLock;

use crate::Error;

/// Makes the home directory, or checks that the existing one is ours alone.
pub(crate) fn private_dir(path: &Path) -> Result<(), Error> {
    let home = |source| Error::Home {
        path: path.to_owned(),
        source,
    };
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path)
                .map_err(home)?;
            std::fs::metadata(path).map_err(home)?
        }
        Err(error) => return Err(home(error)),
    };
    if !found.is_dir() {
        return Err(Error::WrongKind {
            path: path.to_owned(),
            wanted: "a directory",
        });
    }
    check_owner(path, &found)?;
    tighten(path, &found, 0o700, |mode| {
        std::fs::set_permissions(path, mode)
    })
}

/// Opens a file that must be plain, ours and closed to others.
pub(crate) fn open_private(
    path: &Path,
    options: &mut OpenOptions,
) -> Result<(File, Metadata), Error> {
    let (file, found) = open_plain(path, options)?;
    check_owner(path, &found)?;
    tighten(path, &found, 0o600, |mode| file.set_permissions(mode))?;
    Ok((file, found))
}

/// Opens a plain file. Symbolic links are not followed, and something that blocks,
/// such as a pipe, cannot hang us.
pub(crate) fn open_plain(
    path: &Path,
    options: &mut OpenOptions,
) -> Result<(File, Metadata), Error> {
    let failed = |source: io::Error| match source.raw_os_error() {
        // A link, a socket, a pipe that nobody reads, a directory.
        Some(libc::ELOOP | libc::ENXIO | libc::EISDIR) => wrong_kind(path),
        _ => Error::Open {
            path: path.to_owned(),
            source,
        },
    };
    let file = options
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    match found.is_file() {
        true => Ok((file, found)),
        false => Err(wrong_kind(path)),
    }
}

fn wrong_kind(path: &Path) -> Error {
    Error::WrongKind {
        path: path.to_owned(),
        wanted: "a plain file",
    }
}

/// Who we probably are.
static LIKELY: OnceLock<Option<u32>> = OnceLock::new();

/// Says who we are, so that the kernel need not be asked in the long way that is open to safe code:
/// the effective user of this process.
pub fn effective_user(uid: u32) {
    let _ = LIKELY.set(Some(uid));
}

fn check_owner(path: &Path, found: &Metadata) -> Result<(), Error> {
    // The owner of /proc/self is our effective user, unless the process is not
    // dumpable; then the slower status file knows.
    let likely = LIKELY.get_or_init(|| Some(std::fs::metadata("/proc/self").ok()?.uid()));
    let owner = found.uid();
    if *likely == Some(owner) {
        return Ok(());
    }
    let us = effective_uid().map_err(|source| Error::Identity { source })?;
    if us == owner {
        return Ok(());
    }
    Err(Error::Owner {
        path: path.to_owned(),
        owner,
        us,
    })
}

fn effective_uid() -> io::Result<u32> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok())
        .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "no Uid line"))
}

fn tighten(
    path: &Path,
    found: &Metadata,
    wanted: u32,
    set: impl FnOnce(Permissions) -> io::Result<()>,
) -> Result<(), Error> {
    let mode = found.mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    match set(Permissions::from_mode(wanted)) {
        // Readable by others on a read-only disk is bad luck, writable is a danger.
        Err(source) if mode & 0o022 != 0 => Err(Error::Exposed {
            path: path.to_owned(),
            mode,
            source,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn append() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        options
    }

    #[test]
    fn directories_and_files_become_private() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().join("a/b");
        private_dir(&home).unwrap();
        assert_eq!(home.metadata().unwrap().mode() & 0o777, 0o700);
        std::fs::set_permissions(&home, Permissions::from_mode(0o755)).unwrap();
        private_dir(&home).unwrap();
        assert_eq!(home.metadata().unwrap().mode() & 0o777, 0o700);

        let file = home.join("f");
        std::fs::write(&file, "x").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        open_private(&file, &mut append()).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn only_plain_files_are_opened() {
        let temp = tempfile::tempdir().unwrap();
        let link = temp.path().join("link");
        symlink(temp.path().join("target"), &link).unwrap();
        let socket = temp.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let fifo = temp.path().join("fifo");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&fifo)
                .status()
                .unwrap()
                .success()
        );
        for path in [&link, &socket, &fifo, temp.path()] {
            let error = open_private(path, &mut append()).unwrap_err();
            assert!(matches!(error, Error::WrongKind { .. }), "{error}");
        }
        assert!(!temp.path().join("target").exists());
        assert!(matches!(
            private_dir(&fifo).unwrap_err(),
            Error::WrongKind { .. }
        ));
    }

    #[test]
    fn a_file_of_someone_else_is_refused() {
        // As root the foreign file can be made; otherwise one of root's stands in.
        let temp = tempfile::tempdir().unwrap();
        let mut path = temp.path().join("f");
        std::fs::write(&path, "").unwrap();
        if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
            path = "/etc/passwd".into();
        }
        let error = open_private(&path, OpenOptions::new().read(true)).unwrap_err();
        assert!(matches!(error, Error::Owner { .. }), "{error}");
    }

    #[test]
    fn the_status_file_knows_us_too() {
        let us = std::fs::metadata("/proc/self").unwrap().uid();
        assert_eq!(effective_uid().unwrap(), us);
    }
}
