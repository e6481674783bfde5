//! Worlds from namespaces, overlays, Landlock, seccomp and the exec guard of the Linux kernel.

mod backend;
mod c_text;
mod doing;
pub mod expand;
mod ground;
pub mod guard;
mod held;
mod host_file;
mod id_maps;
mod inside;
mod kept_out;
mod launching;
pub mod layout;
pub mod limits;
mod live;
pub mod make;
pub mod mark;
pub mod mountinfo;
pub mod netprobe;
pub mod options;
pub mod probe;
mod purpose;
pub mod rights;
pub mod sockets;
mod start;
pub mod steps;
pub mod streams;
pub mod trial;
mod weak;

pub use backend::Linux;
