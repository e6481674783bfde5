//! What may be spent, what is spent, and what is on its way.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::usage::Usage;

/// Names of models are the client's; more than this many are counted together.
const MOST_MODELS: usize = 64;

/// The tokens of an agent and of everything that it starts. What a request may cost at most is taken
/// before it leaves, so that many at once cannot spend the same tokens.
#[derive(Debug, Default)]
pub struct Ledger {
    limit: Option<u64>,
    turns: Option<u64>,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    spent: Spent,
    reserved: u64,
    open: u64,
    ran_out: Option<Limit>,
}

/// What was spent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spent {
    /// Per model.
    pub models: BTreeMap<String, Usage>,
    /// Tokens of answers that broke off or did not say what they cost: what was reserved for them.
    pub charged: u64,
    /// Requests that left.
    pub requests: u64,
}

impl Spent {
    /// All tokens that count against a budget.
    pub fn total(&self) -> u64 {
        let models = self.models.values().map(Usage::total);
        models.fold(self.charged, u64::saturating_add)
    }

    fn add(&mut self, model: &str, usage: &Usage) {
        let known = self.models.contains_key(model) || self.models.len() < MOST_MODELS;
        let name = if known { model } else { "other" };
        self.models.entry(name.to_owned()).or_default().add(usage);
    }
}

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Tokens.
    Tokens,
    /// Requests that cost tokens.
    Turns,
}

/// The tokens or turns did not suffice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RanOut {
    /// Which of them.
    pub what: Limit,
    /// Spent and reserved before this request.
    pub used: u64,
    /// What it may cost at most.
    pub wanted: u64,
    /// How many there are in all.
    pub limit: u64,
}

/// Tokens that are set aside for one request. Dropped unsettled, all of them are charged.
#[derive(Debug)]
pub struct Reservation<'a> {
    ledger: &'a Ledger,
    tokens: u64,
    open: bool,
}

impl Ledger {
    /// With this many tokens, or without a limit.
    pub fn new(limit: Option<u64>) -> Ledger {
        Ledger {
            limit,
            turns: None,
            book: Mutex::default(),
        }
    }

    /// The same with so many turns at most.
    pub fn with_turns(mut self, turns: Option<u64>) -> Ledger {
        self.turns = turns;
        self
    }

    /// How many tokens there are in all.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// What was spent so far.
    pub fn spent(&self) -> Spent {
        self.book().spent.clone()
    }

    /// Because of which limit a request did not leave.
    pub fn ran_out(&self) -> Option<Limit> {
        self.book().ran_out
    }

    /// How many requests wait for the end of their answers.
    pub fn open(&self) -> u64 {
        self.book().open
    }

    /// Takes what a request may cost at most.
    pub fn reserve(&self, tokens: u64) -> Result<Reservation<'_>, RanOut> {
        let mut book = self.book();
        let used = book.spent.total().saturating_add(book.reserved);
        let turns = book.spent.requests;
        let limits = [
            (Limit::Turns, turns, 1, self.turns),
            (Limit::Tokens, used, tokens, self.limit),
        ];
        for (what, used, wanted, limit) in limits {
            if let Some(limit) = limit
                && used.saturating_add(wanted) > limit
            {
                book.ran_out.get_or_insert(what);
                return Err(RanOut {
                    what,
                    used,
                    wanted,
                    limit,
                });
            }
        }
        book.reserved = book.reserved.saturating_add(tokens);
        book.spent.requests += 1;
        book.open += 1;
        Ok(Reservation {
            ledger: self,
            tokens,
            open: true,
        })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation<'_> {
    /// The answer said what it cost.
    pub fn settle(mut self, model: &str, usage: &Usage) {
        self.close().spent.add(model, usage);
    }

    /// It cost nothing: the provider did not take it.
    pub fn release(mut self) {
        drop(self.close());
    }

    /// The answer broke off: what is known of it counts, and of the rest as much as was set aside.
    pub fn charge(mut self, model: &str, seen: &Usage) {
        let tokens = self.tokens;
        let mut book = self.close();
        let known = seen.total();
        if known > 0 {
            book.spent.add(model, seen);
        }
        let rest = tokens.saturating_sub(known);
        book.spent.charged = book.spent.charged.saturating_add(rest);
    }

    fn close(&mut self) -> MutexGuard<'_, Book> {
        let mut book = self.ledger.book();
        if std::mem::take(&mut self.open) {
            book.reserved = book.reserved.saturating_sub(self.tokens);
            book.open = book.open.saturating_sub(1);
        }
        book
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.open {
            let tokens = self.tokens;
            let mut book = self.close();
            book.spent.charged = book.spent.charged.saturating_add(tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(output: u64) -> Usage {
        Usage {
            output,
            ..Usage::default()
        }
    }

    #[test]
    fn what_is_on_its_way_counts_until_it_is_settled() {
        let ledger = Ledger::new(Some(100));
        let first = ledger.reserve(60).unwrap();
        assert_eq!(
            ledger.reserve(60).unwrap_err(),
            RanOut {
                what: Limit::Tokens,
                used: 60,
                wanted: 60,
                limit: 100
            }
        );
        first.settle("m", &usage(10));
        assert_eq!(ledger.ran_out(), Some(Limit::Tokens));
        ledger.reserve(90).unwrap().release();
        assert_eq!(ledger.spent().total(), 10);
        assert!(ledger.reserve(91).is_err());
    }

    #[test]
    fn turns_are_counted_too() {
        let ledger = Ledger::new(None).with_turns(Some(2));
        for _ in 0..2 {
            ledger.reserve(1_000_000).unwrap().release();
        }
        assert_eq!(ledger.reserve(1).unwrap_err().what, Limit::Turns);
        assert_eq!(ledger.ran_out(), Some(Limit::Turns));
    }

    #[test]
    fn a_broken_answer_is_charged_in_full() {
        let ledger = Ledger::new(Some(100));
        ledger.reserve(40).unwrap().charge("m", &usage(15));
        assert_eq!(ledger.spent().total(), 40);
        assert_eq!(ledger.spent().models["m"].output, 15);
        drop(ledger.reserve(50).unwrap());
        assert_eq!(ledger.spent().charged, 75);
        assert_eq!(ledger.open(), 0);
        assert!(ledger.reserve(11).is_err());
    }

    #[test]
    fn many_at_once_cannot_spend_the_same_tokens() {
        let ledger = Ledger::new(Some(1000));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        if let Ok(taken) = ledger.reserve(10) {
                            taken.settle("m", &usage(10));
                        }
                    }
                });
            }
        });
        assert_eq!(ledger.spent().total(), 1000);
    }
}
