//! A small internet in a network namespace of its own, and worlds that hang on it.
//!
//! Every test runs twice: the outer run starts this same binary inside new user, network and
//! mount namespaces; the inner run owns that "internet" (any address can be local there, any
//! port bound) and starts worlds as further copies of this binary.

// Helpers of tests: each file uses its share, and a failed step is a failed test.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use substrate_egress::{self as egress, Event, Gate, GateConfig, HostFiles, NetReport};
use substrate_init::netplan::{Made, NetPlan};
use substrate_policy::terms::{HostPattern, HostRule, Mode, NetSpec};

const INSIDE: &str = "EGRESS_RIG_INTERNET";
const WORLD: &str = "EGRESS_RIG_WORLD";

/// Runs a test body inside an internet of its own.
pub fn internet(name: &str, body: impl FnOnce(&Internet)) {
    internet_as(name, None, body);
}

/// The same, as another user of the machine (only when the tests run as root).
pub fn internet_as(name: &str, user: Option<u32>, body: impl FnOnce(&Internet)) {
    if std::env::var(INSIDE).as_deref() == Ok(name) {
        return body(&Internet::new());
    }
    let missing: Vec<&str> = [
        "unshare", "ip", "mount", "setpriv", "curl", "python3", "openssl",
    ]
    .into_iter()
    .filter(|tool| !on_path(tool))
    .collect();
    if !missing.is_empty() {
        return skip(name, &format!("needs {}", missing.join(", ")));
    }
    let probe = Command::new("unshare").args(["-Urnm", "true"]).output();
    if !probe.is_ok_and(|o| o.status.success()) {
        return skip(name, "user and network namespaces are not permitted here");
    }
    let exe = std::env::current_exe().unwrap();
    let mut command = match user {
        None => Command::new("unshare"),
        Some(uid) => {
            let mut c = Command::new("setpriv");
            c.arg(format!("--reuid={uid}"))
                .arg(format!("--regid={uid}"));
            c.args(["--clear-groups", "unshare"]);
            c
        }
    };
    command
        .args([
            "--user",
            "--map-root-user",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
        ])
        .args(["--mount-proc", "--"])
        .arg(exe)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, name)
        .env("RUST_BACKTRACE", "0");
    for variable in egress::proxy::VARIABLES {
        command.env_remove(variable);
    }
    let output = command.output().unwrap();
    if !output.status.success() {
        panic!(
            "{name} failed inside its internet ({})\n{}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    for text in [&output.stdout, &output.stderr] {
        let shown = |l: &&str| l.starts_with("SKIPPED") || l.starts_with("BENCH");
        for line in String::from_utf8_lossy(text).lines().filter(shown) {
            say(line);
        }
    }
}

/// Says aloud that something was not tested.
pub fn skip(name: &str, why: &str) {
    substrate_rig::skip(name, why);
}

/// Writes to the real standard error, which the test harness does not swallow.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Whether a program is there.
pub fn on_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(tool).is_file())
}

/// The internet: local addresses of all kinds, a resolver, servers.
pub struct Internet {
    pub dir: PathBuf,
    zone: Arc<Mutex<HashMap<String, Vec<IpAddr>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Internet {
    fn new() -> Internet {
        for arguments in [
            "link set lo up",
            "route add local 9.9.9.0/24 dev lo",
            "route add local 10.0.0.0/24 dev lo",
            "route add local 169.254.169.254/32 dev lo",
            "addr add 9.9.8.1/32 dev lo",
            "-6 route add local 2606:4700::/64 dev lo",
        ] {
            let status = Command::new("ip")
                .args(arguments.split(' '))
                .status()
                .unwrap();
            assert!(status.success(), "ip {arguments}");
        }
        let dir = std::env::temp_dir().join(format!("egress-{}-{}", std::process::id(), nonce()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(
            dir.join("resolv.conf"),
            "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
        )
        .unwrap();
        std::fs::write(
            dir.join("hosts"),
            "127.0.0.1 localhost\n9.9.9.12 in-hosts.test\n",
        )
        .unwrap();
        let net = Internet {
            dir,
            zone: Arc::default(),
            asked: Arc::default(),
        };
        net.start_resolver();
        for (name, address) in [
            ("a.test", "9.9.9.10"),
            ("a.test", "2606:4700::10"),
            ("b.test", "9.9.9.10"),
            ("c.test", "9.9.9.11"),
            ("sub.wild.test", "9.9.9.10"),
            ("private.test", "10.0.0.5"),
            ("metadata.test", "169.254.169.254"),
            ("loop.test", "127.0.0.1"),
            ("self.test", "9.9.8.1"),
            ("mixed.test", "10.0.0.5"),
            ("mixed.test", "9.9.9.10"),
        ] {
            net.name(name, address);
        }
        net
    }

    /// Adds a record to the zone.
    pub fn name(&self, name: &str, address: &str) {
        let address = address.parse().unwrap();
        self.zone
            .lock()
            .unwrap()
            .entry(name.to_owned())
            .or_default()
            .push(address);
    }

    /// Every name that the resolver was asked for.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// A resolver that knows the zone, answers TXT for any name in it, and remembers questions.
    fn start_resolver(&self) {
        let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
        let (zone, asked) = (Arc::clone(&self.zone), Arc::clone(&self.asked));
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((n, from)) = socket.recv_from(&mut buffer) {
                let query = &buffer[..n];
                let mut name = String::new();
                let mut at = 12;
                while query[at] != 0 {
                    let length = usize::from(query[at]);
                    if !name.is_empty() {
                        name.push('.');
                    }
                    name.push_str(&String::from_utf8_lossy(&query[at + 1..at + 1 + length]));
                    at += 1 + length;
                }
                let kind = u16::from_be_bytes([query[at + 1], query[at + 2]]);
                asked.lock().unwrap().push(name.clone());
                let zone = zone.lock().unwrap();
                let mut reply = query[..at + 5].to_vec();
                reply[2] = 0x81;
                reply[3] = 0x80;
                reply[6..12].fill(0);
                match zone.get(&name) {
                    None => reply[3] |= 3,
                    Some(addresses) => {
                        let mut add = |kind: u16, data: &[u8]| {
                            reply[7] += 1;
                            reply.extend([0xc0, 12]);
                            reply.extend(kind.to_be_bytes());
                            reply.extend([0, 1, 0, 0, 0, 60]);
                            reply.extend((data.len() as u16).to_be_bytes());
                            reply.extend(data);
                        };
                        for address in addresses {
                            match (address, kind) {
                                (IpAddr::V4(v4), 1) => add(1, &v4.octets()),
                                (IpAddr::V6(v6), 28) => add(28, &v6.octets()),
                                _ => {}
                            }
                        }
                        if kind == 16 {
                            add(16, b"\x0dhello by text");
                        }
                    }
                }
                let _ = socket.send_to(&reply, from);
            }
        });
    }

    /// Serves each connection of a port with `serve`, in threads; returns how many there were.
    pub fn serve(
        &self,
        address: &str,
        serve: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> Arc<std::sync::atomic::AtomicUsize> {
        let listener = TcpListener::bind(address).unwrap();
        let serve = Arc::new(serve);
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counter.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || serve(stream));
            }
        });
        count
    }

    /// An HTTP/1.1 server that says which host was asked for; keeps connections open.
    pub fn serve_http(&self, address: &str) -> Arc<std::sync::atomic::AtomicUsize> {
        self.serve(address, |stream| {
            let _ = http_session(&stream);
        })
    }

    /// A TLS server with a certificate for the test names; answers HTTP like the plain one.
    /// Lives as long as the returned child.
    pub fn serve_tls(&self, port: u16) -> Running {
        let (cert, key) = self.certificate();
        let script = self.dir.join("tls.py");
        std::fs::write(&script, TLS_SERVER).unwrap();
        let child = Command::new("python3")
            .arg(&script)
            .args([port.to_string().as_str()])
            .args([&cert, &key])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut running = Running(child);
        let mut line = String::new();
        let stdout = running.0.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        running
    }

    /// A self-signed certificate for the test names, and its key.
    pub fn certificate(&self) -> (PathBuf, PathBuf) {
        let (cert, key) = (self.dir.join("cert.pem"), self.dir.join("key.pem"));
        if !cert.exists() {
            let output = Command::new("openssl")
                .args([
                    "req",
                    "-x509",
                    "-newkey",
                    "ec",
                    "-pkeyopt",
                    "ec_paramgen_curve:P-256",
                ])
                .args(["-nodes", "-days", "2", "-subj", "/CN=a.test", "-addext"])
                .arg("subjectAltName=DNS:a.test,DNS:b.test,DNS:*.wild.test,IP:9.9.9.10")
                .arg("-keyout")
                .arg(&key)
                .arg("-out")
                .arg(&cert)
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        (cert, key)
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn nonce() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// A process that ends with its owner.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One keep-alive session: `GET /size/N` sends N bytes, everything else tells what was asked.
fn http_session(stream: &TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut out = stream;
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let (mut host, mut length, mut close) = (String::new(), 0usize, false);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "host" => host = value.to_owned(),
                "content-length" => length = value.parse().unwrap_or(0),
                "connection" => close |= value.eq_ignore_ascii_case("close"),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let path = first.split(' ').nth(1).unwrap_or("/").to_owned();
        close |= first.contains("HTTP/1.0");
        if let Some(size) = path
            .strip_prefix("/size/")
            .and_then(|n| n.parse::<usize>().ok())
        {
            write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n")?;
            let block: Vec<u8> = (0..65536u32).map(|i| (i * 7 + i / 251) as u8).collect();
            let mut left = size;
            while left > 0 {
                let n = left.min(block.len());
                out.write_all(&block[..n])?;
                left -= n;
            }
        } else {
            let text = format!("you asked {host} for {path} with {length} bytes\n");
            let size = text.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n{text}");
            out.write_all(answer.as_bytes())?;
        }
        if close {
            return Ok(());
        }
    }
}

const TLS_SERVER: &str = r#"
import http.server, ssl, sys, socket
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = ("tls asked %s for %s\n" % (self.headers["Host"], self.path)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True
server = Server(("::", int(sys.argv[1])), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print("ready", flush=True)
server.serve_forever()
"#;

/// What a command of a world left behind.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// A world: a process in its own network namespace, and its gate.
pub struct World {
    pub gate: Option<Gate>,
    pub events: Arc<Mutex<Vec<Event>>>,
    socket: UnixStream,
    dir: PathBuf,
    _child: Running,
}

impl World {
    /// A world with these terms, such as `enforce a.test *.wild.test db.test:5432 !b.test`.
    pub fn new(net: &Internet, terms: &str) -> World {
        World::with(net, terms, |_| {})
    }

    /// The same with a last word on the gate's configuration.
    pub fn with(net: &Internet, terms: &str, change: impl FnOnce(&mut GateConfig)) -> World {
        let dir = net.dir.join(format!("world-{}", nonce()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("resolv.conf"), egress::RESOLV_CONF).unwrap();
        std::fs::write(dir.join("hosts"), egress::hosts_file("world")).unwrap();
        let nsswitch = std::fs::read_to_string("/etc/nsswitch.conf").unwrap_or_default();
        std::fs::write(dir.join("nsswitch.conf"), egress::nsswitch_conf(&nsswitch)).unwrap();
        let listener = UnixListener::bind(dir.join("socket")).unwrap();
        let child = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "--mount", "--"])
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "world_process",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(WORLD, format!("{}\n{terms}", dir.display()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (socket, _) = listener.accept().unwrap();
        let (plan, mut config) = planned(terms);
        let fds = plan.receive(socket.as_fd()).expect("the world's sockets");
        config.host_files = HostFiles {
            resolv_conf: net.dir.join("resolv.conf"),
            hosts: net.dir.join("hosts"),
        };
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let sink = Arc::clone(&events);
        config.listener = Some(Box::new(move |e| sink.lock().unwrap().push(e.clone())));
        change(&mut config);
        let gate = Gate::start(fds, config).unwrap();
        World {
            gate: Some(gate),
            events,
            socket,
            dir,
            _child: Running(child),
        }
    }

    /// Runs a shell script inside, without any capability.
    pub fn run(&mut self, script: &str) -> Ran {
        self.run_as("drop", script)
    }

    /// Runs a shell script inside with every capability over the world's own namespaces.
    pub fn run_with_capabilities(&mut self, script: &str) -> Ran {
        self.run_as("keep", script)
    }

    fn run_as(&mut self, capabilities: &str, script: &str) -> Ran {
        let path = self.dir.join("script");
        std::fs::write(&path, format!("cd {}\n{script}\n", self.dir.display())).unwrap();
        self.socket
            .write_all(format!("{capabilities}\n").as_bytes())
            .unwrap();
        let mut code = [0; 4];
        self.socket.read_exact(&mut code).unwrap();
        let read = |name: &str| {
            let bytes = std::fs::read(self.dir.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ran {
            code: i32::from_ne_bytes(code),
            out: read("out"),
            err: read("err"),
        }
    }

    /// Runs a script that must work, and gives what it printed.
    pub fn works(&mut self, script: &str) -> String {
        let ran = self.run(script);
        assert_eq!(ran.code, 0, "`{script}` should work: {ran:?}");
        ran.out
    }

    /// Runs a script that must fail.
    pub fn fails(&mut self, script: &str) -> Ran {
        let ran = self.run(script);
        assert_ne!(ran.code, 0, "`{script}` should fail: {ran:?}");
        ran
    }

    /// What the gate saw since the last call.
    pub fn report(&self) -> NetReport {
        self.gate.as_ref().unwrap().report()
    }

    /// Where scripts run and leave their files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

fn planned(terms: &str) -> (NetPlan, GateConfig) {
    let (spec, mode, publish, nftables) = parse(terms);
    if nftables {
        egress::plan(&spec, mode, &publish)
    } else {
        egress::plan_without_nftables(&spec, mode, &publish)
    }
}

/// Reads the short form that tests write terms in.
pub fn parse(terms: &str) -> (NetSpec, Mode, Vec<u16>, bool) {
    let mut spec = NetSpec {
        isolate: true,
        refresh_secs: 60,
        ..NetSpec::default()
    };
    let mut mode = Mode::Enforce;
    let mut publish = Vec::new();
    let mut nftables = true;
    for word in terms.split_whitespace() {
        if let Some((key, value)) = word.split_once('=') {
            match key {
                "rate" => spec.bytes_per_sec = Some(value.parse().unwrap()),
                "total" => spec.total_bytes = Some(value.parse().unwrap()),
                "publish" => publish.push(value.parse().unwrap()),
                name => spec.resolve.push((name.to_owned(), value.parse().unwrap())),
            }
            continue;
        }
        match word {
            "enforce" => mode = Mode::Enforce,
            "observe" => mode = Mode::Observe,
            "no-nftables" => nftables = false,
            word => match (word.strip_prefix('!'), word.strip_prefix('~')) {
                (Some(denied), _) => spec.denied.push(rule(denied)),
                (_, Some(own)) => spec.allowed.push(HostRule {
                    internal: true,
                    ..rule(own)
                }),
                _ => spec.allowed.push(rule(word)),
            },
        }
    }
    (spec, mode, publish, nftables)
}

fn rule(written: &str) -> HostRule {
    let (host, ports) = match written.rsplit_once(':') {
        Some((host, ports)) if !host.contains(':') => (host, Some(ports)),
        _ => (written, None),
    };
    let ports = ports.map(|text| {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        (low.parse().unwrap(), high.parse().unwrap())
    });
    let (address, bits) = host.split_once('/').unwrap_or((host, ""));
    let host = match (host, address.parse::<IpAddr>()) {
        ("*", _) => HostPattern::Any,
        ("host-loopback", _) => HostPattern::HostLoopback,
        (_, Ok(ip)) => {
            let full = if ip.is_ipv4() { 32 } else { 128 };
            HostPattern::Network(ip, bits.parse().unwrap_or(full))
        }
        (name, _) => match name.strip_prefix("*.") {
            Some(below) => HostPattern::Below(below.to_owned()),
            None => HostPattern::Name(name.to_owned()),
        },
    };
    HostRule {
        written: written.to_owned(),
        host,
        ports,
        internal: false,
    }
}

/// The other side of [`World`]: prepares the namespace, then runs scripts on request.
pub fn world_process() {
    let Ok(setting) = std::env::var(WORLD) else {
        return;
    };
    let (dir, terms) = setting.split_once('\n').unwrap();
    let dir = Path::new(dir);
    let mut socket = UnixStream::connect(dir.join("socket")).unwrap();
    let (plan, _) = planned(terms);
    let mut made = Made::new();
    if let Err(error) = plan.run(&mut made) {
        panic!("{}", plan.describe(error));
    }
    made.send(Ok(()), socket.as_fd()).unwrap();
    drop(made);
    for name in ["resolv.conf", "nsswitch.conf", "hosts"] {
        let Ok(target) = Path::new("/etc").join(name).canonicalize() else {
            continue;
        };
        let status = Command::new("mount")
            .arg("--bind")
            .arg(dir.join(name))
            .arg(target)
            .status()
            .unwrap();
        assert!(status.success(), "mount {name}");
    }
    let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
    while let Some(Ok(line)) = lines.next() {
        let file = |name: &str| std::fs::File::create(dir.join(name)).unwrap();
        let mut command = match line.as_str() {
            "keep" => Command::new("sh"),
            _ => {
                let mut c = Command::new("setpriv");
                c.args([
                    "--bounding-set=-all",
                    "--inh-caps=-all",
                    "--no-new-privs",
                    "sh",
                ]);
                c
            }
        };
        let status = command
            .arg(dir.join("script"))
            .env_remove(WORLD)
            .env_remove(INSIDE)
            .env("HOME", dir)
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("err"))
            .status()
            .unwrap();
        socket
            .write_all(&status.code().unwrap_or(128).to_ne_bytes())
            .unwrap();
    }
}

/// Descriptors this process has open.
pub fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Waits until something is true, for at most half a minute.
pub fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if is() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// A local address for host-side clients.
pub fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
