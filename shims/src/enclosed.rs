//! Whether a Substrate session above us chose a policy of its own. The kernel is asked, not the
//! environment, which belongs to whoever is enclosed.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use substrate_sys::marker::{self, Mark};
use substrate_sys::process_info;

/// A chain longer than any real one would be a loop.
const MAX_CHAIN: usize = 512;

/// Options of `substrate` by which a session differs from the policy in use.
const CHOICES: [&[u8]; 2] = [b"--policy", b"--require-approval"];

/// Whether some process above us is a `substrate` whose verdicts may be stricter than those of the
/// policy in use. Everything below a session carries its mark, so without one nobody is looked for.
pub fn session_has_own_terms(substrate: impl FnOnce() -> Option<PathBuf>) -> bool {
    if matches!(marker::get(), Ok(None | Some(Mark::Shim))) {
        return false;
    }
    let substrate = substrate().unwrap_or_default();
    let parent = std::os::unix::process::parent_id();
    std::iter::successors(Some(parent), |pid| parent_of(*pid))
        .take_while(|pid| *pid > 1)
        .take(MAX_CHAIN)
        .any(|pid| {
            is_substrate(pid, &substrate)
                && chooses(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default())
        })
}

fn is_substrate(pid: u32, substrate: &Path) -> bool {
    let Ok(exe) = fs::read_link(format!("/proc/{pid}/exe")) else {
        return false;
    };
    if exe == substrate {
        return true;
    }
    let name = exe.file_name().map(OsStr::as_bytes).unwrap_or_default();
    name.strip_suffix(b" (deleted)").unwrap_or(name) == b"substrate"
}

/// A command line that cannot be read may say anything.
fn chooses(command_line: &[u8]) -> bool {
    let words = command_line.split(|byte| *byte == 0).skip(1);
    command_line.is_empty()
        || words
            .into_iter()
            .any(|word| CHOICES.iter().any(|choice| word.starts_with(choice)))
}

fn parent_of(pid: u32) -> Option<u32> {
    process_info::parent(pid).ok().or_else(|| {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The command name is in parentheses and may hold anything, so the last one counts.
        let fields = stat.get(stat.iter().rposition(|byte| *byte == b')')? + 1..)?;
        std::str::from_utf8(fields)
            .ok()?
            .split_ascii_whitespace()
            .nth(1)?
            .parse()
            .ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_with_terms_of_their_own() {
        assert!(chooses(b"substrate\0--policy=strict\0-c\0id\0"));
        assert!(chooses(b"substrate\0--policy\0strict\0"));
        assert!(chooses(b""));
        assert!(!chooses(b"substrate\0-c\0id\0"));
        assert!(!chooses(b"--policy\0-l\0"));
    }

    #[test]
    fn both_ways_to_a_parent_agree() {
        let us = std::process::id();
        assert_eq!(parent_of(us), Some(std::os::unix::process::parent_id()));
        assert!(!session_has_own_terms(|| None));
    }
}
