//! The statuses by which Substrate itself answers for a command.

/// The command was refused.
pub const DENIED: i32 = 126;
/// There is no such command.
pub const NOT_FOUND: i32 = 127;
/// Substrate itself failed.
pub const FAILED: i32 = 125;
