//! What the gate may have of a session while it carries a line out.

use std::ffi::OsString;
use std::time::Instant;

use super::{Next, Session};
use crate::gate::{Borrowed, FrontEnd, InEngine, Outcome};

/// A session that carries out one line.
pub(super) struct Lent<'a, 's, 'g> {
    pub session: &'a mut Session<'s, 'g>,
    pub line: &'a [u8],
    /// What comes after the line, once the engine has run it.
    pub next: Option<Next>,
}

impl FrontEnd for Lent<'_, '_, '_> {
    fn functions(&mut self) -> Vec<OsString> {
        self.session.shared.engine.borrow_mut().functions()
    }

    fn variables(&mut self) -> Vec<(OsString, OsString)> {
        self.session.shared.engine.borrow_mut().variables()
    }

    fn line_mode(&mut self) {
        self.session.console.restore();
    }

    fn lend(&mut self) -> Borrowed<'_> {
        self.session.console.restore();
        Borrowed {
            state: self.session.shared.engine.borrow_mut().state(),
            terminal: self.session.console.terminal(),
        }
    }

    fn run(&mut self, how: InEngine) -> Outcome {
        let session = &mut *self.session;
        let process = {
            let mut engine = session.shared.engine.borrow_mut();
            engine.listen(how.tap);
            engine.set_time_limit(how.time_limit);
            engine.process()
        };
        let remembered = session.remembered(self.line);
        let started = Instant::now();
        let before = substrate_sys::usage::cpu_of(process);
        let next = session.run_in_engine(self.line, &remembered, &how.exports);
        // What the shell has waited for is counted as its own.
        let now = substrate_sys::usage::cpu_of(process);
        let cpu = now.zip(before);
        let outcome = Outcome {
            status: session.shared.engine.borrow().report().status,
            duration: started.elapsed(),
            cpu: cpu.map(|(now, before)| now.saturating_sub(before)),
            cwd: session.shared.cwd.borrow().clone(),
        };
        self.next = Some(next);
        outcome
    }
}
