//! Which program holds a socket of the world: the kernel names the socket's inode, `/proc` the
//! process that has it open.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use substrate_sys::inet::Kind;
use substrate_sys::{inet, netlink};

use super::record::Program;

/// Searching `/proc` costs milliseconds; a flood of refusals must not stop the gate.
const PAUSE: Duration = Duration::from_millis(20);

/// Answers who holds a socket.
#[derive(Debug)]
pub struct Who {
    diag: Option<OwnedFd>,
    namespace: Option<u64>,
    next: Duration,
}

impl Who {
    /// `diag` is a socket-diagnosis channel of the world.
    pub fn new(diag: Option<OwnedFd>) -> Who {
        let namespace = diag
            .as_ref()
            .and_then(|fd| inet::namespace_inode(fd.as_fd()).ok());
        Who {
            diag,
            namespace,
            next: Duration::ZERO,
        }
    }

    /// The program that owns the world's socket from `local` to `remote`, if it can be told.
    pub fn holds(
        &mut self,
        kind: Kind,
        local: SocketAddr,
        remote: SocketAddr,
        now: Duration,
    ) -> Option<Program> {
        if now < self.next {
            return None;
        }
        self.next = now + PAUSE;
        let diag = self.diag.as_ref()?;
        let inode = match kind {
            Kind::Tcp => query(diag, 6, local, remote),
            // The kernel swaps the two for UDP, for historical reasons.
            Kind::Udp => query(diag, 17, remote, local),
        }?;
        find(inode, self.namespace)
    }
}

fn query(diag: &OwnedFd, protocol: u8, source: SocketAddr, target: SocketAddr) -> Option<u32> {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const INODE_AT: usize = 68;
    let family = if source.is_ipv4() { 2 } else { 10 };
    let mut body = vec![family, protocol, 0, 0];
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(source.port().to_be_bytes());
    body.extend(target.port().to_be_bytes());
    for address in [source.ip(), target.ip()] {
        let mut bytes = match address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        bytes.resize(16, 0);
        body.extend(bytes);
    }
    body.extend([0; 4]);
    body.extend([0xff; 8]);
    let request = netlink::Messages::default()
        .message(SOCK_DIAG_BY_FAMILY, 0, &body)
        .finish();
    netlink::send(diag.as_fd(), &request).ok()?;
    let mut buffer = [0u8; 2048];
    let got = netlink::receive(diag.as_fd(), &mut buffer).ok()?;
    let (kind, answer) = netlink::messages(&buffer[..got]).next()?;
    if kind != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let inode = u32::from_ne_bytes(*answer.get(INODE_AT..)?.first_chunk()?);
    (inode != 0).then_some(inode)
}

fn find(inode: u32, namespace: Option<u64>) -> Option<Program> {
    let wanted = format!("socket:[{inode}]");
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse::<i32>().ok())
        else {
            continue;
        };
        let base = entry.path();
        if let Some(namespace) = namespace {
            match std::fs::metadata(base.join("ns/net")) {
                Ok(meta) if meta.ino() == namespace => {}
                _ => continue,
            }
        }
        let Ok(fds) = std::fs::read_dir(base.join("fd")) else {
            continue;
        };
        for fd in fds.flatten() {
            if std::fs::read_link(fd.path()).is_ok_and(|l| l.as_os_str() == wanted.as_str()) {
                let path = std::fs::read_link(base.join("exe")).unwrap_or_default();
                return Some(Program {
                    pid,
                    path: path.into_os_string(),
                });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn our_own_sockets_are_found() {
        let mut who = Who::new(netlink::open(netlink::SOCK_DIAG).ok());
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let (local, remote) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let found = who
            .holds(Kind::Tcp, local, remote, Duration::from_secs(1))
            .unwrap();
        assert_eq!(found.pid, std::process::id() as i32);
        assert_eq!(
            found.path,
            std::env::current_exe().unwrap().into_os_string()
        );
        assert_eq!(
            who.holds(Kind::Tcp, local, remote, Duration::from_secs(1)),
            None,
            "too soon"
        );

        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.connect(server.local_addr().unwrap()).unwrap();
        let (local, remote) = (udp.local_addr().unwrap(), server.local_addr().unwrap());
        let found = who
            .holds(Kind::Udp, local, remote, Duration::from_secs(2))
            .unwrap();
        assert_eq!(found.pid, std::process::id() as i32);
    }

    #[test]
    fn a_socket_that_is_gone_has_no_owner() {
        let mut who = Who::new(netlink::open(netlink::SOCK_DIAG).ok());
        let gone = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(
            who.holds(Kind::Tcp, gone(1), gone(2), Duration::from_secs(1)),
            None
        );
        assert_eq!(
            Who::new(None).holds(Kind::Tcp, gone(1), gone(2), Duration::from_secs(1)),
            None
        );
    }
}
