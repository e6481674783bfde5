//! The compiled policy: its file format, a reader that trusts nothing, and the matchers that the
//! full judge and the shim share, so that they cannot drift apart. No dependencies.

pub mod codec;
pub mod file;
pub mod glob;
pub mod paths;
pub mod rules;
pub mod stamp;

pub use file::{Compiled, Reject, Section};
pub use rules::{Fit, Operand, OperandPattern, Program, Rule, Stage, View};
