//! A spin lock of two instructions, for work that is about as short: what allocators do.

use std::sync::atomic::{AtomicBool, Ordering};

/// How often whoever waits looks again before he gives way.
const PATIENCE: u32 = 100;

/// Lets one thread in at a time.
#[derive(Debug, Default)]
pub(crate) struct SpinLock(AtomicBool);

impl SpinLock {
    /// Nobody is in.
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Works while nobody else does.
    #[inline]
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.0.swap(true, Ordering::Acquire) {
            self.wait();
        }
        let result = work();
        self.0.store(false, Ordering::Release);
        result
    }

    #[cold]
    fn wait(&self) {
        let mut looks = 0;
        while self.0.load(Ordering::Relaxed) || self.0.swap(true, Ordering::Acquire) {
            looks += 1;
            if looks % PATIENCE == 0 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn nobody_is_in_twice() {
        let (alone, inside, total) = (SpinLock::new(), AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        alone.run(|| {
                            assert!(!inside.swap(true, Ordering::Relaxed));
                            let before = total.load(Ordering::Relaxed);
                            total.store(before + 1, Ordering::Relaxed);
                            inside.store(false, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 40_000);
    }
}
