//! What a world is, whatever it is made of: the seam between those who run commands and those who
//! make places for them.

pub mod backend;
pub mod error;
pub mod progress;
