//! The run of an agent, in a world that is made for it.

use std::ffi::OsString;
use std::path::Path;

use substrate_broker::facts::Machine;
use substrate_broker::{Around, Evaluation, Input, Origin, Request, Terms};
use substrate_policy::terms::{Mode, OnFinish, Place, WorldSpec};
use substrate_runtime::supervise::Ending;
use substrate_text::command_line;
use substrate_trace::SpanInfo;

use crate::contained::Contained;
use crate::hosting::Hosting;
use crate::isolation::Isolation;
use crate::job::{self, Target};
use crate::session::Session;
use crate::walk::{Command, NotRun, Placed, Way, walk};

/// Runs the program of an agent and answers how it ended. It always runs in a world: with `isolation` in a
/// fresh one whose writes are held back. `begun` hears of its span before anything starts.
pub fn run(
    session: &Session,
    argv: &[OsString],
    hosting: &Hosting,
    isolation: Option<&Isolation>,
    cwd: &Path,
    begun: &dyn Fn(&SpanInfo),
) -> Ending {
    let search_path = session.search_path();
    let around = || session.meaning();
    let command = Command {
        request: Request {
            input: Input::Argv(argv),
            origin: Origin::OneShot,
            cwd,
            search_path: &search_path,
            variables: &[],
            aliases: &[],
            isolate: isolation.is_some(),
            around: Around::Asked(&around),
        },
        cmd: command_line(argv),
        argv: argv.to_vec(),
    };
    let mut agent = Agent {
        argv,
        hosting,
        isolation,
        cwd,
        begun,
        target: None,
        spec: None,
    };
    walk(session, &command, &mut agent).ending()
}

/// The program of an agent.
struct Agent<'a> {
    argv: &'a [OsString],
    hosting: &'a Hosting,
    isolation: Option<&'a Isolation>,
    cwd: &'a Path,
    begun: &'a dyn Fn(&SpanInfo),
    target: Option<Target>,
    spec: Option<WorldSpec>,
}

impl Way for Agent<'_> {
    fn place<'w>(
        &'w mut self,
        session: &'w Session,
        evaluation: &'w Evaluation,
        terms: Option<&'w Terms>,
        span: &mut SpanInfo,
    ) -> Result<Placed<'w>, NotRun> {
        (self.begun)(span);
        let target = job::program(evaluation, self.argv, &session.search_path(), self.cwd)?;
        let (mut spec, isolated) = self.terms(session, terms);
        let target = self.target.insert(target);
        let_in(&mut spec, target.program());
        let spec = self.spec.insert(spec);
        Ok(Placed::World(Contained {
            program: &target.path,
            argv: &target.argv,
            judged: evaluation.policy.mode == Mode::Enforce,
            cwd: self.cwd,
            evaluation,
            seconds: spec.limits.seconds,
            spec,
            isolated,
            isolation: self.isolation,
            descriptors: Vec::new(),
            hosting: Some(self.hosting),
        }))
    }
}

impl Agent<'_> {
    /// The terms of its world, and whether what it writes is held back.
    fn terms(&self, session: &Session, terms: Option<&Terms>) -> (WorldSpec, bool) {
        let (mut spec, isolated) = match terms.map(|terms| &terms.place) {
            Some(Place::Isolated(spec)) => (spec.as_ref().clone(), true),
            Some(Place::Session(spec)) => (spec.as_ref().clone(), false),
            // A policy that leaves worlds out has terms for them all the same.
            Some(Place::Direct) | None => {
                let search_path = session.search_path();
                let home = session.broker.home();
                let facts = Machine::new(self.cwd, self.cwd, home, &search_path);
                (session.broker.world_spec(&facts), self.isolation.is_some())
            }
        };
        if let Some(isolation) = self.isolation {
            spec = isolation.narrow(&spec);
            // It is one long command, whose result a person looks at.
            spec.on_finish = OnFinish::Ask;
        }
        self.hosting.dress(&mut spec);
        (spec, isolated)
    }
}

/// A program in a directory that every world has to itself would not be there.
fn let_in(spec: &mut WorldSpec, program: &Path) {
    let private = ["/tmp", "/var/tmp", "/run", "/dev/shm"];
    if private.iter().any(|dir| program.starts_with(dir)) {
        spec.read.push(program.to_owned());
        spec.share.push(program.to_owned());
    }
}
