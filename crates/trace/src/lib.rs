//! What happened: events, the shapes they carry, and the file they are written to.
//!
//! Without features this crate only writes and stays light enough for the shim.
//! The feature `read` adds the reader.

mod digest;
pub mod env;
mod error;
mod event;
mod files;
mod glob;
mod id;
pub mod json;
mod key;
#[cfg(feature = "read")]
pub mod read;
mod redact;
mod rotate;
mod shape;
mod writer;

pub use digest::sha256_hex;
pub use env::Environment;
pub use error::Error;
pub use event::{
    AgentEvent, Answer, Approval, ClientUse, Completion, Event, MAX_LINE, Output, PolicyReload,
    RateLimit, ReplayContext, SpanInfo, Stdin, Stream, Tokens, ToolUse, Used, Via, WorldEvent,
};
pub use files::effective_user;
pub use id::{IdError, PARENT_SPAN_VAR, ParentSpan, SessionId, SpanId, WorldId, unique};
pub use key::{Authenticity, Key};
pub use redact::{MARK, Redactor};
pub use rotate::Retention;
pub use rotate::prune;
pub use shape::{
    Component, Enforced, FsDiff, Level, Mode, NetAttempt, NetUse, Outcome, RuleRef, Verdict,
    denial, denial_json,
};
pub use writer::Writer;
