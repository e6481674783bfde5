//! How spans look on a terminal: columns that fit it, colours, times as people say them.

use crate::asker::Asker;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::time::{Duration, SystemTime};

use std::os::unix::ffi::OsStrExt;
use substrate_broker::process::Stat;
use substrate_shell::notice::Notices;
use substrate_sys::local_time::LocalTime;
use substrate_sys::{environment, terminal};
use substrate_text::visible_whole;
use substrate_trace::read::Span;
use unicode_width::UnicodeWidthChar;

/// Letters of an id that are enough to tell spans apart.
const SHORT: usize = 12;
/// From this width on there is room for who and where.
const WIDE: usize = 110;

/// What the place that is written to can show.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Columns, where there is a terminal.
    pub width: Option<usize>,
    /// Lines, where there is a terminal.
    pub height: Option<usize>,
    /// Characters beyond ASCII.
    pub unicode: bool,
    /// Colours.
    pub colour: bool,
    now: SystemTime,
}

/// Colours by meaning.
#[derive(Debug, Clone, Copy)]
pub enum Tint {
    /// As it should be.
    Good,
    /// Refused or failed.
    Bad,
    /// Worth a look.
    Odd,
    /// Contained.
    Calm,
    /// Less important.
    Dim,
    /// A heading.
    Bold,
}

impl Look {
    /// Reads it from standard output and the environment.
    pub fn new(asker: &Asker) -> Self {
        let stdout = std::io::stdout();
        let size = stdout
            .is_terminal()
            .then(|| terminal::size(&stdout).ok())
            .flatten()
            .filter(|size| size.columns > 0);
        Self {
            width: size.as_ref().map(|size| usize::from(size.columns)),
            height: size.map(|size| usize::from(size.rows)),
            unicode: Notices::new(&environment::raw()).unicode(),
            colour: asker.colours(),
            now: SystemTime::now(),
        }
    }

    /// Text in a colour.
    pub fn tint(&self, tint: Tint, text: &str) -> String {
        let code = match tint {
            Tint::Good => "32",
            Tint::Bad => "31",
            Tint::Odd => "33",
            Tint::Calm => "36",
            Tint::Dim => "2",
            Tint::Bold => "1",
        };
        match self.colour && !text.trim().is_empty() {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    /// Text in exactly so many columns; what is too long loses its end.
    pub fn fit(&self, text: &str, width: usize) -> String {
        let cut = self.cut(text, width);
        let pad = width.saturating_sub(columns(&cut));
        cut + &" ".repeat(pad)
    }

    /// Text in at most so many columns.
    pub fn cut(&self, text: &str, width: usize) -> String {
        if columns(text) <= width {
            return text.to_owned();
        }
        let (mark, room) = match self.unicode {
            true => ("…", width.saturating_sub(1)),
            false => ("~", width.saturating_sub(1)),
        };
        let mut used = 0;
        let kept: String = text
            .chars()
            .take_while(|c| {
                used += c.width().unwrap_or(0);
                used <= room
            })
            .collect();
        kept + mark
    }

    /// How long ago, in one short word or two.
    pub fn age(&self, at: Option<SystemTime>) -> String {
        let Some(at) = at else {
            return "?".to_owned();
        };
        let seconds = self.now.duration_since(at).unwrap_or_default().as_secs();
        let (count, unit) = match seconds {
            0..60 => (seconds, "s"),
            60..3600 => (seconds / 60, "m"),
            3600..86_400 => (seconds / 3600, "h"),
            86_400..31_536_000 => (seconds / 86_400, "d"),
            _ => (seconds / 31_536_000, "y"),
        };
        format!("{count}{unit} ago")
    }

    /// The head of the table that [`Look::row`] fills.
    pub fn head(&self) -> String {
        let mut cells = vec![
            self.fit("SPAN", SHORT),
            self.fit("WHEN", 8),
            self.fit("VERDICT", 11),
            self.fit("EXIT", 7),
            format!("{:>7}", "TIME"),
        ];
        if self.wide() {
            cells.push(self.fit("AGENT", 10));
            cells.push(self.fit("DIRECTORY", 24));
        }
        cells.push("COMMAND".to_owned());
        self.tint(Tint::Dim, &cells.join("  ")) + "\n"
    }

    /// One span in one line.
    pub fn row(&self, span: &Span) -> String {
        let (verdict, tint) = verdict(span);
        let (ended, end_tint) = ended(span);
        let time = took(span);
        let mut cells = vec![
            self.tint(Tint::Dim, &self.fit(short(&span.span_id), SHORT)),
            self.fit(&self.age(span.time()), 8),
            self.tint(tint, &self.fit(&verdict, 11)),
            self.tint(end_tint, &self.fit(&ended, 7)),
            format!("{time:>7}"),
        ];
        let mut used = SHORT + 8 + 11 + 7 + 7 + 5 * 2;
        if self.wide() {
            let cwd = span.cwd.as_ref().map(|cwd| clean(cwd.as_os_str()));
            let agent = clean(OsStr::new(span.agent_id.as_deref().unwrap_or("")));
            cells.push(self.fit(&agent, 10));
            cells.push(self.tail(&cwd.unwrap_or_default(), 24));
            used += 10 + 24 + 2 * 2;
        }
        let command = command(span);
        cells.push(match self.width {
            Some(width) => self.cut(&command, width.saturating_sub(used).max(8)),
            None => command,
        });
        cells.join("  ") + "\n"
    }

    fn wide(&self) -> bool {
        self.width.is_none_or(|width| width >= WIDE)
    }

    /// Text in exactly so many columns; of what is too long the end stays, which is what
    /// tells directories apart. Where nothing has to fit, nothing is cut.
    fn tail(&self, text: &str, width: usize) -> String {
        if self.width.is_none() || columns(text) <= width {
            let pad = width.saturating_sub(columns(text));
            return format!("{text}{}", " ".repeat(pad));
        }
        let mark = if self.unicode { "…" } else { "~" };
        let mut used = 1;
        let mut kept: Vec<char> = text
            .chars()
            .rev()
            .take_while(|c| {
                used += c.width().unwrap_or(0);
                used <= width
            })
            .collect();
        kept.reverse();
        let kept: String = kept.into_iter().collect();
        self.fit(&format!("{mark}{kept}"), width)
    }
}

fn columns(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// When it was, on the clock of whoever looks; a time that cannot be understood as it stands.
pub fn when(span: &Span) -> String {
    match span.time().and_then(LocalTime::of) {
        Some(local) => local.full(),
        None => clean(OsStr::new(&span.ts)),
    }
}

/// The time of day.
pub fn clock(span: &Span) -> String {
    match span.time().and_then(LocalTime::of) {
        Some(local) => local.clock(),
        None => clean(OsStr::new(span.ts.get(11..19).unwrap_or(&span.ts))),
    }
}

/// The end of an id.
pub fn short(id: &str) -> &str {
    id.get(id.len().saturating_sub(SHORT)..).unwrap_or(id)
}

/// Text that cannot steer a terminal.
pub fn clean(text: &OsStr) -> String {
    visible_whole(text.as_bytes())
}

/// The command of a span as one line; of a refused connection, what was refused.
pub fn command(span: &Span) -> String {
    span.cmd.as_deref().map(clean).unwrap_or_default()
}

/// What the policy said, and how that looks.
pub fn verdict(span: &Span) -> (String, Tint) {
    if let Some(outcome) = &span.outcome {
        let tint = match outcome.as_str() {
            "deny" | "refused" => Tint::Bad,
            _ => Tint::Odd,
        };
        return (clean(OsStr::new(outcome)), tint);
    }
    let word = span.verdict.as_deref().unwrap_or("");
    // A policy that only observes lets run what it would refuse.
    let observed = span.mode.as_deref() == Some("observe");
    match word {
        "deny" | "ask" if observed => (format!("would_{word}"), Tint::Odd),
        "deny" => (word.to_owned(), Tint::Bad),
        "ask" => (word.to_owned(), Tint::Odd),
        "isolate" => (word.to_owned(), Tint::Calm),
        "allow" => (word.to_owned(), Tint::Good),
        other => (clean(OsStr::new(other)), Tint::Dim),
    }
}

/// Whether the process that recorded a span is still the one of then.
pub fn is_there(span: &Span) -> bool {
    let started = span.pid.and_then(|pid| {
        let data = std::fs::metadata(format!("/proc/{pid}")).ok()?;
        data.modified().ok()
    });
    let stat = span.pid.and_then(|pid| Stat::of(&pid.to_string()));
    let lives = stat.is_some_and(|stat| !stat.ended);
    // A later process of the same number began after the span did.
    let own = match (started, span.time()) {
        (Some(started), Some(began)) => started <= began + Duration::from_secs(2),
        _ => true,
    };
    lives && own
}

/// How a span ended, and how that looks.
pub fn ended(span: &Span) -> (String, Tint) {
    match (span.event_type.as_str(), span.exit, span.signal) {
        ("command_start", ..) if is_there(span) => ("running".to_owned(), Tint::Calm),
        // Nobody lived to record how it ended.
        ("command_start", ..) => ("ended".to_owned(), Tint::Dim),
        ("builtin_command", None, _) => ("builtin".to_owned(), Tint::Dim),
        (_, _, Some(signal)) => (format!("sig {signal}"), Tint::Bad),
        (_, Some(0), _) => ("0".to_owned(), Tint::Good),
        (_, Some(exit), _) => (exit.to_string(), Tint::Bad),
        (_, None, None) => ("-".to_owned(), Tint::Dim),
    }
}

/// How long it ran; a builtin's own time is not known.
pub fn took(span: &Span) -> String {
    let known = span
        .duration_ms
        .filter(|_| span.event_type != "builtin_command");
    known.map(duration).unwrap_or_default()
}

/// A duration with three digits or so.
pub fn duration(ms: f64) -> String {
    let time = Duration::from_secs_f64(ms.clamp(0.0, 1e12) / 1000.0);
    match time.as_secs() {
        0 if ms < 10.0 => format!("{ms:.1}ms"),
        0 => format!("{ms:.0}ms"),
        1..60 => format!("{:.1}s", time.as_secs_f64()),
        60..3600 => format!("{}m{:02}s", time.as_secs() / 60, time.as_secs() % 60),
        seconds => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(width: Option<usize>) -> Look {
        Look {
            width,
            height: Some(24),
            unicode: true,
            colour: false,
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(100_000),
        }
    }

    #[test]
    fn rows_fit_the_terminal() {
        let span = Span {
            span_id: "spn_01a1e27c-3188-7001-a3f9-38e3debc9c61".into(),
            cmd: Some("echo ".repeat(80).into()),
            cwd: Some("/a/very/long/directory/with/漢字/inside/of/it".into()),
            duration_ms: Some(61_000.0),
            ..Span::default()
        };
        for width in [80, 110, 200] {
            let row = look(Some(width)).row(&span);
            assert_eq!(columns(row.trim_end_matches('\n')), width, "{row}");
            assert!(
                row.contains("38e3debc9c61") && row.contains("1m01s"),
                "{row}"
            );
        }
        assert!(look(None).row(&span).len() > 400);
    }

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(
            clean(OsStr::new("a\u{1b}[2J\n\u{202e}b")),
            "a\\u{1b}[2J\\n\\u{202e}b"
        );
    }

    #[test]
    fn ages_and_durations_are_short() {
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let look = look(None);
        for (seconds, text) in [
            (99_990, "10s ago"),
            (99_000, "16m ago"),
            (90_000, "2h ago"),
            (0, "1d ago"),
            (200_000, "0s ago"),
        ] {
            assert_eq!(look.age(at(seconds)), text);
        }
        for (ms, text) in [
            (0.44, "0.4ms"),
            (12.3, "12ms"),
            (1250.0, "1.2s"),
            (3_720_000.0, "1h02m"),
        ] {
            assert_eq!(duration(ms), text);
        }
    }
}
