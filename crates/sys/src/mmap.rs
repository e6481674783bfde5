//! Files mapped into memory, read-only.

use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Read};
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// A file's content, mapped privately.
#[derive(Debug)]
pub struct MappedFile {
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: the mapping is read-only and owned; nothing about it is tied to a thread.
unsafe impl Send for MappedFile {}
// SAFETY: as above, shared reads of read-only memory do not race.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// A copy of the whole file, which stays whatever becomes of the file. Its memory is there at
    /// once; page by page would take longer than the copying.
    pub fn copy(mut file: &File) -> io::Result<Self> {
        let length =
            usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases no memory
        // of ours.
        let start = unsafe {
            let (access, how) = (
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::POPULATE,
            );
            mmap_anonymous(ptr::null_mut(), length, access, how)?
        };
        let start = NonNull::new(start).ok_or(io::ErrorKind::InvalidData)?;
        let copy = Self { start, length };
        // SAFETY: the mapping is this long, zeroed by the kernel, and nobody else knows of it yet.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start.as_ptr().cast::<u8>(), length) };
        file.read_exact(bytes)?;
        Ok(copy)
    }

    /// Maps the whole file. An empty file cannot be mapped and is an error.
    ///
    /// Whoever can truncate the file can end this process with SIGBUS, so map only files that
    /// the user's own programs replace by renaming.
    pub fn open(file: &File) -> io::Result<Self> {
        let length =
            usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: a fresh private mapping of an open descriptor at an address of the kernel's
        // choice aliases no memory of ours.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ,
                MapFlags::PRIVATE,
                file,
                0,
            )?
        };
        let start = NonNull::new(start).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start, length })
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping is `length` readable bytes for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.length) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: start and length are what mmap gave, and no borrow outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr(), self.length) };
    }
}
