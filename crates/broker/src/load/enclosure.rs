//! Whether a Substrate session encloses a process. The kernel is asked, not the environment, because
//! the environment belongs to whoever is enclosed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use substrate_sys::marker::{self, Mark, WORLD_SOURCE};
use substrate_trace::PARENT_SPAN_VAR;

use super::process::{chain_of, read_whole};
use crate::env::SUBSTRATE_HOME;
use crate::home::{Home, NoHome};

/// A Substrate process above another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestor {
    /// Its process id.
    pub pid: u32,
    /// The arguments that it was started with.
    pub arguments: Vec<OsString>,
    /// Where it is.
    pub cwd: PathBuf,
    /// The `SUBSTRATE_HOME` that it was started with.
    pub home: Option<OsString>,
    /// The `HOME` that it was started with.
    pub user_home: Option<OsString>,
}

/// The Substrate processes above one, nearest first.
pub(crate) fn ancestors(pid: u32) -> Vec<Ancestor> {
    let own = fs::read_link("/proc/self/exe").ok();
    chain_of(pid)
        .filter(|pid| is_substrate(*pid, own.as_deref()))
        .map(ancestor)
        .collect()
}

/// Whether we were marked before we marked ourselves.
static BEFORE: OnceLock<bool> = OnceLock::new();

/// Marks this process and everything that it will start as enclosed; answers whether it already was.
/// A failure to ask counts as a mark.
pub fn mark() -> bool {
    *BEFORE.get_or_init(|| marker::set(Mark::Session).map_or(true, |before| before.is_some()))
}

/// Whether somebody else has marked this process.
pub(crate) fn marked() -> bool {
    let before = BEFORE.get().copied();
    before.unwrap_or_else(|| marker::get().map_or(true, |mark| mark.is_some()))
}

/// By what a session around a process shows itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// The process runs in a world.
    World,
    /// A Substrate process is above it.
    Ancestor(u32),
    /// A process above it, or it itself, was started by Substrate.
    Started(u32),
    /// The mark that everything below a session carries.
    Mark,
    /// The process has ended, so that nothing can be said of it.
    Gone,
}

/// Looks for a session around a process: some ancestor is a Substrate process or was started by one, it
/// is in a world, or the mark of a session that we have lost sight of is on it.
pub(crate) fn trace_of_a_session(pid: u32, is_marked: impl Fn() -> bool) -> Option<Trace> {
    let own = fs::read_link("/proc/self/exe").ok();
    let above = |pid| {
        if is_substrate(pid, own.as_deref()) {
            Some(Trace::Ancestor(pid))
        } else {
            came_from_a_shim(pid).then_some(Trace::Started(pid))
        }
    };
    chain_of(pid)
        .find_map(above)
        .or_else(|| is_marked().then_some(Trace::Mark))
        .or_else(|| in_a_world(pid).then_some(Trace::World))
        .or_else(|| came_from_a_shim(pid).then_some(Trace::Started(pid)))
}

/// Whether the mount table says so, which nobody inside can change.
pub(crate) fn in_a_world(pid: u32) -> bool {
    let table = read_whole(&format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    let mark = [b" ", WORLD_SOURCE.as_bytes(), b"wld_"].concat();
    table.windows(mark.len()).any(|part| part == mark)
}

/// What the environment of whoever asks says about homes.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnHome<'a> {
    /// `SUBSTRATE_HOME`.
    pub substrate: Option<&'a OsStr>,
    /// `HOME`.
    pub user: Option<&'a OsStr>,
}

/// The home of whoever encloses a process, or the one that its own environment names when nobody does.
/// The outermost session chose its home freely, so its choice holds for all below.
pub(crate) fn home(
    ancestors: &[Ancestor],
    own: OwnHome<'_>,
    is_marked: impl Fn() -> bool,
) -> Result<Home, NoHome> {
    match ancestors.last() {
        Some(outermost) => {
            let user = outermost.user_home.as_deref();
            Home::find(outermost.home.as_deref(), user, || false)
        }
        // Nobody is above it who could not be seen: the mark is on whatever a session or a shim has
        // started, worlds included.
        None => Home::find(own.substrate, own.user, is_marked),
    }
}

fn is_substrate(pid: u32, own: Option<&Path>) -> bool {
    let Ok(exe) = fs::read_link(format!("/proc/{pid}/exe")) else {
        return false;
    };
    if own == Some(&exe) {
        return true;
    }
    // A binary that was replaced while it ran is ` (deleted)`; its name still tells.
    let name = exe
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    matches!(
        name.strip_suffix(" (deleted)").unwrap_or(&name),
        "substrate" | "substrate-shim"
    )
}

/// A shim becomes its tool, so what it leaves is the variable in that process's first environment.
fn came_from_a_shim(pid: u32) -> bool {
    variable(pid, PARENT_SPAN_VAR).is_some()
}

/// A variable of the environment that a process was started with.
pub(crate) fn variable(pid: u32, name: &str) -> Option<OsString> {
    let environment = read_whole(&format!("/proc/{pid}/environ")).ok()?;
    find(&environment, name).map(|value| OsString::from_vec(value.to_vec()))
}

pub(crate) fn find<'a>(environment: &'a [u8], name: &str) -> Option<&'a [u8]> {
    environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

fn ancestor(pid: u32) -> Ancestor {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = line.strip_suffix(b"\0").unwrap_or(&line);
    Ancestor {
        pid,
        arguments: line
            .split(|byte| *byte == 0)
            .map(|word| OsString::from_vec(word.to_vec()))
            .collect(),
        cwd: fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default(),
        home: variable(pid, SUBSTRATE_HOME),
        user_home: variable(pid, "HOME"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_found_in_an_environment() {
        assert_eq!(
            find(b"A=1\0SUBSTRATE_PARENT_SPAN=x\0", PARENT_SPAN_VAR),
            Some(&b"x"[..])
        );
        assert_eq!(find(b"A=SUBSTRATE_PARENT_SPAN=x\0", PARENT_SPAN_VAR), None);
    }
}
