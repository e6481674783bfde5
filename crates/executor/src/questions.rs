//! Questions about program starts, on their way from the judge of a world to whoever has the terminal.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};

use substrate_broker::Evaluation;
use substrate_trace::SpanInfo;

/// A start that a person is to decide about.
pub(crate) struct Question {
    pub argv: Vec<OsString>,
    pub cwd: PathBuf,
    /// What started it, the nearest first.
    pub parents: Vec<String>,
    pub evaluation: Evaluation,
    pub span: SpanInfo,
    /// `Ok` when it may run, else why not.
    pub reply: Sender<Result<(), String>>,
}

/// Where questions go, and the bell that tells of them.
pub(crate) struct Desk {
    questions: Sender<Question>,
    bell: UnixStream,
    /// Somebody attends to them now.
    pub attended: bool,
}

impl Desk {
    /// Sends a question; `None` when nobody will ever answer it.
    pub fn send(&self, question: Question) -> Option<()> {
        self.questions.send(question).ok()?;
        let _ = (&self.bell).write(&[1]);
        Some(())
    }
}

/// Questions about program starts, for whoever has the terminal.
pub struct Questions {
    waiting: Receiver<Question>,
    bell: UnixStream,
    search_path: OsString,
}

/// Both ends, for starts that look for programs along this path.
pub(crate) fn pair(search_path: &OsStr) -> io::Result<(Desk, Questions)> {
    let (bell, ringing) = UnixStream::pair()?;
    bell.set_nonblocking(true)?;
    ringing.set_nonblocking(true)?;
    let (questions, waiting) = mpsc::channel();
    let desk = Desk {
        questions,
        bell: ringing,
        attended: true,
    };
    let questions = Questions {
        waiting,
        bell,
        search_path: search_path.to_owned(),
    };
    Ok((desk, questions))
}

impl Questions {
    /// Readable when a question waits.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Leaves what waits without an answer.
    pub fn forget(&self) {
        while self.next().is_some() {}
    }

    /// The next question that waits.
    pub(crate) fn next(&self) -> Option<Question> {
        self.quiet();
        self.waiting.try_recv().ok()
    }

    /// Where the starts look for programs.
    pub(crate) fn search_path(&self) -> &OsStr {
        &self.search_path
    }

    fn quiet(&self) {
        let mut rung = [0; 64];
        while (&self.bell)
            .read(&mut rung)
            .is_ok_and(|count| count == rung.len())
        {}
    }
}
