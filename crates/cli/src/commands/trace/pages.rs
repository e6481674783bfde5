//! Output that starts a pager when it grows longer than the terminal.

use crate::asker::Asker;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{Child, Command, Stdio};

use super::look::Look;
use crate::out;

/// Takes text bit by bit; [`Pages::finish`] must be called at the end.
pub struct Pages {
    limit: usize,
    lines: usize,
    waiting: Vec<u8>,
    /// What shows it page by page, not started yet.
    wanted: Option<Command>,
    pager: Option<Child>,
}

/// Whether more is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Yes.
    More,
    /// The reader went away.
    Enough,
}

/// Without a terminal, write in pieces of this size.
const PIECE: usize = 32 << 10;

impl Pages {
    /// For the place that a look was taken at.
    pub fn new(asker: &Asker, look: &Look) -> Self {
        Self {
            wanted: pager(asker),
            limit: look
                .height
                .map_or(usize::MAX, |height| height.saturating_sub(1)),
            ..Self::unpaged()
        }
    }

    /// For what is not read page by page.
    pub fn unpaged() -> Self {
        Self {
            limit: usize::MAX,
            lines: 0,
            waiting: Vec::new(),
            wanted: None,
            pager: None,
        }
    }

    /// Writes some text.
    pub fn write(&mut self, text: &[u8]) -> io::Result<Wanted> {
        self.waiting.extend_from_slice(text);
        if self.pager.is_none() && self.limit < usize::MAX {
            self.lines += text.iter().filter(|byte| **byte == b'\n').count();
            if self.lines <= self.limit {
                return Ok(Wanted::More);
            }
            let wanted = self.wanted.as_mut();
            self.pager = wanted.and_then(|pager| pager.spawn().ok());
            if self.pager.is_none() {
                self.limit = usize::MAX;
            }
            return self.flush();
        }
        if self.waiting.len() < PIECE {
            return Ok(Wanted::More);
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<Wanted> {
        let text = std::mem::take(&mut self.waiting);
        let written = match self.pager.as_mut().and_then(|pager| pager.stdin.as_mut()) {
            Some(stdin) => stdin.write_all(&text),
            None => out::try_write(&text),
        };
        match written {
            Ok(()) => Ok(Wanted::More),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Wanted::Enough),
            Err(error) => Err(error),
        }
    }

    /// Writes what is left and waits until the reader has read.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        if let Some(mut pager) = self.pager.take() {
            drop(pager.stdin.take());
            pager.wait()?;
        }
        Ok(())
    }
}

/// `$PAGER`, else `less`; none when it is empty, `cat`, or cannot be started. Below a session it would
/// be a program that no policy has judged, so there is none.
fn pager(asker: &Asker) -> Option<Command> {
    if !asker.free() {
        return None;
    }
    let chosen = asker
        .variable("PAGER")
        .unwrap_or_else(|| OsString::from("less"));
    let text = chosen.to_str()?;
    let mut words = text.split_ascii_whitespace();
    let program = words.next().filter(|program| *program != "cat")?;
    let mut command = Command::new(program);
    command
        .args(words)
        .envs(asker.shell_variables())
        .current_dir(asker.cwd().ok()?)
        .stdin(Stdio::piped());
    // Colours pass through, and `less` leaves the text on the screen.
    if asker.variable("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    Some(command)
}
