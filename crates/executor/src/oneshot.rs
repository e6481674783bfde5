//! The path of a line that is run once: `-c`, a script, `run -- ARGV`.

use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

use substrate_broker::{Around, Evaluation, Input, Origin, Request, Terms, enclosure};
use substrate_policy::terms::{Place, WorldSpec};
use substrate_runtime::supervise::{self, Ending, Program};
use substrate_sys::usage;
use substrate_trace::{Completion, Mode, Output, SpanInfo};

use crate::contained::Contained;
use crate::elsewhere;
use crate::front::{Kind, Streams};
use crate::isolation::Isolation;
use crate::job::{Job, Target, start_failure};
use crate::recording::{self, Recording};
use crate::session::Session;
use crate::time_limit::{TimeLimit, tell_timeout};
use crate::walk::{Command, Here, NotRun, Placed, Ran, Way, walk};

/// Runs a job on the terms that the broker sets, and answers how it ended. With `isolation` it
/// runs in a fresh world, whatever the policy says.
pub fn run(session: &Session, job: &Job, isolation: Option<&Isolation>, cwd: &Path) -> Ending {
    let judged = match job.judged_text() {
        Ok(text) => text,
        Err(NotRun { status, why }) => {
            session.front.say(Kind::Failed, &why);
            return Ending::Exit(status);
        }
    };
    let search_path = session.search_path();
    let around = || session.meaning();
    let (cmd, argv) = job.recorded();
    let command = Command {
        request: Request {
            input: match job {
                Job::Argv(argv) => Input::Argv(argv),
                Job::Line { .. } | Job::Script { .. } | Job::Input { .. } => Input::Line(&judged),
            },
            origin: match job {
                Job::Script { .. } => Origin::Script,
                Job::Line { .. } | Job::Input { .. } | Job::Argv(_) => Origin::OneShot,
            },
            cwd,
            search_path: &search_path,
            variables: &[],
            aliases: &[],
            isolate: isolation.is_some(),
            around: Around::Asked(&around),
        },
        cmd,
        argv,
    };
    let mut once = Once::new(job, isolation, cwd);
    walk(session, &command, &mut once).ending()
}

/// A job that is run once.
pub struct Once<'a> {
    job: &'a Job,
    isolation: Option<&'a Isolation>,
    cwd: &'a Path,
    target: Option<Target>,
    narrowed: Option<WorldSpec>,
}

impl<'a> Once<'a> {
    /// A job that nobody has judged yet.
    pub fn new(job: &'a Job, isolation: Option<&'a Isolation>, cwd: &'a Path) -> Self {
        Self {
            job,
            isolation,
            cwd,
            target: None,
            narrowed: None,
        }
    }
}

impl Way for Once<'_> {
    fn known_names(&mut self) -> Option<Vec<OsString>> {
        matches!(self.job, Job::Line { .. }).then(Vec::new)
    }

    fn place<'w>(
        &'w mut self,
        session: &'w Session,
        evaluation: &'w Evaluation,
        terms: Option<&'w Terms>,
        _: &mut SpanInfo,
    ) -> Result<Placed<'w>, NotRun> {
        let search_path = session.search_path();
        let target = self
            .job
            .target(evaluation, session, &search_path, self.cwd)?;
        let target = self.target.insert(target);
        let (spec, isolated) = match terms.map(|terms| &terms.place) {
            Some(Place::Isolated(spec)) => (spec.as_ref(), true),
            Some(Place::Session(spec)) => (spec.as_ref(), false),
            Some(Place::Direct) | None => {
                return Ok(Placed::Here(Here {
                    program: Some(target.program()),
                    ..Here::new(|span| direct(session, target, span))
                }));
            }
        };
        self.narrowed = self.isolation.map(|isolation| isolation.narrow(spec));
        let of_policy = spec.limits.seconds;
        if let Some(time) = session.timeout {
            let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
            let spec = self.narrowed.get_or_insert_with(|| spec.clone());
            spec.limits.seconds = Some(of_policy.map_or(seconds, |policy| policy.min(seconds)));
        }
        Ok(Placed::World(Contained {
            program: &target.path,
            argv: &target.argv,
            // Whatever a job names may be a copy, a link or a script of what a rule is about.
            judged: evaluation.policy.mode == Mode::Enforce && !target.own_shell,
            cwd: self.cwd,
            evaluation,
            spec: self.narrowed.as_ref().unwrap_or(spec),
            seconds: of_policy,
            isolated,
            isolation: self.isolation,
            descriptors: Vec::new(),
            hosting: None,
        }))
    }
}

/// Runs a program on the host, as any shell would.
fn direct(session: &Session, target: &Target, span: &SpanInfo) -> Ran {
    let env = session.child_env(span);
    let started = Instant::now();
    let mut used = None;
    let (result, output) = match session.front.streams() {
        Ok(Streams::Own(own)) => {
            enclosure::mark();
            let recording = Recording::begin(session, own, false);
            let program = Program {
                path: &target.path,
                argv: &target.argv,
                env: &env,
            };
            let limit = TimeLimit::prepared(session.timeout);
            let before = usage::of_children();
            let result = supervise::run(&program, |child| {
                if let Some(time) = session.timeout {
                    limit.begin(child, time);
                }
            });
            used = Some(recording::used_since(before));
            let result = result.map(|ending| match limit.is_over() {
                true => tell_timeout(session),
                false => ending,
            });
            (result, recording.finish(session))
        }
        Ok(Streams::Given(streams)) => {
            let program = target.elsewhere(&env, &span.cwd);
            (elsewhere::run(program, streams), Output::Off)
        }
        Err(error) => (Err(error), Output::Off),
    };
    let duration = started.elapsed();
    let ending = result.unwrap_or_else(|error| {
        let NotRun { status, why } = start_failure(&error, target);
        session.front.say(Kind::Failed, &why);
        Ending::Exit(status)
    });
    Ran {
        ending: Some(ending),
        done: Some(Completion {
            duration,
            output,
            used,
            ..Completion::default()
        }),
    }
}
