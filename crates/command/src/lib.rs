//! What a command line would do: text and tool models in, invocations with words and effects out.
//!
//! The crate is pure: it looks at no file and no environment. Without the `parse` feature it
//! understands argument vectors only, which is all that a shim or the exec guard needs.

pub mod analyse;
pub mod args;
mod builtins;
pub mod codec;
mod condition;
pub mod effect;
mod effects;
pub mod environment;
mod escape;
mod finds;
mod flow;
mod invoke;
pub mod line;
pub mod model;
pub mod names;
pub mod options;
mod scope;
mod script;
mod sniff;
mod verbs;
pub mod word;

#[cfg(feature = "parse")]
mod braces;
#[cfg(feature = "parse")]
mod check;
#[cfg(feature = "parse")]
mod expand;
#[cfg(feature = "parse")]
mod extent;
#[cfg(feature = "parse")]
mod flat;
#[cfg(feature = "parse")]
mod grammar;
#[cfg(feature = "parse")]
mod lexer;
#[cfg(feature = "parse")]
mod parameter;
#[cfg(feature = "parse")]
mod survey;
#[cfg(feature = "parse")]
mod syntax;
#[cfg(feature = "parse")]
mod walk;

#[cfg(feature = "parse")]
pub use analyse::analyse;
pub use analyse::{Context, Limits, analyse_argv};
pub use args::{Args, Operand, OptionUse};
pub use effect::{Action, Effect, Object, Source};
pub use environment::harmless_assignment;
#[cfg(feature = "parse")]
pub use extent::{Extent, first_command};
pub use line::{Assignment, Cwd, Invocation, Line, Redirect, RedirectKind, Stage};
pub use model::{Models, Tool};
pub use names::{is_builtin, is_keyword};
pub use word::{Piece, Word};
