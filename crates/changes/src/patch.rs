//! Shows the changes of a result: in a few words, with counts, as a patch, as JSON.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use similar::{ChangeTag, TextDiff};
use substrate_sys::{at, bounded, openat2};
use substrate_trace::json::Json;
use thiserror::Error;

use crate::change::Change;
use crate::change::ChangeKind;
use crate::compare::fill;
use crate::copy::open_own;
use crate::diff::{self, DiffError, Found, base_of, host_path};
use crate::entry::{Entry, NodeKind};
use crate::pending::Pending;
use crate::root::Root;
use substrate_text::{push_visible, size};
use substrate_world::progress::OnProgress;

/// Longer texts are only told by their size.
const TEXT_LIMIT: u64 = 1 << 20;
/// A zero byte in here makes a file binary, as git has it.
const PROBE: usize = 8000;
/// Comparing two texts that have nothing in common must not take for ever.
const PATIENCE: Duration = Duration::from_millis(500);
/// Names whose content is read together.
const TOLD_AT_ONCE: usize = 1024;
/// Fewer names than this are not worth a second thread.
const WORTH_A_THREAD: usize = 48;

/// Why changes could not be shown.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ShowError {
    /// The changes could not be found out.
    #[error(transparent)]
    Diff(#[from] DiffError),
    /// The output could not be written.
    #[error("cannot write the diff: {0}")]
    Output(#[from] io::Error),
}

/// What is put around the parts of a patch. The caller knows whether colours are wanted; with
/// colours, control characters are made visible as well, since a terminal will obey them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Paint {
    pub header: &'static str,
    pub hunk: &'static str,
    pub added: &'static str,
    pub removed: &'static str,
    pub warning: &'static str,
    pub reset: &'static str,
    pub visible: bool,
}

impl Paint {
    /// Bytes as they are, for files and pipes.
    pub const PLAIN: Self = Self {
        header: "",
        hunk: "",
        added: "",
        removed: "",
        warning: "",
        reset: "",
        visible: false,
    };
    /// No colours, but safe to look at.
    pub const VISIBLE: Self = Self {
        visible: true,
        ..Self::PLAIN
    };
    /// The usual colours.
    pub const ANSI: Self = Self {
        header: "\x1b[1m",
        hunk: "\x1b[36m",
        added: "\x1b[32m",
        removed: "\x1b[31m",
        warning: "\x1b[33m",
        reset: "\x1b[0m",
        visible: true,
    };

    fn line(&self, out: &mut dyn Write, colour: &str, text: &[u8]) -> io::Result<()> {
        out.write_all(colour.as_bytes())?;
        self.text(out, text)?;
        if !colour.is_empty() {
            out.write_all(self.reset.as_bytes())?;
        }
        out.write_all(b"\n")
    }

    fn text(&self, out: &mut dyn Write, text: &[u8]) -> io::Result<()> {
        if !self.visible {
            return out.write_all(text);
        }
        let mut shown = String::with_capacity(text.len());
        push_visible(text, &['\t'], &mut shown);
        out.write_all(shown.as_bytes())
    }
}

/// How many names of each kind changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Totals {
    pub created: u64,
    pub modified: u64,
    pub deleted: u64,
    pub dirs: u64,
    pub held: u64,
    pub conflicts: u64,
    pub bytes: u64,
}

impl Totals {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.created + self.modified + self.deleted + self.dirs == 0
    }

    fn add(&mut self, held: bool, found: &Found) {
        let change = &found.change;
        if change.is_dir() {
            self.dirs += 1;
        } else {
            match change.kind {
                ChangeKind::Created => self.created += 1,
                ChangeKind::Deleted => self.deleted += 1,
                ChangeKind::Modified | ChangeKind::Meta | ChangeKind::TypeChanged => {
                    self.modified += 1;
                }
                ChangeKind::Same => {}
            }
        }
        self.held += u64::from(held);
        self.conflicts += u64::from(found.conflict.is_some());
        if change.kind != ChangeKind::Meta {
            self.bytes += change.new.map_or(0, |e| e.size);
        }
    }

    /// One line for people.
    pub fn sentence(&self) -> String {
        let mut parts = Vec::new();
        for (count, what) in [
            (self.created, "created"),
            (self.modified, "changed"),
            (self.deleted, "deleted"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        if self.dirs > 0 {
            let word = if self.dirs == 1 {
                "directory"
            } else {
                "directories"
            };
            parts.push(format!("{} {word}", self.dirs));
        }
        if self.is_empty() {
            return "no changes".to_owned();
        }
        let mut text = format!("{} ({})", parts.join(", "), size::human(self.bytes));
        if self.held > 0 {
            text.push_str(&format!(", {} outside what may be written", self.held));
        }
        if self.conflicts > 0 {
            text.push_str(&format!(", {} in conflict with the host", self.conflicts));
        }
        text
    }
}

/// Counts what changed.
pub fn totals(pending: &Pending, progress: OnProgress<'_>) -> Result<Totals, ShowError> {
    let mut totals = Totals::default();
    diff::visit(pending, progress, &mut |found| {
        totals.add(is_held(&pending.meta().roots[found.root], &found), &found);
    })?;
    Ok(totals)
}

fn is_held(root: &Root, found: &Found) -> bool {
    let change = &found.change;
    root.held && root.holds_change(&host_path(root, change), change)
}

/// One line a name, with lines added and removed for texts and sizes for the rest.
pub fn stat(
    pending: &Pending,
    paint: Paint,
    out: &mut dyn Write,
    progress: OnProgress<'_>,
) -> Result<Totals, ShowError> {
    let mut totals = Totals::default();
    let mut waiting: Vec<Found> = Vec::new();
    let mut last = None;
    // What the names hold is read by two threads, so it is done for many at once.
    let part = |found: &Found| {
        let root = &pending.meta().roots[found.root];
        (found.root, is_held(root, found))
    };
    let mut write = |waiting: &mut Vec<Found>| -> io::Result<()> {
        let Some((number, held)) = waiting.first().map(part) else {
            return Ok(());
        };
        let sides = open_sides(&pending.meta().roots[number])?;
        if last.replace((number, held)) != Some((number, held)) {
            root_line(sides.root, held, &paint, out)?;
        }
        for (found, told) in waiting.iter().zip(tell_all(&sides, waiting)) {
            stat_line(found, &told, &paint, out)?;
        }
        waiting.clear();
        Ok(())
    };
    let mut failed: io::Result<()> = Ok(());
    diff::visit(pending, progress, &mut |found| {
        if failed.is_err() {
            return;
        }
        totals.add(part(&found).1, &found);
        let other_part = waiting.first().is_some_and(|one| part(one) != part(&found));
        if other_part || waiting.len() >= TOLD_AT_ONCE {
            failed = write(&mut waiting);
        }
        waiting.push(found);
    })?;
    failed?;
    write(&mut waiting)?;
    Ok(totals)
}

/// A patch in git's format; what git has no word for stands in lines that `patch` skips.
pub fn patch(
    pending: &Pending,
    paint: Paint,
    out: &mut dyn Write,
    progress: OnProgress<'_>,
) -> Result<Totals, ShowError> {
    let mut totals = Totals::default();
    each(pending, progress, &mut |sides, found, first| {
        let held = is_held(sides.root, found);
        totals.add(held, found);
        if first {
            root_line(sides.root, held, &paint, out)?;
        }
        patch_one(&mut Reader::new(sides), found, &paint, out)
    })?;
    Ok(totals)
}

/// The changes as one JSON object.
pub fn json(
    pending: &Pending,
    out: &mut dyn Write,
    progress: OnProgress<'_>,
) -> Result<Totals, ShowError> {
    let meta = pending.meta();
    let mut head = Json::new();
    head.key("world_id").string(&meta.world_id);
    head.key("span_id").string(&meta.span_id);
    head.key("cwd").os(&meta.cwd);
    head.key("cmd").os(&meta.cmd);
    head.key("roots").open_array();
    for root in &meta.roots {
        head.open_object();
        head.key("path").os(&root.target);
        head.key("strategy").string(root.kind.as_str());
        head.key("held").bool(root.held);
        if !root.open.is_empty() {
            head.key("open").open_array();
            for open in &root.open {
                head.os(open);
            }
            head.close_array();
        }
        head.close_object();
    }
    head.close_array();
    out.write_all(b"{\"v\":1,")?;
    out.write_all(head.as_bytes())?;
    out.write_all(b",\"changes\":[")?;
    let mut totals = Totals::default();
    each(pending, progress, &mut |sides, found, _| {
        let before = totals;
        totals.add(is_held(sides.root, found), found);
        if before != Totals::default() {
            out.write_all(b",")?;
        }
        let mut one = Json::new();
        json_one(sides.root, found, &mut one);
        out.write_all(one.as_bytes())
    })?;
    let mut tail = Json::new();
    tail.open_object();
    for (key, value) in [
        ("created", totals.created),
        ("modified", totals.modified),
        ("deleted", totals.deleted),
        ("dirs", totals.dirs),
        ("held", totals.held),
        ("conflicts", totals.conflicts),
        ("bytes", totals.bytes),
    ] {
        tail.key(key).int(value);
    }
    tail.close_object();
    out.write_all(b"],\"totals\":")?;
    out.write_all(tail.as_bytes())?;
    out.write_all(b"}\n")?;
    Ok(totals)
}

fn json_one(root: &Root, found: &Found, json: &mut Json) {
    let change = &found.change;
    let entry = |json: &mut Json, key: &str, entry: Option<Entry>| {
        let Some(entry) = entry else { return };
        json.key(key).open_object();
        json.key("type").string(entry.kind.as_str());
        json.key("mode").string(&format!("{:04o}", entry.mode));
        json.key("size").int(entry.size);
        json.key("uid").int(entry.uid);
        json.key("gid").int(entry.gid);
        let (secs, nanos) = (entry.mtime.0, entry.mtime.1);
        json.key("mtime").string(&format!("{secs}.{nanos:09}"));
        json.close_object();
    };
    json.open_object();
    json.key("path").os(host_path(root, change));
    json.key("kind").string(change.kind.as_str());
    json.key("held").bool(is_held(root, found));
    let words: Vec<&str> = field_words(change).collect();
    json.key("fields").string_array(&words);
    entry(json, "old", change.old);
    entry(json, "new", change.new);
    if let Some(conflict) = found.conflict {
        json.key("conflict").string(conflict.as_str());
    }
    json.close_object();
}

fn field_words(change: &Change) -> impl Iterator<Item = &'static str> {
    let fields = change.fields;
    [
        (fields.content, "content"),
        (fields.mode, "mode"),
        (fields.owner, "owner"),
        (fields.times, "times"),
        (fields.attributes, "attributes"),
    ]
    .into_iter()
    .filter_map(|(set, word)| set.then_some(word))
}

/// Both sides of the changes of one root.
struct Sides<'a> {
    root: &'a Root,
    host: OwnedFd,
    upper: OwnedFd,
}

/// What a name holds, as far as it can be shown.
enum Body {
    None,
    Text(Vec<u8>),
    Link(OsString),
    Binary(u64),
    Large(u64),
    Unreadable(u64),
}

/// Reads what names hold on both sides. Names come in order, so that one directory serves many.
struct Reader<'a> {
    host: Folder<'a>,
    upper: Folder<'a>,
}

/// The directory below a side that was last read from.
struct Folder<'a> {
    side: &'a OwnedFd,
    last: Option<(PathBuf, OwnedFd)>,
}

impl Folder<'_> {
    fn open(&mut self, path: &Path) -> io::Result<&OwnedFd> {
        if self.last.as_ref().is_none_or(|(known, _)| known != path) {
            let dir = openat2::dir_beneath(self.side, path)?;
            self.last = Some((path.to_owned(), dir));
        }
        match &self.last {
            Some((_, dir)) => Ok(dir),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl<'a> Reader<'a> {
    fn new(sides: &'a Sides<'_>) -> Self {
        let folder = |side| Folder { side, last: None };
        Self {
            host: folder(&sides.host),
            upper: folder(&sides.upper),
        }
    }

    fn body(&mut self, change: &Change, old: bool) -> Body {
        let (side, entry) = match old {
            true => (&mut self.host, change.old),
            false => (&mut self.upper, change.new),
        };
        let Some(entry) = entry else {
            return Body::None;
        };
        let parent = change.path.parent().unwrap_or(Path::new(""));
        let name = change.path.file_name().unwrap_or_default();
        side.open(parent)
            .and_then(|dir| read_body(dir, name, &entry, old))
            .unwrap_or(Body::Unreadable(entry.size))
    }
}

fn read_body(dir: &OwnedFd, name: &OsStr, entry: &Entry, old: bool) -> io::Result<Body> {
    match entry.kind {
        NodeKind::Symlink => Ok(Body::Link(at::readlink(dir, name)?)),
        NodeKind::File if entry.size > TEXT_LIMIT => Ok(Body::Large(entry.size)),
        NodeKind::File => {
            let mut file = match old {
                true => bounded::open_at(dir, name)?,
                false => open_own(dir, name, entry.mode)?,
            };
            let mut text = vec![0; entry.size as usize];
            let length = fill(&mut file, &mut text, entry.size)?;
            text.truncate(length);
            if text[..text.len().min(PROBE)].contains(&0) {
                return Ok(Body::Binary(text.len() as u64));
            }
            Ok(Body::Text(text))
        }
        _ => Ok(Body::None),
    }
}

/// Hands on every change with both sides at hand, and whether it is the first of its root, or of
/// those that are held there or not.
fn each(
    pending: &Pending,
    progress: OnProgress<'_>,
    show: &mut dyn FnMut(&Sides<'_>, &Found, bool) -> io::Result<()>,
) -> Result<(), ShowError> {
    let mut sides: Option<(usize, Sides<'_>)> = None;
    let mut was_held = false;
    let mut failed: io::Result<()> = Ok(());
    diff::visit(pending, progress, &mut |found| {
        if failed.is_err() {
            return;
        }
        failed = (|| {
            let root = &pending.meta().roots[found.root];
            let held = is_held(root, &found);
            let other_root = sides.as_ref().is_none_or(|(n, _)| *n != found.root);
            if other_root {
                sides = Some((found.root, open_sides(root)?));
            }
            let first = other_root || held != was_held;
            was_held = held;
            match &sides {
                Some((_, sides)) => show(sides, &found, first),
                None => Ok(()),
            }
        })();
    })?;
    Ok(failed?)
}

fn open_sides(root: &Root) -> io::Result<Sides<'_>> {
    let upper = match root.single {
        true => root.upper.parent().unwrap_or(&root.upper),
        false => &root.upper,
    };
    Ok(Sides {
        root,
        host: at::open_dir_path(base_of(root))?,
        upper: at::open_dir_path(upper)?,
    })
}

fn root_line(root: &Root, held: bool, paint: &Paint, out: &mut dyn Write) -> io::Result<()> {
    let mut text = b"# ".to_vec();
    text.extend(quoted(root.target.as_os_str()));
    if held {
        text.extend_from_slice(b" (outside what may be written; held)");
    }
    paint.line(out, paint.header, &text)
}

/// What a line of `--stat` says besides the name.
enum Told {
    /// Which of its fields changed.
    Fields,
    /// Where a symlink led, and where it leads.
    Links(Option<OsString>, OsString),
    /// Lines that were added and removed.
    Lines(usize, usize),
    /// From which length to which.
    Sizes,
    /// No more than that.
    Nothing,
}

/// Finds out what is to be told about names of one root, in their order.
fn tell_all(sides: &Sides<'_>, all: &[Found]) -> Vec<Told> {
    let tell_some = |some: &[Found]| -> Vec<Told> {
        let mut reader = Reader::new(sides);
        some.iter()
            .map(|found| tell(&mut reader, &found.change))
            .collect()
    };
    if all.len() < WORTH_A_THREAD {
        return tell_some(all);
    }
    let (first, second) = all.split_at(all.len() / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| tell_some(second));
        let mut told = tell_some(first);
        told.extend(other.join().unwrap_or_else(|_| tell_some(second)));
        told
    })
}

fn tell(reader: &mut Reader<'_>, change: &Change) -> Told {
    if change.kind == ChangeKind::Meta {
        return Told::Fields;
    }
    match (reader.body(change, true), reader.body(change, false)) {
        (Body::Link(old), Body::Link(new)) => Told::Links(Some(old), new),
        (Body::None, Body::Link(target)) => Told::Links(None, target),
        (Body::None, Body::None) => Told::Nothing,
        (old @ (Body::Text(_) | Body::None), new @ (Body::Text(_) | Body::None)) => {
            let (added, removed) = line_counts(text_of(&old), text_of(&new));
            Told::Lines(added, removed)
        }
        _ => Told::Sizes,
    }
}

fn stat_line(found: &Found, told: &Told, paint: &Paint, out: &mut dyn Write) -> io::Result<()> {
    let change = &found.change;
    let letter = match change.kind {
        ChangeKind::Created => 'A',
        ChangeKind::Modified => 'M',
        ChangeKind::Meta => 'm',
        ChangeKind::TypeChanged => 'T',
        ChangeKind::Deleted => 'D',
        ChangeKind::Same => return Ok(()),
    };
    write!(out, "{letter} ")?;
    paint.text(out, &quoted(shown(change).as_os_str()))?;
    if change.is_dir() {
        write!(out, "/")?;
    }
    match told {
        Told::Fields => {
            write!(
                out,
                " | {}",
                field_words(change).collect::<Vec<_>>().join(", ")
            )?;
            if let (Some(old), Some(new), true) = (change.old, change.new, change.fields.mode) {
                write!(out, " {:04o} -> {:04o}", old.mode, new.mode)?;
            }
        }
        Told::Links(old, new) => {
            if let Some(old) = old {
                write!(out, " | ")?;
                paint.text(out, &quoted(old))?;
            }
            write!(out, " -> ")?;
            paint.text(out, &quoted(new))?;
        }
        Told::Lines(added, removed) => {
            let (plus, minus) = (paint.added, paint.removed);
            let reset = paint.reset;
            write!(out, " | {plus}+{added}{reset} {minus}-{removed}{reset}")?;
        }
        Told::Nothing => {}
        Told::Sizes => {
            let size = |entry: Option<Entry>| entry.map_or(0, |e| e.size);
            let (from, to) = (size::human(size(change.old)), size::human(size(change.new)));
            write!(out, " | {from} -> {to}")?;
        }
    }
    conflict_note(found, paint, out)?;
    writeln!(out)
}

fn conflict_note(found: &Found, paint: &Paint, out: &mut dyn Write) -> io::Result<()> {
    if let Some(conflict) = found.conflict {
        write!(
            out,
            "  {}! {}{}",
            paint.warning,
            conflict.as_str(),
            paint.reset
        )?;
    }
    Ok(())
}

fn text_of(body: &Body) -> &[u8] {
    match body {
        Body::Text(text) => text,
        _ => &[],
    }
}

/// Compares line by line. Only a line feed ends a line, as programs that read patches have it.
fn compared<'a>(old: &'a [u8], new: &'a [u8]) -> TextDiff<'a, 'a, [u8]> {
    let lines = |text: &'a [u8]| {
        text.split_inclusive(|byte| *byte == b'\n')
            .collect::<Vec<_>>()
    };
    let mut configured = TextDiff::configure();
    configured
        .timeout(PATIENCE)
        .diff_slices(&lines(old), &lines(new))
}

/// How many lines came and went. Most changes leave the beginning and the end of a text as they
/// were, and what is left in between often is on one side only.
fn line_counts(old: &[u8], new: &[u8]) -> (usize, usize) {
    let same = std::iter::zip(old, new).take_while(|(a, b)| a == b).count();
    let start = old[..same].iter().rposition(|byte| *byte == b'\n');
    let start = start.map_or(0, |at| at + 1);
    let (old, new) = (&old[start..], &new[start..]);
    let ends = std::iter::zip(old.iter().rev(), new.iter().rev());
    let same = ends.take_while(|(a, b)| a == b).count();
    let tail = &old[old.len() - same..];
    // Only whole lines: what stands before the first line end in there may belong to another line.
    let end = match tail.iter().position(|byte| *byte == b'\n') {
        Some(at) => tail.len() - at - 1,
        None => 0,
    };
    let (old, new) = (&old[..old.len() - end], &new[..new.len() - end]);
    match (old.is_empty(), new.is_empty()) {
        (true, _) => (lines_of(new), 0),
        (_, true) => (0, lines_of(old)),
        _ => compared_lines(old, new),
    }
}

fn lines_of(text: &[u8]) -> usize {
    let ends = text.iter().filter(|byte| **byte == b'\n').count();
    ends + usize::from(text.last().is_some_and(|byte| *byte != b'\n'))
}

fn compared_lines(old: &[u8], new: &[u8]) -> (usize, usize) {
    let diff = compared(old, new);
    let count = |tag| diff.iter_all_changes().filter(|c| c.tag() == tag).count();
    (count(ChangeTag::Insert), count(ChangeTag::Delete))
}

fn patch_one(
    reader: &mut Reader<'_>,
    found: &Found,
    paint: &Paint,
    out: &mut dyn Write,
) -> io::Result<()> {
    let change = &found.change;
    if found.conflict.is_some() {
        conflict_note(found, paint, out)?;
        writeln!(out)?;
    }
    if change.kind == ChangeKind::TypeChanged {
        // git has no word for it either: the old thing goes, the new one comes.
        let half = |old: Option<Entry>, new: Option<Entry>, kind| Change {
            old,
            new,
            kind,
            ..change.clone()
        };
        patch_plain(
            reader,
            &half(change.old, None, ChangeKind::Deleted),
            paint,
            out,
        )?;
        return patch_plain(
            reader,
            &half(None, change.new, ChangeKind::Created),
            paint,
            out,
        );
    }
    patch_plain(reader, change, paint, out)
}

fn patch_plain(
    reader: &mut Reader<'_>,
    change: &Change,
    paint: &Paint,
    out: &mut dyn Write,
) -> io::Result<()> {
    let path = shown(change);
    let name = |side: &str| {
        let mut full = OsString::from(side);
        full.push(&path);
        quoted(&full)
    };
    let (a, b) = (name("a/"), name("b/"));
    if change.is_dir() {
        let mode = |entry: Option<Entry>| entry.map_or(0, |e| e.mode);
        let mut text = match change.kind {
            ChangeKind::Created => format!("# new directory, mode {:04o}: ", mode(change.new)),
            ChangeKind::Deleted => "# removed directory: ".to_owned(),
            _ => format!(
                "# directory, {} ({:04o} -> {:04o}): ",
                field_words(change).collect::<Vec<_>>().join(", "),
                mode(change.old),
                mode(change.new)
            ),
        }
        .into_bytes();
        text.extend(quoted(path.as_os_str()));
        return paint.line(out, paint.header, &text);
    }
    let head = |text: &str| text.as_bytes().to_vec();
    let mut lines = vec![[b"diff --git ", a.as_slice(), b" ", &b].concat()];
    match (change.old, change.new) {
        (None, Some(new)) => lines.push(head(&format!("new file mode {}", git_mode(&new)))),
        (Some(old), None) => lines.push(head(&format!("deleted file mode {}", git_mode(&old)))),
        (Some(old), Some(new)) if old.mode != new.mode && new.kind == NodeKind::File => {
            lines.push(head(&format!("old mode {}", git_mode(&old))));
            lines.push(head(&format!("new mode {}", git_mode(&new))));
        }
        _ => {}
    }
    let others = field_words(change).filter(|w| matches!(*w, "owner" | "times" | "attributes"));
    if change.kind == ChangeKind::Meta {
        let others: Vec<_> = others.collect();
        if !others.is_empty() {
            lines.push(head(&format!("# changed: {}", others.join(", "))));
        }
    }
    for line in &lines {
        paint.line(out, paint.header, line)?;
    }
    if change.kind == ChangeKind::Meta {
        return Ok(());
    }
    let (old, new) = (reader.body(change, true), reader.body(change, false));
    let as_text = |body: &Body| match body {
        Body::Text(text) => Some(text.clone()),
        Body::Link(target) => Some(target.as_bytes().to_vec()),
        Body::None => Some(Vec::new()),
        _ => None,
    };
    match (as_text(&old), as_text(&new)) {
        (Some(from), Some(to)) => {
            let side = |there: bool, name: &[u8]| match there {
                // As in git, a tab ends a name that holds spaces.
                true if name.contains(&b' ') => [name, b"\t"].concat(),
                true => name.to_vec(),
                false => head("/dev/null"),
            };
            let from_name = side(change.old.is_some(), &a);
            let to_name = side(change.new.is_some(), &b);
            hunks(&from, &to, &from_name, &to_name, paint, out)
        }
        _ => {
            let text = format!("# {} -> {}", describe(&old), describe(&new));
            paint.line(out, "", text.as_bytes())
        }
    }
}

fn describe(body: &Body) -> String {
    match body {
        Body::None => "nothing".to_owned(),
        Body::Text(text) => format!("text, {}", size::human(text.len() as u64)),
        Body::Link(_) => "symlink".to_owned(),
        Body::Binary(size) => format!("binary, {}", size::human(*size)),
        Body::Large(size) => format!("large, {}", size::human(*size)),
        Body::Unreadable(size) => format!("not readable, {}", size::human(*size)),
    }
}

fn hunks(
    old: &[u8],
    new: &[u8],
    old_name: &[u8],
    new_name: &[u8],
    paint: &Paint,
    out: &mut dyn Write,
) -> io::Result<()> {
    let diff = compared(old, new);
    let mut first = true;
    for hunk in diff.unified_diff().context_radius(3).iter_hunks() {
        if std::mem::take(&mut first) {
            paint.line(out, paint.header, &[b"--- ", old_name].concat())?;
            paint.line(out, paint.header, &[b"+++ ", new_name].concat())?;
        }
        paint.line(out, paint.hunk, hunk.header().to_string().as_bytes())?;
        for change in hunk.iter_changes() {
            let (sign, colour) = match change.tag() {
                ChangeTag::Equal => (b' ', ""),
                ChangeTag::Insert => (b'+', paint.added),
                ChangeTag::Delete => (b'-', paint.removed),
            };
            let value: &[u8] = change.value();
            let text = value.strip_suffix(b"\n").unwrap_or(value);
            paint.line(out, colour, &[&[sign], text].concat())?;
            if !value.ends_with(b"\n") {
                paint.line(out, "", b"\\ No newline at end of file")?;
            }
        }
    }
    Ok(())
}

fn git_mode(entry: &Entry) -> String {
    let kind = match entry.kind {
        NodeKind::Symlink => return "120000".to_owned(),
        NodeKind::Fifo => 0o010_000,
        NodeKind::Socket => 0o140_000,
        NodeKind::Device => 0o020_000,
        NodeKind::File | NodeKind::Dir => 0o100_000,
    };
    format!("{:06o}", kind | entry.mode)
}

/// The path as it is shown below its root; the root itself is a dot.
fn shown(change: &Change) -> PathBuf {
    match change.path.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => change.path.clone(),
    }
}

/// A name as git writes it: in quotes with escapes if it holds anything unusual.
fn quoted(name: &OsStr) -> Vec<u8> {
    let bytes = name.as_bytes();
    let unusual = |b: &u8| *b < 0x20 || *b == 0x7f || *b == b'"' || *b == b'\\';
    if !bytes.iter().any(unusual) && std::str::from_utf8(bytes).is_ok() {
        return bytes.to_vec();
    }
    let mut out = vec![b'"'];
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\t' => out.extend(b"\\t"),
            0x20..0x7f => out.push(byte),
            _ => out.extend(format!("\\{byte:03o}").into_bytes()),
        }
    }
    out.push(b'"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_as_a_whole_comparison_counts_them() {
        let texts: [&[u8]; 14] = [
            b"",
            b"\n",
            b"a",
            b"a\n",
            b"a\nb",
            b"a\nb\n",
            b"a\nb\nc\n",
            b"b\n",
            b"xb\n",
            b"a\nx\nb\n",
            b"a\na\na\n",
            b"a\na\n",
            b"\n\na\n",
            b"a\rb\r\nc\n",
        ];
        for old in texts {
            for new in texts {
                let shown = || format!("{:?} {:?}", old.escape_ascii(), new.escape_ascii());
                assert_eq!(
                    line_counts(old, new),
                    compared_lines(old, new),
                    "{}",
                    shown()
                );
            }
        }
    }
}
