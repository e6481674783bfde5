//! Complaints about files: what is wrong, where, and what to write instead.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// A file that was read, kept for messages.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Its name in messages and rule references: a path, or `builtin:default.yaml`.
    pub name: String,
    /// Where it is on disk, unless it is built in.
    pub path: Option<PathBuf>,
    /// Its text.
    pub text: String,
}

/// A place in a source file.
#[derive(Debug, Clone)]
pub struct Position {
    /// The file.
    pub source: Arc<SourceFile>,
    /// Bytes of the file.
    pub range: Range<usize>,
    /// Line, counted from 1.
    pub line: u32,
}

impl SourceFile {
    /// The place of a range of bytes.
    pub fn place(self: &Arc<Self>, range: Range<usize>) -> Position {
        let before = self.text.as_bytes().get(..range.start).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Position {
            source: self.clone(),
            range,
            line: u32::try_from(line).unwrap_or(u32::MAX),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone)]
pub struct Problem {
    /// Where.
    pub place: Position,
    /// What.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

/// Why a file was not taken: everything that is wrong with it.
#[derive(Debug, Clone)]
pub struct LoadError {
    /// At least one.
    pub problems: Vec<Problem>,
}

impl LoadError {
    /// One problem.
    pub fn one(problem: Problem) -> Self {
        Self {
            problems: vec![problem],
        }
    }

    /// A problem of the file as a whole.
    pub fn whole(source: &Arc<SourceFile>, message: impl Into<String>) -> Self {
        Self::one(Problem {
            place: source.place(0..0),
            message: message.into(),
            hint: None,
        })
    }

    /// A problem at a place.
    pub fn at(place: &Position, message: impl Into<String>, hint: Option<&str>) -> Self {
        Self::one(Problem {
            place: place.clone(),
            message: message.into(),
            hint: hint.map(str::to_owned),
        })
    }
}

impl Problem {
    /// Column in characters, counted from 1.
    pub fn column(&self) -> usize {
        let text = &self.place.source.text;
        let start = self.place.range.start.min(text.len());
        let line = text.as_bytes()[..start]
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        String::from_utf8_lossy(&text.as_bytes()[line..start])
            .chars()
            .count()
            + 1
    }
}

impl Problem {
    /// The whole complaint below this heading: place, line and caret, and what to write instead.
    pub fn text(&self, heading: &str) -> String {
        let Position {
            source,
            range,
            line,
        } = &self.place;
        let title = format!(
            "{heading}: {}:{line}:{}: {}",
            source.name,
            self.column(),
            self.message
        );
        if source.text.is_empty() {
            return title;
        }
        // A caret under the first line only: the rest of a long mapping says nothing more.
        let text = source.text.as_str();
        let start = range.start.min(text.len());
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let end = range.end.clamp(start, line_end);
        let snippet = Snippet::source(text)
            .path(source.name.as_str())
            .annotation(AnnotationKind::Primary.span(start..end.max(start)));
        let report: &[Group<'_>] = &[Level::ERROR
            .primary_title(self.message.as_str())
            .element(snippet)];
        let rendered = Renderer::plain().render(report);
        // The renderer's own heading repeats ours; its body has the line and the caret.
        let body = rendered.split_once('\n').map_or("", |(_, body)| body);
        match &self.hint {
            Some(hint) => format!("{title}\n{body}\n  help: {hint}"),
            None => format!("{title}\n{body}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text("Policy validation error"))
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "{problem}")?;
        }
        f.write_str("Policy validation failed")
    }
}

impl std::error::Error for LoadError {}
