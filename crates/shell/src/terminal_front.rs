//! The front that a person at a terminal is: notices on standard error, questions on the terminal that
//! controls us, and the streams of this process.

use std::fs::File;
use std::io::{self, IsTerminal};

use substrate_broker::Caller;
use substrate_broker::person::{self, Barrier};
use substrate_executor::front::{Choice, Front, Given, HeldChanges, Inquiry, Kind, Streams};
use substrate_trace::Stdin;
use substrate_world::backend::Held;
use substrate_world::progress::Progress;

use crate::asking;
use crate::notice::Notices;
use crate::own_streams::{self, Inherited};
use crate::progress::Meter;

/// Whoever started this process, and the terminal if there is one.
pub struct Terminal {
    notices: Notices,
}

impl Terminal {
    /// With notices that look like this.
    pub fn new(notices: Notices) -> Self {
        Self { notices }
    }
}

impl Front for Terminal {
    fn say(&self, kind: Kind, text: &str) {
        self.notices.say(kind, text);
    }

    fn say_beside(&self, kind: Kind, text: &str) {
        self.notices.say_beside(kind, text);
    }

    fn line(&self, kind: Kind, text: &str) -> String {
        self.notices.plain(kind, text)
    }

    fn barrier(&self, caller: &Caller) -> Option<Barrier> {
        person::barrier(caller)
    }

    fn ask(&self, inquiry: &dyn Inquiry) -> io::Result<Given> {
        asking::ask(inquiry, self.notices)
    }

    fn settle(&self, _: &Held, about: &dyn HeldChanges) -> Option<Choice> {
        let person = io::stdin().is_terminal() && io::stderr().is_terminal();
        person.then(|| asking::settle(about, self.notices))
    }

    fn progress(&self) -> Box<dyn FnMut(Progress) -> bool> {
        let mut meter = Meter::default();
        Box::new(move |now| meter.tell(now))
    }

    fn streams(&self) -> io::Result<Streams> {
        Ok(Streams::Own(Box::new(Inherited)))
    }

    fn stdin(&self) -> Stdin {
        own_streams::stdin_kind()
    }

    fn stdin_file(&self) -> Option<File> {
        own_streams::stdin_file()
    }
}
