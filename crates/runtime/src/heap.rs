//! Memory for a program that may live long: dlmalloc behind a short lock. musl's own allocator asks the
//! kernel for single pages and gives them back at once, which was a fifth of what an isolated command takes.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;

use dlmalloc::Dlmalloc;

use crate::spin_lock::SpinLock;

/// An allocator that all threads share.
pub struct Heap {
    alone: SpinLock,
    memory: UnsafeCell<Dlmalloc>,
}

// SAFETY: the memory is touched only inside `locked`, by one thread at a time.
unsafe impl Sync for Heap {}

impl std::fmt::Debug for Heap {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Heap")
    }
}

impl Default for Heap {
    fn default() -> Self {
        Self::new()
    }
}

impl Heap {
    /// A heap that has no memory yet.
    pub const fn new() -> Self {
        Self {
            alone: SpinLock::new(),
            memory: UnsafeCell::new(Dlmalloc::new()),
        }
    }

    #[inline]
    fn locked<T>(&self, work: impl FnOnce(&mut Dlmalloc) -> T) -> T {
        // SAFETY: nobody else has the memory while this one is in.
        self.alone.run(|| work(unsafe { &mut *self.memory.get() }))
    }
}

// SAFETY: dlmalloc keeps the promises of an allocator as long as one thread at a time uses it.
unsafe impl GlobalAlloc for Heap {
    // In the place of every call these would make the program larger by a megabyte.
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises a size above zero.
        self.locked(|memory| unsafe { memory.malloc(layout.size(), layout.align()) })
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises a size above zero.
        self.locked(|memory| unsafe { memory.calloc(layout.size(), layout.align()) })
    }

    #[inline(never)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller promises a block of this heap and the layout that it was made with.
        self.locked(|memory| unsafe { memory.free(block, layout.size(), layout.align()) });
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises a block of this heap and the layout that it was made with.
        self.locked(|memory| unsafe { memory.realloc(block, layout.size(), layout.align(), size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills, grows and checks blocks; what another thread writes would show.
    fn churn(heap: &Heap, mark: u8) {
        let mut blocks: Vec<(*mut u8, Layout)> = Vec::new();
        for round in 0..4000_usize {
            let layout = Layout::from_size_align(1 + round * 37 % 9000, 1 << (round % 7)).unwrap();
            // SAFETY: blocks are written within their size and given back with their own layout.
            unsafe {
                let block = heap.alloc(layout);
                assert!(!block.is_null() && block.addr().is_multiple_of(layout.align()));
                block.write_bytes(mark, layout.size());
                blocks.push((block, layout));
                if round % 3 == 0 {
                    let (block, layout) = blocks.swap_remove(round / 3 % blocks.len());
                    let larger =
                        Layout::from_size_align(layout.size() * 2, layout.align()).unwrap();
                    let moved = heap.realloc(block, layout, larger.size());
                    let content = std::slice::from_raw_parts(moved, layout.size());
                    assert!(content.iter().all(|byte| *byte == mark));
                    moved.write_bytes(mark, larger.size());
                    blocks.push((moved, larger));
                }
                if round % 2 == 0 {
                    let (block, layout) = blocks.swap_remove(round * 7 % blocks.len());
                    let content = std::slice::from_raw_parts(block, layout.size());
                    assert!(content.iter().all(|byte| *byte == mark));
                    heap.dealloc(block, layout);
                }
            }
        }
    }

    #[test]
    fn threads_share_it() {
        let heap = Heap::new();
        std::thread::scope(|scope| {
            for mark in 1..=4 {
                let heap = &heap;
                scope.spawn(move || churn(heap, mark));
            }
        });
    }

    #[test]
    fn zeroed_memory_is_zero() {
        let heap = Heap::new();
        let layout = Layout::from_size_align(5000, 8).unwrap();
        // SAFETY: the block is written and read within its size.
        unsafe {
            let block = heap.alloc(layout);
            block.write_bytes(255, 5000);
            heap.dealloc(block, layout);
            let block = heap.alloc_zeroed(layout);
            let content = std::slice::from_raw_parts(block, 5000);
            assert!(content.iter().all(|byte| *byte == 0));
        }
    }
}
