//! The service of a user: worlds that stay warm between commands, and an API on a unix socket.
//!
//! Commands run on threads of their own, by the same functions as everywhere; only the conversation with
//! clients is asynchronous.

mod accounts;
mod attempt;
mod execute;
mod explain;
mod front;
mod http;
pub mod life;
pub mod lock;
mod locked;
mod openapi;
mod queue;
pub mod ready;
mod routes;
mod service;
pub mod setup;
mod streaming;
mod terminals;
mod who;
mod worlds;

/// Says something to whoever reads the service's standard error, with the time.
pub(crate) fn log(text: &str) {
    use std::io::Write;
    let now = substrate_text::time::Utc(std::time::SystemTime::now());
    // Nobody can be told that nobody can be told.
    let _ = writeln!(
        std::io::stderr(),
        "{now} {}",
        substrate_text::visible(text.as_bytes())
    );
}
