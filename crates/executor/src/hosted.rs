//! The run of an agent, in a world that is made for it.

use std::ffi::OsString;
use std::path::Path;

use substrate_broker::facts::Machine;
use substrate_broker::{Around, Evaluation, Input, Origin, Request, Terms};
use substrate_policy::terms::{Mode, OnFinish, Place, WorldSpec};
use substrate_runtime::supervise::Ending;
use substrate_text::command_line;
use substrate_trace::{Completion, Event, SpanInfo};

use crate::approval;
use crate::contained::{self, Contained};
use crate::exit_status::DENIED;
use crate::front::Kind;
use crate::hosting::Hosting;
use crate::isolation::Isolation;
use crate::oneshot;
use crate::recording;
use crate::session::Session;
use crate::snapshot::Before;

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
    let request = Request {
        input: Input::Argv(argv),
        origin: Origin::OneShot,
        cwd,
        search_path: &search_path,
        variables: &[],
        aliases: &[],
        isolate: isolation.is_some(),
        around: Around::Asked(&around),
    };
    let evaluation = session.broker.evaluate(&request);
    session.heed_policy_changes();
    let span = session.span(&evaluation, command_line(argv), argv.to_vec(), cwd);
    let Some(permit) = approval::permit(session, &request, &evaluation, &span, None) else {
        return Ending::Exit(DENIED);
    };
    begun(&span);
    let agent = Agent {
        argv,
        hosting,
        isolation,
        cwd,
    };
    agent.carry_out(session, &evaluation, permit.terms, span)
}

/// An agent that was permitted.
struct Agent<'a> {
    argv: &'a [OsString],
    hosting: &'a Hosting,
    isolation: Option<&'a Isolation>,
    cwd: &'a Path,
}

impl Agent<'_> {
    fn carry_out(
        &self,
        session: &Session,
        evaluation: &Evaluation,
        terms: &Terms,
        mut span: SpanInfo,
    ) -> Ending {
        let search_path = session.search_path();
        let target = match oneshot::program(evaluation, self.argv, &search_path, self.cwd) {
            Ok(target) => target,
            Err((status, message)) => {
                session.front.say(Kind::Failed, &message);
                let done = Completion {
                    exit: Some(status),
                    ..Completion::default()
                };
                session.record_or_warn(&Event::command_complete(&span, &done));
                return Ending::Exit(status);
            }
        };
        let before = Before::take(session, &mut span);
        let (mut spec, isolated) = self.terms(session, terms);
        let_in(&mut spec, program_path(&target));
        let contained = Contained {
            program: &target.path,
            argv: &target.argv,
            judged: evaluation.policy.mode == Mode::Enforce,
            cwd: self.cwd,
            evaluation,
            spec: &spec,
            seconds: spec.limits.seconds,
            isolated,
            isolation: self.isolation,
            descriptors: &[],
            hosting: Some(self.hosting),
        };
        recording::circumstances(session, evaluation, program_path(&target), &mut span);
        contained::run(session, &contained, span, before)
    }

    /// The terms of its world, and whether what it writes is held back.
    fn terms(&self, session: &Session, terms: &Terms) -> (WorldSpec, bool) {
        let (mut spec, isolated) = match &terms.place {
            Place::Isolated(spec) => (spec.as_ref().clone(), true),
            Place::Session(spec) => (spec.as_ref().clone(), false),
            // A policy that leaves worlds out has terms for them all the same.
            Place::Direct => {
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

fn program_path(target: &oneshot::Target) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(target.path.as_bytes()))
}
