//! What tests of several crates share; no program links it.

mod replies;
mod screen;
mod surroundings;

pub use replies::Replies;
pub use screen::Screen;
pub use surroundings::{as_from_a_login, search_path};

use std::fs::OpenOptions;
use std::io::Write;

/// Names the file that skips are counted in.
const SKIPS_VAR: &str = "SUBSTRATE_SKIPS";
/// Set where everything that tests need is there, so that a skip is a failure.
const REQUIRE_VAR: &str = "SUBSTRATE_REQUIRE";

/// Says loudly that a test did not run because something is missing here, and counts it. Where nothing
/// should be missing, that is a failure.
#[allow(clippy::panic, reason = "a test that could have run has failed")]
pub fn skip(test: &str, reason: &str) {
    if std::env::var_os(REQUIRE_VAR).is_some() {
        panic!("{test} was skipped where it should run: {reason}");
    }
    does_not_apply(test, reason);
}

/// Says loudly that a test has nothing to show here, such as what a mode bit means to root, and counts it.
pub fn does_not_apply(test: &str, reason: &str) {
    // Not through `eprintln!`, which the harness would swallow.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    if let Some(path) = std::env::var_os(SKIPS_VAR)
        && let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = writeln!(file, "{test}: {reason}");
    }
}
