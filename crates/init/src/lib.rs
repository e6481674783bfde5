//! The first process of a world, the words it is spoken to with, and how its network is set up.

mod bare;
mod child;
pub mod control;
mod keeper;
pub mod launch;
pub mod netplan;
mod network_maker;
pub mod nft;
pub mod own_starts;
pub mod request;
pub mod routes;
pub mod starter;
mod step;
