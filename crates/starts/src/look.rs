//! What a start is about: the file it names, found as the process itself would find it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use substrate_sys::errno::{E2BIG, EFAULT, ENAMETOOLONG, ENOENT, ENOTDIR};
use substrate_sys::memory::{self, ReadError};
use substrate_sys::notify::{Call, CallKind};
use substrate_sys::openat2::{self, Links};
use substrate_sys::{at, flags, identity, mount};

use crate::image::{self, Image, Images};

/// The kernel's own limits: a path, and all arguments together.
const PATH_LIMIT: usize = 4095;
const ARGUMENTS_LIMIT: usize = 8 << 20;
/// How many interpreters the kernel follows.
const INTERPRETERS: usize = 5;

/// `execveat` from the working directory.
pub const HERE: i32 = -100;
const NO_FOLLOW: u64 = 0x100;
const EMPTY_PATH: u64 = 0x1000;

/// A file that a start runs.
#[derive(Debug)]
pub struct Program {
    /// Its path as seen in the world, links resolved.
    pub path: PathBuf,
    /// What it is.
    pub image: Arc<Image>,
    /// Its device and inode.
    pub identity: (u64, u64),
    /// This user cannot change it.
    of_others: bool,
    handle: OwnedFd,
}

impl Program {
    /// Opens it for reading.
    pub fn open(&self) -> io::Result<fs::File> {
        image::reopen(&self.handle)
    }

    /// Whether it lies where its world can only read and no other world of this user writes, so that
    /// nobody inside one could have made it, can change it or put another in its place.
    fn is_out_of_reach(&self) -> bool {
        mount::is_read_only(self.handle.as_fd()).unwrap_or(false)
            && (is_of_the_system(&self.path) || self.of_others)
    }

    /// With `compared`, what a process runs in the end is compared with this.
    fn of(handle: OwnedFd, images: &Images, compared: bool) -> io::Result<Program> {
        let stat = at::stat(&handle, "")?;
        if stat.mode & 0o170_000 != 0o100_000 {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let image = images.of(&handle, &stat);
        // Of a script or a loader only the program that runs it is.
        let compared = compared && image.interpreter.is_none() && !image.loader;
        let lately = compared.then(|| images.place_lately(&stat)).flatten();
        let path = match lately {
            Some(path) => path,
            None => {
                let now = Instant::now();
                let path = path_of(&handle)?;
                images.is_at(&stat, &path, now);
                path
            }
        };
        Ok(Program {
            path,
            image,
            identity: (stat.dev, stat.ino),
            of_others: is_of_others(&stat),
            handle,
        })
    }

    /// Whether this is what a process runs now. One file may have several names, and rules are
    /// about names.
    pub fn is_run_by(&self, process: i32) -> bool {
        use std::os::unix::fs::MetadataExt;
        let link = format!("/proc/{process}/exe");
        fs::metadata(&link).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.identity)
            && fs::read_link(&link).is_ok_and(|path| path == self.path)
    }

    /// What a process runs now.
    pub fn running(process: i32, images: &Images) -> io::Result<Program> {
        Program::of(open_handle(&format!("/proc/{process}/exe"))?, images, false)
    }
}

/// Where packages put programs and loaders; nobody copies anything there from inside a world.
const SYSTEM: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32"];

/// Whether a file lies where only the system puts programs.
pub fn is_of_the_system(path: &Path) -> bool {
    let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    SYSTEM.iter().any(|root| path.starts_with(root))
        && !path.starts_with("/usr/local")
        && path.components().all(plain)
}

/// Whether this user cannot change a file or directory. What is read-only in one world of his may be
/// written in another, or have been.
fn is_of_others(stat: &at::Stat) -> bool {
    stat.uid != identity::effective_user_id() && stat.mode & 0o022 == 0
}

/// What a dynamic loader is told to run in its own place.
#[derive(Debug)]
pub struct Loaded {
    /// The file; `None` when the loader has to look for it.
    pub program: Option<Arc<Program>>,
    /// The words from its name on.
    pub argv: Vec<OsString>,
    /// The loader will find this very file: nobody inside can change what its path means.
    pub certain: bool,
}

/// Where an open file lies, as the kernel names it.
pub fn path_of(handle: &OwnedFd) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

/// Opens what a link of `/proc` leads to, as a handle.
fn open_handle(path: &str) -> io::Result<OwnedFd> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = fs::File::options()
        .read(true)
        .custom_flags(flags::O_PATH)
        .open(path)?;
    Ok(file.into())
}

/// The files of a world, as one of its processes sees them.
#[derive(Debug)]
pub struct View {
    root: Arc<OwnedFd>,
}

/// The root that all processes of a world share, opened once.
#[derive(Debug, Default)]
pub struct Root {
    known: OnceLock<Arc<OwnedFd>>,
}

impl View {
    /// The view of a thread. Without the privilege to change roots all threads share one.
    pub fn of(thread: i32, shared: &Root, changing: bool) -> io::Result<View> {
        if let Some(root) = shared.known.get().filter(|_| !changing) {
            return Ok(View { root: root.clone() });
        }
        let root = Arc::new(open_handle(&format!("/proc/{thread}/root"))?);
        if !changing {
            let _ = shared.known.set(root.clone());
        }
        Ok(View { root })
    }

    /// The root that paths begin at.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// A path with every link resolved; of what does not exist, the part that does.
    pub fn real(&self, path: &Path) -> Option<PathBuf> {
        let open = |path: &Path| {
            let handle = openat2::in_root(self.root.as_fd(), path.as_os_str(), Links::Follow);
            handle.and_then(|handle| path_of(&handle))
        };
        let mut missing: Vec<&OsStr> = Vec::new();
        let mut at = path;
        loop {
            match open(at) {
                Ok(mut real) => {
                    real.extend(missing.iter().rev());
                    return Some(real);
                }
                Err(error) if matches!(error.raw_os_error(), Some(ENOENT | ENOTDIR)) => {
                    missing.push(at.file_name()?);
                    at = at.parent()?;
                }
                Err(_) => return None,
            }
        }
    }
}

/// What a call asks for, as read from its caller.
#[derive(Debug)]
pub struct Asked {
    /// The file as it was named.
    pub path: OsString,
    /// The arguments, the zeroth included.
    pub argv: Vec<OsString>,
    /// The descriptor that a relative name is meant from, or [`HERE`].
    pub directory: i32,
    /// The flags of `execveat`.
    pub flags: u64,
    /// Where its variables lie.
    pub variables: u64,
}

/// Why nothing can be judged.
#[derive(Debug)]
pub enum Unread {
    /// The kernel would answer this itself.
    Errno(i32),
    /// The memory of the caller may not be read.
    Refused(io::Error),
}

impl Asked {
    /// Reads it from the memory of the caller.
    pub fn read(call: &Call) -> Result<Asked, Unread> {
        let [a, b, c, d, flags, _] = call.args;
        let (directory, path, array, variables, flags) = match call.kind == CallKind::ExecveAt {
            true => (a as i32, b, c, d, flags),
            false => (HERE, a, b, c, 0),
        };
        let unread = |too_long: i32| {
            move |error| match error {
                ReadError::Fault => Unread::Errno(EFAULT),
                ReadError::TooLong => Unread::Errno(too_long),
                ReadError::Refused(error) => Unread::Refused(error),
            }
        };
        let (path, argv) =
            memory::path_and_strings(call.thread, (path, PATH_LIMIT), (array, ARGUMENTS_LIMIT));
        let path = path.map_err(unread(ENAMETOOLONG))?;
        let mut argv = os_strings(argv.map_err(unread(E2BIG))?);
        if argv.is_empty() {
            // The kernel puts an empty name where there is none.
            argv.push(OsString::new());
        }
        Ok(Asked {
            path: OsString::from_vec(path),
            argv,
            directory,
            flags,
            variables,
        })
    }
}

/// The words of a process, which lie at this address.
pub fn words(process: i32, at: u64) -> io::Result<Vec<OsString>> {
    let words = memory::strings(process, at, ARGUMENTS_LIMIT);
    words.map(os_strings).map_err(|error| match error {
        ReadError::Fault => io::Error::from_raw_os_error(EFAULT),
        ReadError::TooLong => io::Error::from_raw_os_error(E2BIG),
        ReadError::Refused(error) => error,
    })
}

/// Whether variables at this address tell glibc's loader to name what it would load and end.
pub fn only_lists(process: i32, at: u64) -> bool {
    memory::strings(process, at, ARGUMENTS_LIMIT).is_ok_and(|variables| {
        variables
            .iter()
            .any(|variable| variable.starts_with(b"LD_TRACE_LOADED_OBJECTS="))
    })
}

/// The variables of a start, read when somebody asks for them.
#[derive(Debug)]
pub struct Variables {
    process: i32,
    at: u64,
    known: OnceLock<io::Result<Named>>,
}

/// Names and values.
type Named = Vec<(OsString, OsString)>;

impl Variables {
    /// Those of a process that lie at this address.
    pub fn at(process: i32, at: u64) -> Self {
        Self {
            process,
            at,
            known: OnceLock::new(),
        }
    }

    /// Their names and values; what is no variable has an empty name.
    pub fn read(&self) -> Result<&Named, &io::Error> {
        let known = self.known.get_or_init(|| {
            let all = match self.at {
                0 => Vec::new(),
                at => words(self.process, at)?,
            };
            Ok(all.into_iter().map(named_value).collect())
        });
        known.as_ref()
    }

    /// Whether others are the same, if anybody has asked for these.
    pub fn are_still(&self, others: &Variables) -> bool {
        match self.known.get() {
            None => true,
            Some(known) => known
                .as_ref()
                .is_ok_and(|known| others.read().is_ok_and(|others| known == others)),
        }
    }
}

fn named_value(entry: OsString) -> (OsString, OsString) {
    let bytes = entry.into_vec();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => {
            let value = bytes.get(at + 1..).unwrap_or_default().to_vec();
            let name = bytes.get(..at).unwrap_or_default().to_vec();
            (OsString::from_vec(name), OsString::from_vec(value))
        }
        None => (OsString::new(), OsString::from_vec(bytes)),
    }
}

fn os_strings(words: Vec<Vec<u8>>) -> Vec<OsString> {
    words.into_iter().map(OsString::from_vec).collect()
}

/// Where the file of a start is.
#[derive(Debug)]
pub enum Found {
    /// Here.
    File(Program),
    /// Nowhere, and the call would fail with this.
    Missing(i32),
    /// Only the kernel can tell.
    Unknown,
}

/// Looks for files as a thread would.
pub struct Finder<'a> {
    /// The thread, as numbered on the host.
    pub thread: i32,
    /// The files that it sees.
    pub view: &'a View,
    /// Where it is.
    pub cwd: &'a Path,
    /// What is known of files already.
    pub images: &'a Images,
    /// What the thread runs in the end is compared with what is found.
    pub compared: bool,
    /// The world may have mounts of its own making.
    pub roots_change: bool,
}

impl Finder<'_> {
    /// The file that a call names.
    pub fn find(&self, asked: &Asked) -> Found {
        let path = Path::new(&asked.path);
        if asked.path.is_empty() {
            if asked.flags & EMPTY_PATH == 0 {
                return Found::Missing(ENOENT);
            }
            return self.of_process(&format!("fd/{}", asked.directory));
        }
        let links = if asked.flags & NO_FOLLOW == 0 {
            Links::Follow
        } else {
            Links::KeepLast
        };
        if path.is_absolute() || asked.directory == HERE {
            return self.find_path(path, links);
        }
        let directory = fs::read_link(format!("/proc/{}/fd/{}", self.thread, asked.directory));
        match directory {
            Ok(directory) if directory.is_absolute() => {
                self.find_path(&directory.join(path), links)
            }
            _ => Found::Unknown,
        }
    }

    fn find_path(&self, path: &Path, links: Links) -> Found {
        if let Some(own) = own_link(path) {
            return self.of_process(&own);
        }
        if path.is_relative() && self.cwd.as_os_str().as_bytes().ends_with(b" (deleted)") {
            return Found::Unknown;
        }
        let path = self.cwd.join(path);
        let open = |links| openat2::in_root(self.view.root.as_fd(), path.as_os_str(), links);
        let errno = match open(links) {
            Ok(handle) => {
                return Program::of(handle, self.images, self.compared)
                    .map_or(Found::Unknown, Found::File);
            }
            Err(error) => error.raw_os_error().unwrap_or(0),
        };
        // A link on the way may lead through `/proc`, which says other things to us than to them. Where
        // the directory is found all the same, as `/sbin` is on most machines, only the last name counts.
        let without_links =
            || open(Links::Refuse).is_err_and(|error| error.raw_os_error() == Some(errno));
        let not_in_directory = || {
            let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
                return false;
            };
            let root = self.view.root.as_fd();
            openat2::in_root(root, directory.as_os_str(), Links::Follow).is_ok_and(|directory| {
                at::stat(directory, name).is_err_and(|error| error.raw_os_error() == Some(ENOENT))
            })
        };
        let certain = matches!(errno, ENOENT | ENOTDIR)
            && !path.starts_with("/proc")
            && (without_links() || (errno == ENOENT && not_in_directory()));
        if certain {
            Found::Missing(errno)
        } else {
            Found::Unknown
        }
    }

    /// Whether nobody inside can change a file or put another in its place.
    fn is_fixed(&self, program: &Program) -> bool {
        !self.roots_change && program.is_out_of_reach()
    }

    fn is_loader_of_the_system(&self, program: &Program) -> bool {
        program.image.loader && self.is_fixed(program)
    }

    /// The file that the kernel starts in place of a program, unless that is a loader of the system.
    pub fn starter(&self, program: &Program) -> Option<Program> {
        let path = program.image.starter.as_ref()?;
        if self.is_fixed(program) {
            return None;
        }
        // What runs in the end is the program, as far as names go.
        let finder = Finder {
            compared: false,
            ..*self
        };
        match finder.find_path(Path::new(path), Links::Follow) {
            Found::File(found) if !self.is_loader_of_the_system(&found) => Some(found),
            _ => None,
        }
    }

    /// The file that a process has its first instruction from, unless that is its own program or a
    /// loader of the system.
    pub fn begun(&self, program: &Program, instruction: u64) -> io::Result<Option<Program>> {
        if self.is_fixed(program) {
            return Ok(None);
        }
        let mapped = Mapped::at(self.thread, instruction)?;
        if mapped.inode == program.identity.1 && mapped.path == program.path {
            return Ok(None);
        }
        let root = self.view.root.as_fd();
        let handle = openat2::in_root(root, mapped.path.as_os_str(), Links::Refuse)?;
        let found = Program::of(handle, self.images, false)?;
        if self.is_loader_of_the_system(&found) {
            return Ok(None);
        }
        let (device, inode) = found.identity;
        match (mapped.device, mapped.inode) == (device_numbers(device), inode) {
            true => Ok(Some(found)),
            false => Err(io::Error::other("its loader is not where it was")),
        }
    }

    /// What a loader runs, when the program is one. `only_lists` says whether its variables tell it to
    /// run nothing.
    pub fn loaded(
        &self,
        program: &Program,
        argv: &[OsString],
        only_lists: impl FnOnce() -> bool,
    ) -> Option<Loaded> {
        if !program.image.loader {
            return None;
        }
        let (argv, looks) = loaded_words(argv)?;
        if self.is_fixed(program) && (looks || (is_of_glibc(program) && only_lists())) {
            return None;
        }
        let argv = argv.to_vec();
        let name = argv.first()?;
        let named = name.as_bytes().contains(&b'/');
        // What runs in the end is the loader.
        let finder = Finder {
            compared: false,
            ..*self
        };
        let program = match finder.find_path(Path::new(name), Links::Follow) {
            Found::File(program) if named => Some(Arc::new(program)),
            _ => None,
        };
        let certain = self.means_one_file(Path::new(name));
        Some(Loaded {
            program,
            argv,
            certain,
        })
    }

    /// Whether nothing that a path leads through can be changed from inside. A working directory may
    /// be shared with another process, which can go elsewhere.
    fn means_one_file(&self, path: &Path) -> bool {
        let root = self.view.root.as_fd();
        let open = |path: &Path| openat2::in_root(root, path.as_os_str(), Links::FollowOnMount);
        let Some(file) = open(path).ok().filter(|_| path.is_absolute()) else {
            return false;
        };
        let Ok(real) = path_of(&file) else {
            return false;
        };
        let of_others = |path: &Path| {
            open(path).is_ok_and(|file| at::stat(&file, "").is_ok_and(|stat| is_of_others(&stat)))
        };
        let kept = is_of_the_system(path) && is_of_the_system(&real)
            || path.ancestors().chain(real.ancestors()).all(of_others);
        !self.roots_change && kept && mount::is_read_only(file.as_fd()).unwrap_or(false)
    }

    fn of_process(&self, what: &str) -> Found {
        open_handle(&format!("/proc/{}/{what}", self.thread))
            .and_then(|handle| Program::of(handle, self.images, false))
            .map_or(Found::Unknown, Found::File)
    }

    /// The interpreter that runs a script in the end, and the arguments that the kernel gives it.
    pub fn interpreter(
        &self,
        script: &Program,
        name: &OsStr,
        argv: &[OsString],
    ) -> Option<(Program, Vec<OsString>)> {
        let mut argv = argv.to_vec();
        let mut name = name.to_owned();
        let mut image = script.image.clone();
        let mut found = None;
        for _ in 0..INTERPRETERS {
            let Some((path, argument)) = image.interpreter.clone() else {
                break;
            };
            let mut words = vec![path.clone()];
            words.extend(argument);
            words.push(name);
            argv.splice(..1, words);
            let Found::File(program) = self.find_path(Path::new(&path), Links::Follow) else {
                return None;
            };
            image = program.image.clone();
            name = path;
            found = Some(program);
        }
        found.map(|program| (program, argv))
    }
}

/// Whether a path names a descriptor or the program of the process that uses it.
pub fn is_own_link(path: &OsStr) -> bool {
    own_link(Path::new(path)).is_some()
}

/// Options of dynamic loaders that take a word.
const LOADER_VALUES: [&[u8]; 7] = [
    b"--argv0",
    b"--audit",
    b"--glibc-hwcaps-mask",
    b"--glibc-hwcaps-prepend",
    b"--inhibit-rpath",
    b"--library-path",
    b"--preload",
];

/// Options with which they look at a program and run nothing.
const LOADER_LOOKS: [&[u8]; 2] = [b"--list", b"--verify"];

/// The words from the program on that a loader is told to run, or only to look at.
fn loaded_words(argv: &[OsString]) -> Option<(&[OsString], bool)> {
    let mut at = 1;
    let mut looks = false;
    loop {
        let word = argv.get(at)?.as_bytes();
        looks |= LOADER_LOOKS.contains(&word);
        if word == b"--" {
            // That of musl takes what follows for the program, whatever it looks like.
            return Some((argv.get(at + 1..)?, looks));
        }
        if LOADER_VALUES.contains(&word) {
            at += 2;
        } else if word.starts_with(b"--") {
            at += 1;
        } else {
            return Some((argv.get(at..)?, looks));
        }
    }
}

/// Whether a loader heeds `LD_TRACE_LOADED_OBJECTS`, by its name; that of musl runs the program.
fn is_of_glibc(loader: &Program) -> bool {
    let name = loader.path.file_name().unwrap_or_default().as_bytes();
    name.starts_with(b"ld-linux") || name.starts_with(b"ld-2.")
}

/// A file of which a part lies in the memory of a process.
#[derive(Debug, PartialEq, Eq)]
struct Mapped {
    path: PathBuf,
    device: (u64, u64),
    inode: u64,
}

impl Mapped {
    /// The file that an address of a process lies in.
    fn at(process: i32, address: u64) -> io::Result<Mapped> {
        let maps = fs::read(format!("/proc/{process}/maps"))?;
        let mut lines = maps.split(|byte| *byte == b'\n');
        lines
            .find_map(|line| Mapped::read(line, address))
            .ok_or_else(|| io::Error::other("it begins in no file"))
    }

    /// Reads `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE PATH`, if the address lies there.
    fn read(line: &[u8], address: u64) -> Option<Mapped> {
        let mut parts = line.splitn(6, |byte| *byte == b' ');
        let mut next = || std::str::from_utf8(parts.next()?).ok();
        let (start, end) = next()?.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        if !(hex(start)?..hex(end)?).contains(&address) {
            return None;
        }
        let (major, minor) = (next(), next()).1.and_then(|_| next())?.split_once(':')?;
        let device = (hex(major)?, hex(minor)?);
        let inode = next()?.parse().ok()?;
        let path = parts.next()?.trim_ascii_start();
        Some(Mapped {
            path: PathBuf::from(OsString::from_vec(unescaped(path))),
            device,
            inode,
        })
    }
}

/// A path as the kernel shows it in a table of lines.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(after) => {
                plain.push(b'\n');
                rest = after;
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

/// The two numbers of a device, which the kernel packs into one.
fn device_numbers(device: u64) -> (u64, u64) {
    let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
    let minor = (device & 0xff) | (device >> 12 & 0xffff_ff00);
    (major, minor)
}

/// What a path through `/proc/self` means below the directory of its process.
fn own_link(path: &Path) -> Option<String> {
    let number = |text: &[u8]| {
        (!text.is_empty() && text.iter().all(u8::is_ascii_digit))
            .then(|| String::from_utf8_lossy(text).into_owned())
    };
    let bytes = path.as_os_str().as_bytes();
    let rest = bytes
        .strip_prefix(b"/proc/self/")
        .or_else(|| bytes.strip_prefix(b"/proc/thread-self/"));
    match rest {
        Some(b"exe") => Some("exe".to_owned()),
        Some(rest) => number(rest.strip_prefix(b"fd/")?).map(|n| format!("fd/{n}")),
        None => number(bytes.strip_prefix(b"/dev/fd/")?).map(|n| format!("fd/{n}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_a_process_to_itself_are_known() {
        let own = |path: &str| own_link(Path::new(path));
        assert_eq!(own("/proc/self/exe").as_deref(), Some("exe"));
        assert_eq!(own("/proc/thread-self/fd/12").as_deref(), Some("fd/12"));
        assert_eq!(own("/dev/fd/3").as_deref(), Some("fd/3"));
        assert_eq!(own("/proc/self/fd/../exe"), None);
        assert_eq!(own("/proc/1/exe"), None);
        assert_eq!(own("/dev/fd/"), None);
    }

    #[test]
    fn a_line_of_the_memory_table_is_read() {
        let line =
            b"7f00-7fff r-xp 00001000 fd:01 1234                       /a b/c\\012d (deleted)";
        let found = Mapped {
            path: "/a b/c\nd (deleted)".into(),
            device: (0xfd, 1),
            inode: 1234,
        };
        assert_eq!(Mapped::read(line, 0x7f00), Some(found));
        assert_eq!(Mapped::read(line, 0x7fff), None);
        let own = fs::read("/proc/self/maps").unwrap();
        let here = a_line_of_the_memory_table_is_read as fn() as usize as u64;
        let program = std::env::current_exe().unwrap();
        let stat = fs::metadata(&program).unwrap();
        let mapped = own
            .split(|byte| *byte == b'\n')
            .find_map(|line| Mapped::read(line, here));
        let mapped = mapped.unwrap();
        assert_eq!(mapped.path, program);
        assert_eq!(mapped.inode, std::os::unix::fs::MetadataExt::ino(&stat));
    }

    #[test]
    fn the_numbers_of_a_device_are_those_that_the_kernel_shows() {
        assert_eq!(device_numbers(0xfd01), (0xfd, 1));
        assert_eq!(device_numbers(0x1238_0245), (0x802, 0x12345));
    }

    #[test]
    fn the_system_is_where_packages_put_things() {
        assert!(is_of_the_system(Path::new("/usr/bin/rm")));
        assert!(!is_of_the_system(Path::new("/usr/local/bin/rm")));
        assert!(!is_of_the_system(Path::new("/home/u/rm")));
        assert!(!is_of_the_system(Path::new("/usr/../home/u/rm")));
        assert!(!is_of_the_system(Path::new("/memfd:x (deleted)")));
    }

    #[test]
    fn the_program_of_a_loader_comes_after_its_options() {
        let words = |line: &str| {
            let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            loaded_words(&argv).map(|(words, looks)| (words.join(OsStr::new(" ")), looks))
        };
        let looked = |text: &str| Some((OsString::from(text), true));
        let found = Some((OsString::from("/bin/rm -rf --x"), false));
        assert_eq!(words("ld.so /bin/rm -rf --x"), found);
        assert_eq!(
            words("ld.so --argv0 ls --inhibit-cache /bin/rm -rf --x"),
            found
        );
        assert_eq!(words("ld.so --argv0 --list /bin/rm -rf --x"), found);
        assert_eq!(words("ld.so --verify /bin/rm"), looked("/bin/rm"));
        assert_eq!(words("ld.so --list --argv0 x ./a"), looked("./a"));
        assert_eq!(words("ld.so --list"), None);
        assert_eq!(words("ld.so -- --list x"), Some(("--list x".into(), false)));
        assert_eq!(words("ld.so --preload"), None);
    }
}
