//! Reading lines without an editor: on terminals that cannot move their cursor.

use std::io::Write;
use std::os::fd::BorrowedFd;
use std::path::Path;

use substrate_sys::process_group;

use super::{Read, continuation};

/// Reads until the shell calls the text complete; the terminal gathers and echoes each line. Keys
/// that were typed `ahead` come first.
pub fn read(
    prompt: &str,
    ahead: &mut Vec<u8>,
    terminal: BorrowedFd<'_>,
    shell: &Path,
    bash: bool,
) -> Read {
    let mut text = Vec::new();
    let mut ask = prompt;
    loop {
        let mut stderr = std::io::stderr();
        let _ = stderr
            .write_all(ask.as_bytes())
            .and_then(|()| stderr.flush());
        if !take_line(ahead, &mut text) && !read_line(terminal, &mut text) {
            return if text.is_empty() {
                Read::EndOfFile
            } else {
                Read::Line(text)
            };
        }
        if continuation::is_complete(&text, shell, bash) {
            return Read::Line(text);
        }
        text.push(b'\n');
        ask = "> ";
    }
}

/// Takes a line out of what was typed ahead, or all of it as the beginning of one; true if it is whole.
fn take_line(ahead: &mut Vec<u8>, text: &mut Vec<u8>) -> bool {
    let end = ahead.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
    let line = ahead.drain(..end.map_or(ahead.len(), |at| at + 1));
    text.extend(line.filter(|byte| !matches!(byte, b'\n' | b'\r')));
    end.is_some()
}

/// Reads one line, byte by byte so that what follows it stays unread; false at the end of file.
fn read_line(terminal: BorrowedFd<'_>, text: &mut Vec<u8>) -> bool {
    let mut byte = [0_u8; 1];
    loop {
        match process_group::read(terminal, &mut byte) {
            Ok(1) if byte[0] == b'\n' => return true,
            Ok(1) => text.push(byte[0]),
            _ => return false,
        }
    }
}
