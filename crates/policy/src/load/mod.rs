//! Policies as files: read, checked, complained about and compiled.

pub mod compile;
pub mod diagnostic;
mod document;
pub mod pattern;
pub mod tools;
pub mod yaml;
