//! One line that tells how far a long piece of work has come, for a person who waits.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use substrate_world::progress::{Progress, Stage};

/// Work that is done sooner shows nothing.
const PATIENCE: Duration = Duration::from_millis(500);
const EVERY: Duration = Duration::from_millis(100);

/// Shows progress on standard error, where that is a terminal, and takes the line away when dropped.
#[derive(Debug)]
pub struct Meter {
    terminal: bool,
    started: Instant,
    shown: Option<Instant>,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            started: Instant::now(),
            shown: None,
        }
    }
}

impl Meter {
    /// Takes note of how far it is; never asks for an end.
    pub fn tell(&mut self, now: Progress) -> bool {
        let due = match self.shown {
            None => self.started.elapsed() >= PATIENCE,
            Some(last) => last.elapsed() >= EVERY,
        };
        if self.terminal && due {
            self.shown = Some(Instant::now());
            // What cannot be shown is nobody's problem.
            let _ = std::io::stderr().write_all(format!("\r{}\x1b[K", line(now)).as_bytes());
        }
        true
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

fn line(now: Progress) -> String {
    let doing = match now.stage {
        Stage::Comparing => "comparing",
        Stage::Staging => "copying",
        Stage::Committing => "putting in place",
        Stage::Undoing => "putting back",
        Stage::Removing => "removing",
    };
    match now.total {
        Some(total) if total > 0 => {
            let percent = now.done.min(total) * 100 / total;
            format!("{doing}: {} of {total} ({percent} %)", now.done)
        }
        _ => format!("{doing}: {}", now.done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_done_and_how_much_of_it() {
        let mut now = Progress {
            stage: Stage::Comparing,
            done: 640,
            total: None,
        };
        assert_eq!(line(now), "comparing: 640");
        now.stage = Stage::Committing;
        now.total = Some(2560);
        assert_eq!(line(now), "putting in place: 640 of 2560 (25 %)");
        now.total = Some(0);
        assert_eq!(line(now), "putting in place: 640");
    }
}
