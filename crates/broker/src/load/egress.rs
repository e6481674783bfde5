//! The egress budget of a session: one count of bytes for all its worlds, in all its processes.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use substrate_policy::budget::{CELLS, Cells};
use substrate_sys::counters::Counters;
use substrate_sys::flags::{O_CLOEXEC, O_NOFOLLOW};
use substrate_trace::RateLimit;

use super::process::Identity;
use crate::home::Home;

/// The session's counters, opened when they are first needed.
#[derive(Default)]
pub struct Spent(OnceLock<Cells>);

impl std::fmt::Debug for Spent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Spent")
            .field(&self.0.get().is_some())
            .finish()
    }
}

/// The answer to a wish to send bytes.
#[derive(Debug, Clone)]
pub enum Egress {
    /// They may pass, and count as used.
    Allowed,
    /// They may not, and do not count; this is what the trace records about it.
    Denied(RateLimit),
}

impl std::fmt::Display for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Egress::Allowed => f.write_str("allowed"),
            Egress::Denied(limit) => write!(
                f,
                "Egress budget exceeded: {} of {} bytes are used ({})",
                limit.used, limit.total, limit.limit
            ),
        }
    }
}

impl Spent {
    /// The counters of the session of this process.
    pub(crate) fn cells(
        &self,
        home: &Home,
        session: impl FnOnce() -> Option<Identity>,
    ) -> io::Result<Cells> {
        let Self(opened) = self;
        if let Some(cells) = opened.get() {
            return Ok(Cells::clone(cells));
        }
        let session =
            session().ok_or_else(|| io::Error::other("/proc does not tell about processes"))?;
        let cells = shared(home, &session)?;
        Ok(Cells::clone(opened.get_or_init(|| cells)))
    }
}

/// Opens the counters of a session; those of sessions that have ended are removed.
fn shared(home: &Home, process: &Identity) -> io::Result<Cells> {
    let directory = home.path.join("egress");
    home.ensure(&directory)?;
    for entry in fs::read_dir(&directory)?.flatten() {
        let ended = entry
            .file_name()
            .to_str()
            .and_then(from_name)
            .is_some_and(|process| !process.is_alive());
        if ended {
            let _ = fs::remove_file(entry.path());
        }
    }
    open(&directory.join(name(process)))
}

fn open(path: &Path) -> io::Result<Cells> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(O_NOFOLLOW | O_CLOEXEC)
        .open(path)?;
    Ok(Arc::new(Counters::map(&file, CELLS)?))
}

fn name(process: &Identity) -> String {
    format!("{}-{}-{}", process.pid, process.start, process.boot)
}

fn from_name(name: &str) -> Option<Identity> {
    let (pid, rest) = name.split_once('-')?;
    let (start, boot) = rest.split_once('-')?;
    Some(Identity {
        pid: pid.parse().ok()?,
        start: start.parse().ok()?,
        boot: boot.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use substrate_policy::budget::Budget;

    use crate::Broker;

    fn broker(directory: &Path, total: u64) -> Broker {
        fs::create_dir_all(directory.join("policies")).unwrap();
        fs::write(
            directory.join("policies/test.yaml"),
            format!("id: test\nname: Test\nnet: {{ egress_budget: {{ total_bytes: {total} }} }}\n"),
        )
        .unwrap();
        fs::write(directory.join("active"), "test\n").unwrap();
        let home = Home::find(Some(directory.as_os_str()), None, || false).unwrap();
        let options = crate::Options {
            choice: crate::Choice::Name("test".to_owned()),
            ceilings: Vec::new(),
            require_approval: false,
            world: None,
            home_variable: None,
            unattended: false,
            session_start: directory.to_owned(),
            caller: crate::Caller::own(),
        };
        Broker::open(home, options).unwrap()
    }

    #[test]
    fn sixteen_threads_and_two_brokers_spend_one_budget() {
        let directory = tempfile::tempdir().unwrap();
        let brokers = [(); 2].map(|()| broker(directory.path(), 10_000));
        let granted: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|i| {
                    let broker = &brokers[i % 2];
                    scope.spawn(move || {
                        let mut sum = 0;
                        while let Egress::Allowed = broker.check_egress(7).unwrap() {
                            sum += 7;
                        }
                        sum
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(granted, 10_000 / 7 * 7);
        let denied = brokers[0].check_egress(7).unwrap();
        assert!(
            denied.to_string().starts_with("Egress budget exceeded"),
            "{denied}"
        );
        let Egress::Denied(limit) = denied else {
            panic!("nothing is left");
        };
        assert_eq!((limit.used, limit.total), (granted, 10_000));
        assert!(matches!(
            brokers[1].check_egress(10_000 - granted).unwrap(),
            Egress::Allowed
        ));
    }

    #[test]
    fn counters_of_ended_sessions_are_removed_and_others_stay() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::find(Some(directory.path().as_os_str()), None, || false).unwrap();
        let own = Identity::of(std::process::id()).unwrap();
        let mut gone = own.clone();
        gone.start += 1;
        let egress = directory.path().join("egress");
        fs::create_dir_all(&egress).unwrap();
        fs::write(egress.join(name(&gone)), [0; 16]).unwrap();
        fs::write(egress.join("notes"), "mine").unwrap();
        let cells = shared(&home, &own).unwrap();
        Budget::over(cells, None, None).count(5);
        assert!(!egress.join(name(&gone)).exists() && egress.join("notes").exists());
        let again = Budget::over(shared(&home, &own).unwrap(), None, Some(5));
        assert!(again.exhausted());
        assert_eq!(from_name(&name(&own)), Some(own));
    }
}
