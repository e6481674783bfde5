//! Pieces of work that a second thread does ahead of whoever needs what comes of them, one after
//! the other. Who waits for a piece helps with those that nobody has begun.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};

/// Pieces of work in a row.
pub(crate) struct WorkQueue<J, F> {
    row: Mutex<Row<J>>,
    /// Something was added, or done, or nothing more will come.
    news: Condvar,
    work: F,
}

struct Row<J> {
    waiting: VecDeque<(u64, J)>,
    done: BTreeMap<u64, J>,
    added: u64,
    taken: u64,
    closed: bool,
}

impl<J: Send, F: Fn(&mut J) + Sync> WorkQueue<J, F> {
    /// An empty row, and what is to be done about each piece.
    pub(crate) fn new(work: F) -> Self {
        Self {
            row: Mutex::new(Row {
                waiting: VecDeque::new(),
                done: BTreeMap::new(),
                added: 0,
                taken: 0,
                closed: false,
            }),
            news: Condvar::new(),
            work,
        }
    }

    fn row(&self) -> MutexGuard<'_, Row<J>> {
        self.row.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a piece at the end.
    pub(crate) fn add(&self, piece: J) {
        let mut row = self.row();
        let number = row.added;
        row.added += 1;
        row.waiting.push_back((number, piece));
        drop(row);
        self.news.notify_all();
    }

    /// How many pieces were added and not taken.
    pub(crate) fn len(&self) -> usize {
        let row = self.row();
        usize::try_from(row.added - row.taken).unwrap_or(usize::MAX)
    }

    /// The first piece, when it is done; `None` when there is none.
    pub(crate) fn take(&self) -> Option<J> {
        let mut row = self.row();
        loop {
            let first = row.taken;
            if first == row.added {
                return None;
            }
            if let Some(piece) = row.done.remove(&first) {
                row.taken += 1;
                return Some(piece);
            }
            row = self.step(row);
        }
    }

    /// Does the first piece that nobody has begun, or waits for news where there is none.
    fn step<'a>(&'a self, mut row: MutexGuard<'a, Row<J>>) -> MutexGuard<'a, Row<J>> {
        let Some((number, mut piece)) = row.waiting.pop_front() else {
            return self.news.wait(row).unwrap_or_else(PoisonError::into_inner);
        };
        drop(row);
        (self.work)(&mut piece);
        let mut row = self.row();
        row.done.insert(number, piece);
        self.news.notify_all();
        row
    }

    /// Has a thread of the scope work ahead until the answer is dropped. Without one the work is done
    /// all the same.
    pub(crate) fn begin<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
    ) -> Closing<'scope, J, F> {
        let _ = thread::Builder::new().spawn_scoped(scope, || self.help());
        Closing(self)
    }

    fn help(&self) {
        let mut row = self.row();
        while !row.closed {
            row = self.step(row);
        }
    }
}

/// Ends the thread that works ahead.
pub(crate) struct Closing<'a, J, F>(&'a WorkQueue<J, F>);

impl<J, F> Drop for Closing<'_, J, F> {
    fn drop(&mut self) {
        let row = &self.0.row;
        row.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.0.news.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_in_order_with_a_helper_and_without() {
        for helped in [false, true] {
            let ahead = WorkQueue::new(|number: &mut u32| *number *= 2);
            thread::scope(|scope| {
                let _helper = helped.then(|| ahead.begin(scope));
                assert_eq!(ahead.take(), None);
                let mut seen = Vec::new();
                for number in 0..5000 {
                    ahead.add(number);
                    while ahead.len() > 7 {
                        seen.extend(ahead.take());
                    }
                }
                while let Some(number) = ahead.take() {
                    seen.push(number);
                }
                let wanted: Vec<u32> = (0..5000).map(|number| number * 2).collect();
                assert_eq!(seen, wanted);
            });
        }
    }

    #[test]
    fn what_is_left_is_left() {
        let ahead = WorkQueue::new(|_: &mut u32| ());
        thread::scope(|scope| {
            let _helper = ahead.begin(scope);
            (0..100).for_each(|number| ahead.add(number));
        });
    }
}
