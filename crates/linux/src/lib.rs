//! Worlds from namespaces, overlays, Landlock, seccomp and the exec guard of the Linux kernel.

mod backend;
pub mod expand;
mod ground;
pub mod guard;
mod held;
pub mod layout;
pub mod limits;
pub mod make;
pub mod mark;
pub mod mountinfo;
pub mod netprobe;
pub mod probe;
pub mod relay;
mod rights;
pub mod sockets;
mod start;
pub mod steps;
pub mod streams;
mod weak;

pub use backend::Linux;
