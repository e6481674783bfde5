//! The front end alone, with a gate that permits everything but one word.
//!
//! Flags are those of `substrate` itself: `-l`, `--login`, `--norc`, `--noprofile`, `-i`. What the
//! gate does is set in the environment: `EXAMPLE_REFUSE` (a word), `EXAMPLE_ELSEWHERE` (a word
//! whose lines run in a fresh shell with a copy of the state), `EXAMPLE_LOG` (a file that gets a
//! line for everything the gate is told), `EXAMPLE_OWN_TERMINAL` (the engine gets a terminal of
//! its own) and `EXAMPLE_SHELL` (the engine's shell).

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use substrate_shell::engine::{Beside, Launcher, OnOwnTerminal};
use substrate_shell::gate::{
    Borrowed, End, FrontEnd, Gate, Hint, InEngine, Standing, Submission, Verdict,
};
use substrate_shell::names::Names;
use substrate_shell::repl::{self, ReplOptions};

struct Example {
    refused: Option<String>,
    elsewhere: Option<String>,
    log: Option<PathBuf>,
}

impl Example {
    fn note(&self, text: &str) {
        if let Some(path) = &self.log
            && let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path)
        {
            let _ = writeln!(file, "{text}");
        }
    }

    fn names(word: Option<&String>, line: &[u8]) -> bool {
        word.is_some_and(|word| {
            String::from_utf8_lossy(line)
                .split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_')
                .any(|part| part == word)
        })
    }
}

impl Gate for Example {
    fn hint(&self, line: &[u8], _: &Path, _: &Names) -> Option<Hint> {
        Self::names(self.refused.as_ref(), line).then(|| Hint {
            verdict: Verdict::Deny,
            note: "deny: example:1".into(),
            unclear: false,
        })
    }

    fn submit(&self, submission: &Submission<'_>, front_end: &mut dyn FrontEnd) -> End {
        let line = String::from_utf8_lossy(submission.line);
        self.note(&format!("decide {line}"));
        for (name, value) in &submission.names.aliases {
            self.note(&format!("alias {}={}", name.display(), value.display()));
        }
        let (end, status, cwd) = if Self::names(self.refused.as_ref(), submission.line) {
            let end = End::Refused {
                message: format!("denied: {line} (example:1)"),
                status: 126,
            };
            (end, 126, submission.cwd.to_path_buf())
        } else if Self::names(self.elsewhere.as_ref(), submission.line) {
            let status = run_elsewhere(submission.line, &front_end.lend());
            (End::Elsewhere(status), status, submission.cwd.to_path_buf())
        } else {
            self.note(&format!("started {line}"));
            let outcome = front_end.run(InEngine::default());
            if outcome.duration > Duration::from_secs(3600) {
                self.note("slow");
            }
            (End::Ran, outcome.status, outcome.cwd)
        };
        self.note(&format!("finished {line} -> {status} in {}", cwd.display()));
        end
    }

    fn standing(&self, _: &Path) -> Standing {
        Standing {
            policy: "example".into(),
            mode: "observe".into(),
            level: None,
        }
    }

    fn engine_lost(&self, how: &str) {
        self.note(&format!("lost {how}"));
    }
}

fn run_elsewhere(line: &[u8], borrowed: &Borrowed<'_>) -> i32 {
    let program = borrowed.state.program(line);
    Command::new("bash")
        .args(["--norc", "-c"])
        .arg(OsString::from(
            String::from_utf8_lossy(&program).into_owned(),
        ))
        .current_dir(&borrowed.state.cwd)
        .stdin(
            borrowed
                .terminal
                .try_clone_to_owned()
                .map_or(Stdio::null(), Stdio::from),
        )
        .status()
        .map_or(125, |status| {
            status.code().unwrap_or(128 + status.signal().unwrap_or(0))
        })
}

fn hide_tokens(line: &[u8]) -> Cow<'_, [u8]> {
    let text = String::from_utf8_lossy(line);
    if text.contains("token-") {
        return Cow::Owned(text.replace("token-", "[redacted]").into_bytes());
    }
    Cow::Borrowed(line)
}

fn main() -> ExitCode {
    let variable = |name: &str| std::env::var_os(name);
    let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
    let launcher: Box<dyn Launcher> = if variable("EXAMPLE_OWN_TERMINAL").is_some() {
        Box::new(OnOwnTerminal)
    } else {
        Box::new(Beside)
    };
    let mut options = ReplOptions {
        home: variable("SUBSTRATE_HOME").map(PathBuf::from),
        shell: variable("EXAMPLE_SHELL").map(PathBuf::from),
        redact: hide_tokens,
        launcher,
        ..ReplOptions::default()
    };
    let mut arguments = std::env::args_os();
    options.startup.login = arguments
        .next()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"-"));
    for argument in arguments {
        match argument.to_str() {
            Some("-l" | "--login") => options.startup.login = true,
            Some("--norc") => options.startup.no_rc = true,
            Some("--noprofile") => options.startup.no_profile = true,
            _ => {}
        }
    }
    let gate = Example {
        refused: text("EXAMPLE_REFUSE"),
        elsewhere: text("EXAMPLE_ELSEWHERE"),
        log: variable("EXAMPLE_LOG").map(PathBuf::from),
    };
    let status = match repl::run(options, &gate) {
        Ok(status) => status,
        Err(repl::NotStarted(why)) => {
            let _ = writeln!(std::io::stderr(), "{why}");
            125
        }
    };
    ExitCode::from(u8::try_from(status & 0xff).unwrap_or(1))
}
