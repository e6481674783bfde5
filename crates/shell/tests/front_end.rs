//! The front end with engines that the binary does not choose by itself: on a terminal of their
//! own, and without bash.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../tests/terminal/mod.rs"]
mod terminal;

use std::time::Duration;

use substrate_sys::process_group::Change;
use terminal::Setup;

#[test]
fn an_engine_on_a_terminal_of_its_own_feels_the_same() {
    let mut setup = Setup::new();
    setup.set("EXAMPLE_OWN_TERMINAL", "1");
    let mut t = setup.start();
    t.wait_for("<0>");
    assert!(
        t.output("echo alive-$((2+2)); tty > tty.txt")
            .contains("alive-4")
    );
    t.keys("sleep 1000\r");
    t.settle(Duration::from_millis(300));
    t.keys("\x03");
    assert_eq!(t.finish().1, 130);
    t.keys("sleep 1000\r");
    t.settle(Duration::from_millis(300));
    t.keys("\x1a");
    assert!(t.finish().0.contains("Stopped"));
    t.output("kill %1");
    t.resize(40, 120);
    t.output("true");
    assert!(t.output("stty size").contains("40 120"));
    t.keys("sleep 0.4; echo first-$((1+1))\recho second-$((2+2))\r");
    t.wait_for("first-2");
    t.wait_for("second-4");
    t.finish();
    t.keys("read x\r");
    t.settle(Duration::from_millis(200));
    t.keys("typed\r");
    t.finish();
    assert!(t.output("echo got-$x").contains("got-typed"));
    t.keys("exit 6\r");
    assert_eq!(t.wait_end(), Change::Exited(6));
}

#[test]
fn a_plain_sh_serves_where_there_is_no_bash() {
    let mut setup = Setup::new();
    setup.set("EXAMPLE_SHELL", "/bin/sh");
    let mut t = setup.start();
    t.wait_for("no bash here");
    t.wait_for("example:observe");
    t.keys("x=$((20+2)); cd /usr\r");
    t.wait_for("/usr");
    t.keys("echo v-$x; false\r");
    t.wait_for("v-22");
    t.wait_for("observe 1");
    t.keys("sleep 1000\r");
    t.settle(Duration::from_millis(400));
    t.keys("\x03");
    t.wait_for("130");
    t.keys("exit 4\r");
    assert_eq!(t.wait_end(), Change::Exited(4));
}
