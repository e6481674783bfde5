//! Bytes of strangers as text that cannot pretend; quoting, base64, times and sizes, one of each.

pub mod base64;
mod nearest;
pub mod quote;
pub mod size;
pub mod time;
mod visible;
#[cfg(feature = "wire")]
pub mod wire;

pub use nearest::nearest;
pub use quote::command_line;
pub use visible::{HIDDEN, push_visible, unusual, visible, visible_whole};
