//! Who serves the network of a world: the seam between making worlds and the gate.

use std::io;
use std::path::PathBuf;

use substrate_init::netplan::{NetFds, NetPlan};
use substrate_policy::terms::WorldSpec;
use substrate_trace::NetUse;

/// The side of a world's network that lives on the host.
pub trait Network: Send {
    /// What to set up inside the new namespace, where `lo` is already up.
    fn plan(&mut self) -> io::Result<NetPlan>;

    /// Files that the world sees with other contents, such as `/etc/resolv.conf`. Symlinks are
    /// followed when the world is laid out.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)>;

    /// Takes the sockets that came out and starts serving; no command has started yet.
    fn start(&mut self, sockets: NetFds) -> io::Result<()>;

    /// Takes up changed terms; connections that are open stay.
    fn update(&mut self, spec: &WorldSpec) -> io::Result<()>;

    /// What passed so far and what was refused.
    fn report(&mut self) -> NetReport;

    /// Says that the programs of the world are about to be gone.
    fn drain(&mut self);

    /// Ends the network of a world whose programs are gone, once what they sent last has passed.
    fn finish(&mut self) -> NetReport;
}

/// Makes the network for a world; `None` leaves it closed.
pub type NetworkMaker = dyn Fn(&WorldSpec) -> io::Result<Option<Box<dyn Network>>> + Send + Sync;

/// What a world did with its network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetReport {
    /// Per host and port.
    pub uses: Vec<NetUse>,
    /// `tcp:host:port` of everything that was reached.
    pub scopes: Vec<String>,
    /// What could not be enforced as asked.
    pub degraded: Vec<String>,
}
