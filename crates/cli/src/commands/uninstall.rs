//! `substrate uninstall`: takes away what was set up, and what running left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use substrate_broker::Home;
use substrate_changes::gc::{self, Leftover, Verdict};
use substrate_changes::pending::{Pending, worlds_dir};
use substrate_linux::limits;
use substrate_sys::bounded::{self, Links};

use crate::args::UninstallArgs;
use crate::ask;
use crate::asker::{Asker, Needs};
use crate::commands::{agent_setup, init, login_shell};
use crate::failure::Failure;
use crate::out;

/// Start-up files in which people put the line that `shim init` prints.
const RC_FILES: [&str; 6] = [
    ".bashrc",
    ".bash_profile",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".config/fish/config.fish",
];

/// Takes away what was set up.
pub fn run(asker: &Asker, args: &UninstallArgs) -> Result<(), Failure> {
    if !args.dry_run {
        asker.require(Needs::Outside { yes: args.yes })?;
    }
    let home = asker.home()?;

    let worlds = gc::survey(&home.path, Duration::ZERO, &limits::leftovers()).map_err(failed)?;
    if let Some(running) = worlds.iter().find(|left| left.verdict == Verdict::Running) {
        return Err(Failure::Refused(format!(
            "nothing was removed: a command still runs in a world ({}); end it first",
            name(running)
        )));
    }
    let waiting: Vec<&Leftover> = worlds
        .iter()
        .filter(|left| matches!(left.verdict, Verdict::Waiting | Verdict::Interrupted))
        .collect();
    let shell = login_shell::undo(&home);
    let files = files(&home, args.purge);

    let mut text = String::new();
    if let Some(undo) = &shell {
        text.push_str(&undo.text());
    }
    text.push_str(&agent_setup::undo_all(&home, true)?);
    for path in &files {
        text.push_str(&format!("remove {}\n", path.display()));
    }
    if args.dry_run {
        login_shell::say_would(&text)?;
        for left in &waiting {
            out::print(&format!("would ask about {}\n", name(left)))?;
        }
        return Ok(());
    }
    if !args.yes && !ask::confirm(&format!("Substrate will\n{text}"), "Go on?")? {
        return Err(Failure::Refused("nothing was removed".to_owned()));
    }
    let kept = settle_worlds(&home, args, &waiting)?;
    // While the records are still there.
    out::print(&agent_setup::undo_all(&home, false)?)?;
    for path in &files {
        if kept && home.path == *path {
            continue;
        }
        remove(path)?;
    }
    say_what_stays(&home, args.purge && !kept)?;
    // Last, because it may ask for a password, and what else there was to do is done then.
    match &shell {
        Some(undo) => Ok(out::print(&undo.carry_out()?)?),
        None => Ok(()),
    }
}

/// Clears away what worlds have left. What nobody has looked at yet is work of somebody's: it goes
/// only when a person says so, or with everything else. Answers whether any is kept.
fn settle_worlds(
    home: &Home,
    args: &UninstallArgs,
    waiting: &[&Leftover],
) -> Result<bool, Failure> {
    let done = gc::collect(
        &home.path,
        Duration::ZERO,
        &limits::leftovers(),
        &mut |_| true,
    )
    .map_err(failed)?;
    for (_, error) in &done.failed {
        out::print(&format!("{error}\n"))?;
    }
    let mut kept = !done.failed.is_empty();
    if !waiting.is_empty() {
        let mut list = String::new();
        for left in waiting {
            list.push_str(&format!("  {}\n", name(left)));
        }
        let goes = match (args.purge, args.yes) {
            (true, true) => true,
            (false, true) => false,
            (_, false) => ask::confirm(
                &format!("These results of isolated commands were never taken over:\n{list}"),
                "Throw them away?",
            )?,
        };
        if goes {
            for left in waiting {
                throw_away(left)?;
            }
        } else {
            kept = true;
            out::print(&format!(
                "these results of isolated commands stay; `substrate world diff|apply|discard` settles them:\n{list}"
            ))?;
        }
    }
    let directory = worlds_dir(&home.path);
    if !kept && directory.exists() {
        remove(&directory)?;
    }
    Ok(kept)
}

fn throw_away(left: &Leftover) -> Result<(), Failure> {
    let Some(mut pending) = left.pending.clone() else {
        return remove(&left.dir);
    };
    gc::discard(&mut pending)
        .map_err(|error| Failure::Refused(format!("{}: {error}", name(left))))?;
    Ok(out::print(&format!("threw away {}\n", name(left)))?)
}

/// A result as `world` commands take it.
fn name(left: &Leftover) -> String {
    let meta = left.pending.as_ref().map(Pending::meta);
    match meta {
        Some(meta) => {
            let span = &meta.span_id;
            let short = &span[span.len().saturating_sub(12)..];
            let command = meta.cmd.to_string_lossy().escape_debug().to_string();
            format!("{short}  {command}")
        }
        None => left.dir.display().to_string(),
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Missing(error.to_string())
}

fn remove(path: &Path) -> Result<(), Failure> {
    let removed = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => return Ok(()),
    };
    removed.map_err(|error| Failure::File {
        what: format!("cannot remove {}", path.display()),
        error,
    })?;
    Ok(out::print(&format!("removed {}\n", path.display()))?)
}

fn mentions_shims(text: &[u8]) -> bool {
    String::from_utf8_lossy(text).contains("substrate shim init")
}

fn say_what_stays(home: &Home, purged: bool) -> Result<(), Failure> {
    for file in RC_FILES {
        let path = home.user.join(file);
        if bounded::read(&path, Links::Follow, 1 << 20).is_ok_and(|text| mentions_shims(&text)) {
            out::print(&format!(
                "{} still has a line with `substrate shim init`; take it out\n",
                path.display()
            ))?;
        }
    }
    if !purged && home.path.exists() {
        out::print(&format!(
            "policies, history and the trace stay in {}; `--purge` removes them too\n",
            home.path.display()
        ))?;
    }
    Ok(())
}

/// What Substrate made and nobody else needs.
fn files(home: &Home, purge: bool) -> Vec<PathBuf> {
    if purge {
        return vec![home.path.clone()]
            .into_iter()
            .filter(|path| path.exists())
            .collect();
    }
    let mut all = vec![home.shims(), home.cache(), home.clients(), home.active()];
    all.extend(["doors", "conversations"].map(|name| home.path.join(name)));
    all.extend(init::generated(home));
    for name in ["approvals", "trust"] {
        for kind in ["json", "lock"] {
            all.push(home.path.join(format!("{name}.{kind}")));
        }
    }
    all.retain(|path| fs::symlink_metadata(path).is_ok());
    all
}
