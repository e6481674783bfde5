//! Counters in a file that several processes map at once.

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Numbers that every process with the same file sees and changes at once.
#[derive(Debug)]
pub struct Counters {
    start: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the mapping is owned and holds only atomics; nothing about it is tied to a thread.
unsafe impl Send for Counters {}
// SAFETY: as above, atomics may be used from many threads at once.
unsafe impl Sync for Counters {}

impl Counters {
    /// Maps `count` numbers, zero at first, of a file that is open for reading and writing. The
    /// file grows as needed and never shrinks; whoever truncates it ends this process with SIGBUS.
    pub fn map(file: &File, count: usize) -> io::Result<Self> {
        let bytes = count * size_of::<AtomicU64>();
        if count == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if file.metadata()?.len() < bytes as u64 {
            // With room of its own: a hole on a full disk would end whoever writes to it with SIGBUS.
            match fallocate(file, FallocateFlags::empty(), 0, bytes as u64) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(bytes as u64)?,
                made => made?,
            }
        }
        // SAFETY: a fresh mapping of an open descriptor at an address of the kernel's choice
        // aliases no memory of ours.
        let start = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0)?
        };
        let start = NonNull::new(start).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self {
            start: start.cast(),
            count,
        })
    }
}

impl AsRef<[AtomicU64]> for Counters {
    fn as_ref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds `count` aligned numbers for as long as `self` lives, every
        // bit pattern is a number, and other processes change them only as atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        let bytes = self.count * size_of::<AtomicU64>();
        // SAFETY: start and length are what mmap gave, and no borrow outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_of_a_file_are_the_same_numbers() {
        let file = tempfile::tempfile().unwrap();
        let (a, b) = (
            Counters::map(&file, 2).unwrap(),
            Counters::map(&file, 2).unwrap(),
        );
        a.as_ref()[1].fetch_add(7, Ordering::Relaxed);
        b.as_ref()[1].fetch_add(8, Ordering::Relaxed);
        assert_eq!(a.as_ref()[0].load(Ordering::Relaxed), 0);
        assert_eq!(a.as_ref()[1].load(Ordering::Relaxed), 15);
        drop((a, b));
        let again = Counters::map(&file, 2).unwrap();
        assert_eq!(again.as_ref()[1].load(Ordering::Relaxed), 15);
        assert!(Counters::map(&file, 0).is_err());
    }
}
