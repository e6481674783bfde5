//! `substrate agent setup`: has the clients of agents ask us before they do something.

use std::path::PathBuf;

use similar::TextDiff;
use substrate_adapters::Client;
use substrate_adapters::setup::{self, Change, Plan, Program, Record, Scope, SetupError, Standing};
use substrate_broker::{Home, project};
use substrate_text::visible;

use crate::agent_args::SetupArgs;
use crate::ask;
use crate::asker::{Asker, Needs};
use crate::failure::Failure;
use crate::out;

/// Carries out `agent setup`.
pub fn run(asker: &Asker, args: &SetupArgs) -> Result<(), Failure> {
    let Some(client) = &args.client else {
        return list(asker);
    };
    let client: Client = client
        .parse()
        .map_err(|error| Failure::Usage(format!("{error}")))?;
    if !args.dry_run {
        asker.require(Needs::Outside { yes: args.yes })?;
    }
    let home = asker.home()?;
    let scope = if args.project {
        Scope::Project
    } else {
        Scope::User
    };
    let root = match scope {
        Scope::User => {
            // The client goes by the variable, whatever the passwd entry says.
            let named = asker.variable("HOME").map(PathBuf::from);
            let named = named.filter(|path| path.is_absolute());
            let user = named.unwrap_or_else(|| home.user.clone());
            setup::settings_directory(client, &user, |name| asker.variable(name))
        }
        Scope::Project => project_here(asker, &home)?,
    };
    if args.undo {
        let record = Record::load(&home, client, scope, &root).map_err(refused)?;
        let Some(record) = record else {
            let title = setup::title(client, scope, &root);
            return Err(Failure::Missing(format!("{title} is not set up")));
        };
        return undo(&home, &record, args);
    }
    let program = Program {
        path: std::env::current_exe()?,
        home: home.clone(),
    };
    for path in [&root, &program.path, &home.path] {
        if path.to_str().is_none() {
            return Err(Failure::Refused(format!(
                "{}: settings cannot hold this name",
                path.display()
            )));
        }
    }
    set_up(&home, &setup::plan(client, scope, &root, &program), args)
}

fn project_here(asker: &Asker, home: &Home) -> Result<PathBuf, Failure> {
    let cwd = asker.cwd()?;
    let found = project::find(&cwd, &cwd, &home.user);
    found.ok_or_else(|| Failure::Missing("there is no project here".to_owned()))
}

fn refused(error: SetupError) -> Failure {
    Failure::Refused(visible(error.to_string().as_bytes()))
}

fn set_up(home: &Home, plan: &Plan, args: &SetupArgs) -> Result<(), Failure> {
    let changes = setup::changes(plan).map_err(refused)?;
    let title = setup::title(plan.client, plan.scope, &plan.root);
    if !changes.iter().any(Change::is_one) && !args.dry_run {
        // The links and the record may be older than the settings.
        setup::carry_out(home, plan, &changes).map_err(refused)?;
        return Ok(out::print(&format!("{title} is set up already\n"))?);
    }
    if !agreed(&changes, args)? {
        return Ok(());
    }
    setup::carry_out(home, plan, &changes).map_err(refused)?;
    let mut text = format!("{title} is set up; `substrate doctor` tries it\n");
    for note in &plan.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text.push_str("hooks advise: what holds an agent whatever its client does is a world (docs/adapters.md)\n");
    Ok(out::print(&text)?)
}

fn undo(home: &Home, record: &Record, args: &SetupArgs) -> Result<(), Failure> {
    let changes = setup::undone(record).map_err(refused)?;
    if changes.iter().any(Change::is_one) && !agreed(&changes, args)? {
        return Ok(());
    }
    if args.dry_run {
        return Ok(());
    }
    setup::undo(home, record, &changes).map_err(refused)?;
    let title = setup::title(record.client, record.scope, &record.root);
    Ok(out::print(&format!(
        "{title} is as it was without Substrate\n"
    ))?)
}

/// Shows what would change; whether it is to be done.
fn agreed(changes: &[Change], args: &SetupArgs) -> Result<bool, Failure> {
    let text: String = changes
        .iter()
        .filter(|change| change.is_one())
        .map(shown)
        .collect();
    if args.dry_run {
        out::print(&text)?;
        return Ok(false);
    }
    if args.yes || ask::confirm(&text, "Change this?")? {
        return Ok(true);
    }
    Err(Failure::Refused("nothing was changed".to_owned()))
}

/// A change as a patch. Settings may hold keys, so only the lines that change are shown.
fn shown(change: &Change) -> String {
    let before = change.before.as_deref().unwrap_or_default();
    let after = change.after.as_deref().unwrap_or_default();
    let diff = TextDiff::from_lines(before, after);
    let path = visible(change.path.as_os_str().as_encoded_bytes());
    let mut text = match (&change.before, &change.after) {
        (None, _) => format!("make {path}\n"),
        (_, None) => format!("remove {path}\n"),
        _ => format!("change {path}\n"),
    };
    for line in diff.iter_all_changes() {
        let sign = match line.tag() {
            similar::ChangeTag::Equal => continue,
            similar::ChangeTag::Delete => '-',
            similar::ChangeTag::Insert => '+',
        };
        text.push_str(&format!(
            "{sign} {}\n",
            visible(line.value().trim_end().as_bytes())
        ));
    }
    text
}

fn list(asker: &Asker) -> Result<(), Failure> {
    let records = setup::list(&asker.home()?).map_err(refused)?;
    let mut text = String::new();
    for record in &records {
        let title = setup::title(record.client, record.scope, &record.root);
        text.push_str(&format!(
            "{}: {}\n",
            visible(title.as_bytes()),
            words(&setup::standing(record))
        ));
    }
    if records.is_empty() {
        text.push_str("no client is set up; `substrate agent setup CLIENT` does it\n");
    }
    Ok(out::print(&text)?)
}

/// How a setup stands, in words.
pub fn words(standing: &Standing) -> String {
    match standing {
        Standing::Stands => "as it was written".to_owned(),
        Standing::Edited(path) => format!(
            "there; {} was changed since",
            visible(path.as_os_str().as_encoded_bytes())
        ),
        Standing::Gone(path) => format!(
            "gone from {}; `substrate agent setup` writes it again",
            visible(path.as_os_str().as_encoded_bytes())
        ),
        Standing::Unreadable(_, why) => visible(why.as_bytes()),
    }
}

/// Takes every setup back, for `uninstall`; answers what it did or would do, a line each.
pub fn undo_all(home: &Home, dry_run: bool) -> Result<String, Failure> {
    let mut text = String::new();
    for record in setup::list(home).map_err(refused)? {
        let title = setup::title(record.client, record.scope, &record.root);
        let title = visible(title.as_bytes());
        let changes = match setup::undone(&record) {
            Ok(changes) => changes,
            Err(error) => {
                text.push_str(&format!(
                    "the settings of {title} stay: {}\n",
                    visible(error.to_string().as_bytes())
                ));
                continue;
            }
        };
        match dry_run {
            true => text.push_str(&format!("take Substrate out of the settings of {title}\n")),
            false => {
                setup::undo(home, &record, &changes).map_err(refused)?;
                text.push_str(&format!("took Substrate out of the settings of {title}\n"));
            }
        }
    }
    Ok(text)
}
