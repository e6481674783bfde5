//! Tab, as bash does it: the same keys, in bash and at the prompt, with Debian's completion functions.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{Sandbox, script, skip};
use crate::person::Person;

const FUNCTIONS: &str = "/usr/share/bash-completion/bash_completion";

/// What both shells start with. Ctrl-G shows the line that is edited.
const RC: &str = r#". /usr/share/bash-completion/bash_completion
PS1='ready> '
UNIQUE_NAME=1
HISTFILE=
alias lsx=ls
bind 'set bell-style none'
bind -x '"\C-g": printf "\n<%s>" "$READLINE_LINE"'
complete -W 'alpha beta alpine' mywords
complete -o nospace -W 'alpha beta' mynospace
complete -f myfiles
complete -d mydirs
complete -G '*.txt' myglob
complete -o default -F _nothing mydef
complete -F _nothing mynone
complete -o plusdirs -W 'alpha' myplus
_nothing() { COMPREPLY=(); }
_func() { COMPREPLY=($(compgen -W 'alpha alto' -- "$2")); }
complete -F _func myfunc
_colon() {
  local cur
  _get_comp_words_by_ref -n : cur
  COMPREPLY=($(compgen -W 'a:bc a:bd' -- "$cur"))
  __ltrim_colon_completions "$cur"
}
complete -F _colon mycolon
_eq() {
  local cur prev words cword split
  _init_completion -s || return
  $split && { COMPREPLY=($(compgen -W 'alpha beta' -- "$cur")); return; }
}
complete -F _eq myeq
"#;

fn make_files(sandbox: &Sandbox) {
    let (project, home) = (sandbox.project(), sandbox.project().join(".."));
    let file = |path: &Path| std::fs::write(path, "x\n").unwrap();
    for place in [&project, &home] {
        std::fs::create_dir_all(place.join("plain")).unwrap();
        file(&place.join("plain/one"));
    }
    for name in ["my docs", "my dogs", "branches"] {
        std::fs::create_dir_all(project.join(name)).unwrap();
        file(&project.join(name).join("inside"));
    }
    for name in [
        "notes.txt",
        "notes.md",
        "it's",
        "a,b c",
        "we:ird",
        "at@x",
        "dollar$x",
        "star*x",
        "eq=x",
        "has#x",
        "br{x",
        ".hidden",
        "archive.tar",
    ] {
        file(&project.join(name));
    }
    script(&project.join("script.sh"), "#!/bin/sh\n");
    std::fs::write(project.join("Makefile"), "build:\n\ttrue\ntest:\n\ttrue\n").unwrap();
    std::fs::create_dir_all(home.join(".ssh")).unwrap();
    std::fs::write(home.join(".ssh/config"), "Host myhost\n  User me\n").unwrap();
    std::fs::write(home.join("rc"), RC).unwrap();
    std::fs::remove_dir(project.join(".git")).unwrap();
    let git = "git init -q -b main && git config user.name n && git config user.email e && \
               git commit -q --allow-empty -m x && git branch feature-one && git remote add origin /x";
    let mut command = Command::new("sh");
    sandbox.prepare(&mut command);
    assert!(command.args(["-c", git]).status().unwrap().success());
}

/// A shell at a terminal, whose lines are looked at.
struct Typist {
    person: Person,
    shown: usize,
}

impl Typist {
    fn start(mut command: Command) -> Self {
        command.env("TERM", "xterm").env("INPUTRC", "/dev/null");
        let mut person = Person::start(command);
        person.sees("ready> ");
        let shown = person.text().len();
        let mut this = Self { person, shown };
        // The first of everything takes its time.
        this.line("cat zz");
        this
    }

    /// What a line is after these keys.
    fn line(&mut self, keys: &str) -> String {
        self.person.types(keys);
        self.person.types("\t");
        std::thread::sleep(Duration::from_millis(60));
        self.person.types("\x07");
        let start = Instant::now();
        loop {
            let text = self.person.text();
            let new = text.get(self.shown..).unwrap_or_default();
            let line = new.rfind("\n<").and_then(|at| {
                new[at + 2..]
                    .split_once('>')
                    .map(|(line, rest)| (line.to_owned(), rest.contains("ready> ")))
            });
            if let Some((line, true)) = line {
                self.shown = text.len();
                self.person.types("\x15");
                return line;
            }
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "{keys:?}: {new:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn both(sandbox: &Sandbox) -> (Typist, Typist) {
    let rc = sandbox.project().join("../rc");
    let mut bash = Command::new("bash");
    sandbox.prepare(&mut bash);
    bash.arg("--rcfile").arg(&rc).arg("-i");
    let mut ours = sandbox.substrate();
    ours.arg("--rcfile").arg(&rc).arg("-i");
    (Typist::start(bash), Typist::start(ours))
}

#[test]
fn tab_makes_of_a_line_what_it_makes_in_bash() {
    let test = "tab_makes_of_a_line_what_it_makes_in_bash";
    if !Path::new(FUNCTIONS).exists() {
        return skip(test, "bash-completion is not installed");
    }
    let sandbox = Sandbox::new();
    make_files(&sandbox);
    let (mut bash, mut ours) = both(&sandbox);
    let mut different = Vec::new();
    let (mut count, mut known) = (0, 0);
    for line in include_str!("completion_prefixes.txt").lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (prefix, differs) = match line.strip_prefix("!! ") {
            Some(prefix) => (prefix, true),
            None => (line, false),
        };
        count += 1;
        let (theirs, own) = (bash.line(prefix), ours.line(prefix));
        known += usize::from(differs);
        if (theirs != own) != differs {
            different.push(format!("{prefix:?}: bash {theirs:?}, here {own:?}"));
        }
    }
    assert!(count >= 200, "{count}");
    assert!(known <= 8, "{known}");
    assert!(
        different.is_empty(),
        "{} of {count}:\n{}",
        different.len(),
        different.join("\n")
    );
}

#[test]
fn a_completion_that_owns_the_terminal_gets_it_and_gives_it_back() {
    let test = "a_completion_that_owns_the_terminal_gets_it_and_gives_it_back";
    let sandbox = Sandbox::new();
    // Reads keys from the terminal, as fzf does.
    let rc = r#"PS1='ready> '
_menu() {
  local key old
  old=$(stty -g </dev/tty)
  stty raw -echo </dev/tty
  printf 'choose: ' >/dev/tty
  key=$(dd bs=1 count=1 2>/dev/null </dev/tty)
  stty "$old" </dev/tty
  [[ $key == b ]] && COMPREPLY=(banana)
}
complete -F _menu pick
_stuck() { sleep 1000 </dev/null; }
complete -F _stuck stuck
_deaf() { (trap '' INT TERM; sleep 1000); }
complete -F _deaf deaf
"#;
    std::fs::write(sandbox.project().join("rc"), rc).unwrap();
    for policy in [None, Some("agent")] {
        if policy.is_some() && !sandbox.run(["world", "doctor"]).status.success() {
            return skip(test, "this machine has no full worlds");
        }
        let mut command = sandbox.substrate();
        command.env("TERM", "xterm").env("HISTFILE", "");
        if let Some(policy) = policy {
            command.args(["--policy", policy]);
        }
        command.args(["--rcfile", "rc", "-i"]);
        let mut person = Person::start(command);
        person.sees("ready> ");
        person.types("echo pick; pick \t");
        person.sees("choose: ");
        person.types("b");
        person.sees("banana");
        // The line is edited on, and run.
        person.types("\x01echo got-$((1+1)) \r");
        person.sees("got-2 echo");
        person.types("pick \t");
        person.sees("choose: ");
        person.types("x");
        person.sees("ready> ");
        person.types("\x15echo back-$((1+1))\r");
        person.sees("back-2");
        if policy.is_none() {
            for line in ["stuck \t", "deaf \t"] {
                person.types(line);
                std::thread::sleep(Duration::from_secs(10));
                person.types("\x15echo again-$((1+1))\r");
                person.sees("again-2");
            }
        }
        person.types("exit\r");
        assert_eq!(person.end().0, 0);
    }
}

#[test]
fn fzf_completes_at_the_prompt() {
    let test = "fzf_completes_at_the_prompt";
    let functions = Path::new("/usr/share/bash-completion/completions/fzf");
    if !functions.exists() {
        return skip(test, "fzf is not installed");
    }
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.project().join("peculiar-name"), "found\n").unwrap();
    std::fs::write(
        sandbox.project().join("rc"),
        format!("PS1='ready> '\n. {}\n", functions.display()),
    )
    .unwrap();
    let mut command = sandbox.substrate();
    command.env("TERM", "xterm").args(["--rcfile", "rc", "-i"]);
    let mut person = Person::start(command);
    person.sees("ready> ");
    person.types("cat **\t");
    person.sees("peculiar-name");
    person.types("pecul");
    person.sees("1/");
    person.types("\r");
    person.sees("ready> ");
    person.types("; echo end-$?\r");
    person.sees("found");
    person.sees("end-0");
    person.types("exit\r");
    assert_eq!(person.end().0, 0);
}
