//! Questions that wait for a person who is somewhere else.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use substrate_api::approvals::{Choice, Waiting};
use substrate_executor::front::Given;
use substrate_trace::Answer;

/// Most questions at once: more would be a flood that nobody reads.
const MOST: usize = 256;

/// How often somebody who waits looks whether he still should.
const GLANCE: Duration = Duration::from_millis(100);

/// All questions that wait.
#[derive(Default)]
pub(crate) struct Queue(Mutex<BTreeMap<String, Question>>);

struct Question {
    about: Waiting,
    since: Instant,
    answer: mpsc::Sender<Choice>,
}

/// A question that was put.
pub(crate) struct Put {
    id: String,
    since: Instant,
    answered: mpsc::Receiver<Choice>,
}

/// What becomes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAnswered {
    #[error("no such question waits")]
    Unknown,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Question>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a question; nothing when there are too many.
    pub fn put(&self, about: Waiting) -> Option<Put> {
        let (answer, answered) = mpsc::channel();
        let (id, since) = (about.id.clone(), Instant::now());
        let mut all = self.lock();
        if all.len() >= MOST {
            return None;
        }
        let question = Question {
            about,
            since,
            answer,
        };
        all.insert(id.clone(), question);
        Some(Put {
            id,
            since,
            answered,
        })
    }

    /// Waits for its answer, for this long, as long as somebody wants it.
    pub fn wait(&self, put: Put, patience: Duration, wanted: &dyn Fn() -> bool) -> Given {
        let choice = loop {
            match put.answered.recv_timeout(GLANCE) {
                Ok(choice) => break Some(choice),
                Err(RecvTimeoutError::Timeout) if put.since.elapsed() < patience && wanted() => {}
                Err(_) => break None,
            }
        };
        self.lock().remove(&put.id);
        given(choice)
    }

    /// The questions, the oldest first.
    pub fn list(&self) -> Vec<Waiting> {
        let all = self.lock();
        let mut all: Vec<Waiting> = all
            .values()
            .map(|question| Waiting {
                waited_ms: u64::try_from(question.since.elapsed().as_millis()).unwrap_or(u64::MAX),
                ..question.about.clone()
            })
            .collect();
        all.sort_by_key(|question| std::cmp::Reverse(question.waited_ms));
        all
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Answers one.
    pub fn answer(&self, id: &str, choice: Choice) -> Result<(), NotAnswered> {
        let all = self.lock();
        let question = all.get(id).ok_or(NotAnswered::Unknown)?;
        // Whoever asked may have given up a moment ago.
        question
            .answer
            .send(choice)
            .map_err(|_| NotAnswered::Unknown)
    }
}

/// Nothing is remembered here: who asks through a socket is known by the process that made it, and a process can become
/// another program. What lasts is granted by `substrate approvals` at a terminal.
fn given(choice: Option<Choice>) -> Given {
    Given {
        answer: match choice {
            Some(Choice::Once) => Answer::Once,
            Some(Choice::Refuse) => Answer::Refused,
            None => Answer::Nobody,
        },
        what: Vec::new(),
        for_session: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(id: &str, can_be_remembered: bool) -> Waiting {
        Waiting {
            id: id.to_owned(),
            agent_id: "a".to_owned(),
            attempt: String::new(),
            cmd: "git push".into(),
            cwd: "/".into(),
            text: String::new(),
            patterns: Vec::new(),
            can_be_remembered,
            waited_ms: 0,
        }
    }

    #[test]
    fn an_answer_reaches_who_asked_and_lasts_no_longer() {
        let queue = Queue::default();
        let long = Duration::from_secs(60);
        std::thread::scope(|scope| {
            let put = queue.put(about("q", true)).unwrap();
            let asking = scope.spawn(|| queue.wait(put, long, &|| true));
            assert_eq!(queue.answer("x", Choice::Once), Err(NotAnswered::Unknown));
            queue.answer("q", Choice::Once).unwrap();
            let given = asking.join().unwrap();
            assert_eq!((given.answer, given.what.len()), (Answer::Once, 0));
        });
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_question_ends_with_its_time_and_with_whoever_wanted_it() {
        let queue = Queue::default();
        let short = Duration::from_millis(1);
        let put = |id| queue.put(about(id, true)).unwrap();
        let nobody = queue.wait(put("q"), short, &|| true);
        assert_eq!(nobody.answer, Answer::Nobody);
        let long = Duration::from_secs(60);
        let gone = queue.wait(put("q"), long, &|| false);
        assert_eq!((gone.answer, queue.len()), (Answer::Nobody, 0));
    }
}
