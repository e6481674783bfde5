//! One try to run a command: whoever knows its id can ask what became of it, also after his connection broke.

use std::collections::{BTreeMap, VecDeque};
use std::io::PipeWriter;
use std::sync::{Arc, Mutex};

use substrate_api::errors::Problem;
use substrate_api::execute::ExecuteResponse;
use tokio::sync::watch;

use crate::locked::lock;

/// Ended attempts that are remembered, the newest.
const REMEMBERED: usize = 1000;
/// And no more than this of what they printed.
const REMEMBERED_BYTES: usize = 64 << 20;

/// How far an attempt is.
#[derive(Debug, Clone)]
pub(crate) enum State {
    /// It runs, or is about to.
    Running,
    /// This question has to be answered first.
    Asking(String),
    /// It is over.
    Over(Arc<Result<ExecuteResponse, Problem>>),
}

/// One try to run a command.
pub(crate) struct Attempt {
    pub id: String,
    pub agent: String,
    state: watch::Sender<State>,
    /// Open as long as somebody wants the command; why it was closed.
    wanted: Mutex<(Option<PipeWriter>, Option<&'static str>)>,
}

impl Attempt {
    pub fn new(agent: &str, wanted: PipeWriter) -> Arc<Attempt> {
        Arc::new(Attempt {
            id: substrate_trace::unique("att"),
            agent: agent.to_owned(),
            state: watch::Sender::new(State::Running),
            wanted: Mutex::new((Some(wanted), None)),
        })
    }

    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Hears of every change.
    pub fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    pub fn set(&self, state: State) {
        self.state.send_replace(state);
    }

    /// Has the command end, for a reason if it is a limit.
    pub fn abandon(&self, limit: Option<&'static str>) {
        let mut wanted = lock(&self.wanted);
        if wanted.0.take().is_some() {
            wanted.1 = limit;
        }
    }

    pub fn is_wanted(&self) -> bool {
        lock(&self.wanted).0.is_some()
    }

    /// The limit that ended it.
    pub fn limit(&self) -> Option<&'static str> {
        lock(&self.wanted).1
    }
}

/// Ends a command whose client is gone, unless the client has what he wanted.
pub(crate) struct Interest(pub Arc<Attempt>);

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.abandon(None);
    }
}

/// Attempts by their ids, and by the keys that clients gave them.
#[derive(Default)]
pub(crate) struct Attempts(Mutex<Known>);

#[derive(Default)]
struct Known {
    all: BTreeMap<String, Arc<Attempt>>,
    keys: BTreeMap<(String, String), (String, String)>,
    over: VecDeque<(String, usize)>,
    bytes: usize,
}

/// What a key stands for.
pub(crate) enum Keyed {
    /// Nothing yet: this is the attempt from now on.
    New,
    /// An earlier attempt with the same request.
    Same(Arc<Attempt>),
    /// An earlier attempt with another request.
    Other,
}

impl Attempts {
    pub fn find(&self, id: &str) -> Option<Arc<Attempt>> {
        lock(&self.0).all.get(id).cloned()
    }

    pub fn add(&self, attempt: &Arc<Attempt>) {
        let mut known = lock(&self.0);
        known.all.insert(attempt.id.clone(), Arc::clone(attempt));
    }

    /// Enters an attempt under the key of its client, who may have sent the same request, known by its digest, before.
    pub fn keyed(&self, attempt: &Arc<Attempt>, key: &str, request: &str) -> Keyed {
        let mut known = lock(&self.0);
        let name = (attempt.agent.clone(), key.to_owned());
        let Some((id, before)) = known.keys.get(&name) else {
            known
                .keys
                .insert(name, (attempt.id.clone(), request.to_owned()));
            return Keyed::New;
        };
        match known.all.get(id) {
            Some(earlier) if before == request => Keyed::Same(Arc::clone(earlier)),
            _ => Keyed::Other,
        }
    }

    /// Notes that one is over; the oldest are forgotten.
    pub fn over(&self, attempt: &Attempt, size: usize) {
        let mut known = lock(&self.0);
        known.over.push_back((attempt.id.clone(), size));
        known.bytes += size;
        while known.over.len() > REMEMBERED || known.bytes > REMEMBERED_BYTES {
            let Some((id, size)) = known.over.pop_front() else {
                break;
            };
            known.bytes -= size;
            known.all.remove(&id);
            known.keys.retain(|_, (kept, _)| *kept != id);
        }
    }

    /// How many are not over.
    pub fn unfinished(&self) -> usize {
        let known = lock(&self.0);
        known.all.len() - known.over.len().min(known.all.len())
    }

    /// All that are not over.
    pub fn running(&self) -> Vec<Arc<Attempt>> {
        let known = lock(&self.0);
        let all = known.all.values();
        all.filter(|attempt| !matches!(attempt.state(), State::Over(_)))
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt() -> Arc<Attempt> {
        Attempt::new("a", std::io::pipe().unwrap().1)
    }

    #[test]
    fn a_key_is_one_attempt_and_one_request() {
        let attempts = Attempts::default();
        let (first, second) = (attempt(), attempt());
        attempts.add(&first);
        assert!(matches!(attempts.keyed(&first, "k", "true"), Keyed::New));
        match attempts.keyed(&second, "k", "true") {
            Keyed::Same(same) => assert_eq!(same.id, first.id),
            _ => panic!("the same request is the same attempt"),
        }
        assert!(matches!(
            attempts.keyed(&second, "k", "false"),
            Keyed::Other
        ));
        assert!(matches!(attempts.keyed(&second, "l", "false"), Keyed::New));
    }

    #[test]
    fn old_answers_are_forgotten_and_their_keys_with_them() {
        let attempts = Attempts::default();
        let first = attempt();
        attempts.add(&first);
        attempts.keyed(&first, "k", "true");
        attempts.over(&first, REMEMBERED_BYTES);
        assert!(attempts.find(&first.id).is_some());
        let second = attempt();
        attempts.add(&second);
        attempts.over(&second, 1);
        assert!(attempts.find(&first.id).is_none() && attempts.find(&second.id).is_some());
        assert!(matches!(attempts.keyed(&second, "k", "x"), Keyed::New));
    }

    #[test]
    fn who_loses_interest_says_why_only_once() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let attempt = Attempt::new("a", writer);
        assert!(attempt.is_wanted());
        attempt.abandon(Some("timeout_ms"));
        drop(Interest(Arc::clone(&attempt)));
        assert_eq!(
            (attempt.is_wanted(), attempt.limit()),
            (false, Some("timeout_ms"))
        );
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut rest).unwrap();
    }
}
