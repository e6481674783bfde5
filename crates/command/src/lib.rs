//! What a command line would do: text and tool models in, invocations with words and effects out.
//!
//! The crate is pure: it looks at no file and no environment. Without the `parse` feature it
//! understands argument vectors only, which is all that a shim or the exec guard needs.
#![cfg_attr(
    not(feature = "parse"),
    allow(dead_code, reason = "the state that only shell text fills stays empty")
)]

pub mod analyse;
pub mod args;
mod builtins;
pub mod cached;
#[cfg(feature = "parse")]
mod code;
#[cfg(not(feature = "parse"))]
#[path = "code_unread.rs"]
mod code;
pub mod codec;
mod condition;
pub mod effect;
mod effects;
pub mod environment;
mod escape;
mod files;
mod findings;
mod finds;
mod flow;
mod invoke;
pub mod line;
pub mod model;
pub mod names;
pub mod packed;
mod scope;
mod script;
#[cfg(feature = "parse")]
mod shell_text;
#[cfg(not(feature = "parse"))]
#[path = "argv_only.rs"]
mod shell_text;
mod sniff;
mod tool_call;
mod verbs;
pub mod word;

pub use analyse::{Context, Limits, analyse_argv};
pub use args::{Args, Operand, OptionUse};
pub use effect::{Action, Effect, Object, Source};
pub use environment::harmless_assignment;
pub use line::{Assignment, Called, Cwd, Invocation, Line, Redirect, RedirectKind, Stage};
pub use model::{Models, Tool};
pub use names::{is_builtin, is_keyword};
#[cfg(feature = "parse")]
pub use shell_text::{Extent, analyse, first_command};
pub use tool_call::ToolCall;
pub use word::{Piece, Word};
