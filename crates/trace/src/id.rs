//! Ids of spans, sessions and worlds: a prefix and a UUIDv7, so that ids sort by time.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::rand::GetRandomFlags;
use uuid::{Builder, Uuid};

/// The environment variable that carries a [`ParentSpan`] to nested commands.
pub const PARENT_SPAN_VAR: &str = "SUBSTRATE_PARENT_SPAN";

/// Milliseconds and a 12-bit counter of the newest id of this process.
static NEWEST: AtomicU64 = AtomicU64::new(0);

/// A UUIDv7 greater than every id this process made before.
fn uuid_v7() -> Uuid {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let now = (since_epoch.as_millis() as u64) << 12;
    let next = |newest: u64| now.max(newest + 1);
    let mut stamp = now;
    // The closure always returns a value, so the update cannot fail.
    if let Ok(before) = NEWEST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some(next(n)))
    {
        stamp = next(before);
    }
    let mut bytes = random();
    // Twelve bits of counter come first, so that ids of one millisecond sort too.
    bytes[..2].copy_from_slice(&((stamp & 0xfff) as u16).to_be_bytes());
    Builder::from_unix_timestamp_millis(stamp >> 12, &bytes).into_uuid()
}

/// An id of some other kind, which nobody else has.
pub fn unique(kind: &str) -> String {
    format!("{kind}_{}", uuid_v7())
}

/// Bytes that nobody can guess. A kernel that has none yet lets us wait; one that refuses leaves the time.
fn random() -> [u8; 10] {
    let mut bytes = [0; 10];
    if rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty()) != Ok(bytes.len()) {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = since_epoch.unwrap_or_default().as_nanos();
        let unlike = nanos ^ u128::from(std::process::id()) << 64;
        bytes.copy_from_slice(&unlike.to_le_bytes()[..10]);
    }
    bytes
}

/// Understands one spelling of an id: lower case, with hyphens.
fn parse_uuid(text: &str) -> Option<Uuid> {
    let id = Uuid::try_parse(text).ok()?;
    let spelling = &mut Uuid::encode_buffer();
    (id.hyphenated().encode_lower(spelling) == text).then_some(id)
}

/// A text that is not an id of the kind it was taken for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdError {
    text: String,
    wanted: &'static str,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not {}", self.text.escape_debug(), self.wanted)
    }
}

impl std::error::Error for IdError {}

macro_rules! id {
    ($name:ident, $prefix:literal, $what:literal) => {
        #[doc = concat!("Id of ", $what, ": `", $prefix, "` and a UUIDv7.")]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// The text in front of the UUID.
            pub const PREFIX: &'static str = $prefix;

            /// A new id, greater than every id this process made before.
            #[expect(clippy::new_without_default, reason = "every call gives another value")]
            pub fn new() -> Self {
                Self(uuid_v7())
            }

            /// Milliseconds since the epoch at which the id was made.
            pub fn millis(&self) -> u64 {
                self.0.as_bytes()[..6]
                    .iter()
                    .fold(0, |n, &byte| n << 8 | u64::from(byte))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                fmt::Display::fmt(self.0.as_hyphenated(), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix($prefix)
                    .and_then(parse_uuid)
                    .map(Self)
                    .ok_or_else(|| IdError {
                        text: text.to_owned(),
                        wanted: concat!("the id of ", $what, " (", $prefix, "…)"),
                    })
            }
        }
    };
}

id!(SpanId, "spn_", "a span");
id!(SessionId, "ses_", "a session");
id!(WorldId, "wld_", "a world");

/// The span that encloses a command, as handed on in [`PARENT_SPAN_VAR`]: `ses_…/spn_…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ParentSpan {
    /// The session that the nested command joins.
    pub session: SessionId,
    /// The span that becomes its parent.
    pub span: SpanId,
}

impl ParentSpan {
    /// The enclosing span that the environment names. It only links spans together:
    /// anyone can set the variable, so no decision may rest on it.
    pub fn from_env() -> Option<Self> {
        std::env::var(PARENT_SPAN_VAR).ok()?.parse().ok()
    }
}

impl fmt::Display for ParentSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.session, self.span)
    }
}

impl FromStr for ParentSpan {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let wanted = || IdError {
            text: text.to_owned(),
            wanted: "a session and a span (ses_…/spn_…)",
        };
        let (session, span) = text.split_once('/').ok_or_else(wanted)?;
        Ok(Self {
            session: session.parse().map_err(|_| wanted())?,
            span: span.parse().map_err(|_| wanted())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_version_7_and_sort_in_the_order_they_were_made() {
        let ids: Vec<SpanId> = (0..10_000).map(|_| SpanId::new()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        let texts: Vec<String> = ids.iter().map(SpanId::to_string).collect();
        assert!(texts.is_sorted());
        for text in &texts {
            assert_eq!(text.len(), 40);
            assert_eq!(text.as_bytes()[4 + 14], b'7');
            assert!(matches!(text.as_bytes()[4 + 19], b'8'..=b'b'));
        }
    }

    #[test]
    fn ids_of_threads_differ() {
        let threads: Vec<_> = (0..8)
            .map(|_| std::thread::spawn(|| (0..1000).map(|_| SpanId::new()).collect::<Vec<_>>()))
            .collect();
        let mut ids: Vec<SpanId> = threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect();
        ids.sort();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn the_time_of_an_id_is_now() {
        let millis = SessionId::new().millis();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!(now.as_millis().abs_diff(u128::from(millis)) < 60_000);
    }

    #[test]
    fn text_and_back() {
        let parent = ParentSpan {
            session: SessionId::new(),
            span: SpanId::new(),
        };
        assert_eq!(parent.to_string().parse(), Ok(parent));
        let world = WorldId::new();
        assert_eq!(world.to_string().parse(), Ok(world));
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        let good = SpanId::new().to_string();
        for bad in [
            "",
            "spn_",
            "-",
            &good[4..],
            &good[..39],
            &good.to_uppercase(),
            &good.replace('-', "x"),
            &good.replace("spn_", "ses_"),
            &format!("{good}0"),
            "spn_ééééééééééééééééééé",
        ] {
            assert!(bad.parse::<SpanId>().is_err(), "{bad}");
        }
        let error = "x\u{1b}[2J".parse::<SpanId>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "'x\\u{1b}[2J' is not the id of a span (spn_…)"
        );
        for bad in ["", "/", &good, &format!("{good}/{good}")] {
            assert!(bad.parse::<ParentSpan>().is_err(), "{bad}");
        }
    }
}
