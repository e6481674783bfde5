//! What a client and the service say to each other: JSON over HTTP on a unix socket.
//!
//! Every document carries `v`. A client that sends a newer one is refused with a sentence; fields that
//! nobody knows are refused too, because a setting that is ignored protects nobody.

pub mod approvals;
mod bytes;
pub mod client;
pub mod errors;
pub mod execute;
pub mod explain;
pub mod service;
pub mod stream;

pub use bytes::Bytes;

/// The version of everything here.
pub const VERSION: u32 = 1;

/// What `v` is in a document that does not say.
pub(crate) fn version() -> u32 {
    VERSION
}
