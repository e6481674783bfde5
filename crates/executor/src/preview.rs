//! Trying a line before a person approves it: in a world of its own without network and sockets, so that
//! the real changes can be seen. When they are approved, they are applied; the line does not run twice.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use substrate_broker::{Answer, Evaluation};
use substrate_changes::apply::{self, ApplyOptions};
use substrate_changes::observer::Observer;
use substrate_changes::patch::{self, Paint};
use substrate_changes::pending::Pending;
use substrate_changes::{diff, gc};
use substrate_command::{Action, Cwd, Invocation, Object, is_builtin, is_keyword};
use substrate_policy::settings::Snapshots;
use substrate_policy::terms::{Place, WorldSpec};
use substrate_runtime::supervise::Ending;
use substrate_trace::{Completion, Enforced, Event, SpanInfo, WorldEvent};
use substrate_world::backend::{self, ExecRequest, ExecStreams, Status};

use crate::exit_status::FAILED;
use crate::front::Kind;
use crate::guarded::StartJudge;
use crate::limits::tell_limits;
use crate::session::Session;
use crate::shell_path::shell_path;
use crate::variables::variables;
use crate::worlds::Oversight;

/// A line that can be tried.
pub struct Trial<'a> {
    session: &'a Session,
    line: &'a [u8],
    cwd: &'a Path,
    evaluation: &'a Evaluation,
    span: &'a SpanInfo,
    spec: WorldSpec,
}

impl<'a> Trial<'a> {
    /// A trial, if the line's effects are files alone: every command of it is a program whose effects are
    /// known, and what it changes lies in the project. `known` are names that mean something else to
    /// the shell that the line is for.
    pub fn of(
        session: &'a Session,
        line: &'a [u8],
        cwd: &'a Path,
        evaluation: &'a Evaluation,
        span: &'a SpanInfo,
        known: &[&[u8]],
    ) -> Option<Self> {
        let Answer::Ask(terms, _) = &evaluation.answer else {
            return None;
        };
        let Place::Session(spec) = &terms.place else {
            return None;
        };
        let project = spec.project.as_deref()?;
        let all_files = evaluation.line.complete()
            && evaluation.line.functions.is_empty()
            && !evaluation.line.invocations.is_empty()
            && evaluation
                .line
                .invocations
                .iter()
                .all(|invocation| files_alone(invocation, cwd, project, known));
        if !all_files {
            return None;
        }
        let mut spec = WorldSpec::clone(spec);
        spec.net.isolate = true;
        spec.net.allowed.clear();
        spec.net.resolve.clear();
        spec.sockets.clear();
        spec.publish.clear();
        Some(Self {
            session,
            line,
            cwd,
            evaluation,
            span,
            spec,
        })
    }

    /// Tries it: the line runs to its end, and what it changed is held.
    pub fn run(&self) -> Result<Preview, String> {
        let judge = StartJudge::of(self.session, true);
        judge.begin_line(self.span, self.evaluation);
        let backend = self.session.worlds.backend(Oversight {
            judge: Some(Arc::new(judge)),
            network: None,
            borrowing: None,
        });
        let shell = shell_path().ok_or("there is neither bash nor sh on this machine")?;
        let request = ExecRequest {
            env: variables(&self.session.child_env(self.span)),
            cwd: self.cwd.to_owned(),
            span: Some(self.span.span_id),
            ..ExecRequest::shell(shell, OsString::from_vec(self.line.to_vec()))
        };
        let job = backend::ExecJob {
            request: &request,
            streams: &ExecStreams::default(),
        };
        let started = Instant::now();
        let result = backend
            .exec(backend::ExecPlace::fresh(&self.spec), job)
            .map_err(|error| error.to_string())?;
        tell_limits(self.session, self.span, &result.limits_reached);
        let held = result
            .held
            .ok_or("the world held nothing back, so there is nothing to show")?;
        let pending = Pending::of(&held).map_err(|e| e.to_string())?;
        Ok(Preview {
            pending,
            ending: match result.status {
                Status::Exited(status) => Ending::Exit(status),
                Status::Signaled(signal) => Ending::Signal(signal),
            },
            enforced: result.enforced,
            duration: started.elapsed(),
        })
    }
}

/// Whether a command is a program that changes nothing but files of the project.
fn files_alone(invocation: &Invocation, cwd: &Path, project: &Path, known: &[&[u8]]) -> bool {
    let Some(name) = invocation.argv.first().and_then(|word| word.value()) else {
        return false;
    };
    let program = !is_builtin(name) && !is_keyword(name) && !known.contains(&name);
    let plain = invocation.via.is_empty()
        && invocation.assignments.is_empty()
        && invocation.unclear.is_none()
        && invocation.cwd == Cwd::Start;
    let mut changes = 0;
    let files = invocation.effects.iter().all(|effect| match effect.action {
        Action::Read | Action::List => matches!(effect.object, Object::Path(_)),
        Action::Write | Action::Delete | Action::Chmod => {
            changes += 1;
            match &effect.object {
                Object::Path(path) => !path.has_unknown() && within(&path.text(), cwd, project),
                _ => false,
            }
        }
        _ => false,
    });
    let reads = !invocation.effects.is_empty();
    program && plain && files && (changes > 0 || reads)
}

/// Whether a path, or whatever a pattern of it matches, lies in the project; `..` could lead out.
fn within(path: &[u8], cwd: &Path, project: &Path) -> bool {
    let path = cwd.join(OsStr::from_bytes(path));
    !path
        .components()
        .any(|part| part == std::path::Component::ParentDir)
        && path.starts_with(project)
}

/// What trying a line came to.
pub struct Preview {
    pending: Pending,
    ending: Ending,
    enforced: Enforced,
    duration: Duration,
}

impl Preview {
    /// What it would change, in a few lines.
    pub fn summary(&self) -> String {
        let mut lines = vec![match patch::totals(&self.pending, &mut |_| true) {
            Ok(totals) => format!(
                "It ends with {} and changes: {}",
                self.status(),
                totals.sentence()
            ),
            Err(error) => format!("Its changes cannot be shown: {error}"),
        }];
        if let Ok(check) = apply::check(&self.pending, &ApplyOptions::default(), &mut |_| true) {
            for flag in &check.flags {
                lines.push(format!("Can run later: {}", flag.path.display()));
            }
        }
        lines.join("\n") + "\n"
    }

    fn status(&self) -> i32 {
        self.ending.status()
    }

    /// Writes every change.
    pub fn show(&self, screen: &mut dyn Write, paint: Paint) -> Result<(), String> {
        let shown = patch::patch(&self.pending, paint, screen, &mut |_| true);
        shown.map(drop).map_err(|error| error.to_string())
    }

    /// Throws the changes away.
    pub fn discard(mut self) {
        let _ = gc::discard(&mut self.pending);
    }

    /// Makes the changes real, in place of running the line, and records it as the line's run.
    pub fn apply(mut self, session: &Session, mut span: SpanInfo) -> Ending {
        span.place = Some("isolated");
        span.world_id = self.pending.meta().world_id.parse().ok();
        if !session.record_start(&span) {
            self.discard();
            return Ending::Exit(FAILED);
        }
        let hashed = session.broker.details().trace.snapshot != Snapshots::Off;
        let fs_diff = diff::settle(&self.pending, hashed, &mut |_| true).ok();
        let all = ApplyOptions::default();
        let applied = apply::apply(&mut self.pending, &all, &mut Observer::new(&mut |_| true));
        let ending = match &applied {
            Ok(_) => self.ending,
            Err(error) => {
                session.front.say(
                    Kind::Failed,
                    &format!("nothing was run, and what was tried could not be applied: {error}"),
                );
                Ending::Exit(FAILED)
            }
        };
        let done = Completion {
            exit: Some(ending.status()),
            signal: match ending {
                Ending::Signal(signal) => Some(signal),
                Ending::Exit(_) => None,
            },
            duration: self.duration,
            enforced: Some(self.enforced),
            fs_diff,
            ..Completion::default()
        };
        session.complete(&span, &done);
        let event = WorldEvent {
            action: if applied.is_ok() { "applied" } else { "kept" }.to_owned(),
            detail: Some("previewed before it was approved".to_owned()),
            ..WorldEvent::default()
        };
        session.record_or_warn(&Event::world_event(&span, &event));
        ending
    }
}

/// The words of names, for [`Trial::of`].
pub fn names<'a>(names: impl Iterator<Item = &'a OsString>) -> Vec<&'a [u8]> {
    names.map(|name| name.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_surely_lies_in_the_project_counts() {
        let (cwd, project) = (Path::new("/p/sub"), Path::new("/p"));
        assert!(within(b"file", cwd, project));
        assert!(within(b"/p/x", cwd, project));
        assert!(within(b"*.o", cwd, project));
        assert!(!within(b"*/../../../x", cwd, project));
        assert!(!within(b"../../etc", cwd, project));
        assert!(!within(b"/etc/x", cwd, project));
        assert!(!within(b"/", cwd, project));
    }
}
