//! Memory for a program that lives for a moment. Fresh pages are what costs, so blocks that were
//! given back are used again, and nothing is ever returned to the kernel.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::spin_lock::SpinLock;

/// The first piece is part of the program: it comes with the start, and must fit into small limits.
const FIRST: usize = 96 << 10;

/// So much, from the page that it begins on, is there before anything asks: one call instead of a fault
/// for every page.
const AT_ONCE: usize = 12 << 10;

/// Later pieces are at least this large, and their pages come as they are used.
const FURTHER: usize = 256 << 10;

/// Blocks come in these sizes, powers of two and one between each, so that one that was given back
/// fits the next of its kind.
const SIZES: [usize; 24] = [
    16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192,
    12288, 16384, 24576, 32768, 49152, 65536,
];

/// An allocator with a list of free blocks for each size.
#[derive(Debug)]
pub struct Arena {
    next: Cell<usize>,
    end: Cell<usize>,
    free: [Cell<usize>; SIZES.len()],
    alone: SpinLock,
}

#[repr(align(64))]
struct Pages(UnsafeCell<[u8; FIRST]>);

// SAFETY: the only use of the pages is to hand them to the first arena that asks.
unsafe impl Sync for Pages {}

// SAFETY: a section for what starts as zeros, of its own so that it can lie behind all others:
// between them it would spread them over more pages.
#[unsafe(link_section = ".bss.arena")]
static PAGES: Pages = Pages(UnsafeCell::new([0; FIRST]));

/// Whether an arena has them.
static TAKEN: AtomicBool = AtomicBool::new(false);

// SAFETY: the cells are touched by one thread at a time, see `alone`.
unsafe impl Sync for Arena {}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

/// The kind of block that a layout takes; larger or more aligned ones are never used again.
fn kind(layout: Layout) -> Option<usize> {
    let size = layout.size().max(layout.align());
    if layout.align() > 16 || size > SIZES[SIZES.len() - 1] {
        return None;
    }
    let power = size.max(16).next_power_of_two();
    let bits = power.trailing_zeros() as usize;
    let between = usize::from(bits > 5 && size <= power / 4 * 3);
    Some((2 * bits).saturating_sub(9 + between))
}

impl Arena {
    /// An arena that has no memory yet.
    pub const fn new() -> Self {
        Self {
            next: Cell::new(0),
            end: Cell::new(0),
            free: [const { Cell::new(0) }; SIZES.len()],
            alone: SpinLock::new(),
        }
    }

    fn find(&self, layout: Layout) -> *mut u8 {
        let Some(kind) = kind(layout) else {
            return self.fresh(layout.size(), layout.align());
        };
        let block = self.free[kind].get();
        if block == 0 {
            return self.fresh(SIZES[kind], 16);
        }
        let block = ptr::with_exposed_provenance_mut::<usize>(block);
        // SAFETY: a free block of at least 16 bytes holds the address of the next one, see `give`.
        self.free[kind].set(unsafe { *block });
        block.cast()
    }

    fn give(&self, block: *mut u8, layout: Layout) {
        if let Some(kind) = kind(layout) {
            // SAFETY: the block is ours again, aligned to 16 and at least that long.
            unsafe { *block.cast::<usize>() = self.free[kind].get() };
            self.free[kind].set(block.expose_provenance());
        }
    }

    fn fresh(&self, size: usize, align: usize) -> *mut u8 {
        let found = self.take(size, align).or_else(|| {
            let wanted = size.checked_add(align)?;
            self.grow(wanted).then(|| self.take(size, align))?
        });
        found.map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
    }

    fn take(&self, size: usize, align: usize) -> Option<usize> {
        let start = self.next.get().checked_next_multiple_of(align)?;
        let end = start.checked_add(size)?;
        (start != 0 && end <= self.end.get()).then(|| {
            self.next.set(end);
            start
        })
    }

    fn grow(&self, wanted: usize) -> bool {
        if wanted <= FIRST && !TAKEN.swap(true, Ordering::Relaxed) {
            let start = PAGES.0.get();
            let page = start.map_addr(|address| address & !4095);
            // SAFETY: brings pages in that are ours; where the kernel cannot, they come when used.
            unsafe { libc::madvise(page.cast(), AT_ONCE, libc::MADV_POPULATE_WRITE) };
            self.next.set(start.expose_provenance());
            self.end.set(start.expose_provenance() + FIRST);
            return true;
        }
        let Some(size) = FURTHER.max(wanted).checked_next_multiple_of(4096) else {
            return false;
        };
        // SAFETY: a fresh private mapping at an address of the kernel's choice.
        let piece = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if piece == libc::MAP_FAILED {
            return false;
        }
        let start = piece.expose_provenance();
        self.next.set(start);
        self.end.set(start + size);
        true
    }
}

// SAFETY: every block lies inside the first piece or a mapping that is never unmapped, is aligned as
// asked, and is handed out again only after it was given back.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.alone.run(|| self.find(layout))
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.alone.run(|| self.give(block, layout));
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises a size that makes a valid layout with the old alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let same = kind(layout).is_some() && kind(layout) == kind(wanted);
        if same || (kind(layout).is_none() && size <= layout.size()) {
            return block;
        }
        self.alone.run(|| {
            let new = self.find(wanted);
            if !new.is_null() {
                // SAFETY: the blocks do not overlap, and each holds the smaller of the two sizes.
                unsafe { ptr::copy_nonoverlapping(block, new, layout.size().min(size)) };
                self.give(block, layout);
            }
            new
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn the_smallest_kind_that_fits() {
        for size in 0..70_000 {
            let smallest = SIZES.iter().position(|fits| size <= *fits);
            assert_eq!(kind(layout(size, 1)), smallest, "{size}");
        }
        assert_eq!(kind(layout(1, 16)), Some(0));
        assert_eq!(kind(layout(1, 32)), None);
    }

    #[test]
    fn blocks_do_not_overlap_and_keep_their_content() {
        let arena = Arena::new();
        let mut blocks: Vec<(*mut u8, Layout, u8)> = Vec::new();
        for round in 0..3000_usize {
            let wanted = layout(1 + round * 37 % 90_000, 1 << (round % 7));
            // SAFETY: blocks are written within their size and freed with their own layout.
            unsafe {
                let block = arena.alloc(wanted);
                assert!(!block.is_null() && block.addr().is_multiple_of(wanted.align()));
                block.write_bytes(round as u8, wanted.size());
                blocks.push((block, wanted, round as u8));
                if round % 3 == 0 {
                    let (block, wanted, mark) = blocks.swap_remove(round / 3 % blocks.len());
                    let larger = layout(wanted.size() * 2, wanted.align());
                    let moved = arena.realloc(block, wanted, larger.size());
                    moved.add(wanted.size()).write_bytes(mark, wanted.size());
                    blocks.push((moved, larger, mark));
                }
                if round % 2 == 0 {
                    let (block, wanted, mark) = blocks.swap_remove(round * 7 % blocks.len());
                    let content = std::slice::from_raw_parts(block, wanted.size());
                    assert!(content.iter().all(|byte| *byte == mark));
                    arena.dealloc(block, wanted);
                }
            }
        }
        for (block, wanted, mark) in blocks {
            // SAFETY: the block was written in full above.
            let content = unsafe { std::slice::from_raw_parts(block, wanted.size()) };
            assert!(content.iter().all(|byte| *byte == mark));
        }
    }

    #[test]
    fn what_is_given_back_is_used_again() {
        let arena = Arena::new();
        // SAFETY: the blocks are freed with the layouts that they were made with.
        unsafe {
            let first = arena.alloc(layout(100, 8));
            arena.dealloc(first, layout(100, 8));
            assert_eq!(arena.alloc(layout(120, 1)), first, "the next of its kind");
            assert_eq!(
                arena.realloc(first, layout(120, 1), 97),
                first,
                "no other kind"
            );
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let huge = layout(isize::MAX as usize - 4096, 1);
        // SAFETY: a null answer is the only one that is looked at.
        assert!(unsafe { Arena::new().alloc(huge) }.is_null());
    }
}
