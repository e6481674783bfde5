//! Prints what the quick check costs with the compiled policy of a home: `quick_check HOME`, one line
//! for each command, with the median in microseconds. The policy is opened anew each time, as every
//! shim does it.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use substrate_broker::Home;
use substrate_runtime::arena::Arena;
use substrate_shim::quick::{self, Answer, Policies, Question};

/// As in the shim.
#[global_allocator]
static MEMORY: Arena = Arena::new();

const ROUNDS: usize = 5000;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return ExitCode::from(2);
    };
    let home = Home {
        user: path.clone(),
        path,
    };
    for command in ["true", "git status", "ls -la src"] {
        let argv: Vec<OsString> = command.split(' ').map(OsString::from).collect();
        let question = Question {
            argv: &argv,
            cwd: Path::new("/tmp"),
            search_path: OsStr::new("/usr/bin:/bin"),
            home_variable: None,
        };
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let Ok(policies) = Policies::open(&home) else {
                return ExitCode::FAILURE;
            };
            let started = Instant::now();
            let answer = quick::check(&policies, &home, &question);
            times.push(started.elapsed());
            if matches!(answer, Answer::Full) {
                return ExitCode::FAILURE;
            }
        }
        times.sort();
        let median = times[ROUNDS / 2].as_secs_f64() * 1e6;
        let _ = writeln!(std::io::stdout(), "{command}\t{median:.1}");
    }
    ExitCode::SUCCESS
}
