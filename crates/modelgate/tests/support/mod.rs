//! A scripted host, plain or with TLS, and a client that says exactly what it is told to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use substrate_modelgate::{
    Credential, Event, Gate, GateConfig, Judge, Ledger, Reach, Roots, Route, Url, Wire,
};

/// What a scripted host does with a connection.
#[derive(Clone)]
pub enum Do {
    /// Reads one request.
    Read,
    /// Sends these bytes at once.
    Send(Vec<u8>),
    /// Waits.
    Wait(Duration),
}

pub fn say(text: impl AsRef<[u8]>) -> Do {
    Do::Send(text.as_ref().to_vec())
}

/// One request and this answer.
pub fn answers(body: &str, kind: &str) -> Vec<Do> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    vec![Do::Read, say(head + body)]
}

/// A scripted host; every connection follows the script from its start.
pub struct Upstream {
    pub address: SocketAddr,
    pub requests: Arc<Mutex<Vec<String>>>,
    pub connections: Arc<Mutex<usize>>,
    pub ca: Option<PathBuf>,
    _dir: Option<Dir>,
}

/// A directory that goes with its owner.
pub struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub trait Line: Read + Write + Send {}
impl<T: Read + Write + Send> Line for T {}

impl Upstream {
    pub fn plain(script: Vec<Do>) -> Upstream {
        Upstream::start(script, |socket| Some(Box::new(socket)), None)
    }

    /// With a certificate for these names, from an authority of its own.
    pub fn tls(script: Vec<Do>, names: &[&str]) -> Upstream {
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_certificate = ca.self_signed(&ca_key).unwrap();
        let issuer = rcgen::Issuer::new(ca, ca_key);
        let key = rcgen::KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let own = rcgen::CertificateParams::new(names).unwrap();
        let own = own.signed_by(&key, &issuer).unwrap();
        let dir = std::env::temp_dir().join(format!("gate-{}-{:p}", std::process::id(), &key));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("ca.pem");
        std::fs::write(&path, ca_certificate.pem()).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.der().clone()], key)
            .unwrap();
        let config = Arc::new(config);
        let wrap = move |socket: TcpStream| -> Option<Box<dyn Line>> {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, socket);
            while stream.conn.is_handshaking() {
                stream.conn.complete_io(&mut stream.sock).ok()?;
            }
            Some(Box::new(stream))
        };
        Upstream::start(script, wrap, Some((path, Dir(dir))))
    }

    fn start(
        script: Vec<Do>,
        wrap: impl Fn(TcpStream) -> Option<Box<dyn Line>> + Send + Sync + 'static,
        ca: Option<(PathBuf, Dir)>,
    ) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(Mutex::new(0));
        let (seen, count) = (Arc::clone(&requests), Arc::clone(&connections));
        let wrap = Arc::new(wrap);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let (script, seen, wrap) = (script.clone(), Arc::clone(&seen), Arc::clone(&wrap));
                *count.lock().unwrap() += 1;
                thread::spawn(move || {
                    if let Some(line) = wrap(socket) {
                        follow(line, &script, &seen);
                    }
                });
            }
        });
        let (ca, dir) = ca.unzip();
        Upstream {
            address,
            requests,
            connections,
            ca,
            _dir: dir,
        }
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn follow(mut line: Box<dyn Line>, script: &[Do], seen: &Mutex<Vec<String>>) {
    for act in script {
        match act {
            Do::Read => match read_request(&mut line) {
                Some(request) => seen.lock().unwrap().push(request),
                None => return,
            },
            Do::Send(bytes) => {
                if line.write_all(bytes).and_then(|()| line.flush()).is_err() {
                    return;
                }
            }
            Do::Wait(time) => thread::sleep(*time),
        }
    }
}

fn read_request(line: &mut Box<dyn Line>) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let mut byte = [0];
        if line.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
        if bytes.ends_with(b"\r\n\r\n") {
            break;
        }
    }
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let length = head
        .lines()
        .find_map(|l| l.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    line.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8_lossy(&body))
}

/// Lets the provider fetch from these hosts only.
pub struct Only(pub Vec<&'static str>);

impl Judge for Only {
    fn connect(&self, reach: &Reach) -> Result<(), String> {
        match reach {
            Reach::Host(host, _) if self.0.contains(&host.as_str()) => Ok(()),
            _ => Err("not in net.allowed".to_owned()),
        }
    }
}

/// A gate in front of a scripted host.
pub struct Rig {
    pub address: SocketAddr,
    pub ledger: Arc<Ledger>,
    pub events: Arc<Mutex<Vec<Event>>>,
    pub gate: Option<Gate>,
}

pub const KEY: &str = "the-real-key-a1b2c3";

pub fn rig(upstream: &Upstream, wire: Wire, routes: &[&str], limit: Option<u64>) -> Rig {
    rig_with(upstream, wire, routes, limit, |_| ())
}

pub fn rig_with(
    upstream: &Upstream,
    wire: Wire,
    routes: &[&str],
    limit: Option<u64>,
    change: impl FnOnce(&mut GateConfig),
) -> Rig {
    let ledger = Arc::new(Ledger::new(limit));
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&events);
    let scheme = if upstream.ca.is_some() {
        "https"
    } else {
        "http"
    };
    let url = format!("{scheme}://localhost:{}", upstream.address.port());
    let mut config = GateConfig {
        upstream: Url::parse(&url).unwrap(),
        roots: upstream.ca.clone().map_or(Roots::System, Roots::File),
        proxies: Default::default(),
        base: String::new(),
        wire,
        routes: routes
            .iter()
            .map(|route| Route::parse(route).unwrap())
            .collect(),
        credential: Some(Credential {
            header: "x-api-key".to_owned(),
            value: KEY.to_owned(),
        }),
        enforce: true,
        ledger: Arc::clone(&ledger),
        longest_answer: 1000,
        judge: Arc::new(Only(vec!["pictures.example"])),
        on_event: Arc::new(move |event| heard.lock().unwrap().push(event.clone())),
    };
    change(&mut config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let gate = Gate::start(listener.into(), config).unwrap();
    Rig {
        address,
        ledger,
        events,
        gate: Some(gate),
    }
}

impl Rig {
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }

    /// Sends bytes and reads until the gate closes.
    pub fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // A gate that refuses may close before it has read everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub fn post(&self, path: &str, body: &str) -> String {
        self.exchange(post(path, body, "Connection: close\r\n").as_bytes())
    }

    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }
}

pub fn post(path: &str, body: &str, headers: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: gate\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
