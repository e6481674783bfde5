//! `substrate init`: the first run.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use substrate_broker::Home;
use substrate_policy::compile;
use substrate_trace::Mode;

use crate::args::{InitArgs, Preset, ShimCommand};
use crate::ask;
use crate::asker::{Asker, Needs};
use crate::clients;
use crate::commands::{login_shell, policy_change, shim};
use crate::failure::Failure;
use crate::out;

/// The policy that `init` writes when a preset is wanted in another mode.
const OWN: &str = "own";

/// One thing that is to change.
enum Step {
    Write(PathBuf, String),
    Use(String),
    Shims(Preset),
    LoginShell(login_shell::Plan),
}

/// Sets Substrate up.
pub fn run(asker: &Asker, args: &InitArgs) -> Result<(), Failure> {
    if !args.dry_run {
        asker.require(Needs::Outside { yes: args.yes })?;
    }
    // Opening a policy keeps its compiled form, which a dry run must not.
    let home = if args.dry_run {
        asker.home()?
    } else {
        asker.broker(Some("default".into()))?.home().clone()
    };
    let asks = !args.yes && !args.dry_run;
    let login_shell_alone = args.login_shell
        && (&args.preset, args.mode.is_some(), args.shims.is_some()) == (&None, false, false);
    if login_shell_alone {
        // The policy in use is not touched by somebody who only wants this.
        return match wanted_login_shell(args, asks)? {
            Some(plan) => Ok(out::print(&carry_out(
                asker,
                &home,
                &Step::LoginShell(plan),
                args.dry_run,
            )?)?),
            None => Ok(()),
        };
    }
    let presets: Vec<&str> = compile::shipped_ids().collect();
    let preset = match (&args.preset, asks) {
        (Some(preset), _) => preset.clone(),
        (None, false) => "default".to_owned(),
        (None, true) => {
            let described: Vec<String> = presets.iter().map(|id| described(id)).collect();
            let described: Vec<&str> = described.iter().map(String::as_str).collect();
            let picked = pick("Which policy to start from?", &described)?;
            picked.split(':').next().unwrap_or("default").to_owned()
        }
    };
    if !presets.contains(&preset.as_str()) {
        return Err(Failure::Usage(format!(
            "there is no preset `{preset}`; known are {}",
            presets.join(", ")
        )));
    }
    let mode = match (args.mode, asks) {
        (Some(mode), _) => Some(mode.into()),
        (None, false) => None,
        (None, true) => {
            let words = [
                "as the preset says",
                "observe: nothing is refused, everything is recorded",
                "enforce: refusals are carried out",
            ];
            match pick("Which mode?", &words)?.split(':').next() {
                Some("observe") => Some(Mode::Observe),
                Some("enforce") => Some(Mode::Enforce),
                _ => None,
            }
        }
    };
    let shims = match (args.shims, asks) {
        (Some(preset), _) => Some(preset),
        (None, false) => None,
        (None, true) => ask::confirm(
            "Shims guard tools such as git, npm and curl inside other shells.\n",
            "Install them?",
        )?
        .then_some(Preset::Dev),
    };
    let login_shell = wanted_login_shell(args, asks)?;

    let mut steps = Vec::new();
    let found = clients::ask(&home.user);
    steps.push(Step::Write(home.clients(), format!("{:#}\n", json!(found))));
    match mode.filter(|mode: &Mode| !preset_has_mode(&preset, *mode)) {
        Some(mode) => {
            let text = own_policy(&preset, mode);
            steps.push(Step::Write(
                home.policies().join(format!("{OWN}.yaml")),
                text,
            ));
            steps.push(Step::Use(OWN.to_owned()));
        }
        None => steps.push(Step::Use(preset)),
    }
    steps.extend(shims.map(Step::Shims));
    steps.extend(login_shell.map(Step::LoginShell));
    for step in &steps {
        out::print(&carry_out(asker, &home, step, args.dry_run)?)?;
    }
    for (set, hosts) in &found {
        out::print(&format!("  @{set}: {}\n", hosts.join(", ")))?;
    }
    Ok(out::print(
        "`substrate` is the shell, `substrate doctor` tells what is enforced here, `substrate uninstall` undoes this\n",
    )?)
}

/// Whether Substrate is to be the login shell. Only a person who sees what changes, or a flag with
/// `--yes`, makes it so.
fn wanted_login_shell(args: &InitArgs, asks: bool) -> Result<Option<login_shell::Plan>, Failure> {
    if !args.login_shell && !asks {
        return Ok(None);
    }
    let plan = match login_shell::plan() {
        Ok(plan) => plan,
        Err(failure) if args.login_shell => return Err(failure),
        Err(failure) => {
            out::print(&format!("{failure}\n"))?;
            return Ok(None);
        }
    };
    let Some(plan) = plan else {
        out::print("Substrate is your login shell\n")?;
        return Ok(None);
    };
    if !asks {
        return Ok(Some(plan));
    }
    let text = format!(
        "Substrate can be your login shell. That will\n{}",
        plan.text()
    );
    let agreed = ask::confirm(&text, "Make it your login shell?")?;
    Ok(agreed.then_some(plan))
}

fn pick<'a>(question: &str, items: &[&'a str]) -> Result<&'a str, Failure> {
    let chosen = ask::choose(question, items, 0)?;
    chosen
        .and_then(|at| items.get(at).copied())
        .ok_or_else(|| Failure::Refused("nothing was changed".to_owned()))
}

fn preset_has_mode(preset: &str, mode: Mode) -> bool {
    let own = compile::shipped(preset)
        .map(|file| file.text)
        .unwrap_or_default();
    own.lines()
        .any(|line| line.trim_end() == format!("mode: {}", mode.as_str()))
}

/// A preset, what it is for in its own words, and whether it refuses anything.
fn described(id: &str) -> String {
    let text = compile::shipped(id).map_or_else(String::new, |file| file.text);
    let comment: Vec<&str> = text
        .lines()
        .map_while(|line| line.strip_prefix("# "))
        .collect();
    let comment = comment.join(" ");
    let sentence = comment
        .split_inclusive(". ")
        .next()
        .unwrap_or_default()
        .trim();
    let mode = match text.lines().any(|line| line == "mode: enforce") {
        true => "enforces",
        false => "observes",
    };
    format!("{id}: {sentence} It {mode}.")
}

fn own_policy(preset: &str, mode: Mode) -> String {
    format!(
        "# Written by `substrate init`. Lists that you add here are added to those of `{preset}`.\nid: {OWN}\nname: Own policy\nextends: {preset}\nmode: {}\n",
        mode.as_str()
    )
}

fn carry_out(asker: &Asker, home: &Home, step: &Step, dry: bool) -> Result<String, Failure> {
    let would = if dry { "would " } else { "" };
    Ok(match step {
        Step::Write(path, text) => {
            let same = fs::read_to_string(path).is_ok_and(|old| old == *text);
            if !same && !dry {
                if path.extension().is_some_and(|kind| kind == "yaml") && path.exists() {
                    return Err(Failure::Refused(format!(
                        "{} exists and says something else; move it away first",
                        path.display()
                    )));
                }
                policy_change::write(home, path, text.as_bytes())?;
            }
            match same {
                true => format!("{} is as it should be\n", path.display()),
                false => format!("{would}write {}\n", path.display()),
            }
        }
        Step::Use(id) if dry => format!("would use the policy {id}\n"),
        Step::Use(id) => policy_change::put_to_use(home, id)?,
        Step::Shims(_) if dry => format!("would install shims in {}\n", home.shims().display()),
        Step::Shims(preset) => {
            shim::run(
                asker,
                ShimCommand::Install {
                    tools: Vec::new(),
                    preset: Some(*preset),
                },
            )?;
            String::new()
        }
        Step::LoginShell(plan) if dry => {
            login_shell::say_would(&plan.text())?;
            String::new()
        }
        Step::LoginShell(plan) => plan.carry_out(home)?,
    })
}

/// The policy that `init` wrote, while it is as it was written.
pub fn generated(home: &Home) -> Option<PathBuf> {
    let own = home.policies().join(format!("{OWN}.yaml"));
    let text = fs::read_to_string(&own).ok()?;
    let is_ours = compile::shipped_ids().any(|preset| {
        [Mode::Observe, Mode::Enforce]
            .into_iter()
            .any(|mode| text == own_policy(preset, mode))
    });
    is_ours.then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_says_what_it_is_for() {
        for id in compile::shipped_ids() {
            let text = described(id);
            assert!(text.starts_with(&format!("{id}: For ")), "{text}");
            assert!(
                text.ends_with("It enforces.") || text.ends_with("It observes."),
                "{text}"
            );
        }
    }
}
