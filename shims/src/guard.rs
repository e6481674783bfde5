//! The path of a shim, read top to bottom.

use std::cell::{OnceCell, RefCell};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use substrate_broker::Home;
use substrate_broker::env::{SHIM_BYPASS, SUBSTRATE_JSON_ERRORS, json_errors};
use substrate_runtime::supervise::Ending;
use substrate_sys::environment;
use substrate_trace::{
    Event, Mode, Outcome, ParentSpan, SpanInfo, Verdict, Writer, denial, denial_json,
};

use crate::handover::{Handover, hand_over, substrate};
use crate::installed::{self, Installed, SUBSTRATE, USER_HOME};
use crate::notice::Notices;
use crate::quick::{self, Answer, Judged, NoPolicies, Policies, Question};
use crate::start::{self, Tool, c_string};
use crate::tool::{self, Missing};
use crate::{DENIED, FAILED, NOT_FOUND, enclosed, record};

/// Everything about this start of a tool.
struct Call {
    installed: Installed,
    home: Home,
    notices: Notices,
    env: Vec<CString>,
    cwd: PathBuf,
    /// The same directory without links; `None` when it is gone and `cwd` is a guess.
    real: Option<PathBuf>,
    arguments: usize,
    parent: Option<ParentSpan>,
    target: PathBuf,
    /// The tool's name and its arguments, as judged and recorded.
    judged: Vec<OsString>,
    /// What the tool gets.
    argv: Vec<OsString>,
}

/// Runs as the shim that was executed with these arguments.
pub fn run(arguments: Vec<OsString>, env: Vec<CString>) -> Ending {
    substrate_trace::effective_user(substrate_sys::identity::effective_user_id());
    let notices = Notices::new(&env);
    let Some(installed) = installed::locate(arguments.first().map(OsString::as_os_str)) else {
        notices.failed("this is the program behind shims, and it was not started as one; `substrate shim install TOOL` makes shims");
        return Ending::Exit(FAILED);
    };
    match prepare(installed, arguments, env, notices) {
        Ok(call) => call.decide(),
        Err(ending) => ending,
    }
}

/// Finds the tool and gathers what every further step needs.
fn prepare(
    installed: Installed,
    arguments: Vec<OsString>,
    env: Vec<CString>,
    notices: Notices,
) -> Result<Call, Ending> {
    let user = installed::pointer(&installed.directory(), USER_HOME).unwrap_or_default();
    let home = Home {
        path: installed.home.clone(),
        user,
    };
    let (cwd, real) = working_directory(&env);
    let parent = record::parent(&env);
    let search_path = environment::get(&env, "PATH").map(OsStr::from_bytes);
    let passed = record::circles(&home.path, parent, installed.tool.as_bytes());
    let target = tool::find(&installed.tool, search_path, &cwd, installed.id, passed).map_err(|missing| {
        let name = installed.tool.display();
        let (status, text) = match missing {
            Missing::NotFound => (NOT_FOUND, format!("{name}: command not found")),
            Missing::NotExecutable(path) => (DENIED, format!("{}: Permission denied", path.display())),
            Missing::Circle(path) => (
                DENIED,
                format!("{name}: the shim and {} start each other in a circle; call the real tool there by its path", path.display()),
            ),
        };
        notices.plain(&text);
        Ending::Exit(status)
    })?;
    let count = arguments.len();
    let mut words = arguments.into_iter();
    let given = words.next().unwrap_or_else(|| installed.tool.clone());
    let rest: Vec<OsString> = words.collect();
    let first = tool::first_argument(&installed.tool, &given, &target, installed.id);
    let judged = std::iter::once(installed.tool.clone())
        .chain(rest.iter().cloned())
        .collect();
    let argv = std::iter::once(first).chain(rest).collect();
    Ok(Call {
        installed,
        home,
        notices,
        env,
        cwd,
        real,
        arguments: count,
        parent,
        target,
        judged,
        argv,
    })
}

impl Call {
    fn decide(self) -> Ending {
        let mut span = record::span(self.parent, &self.env, &self.cwd, self.judged.clone());
        let policies = match Policies::open(&self.home) {
            Ok(policies) => policies,
            Err(NoPolicies { mode }) => return self.full(span, mode),
        };
        let mode = policies.mode();
        let needs_full = self.home.user.as_os_str().is_empty()
            || quick::has_profile(&self.cwd, self.real.as_deref())
            || enclosed::session_has_own_terms(|| {
                installed::pointer(&self.installed.directory(), SUBSTRATE)
            });
        if needs_full {
            return self.full(span, Some(mode));
        }
        span.policy_id = policies.base.settings().id.clone();
        span.mode = policies.base.settings().mode;

        let bypass =
            environment::get(&self.env, SHIM_BYPASS) == Some(b"1") && policies.allow_bypass();
        let answer = if bypass {
            bypassed(&mut span);
            None
        } else {
            let search_path = environment::get(&self.env, "PATH").map(OsStr::from_bytes);
            let search_path =
                tool::judged_path(&self.target, search_path, &self.installed.directory());
            let question = Question {
                argv: &self.judged,
                cwd: &self.cwd,
                search_path: &search_path,
                home_variable: environment::get(&self.env, "HOME"),
            };
            match quick::check(&policies, &self.home, &question) {
                Answer::Full => return self.full(span, Some(mode)),
                Answer::Run(judged) => Some((judged, false)),
                Answer::Deny(judged) => Some((judged, true)),
            }
        };
        let writer = record::open(&self.home.path, &policies.base.settings().redact);
        if let Some((judged, refused)) = answer {
            describe(&mut span, &judged);
            if refused {
                return self.refuse(&mut span, judged, &writer);
            }
            if let Some(outcome) = judged.would {
                let decided = std::mem::replace(&mut span.rule, judged.decisive);
                let _ = write(&writer, &Event::policy_violation(&span, outcome));
                span.rule = decided;
            }
        }
        if let Err(ending) = self.begin(&span, &writer, mode) {
            return ending;
        }
        self.start(span, Some(policies))
    }

    /// Leaves the decision to the full `substrate`. Where there is none, the mode decides.
    fn full(self, mut span: SpanInfo, mode: Option<Mode>) -> Ending {
        let search_path = environment::get(&self.env, "PATH").map(OsStr::from_bytes);
        let why = match substrate(&self.installed, search_path, &self.cwd) {
            Some(binary) => {
                let order = Handover {
                    installed: &self.installed,
                    target: &self.target,
                    span: span.span_id,
                    argv: &self.argv,
                };
                let error = hand_over(&binary, &order, &self.env).to_string();
                format!(
                    "{} cannot be started: {}",
                    binary.display(),
                    error.split(" (os error").next().unwrap_or_default()
                )
            }
            None => "there is no substrate binary any more".to_owned(),
        };
        let observes = mode.map_or_else(
            || quick::only_the_default(&self.home),
            |mode| mode == Mode::Observe,
        );
        let fix = "`substrate shim install` repairs this";
        if !observes {
            self.notices.failed(&format!(
                "{} was not run, because only the full check can decide it, and {why}; {fix}",
                self.installed.tool.display()
            ));
            return Ending::Exit(FAILED);
        }
        self.notices.warning(&format!(
            "{} runs unchecked, because {why}; {fix}",
            self.installed.tool.display()
        ));
        span.degraded.push(format!("unchecked: {why}"));
        let writer = record::open(&self.home.path, &[]);
        match self.begin(&span, &writer, Mode::Observe) {
            Ok(()) => self.start(span, None),
            Err(ending) => ending,
        }
    }

    fn refuse(
        &self,
        span: &mut SpanInfo,
        judged: Judged,
        writer: &Result<Writer, substrate_trace::Error>,
    ) -> Ending {
        span.rule = judged.decisive;
        let reason = span.rule.as_ref().and_then(|rule| rule.reason.clone());
        let text = denial(
            &span.policy_id,
            span.rule.as_ref(),
            reason.as_deref().unwrap_or("Command explicitly denied"),
        );
        span.place = None;
        if let Err(error) = write(writer, &Event::policy_violation(span, Outcome::Deny)) {
            self.notices
                .warning(&format!("this is not recorded: {error}"));
        }
        let number = json_errors(environment::get(&self.env, SUBSTRATE_JSON_ERRORS));
        let told = number.is_some_and(|number| {
            let hint = "`substrate policy explain -- LINE` says what a line is about";
            let reason = reason.as_deref().unwrap_or("Command explicitly denied");
            let rule = span.rule.as_ref();
            let line = denial_json(Verdict::Deny, &span.policy_id, rule, reason, hint);
            substrate_sys::streams::write_to(number, &line).is_ok() && number == 2
        });
        if !told {
            self.notices.refused(&text);
        }
        Ending::Exit(DENIED)
    }

    /// Records the start. Without a record nothing runs where the policy is enforced.
    fn begin(
        &self,
        span: &SpanInfo,
        writer: &Result<Writer, substrate_trace::Error>,
        mode: Mode,
    ) -> Result<(), Ending> {
        let Err(error) = write(writer, &Event::command_start(span)) else {
            return Ok(());
        };
        if mode == Mode::Enforce {
            self.notices.failed(&format!(
                "nothing was run, because it cannot be recorded: {error}"
            ));
            return Err(Ending::Exit(FAILED));
        }
        self.notices
            .warning(&format!("this is not recorded: {error}"));
        Ok(())
    }

    /// Becomes the tool. What its replay needs is put together when it has ended: nothing of that
    /// must keep the tool waiting.
    fn start(self, span: SpanInfo, policies: Option<Policies>) -> Ending {
        let argv: std::io::Result<Vec<CString>> =
            self.argv.iter().map(|word| c_string(word)).collect();
        let tool = Tool {
            target: &self.target,
            name: &self.installed.tool,
            // What the kernel gave us as arguments has no NUL bytes.
            argv: argv.unwrap_or_default(),
            env: record::child_env(&span, &self.env),
            given_env: &self.env,
            arguments: self.arguments,
        };
        let policies = RefCell::new(policies);
        let kept = OnceCell::new();
        // What the end needs of the policies, which are then let go of.
        let keep = || {
            kept.get_or_init(|| match policies.take() {
                Some(Policies { base, .. }) => {
                    let hash = base.details().ok().map(|details| details.sha256.clone());
                    (base.settings().redact.clone(), hash)
                }
                None => (Vec::new(), None),
            })
        };
        let settle = || {
            keep();
        };
        start::run(tool, &self.notices, &settle, &|ending, duration| {
            let (redact, hash) = keep();
            let ended = (ending, duration);
            record::complete(&self.home.path, redact, &span, ended, |key| {
                let hash = hash.clone()?;
                Some(record::replay_context(&span, &self.env, Some(hash), key))
            });
        })
    }
}

/// Marks a span whose check was skipped with permission.
pub fn bypassed(span: &mut SpanInfo) {
    span.reason = Some(format!("{SHIM_BYPASS}=1"));
    span.degraded.push("the check was bypassed".to_owned());
}

fn describe(span: &mut SpanInfo, judged: &Judged) {
    span.verdict = Some(judged.verdict);
    span.reason = judged.rule.as_ref().and_then(|rule| rule.reason.clone());
    span.rule = judged.rule.clone();
}

fn write(writer: &Result<Writer, substrate_trace::Error>, event: &Event<'_>) -> Result<(), String> {
    match writer {
        Ok(writer) => writer.write(event).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// The working directory, as `PWD` says it when that is true, so that links stay as typed; and
/// as it really is, unless it is gone.
fn working_directory(env: &[CString]) -> (PathBuf, Option<PathBuf>) {
    let named = environment::get(env, "PWD")
        .map(|value| Path::new(OsStr::from_bytes(value)))
        .filter(|path| path.is_absolute());
    match std::env::current_dir() {
        Ok(real) => {
            let same = |path: &&Path| {
                *path == real
                    || installed::id(path).is_some_and(|id| installed::id(&real) == Some(id))
            };
            let cwd = named
                .filter(same)
                .map_or_else(|| real.clone(), Path::to_owned);
            (cwd, Some(real))
        }
        Err(_) => (named.unwrap_or(Path::new("/")).to_owned(), None),
    }
}
