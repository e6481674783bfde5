//! Resources that can be limited for each process.
#![allow(
    clippy::unnecessary_cast,
    reason = "the C libraries disagree about the type of these numbers"
)]

/// Processes of a user.
pub const PROCESSES: u32 = libc::RLIMIT_NPROC as u32;
/// Private writable memory.
pub const DATA: u32 = libc::RLIMIT_DATA as u32;
