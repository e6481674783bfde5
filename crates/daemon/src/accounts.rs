//! What agents used and may use: one file of counters each, which outlives the service and which nobody can
//! overdraw, however many ask at once.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use substrate_api::execute::Budget;
use substrate_api::service::Agent;
use substrate_broker::Home;
use substrate_sys::counters::Counters;
use substrate_sys::flags;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Execs,
    Runtime,
    Egress,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Execs, Kind::Runtime, Kind::Egress];

    /// How a budget calls its limit.
    pub fn limit(self) -> &'static str {
        match self {
            Kind::Execs => "max_execs",
            Kind::Runtime => "max_runtime_ms",
            Kind::Egress => "max_egress_bytes",
        }
    }

    /// What is used up.
    pub fn what(self) -> &'static str {
        match self {
            Kind::Execs => "executions",
            Kind::Runtime => "runtime",
            Kind::Egress => "egress",
        }
    }

    fn used(self) -> usize {
        self as usize
    }

    fn most(self) -> usize {
        Kind::ALL.len() + self as usize
    }
}

/// A budget that does not reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UsedUp {
    pub kind: Kind,
    pub used: u64,
    pub total: u64,
}

/// Where the accounts lie.
#[derive(Debug)]
pub(crate) struct Accounts(PathBuf);

impl Accounts {
    pub fn of(home: &Home) -> io::Result<Accounts> {
        let directory = home.path.join("accounts");
        home.ensure(&directory)?;
        Ok(Accounts(directory))
    }

    /// That of an agent; opened anew for each command, so that it is found whoever removed it.
    pub fn open(&self, agent: &str) -> io::Result<Account> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options
            .mode(0o600)
            .custom_flags(flags::O_NOFOLLOW | flags::O_CLOEXEC)
            .open(self.0.join(agent))?;
        Ok(Account(Counters::map(&file, 2 * Kind::ALL.len())?))
    }

    /// Everybody's, by name.
    pub fn list(&self) -> io::Result<Vec<Agent>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str().filter(|name| is_name(name)) else {
                continue;
            };
            all.push(self.open(name)?.tell(name));
        }
        all.sort_by(|one, other| one.agent_id.cmp(&other.agent_id));
        Ok(all)
    }
}

/// Whether a text may name an agent: it also names its file.
pub(crate) fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@:+-".contains(&byte);
    (1..=64).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(plain)
}

/// What one agent used, and may use in all.
pub(crate) struct Account(Counters);

impl Account {
    fn cell(&self, at: usize) -> Option<&AtomicU64> {
        self.0.as_ref().get(at)
    }

    /// The limit; a limit of nothing is stored as the largest number, because a new file is all zeros.
    fn most(&self, kind: Kind) -> Option<u64> {
        let stored = self.cell(kind.most())?.load(Ordering::Relaxed);
        match stored {
            0 => None,
            u64::MAX => Some(0),
            most => Some(most),
        }
    }

    /// Lets the smaller of what holds and what is asked for hold from now on.
    pub fn narrow(&self, budget: Budget) {
        let wanted = [
            budget.max_execs,
            budget.max_runtime_ms,
            budget.max_egress_bytes,
        ];
        for (kind, wanted) in Kind::ALL.into_iter().zip(wanted) {
            let (Some(wanted), Some(cell)) = (wanted, self.cell(kind.most())) else {
                continue;
            };
            let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| match held {
                u64::MAX => None,
                _ if wanted == 0 => Some(u64::MAX),
                0 => Some(wanted),
                held => Some(held.min(wanted)),
            });
        }
    }

    /// What is used of something.
    pub fn used(&self, kind: Kind) -> u64 {
        let cell = self.cell(kind.used());
        cell.map_or(u64::MAX, |cell| cell.load(Ordering::Relaxed))
    }

    /// Takes up to `wanted`, and at least one; what is taken counts as used.
    pub fn take(&self, kind: Kind, wanted: u64) -> Result<u64, UsedUp> {
        let most = self.most(kind).unwrap_or(u64::MAX);
        let mut taken = 0;
        if let Some(cell) = self.cell(kind.used()) {
            let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                taken = wanted.min(most.saturating_sub(used));
                (taken > 0).then(|| used.saturating_add(taken))
            });
        }
        match taken {
            0 => Err(UsedUp {
                kind,
                used: self.used(kind),
                total: most,
            }),
            taken => Ok(taken),
        }
    }

    /// Gives back what was taken and not used.
    pub fn give_back(&self, kind: Kind, amount: u64) {
        if let Some(cell) = self.cell(kind.used()) {
            let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                Some(used.saturating_sub(amount))
            });
        }
    }

    /// Counts what nobody could have held back.
    pub fn count(&self, kind: Kind, amount: u64) {
        if let Some(cell) = self.cell(kind.used()) {
            cell.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Whether nothing is left of something.
    pub fn used_up(&self, kind: Kind) -> Result<(), UsedUp> {
        let (used, most) = (self.used(kind), self.most(kind).unwrap_or(u64::MAX));
        match used < most {
            true => Ok(()),
            false => Err(UsedUp {
                kind,
                used,
                total: most,
            }),
        }
    }

    /// As clients see it.
    pub fn tell(&self, name: &str) -> Agent {
        Agent {
            agent_id: name.to_owned(),
            execs: self.used(Kind::Execs),
            runtime_ms: self.used(Kind::Runtime),
            egress_bytes: self.used(Kind::Egress),
            budget: Budget {
                max_execs: self.most(Kind::Execs),
                max_runtime_ms: self.most(Kind::Runtime),
                max_egress_bytes: self.most(Kind::Egress),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> (tempfile::TempDir, Accounts) {
        let dir = tempfile::tempdir().unwrap();
        let accounts = Accounts(dir.path().to_owned());
        (dir, accounts)
    }

    fn execs(most: u64) -> Budget {
        Budget {
            max_execs: Some(most),
            ..Budget::default()
        }
    }

    #[test]
    fn fifty_threads_get_ten_of_ten() {
        let (_dir, accounts) = accounts();
        accounts.open("a").unwrap().narrow(execs(10));
        let got: usize = std::thread::scope(|scope| {
            let one = || usize::from(accounts.open("a").unwrap().take(Kind::Execs, 1).is_ok());
            let all: Vec<_> = (0..50).map(|_| scope.spawn(one)).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(got, 10);
        let up = accounts
            .open("a")
            .unwrap()
            .take(Kind::Execs, 1)
            .unwrap_err();
        assert_eq!((up.used, up.total), (10, 10));
    }

    #[test]
    fn a_budget_only_gets_smaller_and_outlives_who_opened_it() {
        let (_dir, accounts) = accounts();
        for (wanted, holds) in [(10, 10), (50, 10), (7, 7), (0, 0), (9, 0)] {
            let account = accounts.open("b").unwrap();
            account.narrow(execs(wanted));
            assert_eq!(account.tell("b").budget.max_execs, Some(holds), "{wanted}");
        }
        assert!(accounts.open("b").unwrap().take(Kind::Execs, 1).is_err());
        assert!(accounts.open("c").unwrap().take(Kind::Execs, 1).is_ok());
        let names: Vec<String> = accounts
            .list()
            .unwrap()
            .into_iter()
            .map(|agent| agent.agent_id)
            .collect();
        assert_eq!(names, ["b", "c"]);
    }

    #[test]
    fn names_are_names_and_no_paths() {
        for good in ["claude", "a.b-c_d", "team:worker-1", "x@y"] {
            assert!(is_name(good), "{good}");
        }
        let long = "x".repeat(65);
        for bad in ["", ".", "..", "a/b", "a b", "a\n", "ä", long.as_str()] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }
}
