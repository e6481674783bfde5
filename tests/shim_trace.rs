//! The record that shims leave, under load and over long waits.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::collections::HashSet;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::shim_support::{OBSERVE, Rig, keeps_endings};

#[test]
fn a_thousand_at_once_lose_nothing() {
    let rig = Rig::new(OBSERVE, &[], &["cat"]);
    // Each waits on a pipe that all share; closing it lets them go together.
    let (reader, writer) = std::io::pipe().unwrap();
    let mut children: Vec<_> = (0..1000)
        .map(|number| {
            let mut command = rig.command("cat", true);
            command
                .args(["-", &format!("/dev/null/{number}")])
                .stdin(reader.try_clone().unwrap());
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    drop(writer);
    for child in &mut children {
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }
    let done = rig.completed(1000);
    let starts = rig.sandbox.events("command_start");
    assert_eq!(starts.len(), 1000);
    let ids = |events: &[serde_json::Value]| -> HashSet<String> {
        events
            .iter()
            .map(|event| event["span_id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(&done).len(), 1000);
    assert_eq!(ids(&done), ids(&starts));
    assert!(done.iter().all(|event| event["exit"] == 1));
}

/// The watcher of a process: it shows itself by name, and by the process that it waits for.
fn watchers() -> Vec<u32> {
    let numbers = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    numbers
        .filter(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name == "substrate-watch\n")
        })
        .collect()
}

fn waits_for(watcher: u32, pid: u32) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{watcher}/fdinfo")) else {
        return false;
    };
    descriptors.filter_map(Result::ok).any(|entry| {
        fs::read_to_string(entry.path())
            .is_ok_and(|info| info.lines().any(|line| line == format!("Pid:\t{pid}")))
    })
}

/// The watcher of a process that was just started.
fn watcher_of(pid: u32) -> u32 {
    loop {
        let mut all = watchers().into_iter();
        if let Some(found) = all.find(|watcher| waits_for(*watcher, pid)) {
            return found;
        }
        std::thread::yield_now();
    }
}

#[test]
fn the_end_of_a_whole_group_is_recorded() {
    if !keeps_endings() {
        crate::common::skip(
            "the_end_of_a_whole_group_is_recorded",
            "this kernel tells no endings to watchers",
        );
        return;
    }
    let rig = Rig::new(OBSERVE, &[], &["cat"]);
    let mut command = rig.command("cat", true);
    command.process_group(0).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    watcher_of(child.id());
    let group = format!("-{}", child.id());
    let killed = Command::new("kill").args(["-KILL", "--", &group]).status();
    assert!(killed.unwrap().success());
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_eq!(rig.completed(1)[0]["signal"], 9);
}

#[test]
fn a_waiting_watcher_holds_little() {
    if !keeps_endings() {
        crate::common::skip(
            "a_waiting_watcher_holds_little",
            "this kernel tells no endings to watchers",
        );
        return;
    }
    let rig = Rig::new(OBSERVE, &[], &["cat"]);
    let mut child = rig
        .command("cat", true)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let watcher = watcher_of(child.id());
    let read = |name: &str| fs::read_to_string(format!("/proc/{watcher}/{name}")).unwrap();
    // It settles down after a moment, when the program's own pages are given up.
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let memory = read("smaps_rollup");
        let private: u64 = memory
            .lines()
            .filter(|line| line.starts_with("Private_"))
            .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
            .sum();
        if private <= 300 {
            break;
        }
        assert!(Instant::now() < deadline, "{private} kB private\n{memory}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let shown = read("cmdline").trim_end_matches('\0').to_owned();
    assert!(
        "substrate-watch".starts_with(&shown),
        "whoever looks for the tool must not find {shown:?}"
    );
    assert_eq!(
        fs::read_link(format!("/proc/{watcher}/cwd")).unwrap(),
        std::path::Path::new("/")
    );
    let open = fs::read_dir(format!("/proc/{watcher}/fd")).unwrap().count();
    assert_eq!(open, 1, "only the process that it waits for");
    let stat = read("stat");
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(fields[4], "0", "it has no terminal");
    // The pipe ends with the tool, whoever else is still there.
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    rig.completed(1);
}

#[test]
fn what_a_shim_ran_can_be_replayed() {
    let rig = Rig::new(OBSERVE, &[], &["cat", "false"]);
    if !rig.sandbox.run(["world", "doctor"]).status.success() {
        crate::common::skip(
            "what_a_shim_ran_can_be_replayed",
            "this machine has no full worlds",
        );
        return;
    }
    fs::write(rig.sandbox.project().join("input"), "text\n").unwrap();
    for (number, line) in ["cat input"].into_iter().enumerate() {
        rig.sh(line);
        let done = rig.completed(number + 1);
        let span = done[number]["span_id"].as_str().unwrap().to_owned();
        let output = rig.sandbox.run(["replay", &span]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
        assert!(said.contains("same (exit only)\n"), "{line}: {said}");
    }
}
