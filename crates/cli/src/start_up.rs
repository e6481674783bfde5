//! Start-up files of a shell that no world holds: their lines run before any that is typed, so they are judged first.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use substrate_broker::{Answer, Around, Evaluation, Input, Origin, Request};
use substrate_executor::front::Kind;
use substrate_executor::session::Session;
use substrate_policy::Reason;
use substrate_policy::terms::Place;
use substrate_sys::bounded::{self, Links};
use substrate_sys::identity;
use substrate_trace::Verdict;

/// Longer files are nobody's start-up files.
const LONGEST: u64 = 4 << 20;

/// Which files a shell reads.
pub struct Wanted<'a> {
    /// As a login shell.
    pub login: bool,
    /// The file in place of `~/.bashrc`.
    pub rc_file: Option<&'a OsStr>,
}

impl Wanted<'_> {
    /// The files as bash looks for them, without the administrator's, which are root's.
    fn files(&self, home: &Path) -> Vec<PathBuf> {
        let rc = self
            .rc_file
            .map_or_else(|| home.join(".bashrc"), PathBuf::from);
        let mut files = vec![rc];
        if self.login {
            let names = [".bash_profile", ".bash_login", ".profile"];
            let found = names.iter().map(|name| home.join(name));
            // It reads `~/.bashrc` as well, by the custom of most systems.
            files.extend(found.into_iter().find(|path| path.exists()));
        }
        let of_an_administrator = |path: &PathBuf| {
            let owner = std::fs::metadata(path).map(|meta| meta.uid());
            owner.is_ok_and(|owner| owner == 0) && identity::effective_user_id() != 0
        };
        files.retain(|path| path.exists() && !of_an_administrator(path));
        files
    }
}

/// Whether the policy lets all of them be read. What it would ask about passes: nobody can be asked about his own
/// shell each time that it starts.
pub fn may_be_read(session: &Session, wanted: &Wanted<'_>, cwd: &Path) -> bool {
    if !session.enforces() || is_guarded(session, cwd) {
        return true;
    }
    let home = session.broker.home().user.clone();
    let files = wanted.files(&home);
    files.iter().all(|file| is_allowed(session, file, cwd))
}

/// Whether the shell lives in a world, whose guard judges what these files start.
fn is_guarded(session: &Session, cwd: &Path) -> bool {
    match judged(session, b":", cwd).answer {
        Answer::Allow(terms) | Answer::Ask(terms, _) => matches!(terms.place, Place::Session(_)),
        Answer::Deny(_) => false,
    }
}

fn is_allowed(session: &Session, file: &Path, cwd: &Path) -> bool {
    let text = match bounded::read(file, Links::Follow, LONGEST) {
        Ok(text) => text,
        // bash may wait for what is no file, or read what is too long to be judged.
        Err(error) => {
            let text = format!(
                "{} is a start-up file that cannot be judged ({error}), so the shell starts without any",
                file.display()
            );
            session.front.say(Kind::Warning, &text);
            return false;
        }
    };
    let evaluation = judged(session, &text, cwd);
    let Answer::Deny(rule) = &evaluation.answer else {
        return true;
    };
    if defines_only(&evaluation) {
        return true;
    }
    let mut line = OsString::from(". ");
    line.push(file);
    let span = session.span(&evaluation, line, Vec::new(), cwd);
    let why = format!(
        "{} is a start-up file, so the shell starts without any",
        file.display()
    );
    session.refuse(&span, rule.as_ref(), &why);
    false
}

/// Whether all that is refused is what an alias would stand for, which is judged when somebody types it.
fn defines_only(evaluation: &Evaluation) -> bool {
    let commands = &evaluation.line.invocations;
    let defined = |reason: &Reason| {
        let command = reason.invocation.and_then(|at| commands.get(at));
        let parent = command.and_then(|command| commands.get(command.parent?));
        let name = parent.and_then(|parent| parent.argv.first()?.value());
        name == Some(b"alias")
    };
    let reasons = evaluation.judgement.reasons.iter();
    let mut refused = reasons
        .filter(|reason| reason.verdict == Verdict::Deny)
        .peekable();
    refused.peek().is_some() && refused.all(defined)
}

fn judged(session: &Session, text: &[u8], cwd: &Path) -> Evaluation {
    let search_path = session.search_path();
    session.broker.evaluate(&Request {
        input: Input::Line(text),
        origin: Origin::Script,
        cwd,
        search_path: &search_path,
        variables: &[],
        aliases: &[],
        isolate: false,
        around: Around::Nothing,
    })
}
