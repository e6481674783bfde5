//! Job control and the terminal, as in bash.

use std::time::Duration;

use crate::terminal::{Terminal, eventually, in_world, is_alive};
use substrate_sys::process_group::Change;

const INTERRUPT: &[u8] = b"\x03";
const STOP: &[u8] = b"\x1a";
const QUIT: &[u8] = b"\x1c";

#[test]
fn interrupt_ends_a_program_a_loop_and_a_builtin() {
    let mut t = Terminal::ready();
    for line in [
        "sleep 1000",
        "while :; do sleep 0.05; done",
        "while :; do :; done",
        "read x",
        "sleep 1000 & wait",
    ] {
        t.keys(format!("echo go-$((1+1)); {line}\r"));
        t.wait_for("go-2");
        t.settle(Duration::from_millis(200));
        t.keys(INTERRUPT);
        // Between two programs of a loop the terminal belongs to the one that has just ended, and
        // under bash, too, a person has to press again.
        t.settle(Duration::from_millis(1000));
        if !t.unseen().contains("<130>") {
            t.keys(INTERRUPT);
        }
        assert_eq!(t.finish().1, 130, "{line}");
    }
    assert!(t.output("kill $!; echo alive-$((2+2))").contains("alive-4"));
}

#[test]
fn interrupts_in_bursts_run_nothing_else() {
    let mut t = Terminal::ready();
    for pause in 0..30 {
        t.keys("echo 'x; touch injected; y' > /dev/null; sleep 1000\r");
        t.settle(Duration::from_millis(100 + 10 * pause));
        t.keys(INTERRUPT.repeat(40));
        t.settle(Duration::from_millis(100));
    }
    t.keys("echo alive-$((2+2))\r");
    t.wait_for("\nalive-4");
    assert!(!t.path("injected").exists());
    assert!(!t.text().contains("__substrate_"), "{}", t.text());
}

#[test]
fn stop_jobs_fg_bg_and_kill() {
    let mut t = Terminal::ready();
    t.keys("sleep 1000\r");
    t.settle(Duration::from_millis(300));
    t.keys(STOP);
    let (output, status) = t.finish();
    assert!(output.contains("Stopped"), "{output}");
    assert_eq!(status, 148);
    assert!(t.output("jobs").contains("[1]+  Stopped"));
    assert!(t.output("bg").contains("sleep 1000 &"));
    assert!(t.output("jobs").contains("Running"));
    t.keys("fg\r");
    t.wait_for("sleep 1000");
    t.settle(Duration::from_millis(200));
    t.keys(STOP);
    t.finish();
    assert!(
        t.output("kill %1; wait; jobs; echo none-$?")
            .contains("none-0")
    );
    assert!(t.output("sleep 500 & echo pid-$!").contains("pid-"));
    assert!(t.output("kill $!; wait $! ; echo w-$?").contains("w-143"));
    let output = t.output("sleep 700 & disown; jobs; echo listed");
    assert!(!output.contains("Running"), "{output}");
    t.run("kill $!");
}

#[test]
fn quit_ends_a_program_with_its_signal() {
    let mut t = Terminal::ready();
    t.keys("ulimit -c 0; sleep 1000\r");
    t.settle(Duration::from_millis(300));
    t.keys(QUIT);
    assert_eq!(t.finish().1, 131);
}

#[test]
fn a_new_job_is_announced_and_its_end_too() {
    let mut t = Terminal::ready();
    let output = t.output("sleep 0.2 &");
    assert!(output.contains("[1] "), "{output}");
    t.settle(Duration::from_millis(500));
    let output = t.output("");
    assert!(output.contains("[1]+  Done"), "{output}");
}

#[test]
fn a_background_reader_stops() {
    let mut t = Terminal::ready();
    t.output("cat &");
    t.settle(Duration::from_millis(300));
    let output = t.output("jobs");
    assert!(output.contains("Stopped"), "{output}");
    t.run("kill %1");
}

#[test]
fn terminal_modes_survive_as_programs_left_them() {
    let mut t = Terminal::ready();
    t.output("stty -echo");
    assert!(t.output("stty -a | grep -o -- '-echo '").contains("-echo"));
    t.output("stty echo");
    // A program that dies in raw mode must not leave the prompt without echo.
    t.run("sh -c 'stty raw -echo; kill -9 $$'");
    let output = t.output("stty -a | grep -o -- '-icanon'; true");
    assert!(!output.contains("-icanon"), "{output}");
}

#[test]
fn a_resize_is_seen_by_the_shell_and_by_programs() {
    let mut t = Terminal::ready();
    t.resize(33, 111);
    assert!(t.output("stty size").contains("33 111"));
    assert!(t.output("echo c-$COLUMNS").contains("c-111"));
    t.keys("sh -c 'trap \"stty size; exit\" WINCH; echo wait-$((1+1)); while :; do sleep 0.05; done'\r");
    t.wait_for("wait-2");
    t.resize(20, 90);
    assert!(t.finish().0.contains("20 90"));
}

#[test]
fn type_ahead_reaches_the_program_and_the_next_prompt() {
    let mut t = Terminal::ready();
    t.keys("sleep 0.5; echo first-$((1+1))\recho second-$((2+2))\r");
    t.wait_for("first-2");
    t.wait_for("second-4");
    t.finish();
    // At different moments: to the line editor, while the line is judged, to the engine's terminal.
    for round in 0..20 {
        t.keys(format!("sleep 0.{}\r", round % 3));
        t.settle(Duration::from_millis(round % 7 * 15));
        t.keys("head -n 1 | tr a-z A-Z\r");
        t.settle(Duration::from_millis(round % 4 * 10));
        t.keys(format!("for the program {round}\r"));
        // On a terminal that it shares with the editor, a program gets in one piece what was typed
        // at once, as under bash.
        if !in_world() {
            t.wait_for(&format!("FOR THE PROGRAM {round}\n"));
        }
        t.keys(format!("echo next-$(({round}+100))\r"));
        if in_world() {
            t.wait_for(&format!("FOR THE PROGRAM {round}\n"));
        }
        t.wait_for(&format!("\nnext-{}\n", round + 100));
        t.finish();
    }
    assert!(t.output("echo alive-$((2+2))").contains("alive-4"));
}

#[test]
fn exit_warns_once_about_stopped_jobs() {
    let mut t = Terminal::ready();
    t.keys("sleep 1000\r");
    t.settle(Duration::from_millis(300));
    t.keys(STOP);
    t.finish();
    t.keys("exit 3\r");
    t.wait_for("There are stopped jobs.");
    t.keys("exit 3\r");
    assert_eq!(t.wait_end(), Change::Exited(3));
}

#[test]
fn the_end_of_file_leaves_and_ignoreeof_is_heeded() {
    let mut t = Terminal::ready();
    t.output("IGNOREEOF=1");
    t.wait_for("ready> ");
    t.keys(b"\x04");
    t.wait_for("use \"exit\"");
    t.wait_for("ready> ");
    t.keys(b"\x04");
    assert_eq!(t.wait_end(), Change::Exited(0));
}

#[test]
fn a_hang_up_reaches_the_jobs() {
    let mut t = Terminal::ready();
    t.output(
        "(trap 'echo hup > hup.txt; exit' HUP; while :; do sleep 0.1; done) & echo $! > pid.txt",
    );
    t.wait_for_file("pid.txt", "\n");
    let job: i32 = t.content("pid.txt").trim().parse().unwrap();
    t.hang_up();
    t.wait_for_file("hup.txt", "hup");
    // A world has numbers of its own, and ends with its front end.
    eventually("the job ends", || in_world() || !is_alive(job));
    eventually("the session ends", || t.ended().is_some());
}

#[test]
fn the_front_end_owns_the_terminal_only_while_it_reads() {
    let mut t = Terminal::ready();
    t.settle(Duration::from_millis(200));
    assert_eq!(t.foreground(), t.process);
    t.keys("sleep 1000\r");
    t.settle(Duration::from_millis(400));
    // On a terminal of its own the engine needs ours at no time.
    assert_eq!(t.foreground() == t.process, in_world());
    t.keys(INTERRUPT);
    t.finish();
    t.settle(Duration::from_millis(200));
    assert_eq!(t.foreground(), t.process);
}

#[test]
fn suspend_stops_the_whole_shell() {
    let mut t = Terminal::ready();
    t.keys("echo before-$((1+1)); suspend -f; echo after-$((2+2))\r");
    t.wait_for("before-2");
    let pid = t.process;
    let state = move || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')')
            .next()
            .unwrap_or_default()
            .trim_start()
            .chars()
            .next()
    };
    eventually("the front end stops", || state() == Some('T'));
    substrate_sys::process_group::send(pid, substrate_sys::process_group::signal::CONT).unwrap();
    t.wait_for("after-4");
    t.finish();
}

/// Were the whole shell to stop, the next keys would go to whatever is outside, when a program chooses.
#[test]
fn a_program_that_stops_the_shell_stops_nothing() {
    let mut t = Terminal::ready();
    assert!(
        t.output("kill -STOP $$; echo went-$((1+1))")
            .contains("went-2")
    );
    assert!(
        t.output("(sleep 0.3; kill -STOP $$) & sleep 1; echo on-$((2+2))")
            .contains("on-4")
    );
    // While it waits for a line.
    t.output("(sleep 0.3; kill -STOP $$) &");
    t.settle(Duration::from_millis(700));
    t.keys("echo still-$((3+3))\r");
    t.wait_for("still-6");
    assert!(!is_stopped(t.process));
}

fn is_stopped(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default();
    state.trim_start().starts_with('T')
}

/// In each of these the editor waits for one more key and takes whatever comes for it.
#[test]
fn a_hang_up_ends_the_session_whatever_the_editor_waits_for() {
    for keys in [
        &b"\x1b"[..],
        b"\x12ec",
        b"\x16",
        b"echo 'open\r",
        b"\x1b[",
        b"\x1b[200~pasted",
    ] {
        let mut t = Terminal::ready();
        t.output("echo $$ > pid.txt");
        let engine: i32 = t.content("pid.txt").trim().parse().unwrap();
        t.wait_for("ready> ");
        t.keys(keys);
        t.settle(Duration::from_millis(300));
        t.hang_up();
        let what = format!("the session ends after {}", keys.escape_ascii());
        eventually(&what, || t.ended().is_some());
        // A world has numbers of its own, and ends with its front end.
        eventually("the engine ends", || in_world() || !is_alive(engine));
    }
}

#[test]
fn a_long_line_leaves_settings_alone() {
    let mut t = Terminal::ready();
    // Longer than the front end waits before it suspects the engine to have lost its words.
    t.output("sleep 7");
    assert!(
        t.output("echo \"${PS1%>*}-$PROMPT_COMMAND\"")
            .contains("ready-printf")
    );
}
