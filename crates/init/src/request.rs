//! A command on its way into a world: one block of memory that the world's first process can
//! use where it lies, because nothing may be allocated there.

use std::ffi::{CStr, OsStr};
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use crate::control::MAX_FDS;

/// Two of the message's descriptors are the events and the block itself.
pub const MAX_COMMAND_FDS: usize = MAX_FDS - 2;

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
    Size,
    FdCount,
    Fds,
}

const HEAD_WORDS: usize = Head::Fds as usize + MAX_COMMAND_FDS;

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
}

/// Puts the parts into a memory file, which is what travels.
pub(crate) fn to_memory_file(parts: &Parts<'_>) -> io::Result<OwnedFd> {
    let block = build(parts)?;
    // SAFETY: the name is a C string; no other pointers.
    let fd = unsafe { libc::memfd_create(c"request".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor and nobody else owns it.
    let mut file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(&block)?;
    Ok(file.into())
}

fn build(parts: &Parts<'_>) -> io::Result<Vec<u8>> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    if parts.fds.len() > MAX_COMMAND_FDS || parts.argv.is_empty() {
        return Err(invalid());
    }
    // One spare word before argv: a script without an interpreter line is run by sh, which
    // moves the arguments up by one.
    let words = HEAD_WORDS + 1 + parts.argv.len() + 1 + parts.env.len() + 1;
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
    head[Head::Size as usize] = u64::from(parts.size.0) << 16 | u64::from(parts.size.1);
    head[Head::FdCount as usize] = parts.fds.len() as u64;
    for (i, fd) in parts.fds.iter().enumerate() {
        head[Head::Fds as usize + i] = u64::try_from(*fd).map_err(|_| invalid())?;
    }
    let argv = HEAD_WORDS + 1;
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

/// A block mapped for use in the world's first process.
pub(crate) struct Mapped {
    base: *mut u64,
    length: usize,
}

impl Mapped {
    /// Maps a private copy and turns its offsets into pointers.
    ///
    /// # Safety
    /// `file` must hold a block made by [`to_memory_file`].
    pub(crate) unsafe fn new(file: &OwnedFd) -> io::Result<Mapped> {
        use std::os::fd::AsRawFd;
        // SAFETY: an all-zero stat is valid.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `stat` is writable for the call.
        if unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let length = stat.st_size as usize;
        // SAFETY: a new private mapping of the whole file; no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapped = Mapped {
            base: base.cast(),
            length,
        };
        // SAFETY: the builder wrote both arrays with a zero word at their end, inside the block.
        unsafe {
            for array in [Head::Argv, Head::Env] {
                let mut place = mapped.array(array);
                while *place != 0 {
                    *place += mapped.base as u64;
                    place = place.add(1);
                }
            }
        }
        Ok(mapped)
    }

    fn word(&self, head: Head) -> u64 {
        // SAFETY: every head word lies within the block.
        unsafe { *self.base.add(head as usize) }
    }

    fn array(&self, head: Head) -> *mut u64 {
        // SAFETY: the builder keeps the offsets of arrays within the block and aligned.
        unsafe { self.base.add(self.word(head) as usize / 8) }
    }

    fn text(&self, head: Head) -> &CStr {
        // SAFETY: the builder put a terminated string at this offset.
        unsafe { CStr::from_ptr(self.base.cast::<u8>().add(self.word(head) as usize).cast()) }
    }

    pub(crate) fn program(&self) -> &CStr {
        self.text(Head::Program)
    }

    pub(crate) fn cwd(&self) -> &CStr {
        self.text(Head::Cwd)
    }

    pub(crate) fn argv(&self) -> *const *const libc::c_char {
        self.array(Head::Argv).cast_const().cast()
    }

    /// The arguments for `sh`, when the program is a script without an interpreter line.
    pub(crate) fn argv_for_sh(&self) -> *const *const libc::c_char {
        let argv = self.array(Head::Argv);
        // SAFETY: the builder left a spare word before argv, and argv has at least one word.
        unsafe {
            *argv = self.program().as_ptr() as u64;
            *argv.sub(1) = c"sh".as_ptr() as u64;
            argv.sub(1).cast_const().cast()
        }
    }

    pub(crate) fn env(&self) -> *const *const libc::c_char {
        self.array(Head::Env).cast_const().cast()
    }

    pub(crate) fn umask(&self) -> Option<u32> {
        u32::try_from(self.word(Head::Umask)).ok()
    }

    pub(crate) fn terminal_for(&self) -> u8 {
        self.word(Head::TerminalFor) as u8
    }

    pub(crate) fn terminal_at(&self) -> Option<i32> {
        i32::try_from(self.word(Head::TerminalAt)).ok()
    }

    /// The numbers that lead to `/dev/null`, and the modes that it is opened with.
    pub(crate) fn null_for(&self) -> impl Iterator<Item = (i32, i32)> {
        let bytes = self.word(Head::NullFor).to_le_bytes();
        let modes = (0..3).zip(bytes);
        modes.filter_map(|(number, byte)| Some((number, i32::from(byte.checked_sub(1)?))))
    }

    pub(crate) fn size(&self) -> (u16, u16) {
        let size = self.word(Head::Size);
        ((size >> 16) as u16, size as u16)
    }

    pub(crate) fn fd_numbers(&self) -> impl Iterator<Item = i32> {
        let count = (self.word(Head::FdCount) as usize).min(MAX_COMMAND_FDS);
        // SAFETY: the head has room for MAX_COMMAND_FDS numbers.
        (0..count).map(|i| unsafe { *self.base.add(Head::Fds as usize + i) as i32 })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `new` made, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.cast(), self.length) };
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
        };
        let file = to_memory_file(&parts).unwrap();
        // SAFETY: the block was just made.
        let block = unsafe { Mapped::new(&file) }.unwrap();
        let strings = |mut at: *const *const libc::c_char| {
            let mut all = Vec::new();
            // SAFETY: the arrays end with null and hold C strings.
            unsafe {
                while !(*at).is_null() {
                    all.push(CStr::from_ptr(*at).to_bytes().to_vec());
                    at = at.add(1);
                }
            }
            all
        };
        assert_eq!(block.program(), c"/bin/x");
        assert_eq!(block.cwd(), c"/a b");
        assert_eq!(
            strings(block.argv()),
            [b"zero".to_vec(), b"\xff one".to_vec(), b"".to_vec()]
        );
        assert_eq!(strings(block.env()), env);
        assert_eq!(block.umask(), Some(0o27));
        assert_eq!(block.terminal_for(), 0b101);
        assert_eq!(block.terminal_at(), Some(250));
        assert_eq!(block.size(), (24, 80));
        let null: Vec<_> = block.null_for().collect();
        assert_eq!(null, [(0, libc::O_RDONLY), (2, libc::O_RDWR)]);
        assert_eq!(block.fd_numbers().collect::<Vec<_>>(), [1, 7]);
        assert_eq!(
            strings(block.argv_for_sh()),
            [
                b"sh".to_vec(),
                b"/bin/x".to_vec(),
                b"\xff one".to_vec(),
                b"".to_vec()
            ]
        );
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
        };
        assert!(to_memory_file(&parts).is_err());
    }
}
