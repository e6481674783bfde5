//! What a new network namespace needs done from inside, prepared as data.
//!
//! The steps run between clone and exec, where nothing may be allocated: every message and
//! address is complete beforehand. The sockets they make are sent to the process that owns the
//! world; a socket keeps its namespace, so the gate can serve the world from outside.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::RecvFlags;
use substrate_sys::inet::{self, Flag, Kind};
use substrate_sys::{netlink, scm};

/// The steps, in order.
#[derive(Debug, Clone, Default)]
pub struct NetPlan {
    /// Run one after the other.
    pub steps: Vec<Step>,
}

/// One step and what its failure means.
#[derive(Debug, Clone)]
pub struct Step {
    /// For messages.
    pub what: &'static str,
    /// What is done.
    pub action: Action,
    /// Whether it is done.
    pub when: When,
    /// Whether the world can do without it.
    pub required: bool,
    /// Success means that connections to every port reach one listener.
    pub redirects: bool,
    /// What the socket that it makes is for; sent out when set.
    pub role: Option<Role>,
}

/// Something done inside the namespace.
#[derive(Debug, Clone)]
pub enum Action {
    /// A netlink request.
    Request {
        /// Netlink protocol.
        protocol: netlink::Protocol,
        /// Complete messages.
        message: Vec<u8>,
        /// How many acknowledgements are due.
        acks: usize,
    },
    /// A netlink socket of its own, set up by a request (none when empty).
    Channel {
        /// Netlink protocol.
        protocol: netlink::Protocol,
        /// Complete messages.
        message: Vec<u8>,
        /// How many acknowledgements are due.
        acks: usize,
    },
    /// An internet socket.
    Socket {
        /// TCP or UDP.
        kind: Kind,
        /// Options, in order.
        flags: Vec<Flag>,
        /// Family, and where it is bound; port 0 means not bound.
        address: SocketAddr,
        /// Length of the listen queue; 0 means not listening.
        backlog: i32,
    },
}

/// When a step applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// Only once a redirecting step has worked.
    Redirected,
    /// Only as long as none has.
    NotRedirected,
}

/// What a socket that was sent out is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Queries to the stub resolver.
    DnsUdp,
    /// The same over TCP.
    DnsTcp,
    /// Connections of the world, whatever they dialled.
    Listener,
    /// Questions about the world's sockets.
    Diag,
    /// Packets that were rejected.
    Log,
    /// An unconnected socket with which a port of the world can be dialled.
    Dialer,
    /// Connections to this port of the world's own loopback, which are served from outside.
    Service(u16),
}

/// What a message begins with that tells of a failed step.
const FAILED: u8 = 0xff;

/// A step failed that the world cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepError {
    /// Index of the step.
    pub step: usize,
    /// The errno.
    pub code: i32,
}

/// What the steps made; lives on the stack.
pub struct Made {
    fds: [Option<OwnedFd>; scm::MAX_FDS],
    steps: [u16; scm::MAX_FDS],
    count: usize,
    redirected: bool,
}

impl Made {
    /// Nothing yet.
    pub fn new() -> Made {
        Made {
            fds: [const { None }; scm::MAX_FDS],
            steps: [0; scm::MAX_FDS],
            count: 0,
            redirected: false,
        }
    }

    fn keep(&mut self, step: usize, fd: OwnedFd) -> io::Result<()> {
        let slot = self
            .fds
            .get_mut(self.count)
            .ok_or(io::ErrorKind::QuotaExceeded)?;
        *slot = Some(fd);
        self.steps[self.count] = step as u16;
        self.count += 1;
        Ok(())
    }

    /// Sends everything to the owner of the world, or what went wrong; allocates nothing.
    pub fn send(&self, done: Result<(), StepError>, socket: BorrowedFd<'_>) -> io::Result<()> {
        let mut bytes = [0u8; 1 + 2 * scm::MAX_FDS];
        if let Err(error) = done {
            bytes[0] = FAILED;
            bytes[1..3].copy_from_slice(&(error.step as u16).to_ne_bytes());
            bytes[3..7].copy_from_slice(&error.code.to_ne_bytes());
            return scm::send(socket, &bytes[..7], &[]);
        }
        let mut all = [socket; scm::MAX_FDS];
        bytes[0] = u8::from(self.redirected);
        let made = self.fds.iter().flatten().zip(&self.steps);
        for (i, (fd, step)) in made.enumerate() {
            bytes[1 + 2 * i..3 + 2 * i].copy_from_slice(&step.to_ne_bytes());
            all[i] = fd.as_fd();
        }
        scm::send(socket, &bytes[..1 + 2 * self.count], &all[..self.count])
    }
}

impl Default for Made {
    fn default() -> Made {
        Made::new()
    }
}

impl NetPlan {
    /// Runs the steps in the calling thread's network namespace; allocates nothing.
    pub fn run(&self, made: &mut Made) -> Result<(), StepError> {
        let mut sockets: [Option<(netlink::Protocol, OwnedFd)>; 2] = [None, None];
        for (index, step) in self.steps.iter().enumerate() {
            let applies = match step.when {
                When::Always => true,
                When::Redirected => made.redirected,
                When::NotRedirected => !made.redirected,
            };
            if !applies {
                continue;
            }
            match step.perform(index, made, &mut sockets) {
                Ok(()) => made.redirected |= step.redirects,
                Err(_) if !step.required => {}
                Err(e) => {
                    return Err(StepError {
                        step: index,
                        code: e.raw_os_error().unwrap_or(0),
                    });
                }
            }
        }
        Ok(())
    }

    /// Receives what `Made::send` sent.
    pub fn receive(&self, socket: BorrowedFd<'_>) -> io::Result<NetFds> {
        let mut bytes = [0u8; 1 + 2 * scm::MAX_FDS];
        let mut fds = [const { None }; scm::MAX_FDS];
        let arrived = scm::receive(socket, &mut bytes, &mut fds, RecvFlags::empty())?;
        let (redirected, steps) = match bytes[..arrived.length].split_first() {
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some((&FAILED, &[a, b, c, d, e, f])) => {
                let error = StepError {
                    step: usize::from(u16::from_ne_bytes([a, b])),
                    code: i32::from_ne_bytes([c, d, e, f]),
                };
                return Err(io::Error::other(self.describe(error)));
            }
            Some((&redirected, steps)) => (redirected, steps),
        };
        let mut sockets = Vec::new();
        for (fd, step) in fds.into_iter().flatten().zip(steps.chunks_exact(2)) {
            let index = usize::from(u16::from_ne_bytes([step[0], step[1]]));
            let role = self.steps.get(index).and_then(|s| s.role);
            sockets.push((role.ok_or(io::ErrorKind::InvalidData)?, fd));
        }
        Ok(NetFds {
            redirected: redirected != 0,
            sockets,
        })
    }

    /// Words for a failed step.
    pub fn describe(&self, error: StepError) -> String {
        let what = self
            .steps
            .get(error.step)
            .map_or("network set-up", |s| s.what);
        format!("{what}: {}", io::Error::from_raw_os_error(error.code))
    }
}

impl Step {
    fn perform(
        &self,
        index: usize,
        made: &mut Made,
        sockets: &mut [Option<(netlink::Protocol, OwnedFd)>; 2],
    ) -> io::Result<()> {
        match &self.action {
            Action::Request {
                protocol,
                message,
                acks,
            } => {
                let slot = sockets
                    .iter_mut()
                    .find(|s| s.as_ref().is_none_or(|(p, _)| p == protocol))
                    .ok_or(io::ErrorKind::QuotaExceeded)?;
                let (_, fd) = match slot {
                    Some(open) => open,
                    None => slot.insert((*protocol, netlink::open(*protocol)?)),
                };
                netlink::transact(fd.as_fd(), message, *acks)
            }
            Action::Channel {
                protocol,
                message,
                acks,
            } => {
                let fd = netlink::open(*protocol)?;
                if !message.is_empty() {
                    netlink::transact(fd.as_fd(), message, *acks)?;
                }
                made.keep(index, fd)
            }
            Action::Socket {
                kind,
                flags,
                address,
                backlog,
            } => {
                let fd = inet::socket(*kind, address.is_ipv6())?;
                for flag in flags {
                    inet::set(fd.as_fd(), *flag)?;
                }
                if address.port() != 0 {
                    inet::bind(fd.as_fd(), address)?;
                }
                if *backlog > 0 {
                    inet::listen(fd.as_fd(), *backlog)?;
                }
                made.keep(index, fd)
            }
        }
    }
}

/// The world's sockets, on the owner's side.
#[derive(Debug)]
pub struct NetFds {
    /// Every port reaches the gate; false means only the ports that have a listener.
    pub redirected: bool,
    /// Each socket and what it is for.
    pub sockets: Vec<(Role, OwnedFd)>,
}
