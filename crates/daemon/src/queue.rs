//! Questions that wait for a person who is somewhere else.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use substrate_api::approvals::{By, Choice, Waiting};
use substrate_broker::approvals::Approved;
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
    proposed: Vec<Approved>,
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
    #[error(
        "a client may answer `once` or `refuse`; `substrate approvals answer` at a terminal can remember"
    )]
    OnlyAPerson,
    #[error("an answer to this question cannot be remembered; `once` and `refuse` are possible")]
    OnlyOnce,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Question>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a question; nothing when there are too many.
    pub fn put(&self, about: Waiting, proposed: Vec<Approved>) -> Option<Put> {
        let (answer, answered) = mpsc::channel();
        let (id, since) = (about.id.clone(), Instant::now());
        let mut all = self.lock();
        if all.len() >= MOST {
            return None;
        }
        let question = Question {
            about,
            proposed,
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
        let question = self.lock().remove(&put.id);
        let proposed = question.map(|question| question.proposed);
        given(choice, proposed.unwrap_or_default())
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
    pub fn answer(&self, id: &str, choice: Choice, by: By) -> Result<(), NotAnswered> {
        let all = self.lock();
        let question = all.get(id).ok_or(NotAnswered::Unknown)?;
        let lasts = matches!(choice, Choice::Session | Choice::Always);
        if lasts && by != By::Person {
            return Err(NotAnswered::OnlyAPerson);
        }
        if lasts && !question.about.can_be_remembered {
            return Err(NotAnswered::OnlyOnce);
        }
        // Whoever asked may have given up a moment ago.
        question
            .answer
            .send(choice)
            .map_err(|_| NotAnswered::Unknown)
    }
}

fn given(choice: Option<Choice>, proposed: Vec<Approved>) -> Given {
    let (answer, what) = match choice {
        Some(Choice::Once) => (Answer::Once, Vec::new()),
        Some(Choice::Session) => (Answer::Session, proposed),
        Some(Choice::Always) => (Answer::Always, proposed),
        Some(Choice::Refuse) => (Answer::Refused, Vec::new()),
        None => (Answer::Nobody, Vec::new()),
    };
    Given {
        answer,
        what,
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
    fn an_answer_reaches_who_asked_and_nobody_answers_for_longer_than_he_may() {
        let queue = Queue::default();
        let long = Duration::from_secs(60);
        std::thread::scope(|scope| {
            let put = queue.put(about("q", true), Vec::new()).unwrap();
            let asking = scope.spawn(|| queue.wait(put, long, &|| true));
            let refused = queue.answer("q", Choice::Always, By::Client);
            assert_eq!(refused, Err(NotAnswered::OnlyAPerson));
            assert_eq!(
                queue.answer("x", Choice::Once, By::Person),
                Err(NotAnswered::Unknown)
            );
            queue.answer("q", Choice::Always, By::Person).unwrap();
            assert_eq!(asking.join().unwrap().answer, Answer::Always);
        });
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_question_ends_with_its_time_and_with_whoever_wanted_it() {
        let queue = Queue::default();
        let short = Duration::from_millis(1);
        let put = |id| queue.put(about(id, true), Vec::new()).unwrap();
        let nobody = queue.wait(put("q"), short, &|| true);
        assert_eq!(nobody.answer, Answer::Nobody);
        let long = Duration::from_secs(60);
        let gone = queue.wait(put("q"), long, &|| false);
        assert_eq!((gone.answer, queue.len()), (Answer::Nobody, 0));
    }
}
