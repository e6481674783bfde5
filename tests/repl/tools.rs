//! Tools that people use in their shell, as they are installed, with the hooks that they set.

use std::process::Command;
use std::time::Duration;

use crate::common::skip;
use crate::terminal::{Setup, Terminal, installed, shell_under_test};

const RC: &str = "PS1='ready> '\nPROMPT_COMMAND='printf \"<%s>\\n\" $?'\n";

/// A session with a tool's own start-up line, if the tool is there.
fn with(tool: &str, init: &str, prepare: impl FnOnce(&mut Setup)) -> Option<Terminal> {
    if !installed(tool) {
        skip(tool, "it is not installed");
        return None;
    }
    let mut setup = Setup::new();
    setup.rc(&format!("{RC}{init}\n"));
    prepare(&mut setup);
    let mut t = setup.start();
    t.wait_for("<0>");
    Some(t)
}

#[test]
fn direnv_sets_and_unsets_variables() {
    let prepare = |setup: &mut Setup| {
        setup.file("project/.envrc", "export FROM_ENVRC=yes\n");
    };
    let Some(mut t) = with("direnv", "eval \"$(direnv hook bash)\"", prepare) else {
        return;
    };
    t.run("direnv allow project");
    t.run("cd project");
    assert!(t.output("echo envrc-$FROM_ENVRC").contains("envrc-yes"));
    t.run("cd ..");
    assert!(t.output("echo envrc-$FROM_ENVRC.").contains("envrc-."));
    assert!(!t.text().contains("__substrate_"));
}

#[test]
fn zoxide_learns_directories() {
    let Some(mut t) = with("zoxide", "eval \"$(zoxide init bash)\"", |_| {}) else {
        return;
    };
    t.run("cd /usr; cd /; cd /usr/share");
    t.run("cd /usr");
    t.run("cd /");
    t.run("z usr");
    assert!(t.output("pwd").contains("/usr"));
}

#[test]
fn fzf_selects_on_the_terminal() {
    let bindings = "/usr/share/doc/fzf/examples/key-bindings.bash";
    // Without a height fzf does not ask the terminal where its cursor is, which nobody here answers.
    let init =
        format!("export FZF_DEFAULT_OPTS=--no-height; if [ -r {bindings} ]; then . {bindings}; fi");
    let Some(mut t) = with("fzf", &init, |_| {}) else {
        return;
    };
    t.keys("printf 'apple\\nbanana\\ncherry\\n' | fzf > chosen.txt\r");
    t.wait_for("3/3");
    t.keys("ban");
    t.wait_for("1/3");
    t.keys("\r");
    assert_eq!(t.finish().1, 0);
    assert_eq!(t.content("chosen.txt"), "banana\n");
    assert!(t.output("stty -a | grep -o ' icanon'").contains("icanon"));
    if !std::path::Path::new(bindings).exists() {
        skip("fzf's key bindings", "its examples are not installed");
        return;
    }
    // Its keys: Ctrl-R in the history, Ctrl-T for a file, Alt-C for a directory.
    t.output("mkdir -p one/inner-directory; echo in-it > 'a file.txt'; echo first-$((1+1))");
    t.output("echo second-$((1+1))");
    t.wait_for("ready> ");
    t.keys("\x12");
    t.wait_for("+S");
    t.keys("first");
    t.settle(Duration::from_millis(500));
    t.keys("\r");
    t.wait_for("ready> mkdir -p one");
    t.settle(Duration::from_millis(300));
    t.keys("\r");
    assert!(t.finish().0.contains("first-2"));
    t.wait_for("ready> ");
    t.keys("cat ");
    t.settle(Duration::from_millis(300));
    t.keys("\x14");
    t.wait_for("/");
    t.settle(Duration::from_millis(500));
    t.keys("afile");
    t.settle(Duration::from_millis(500));
    t.keys("\r");
    t.wait_for("a\\ file.txt");
    t.settle(Duration::from_millis(300));
    t.keys("\r");
    assert!(t.finish().0.contains("in-it"));
    t.wait_for("ready> ");
    t.keys("\x1bc");
    t.settle(Duration::from_millis(800));
    t.keys("inner");
    t.settle(Duration::from_millis(500));
    t.keys("\r");
    t.finish();
    assert!(t.output("pwd").contains("one/inner-directory"));
}

#[test]
fn bash_completion_knows_branches_and_hosts() {
    let found = "/usr/share/bash-completion/bash_completion";
    if !std::path::Path::new(found).exists() {
        skip("bash-completion", "it is not installed");
        return;
    }
    let prepare = |setup: &mut Setup| {
        let repository = setup.home.path().join("repository");
        let git = |arguments: &[&str]| {
            Command::new("git")
                .args([
                    "-c",
                    "init.defaultBranch=main",
                    "-c",
                    "user.name=T",
                    "-c",
                    "user.email=t@example.com",
                ])
                .args(arguments)
                .output()
                .unwrap()
        };
        let place = repository.to_str().unwrap();
        git(&["init", "-q", place]);
        git(&["-C", place, "commit", "-q", "--allow-empty", "-m", "first"]);
        git(&["-C", place, "branch", "topic-of-the-day"]);
        setup.file(".ssh/config", "Host build-machine.test\n  User me\n");
    };
    let Some(mut t) = with("git", &format!(". {found}"), prepare) else {
        return;
    };
    t.output("cd repository");
    for (keys, wanted) in [
        ("git checkout topic\t", "topic-of-the-day "),
        ("git che\t", "git che"),
        ("ssh build-ma\t", "build-machine.test "),
    ] {
        t.wait_for("ready> ");
        t.keys(keys);
        t.wait_for(wanted);
        t.keys("\x03");
        t.wait_for("<130>");
    }
}

#[test]
fn full_screen_programs_come_and_go() {
    for (program, line, shown, keys) in [
        ("vim", "vim -u NONE -n file.txt", "200", &b":wq\r"[..]),
        ("less", "less file.txt", "22", &b"q"[..]),
        ("htop", "htop", "Tasks", &b"q"[..]),
    ] {
        let Some(mut t) = with(program, "", |_| {}) else {
            continue;
        };
        t.output("seq 1 200 > file.txt");
        t.keys(format!("{line}\r"));
        t.wait_for(shown);
        t.settle(Duration::from_millis(500));
        // Stopped and brought back.
        if program != "htop" {
            t.keys("\x1a");
            assert_eq!(t.finish().1, 148, "{program}");
            t.keys("fg\r");
            t.settle(Duration::from_millis(700));
        }
        t.keys(keys);
        assert_eq!(t.finish().1, 0, "{program}");
        assert!(t.output("echo alive-$((2+2))").contains("alive-4"));
        assert!(t.output("stty -a | grep -o ' icanon'").contains("icanon"));
    }
}

#[test]
fn tmux_runs_inside_and_outside() {
    let prepare = |setup: &mut Setup| {
        setup.file("tmux/.keep", "");
        let directory = setup.home.path().join("tmux");
        setup.set("TMUX_TMPDIR", directory);
    };
    let Some(mut t) = with("tmux", "", prepare) else {
        return;
    };
    // Inside our shell a tmux, whose own shell is ours again.
    let shell = shell_under_test();
    t.keys(format!(
        "tmux -S tmux/socket -f /dev/null new-session \"env EXTRA=1 {} -i\"\r",
        shell.display()
    ));
    t.wait_for("<0>");
    t.keys("echo in-$EXTRA-tmux-$((3*3))\r");
    t.wait_for("in-1-tmux-9");
    t.keys("exit\r");
    t.wait_for("[exited]");
    t.finish();
    assert!(t.output("echo alive-$((2+2))").contains("alive-4"));
}

/// What starship installs: a DEBUG trap or `PS0` that notes the start, and a function in front of
/// `PROMPT_COMMAND` that saves the status, the jobs and the time, and sets `PS1`.
#[test]
fn a_prompt_program_sees_status_duration_and_the_line_once() {
    let rc = concat!(
        "starship_preexec() { [ \"${STARSHIP_PREEXEC_READY-}\" = true ] || return 0; STARSHIP_PREEXEC_READY=false;",
        " STARSHIP_START_TIME=$EPOCHSECONDS; echo \"preexec $1\" >> starship.txt; }\n",
        "starship_precmd() { STARSHIP_CMD_STATUS=$? STARSHIP_PIPE_STATUS=(\"${PIPESTATUS[@]}\");",
        " [[ ${BP_PIPESTATUS-} ]] && STARSHIP_PIPE_STATUS=(\"${BP_PIPESTATUS[@]}\");",
        " local jobs=0; for job in $(jobs -p); do jobs=$((jobs+1)); done;",
        " echo \"precmd $STARSHIP_CMD_STATUS ${STARSHIP_START_TIME:+timed} jobs=$jobs\" >> starship.txt; unset STARSHIP_START_TIME;",
        " PS1=\"[$STARSHIP_CMD_STATUS] ready> \"; STARSHIP_PREEXEC_READY=true; return $STARSHIP_CMD_STATUS; }\n",
        "starship_preexec_all() { starship_preexec \"$_\"; : \"$1\"; }\n",
        "trap 'starship_preexec_all \"$_\"' DEBUG\n",
        "PROMPT_COMMAND='starship_precmd; printf \"<%s>\\n\" $?'\n",
    );
    let mut setup = Setup::new();
    setup.rc(rc);
    let mut t = setup.start();
    t.wait_for("[0] ready> ");
    std::fs::write(t.path("starship.txt"), "").unwrap();
    t.run("sh -c 'exit 3'; sh -c 'exit 4'");
    t.wait_for("[4] ready> ");
    t.run("sleep 5 &");
    t.run("kill %1");
    let log = t.content("starship.txt");
    let kept: Vec<&str> = log
        .lines()
        .filter(|line| line.starts_with("precmd"))
        .collect();
    assert_eq!(kept.first(), Some(&"precmd 4 timed jobs=0"), "{log}");
    assert_eq!(kept.get(1), Some(&"precmd 0 timed jobs=1"), "{log}");
    assert_eq!(log.matches("preexec").count(), 3, "{log}");
    assert!(!log.contains("__substrate_"), "{log}");
}

/// What nvm and conda install: functions that change `PATH` and `PS1`, wrap `cd`, and complete.
#[test]
fn functions_that_wrap_cd_and_change_the_prompt_work() {
    let rc = format!(
        "{RC}{}",
        concat!(
            "nvm() { case $1 in use) PATH=$HOME/.nvm/$2/bin:$PATH; hash -r; echo \"Now using $2\";; current) node;; esac; }\n",
            "nvm_auto() { [ -r .nvmrc ] && nvm use \"$(cat .nvmrc)\"; return 0; }\n",
            "cd() { builtin cd \"$@\" && nvm_auto; }\n",
            "_nvm() { COMPREPLY=($(compgen -W 'use current' -- \"${COMP_WORDS[COMP_CWORD]}\")); }\n",
            "complete -o default -F _nvm nvm\n",
            "conda() { case $1 in activate) CONDA_DEFAULT_ENV=$2; CONDA_PROMPT_MODIFIER=\"($2) \"; PS1=\"$CONDA_PROMPT_MODIFIER$PS1\"; export CONDA_DEFAULT_ENV;;",
            " deactivate) PS1=${PS1#\"$CONDA_PROMPT_MODIFIER\"}; unset CONDA_DEFAULT_ENV;; esac; }\n",
        )
    );
    let mut setup = Setup::new();
    setup.rc(&rc);
    let node = setup.file(".nvm/v20/bin/node", "");
    crate::common::script(&node, "#!/bin/sh\necho node-twenty\n");
    setup.file("app/.nvmrc", "v20\n");
    let mut t = setup.start();
    t.wait_for("<0>");
    assert!(t.output("cd app").contains("Now using v20"));
    assert!(t.output("nvm current").contains("node-twenty"));
    t.wait_for("ready> ");
    t.keys("nvm curr\t");
    t.wait_for("nvm current ");
    t.keys("\x03");
    t.wait_for("<130>");
    t.output("conda activate science");
    t.wait_for("(science) ready> ");
    assert!(
        t.output("sh -c 'echo env-$CONDA_DEFAULT_ENV'")
            .contains("env-science")
    );
    t.output("conda deactivate");
    t.wait_for("ready> ");
    assert!(t.output("echo length-${#PS1}").contains("length-7"));
}
