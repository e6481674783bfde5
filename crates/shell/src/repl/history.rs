//! Lines of the past: one file for all running shells, searched by the editor.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustyline::history::{History, SearchDirection, SearchResult};

use super::keys;
use crate::gate::{Recall, Remembered};

/// How many lines are kept in memory.
const CAPACITY: usize = 20_000;
/// How many lines of the trace a search looks at besides; they come before all others.
const OLDER: usize = 10_000;
/// Past this size the file is cut to its newer half when a shell starts.
const FILE_LIMIT: u64 = 8 << 20;

/// Adds a line to the history file of the user's own shell, as that does at its end with `histappend`. One that is
/// no plain file of his is left alone.
pub fn append_to_shell(path: &Path, line: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(substrate_sys::flags::O_NOFOLLOW | substrate_sys::flags::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    file.write_all(&[line, b"\n"].concat())
}

/// Takes secrets out of a line before it reaches the disk.
pub type Redact = fn(&[u8]) -> Cow<'_, [u8]>;

/// The history of a session, shared through its file.
pub struct SharedHistory {
    entries: Vec<Remembered>,
    file: Option<PathBuf>,
    read_up_to: u64,
    redact: Redact,
    fresh: bool,
    recall: Cell<Option<Recall>>,
    older: OnceCell<Vec<Remembered>>,
}

impl SharedHistory {
    /// A history kept in this file, or in memory alone.
    pub fn new(file: Option<PathBuf>, redact: Redact) -> Self {
        Self {
            entries: Vec::new(),
            file,
            read_up_to: 0,
            redact,
            fresh: true,
            recall: Cell::new(None),
            older: OnceCell::new(),
        }
    }

    /// Takes in what this and other shells have added to the file.
    pub fn refresh(&mut self) -> io::Result<()> {
        let Some(path) = self.file.clone() else {
            return Ok(());
        };
        if self.fresh {
            self.fresh = false;
            shorten(&path)?;
        }
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        if length < self.read_up_to {
            // Another shell shortened it: what was read before is still in memory.
            self.read_up_to = length;
        }
        if length == self.read_up_to {
            return Ok(());
        }
        file.seek(SeekFrom::Start(self.read_up_to))?;
        let mut added = Vec::new();
        file.take(length - self.read_up_to)
            .read_to_end(&mut added)?;
        // A line that another shell is writing this moment is read next time.
        let whole = added
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        for line in added
            .get(..whole)
            .unwrap_or_default()
            .split(|&byte| byte == b'\n')
        {
            if !line.is_empty() {
                self.push(Remembered {
                    line: keys::to_text(&unescape(line)),
                    ..Remembered::default()
                });
            }
        }
        self.read_up_to += whole as u64;
        Ok(())
    }

    /// Has a search look at these lines, too; they are asked for when the first search comes.
    pub fn set_recall(&mut self, recall: Recall) {
        self.recall.set(Some(recall));
    }

    fn older(&self) -> &[Remembered] {
        self.older.get_or_init(|| {
            let mut older = self
                .recall
                .take()
                .map(|recall| recall())
                .unwrap_or_default();
            older.drain(..older.len().saturating_sub(OLDER));
            older
        })
    }

    /// The line at a place; those of the trace have the places below [`OLDER`].
    fn at(&self, index: usize) -> Option<&Remembered> {
        match index.checked_sub(OLDER) {
            Some(index) => self.entries.get(index),
            None => {
                let older = self.older.get()?;
                older.get(index.checked_sub(OLDER - older.len())?)
            }
        }
    }

    /// Remembers a line, here and in the file, unless it starts with a space.
    pub fn remember(&mut self, line: &[u8], cwd: &Path) -> io::Result<()> {
        if line.first().is_none_or(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let text = keys::to_text(line);
        let repeated = self.entries.last().is_some_and(|last| last.line == text);
        self.push(Remembered {
            line: text,
            cwd: Some(cwd.to_path_buf()),
            ..Remembered::default()
        });
        if repeated {
            return Ok(());
        }
        let Some(path) = &self.file else {
            return Ok(());
        };
        let redacted = (self.redact)(line);
        let mut record = escape(&redacted);
        record.push(b'\n');
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(&record)?;
        // Our own line is in memory already, and there with its secrets.
        if file.metadata()?.len() == self.read_up_to + record.len() as u64 {
            self.read_up_to += record.len() as u64;
        }
        Ok(())
    }

    /// Notes how the line remembered last came out.
    pub fn note_outcome(&mut self, status: i32, verdict: Option<&str>) {
        if let Some(last) = self.entries.last_mut() {
            last.status = Some(status);
            last.verdict = verdict.map(str::to_owned);
        }
    }

    fn push(&mut self, entry: Remembered) {
        if self
            .entries
            .last()
            .is_some_and(|last| last.line == entry.line)
        {
            self.entries.pop();
        }
        self.entries.push(entry);
        if self.entries.len() > CAPACITY {
            self.entries.drain(..CAPACITY / 4);
        }
    }

    /// The nearest line from a place on, at `least` or after, that matches.
    fn find(
        &self,
        (least, start): (usize, usize),
        direction: SearchDirection,
        matches: impl Fn(&Remembered) -> Option<usize>,
    ) -> Option<SearchResult<'_>> {
        let found = |idx: usize| Some((idx, matches(self.at(idx)?)?));
        let (idx, pos) = match direction {
            SearchDirection::Reverse => (least..start.saturating_add(1).min(self.len()))
                .rev()
                .find_map(found),
            SearchDirection::Forward => (start.max(least)..self.len()).find_map(found),
        }?;
        let entry = self.at(idx)?;
        Some(SearchResult {
            entry: Cow::Borrowed(&entry.line),
            idx,
            pos,
        })
    }
}

/// A search term: words, and filters `dir:`, `exit:` and `verdict:` over what is known.
struct Term<'a> {
    text: Cow<'a, str>,
    filters: Vec<(&'a str, &'a str)>,
}

impl<'a> Term<'a> {
    fn parse(term: &'a str) -> Self {
        let mut filters = Vec::new();
        let mut words = Vec::new();
        for word in term.split(' ') {
            match word.split_once(':') {
                Some((name @ ("dir" | "exit" | "verdict"), value)) => filters.push((name, value)),
                _ => words.push(word),
            }
        }
        if filters.is_empty() {
            return Self {
                text: Cow::Borrowed(term),
                filters,
            };
        }
        Self {
            text: Cow::Owned(words.join(" ").trim().to_owned()),
            filters,
        }
    }

    fn matches(&self, entry: &Remembered) -> Option<usize> {
        let kept = self.filters.iter().all(|(name, value)| match *name {
            "dir" => entry
                .cwd
                .as_ref()
                .is_some_and(|cwd| cwd.to_string_lossy().contains(value)),
            "exit" => entry
                .status
                .is_some_and(|status| status.to_string() == *value),
            _ => entry
                .verdict
                .as_deref()
                .is_some_and(|verdict| verdict.starts_with(value)),
        });
        if kept {
            entry.line.find(&*self.text)
        } else {
            None
        }
    }
}

impl History for SharedHistory {
    fn get(
        &self,
        index: usize,
        direction: SearchDirection,
    ) -> rustyline::Result<Option<SearchResult<'_>>> {
        // Walking through lines stays among those of the history; only a search goes beyond.
        let index = match direction {
            SearchDirection::Forward => index.max(OLDER),
            SearchDirection::Reverse if index < OLDER => return Ok(None),
            SearchDirection::Reverse => index,
        };
        Ok(self.at(index).map(|entry| SearchResult {
            entry: Cow::Borrowed(&entry.line),
            idx: index,
            pos: 0,
        }))
    }

    fn add(&mut self, _: &str) -> rustyline::Result<bool> {
        Ok(false)
    }

    fn add_owned(&mut self, _: String) -> rustyline::Result<bool> {
        Ok(false)
    }

    fn len(&self) -> usize {
        OLDER + self.entries.len()
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.older().is_empty()
    }

    fn set_max_len(&mut self, _: usize) -> rustyline::Result<()> {
        Ok(())
    }

    fn ignore_dups(&mut self, _: bool) -> rustyline::Result<()> {
        Ok(())
    }

    fn ignore_space(&mut self, _: bool) {}

    fn save(&mut self, _: &Path) -> rustyline::Result<()> {
        Ok(())
    }

    fn append(&mut self, _: &Path) -> rustyline::Result<()> {
        Ok(())
    }

    fn load(&mut self, _: &Path) -> rustyline::Result<()> {
        Ok(())
    }

    fn clear(&mut self) -> rustyline::Result<()> {
        self.entries.clear();
        Ok(())
    }

    fn search(
        &self,
        term: &str,
        start: usize,
        direction: SearchDirection,
    ) -> rustyline::Result<Option<SearchResult<'_>>> {
        if term.is_empty() {
            return Ok(None);
        }
        let term = Term::parse(term);
        let least = OLDER - self.older().len();
        // What the history has is not shown again from the trace, unless the search asks for
        // what only the trace knows.
        let own: HashSet<&str> = if term.filters.is_empty() && start >= least {
            self.entries
                .iter()
                .map(|entry| entry.line.as_str())
                .collect()
        } else {
            HashSet::new()
        };
        let older = self.older().as_ptr_range();
        Ok(self.find((least, start), direction, |entry| {
            let repeated =
                older.contains(&std::ptr::from_ref(entry)) && own.contains(entry.line.as_str());
            if repeated { None } else { term.matches(entry) }
        }))
    }

    fn starts_with(
        &self,
        term: &str,
        start: usize,
        direction: SearchDirection,
    ) -> rustyline::Result<Option<SearchResult<'_>>> {
        if term.is_empty() {
            return Ok(None);
        }
        Ok(self.find((OLDER, start), direction, |entry| {
            entry.line.starts_with(term).then_some(term.len())
        }))
    }
}

fn shorten(path: &Path) -> io::Result<()> {
    let length = match std::fs::metadata(path) {
        Ok(data) => data.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if length <= FILE_LIMIT {
        return Ok(());
    }
    let content = std::fs::read(path)?;
    let newer = content.get(content.len() / 2..).unwrap_or_default();
    let start = newer
        .iter()
        .position(|&byte| byte == b'\n')
        .map_or(0, |at| at + 1);
    let replacement = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&replacement)?;
    file.write_all(newer.get(start..).unwrap_or_default())?;
    std::fs::rename(replacement, path)
}

fn escape(line: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(line.len() + 1);
    for &byte in line {
        match byte {
            b'\n' => escaped.extend_from_slice(b"\\n"),
            b'\\' => escaped.extend_from_slice(b"\\\\"),
            _ => escaped.push(byte),
        }
    }
    escaped
}

fn unescape(record: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(record.len());
    let mut bytes = record.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'\\' {
            line.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'n') => line.push(b'\n'),
            Some(&other) => line.push(other),
            None => line.push(b'\\'),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(line: &[u8]) -> Cow<'_, [u8]> {
        Cow::Borrowed(line)
    }

    fn masked(line: &[u8]) -> Cow<'_, [u8]> {
        let text = String::from_utf8_lossy(line).replace("hunter2", "***");
        Cow::Owned(text.into_bytes())
    }

    #[test]
    fn two_shells_share_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        let mut one = SharedHistory::new(Some(path.clone()), plain);
        let mut two = SharedHistory::new(Some(path.clone()), plain);
        one.refresh().unwrap();
        two.refresh().unwrap();
        one.remember(b"echo one\necho more \\", Path::new("/"))
            .unwrap();
        two.refresh().unwrap();
        two.remember(b"echo two", Path::new("/")).unwrap();
        one.refresh().unwrap();
        let lines: Vec<&str> = one
            .entries
            .iter()
            .map(|entry| entry.line.as_str())
            .collect();
        assert_eq!(lines, ["echo one\necho more \\", "echo two"]);
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn spaces_and_repeats_are_left_out_and_secrets_stay_off_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        let mut history = SharedHistory::new(Some(path.clone()), masked);
        history.remember(b" secret", Path::new("/")).unwrap();
        history
            .remember(b"login --password=hunter2", Path::new("/"))
            .unwrap();
        history
            .remember(b"login --password=hunter2", Path::new("/"))
            .unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "login --password=***\n"
        );
        assert_eq!(
            history.entries.last().unwrap().line,
            "login --password=hunter2"
        );
        history.refresh().unwrap();
        assert_eq!(history.entries.len(), 1);
    }

    #[test]
    fn a_search_goes_on_into_the_trace() {
        let mut history = SharedHistory::new(None, plain);
        let old = |line: &str, cwd: &str, status| Remembered {
            line: line.to_owned(),
            cwd: Some(PathBuf::from(cwd)),
            status: Some(status),
            verdict: Some("allow".to_owned()),
        };
        let older = vec![old("make old", "/srv/x", 2), old("make new", "/srv/y", 0)];
        history.set_recall(Box::new(|| older));
        history.remember(b"make new", Path::new("/srv/z")).unwrap();
        let last = history.len() - 1;
        let found = |term: &str, start| {
            let result = history.search(term, start, SearchDirection::Reverse);
            result
                .unwrap()
                .map(|result| (result.idx, result.entry.into_owned()))
        };
        assert_eq!(found("make", last), Some((last, "make new".to_owned())));
        // The same line from the trace is passed over, except where the trace knows more.
        assert_eq!(found("make", last - 1).unwrap().1, "make old");
        assert_eq!(found("dir:/srv/y", last).unwrap().1, "make new");
        assert_eq!(found("exit:2", last).unwrap().1, "make old");
        assert_eq!(found("exit:7", last), None);
        // Going up ends with the history's own lines.
        assert!(
            history
                .get(last - 1, SearchDirection::Reverse)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_search_can_filter_by_what_is_known() {
        let mut history = SharedHistory::new(None, plain);
        history.remember(b"make one", Path::new("/srv/a")).unwrap();
        history.note_outcome(2, Some("allow"));
        history.remember(b"make two", Path::new("/srv/b")).unwrap();
        history.note_outcome(0, Some("deny"));
        let found = |term: &str| {
            history
                .search(term, OLDER + 1, SearchDirection::Reverse)
                .unwrap()
                .map(|result| result.idx - OLDER)
        };
        assert_eq!(found("make"), Some(1));
        assert_eq!(found("make exit:2"), Some(0));
        assert_eq!(found("dir:srv/a"), Some(0));
        assert_eq!(found("verdict:deny make"), Some(1));
        assert_eq!(found("verdict:ask"), None);
    }
}
