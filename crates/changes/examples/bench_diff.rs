//! Settles a result of 10 000 changed files and compares that with `diff -rq` of the two trees, in
//! turns: files that kept their length, and files that did not.
//!
//! `bench_diff [ROUNDS]`
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use substrate_changes::diff;
use substrate_changes::pending::{NewPending, Pending};
use substrate_changes::root::RootKind;

const DIRS: usize = 100;
const FILES: usize = 100;

type Anyhow<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let rounds = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(15);
    for (name, before, after) in [
        ("same length", "before\n", "after.\n"),
        ("other length", "before\n", "after\n"),
    ] {
        if let Err(error) = measure(rounds, name, before, after) {
            eprintln!("bench_diff: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn fill(root: &Path, text: &str) -> Anyhow<()> {
    for dir in 0..DIRS {
        let dir = root.join(format!("d{dir}"));
        fs::create_dir_all(&dir)?;
        for file in 0..FILES {
            fs::write(dir.join(format!("file{file}.txt")), text)?;
        }
    }
    Ok(())
}

fn measure(rounds: usize, name: &str, before: &str, after: &str) -> Anyhow<()> {
    let top = std::env::temp_dir().join(format!("bench-diff-{}", std::process::id()));
    let host = top.join("host");
    fill(&host, before)?;
    let mut pending = Pending::create(
        &top.join("home"),
        NewPending {
            world_id: "wld_bench".to_owned(),
            span_id: "spn_bench".to_owned(),
            policy_id: "bench".to_owned(),
            cwd: host.clone(),
            cmd: "bench".into(),
        },
    )?;
    let upper = pending.add_root(&host, RootKind::Overlay, false)?.upper;
    pending.begin()?;
    fill(&upper, after)?;
    pending.finish(Some(0))?;
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..rounds + 2 {
        let started = Instant::now();
        let found = diff::settle(&pending, true, &mut |_| true)?;
        let ours = started.elapsed();
        let _ = fs::remove_file(pending.dir().join("changes.jsonl"));
        if !found.truncated || found.tree_hash.is_none() {
            return Err("not everything was found".into());
        }
        let started = Instant::now();
        Command::new("diff")
            .arg("-rq")
            .args([&host, &upper])
            .stdout(Stdio::null())
            .status()?;
        let theirs = started.elapsed();
        // The first rounds warm caches.
        if round >= 2 {
            times[0].push(ours);
            times[1].push(theirs);
        }
    }
    let [ours, theirs] = times.map(|mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1000.0
    });
    println!(
        "{name:13} settle {ours:7.1} ms  diff -rq {theirs:7.1} ms  {:5.2} x",
        ours / theirs
    );
    fs::remove_dir_all(&top)?;
    Ok(())
}
