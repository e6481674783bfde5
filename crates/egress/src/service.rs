//! Ports of a world's own loopback that are served from outside: what listens there is made inside and
//! passed out, so that no other world, and no user of this machine, can connect to it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use substrate_init::netplan::{Action, NetFds, NetPlan, Role, Step, When};
use substrate_policy::terms::WorldSpec;
use substrate_sys::inet::{Flag, Kind};

use crate::network::{NetReport, Network, NetworkMaker};

/// Serves a listening socket until what it answers is dropped.
pub type Serve = dyn Fn(OwnedFd) -> io::Result<Box<dyn Send>> + Send + Sync;

/// A port of a world's loopback and who serves it.
#[derive(Clone)]
pub struct Service {
    /// The port.
    pub port: u16,
    /// Who serves it.
    pub serve: Arc<Serve>,
}

const BACKLOG: i32 = 128;

/// The same networks, in each of which these ports are served.
pub fn with_services(networks: Box<NetworkMaker>, services: Vec<Service>) -> Box<NetworkMaker> {
    if services.is_empty() {
        return networks;
    }
    Box::new(move |spec: &WorldSpec| {
        let Some(network) = networks(spec)? else {
            return Err(io::Error::other(
                "a service of the world's own needs a network of its own",
            ));
        };
        let served = Served {
            network,
            services: services.clone(),
            serving: Vec::new(),
        };
        Ok(Some(Box::new(served) as Box<dyn Network>))
    })
}

/// A network with services. They end before it does.
struct Served {
    serving: Vec<Box<dyn Send>>,
    network: Box<dyn Network>,
    services: Vec<Service>,
}

impl Network for Served {
    fn plan(&mut self) -> io::Result<NetPlan> {
        let mut plan = self.network.plan()?;
        plan.steps.extend(self.services.iter().map(listener));
        Ok(plan)
    }

    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        self.network.files()
    }

    fn start(&mut self, sockets: NetFds) -> io::Result<()> {
        let mut rest = NetFds {
            redirected: sockets.redirected,
            sockets: Vec::new(),
        };
        for (role, fd) in sockets.sockets {
            let served = self
                .services
                .iter()
                .find(|service| role == Role::Service(service.port));
            match served {
                Some(service) => self.serving.push((service.serve)(fd)?),
                None => rest.sockets.push((role, fd)),
            }
        }
        if self.serving.len() != self.services.len() {
            return Err(io::Error::other("a service of the world has no socket"));
        }
        self.network.start(rest)
    }

    fn update(&mut self, spec: &WorldSpec) -> io::Result<()> {
        self.network.update(spec)
    }

    fn report(&mut self) -> NetReport {
        self.network.report()
    }

    fn drain(&mut self) {
        self.network.drain();
    }

    fn finish(&mut self) -> NetReport {
        self.serving.clear();
        self.network.finish()
    }
}

fn listener(service: &Service) -> Step {
    Step {
        what: "service",
        action: Action::Socket {
            kind: Kind::Tcp,
            flags: vec![Flag::ReuseAddress],
            address: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), service.port),
            backlog: BACKLOG,
        },
        when: When::Always,
        required: true,
        redirects: false,
        role: Some(Role::Service(service.port)),
    }
}
