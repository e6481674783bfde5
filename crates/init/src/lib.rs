//! The first process of a world, and the words it is spoken to with.

mod child;
mod control;
pub mod launch;
pub mod netplan;
mod network_maker;
pub mod own_starts;
mod pty;
mod request;
