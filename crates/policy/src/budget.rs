//! Bytes a session may pass: in all, and per second (a token bucket). Taken before they pass, so that no number
//! of connections can overshoot.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const NANOS: u128 = 1_000_000_000;
/// Stands for "no limit".
const UNLIMITED: u64 = u64::MAX;

/// Where a budget keeps its numbers; at least [`CELLS`] of them. Everyone with the same cells
/// spends the same budget.
pub type Cells = Arc<dyn AsRef<[AtomicU64]> + Send + Sync>;

/// How many numbers a budget needs.
pub const CELLS: usize = 2;

/// Limits, and what is left of them.
pub struct Budget {
    total: AtomicU64,
    rate: AtomicU64,
    cells: Cells,
}

/// The answer to a wish for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// So many may pass, and count as used.
    Bytes(usize),
    /// None now; ask again after this long.
    Later(Duration),
    /// None ever again.
    Exhausted,
}

struct Own([AtomicU64; CELLS]);

impl AsRef<[AtomicU64]> for Own {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// Cells of nobody else.
pub fn own_cells() -> Cells {
    Arc::new(Own(Default::default()))
}

impl Budget {
    /// A budget of its own with these limits, `None` meaning no limit.
    pub fn new(bytes_per_sec: Option<u64>, total_bytes: Option<u64>) -> Budget {
        Budget::over(own_cells(), bytes_per_sec, total_bytes)
    }

    /// The same limits over numbers that others share.
    pub fn over(cells: Cells, bytes_per_sec: Option<u64>, total_bytes: Option<u64>) -> Budget {
        let budget = Budget {
            total: AtomicU64::new(UNLIMITED),
            rate: AtomicU64::new(UNLIMITED),
            cells,
        };
        budget.set_limits(bytes_per_sec, total_bytes);
        budget
    }

    /// Puts other limits in force; what is used stays used.
    pub fn set_limits(&self, bytes_per_sec: Option<u64>, total_bytes: Option<u64>) {
        let (rate, total) = (bytes_per_sec, total_bytes);
        self.rate
            .store(rate.unwrap_or(UNLIMITED), Ordering::Relaxed);
        self.total
            .store(total.unwrap_or(UNLIMITED), Ordering::Relaxed);
    }

    fn cell(&self, index: usize) -> &AtomicU64 {
        &(*self.cells).as_ref()[index]
    }

    /// Bytes that have passed or are about to.
    fn spent(&self) -> &AtomicU64 {
        self.cell(0)
    }

    /// The moment, in nanoseconds, until which the rate is spoken for.
    fn busy_until(&self) -> &AtomicU64 {
        self.cell(1)
    }

    /// Takes up to `want` bytes at the moment `now` of a clock that never runs backwards and that
    /// everyone with the same cells goes by.
    pub fn take(&self, want: usize, now: Duration) -> Grant {
        let mut grant = want as u64;
        if let Some(total) = self.total() {
            grant = grant.min(total.saturating_sub(self.used()));
            if grant == 0 {
                return Grant::Exhausted;
            }
        }
        match self.rate() {
            None => {}
            Some(0) => return Grant::Exhausted,
            Some(rate) => match self.take_time(rate, grant, now) {
                Ok(ready) => grant = ready,
                Err(wait) => return Grant::Later(wait),
            },
        }
        // Others may have taken the rest meanwhile.
        let given = self.take_total(|left| grant.min(left));
        if given < grant {
            self.give_time_back(grant - given);
        }
        if given == 0 {
            return Grant::Exhausted;
        }
        Grant::Bytes(given as usize)
    }

    /// Takes what `choose` picks from what is left of the total.
    fn take_total(&self, choose: impl Fn(u64) -> u64) -> u64 {
        let total = self.total().unwrap_or(UNLIMITED);
        let mut given = 0;
        let _ = self
            .spent()
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                given = choose(total.saturating_sub(used));
                used.checked_add(given)
            });
        given
    }

    /// Takes the time that up to `want` bytes cost, or says how long to wait for enough of it.
    fn take_time(&self, rate: u64, want: u64, now: Duration) -> Result<u64, Duration> {
        let now = nanos(now);
        // Waking for every single byte would cost more than it passes.
        let worth = want.min((bytes_in(burst(rate), rate) / 2).max(1));
        let mut granted = Err(Duration::ZERO);
        let _ = self
            .busy_until()
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |busy| {
                // A moment from before the machine started anew, or of another clock, is no debt.
                let busy = busy.clamp(now.saturating_sub(1), now.saturating_add(burst(rate)));
                let credit = burst(rate).saturating_sub(busy.saturating_sub(now));
                let ready = bytes_in(credit, rate);
                if ready < worth {
                    let missing = cost(worth, rate).saturating_sub(credit).max(1);
                    granted = Err(Duration::from_nanos(missing));
                    return Some(busy);
                }
                let grant = want.min(ready);
                granted = Ok(grant);
                Some(busy.max(now).saturating_add(cost(grant, rate)))
            });
        granted
    }

    fn give_time_back(&self, bytes: u64) {
        if let Some(rate) = self.rate().filter(|rate| *rate > 0) {
            let back = cost(bytes, rate).saturating_sub(1);
            let _ = self
                .busy_until()
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |busy| {
                    Some(busy.saturating_sub(back))
                });
        }
    }

    /// Returns what was taken and not passed.
    pub fn give_back(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let bytes = bytes as u64;
        let _ = self
            .spent()
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                Some(used.saturating_sub(bytes))
            });
        self.give_time_back(bytes);
    }

    /// Takes exactly `bytes`, or nothing.
    pub fn take_all(&self, bytes: u64) -> bool {
        let fits = |left| if bytes <= left { bytes } else { 0 };
        bytes == 0 || self.take_total(fits) == bytes
    }

    /// Counts bytes that passed without being asked for; true when that crossed the total.
    pub fn count(&self, bytes: u64) -> bool {
        let before = self.spent().fetch_add(bytes, Ordering::Relaxed);
        self.total()
            .is_some_and(|total| before <= total && before.saturating_add(bytes) > total)
    }

    /// Bytes used so far.
    pub fn used(&self) -> u64 {
        self.spent().load(Ordering::Relaxed)
    }

    /// The total, if there is one.
    pub fn total(&self) -> Option<u64> {
        Some(self.total.load(Ordering::Relaxed)).filter(|total| *total != UNLIMITED)
    }

    /// The rate, if there is one.
    pub fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Ordering::Relaxed)).filter(|rate| *rate != UNLIMITED)
    }

    /// Whether nothing may pass any more.
    pub fn exhausted(&self) -> bool {
        self.total().is_some_and(|total| self.used() >= total)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("used", &self.used())
            .field("total", &self.total())
            .field("rate", &self.rate())
            .finish()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How long so many bytes take at a rate.
fn cost(bytes: u64, rate: u64) -> u64 {
    let time = (u128::from(bytes) * NANOS).div_ceil(u128::from(rate));
    u64::try_from(time).unwrap_or(u64::MAX)
}

/// How many bytes pass in so many nanoseconds.
fn bytes_in(nanos: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(nanos) * u128::from(rate) / NANOS).unwrap_or(u64::MAX)
}

/// How much time may be saved up: a quarter of a second is enough to be efficient and too little
/// to notice; slow rates need what one byte takes.
fn burst(rate: u64) -> u64 {
    (NANOS as u64 / 4).max(cost(1, rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_threads_take_exactly_the_total() {
        // Two budgets over the same cells, as two gates of a session have them.
        let cells = own_cells();
        let budgets = [(); 2].map(|()| Budget::over(cells.clone(), None, Some(1_000_003)));
        let taken: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|i| {
                    let budget = &budgets[i % 2];
                    scope.spawn(move || {
                        let mut sum = 0;
                        while let Grant::Bytes(n) = budget.take(700 + i, Duration::ZERO) {
                            if n % 3 == 0 {
                                budget.give_back(1);
                                sum += n as u64 - 1;
                            } else {
                                sum += n as u64;
                            }
                        }
                        sum
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        let budget = &budgets[0];
        assert!(taken <= 1_000_003 && budget.used() <= 1_000_003);
        assert_eq!(taken, budget.used());
        assert!(budget.exhausted() || 1_000_003 - taken <= 16);
    }

    #[test]
    fn refused_bytes_do_not_count() {
        let budget = Budget::new(None, Some(100));
        assert!(budget.take_all(60));
        assert!(!budget.take_all(41));
        assert_eq!(budget.used(), 60);
        assert!(budget.take_all(40));
        assert!(!budget.take_all(1));
        assert!(!budget.take_all(u64::MAX));
        assert!(budget.take_all(0));
        assert!(budget.count(1), "over the total now");
        assert!(!budget.count(1), "and said only once");
    }

    #[test]
    fn the_rate_holds_over_any_number_of_takers() {
        let cells = own_cells();
        let budgets = [(); 3].map(|()| Budget::over(cells.clone(), Some(256 * 1024), None));
        let mut now = Duration::from_secs(1_000_000);
        let start = now;
        let mut passed = 0usize;
        for turn in 0.. {
            match budgets[turn % 3].take(64 * 1024, now) {
                Grant::Bytes(n) => passed += n,
                Grant::Later(wait) => {
                    assert!(!wait.is_zero());
                    now += wait;
                }
                Grant::Exhausted => panic!("a rate alone never ends"),
            }
            if passed >= 1024 * 1024 {
                break;
            }
        }
        let took = now - start;
        assert!(took >= Duration::from_secs(3), "{took:?}");
        assert!(took <= Duration::from_secs(4), "{took:?}");
    }

    #[test]
    fn tiny_rates_still_move() {
        let budget = Budget::new(Some(3), None);
        let mut now = Duration::ZERO;
        let mut passed = 0;
        while passed < 12 {
            match budget.take(1460, now) {
                Grant::Bytes(n) => passed += n,
                Grant::Later(wait) => now += wait,
                Grant::Exhausted => panic!("a rate alone never ends"),
            }
        }
        assert!(
            now >= Duration::from_secs(3) && now <= Duration::from_secs(5),
            "{now:?}"
        );
        assert_eq!(
            Budget::new(Some(0), None).take(1, Duration::ZERO),
            Grant::Exhausted
        );
    }

    #[test]
    fn bytes_that_did_not_pass_cost_no_time() {
        let budget = Budget::new(Some(1000), None);
        let now = Duration::from_secs(5);
        assert_eq!(budget.take(250, now), Grant::Bytes(250));
        assert!(matches!(budget.take(250, now), Grant::Later(_)));
        budget.give_back(240);
        assert!(matches!(budget.take(240, now), Grant::Bytes(n) if n >= 239));
    }

    #[test]
    fn new_limits_count_at_once_and_keep_what_is_used() {
        let budget = Budget::new(None, None);
        assert_eq!(budget.take(1 << 20, Duration::ZERO), Grant::Bytes(1 << 20));
        budget.set_limits(None, Some((1 << 20) + 5));
        assert_eq!(budget.take(100, Duration::ZERO), Grant::Bytes(5));
        assert!(budget.exhausted());
    }

    #[test]
    fn a_debt_from_another_clock_is_forgiven() {
        let cells = own_cells();
        (*cells).as_ref()[1].store(u64::MAX - 5, Ordering::Relaxed);
        let budget = Budget::over(cells, Some(1000), None);
        let Grant::Later(wait) = budget.take(10, Duration::from_secs(1)) else {
            panic!("nothing is saved up yet");
        };
        assert!(wait <= Duration::from_millis(500), "{wait:?}");
        assert_eq!(
            budget.take(10, Duration::from_secs(1) + wait),
            Grant::Bytes(10)
        );
    }
}
