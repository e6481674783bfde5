//! `substrate mcp`: a server of the Model Context Protocol over standard streams.

use substrate_adapters::mcp::Server;

use crate::failure::Failure;

/// Serves the client at the other end of standard input until it ends.
pub fn run() -> Result<(), Failure> {
    let server = Server::new(std::env::current_exe()?, Box::new(std::io::stdout()));
    Ok(server.serve(std::io::stdin().lock())?)
}
