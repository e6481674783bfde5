//! The same lines, typed at bash and at Substrate: output, status and files must agree.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::terminal::{Setup, Terminal};

const CASES: &str = include_str!("fidelity_lines.txt");

/// Lines whose output is known to differ; each is explained in docs/shell.md.
const KNOWN: &[&str] = &[
    // A line runs as a sourced file does, so it may return.
    "return 5 2>/dev/null; true",
    // Tracing shows two more signs for that reason, and `caller` sees the file.
    "set -x; echo traced 2>/dev/null; set +x 2>/dev/null",
    "caller; echo $?",
    // What a pipeline of the line before left is gone.
    "echo ${PIPESTATUS[@]}; true | false | true; echo ${PIPESTATUS[@]}",
    // bash takes the line with `history -s` itself out of the history.
    "history -s 'stored line'; history 2 | sed 's/ *[0-9]* *//'",
    "HISTCONTROL=ignorespace; history | wc -l",
];

fn chapters() -> Vec<(String, Vec<String>)> {
    let mut chapters: Vec<(String, Vec<String>)> = Vec::new();
    for line in CASES.lines() {
        if let Some(name) = line.strip_prefix("@ ") {
            chapters.push((name.to_owned(), Vec::new()));
        } else if let Some((_, lines)) = chapters.last_mut() {
            lines.push(line.to_owned());
        }
    }
    chapters
}

const CHAPTERS: &str = include_str!("fidelity_chapters.txt");

/// Where the tests that the list of chapters names are written.
const TESTS: [&str; 3] = [
    include_str!("repl/editing.rs"),
    include_str!("repl/engine.rs"),
    include_str!("repl/jobs.rs"),
];

#[test]
fn every_chapter_of_the_manual_is_tried() {
    let cases = chapters();
    let mut listed = Vec::new();
    for line in CHAPTERS.lines().filter(|line| !line.starts_with('#')) {
        let [number, title, place] = line.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{line:?} has not three parts");
        };
        listed.push(number);
        if place == "lines" {
            let found = cases
                .iter()
                .find(|(name, _)| name.split(' ').next() == Some(number));
            assert!(
                found.is_some_and(|(_, lines)| !lines.is_empty()),
                "{number} {title} has no cases"
            );
        } else if let Some(test) = place.strip_prefix("test: ") {
            let declared = format!("#[test]\nfn {test}()");
            assert!(
                TESTS.iter().any(|text| text.contains(&declared)),
                "{number} {title}: there is no test {test}"
            );
        } else {
            assert!(place.starts_with("none: "), "{line:?} says nothing");
        }
    }
    for (name, _) in &cases {
        let number = name.split(' ').next().unwrap_or_default();
        assert!(listed.contains(&number), "{name} is not listed");
    }
    let count: usize = cases.iter().map(|(_, lines)| lines.len()).sum();
    assert!(count >= 300, "{count} cases");
}

/// One line with `-c`, in its own process, in a directory that the lines of its chapter share.
fn one_shot(program: &Path, line: &str, home: &Path) -> (String, Option<i32>) {
    let output = std::process::Command::new(program)
        .args(["-c", line])
        .env_clear()
        .env("HOME", home)
        .env("SUBSTRATE_HOME", home.join(".substrate"))
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("LANG", "C.UTF-8")
        .env("TERM", "dumb")
        .current_dir(home.join("work"))
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        String::from_utf8_lossy(&text).into_owned(),
        output.status.code(),
    )
}

#[test]
fn lines_do_the_same_with_c() {
    let shell = crate::terminal::shell_under_test();
    let mut different = Vec::new();
    for (chapter, lines) in chapters() {
        let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for home in &homes {
            std::fs::create_dir(home.path().join("work")).unwrap();
        }
        for line in lines.iter().filter(|line| !line.is_empty()) {
            let (theirs, their_status) = one_shot(Path::new("/bin/bash"), line, homes[0].path());
            let (ours, status) = one_shot(&shell, line, homes[1].path());
            let theirs = normalise(&theirs, homes[0].path());
            let ours = normalise(&ours, homes[1].path());
            if theirs != ours || their_status != status {
                different.push(format!(
                    "{chapter}: {line}\n--- bash ({their_status:?})\n{theirs}\n--- substrate ({status:?})\n{ours}\n"
                ));
            }
        }
        let [left, right] = homes
            .each_ref()
            .map(|home| files(&home.path().join("work")));
        if left != right {
            different.push(format!(
                "{chapter}: files differ: {:?} {:?}",
                left.keys(),
                right.keys()
            ));
        }
    }
    assert!(
        different.is_empty(),
        "{} differ:\n{}",
        different.len(),
        different.join("\n")
    );
}

/// A session in a fresh directory; the program's own rc, the same for both.
fn session(program: Option<&str>) -> Terminal {
    let mut setup = Setup::new();
    if let Some(program) = program {
        setup.program = PathBuf::from(program);
    }
    setup.file("work/.keep", "");
    setup.rc(
        "PS1='ready> '\nPROMPT_COMMAND='printf \"<%s>\\n\" $?'\nHISTFILE=\ncd ~/work; rm .keep\n",
    );
    let mut terminal = setup.start();
    terminal.wait_for("<0>");
    terminal
}

/// What may differ without meaning: where an error was found, announcements of jobs, the home directory.
fn normalise(text: &str, home: &Path) -> String {
    let mut lines = Vec::new();
    for line in text.replace(&home.display().to_string(), "~").lines() {
        let mut line = line.trim_end().to_owned();
        // Who complains: a shell, or Substrate where no shell was needed.
        if let Some(rest) = line
            .strip_prefix("/bin/bash: ")
            .or_else(|| line.strip_prefix("substrate: "))
        {
            line = format!("bash: {rest}");
        }
        for marker in ["eval: line ", "line "] {
            if let Some(at) = line.find(&format!("bash: {marker}")) {
                let rest = line
                    .get(at + 6 + marker.len()..)
                    .unwrap_or_default()
                    .to_owned();
                let rest = rest
                    .split_once(": ")
                    .map_or(rest.as_str(), |(_, rest)| rest)
                    .to_owned();
                line = format!("bash: {rest}");
            }
        }
        // A program that a signal ended is named with its process id.
        if let Some((number, rest)) = line
            .strip_prefix("bash: ")
            .and_then(|rest| rest.trim_start().split_once(' '))
            && number.parse::<u32>().is_ok()
        {
            line = format!("bash: {}", rest.trim_start());
        }
        // A job is announced when it starts by bash, by us when its line ends, if it still runs.
        let announced = line
            .split_once("] ")
            .is_some_and(|(job, pid)| job.starts_with('[') && pid.trim().parse::<u32>().is_ok());
        // The second line of a syntax error quotes the line, which bash leaves out at a prompt.
        if announced || line.starts_with("bash: `") {
            continue;
        }
        lines.push(line.trim_start_matches(['\u{23ce}', ' ']).to_owned());
    }
    lines.retain(|line| !line.is_empty());
    lines.join("\n")
}

fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().display().to_string();
                found.insert(name, std::fs::read(&path).unwrap_or_default());
            }
        }
    }
    found
}

#[test]
fn lines_do_the_same_in_bash_and_here() {
    let mut different = Vec::new();
    for (chapter, lines) in chapters() {
        let mut bash = session(Some("/bin/bash"));
        let mut ours = session(None);
        for line in &lines {
            let (theirs, their_status) = bash.run(line);
            let (output, status) = ours.run(line);
            let theirs = normalise(&theirs, bash.home.path());
            let output = normalise(&output, ours.home.path());
            if (theirs != output || their_status != status) && !KNOWN.contains(&line.as_str()) {
                different.push(format!(
                    "{chapter}: {line}\n--- bash ({their_status})\n{theirs}\n--- substrate ({status})\n{output}\n"
                ));
            }
        }
        let (left, right) = (files(&bash.path("work")), files(&ours.path("work")));
        if left != right {
            different.push(format!(
                "{chapter}: files differ: {:?} {:?}",
                left.keys(),
                right.keys()
            ));
        }
    }
    assert!(
        different.is_empty(),
        "{} differ:\n{}",
        different.len(),
        different.join("\n")
    );
}
