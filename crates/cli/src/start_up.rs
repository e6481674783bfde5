//! Start-up files of a shell that no world holds: their lines run before any that is typed, so they are judged first.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use substrate_broker::{Answer, Around, Evaluation, Input, Origin, Request};
use substrate_executor::session::Session;
use substrate_policy::terms::Place;
use substrate_sys::bounded::{self, Links};
use substrate_sys::identity;

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
    /// The files of the user's own, as bash looks for them; those of root are the administrator's.
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
        let own = |path: &PathBuf| {
            std::fs::metadata(path).is_ok_and(|meta| meta.uid() == identity::effective_user_id())
        };
        files.retain(own);
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
    // What cannot be read, bash cannot read either.
    let Ok(text) = bounded::read(file, Links::Follow, LONGEST) else {
        return true;
    };
    let evaluation = judged(session, &text, cwd);
    let Answer::Deny(rule) = &evaluation.answer else {
        return true;
    };
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
