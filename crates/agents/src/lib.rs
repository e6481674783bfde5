//! Who works: agent programs as data, and what may be known about them on this machine.

mod descriptor;
mod find;
pub mod keys;
mod load;
mod shelf;

pub use descriptor::{
    Access, Auth, Descriptor, HomePath, Key, Model, Outcome, Outcomes, Price, is_name,
};
pub use find::{Chosen, NoModel, choose};
pub use load::{LoadError, parse, schema};
pub use shelf::{Shelf, ShelfError, shipped};
