//! `substrate world`: what isolated commands left, and what this machine gives to worlds.

use crate::asker::{Asker, Needs};
use crate::commands::results::find;
use crate::commands::results::missing;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use substrate_broker::{Home, project};
use substrate_changes::apply::{self, ApplyOptions};
use substrate_changes::apply_error::ApplyError;
use substrate_changes::gc;
use substrate_changes::observer::Observer;
use substrate_changes::patch::{self, Paint};
use substrate_changes::pending::Pending;
use substrate_linux::{limits, probe};
use substrate_runtime::supervise::Ending;
use substrate_shell::progress::Meter;
use substrate_sys::real_path::real_path;
use substrate_text::visible;

use crate::args::WorldCommand;
use crate::commands::explore;
use crate::commands::when;
use crate::commands::{daemon, kept};
use crate::failure::Failure;
use crate::out;

/// Runs a subcommand of `world`.
pub fn run(asker: &Asker, command: &WorldCommand) -> Result<Ending, Failure> {
    let home = asker.home()?;
    let done = match command {
        WorldCommand::Explore { result, argv } => return Ok(explore::run(asker, result, argv)),
        WorldCommand::Status { json } => status(&home, *json),
        WorldCommand::Doctor { json } => doctor(&home, *json),
        WorldCommand::Diff {
            result,
            stat,
            patch,
            json,
        } => diff(asker, &home, result, *stat, *patch, *json),
        WorldCommand::Apply {
            result,
            paths,
            held,
            force,
            dry_run,
        } => {
            let options = ApplyOptions {
                paths: absolute(asker, paths)?,
                held: *held,
                force: *force,
            };
            apply(asker, &home, result, &options, *dry_run)
        }
        WorldCommand::Undo { result, force } => undo(asker, &home, result.as_deref(), *force),
        WorldCommand::Discard { result, force } => discard(&home, result, *force),
        WorldCommand::Gc { json } => collect(&home, *json),
        WorldCommand::Warm { agent } => kept::warm(asker, &home, agent.as_deref()),
        WorldCommand::Restart { all } => kept::restart(asker, &home, *all),
    };
    done.map(|()| Ending::Exit(0))
}

fn absolute(asker: &Asker, paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    paths.iter().map(|path| asker.absolute(path)).collect()
}

fn status(home: &Home, as_json: bool) -> Result<(), Failure> {
    let leftovers =
        gc::survey(&home.path, gc::KEEP_APPLIED, &limits::leftovers()).map_err(missing)?;
    if as_json {
        let rows: Vec<Value> = leftovers
            .iter()
            .map(|leftover| {
                let meta = leftover.pending.as_ref().map(Pending::meta);
                json!({
                    "state": leftover.verdict.as_str(),
                    "world": meta.map(|meta| meta.world_id.clone()),
                    "span": meta.map(|meta| meta.span_id.clone()).filter(|span| !span.is_empty()),
                    "created": meta.and_then(|meta| u64::try_from(meta.created.0).ok()).map(substrate_text::time::to_the_minute),
                    "cmd": meta.map(|meta| meta.cmd.to_string_lossy().into_owned()),
                    "directory": leftover.dir.display().to_string(),
                })
            })
            .collect();
        return Ok(out::print(&format!("{}\n", Value::Array(rows)))?);
    }
    let mut text = daemon::ask(&home.path)?.map_or_else(String::new, |status| {
        match status.worlds.is_empty() {
            true => String::new(),
            false => format!("kept by the service:\n{}", daemon::world_lines(&status)),
        }
    });
    for leftover in &leftovers {
        let meta = leftover.pending.as_ref().map(Pending::meta);
        // What a replay keeps belongs to no span of its own, and is named by its world.
        let id = match meta {
            Some(meta) if meta.span_id.is_empty() => &meta.world_id,
            Some(meta) => &meta.span_id,
            None => "-",
        };
        let short = &id[id.len().saturating_sub(12)..];
        let cmd = meta
            .map(|meta| visible(meta.cmd.as_bytes()))
            .unwrap_or_default();
        let made = meta.and_then(|meta| u64::try_from(meta.created.0).ok());
        let made = made.map_or_else(String::new, when::local);
        text.push_str(&format!(
            "{:<12} {short:<12} {made:<23} {cmd}\n",
            leftover.verdict.as_str()
        ));
    }
    if text.is_empty() {
        text.push_str("no isolated command has left anything\n");
    }
    Ok(out::print(&text)?)
}

fn doctor(home: &Home, as_json: bool) -> Result<(), Failure> {
    let scratch = home.path.join("worlds");
    home.ensure(&scratch).map_err(|error| Failure::File {
        what: format!("cannot make {}", scratch.display()),
        error,
    })?;
    let report = probe::probe(&scratch);
    if as_json {
        let rows: Vec<Value> = report
            .rows
            .iter()
            .map(|row| json!({"check": row.what, "works": row.works, "found": row.found, "fix": row.fix}))
            .collect();
        out::print(&format!(
            "{}\n",
            json!({"level": report.level.as_str(), "checks": rows})
        ))?;
    } else {
        let mut text = format!("level: {}\n", report.level.as_str());
        for row in &report.rows {
            let mark = if row.works { "yes" } else { "no" };
            text.push_str(&format!("{mark:<4} {:<24} {}\n", row.what, row.found));
            if let Some(fix) = &row.fix {
                text.push_str(&format!("     {:<24} {fix}\n", ""));
            }
        }
        out::print(&text)?;
    }
    if report.level == substrate_trace::Level::Full {
        Ok(())
    } else {
        Err(Failure::No)
    }
}

fn diff(
    asker: &Asker,
    home: &Home,
    result: &str,
    stat: bool,
    as_patch: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let pending = find(home, result)?;
    let mut text = Vec::new();
    let paint = if asker.colours() {
        Paint::ANSI
    } else {
        Paint::PLAIN
    };
    let mut meter = Meter::default();
    let mut go_on = |now| meter.tell(now);
    if as_json {
        patch::json(&pending, &mut text, &mut go_on).map_err(missing)?;
        text.push(b'\n');
        return Ok(out::write(&text)?);
    }
    let totals = if stat && !as_patch {
        patch::stat(&pending, paint, &mut text, &mut go_on)
    } else {
        patch::patch(&pending, paint, &mut text, &mut go_on)
    };
    let totals = totals.map_err(missing)?;
    text.extend_from_slice(totals.sentence().as_bytes());
    text.push(b'\n');
    Ok(out::write(&text)?)
}

fn apply(
    asker: &Asker,
    home: &Home,
    result: &str,
    options: &ApplyOptions,
    dry_run: bool,
) -> Result<(), Failure> {
    let mut pending = find(home, result)?;
    let mut meter = Meter::default();
    let mut tell = |now| meter.tell(now);
    let check = apply::check(&pending, options, &mut tell).map_err(missing)?;
    let mut text = String::new();
    for flag in &check.flags {
        text.push_str(&format!(
            "can run later: {} ({})\n",
            flag.path.display(),
            flag.reason.as_str()
        ));
    }
    for path in &check.skipped {
        text.push_str(&format!("left out: {}\n", path.display()));
    }
    if dry_run {
        for (path, conflict) in &check.conflicts {
            text.push_str(&format!(
                "conflict: {} ({})\n",
                path.display(),
                conflict.as_str()
            ));
        }
        text.push_str(&format!("{} would be applied\n", changes(check.changes)));
        return Ok(out::print(&text)?);
    }
    // What could not have been written below a session, or would run outside of it, is not applied from there.
    if !check.flags.is_empty() || options.held || options.force || !options.paths.is_empty() {
        asker.require(Needs::Outside { yes: true })?;
    }
    apply::resume(&mut pending, &mut Observer::new(&mut tell)).map_err(missing)?;
    let applied = apply::apply(&mut pending, options, &mut Observer::new(&mut tell));
    drop(meter);
    match applied {
        Ok(applied) if applied.check.changes == 0 && !applied.whole => {
            text.push_str(
                "nothing was applied: what it changed lies outside what may be written; `--held` takes that too\n",
            );
            out::print(&text)?;
            Err(Failure::No)
        }
        Ok(applied) => {
            let undo = match applied.check.changes {
                0 => "",
                _ => "; `substrate world undo` brings the old state back",
            };
            let count = changes(applied.check.changes);
            let left = match applied.check.skipped.len() {
                0 => String::new(),
                left => format!(", {left} left out"),
            };
            text.push_str(&format!("{count} applied{left}{undo}\n"));
            Ok(out::print(&text)?)
        }
        Err(ApplyError::Conflicts(conflicts)) => {
            for (path, conflict) in &conflicts {
                text.push_str(&format!(
                    "conflict: {} ({})\n",
                    path.display(),
                    conflict.as_str()
                ));
            }
            text.push_str("nothing was applied; `--force` overwrites what the host has\n");
            out::print(&text)?;
            Err(Failure::No)
        }
        Err(error) => Err(missing(error)),
    }
}

fn changes(count: u64) -> String {
    match count {
        1 => "1 change".to_owned(),
        _ => format!("{count} changes"),
    }
}

fn undo(asker: &Asker, home: &Home, result: Option<&str>, force: bool) -> Result<(), Failure> {
    let mut pending = match result {
        Some(result) => find(home, result)?,
        None => {
            let here = here(asker, home)?;
            let last = apply::last(&home.path, &here).map_err(missing)?;
            last.ok_or_else(|| nothing_to_undo(home, &here))?
        }
    };
    let mut meter = Meter::default();
    let mut tell = |now| meter.tell(now);
    let count = apply::undo(&mut pending, force, &mut Observer::new(&mut tell)).map_err(missing)?;
    drop(meter);
    Ok(out::print(&format!("{} undone\n", changes(count)))?)
}

/// The project that this is, or the working directory.
fn here(asker: &Asker, home: &Home) -> Result<PathBuf, Failure> {
    let cwd = real_path(asker.cwd()?)?;
    Ok(project::find(&cwd, &cwd, &home.user).unwrap_or(cwd))
}

/// Says where something was applied, so that nothing there is undone by mistake.
fn nothing_to_undo(home: &Home, here: &Path) -> Failure {
    let mut text = format!(
        "nothing was applied in {} that could be undone",
        visible(here.as_os_str().as_bytes())
    );
    if let Ok(Some(other)) = apply::last(&home.path, Path::new("/")) {
        let place = visible(other.meta().cwd.as_os_str().as_bytes());
        let id = &other.meta().span_id;
        text.push_str(&format!(
            "; the last apply was in {place}: `substrate world undo {id}` takes that back"
        ));
    }
    Failure::Missing(text)
}

fn discard(home: &Home, result: &str, force: bool) -> Result<(), Failure> {
    let mut pending = find(home, result)?;
    let done = match force {
        true => gc::discard_anyway(&mut pending),
        false => gc::discard(&mut pending),
    };
    done.map_err(missing)?;
    Ok(out::print("discarded\n")?)
}

fn collect(home: &Home, as_json: bool) -> Result<(), Failure> {
    let mut meter = Meter::default();
    let mut tell = |now| meter.tell(now);
    let done = gc::collect(
        &home.path,
        gc::KEEP_APPLIED,
        &limits::leftovers(),
        &mut tell,
    )
    .map_err(missing)?;
    drop(meter);
    if as_json {
        let removed: Vec<String> = done
            .removed
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let failed: Vec<Value> = done
            .failed
            .iter()
            .map(|(path, error)| json!({"directory": path.display().to_string(), "error": error.to_string()}))
            .collect();
        out::print(&format!(
            "{}\n",
            json!({"removed": removed, "failed": failed})
        ))?;
    } else {
        let mut text = format!("{} removed\n", done.removed.len());
        for (_, error) in &done.failed {
            text.push_str(&format!("{error}\n"));
        }
        out::print(&text)?;
    }
    if done.failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::No)
    }
}
