//! The engine: the user's own bash, hooks and all, and nothing of ours in its way.

use std::time::Duration;

use crate::terminal::{Setup, Terminal, eventually};
use substrate_sys::process_group::Change;

#[test]
fn state_lives_from_line_to_line() {
    let mut t = Terminal::ready();
    t.output(
        "x=1; arr=(a 'b c'); declare -A map=([k]=v); f() { echo \"f $x ${arr[1]} ${map[k]}\"; }",
    );
    assert!(t.output("f").contains("f 1 b c v"));
    t.output("cd /usr; set -- one 'two three'; shopt -s extglob");
    assert!(
        t.output("echo $PWD $# \"$2\" !(bin|lib*|s*)")
            .contains("/usr 2 two three ")
    );
    t.run("(exit 42)");
    assert!(t.output("echo status $?").contains("status 42"));
    t.output("mkdir -p /tmp/substrate-last-arg");
    assert!(
        t.output("echo last $_")
            .contains("last /tmp/substrate-last-arg")
    );
    t.output("rmdir /tmp/substrate-last-arg; trap 'echo usr1-$((1+1))' USR1; kill -USR1 $$");
    assert!(t.text().contains("usr1-2"));
    t.output("exec 9> $OLDPWD/out.txt; echo through-nine >&9; exec 9>&-");
    assert_eq!(t.content("out.txt"), "through-nine\n");
    t.output("exec 3< $OLDPWD/out.txt; read -u 3 y; exec 3<&-; echo $y > $OLDPWD/second.txt");
    assert_eq!(t.content("second.txt"), "through-nine\n");
}

#[test]
fn errors_end_the_line_and_not_the_shell() {
    let mut t = Terminal::ready();
    t.output("set -u");
    let (output, status) = t.run("echo $undefined; echo not-reached-$((1+1))");
    assert!(
        output.contains("unbound variable") && !output.contains("not-reached-2"),
        "{output}"
    );
    assert_eq!(status, 1);
    t.output("set +u");
    assert!(t.run("${nope?message}").0.contains("message"));
    assert_eq!(t.run("if then").1, 2);
    assert_eq!(t.run("exec /nonexistent/program").1, 127);
    assert!(t.run("break; continue").0.contains("only meaningful"));
    assert_eq!(t.run("return 7").1, 7);
    assert_eq!(t.run("nosuchcommand-x").1, 127);
    assert!(t.output("echo alive-$((2+2))").contains("alive-4"));
    t.output("set -e");
    t.keys("false\r");
    assert_eq!(t.wait_end(), Change::Exited(1));
}

#[test]
fn a_read_gets_the_terminal_and_select_works() {
    let mut t = Terminal::ready();
    t.keys("read -p 'name? ' name\r");
    t.wait_for("name? ");
    t.settle(Duration::from_millis(100));
    t.keys("typed answer\r");
    t.finish();
    assert!(t.output("echo \"<$name>\"").contains("<typed answer>"));
    t.keys("select x in red green; do echo chose-$x; break; done\r");
    t.wait_for("#? ");
    t.keys("2\r");
    t.wait_for("chose-green");
    t.finish();
    t.keys("cat\r");
    t.settle(Duration::from_millis(200));
    t.keys("line\r\x04");
    assert_eq!(t.finish().1, 0);
}

#[test]
fn a_killed_engine_is_replaced_in_the_same_directory() {
    let mut t = Terminal::ready();
    t.output("cd /usr; x=1");
    t.keys("kill -9 $$\r");
    t.wait_for("the shell ended (signal 9)");
    t.wait_for("<0>");
    assert!(
        t.output("echo in $PWD status=$? x=$x")
            .contains("in /usr status=137 x=")
    );
    t.wait_for("ready> ");
    t.keys("\x1b[A\x1b[A");
    t.wait_for("kill -9");
}

#[test]
fn an_engine_that_ends_while_idle_ends_the_session() {
    let mut t = Terminal::ready();
    t.keys("TMOUT=1\r");
    t.finish();
    assert!(matches!(t.wait_end(), Change::Exited(_)));
}

#[test]
fn commands_see_none_of_our_descriptors_and_names() {
    let mut t = Terminal::ready();
    t.output("ls -l /proc/self/fd > fds.txt; (ls -l /proc/self/fd > sub.txt); cat <(ls -l /proc/self/fd) > ps.txt");
    for name in ["fds.txt", "sub.txt", "ps.txt"] {
        let list = t.content(name);
        assert!(
            !list.contains("memfd") && !list.contains("socket:"),
            "{name}: {list}"
        );
    }
    t.output("tty > tty.txt; env > env.txt; compgen -v > vars.txt; declare -F > functions.txt; alias > aliases.txt");
    assert!(t.content("tty.txt").starts_with("/dev/pts/"));
    assert!(!t.content("env.txt").contains("__substrate_"));
    assert_eq!(t.content("aliases.txt").matches("substrate").count(), 0);
    for line in t.content("functions.txt").lines() {
        assert!(line.starts_with("declare -f __substrate_"), "{line}");
    }
    t.output("f() { :; }; set -a; y=2; set +a; env > env.txt");
    assert!(
        !t.content("env.txt").contains("__substrate_"),
        "{}",
        t.content("env.txt")
    );
    assert!(
        !t.output("trap; jobs; dirs; history")
            .contains("__substrate_")
    );
}

#[test]
fn nothing_but_the_front_end_can_send_lines() {
    let mut t = Terminal::ready();
    // Every descriptor of the engine, and of the shell a line runs in, is tried as a way in.
    t.run("d=/proc/$$/fd");
    t.run("for f in $d/*; do echo 'touch injected' > $f; done 2>/dev/null");
    t.run(
        "for n in 10 11 12 13 14 250 249 255; do { echo 'touch injected' >&$n; } 2>/dev/null; done",
    );
    t.run("exec <<< 'touch injected'");
    t.run("exec < <(echo touch injected)");
    assert!(t.output("echo alive-$((2+2))").contains("alive-4"));
    assert!(!t.path("injected").exists());
}

#[test]
fn the_engine_never_reads_the_terminal_itself() {
    let mut t = Terminal::ready();
    for line in [
        "set -o vi; true",
        "set -o emacs",
        "set +o emacs; set +o vi",
        "f() { set -o vi; set +o vi; }; f",
        "eval 'set -o vi; :'; eval 'set +o vi'",
        "PROMPT_COMMAND='set -o vi; printf \"<%s>\\n\" $?'",
        "exec 0<&-",
        "exec 0< /dev/tty",
        "set -m; set +m; set -m",
        "bind -x '\"\\C-t\": date' 2>/dev/null",
    ] {
        t.run(line);
        eventually(line, || t.foreground() == t.process);
        assert!(
            t.output("echo alive-$((2+2))").contains("alive-4"),
            "after {line}"
        );
    }
    assert!(!t.text().contains("__substrate_"));
}

#[test]
fn hooks_see_the_users_lines_and_nothing_of_ours() {
    let mut setup = Setup::new();
    setup.rc(concat!(
        "PS1='ready> '\nPS0='(ps0)'\n",
        "PROMPT_COMMAND=('printf \"pc:%s:%s\\n\" $? \"$_\" >> hooks.txt' 'printf \"<%s>\\n\" $?')\n",
        "trap 'echo \"debug:$BASH_COMMAND\" >> hooks.txt' DEBUG\n",
    ));
    let mut t = setup.start();
    t.wait_for("<0>");
    std::fs::write(t.path("hooks.txt"), "").unwrap();
    t.output("echo one two");
    t.run("false x; true y");
    t.run("for i in 1 2; do false; done");
    let log = t.content("hooks.txt");
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| !line.starts_with("debug:printf"))
        .collect();
    assert_eq!(
        lines,
        [
            "debug:echo one two",
            "pc:0:two",
            "debug:false x",
            "debug:true y",
            "pc:0:y",
            "debug:for i in 1 2",
            "debug:false",
            "debug:for i in 1 2",
            "debug:false",
            "pc:1:false",
        ]
    );
    assert_eq!(t.text().matches("(ps0)").count(), 3);
    assert!(
        t.output("declare -p PROMPT_COMMAND")
            .contains("declare -a PROMPT_COMMAND=([0]=")
    );
}

/// The hooks that preexec libraries install: a DEBUG trap armed by PROMPT_COMMAND, which reads the
/// line from `history 1`.
#[test]
fn a_preexec_library_fires_once_per_line() {
    let mut setup = Setup::new();
    setup.rc(concat!(
        "PS1='ready> '\n",
        "armed=\npreexec() { echo \"preexec:$1\" >> hooks.txt; }\nprecmd() { echo \"precmd:$1\" >> hooks.txt; }\n",
        "on_debug() { [[ -n ${COMP_LINE:-} ]] && return; [[ -z $armed ]] && return; armed=;",
        " preexec \"$(HISTTIMEFORMAT= history 1 | sed 's/^ *[0-9]* *//')\"; }\n",
        "arm() { precmd $?; armed=1; }\n",
        "install() { trap 'on_debug' DEBUG; PROMPT_COMMAND='arm'$'\\n''printf \"<%s>\\n\" $?'; arm; printf '<0>\\n'; }\n",
        "PROMPT_COMMAND=install\n",
    ));
    let mut t = setup.start();
    t.wait_for("<0>");
    std::fs::write(t.path("hooks.txt"), "").unwrap();
    t.run("echo a b; echo c");
    t.run("false");
    t.run("true | cat");
    let log = t.content("hooks.txt");
    let preexec: Vec<&str> = log
        .lines()
        .filter(|line| line.starts_with("preexec:"))
        .collect();
    assert_eq!(
        preexec
            .iter()
            .rev()
            .take(2)
            .rev()
            .copied()
            .collect::<Vec<_>>(),
        ["preexec:false", "preexec:true | cat"],
        "{log}"
    );
    assert!(!log.contains("__substrate_"), "{log}");
    assert_eq!(log.matches("precmd:").count(), 3, "{log}");
}

#[test]
fn a_return_trap_runs_where_bash_runs_it() {
    let mut t = Terminal::ready();
    t.output("f() { echo body; }; trap 'echo ret-$((1+1))' RETURN");
    let output = t.output("echo line");
    assert!(!output.contains("ret-2"), "{output}");
    assert!(
        t.output("trap -p RETURN")
            .contains("trap -- 'echo ret-$((1+1))' RETURN")
    );
    t.output("echo 'echo sourced' > file.sh");
    let output = t.output(". ./file.sh");
    assert!(output.contains("sourced\nret-2"), "{output}");
    t.output("set -T");
    assert!(t.output("f").contains("body\nret-2"));
    t.output("set +T; trap - RETURN");
    assert!(!t.output(". ./file.sh; trap -p").contains("ret"));
}

#[test]
fn start_up_files_are_those_of_bash() {
    let files = |setup: &Setup| {
        setup.file(
            ".bash_profile",
            "echo profile-read; PS1='ready> '\nPROMPT_COMMAND='printf \"<%s>\\n\" $?'\n",
        );
        setup.file(".bashrc", "echo rc-read; PS1='ready> '\nPROMPT_COMMAND='printf \"<%s>\\n\" $?'\nreturn\necho not-here\n");
        setup.file(".bash_logout", "echo logout-read > logout.txt\n");
    };
    for (arguments, name, rc, profile) in [
        (&["-i"][..], None, true, false),
        (&["-l"][..], None, false, true),
        (&["--login"][..], None, false, true),
        (&["-i"][..], Some("-substrate"), false, true),
        (&["--norc"][..], None, false, false),
        (&["-l", "--noprofile"][..], None, false, false),
    ] {
        let mut setup = Setup::new();
        files(&setup);
        setup.arguments = arguments.iter().map(Into::into).collect();
        setup.name = name.map(Into::into);
        let mut t = setup.start();
        t.keys("shopt -q login_shell; echo login-$? in-$((1+1))\r");
        t.wait_for("in-2");
        let text = t.text();
        assert_eq!(text.contains("rc-read"), rc, "{arguments:?}: {text}");
        assert_eq!(
            text.contains("profile-read"),
            profile,
            "{arguments:?}: {text}"
        );
        assert!(!text.contains("not-here"));
        let login = arguments.contains(&"-l") || arguments.contains(&"--login") || name.is_some();
        assert!(
            text.contains(if login { "login-0" } else { "login-1" }),
            "{text}"
        );
        t.keys("exit\r");
        t.wait_end();
        assert_eq!(t.path("logout.txt").exists(), login, "{arguments:?}");
    }
}

#[test]
fn broken_start_up_files_do_not_lock_out() {
    for rc in [
        "exit 3\n",
        "kill -9 $$\n",
        "if then\n",
        "set -e; false\n",
        "exec false\n",
    ] {
        let mut setup = Setup::new();
        setup.rc(rc);
        let mut t = setup.start();
        t.settle(Duration::from_millis(400));
        t.keys("echo works-$((6*7))\r");
        t.wait_for("works-42");
    }
}

#[test]
fn keys_bound_to_commands_edit_the_line() {
    let mut setup = Setup::new();
    setup.rc(
        "PS1='ready> '\nPROMPT_COMMAND='printf \"<%s>\\n\" $?'\n\
         swap() { READLINE_LINE=\"echo [${READLINE_LINE:READLINE_POINT}${READLINE_LINE:0:READLINE_POINT}]\"; READLINE_POINT=99; }\n\
         bind -x '\"\\C-g\": swap'\n\
         bind '\"\\ez\": \"`printf %s echo\\\\ expanded`\\e\\C-e\\C-m\"'\n",
    );
    let mut t = setup.start();
    t.wait_for("<0>");
    t.run("false");
    t.wait_for("ready> ");
    // Two letters, the cursor between them.
    t.keys("ab\x02");
    t.settle(Duration::from_millis(200));
    t.keys("\x07");
    t.wait_for("echo [ba]");
    t.settle(Duration::from_millis(200));
    assert!(
        !t.unseen().contains('<'),
        "hooks heard of a key: {}",
        t.unseen()
    );
    t.keys(" $?\r");
    let (output, status) = t.finish();
    assert!(output.contains("[ba] 1"), "{output}");
    assert_eq!(status, 0);
    t.keys("\x1bz");
    let (output, _) = t.finish();
    assert!(output.contains("expanded"), "{output}");
    // Bound at the prompt, and one that reads the terminal and fails.
    t.output("set -e; bind -x '\"\\C-y\": read -r -p ask: x; READLINE_LINE=\"echo $x\" READLINE_POINT=99; false'");
    t.wait_for("ready> ");
    t.keys("\x19");
    t.wait_for("ask:");
    t.keys("typed\r");
    t.wait_for("echo typed");
    t.keys("-$((1+1))\r");
    assert!(t.finish().0.contains("typed-2"));
    let left = t.output("set +e; compgen -v READLINE; history | grep -c '__subst[r]ate_' || :");
    // On a busy machine the line itself may be among what is seen.
    let left = left.rsplit("|| :").next().unwrap_or_default();
    assert!(
        left.trim().ends_with('0') && !left.contains("READLINE"),
        "{left}"
    );
}

/// The next line is typed before the first is over: were the engine to read the terminal, it would run unjudged.
fn typed_ahead_of(line: &str) -> Terminal {
    let mut t = Terminal::ready();
    t.keys(format!(
        "kept=it; {line}\recho \"ran-$kept\" >> ran.txt; echo second-$((20+3))\r"
    ));
    t.wait_for("second-23");
    t.wait_for("ready> ");
    let judged = t.traced("command_start");
    let judged = judged
        .iter()
        .filter(|line| line.contains("ran.txt"))
        .count();
    let ran = t.content("ran.txt").lines().count();
    assert_eq!((judged, ran), (1, 1), "{line}: {}", t.text());
    t
}

#[test]
fn what_the_prompt_stands_on_holds_whatever_a_line_does() {
    for line in [
        "ulimit -n 20",
        "ulimit -n 200",
        "trap 'exec </dev/tty' DEBUG",
        "trap 'exec </dev/tty' DEBUG; ${unset?}",
        "set -T; trap 'exec </dev/tty' DEBUG RETURN",
        "trap 'exec </dev/tty' ERR; set -E; false",
        "trap 'exec </dev/tty' CHLD USR1; kill -USR1 $$; sleep 0.1",
        "trap 'return 1' DEBUG",
        "PROMPT_COMMAND='exec </dev/tty; echo'",
        "builtin() { :; }",
        "builtin() { exec </dev/tty; }",
        "printf() { exec </dev/tty; }; trap() { :; }; eval() { :; }",
        "enable -n printf read",
        "enable -n . eval trap set",
        "enable -n builtin",
        "alias {='exec </dev/tty; {' if='exec </dev/tty; if'",
        "unset -f $(compgen -A function)",
        "unset ${!__substrate_*}",
        "readonly PROMPT_COMMAND PS1",
        "set -o posix; set -v; set -x",
        "exec </dev/null; exec 0<&-",
    ] {
        let t = typed_ahead_of(line);
        assert_eq!(t.content("ran.txt"), "ran-it\n", "{line}: {}", t.text());
        assert!(
            !t.text().contains("the shell ended"),
            "{line}: {}",
            t.text()
        );
    }
}

#[test]
fn a_shell_that_cannot_go_on_is_replaced_and_runs_nothing_unjudged() {
    for line in [
        "ulimit -n 0",
        "ulimit -n 5",
        "enable -n enable printf",
        "readonly __substrate_f=0",
    ] {
        let t = typed_ahead_of(line);
        assert_eq!(t.content("ran.txt"), "ran-\n", "{line}: {}", t.text());
        assert!(t.text().contains("the shell ended"), "{line}: {}", t.text());
    }
}

#[test]
fn a_trap_that_replaces_the_input_while_the_prompt_waits_has_replaced_nothing() {
    let mut t = Terminal::ready();
    t.output("echo 'touch injected' > file; trap 'exec < file; echo came' CHLD USR1; sleep 0.1 &");
    t.settle(Duration::from_millis(400));
    t.keys("(sleep 0.3; kill -USR1 $$) &\r");
    t.finish();
    t.settle(Duration::from_millis(600));
    t.output("");
    assert!(t.text().matches("\ncame\n").count() >= 3, "{}", t.text());
    assert!(t.output("echo alive-$((2+2))").contains("alive-4"));
    assert!(!t.path("injected").exists());
    assert!(
        t.output("trap -p CHLD; trap - CHLD")
            .contains("trap -- 'exec < file; echo came' SIGCHLD")
    );
}

#[test]
fn words_that_are_switched_off_stay_off_for_the_user() {
    let mut t = Terminal::ready();
    t.output("enable -n printf eval");
    assert!(t.output("type printf").contains("/printf"));
    assert!(
        t.output("enable -n")
            .contains("enable -n eval\nenable -n printf")
    );
    assert!(
        t.output("enable printf eval; type eval")
            .contains("eval is a")
    );
}

#[test]
fn a_debug_trap_that_returns_is_told_off_as_under_bash() {
    let mut t = Terminal::ready();
    t.run("trap 'x=$BASH_COMMAND; return 1' DEBUG");
    assert!(t.output("echo one; echo two").contains("one\ntwo"));
    assert!(!t.output("trap - DEBUG; echo $x").contains("__substrate_"));
}

#[test]
fn a_hook_that_cannot_be_changed_runs_all_the_same() {
    let mut t = Terminal::ready();
    t.output("readonly PROMPT_COMMAND");
    assert_eq!(t.run("(exit 3)").1, 3);
}

#[test]
fn options_that_show_commands_show_none_of_ours() {
    let mut t = Terminal::ready();
    t.output("set -o posix");
    assert_eq!(t.output("echo in-posix"), "in-posix\n");
    t.output("set +o posix");
    assert_eq!(t.output("set -v"), "");
    assert_eq!(t.output("echo shown"), "echo shown\nshown\n");
    assert_eq!(t.run("false").0, "false\n");
    assert_eq!(t.output("echo $?"), "echo $?\n1\n");
    t.output("set +v; set -x");
    t.run("false");
    assert!(t.output("echo status-$?").contains("\nstatus-1\n"));
    assert!(!t.text().contains("__substrate_"), "{}", t.text());
}

#[test]
fn tracing_keeps_the_status_of_the_line_before() {
    let mut t = Terminal::ready();
    t.output("set -x");
    t.run("false");
    assert!(t.output("echo status-$?").contains("status-1"));
}
