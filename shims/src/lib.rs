//! The guard in front of a tool: it judges its own argv, then becomes the tool.
//!
//! The binary is what `substrate shim install` puts on PATH. The parts that `substrate shim-exec`
//! shares with it, finding the tool and starting it, are this library.

pub mod enclosed;
pub mod guard;
pub mod handover;
pub mod installed;
pub mod notice;
pub mod quick;
pub mod record;
pub mod start;
pub mod tool;

/// The command was refused.
pub const DENIED: i32 = 126;
/// There is no such command.
pub const NOT_FOUND: i32 = 127;
/// Substrate itself failed.
pub const FAILED: i32 = 125;
