//! Runs `true` in a cold world and compares it with bubblewrap and the same mounts, in turns.
//!
//! `bench_true [ROUNDS]` measures; `bench_true run session|isolated|default DIR COMMAND…` is
//! one cold world, which is what is measured.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio as ProcessStdio};
use std::time::{Duration, Instant};
use substrate_world::backend::ExecJob;
use substrate_world::backend::ExecStreams;

use substrate_changes::gc;
use substrate_changes::pending::Pending;
use substrate_linux::Linux;
use substrate_policy::terms::{Limits, PathPattern, WorldSpec};
use substrate_world::backend::{ExecPlace, ExecRequest, WorldBackend};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let done = match arguments.first() {
        Some(first) if first == "run" => run(&arguments[1..]),
        first => {
            let rounds = first.and_then(|n| n.to_str()?.parse().ok()).unwrap_or(60);
            measure(rounds).map(|()| 0)
        }
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("bench_true: {error}");
            ExitCode::FAILURE
        }
    }
}

type Anyhow<T> = Result<T, Box<dyn std::error::Error>>;

/// One cold world.
fn run(arguments: &[OsString]) -> Anyhow<u8> {
    let [kind, dir, command @ ..] = arguments else {
        return Err("usage: bench_true run KIND DIR COMMAND...".into());
    };
    let program = command.first().ok_or("no command")?;
    let dir = Path::new(dir);
    let backend = Linux::default();
    let spec = spec(&kind.to_string_lossy(), dir);
    let request = ExecRequest {
        program: program.clone(),
        argv: command.to_vec(),
        env: std::env::vars_os().collect(),
        cwd: dir.join("home/project"),
        ..ExecRequest::default()
    };
    let streams = ExecStreams::default();
    let job = ExecJob {
        request: &request,
        streams: &streams,
    };
    let result = if kind == "session" {
        let session = backend.ensure_session(&spec, None)?;
        backend.exec(ExecPlace::Session(session), job)?
    } else {
        backend.exec(ExecPlace::fresh(&spec), job)?
    };
    if std::env::var_os("SHOW_ENFORCED").is_some() {
        eprintln!("{:?}", result.enforced);
    }
    Ok(u8::try_from(result.status.code()).unwrap_or(255))
}

/// `session` and `isolated` name the project alone; `default` has the roots of the shipped
/// policy.
fn spec(kind: &str, dir: &Path) -> WorldSpec {
    let home = dir.join("home");
    let project = home.join("project");
    let mut spec = WorldSpec {
        policy_id: "bench".into(),
        project: Some(project.clone()),
        substrate_home: home.join(".substrate"),
        read: vec!["/".into()],
        write: vec![project.clone(), "/tmp".into()],
        ..WorldSpec::default()
    };
    spec.net.isolate = true;
    if kind == "default" {
        let hidden = |path: PathBuf| PathPattern {
            glob: path.join("**").into_os_string().into_encoded_bytes(),
            base: path,
        };
        spec.write.push(home.join(".cache"));
        spec.hide = vec![hidden(home.join(".ssh")), hidden(home.join(".aws"))];
        let protect = |glob: &str| PathPattern {
            glob: [project.as_os_str().as_encoded_bytes(), glob.as_bytes()].concat(),
            base: project.clone(),
        };
        spec.protect = vec![protect("/**/.git/hooks/**"), protect("/**/.git/config")];
        spec.limits = Limits::default();
        spec.home = home;
    } else {
        // No home, so the project is the only root.
        spec.home = "/nonexistent".into();
    }
    spec
}

/// The same tree, project writable, fresh /proc, /dev, /run and /tmp, all namespaces.
fn bubblewrap(dir: &Path) -> Command {
    let home = dir.join("home");
    let project = home.join("project");
    let mut command = Command::new("bwrap");
    command.args([
        "--unshare-all",
        "--die-with-parent",
        "--hostname",
        "substrate",
    ]);
    command.args(["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]);
    command.args(["--tmpfs", "/run", "--tmpfs", "/tmp"]);
    command.arg("--bind").arg(&project).arg(&project);
    command.arg("--tmpfs").arg(home.join(".substrate"));
    command.arg("--chdir").arg(&project);
    command.arg("true");
    command
}

/// A name and what is started for it.
type Case<'a> = (&'static str, Box<dyn Fn() -> Command + 'a>);

fn measure(rounds: usize) -> Anyhow<()> {
    let dir = std::env::temp_dir()
        .canonicalize()?
        .join(format!("bench-true-{}", std::process::id()));
    let home = dir.join("home");
    for path in ["project/.git/hooks", ".substrate", ".cache", ".ssh", ".aws"] {
        std::fs::create_dir_all(home.join(path))?;
    }
    std::fs::write(home.join("project/.git/config"), "")?;
    let exe = std::env::current_exe()?;
    let world = |kind: &str| {
        let mut command = Command::new(&exe);
        command.args(["run", kind]).arg(&dir).arg("true");
        command
    };
    let mut cases: Vec<Case<'_>> = vec![
        ("bwrap", Box::new(|| bubblewrap(&dir))),
        ("session", Box::new(|| world("session"))),
        ("isolated", Box::new(|| world("isolated"))),
        ("default", Box::new(|| world("default"))),
        ("true", Box::new(|| Command::new("true"))),
    ];
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); cases.len()];
    for round in 0..rounds + 3 {
        for (case, times) in cases.iter_mut().zip(&mut times) {
            let mut command = case.1();
            command.stdin(ProcessStdio::null());
            let start = Instant::now();
            let status = command.status()?;
            let took = start.elapsed();
            if !status.success() {
                return Err(format!("{} ended with {status}", case.0).into());
            }
            // The first rounds warm caches.
            if round >= 3 {
                times.push(took);
            }
        }
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1000.0
    };
    let medians: Vec<f64> = times.iter_mut().map(median).collect();
    // On a busy machine the shortest runs are the ones that nobody disturbed.
    let least: Vec<f64> = times.iter().map(|t| t[0].as_secs_f64() * 1000.0).collect();
    for (((name, _), time), least_time) in cases.iter().zip(&medians).zip(&least) {
        println!(
            "{name:10} {time:7.2} ms  {:5.2} x bwrap  (minima {least_time:.2} ms, {:.2} x)",
            time / medians[0],
            least_time / least[0]
        );
    }
    drop(cases);
    for mut pending in Pending::list(&home.join(".substrate"))? {
        gc::discard(&mut pending)?;
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
