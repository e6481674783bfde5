//! Shell text: parsed, expanded and walked.

mod analyse;
mod braces;
mod check;
mod expand;
mod extent;
mod flat;
mod grammar;
mod lexer;
mod parameter;
mod scope;
pub(crate) mod state;
mod survey;
pub(crate) mod syntax;
mod walk;

pub use analyse::analyse;
pub use extent::{Extent, first_command};
