//! Lines and scripts over every chapter of bash's manual, by the thousand: bash and Substrate must print the same
//! and end alike, with `-c`, as a script and on standard input.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const LINES: &str = include_str!("differential_lines.txt");

/// Lines whose difference is meant; each is explained in docs/shell.md.
const KNOWN: &[&str] = &[];

/// So many lines share a shell, each in a subshell and a directory of its own.
const BATCH: usize = 64;

/// What `{{a|b}}` in a line stands for. A stroke in an alternative is written `\|`, or stands inside brackets.
fn expand(line: &str) -> Vec<String> {
    let Some(start) = line.find("{{") else {
        return vec![line.replace('⏎', "\n")];
    };
    let (mut depth, mut end) = (0_i32, start);
    let bytes = line.as_bytes();
    let mut cuts = vec![start + 1];
    let mut at = start;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if bytes.get(at + 1) == Some(&b'|') => at += 1,
            b'{' | b'(' => depth += 1,
            b'}' | b')' => depth -= 1,
            b'|' if depth == 2 => cuts.push(at),
            _ => {}
        }
        if depth == 0 {
            end = at;
            break;
        }
        at += 1;
    }
    cuts.push(end - 1);
    let (before, after) = (&line[..start], &line[end + 1..]);
    cuts.windows(2)
        .flat_map(|pair| {
            let choice = line[pair[0] + 1..pair[1]].replace("\\|", "|");
            expand(after).into_iter().map(move |rest| {
                format!("{}{choice}{rest}", before.replace('⏎', "\n")).replace('⏎', "\n")
            })
        })
        .collect()
}

fn cases() -> Vec<String> {
    let lines = LINES.lines().skip(2);
    let lines =
        lines.filter(|line| !line.is_empty() && !line.starts_with("@ ") && !line.starts_with("# "));
    lines.flat_map(expand).collect()
}

#[derive(Clone, Copy)]
enum Way {
    Line,
    Script,
    Input,
}

/// A batch as one text: what each line prints stands between marks, with its status.
fn text_of(batch: &[String]) -> String {
    let quoted = |line: &str| format!("'{}'", line.replace('\'', "'\\''"));
    let mut text = String::new();
    for (at, line) in batch.iter().enumerate() {
        text.push_str(&format!(
            "mkdir -p w{at}; (cd w{at}; eval {}) </dev/null 2>&1\nprintf '\\n=== {at} %s\\n' $?\n",
            quoted(line)
        ));
    }
    text
}

/// What each line of a batch printed, and its status.
fn run(program: &str, way: Way, text: &str, count: usize) -> Vec<String> {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("work")).unwrap();
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("HOME", place.path())
        .env("SUBSTRATE_HOME", place.path().join(".substrate"))
        .env("SUBSTRATE_SERVICE", "off")
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("LANG", "C.UTF-8")
        .current_dir(place.path().join("work"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    match way {
        Way::Line => command.args(["-c", text]),
        Way::Script => {
            std::fs::write(place.path().join("script"), text).unwrap();
            command.arg("../script")
        }
        Way::Input => command.stdin(Stdio::piped()),
    };
    let mut child = command.spawn().unwrap();
    if let Some(mut input) = child.stdin.take() {
        let text = text.to_owned();
        std::thread::spawn(move || input.write_all(text.as_bytes()));
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut parts = vec![String::new(); count];
    let mut current = String::new();
    for line in said
        .replace(&place.path().display().to_string(), "~")
        .lines()
    {
        let mark = line
            .strip_prefix("=== ")
            .and_then(|rest| rest.split_once(' '));
        match mark.and_then(|(at, status)| Some((at.parse::<usize>().ok()?, status))) {
            Some((at, status)) if at < count => {
                parts[at] = format!("{}status {status}", std::mem::take(&mut current));
            }
            _ => match plain(line) {
                line if line.is_empty() => {}
                line => current.push_str(&(line + "\n")),
            },
        }
    }
    parts
}

/// Who complains, and in which row, is not the point.
fn plain(line: &str) -> String {
    match line.split_once(": line ") {
        Some((who, rest)) if !who.trim_end_matches(": eval").contains(' ') => {
            let rest = rest.split_once(": ").map_or(rest, |(_, rest)| rest);
            // A program that a signal ended is named with its process id.
            let rest = rest.trim_start();
            let rest = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
            format!("shell: {rest}")
        }
        // What Substrate itself gives to programs.
        _ if line.starts_with("SUBSTRATE_PARENT_SPAN=") => String::new(),
        _ => line.to_owned(),
    }
}

#[test]
fn thousands_of_lines_do_the_same() {
    let cases = cases();
    assert!(cases.len() >= 1500, "{} lines", cases.len());
    let left = cases
        .iter()
        .find(|line| line.contains("{{") || line.contains("}}}}"));
    assert!(left.is_none(), "{left:?}");
    let batches: Vec<&[String]> = cases.chunks(BATCH).collect();
    let (next, different) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = batches.get(at) else {
                return;
            };
            let way = [Way::Line, Way::Script, Way::Input][at % 3];
            let text = text_of(batch);
            let theirs = run("/bin/bash", way, &text, batch.len());
            let ours = run(env!("CARGO_BIN_EXE_substrate"), way, &text, batch.len());
            for (line, (theirs, ours)) in batch.iter().zip(theirs.iter().zip(&ours)) {
                if theirs != ours && !KNOWN.contains(&line.as_str()) {
                    let told = format!("--- bash\n{theirs}\n--- substrate\n{ours}\n");
                    different.lock().unwrap().insert(line.clone(), told);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
    let different = different.into_inner().unwrap();
    println!(
        "{} lines, {} differ, {} known",
        cases.len(),
        different.len(),
        KNOWN.len()
    );
    let told: Vec<String> = different
        .iter()
        .map(|(line, told)| format!("{line}\n{told}"))
        .collect();
    assert!(
        told.is_empty(),
        "{} differ:\n{}",
        told.len(),
        told.join("\n")
    );
}
