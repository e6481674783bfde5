//! Telling whoever started the service how it stands: a pipe on standard output, and systemd's socket.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where systemd wants to hear.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// What is written on standard output once clients can connect.
pub const READY: &[u8] = b"ready\n";

/// Says that clients can connect.
pub fn ready() {
    // Nobody may be listening, which is as well.
    let mut out = io::stdout();
    let _ = out.write_all(READY).and_then(|()| out.flush());
    tell("READY=1");
}

/// Says that no new work is taken.
pub fn stopping() {
    tell("STOPPING=1");
}

fn tell(state: &str) {
    if let Some(name) = std::env::var_os(NOTIFY_SOCKET) {
        // A supervisor that does not listen is no reason to do without the service.
        let _ = notify(&name, state.as_bytes());
    }
}

/// Sends a state to a socket by its path, or by its abstract name behind an `@`.
fn notify(name: &OsStr, state: &[u8]) -> io::Result<()> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?
        .send_to_addr(state, &address)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_arrives_at_a_path_and_at_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let abstract_name = format!("substrate-test-{}", std::process::id());
        let sockets = [
            (
                UnixDatagram::bind(&path).unwrap(),
                path.clone().into_os_string(),
            ),
            (
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&abstract_name).unwrap())
                    .unwrap(),
                format!("@{abstract_name}").into(),
            ),
        ];
        for (socket, name) in sockets {
            notify(&name, b"READY=1").unwrap();
            let mut buffer = [0; 32];
            let got = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..got], b"READY=1");
        }
        assert!(notify(OsStr::new("/nonexistent"), b"X").is_err());
    }
}
