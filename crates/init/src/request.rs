//! A command on its way into a world: one block of memory that the world's first process can
//! use where it lies, because nothing may be allocated there.

use std::ffi::{CStr, OsStr, c_char};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{self, NonNull};
use std::slice;

use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use substrate_sys::poll::write_all;

use crate::control::MAX_FDS;

/// Three of the message's descriptors are the events, the block itself and the starter.
pub const MAX_COMMAND_FDS: usize = MAX_FDS - 3;

/// The words at the start of a block. Offsets count bytes from the start of the block.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Head {
    Program,
    Cwd,
    Argv,
    Env,
    Umask,
    TerminalFor,
    TerminalAt,
    NullFor,
    Judged,
    Tag,
    Size,
    FdCount,
    Fds,
}

const HEAD_WORDS: usize = Head::Fds as usize + MAX_COMMAND_FDS;

/// Free words before argv: whoever starts the program in its place gets its path, and a name before it.
const SPARE: usize = 2;

/// What a command is made of.
pub struct Parts<'a> {
    /// The file to run, absolute.
    pub program: &'a OsStr,
    /// Its arguments, the zeroth included.
    pub argv: &'a [&'a OsStr],
    /// Its environment, `NAME=value`.
    pub env: &'a [Vec<u8>],
    /// Where it starts.
    pub cwd: &'a OsStr,
    /// The mask for new files; `None` keeps the world's.
    pub umask: Option<u32>,
    /// Which of 0, 1 and 2 become a new terminal of the world, as a bit set.
    pub terminal_for: u8,
    /// A further number that the terminal gets.
    pub terminal_at: Option<i32>,
    /// Rows and columns of that terminal.
    pub size: (u16, u16),
    /// Which of 0, 1 and 2 lead to the world's own `/dev/null`, and the mode that it is opened with.
    pub null_for: [Option<i32>; 3],
    /// The numbers that the descriptors sent along get.
    pub fds: &'a [i32],
    /// The guard judges its start like any other, so it comes about through a starter; else it passes, as one
    /// that was judged before.
    pub judged: bool,
    /// By this the guard tells whoever judges which command begins.
    pub tag: u32,
}

/// Puts the parts into a memory file, which is what travels.
pub fn to_memory_file(parts: &Parts<'_>) -> io::Result<OwnedFd> {
    let file = memfd_create(c"request", MemfdFlags::CLOEXEC)?;
    write_all(&file, &build(parts)?)?;
    Ok(file)
}

fn build(parts: &Parts<'_>) -> io::Result<Vec<u8>> {
    let invalid = || io::Error::from(Errno::INVAL);
    if parts.fds.len() > MAX_COMMAND_FDS || parts.argv.is_empty() {
        return Err(invalid());
    }
    let words = HEAD_WORDS + SPARE + parts.argv.len() + 1 + parts.env.len() + 1;
    let mut head = vec![0u64; words];
    let mut text: Vec<u8> = Vec::new();
    let mut put = |bytes: &[u8]| -> io::Result<u64> {
        if bytes.contains(&0) {
            return Err(invalid());
        }
        let at = (words * 8 + text.len()) as u64;
        text.extend_from_slice(bytes);
        text.push(0);
        Ok(at)
    };
    head[Head::Program as usize] = put(parts.program.as_bytes())?;
    head[Head::Cwd as usize] = put(parts.cwd.as_bytes())?;
    head[Head::Umask as usize] = parts.umask.map_or(u64::MAX, u64::from);
    head[Head::TerminalFor as usize] = parts.terminal_for.into();
    head[Head::TerminalAt as usize] = match parts.terminal_at {
        None => u64::MAX,
        Some(number) => u64::try_from(number).map_err(|_| invalid())?,
    };
    // One byte for each number; 0 stands for none.
    for (number, mode) in parts.null_for.iter().enumerate() {
        let byte = mode.map_or(0, |mode| (mode & libc::O_ACCMODE) as u64 + 1);
        head[Head::NullFor as usize] |= byte << (8 * number);
    }
    head[Head::Judged as usize] = parts.judged.into();
    head[Head::Tag as usize] = parts.tag.into();
    head[Head::Size as usize] = u64::from(parts.size.0) << 16 | u64::from(parts.size.1);
    head[Head::FdCount as usize] = parts.fds.len() as u64;
    for (i, fd) in parts.fds.iter().enumerate() {
        head[Head::Fds as usize + i] = u64::try_from(*fd).map_err(|_| invalid())?;
    }
    let argv = HEAD_WORDS + SPARE;
    head[Head::Argv as usize] = (argv * 8) as u64;
    for (i, argument) in parts.argv.iter().enumerate() {
        head[argv + i] = put(argument.as_bytes())?;
    }
    let env = argv + parts.argv.len() + 1;
    head[Head::Env as usize] = (env * 8) as u64;
    for (i, variable) in parts.env.iter().enumerate() {
        head[env + i] = put(variable)?;
    }
    let mut block: Vec<u8> = head.iter().flat_map(|word| word.to_ne_bytes()).collect();
    block.append(&mut text);
    Ok(block)
}

/// Who runs the program of a request.
enum By {
    /// The kernel.
    Itself,
    /// `sh`, whose words are one more.
    Sh,
    /// A starter, whose words are two more.
    Starter(OwnedFd),
}

/// A block mapped for use in the world's first process, after a look at every word of it.
pub struct Request {
    base: NonNull<u64>,
    length: usize,
    by: By,
}

/// Everything in a block lies in it: each array of offsets ends in a zero, each offset leads to a
/// text, and the block ends one.
struct Checked {
    argv: Range<usize>,
    env: Range<usize>,
}

fn check(words: &[u64], length: usize) -> Option<Checked> {
    let text = |at: u64| usize::try_from(at).is_ok_and(|at| at < length);
    let array = |head: Head| {
        let at = usize::try_from(*words.get(head as usize)?).ok()?;
        // The words before are the head, and those that stay free.
        let start = (at % 8 == 0 && at / 8 >= HEAD_WORDS + SPARE).then_some(at / 8)?;
        let ends = words.get(start..)?.iter().position(|word| *word == 0)?;
        let range = start..start + ends;
        let all = words.get(range.clone())?.iter().all(|word| text(*word));
        all.then_some(range)
    };
    let heads = [Head::Program, Head::Cwd].map(|head| words.get(head as usize).copied());
    let (argv, env) = (array(Head::Argv)?, array(Head::Env)?);
    let apart = argv.end < env.start && !argv.is_empty();
    (apart && heads.into_iter().all(|at| at.is_some_and(text))).then_some(Checked { argv, env })
}

impl Request {
    /// Maps a private copy and turns its offsets into pointers. Allocates nothing.
    pub fn map(file: &OwnedFd) -> io::Result<Request> {
        let length = usize::try_from(fstat(file)?.st_size).map_err(io::Error::other)?;
        // SAFETY: a new private mapping at an address of the kernel's choice; no memory of ours is touched.
        let base = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            mmap(ptr::null_mut(), length, access, MapFlags::PRIVATE, file, 0)?
        };
        let mut request = Request {
            base: NonNull::new(base.cast()).ok_or(Errno::FAULT)?,
            length,
            by: By::Itself,
        };
        request.point().ok_or(Errno::BADMSG)?;
        Ok(request)
    }

    /// Checks the block, and makes pointers of the offsets in its arrays.
    fn point(&mut self) -> Option<()> {
        let (base, length) = (self.base.as_ptr() as u64, self.length);
        // SAFETY: the mapping is this long and aligned to a page, and nobody else uses it.
        let (words, last) = unsafe {
            let bytes = slice::from_raw_parts(self.base.as_ptr().cast::<u8>(), length);
            let words = slice::from_raw_parts_mut(self.base.as_ptr(), length / 8);
            (words, *bytes.last()?)
        };
        let Checked { argv, env } = check(words, length).filter(|_| last == 0)?;
        for range in [argv, env] {
            for word in words.get_mut(range)? {
                *word += base;
            }
        }
        Some(())
    }

    fn word(&self, head: Head) -> u64 {
        // SAFETY: every head word lies within a block that was checked.
        unsafe { *self.base.as_ptr().add(head as usize) }
    }

    fn array(&self, head: Head) -> *mut u64 {
        // SAFETY: the offsets of arrays were checked to be aligned and within the block.
        unsafe { self.base.as_ptr().add(self.word(head) as usize / 8) }
    }

    fn text(&self, head: Head) -> &CStr {
        // SAFETY: the offset lies within the block, which ends with a zero.
        unsafe {
            CStr::from_ptr(
                self.base
                    .as_ptr()
                    .cast::<u8>()
                    .add(self.word(head) as usize)
                    .cast(),
            )
        }
    }

    /// The file to run.
    pub fn program(&self) -> &CStr {
        self.text(Head::Program)
    }

    /// Where it starts.
    pub fn cwd(&self) -> &CStr {
        self.text(Head::Cwd)
    }

    /// Has `sh` run the program, which is a script without an interpreter line.
    pub fn use_sh(&mut self) {
        let argv = self.array(Head::Argv);
        // SAFETY: argv has at least one word, and the one before it is free.
        unsafe {
            *argv = self.program().as_ptr() as u64;
            *argv.sub(1) = c"sh".as_ptr() as u64;
        }
        self.by = By::Sh;
    }

    /// Has a starter become the program.
    pub fn use_starter(&mut self, starter: OwnedFd) {
        let argv = self.array(Head::Argv);
        // SAFETY: the two words before argv are free.
        unsafe {
            *argv.sub(1) = self.program().as_ptr() as u64;
            *argv.sub(2) = c"start".as_ptr() as u64;
        }
        self.by = By::Starter(starter);
    }

    /// The words that the program gets, the zeroth included.
    pub fn argv(&self) -> impl Iterator<Item = &CStr> {
        // SAFETY: the array ends with null and holds strings of the block, and one before it if need be.
        unsafe { strings(self.argv_array()) }
    }

    /// Its variables.
    pub fn env(&self) -> impl Iterator<Item = &CStr> {
        // SAFETY: the array ends with null and holds strings of the block.
        unsafe { strings(self.env_array()) }
    }

    fn argv_array(&self) -> *const *const c_char {
        let argv = self.array(Head::Argv);
        let more = match self.by {
            By::Itself => 0,
            By::Sh => 1,
            By::Starter(_) => 2,
        };
        // SAFETY: the words before argv lie in the block.
        let argv = unsafe { argv.sub(more) };
        argv.cast_const().cast()
    }

    fn env_array(&self) -> *const *const c_char {
        self.array(Head::Env).cast_const().cast()
    }

    /// Becomes the program; returns only to say why that failed.
    pub(crate) fn exec(&self) -> io::Error {
        let (argv, env) = (self.argv_array(), self.env_array());
        let (file, program, flags) = match &self.by {
            By::Itself => (libc::AT_FDCWD, self.program(), 0),
            By::Sh => (libc::AT_FDCWD, c"/bin/sh", 0),
            By::Starter(file) => (file.as_raw_fd(), c"", libc::AT_EMPTY_PATH),
        };
        // SAFETY: both arrays end with null and hold strings that stay mapped. By number: musl has no `execveat`.
        unsafe { libc::syscall(libc::SYS_execveat, file, program.as_ptr(), argv, env, flags) };
        io::Error::last_os_error()
    }

    /// The mask for new files.
    pub fn umask(&self) -> Option<u32> {
        u32::try_from(self.word(Head::Umask)).ok()
    }

    /// Whether the guard judges its start like any other.
    pub fn is_judged(&self) -> bool {
        self.word(Head::Judged) != 0
    }

    /// By what the guard tells which command begins.
    pub fn tag(&self) -> u32 {
        self.word(Head::Tag) as u32
    }

    /// Which of 0, 1 and 2 become a new terminal, as a bit set.
    pub fn terminal_for(&self) -> u8 {
        self.word(Head::TerminalFor) as u8
    }

    /// A further number that the terminal gets.
    pub fn terminal_at(&self) -> Option<i32> {
        i32::try_from(self.word(Head::TerminalAt)).ok()
    }

    /// The numbers that lead to `/dev/null`, and the modes that it is opened with.
    pub fn null_for(&self) -> impl Iterator<Item = (i32, i32)> {
        let bytes = self.word(Head::NullFor).to_le_bytes();
        let modes = (0..3).zip(bytes);
        modes.filter_map(|(number, byte)| {
            Some((number, i32::from(byte.checked_sub(1)?) & libc::O_ACCMODE))
        })
    }

    /// Rows and columns of the terminal.
    pub fn size(&self) -> (u16, u16) {
        let size = self.word(Head::Size);
        ((size >> 16) as u16, size as u16)
    }

    /// The numbers that the descriptors sent along get.
    pub fn fd_numbers(&self) -> impl Iterator<Item = i32> {
        let count = (self.word(Head::FdCount) as usize).min(MAX_COMMAND_FDS);
        // SAFETY: the head has room for MAX_COMMAND_FDS numbers.
        (0..count).map(|i| unsafe { *self.base.as_ptr().add(Head::Fds as usize + i) as i32 })
    }
}

/// # Safety
/// `array` ends with null, and holds strings that live and do not change for as long as is said.
unsafe fn strings<'a>(array: *const *const c_char) -> impl Iterator<Item = &'a CStr> {
    let mut at = array;
    std::iter::from_fn(move || {
        // SAFETY: the caller vouches for the array, which is not read past its end.
        unsafe {
            let text = NonNull::new((*at).cast_mut())?;
            at = at.add(1);
            Some(CStr::from_ptr(text.as_ptr()))
        }
    })
}

impl Drop for Request {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, and nothing refers to it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_out_as_it_went_in() {
        let argv = [
            OsStr::new("zero"),
            OsStr::from_bytes(b"\xff one"),
            OsStr::new(""),
        ];
        let env = [b"A=1".to_vec(), b"B=\xfe".to_vec()];
        let parts = Parts {
            program: OsStr::new("/bin/x"),
            argv: &argv,
            env: &env,
            cwd: OsStr::new("/a b"),
            umask: Some(0o27),
            terminal_for: 0b101,
            terminal_at: Some(250),
            size: (24, 80),
            null_for: [
                Some(libc::O_RDONLY),
                None,
                Some(libc::O_RDWR | libc::O_APPEND),
            ],
            fds: &[1, 7],
            judged: false,
            tag: 0,
        };
        let file = to_memory_file(&parts).unwrap();
        let mut request = Request::map(&file).unwrap();
        let argv = |request: &Request| {
            let words = request.argv().map(|word| word.to_bytes().to_vec());
            words.collect::<Vec<_>>()
        };
        assert_eq!(request.program(), c"/bin/x");
        assert_eq!(request.cwd(), c"/a b");
        let words: [&[u8]; 4] = [b"zero", b"\xff one", b"", b""];
        assert_eq!(argv(&request), words[..3]);
        assert!(
            request
                .env()
                .map(CStr::to_bytes)
                .eq(env.iter().map(Vec::as_slice))
        );
        assert_eq!(request.umask(), Some(0o27));
        assert_eq!(request.terminal_for(), 0b101);
        assert_eq!(request.terminal_at(), Some(250));
        assert_eq!(request.size(), (24, 80));
        let null: Vec<_> = request.null_for().collect();
        assert_eq!(null, [(0, libc::O_RDONLY), (2, libc::O_RDWR)]);
        assert_eq!(request.fd_numbers().collect::<Vec<_>>(), [1, 7]);
        request.use_sh();
        let words: [&[u8]; 4] = [b"sh", b"/bin/x", b"\xff one", b""];
        assert_eq!(argv(&request), words);
    }

    #[test]
    fn a_block_whose_words_lead_elsewhere_is_refused() {
        let parts = Parts {
            program: OsStr::new("/bin/x"),
            argv: &[OsStr::new("x")],
            env: &[b"A=1".to_vec()],
            cwd: OsStr::new("/"),
            umask: None,
            terminal_for: 0,
            terminal_at: None,
            size: (0, 0),
            null_for: [None; 3],
            fds: &[],
            judged: false,
            tag: 0,
        };
        let whole = build(&parts).unwrap();
        let map = |block: &[u8]| {
            let file = memfd_create(c"request", MemfdFlags::CLOEXEC).unwrap();
            write_all(&file, block).unwrap();
            Request::map(&file)
        };
        map(&whole).unwrap();
        let with = |word: usize, value: u64| {
            let mut block = whole.clone();
            block[8 * word..8 * word + 8].copy_from_slice(&value.to_ne_bytes());
            map(&block).is_ok()
        };
        let end = whole.len() as u64;
        let argv = HEAD_WORDS + SPARE;
        for head in [Head::Program, Head::Cwd, Head::Argv, Head::Env] {
            for wrong in [end, end + 1, u64::MAX] {
                assert!(!with(head as usize, wrong));
            }
        }
        // In the head, between two words, and both at once.
        for wrong in [
            0,
            8,
            8 * argv as u64 + 1,
            8 * argv as u64 - 8,
            8 * argv as u64 + 16,
        ] {
            assert!(!with(Head::Argv as usize, wrong), "{wrong}");
        }
        assert!(!with(Head::Env as usize, 8 * argv as u64));
        assert!(!with(argv, end) && !with(argv + 2, end));
        assert!(!with(argv, 0), "no words at all");
        for length in 0..whole.len() {
            assert!(map(&whole[..length]).is_err(), "{length}");
        }
        let unended = [whole.as_slice(), b"x"].concat();
        assert!(map(&unended).is_err());
    }

    #[test]
    fn a_nul_byte_is_refused() {
        let argv = [OsStr::new("x\0y")];
        let parts = Parts {
            program: OsStr::new("/bin/x"),
            argv: &argv,
            env: &[],
            cwd: OsStr::new("/"),
            umask: None,
            terminal_for: 0,
            terminal_at: None,
            size: (0, 0),
            null_for: [None; 3],
            fds: &[],
            judged: false,
            tag: 0,
        };
        assert!(to_memory_file(&parts).is_err());
    }
}
