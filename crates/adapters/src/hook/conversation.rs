//! Which span of ours a call of the client's is: hooks are processes of their own, and what was judged
//! before a call is completed after it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use substrate_broker::Home;
use substrate_sys::bounded::{self, Links};
use substrate_sys::flags::{O_CLOEXEC, O_NOFOLLOW};
use substrate_trace::{ParentSpan, SessionId, SpanId, sha256_hex};

use crate::client::Client;

/// The directory of what is known of conversations.
pub const DIRECTORY: &str = "conversations";

/// A conversation that nobody has gone on with for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How far back the call that has just ended is looked for.
const TAIL: u64 = 64 << 10;

/// The longest line of ours.
const LINE: usize = 160;

/// A client's conversation, and our session for it.
pub struct Conversation {
    path: PathBuf,
    /// Our session.
    pub session: SessionId,
}

/// A call that was judged.
pub struct Judged {
    /// Its span.
    pub span: SpanId,
    /// When.
    pub at: SystemTime,
}

impl Conversation {
    /// The conversation that a client calls so; one of which nothing is known begins.
    pub fn open(home: &Home, client: Client, session: &str) -> io::Result<Self> {
        let path = place(home, client, session);
        if let Some(session) = first_line(&path) {
            return Ok(Self { path, session });
        }
        home.ensure(&home.path.join(DIRECTORY))?;
        begin(&path)?;
        let session = first_line(&path).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { path, session })
    }

    /// Notes the span of a call.
    pub fn note(&self, call: &str, span: SpanId) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = now.unwrap_or_default().as_millis();
        let line = format!("{} {span} {millis}\n", key(call));
        let mut options = OpenOptions::new();
        let file = options.append(true).custom_flags(O_NOFOLLOW | O_CLOEXEC);
        file.open(&self.path)?.write_all(line.as_bytes())
    }

    /// The span of a call, the newest of that name.
    pub fn find(&self, call: &str) -> Option<Judged> {
        let file = bounded::open(&self.path, Links::Refuse).ok()?;
        let text = tail(&file).ok()?;
        let key = key(call);
        let mut lines = text.lines().rev();
        lines.find_map(|line| {
            let mut words = line.split(' ');
            let ours = words.next() == Some(&key);
            let span = words.next()?.parse().ok()?;
            let millis = words.next()?.parse().ok()?;
            let at = UNIX_EPOCH.checked_add(Duration::from_millis(millis))?;
            ours.then_some(Judged { span, at })
        })
    }
}

/// The newest call that was judged in a conversation, as what runs below it is told.
pub fn newest_call(home: &Home, client: Client, session: &str) -> Option<ParentSpan> {
    let path = place(home, client, session);
    let session = first_line(&path)?;
    let text = tail(&bounded::open(&path, Links::Refuse).ok()?).ok()?;
    let newest = text.lines().next_back()?.split(' ').nth(1)?;
    let span = newest.parse().ok()?;
    Some(ParentSpan { session, span })
}

fn place(home: &Home, client: Client, session: &str) -> PathBuf {
    let name = sha256_hex([client.name(), "\n", session].concat().as_bytes());
    let directory = home.path.join(DIRECTORY);
    directory.join(name.get(..32).unwrap_or(&name))
}

/// A name of ours for the client's name of a call, which may be anything.
fn key(call: &str) -> String {
    let mut name = sha256_hex(call.as_bytes());
    name.truncate(32);
    name
}

fn first_line(path: &Path) -> Option<SessionId> {
    let file = bounded::open(path, Links::Refuse).ok()?;
    let mut line = [0; LINE];
    let length = file.read_at(&mut line, 0).ok()?;
    let text = std::str::from_utf8(&line[..length]).ok()?;
    text.split('\n').next()?.parse().ok()
}

/// Puts a whole file in place, so that of two who begin at once both read the same.
fn begin(path: &Path) -> io::Result<()> {
    let aside = path.with_extension(std::process::id().to_string());
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(&aside)?;
    let written = file.write_all(format!("{}\n", SessionId::new()).as_bytes());
    let linked = written.and_then(|()| fs::hard_link(&aside, path));
    fs::remove_file(&aside)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

fn tail(file: &File) -> io::Result<String> {
    let length = file.metadata()?.len();
    let from = length.saturating_sub(TAIL);
    let size = usize::try_from(length - from).unwrap_or_default();
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, from)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Forgets conversations that are long over. What cannot be removed stays.
pub fn forget_old(home: &Home) {
    let entries = fs::read_dir(home.path.join(DIRECTORY))
        .into_iter()
        .flatten();
    for entry in entries.flatten() {
        let age = entry.metadata().and_then(|meta| meta.modified());
        let old = age.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > FORGOTTEN));
        if old {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(top: &Path) -> Home {
        Home {
            path: top.join("home"),
            user: top.to_owned(),
        }
    }

    #[test]
    fn a_conversation_keeps_its_session_and_its_calls() {
        let top = tempfile::tempdir().unwrap();
        let home = home(top.path());
        let first = Conversation::open(&home, Client::Claude, "s").unwrap();
        let span = SpanId::new();
        first.note("toolu_1", SpanId::new()).unwrap();
        first.note("toolu_1", span).unwrap();
        first.note("a\nb c", SpanId::new()).unwrap();
        let newest = newest_call(&home, Client::Claude, "s").unwrap();
        assert_eq!(newest.session, first.session);
        assert!(newest_call(&home, Client::Claude, "t").is_none());
        let again = Conversation::open(&home, Client::Claude, "s").unwrap();
        assert_eq!(again.session, first.session);
        assert_eq!(again.find("toolu_1").unwrap().span, span);
        assert!(again.find("toolu_2").is_none());
        let other = Conversation::open(&home, Client::Codex, "s").unwrap();
        assert_ne!(other.session, first.session);
        forget_old(&home);
        assert!(again.find("toolu_1").is_some());
    }

    #[test]
    fn many_who_begin_at_once_agree() {
        let top = tempfile::tempdir().unwrap();
        let home = home(top.path());
        fs::create_dir_all(home.path.join(DIRECTORY)).unwrap();
        let path = home.path.join(DIRECTORY).join("x");
        begin(&path).unwrap();
        let known = first_line(&path).unwrap();
        begin(&path).unwrap();
        assert_eq!(first_line(&path), Some(known));
    }

    #[test]
    fn what_somebody_put_there_is_not_believed() {
        let top = tempfile::tempdir().unwrap();
        let home = home(top.path());
        let first = Conversation::open(&home, Client::Gemini, "s").unwrap();
        fs::remove_file(&first.path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &first.path).unwrap();
        assert!(Conversation::open(&home, Client::Gemini, "s").is_err());
        fs::remove_file(&first.path).unwrap();
        fs::write(&first.path, "rubbish").unwrap();
        assert!(Conversation::open(&home, Client::Gemini, "s").is_err());
    }
}
