//! The one host that a gate dials, directly or through the user's own proxy, and connections to it that
//! can be used again: a handshake for every request would delay every first token.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use substrate_egress::Proxies;
use substrate_egress::proxy::Proxy;
use substrate_egress::rules::Target;
use substrate_sys::poll;

use crate::config::Roots;
use crate::head;
use crate::url::Url;

/// Per address.
const CONNECTING: Duration = Duration::from_secs(15);
/// For a handshake, and for a proxy to answer.
const GREETING: Duration = Duration::from_secs(30);
/// How often whoever waits for an answer looks whether the client still does.
pub(crate) const LOOKING: Duration = Duration::from_millis(200);
/// How long a connection that nobody uses is kept; hosts close theirs after about a minute.
const IDLE: Duration = Duration::from_secs(30);
const MOST_IDLE: usize = 8;

/// Dials the host of a gate.
pub(crate) struct Dialer {
    upstream: Url,
    roots: Roots,
    proxies: Proxies,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    idle: Mutex<Vec<(Instant, Line)>>,
}

/// A connection to the host.
pub(crate) struct Line {
    stream: Stream,
    /// It has carried an answer before, so that the host may have closed it meanwhile.
    pub used: bool,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Dialer {
    /// One for this host.
    pub(crate) fn new(upstream: Url, roots: Roots, proxies: Proxies) -> Dialer {
        Dialer {
            upstream,
            roots,
            proxies,
            tls: OnceLock::new(),
            idle: Mutex::default(),
        }
    }

    /// Reads the certificates of this machine, which takes a while, before somebody waits for it.
    pub(crate) fn make_ready(&self) {
        if self.upstream.tls {
            let _ = self.tls();
        }
    }

    /// A connection that is free, or a new one.
    pub(crate) fn line(&self) -> io::Result<Line> {
        while let Some((since, line)) = self.idle().pop() {
            if since.elapsed() < IDLE && line.is_quiet() {
                return Ok(line);
            }
        }
        let socket = self.connect()?;
        socket.set_nodelay(true)?;
        let stream = match self.upstream.tls {
            false => Stream::Plain(socket),
            true => Stream::Tls(Box::new(self.greet(socket)?)),
        };
        stream.socket().set_read_timeout(Some(LOOKING))?;
        Ok(Line {
            stream,
            used: false,
        })
    }

    /// Keeps a connection for the next request.
    pub(crate) fn give_back(&self, mut line: Line) {
        line.used = true;
        let mut idle = self.idle();
        if idle.len() < MOST_IDLE {
            idle.push((Instant::now(), line));
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(Instant, Line)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let Url { host, port, .. } = &self.upstream;
        let target = match host.parse() {
            Ok(address) => Target::Address(address),
            Err(_) => Target::Name(host.as_str().into()),
        };
        match self.proxies.choose(&target, *port) {
            Some(proxy) => through(proxy, &target, *port),
            None => {
                let mut addresses: Vec<SocketAddr> = (&**host, *port).to_socket_addrs()?.collect();
                if !self.upstream.tls {
                    // What is not encrypted does not leave this machine, whatever a name leads to.
                    addresses.retain(|address| address.ip().is_loopback());
                }
                first(&addresses)
            }
        }
    }

    fn tls(&self) -> io::Result<Arc<ClientConfig>> {
        let made = self.tls.get_or_init(|| client_config(&self.roots));
        made.clone().map_err(io::Error::other)
    }

    fn greet(&self, socket: TcpStream) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let name = ServerName::try_from(self.upstream.host.clone()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(self.tls()?, name).map_err(io::Error::other)?;
        socket.set_read_timeout(Some(GREETING))?;
        socket.set_write_timeout(Some(GREETING))?;
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        stream.sock.set_write_timeout(None)?;
        Ok(stream)
    }
}

fn client_config(roots: &Roots) -> Result<Arc<ClientConfig>, String> {
    let mut store = RootCertStore::empty();
    let certificates = match roots {
        Roots::System => rustls_native_certs::load_native_certs().certs,
        Roots::File(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|error| format!("{}: {error}", path.display()))?,
    };
    store.add_parsable_certificates(certificates);
    if store.is_empty() {
        return Err(
            "no certificates are believed here; install ca-certificates, or name a file \
                    with SSL_CERT_FILE"
                .to_owned(),
        );
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    let mut config = config.with_root_certificates(store).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn first(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect_timeout(address, CONNECTING) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A tunnel through a proxy.
fn through(proxy: &Proxy, target: &Target, port: u16) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = (&*proxy.host, proxy.port).to_socket_addrs()?.collect();
    let mut socket = first(&addresses)?;
    socket.set_read_timeout(Some(GREETING))?;
    socket.set_write_timeout(Some(GREETING))?;
    socket.write_all(&proxy.connect_request(target, port))?;
    let mut answer = Vec::new();
    // Byte by byte, because what follows the head belongs to somebody else.
    while head::end(&answer).is_none() && answer.len() < head::LONGEST_REQUEST {
        let mut byte = [0];
        socket.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    let status = head::answer(&answer, "CONNECT").map(|head| head.status);
    match status {
        Ok(200..=299) => Ok(socket),
        Ok(status) => Err(io::Error::other(format!("the proxy answers {status}"))),
        Err(bad) => Err(io::Error::other(format!(
            "the answer of the proxy: {}",
            bad.0
        ))),
    }
}

impl Line {
    /// Whether nothing has come since its last answer: what comes now nobody asked for, or it is the end.
    fn is_quiet(&self) -> bool {
        let socket = self.stream.socket().as_fd();
        poll::readable(&[socket], Some(Duration::ZERO)).is_ok_and(|ready| ready == [false])
    }

    /// Sends a whole request.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => {
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }

    /// Reads what is there; `None` when nothing came for a while.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let read = match &mut self.stream {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        };
        match read {
            Ok(length) => Ok(Some(length)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        }
    }
}
