//! Editing, history, completion, prompt and the verdict while one types.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::common::skip;
use crate::terminal::{Setup, Terminal};
use substrate_sys::process_group::Change;

/// Types keys and waits until the line being edited shows this.
fn shows(t: &mut Terminal, keys: &str, wanted: &str) {
    t.keys(keys);
    t.wait_for(wanted);
}

#[test]
fn a_line_goes_on_until_bash_calls_it_complete() {
    let mut t = Terminal::ready();
    t.keys("for i in 1 2; do\recho n-$((i*7))\rdone\r");
    t.wait_for("\nn-7\nn-14\n");
    t.finish();
    t.keys("cat <<END\rtext $((5*5))\rEND\r");
    t.wait_for("\ntext 25\n");
    t.finish();
    t.keys("echo 'a\rb'\r");
    t.wait_for("\na\nb\n");
    t.finish();
    t.keys("echo one \\\rtwo-$((2+2))\r");
    t.wait_for("\none two-4\n");
    t.finish();
    // A parser may not know these; bash does.
    assert_eq!(
        t.run("exec 5<>/dev/null; coproc C { cat; }; kill $C_PID").1,
        0
    );
    assert!(t.run("echo )").0.contains("syntax error"));
    assert_eq!(t.run("echo fine").1, 0);
}

#[test]
fn a_bracketed_paste_is_one_line_to_edit() {
    let mut t = Terminal::ready();
    t.wait_for("ready> ");
    t.keys("\x1b[200~echo paste-$((1+2))\necho second-$((3+4))\n\x1b[201~");
    t.settle(Duration::from_millis(300));
    assert!(!t.text().contains("paste-3"), "nothing runs before Enter");
    t.keys("\r");
    t.wait_for("\npaste-3\nsecond-7\n");
}

#[test]
fn history_is_recalled_searched_and_suggested() {
    let mut t = Terminal::ready();
    t.output("echo alpha-$((1+1))");
    t.output("echo beta-$((2+2))");
    t.wait_for("ready> ");
    t.keys("\x1b[A\x1b[A\r");
    t.wait_for("\nalpha-2\n");
    t.finish();
    t.wait_for("ready> ");
    shows(&mut t, "\x12", "reverse-i-search");
    shows(&mut t, "bet", "echo beta");
    t.keys("\r");
    t.wait_for("\nbeta-4\n");
    t.finish();
    // The rest of the newest line that starts like this one, taken over with the right arrow.
    t.wait_for("ready> ");
    shows(&mut t, "echo al", "pha-$((1+1))");
    t.keys("\x1b[C\r");
    t.wait_for("\nalpha-2\n");
    t.finish();
    // The last word of the line before.
    t.output("true some-word");
    t.wait_for("ready> ");
    t.keys("echo =\x1b.=\r");
    t.wait_for("\n=some-word=\n");
}

#[test]
fn history_expansion_is_bash_s_own_and_judged_expanded() {
    let setup = Setup::new();
    let mut t = setup.start();
    t.wait_for("<0>");
    t.output("echo first-$((1+1)) last");
    assert!(t.output("!!").contains("first-2 last"));
    assert!(t.output("echo again !$").contains("again last"));
    assert!(t.output("^again^anew^").contains("anew last"));
    assert!(t.output("echo 'no ! here' $!").contains("no ! here"));
    assert!(
        t.output("history | grep -c '__substrate[_]' || true")
            .contains('0')
    );
    let judged = t.traced("command_start");
    assert!(judged.contains(&"echo again last".to_owned()), "{judged:?}");
    assert!(!judged.iter().any(|line| line.contains("!!")), "{judged:?}");
}

#[test]
fn fc_brings_lines_back_through_the_gate() {
    let mut setup = Setup::new();
    let editor = setup.file("editor.sh", "#!/bin/sh\nsed -i s/three/four/ \"$1\"\n");
    std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755)).unwrap();
    setup.set("FCEDIT", &editor);
    let mut t = setup.start();
    t.wait_for("<0>");
    t.output("echo one-$((1+1))");
    t.output("echo three");
    t.keys("fc -s one=two -2\r");
    t.wait_for("\ntwo-2\n");
    t.finish();
    t.output("echo three");
    t.keys("fc\r");
    t.wait_for("\nfour\n");
    t.finish();
    assert!(t.output("fc -l -2").contains("four"));
    assert!(t.traced("command_start").contains(&"echo four".to_owned()));
    // By another name, too.
    t.output("alias r='fc -s'");
    t.output("echo five");
    t.keys("r five=six\r");
    t.wait_for("\nsix\n");
    t.finish();
    t.keys("builtin fc -s six=seven\r");
    t.wait_for("\nseven\n");
    t.finish();
    for line in ["echo six", "echo seven"] {
        assert!(t.traced("command_start").contains(&line.to_owned()));
    }
}

#[test]
fn the_line_opens_in_an_editor() {
    let mut setup = Setup::new();
    let editor = setup.file(
        "editor.sh",
        "#!/bin/sh\necho 'echo edited-$((6*6))' > \"$1\"\n",
    );
    std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755)).unwrap();
    setup.set("EDITOR", &editor);
    let mut t = setup.start();
    t.wait_for("ready> ");
    t.keys("echo unfinished '\x18\x05");
    t.wait_for("\nedited-36\n");
}

#[test]
fn vi_keys_when_the_shell_says_so() {
    let mut t = Terminal::ready();
    t.output("set -o vi");
    t.wait_for("ready> ");
    // Escape, to the start, insert: only vi keys make this a command.
    t.keys("v-$((4*4))");
    t.settle(Duration::from_millis(200));
    t.keys("\x1b");
    t.settle(Duration::from_millis(700));
    t.keys("0iecho \r");
    t.wait_for("\nv-16\n");
    t.finish();
    t.output("set -o emacs");
    t.wait_for("ready> ");
    t.keys("e-$((5*5))\x01echo \r");
    t.wait_for("\ne-25\n");
}

#[test]
fn vi_keys_when_the_inputrc_says_so() {
    let setup = Setup::new();
    setup.file(".inputrc", "# mine\nset editing-mode vi\n");
    let mut t = setup.start();
    t.wait_for("ready> ");
    t.keys("v-$((4*4))");
    t.settle(Duration::from_millis(200));
    t.keys("\x1b");
    t.settle(Duration::from_millis(700));
    t.keys("0iecho \r");
    t.wait_for("\nv-16\n");
}

#[test]
fn the_history_file_is_private_shared_and_without_secrets() {
    let mut setup = Setup::new();
    setup.rc("PS1='ready> '\nPROMPT_COMMAND='printf \"<%s>\\n\" $?'\nHISTFILE=~/bash_history\n");
    let mut t = setup.start();
    t.wait_for("<0>");
    t.output("echo kept-$((1+1))");
    t.output("echo kept-$((1+1))");
    t.output(" echo spaced");
    t.output("echo --password=hunter2 > /dev/null");
    let path = t.path(".substrate/history");
    let content = std::fs::read_to_string(&path).unwrap();
    assert_eq!(content.matches("kept-").count(), 1, "{content}");
    assert!(
        !content.contains("spaced") && !content.contains("hunter2"),
        "{content}"
    );
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    // Another shell on the same home adds a line; this one finds it.
    std::fs::write(&path, format!("{content}echo from-another-$((9*9))\n")).unwrap();
    t.output("true");
    t.wait_for("ready> ");
    t.keys("\x12another");
    t.wait_for("echo from-another");
    t.keys("\r");
    t.wait_for("\nfrom-another-81\n");
    t.finish();
    t.keys("exit\r");
    t.wait_end();
    assert!(!t.content("bash_history").contains("hunter2"));
    assert!(t.content("bash_history").contains("kept-"));
}

#[test]
fn completion_asks_the_engine() {
    let mut setup = Setup::new();
    setup.rc(concat!(
        "PS1='ready> '\nPROMPT_COMMAND='printf \"<%s>\\n\" $?'\n",
        "my_variable=1\nmy_function() { echo in-function; }\nalias my_alias=true\n",
        "_deploy() { COMPREPLY=($(compgen -W 'production staging' -- \"$2\")); }\n",
        "complete -F _deploy deploy\n",
        "complete -W 'red green' paint\n",
        // As bash-completion does: nothing is known until the first Tab on a command.
        "_loader() { eval \"_lazy() { compopt -o nospace; COMPREPLY=(lazy-loaded=); }\"; complete -F _lazy \"$1\"; return 124; }\n",
        "complete -D -F _loader\n",
    ));
    setup.file("dir with space/file-one.txt", "");
    setup.file("dir with space/file-two.txt", "");
    let mut t = setup.start();
    for (keys, wanted) in [
        ("my_func\t", "my_function "),
        ("my_al\t", "my_alias "),
        ("cat < $my_vari\t", "$my_variable"),
        ("cat < ${my_vari\t", "${my_variable}"),
        ("cat < dir\t", "dir\\ with\\ space/"),
        ("cat < \"dir\t", "\"dir with space\"/"),
        ("cat < dir\\ with\\ space/file-o\t", "file-one.txt "),
        ("ls > ~roo\t", "~root/"),
        ("deploy prod\t", "production "),
        ("paint gr\t", "green "),
        ("unheard-of \t", "lazy-loaded="),
        ("X=1 my_func\t", "my_function "),
        ("true; my_func\t", "my_function "),
        ("echo $(my_func\t", "my_function "),
    ] {
        t.wait_for("ready> ");
        t.keys(keys);
        t.wait_for(wanted);
        t.keys("\x03");
        t.wait_for("<130>");
    }
    // Several candidates: the common part, then a list.
    t.wait_for("ready> ");
    t.keys("cat < dir\\ with\\ space/f\t\t");
    t.wait_for("file-one.txt");
    t.wait_for("file-two.txt");
}

#[test]
fn completion_from_bash_completion_itself() {
    let found = "/usr/share/bash-completion/bash_completion";
    if !std::path::Path::new(found).exists() {
        skip(
            "completion_from_bash_completion_itself",
            "bash-completion is not installed",
        );
        return;
    }
    let mut setup = Setup::new();
    setup.rc(&format!(
        "PS1='ready> '\nPROMPT_COMMAND='printf \"<%s>\\n\" $?'\n. {found}\n"
    ));
    let mut t = setup.start();
    for (keys, wanted) in [
        ("kill -STO\t", "-STOP "),
        ("chown roo\t", "root"),
        ("tar --extr\t", "--extract "),
        ("dd if=/etc/hostn\t", "/etc/hostname "),
    ] {
        t.wait_for("ready> ");
        t.keys(keys);
        t.wait_for(wanted);
        t.keys("\x03");
        t.wait_for("<130>");
    }
}

#[test]
fn our_own_prompt_names_directory_branch_policy_and_status() {
    let mut setup = Setup::new();
    setup.argument("--norc");
    setup.file("repo/.git/HEAD", "ref: refs/heads/topic\n");
    setup.set("NO_COLOR", "1");
    let mut t = setup.start();
    t.wait_for("~ ");
    t.keys("cd repo; false\r");
    t.wait_for("~/repo topic default:observe 1 ");
    assert!(!t.raw().contains("\x1b[1;34m"));
}

#[test]
fn the_user_s_prompt_is_expanded_by_bash() {
    let mut setup = Setup::new();
    setup.rc("PS1='\\[\\e[32m\\]<\\w|$?|$(echo sub)>\\[\\e[0m\\] '\n");
    let mut t = setup.start();
    t.wait_for("<~|0|sub> ");
    t.keys("cd /usr; false\r");
    t.wait_for("</usr|1|sub> ");
    assert!(t.raw().contains("\x1b[32m"));
}

#[test]
fn a_dumb_terminal_gets_plain_lines() {
    let mut setup = Setup::new();
    setup.set("TERM", "dumb");
    let mut t = setup.start();
    t.wait_for("ready> ");
    t.keys("if true\nthen echo yes-$((3*3)); fi\n");
    t.wait_for("yes-9");
    t.wait_for("ready> ");
    assert!(!t.raw().contains('\x1b'), "{:?}", t.raw());
    t.keys("\x04");
    assert_eq!(t.wait_end(), Change::Exited(0));
}

#[test]
fn bytes_that_are_no_text_reach_the_shell() {
    let mut t = Terminal::ready();
    t.wait_for("ready> ");
    t.keys(b"printf %s 'caf\xe9' | od -An -tx1\r");
    t.wait_for("63 61 66 e9");
}
