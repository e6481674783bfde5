//! Unmodified programs that speak other protocols, bring their own resolvers, or take other ways
//! than TCP. Each thing that is refused stands beside one that works.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

mod egress_rig;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use egress_rig::{Internet, Running, World, eventually, internet, on_path, skip};

/// Not a test: what the rig starts inside a world's namespaces.
#[test]
fn world_process() {
    egress_rig::world_process();
}

/// An ordinary user of the internet's machine; servers that refuse to be root run as this one.
const USER: &str = "tester";

/// Lets an ordinary user exist and bind any port, here and nowhere else.
fn make_user(net: &Internet) {
    let passwd = net.dir.join("passwd");
    let home = net.dir.display();
    let text = format!("root:x:0:0::{home}:/bin/sh\n{USER}:x:1000:1000::{home}:/bin/sh\n");
    std::fs::write(&passwd, text).unwrap();
    let mounted = Command::new("mount")
        .args([
            "--bind".as_ref(),
            passwd.as_os_str(),
            "/etc/passwd".as_ref(),
        ])
        .status();
    assert!(mounted.unwrap().success());
    std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0").unwrap();
}

fn as_user(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-user=1000", "--map-group=1000", "--"])
        .arg(program)
        .stdin(Stdio::null());
    command
}

fn must(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn start(command: &mut Command) -> Running {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Running(child.spawn().unwrap())
}

fn answers(address: &str) {
    eventually(&format!("{address} answers"), || {
        std::net::TcpStream::connect(address).is_ok()
    });
}

#[test]
fn git_over_ssh() {
    let name = "git_over_ssh";
    let sshd = Path::new("/usr/sbin/sshd");
    if !sshd.exists() || !on_path("ssh") || !on_path("git") {
        return skip(name, "no ssh, sshd or git");
    }
    internet(name, |net| {
        make_user(net);
        let at = |name: &str| net.dir.join(name);
        for key in ["host", "key"] {
            must(
                Command::new("ssh-keygen")
                    .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                    .arg(at(key)),
            );
        }
        std::fs::copy(at("key.pub"), at("authorized")).unwrap();
        let config = format!(
            "ListenAddress 9.9.9.10:22\nHostKey {0}/host\nAuthorizedKeysFile {0}/authorized\n\
             StrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\n",
            net.dir.display()
        );
        std::fs::write(at("sshd_config"), config).unwrap();
        let make = "git init -q work && cd work && echo hello > f && git add f &&\n\
             git -c user.name=t -c user.email=t@t.test commit -qm one && cd .. &&\n\
             git clone -q --bare work repo.git";
        must(
            Command::new("sh")
                .args(["-c", make])
                .current_dir(&net.dir)
                .env("HOME", &net.dir),
        );
        let _sshd = start(as_user(sshd).args(["-D", "-f"]).arg(at("sshd_config")));
        answers("9.9.9.10:22");
        let mut world = World::new(net, "enforce a.test:22");
        let clone = |host: &str, to: &str| {
            format!(
                "export GIT_SSH_COMMAND='ssh -F none -i {0}/key -o StrictHostKeyChecking=no \
                 -o UserKnownHostsFile=/dev/null'\n\
                 git clone -q ssh://{USER}@{host}{0}/repo.git {to} && cat {to}/f",
                net.dir.display()
            )
        };
        assert_eq!(world.works(&clone("a.test", "one")), "hello\n");
        world.fails(&clone("b.test", "two"));
        world.fails(&clone("9.9.9.10", "three"));
        assert_eq!(world.works(&clone("a.test", "four")), "hello\n");
    });
}

#[test]
fn postgres_and_redis() {
    let name = "postgres_and_redis";
    internet(name, |net| {
        make_user(net);
        let mut world = World::new(net, "enforce a.test:5432 a.test:6379");
        match postgres() {
            Some(bin) => {
                let data = net.dir.join("data");
                must(
                    as_user(&bin.join("initdb"))
                        .args(["--no-sync", "-A", "trust", "-U", USER, "-D"])
                        .arg(&data),
                );
                let hba = data.join("pg_hba.conf");
                std::fs::write(hba, "host all all all trust\n").unwrap();
                let _server = start(
                    as_user(&bin.join("postgres"))
                        .args([
                            "-h",
                            "9.9.9.10",
                            "-p",
                            "5432",
                            "-c",
                            "unix_socket_directories=",
                            "-D",
                        ])
                        .arg(&data),
                );
                answers("9.9.9.10:5432");
                let ask = |host: &str| {
                    format!(
                        "{}/psql -h {host} -U {USER} -d postgres -Atc 'select 6 * 7'",
                        bin.display()
                    )
                };
                let mut out = String::new();
                eventually("the database is ready", || {
                    out = world.run(&ask("a.test")).out;
                    !out.is_empty()
                });
                assert_eq!(out, "42\n");
                world.fails(&ask("b.test"));
                world.fails(&ask("9.9.9.10"));
                assert_eq!(world.works(&ask("a.test")), "42\n");
            }
            None => skip(name, "no postgres"),
        }
        if on_path("redis-server") && on_path("redis-cli") {
            let _server = start(
                Command::new("redis-server")
                    .args([
                        "--bind",
                        "9.9.9.10",
                        "--port",
                        "6379",
                        "--protected-mode",
                        "no",
                    ])
                    .args(["--save", "", "--dir"])
                    .arg(&net.dir),
            );
            answers("9.9.9.10:6379");
            assert_eq!(
                world.works("redis-cli -h a.test set k v && redis-cli -h a.test get k"),
                "OK\nv\n"
            );
            world.fails("redis-cli -h b.test get k");
            world.fails("redis-cli -h 9.9.9.10 get k");
            assert_eq!(world.works("redis-cli -h a.test get k"), "v\n");
        } else {
            skip(name, "no redis-server or redis-cli");
        }
    });
}

/// Where the database's programs are; distributions keep them off the search path.
fn postgres() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    versions
        .flatten()
        .map(|version| version.path().join("bin"))
        .find(|bin| bin.join("initdb").exists())
}

#[test]
fn a_go_program_with_its_own_resolver() {
    let name = "a_go_program_with_its_own_resolver";
    if !on_path("go") {
        return skip(name, "no go");
    }
    internet(name, |net| {
        net.serve_http("0.0.0.0:80");
        let _tls = net.serve_tls(443);
        let (cert, _) = net.certificate();
        let source = "package main\n\
            import (\"fmt\"; \"io\"; \"net/http\"; \"os\")\n\
            func main() {\n\
            \tanswer, err := http.Get(os.Args[1])\n\
            \tif err != nil { fmt.Println(err); os.Exit(1) }\n\
            \tbody, _ := io.ReadAll(answer.Body)\n\
            \tfmt.Print(string(body))\n\
            }\n";
        std::fs::write(net.dir.join("get.go"), source).unwrap();
        must(
            Command::new("go")
                .args(["build", "-o", "get", "get.go"])
                .current_dir(&net.dir)
                .env("HOME", &net.dir)
                .env("GOCACHE", net.dir.join("cache"))
                .env("GO111MODULE", "off"),
        );
        let mut world = World::new(net, "enforce a.test");
        let get = |url: &str| {
            format!(
                "GODEBUG=netdns=go SSL_CERT_FILE={} {}/get {url}",
                cert.display(),
                net.dir.display()
            )
        };
        assert!(
            world
                .works(&get("http://a.test/go"))
                .contains("you asked a.test for /go")
        );
        assert_eq!(
            world.works(&get("https://a.test/go")),
            "tls asked a.test for /go\n"
        );
        let refused = world.fails(&get("http://b.test/"));
        assert!(refused.out.contains("no such host"), "{refused:?}");
        world.fails(&get("http://9.9.9.10/"));
        world.works(&get("https://a.test/again"));
    });
}

#[test]
fn python_requests() {
    let name = "python_requests";
    let found = Command::new("python3")
        .args(["-c", "import requests"])
        .output();
    if !found.is_ok_and(|output| output.status.success()) {
        return skip(name, "no requests for python3");
    }
    internet(name, |net| {
        net.serve_http("0.0.0.0:80");
        let _tls = net.serve_tls(443);
        let (cert, _) = net.certificate();
        let mut world = World::new(net, "enforce a.test");
        let get = |url: &str| {
            format!(
                "python3 -c 'import requests; print(requests.get(\"{url}\", verify=\"{}\").text, end=\"\")'",
                cert.display()
            )
        };
        assert!(
            world
                .works(&get("http://a.test/r"))
                .contains("you asked a.test for /r")
        );
        assert_eq!(
            world.works(&get("https://a.test/r")),
            "tls asked a.test for /r\n"
        );
        world.fails(&get("http://b.test/"));
        world.fails(&get("https://9.9.9.10/"));
        world.works(&get("https://a.test/r"));
    });
}

#[test]
fn abstract_sockets_of_the_host_are_out_of_reach() {
    internet("abstract_sockets_of_the_host_are_out_of_reach", |net| {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
        let name = SocketAddr::from_abstract_name("substrate-outside").unwrap();
        let listener = UnixListener::bind_addr(&name).unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.write_all(b"outside");
            }
        });
        UnixStream::connect_addr(&name).unwrap();
        let mut world = World::new(net, "enforce a.test");
        let talk = |name: &str, own: bool| {
            let serve = "l = socket.socket(socket.AF_UNIX); l.bind(name); l.listen()\n\
                 threading.Thread(target=lambda: l.accept()[0].sendall(b'inside'), daemon=True).start()\n";
            format!(
                "python3 - <<'END'\nimport socket, threading\nname = '\\0{name}'\n{}\
                 s = socket.socket(socket.AF_UNIX); s.connect(name); print(s.recv(9))\nEND",
                if own { serve } else { "" }
            )
        };
        let ran = world.fails(&talk("substrate-outside", false));
        assert!(ran.err.contains("ConnectionRefused"), "{ran:?}");
        assert_eq!(world.works(&talk("substrate-inside", true)), "b'inside'\n");
        assert_eq!(
            world.works(&talk("substrate-outside", true)),
            "b'inside'\n",
            "a name of its own"
        );
    });
}

#[test]
fn a_host_without_resolver_files_is_served_too() {
    internet("a_host_without_resolver_files_is_served_too", |net| {
        net.serve_http("0.0.0.0:80");
        let etc = net.dir.join("etc");
        std::fs::create_dir(&etc).unwrap();
        for name in ["passwd", "ld.so.cache"] {
            let _ = std::fs::copy(Path::new("/etc").join(name), etc.join(name));
        }
        must(Command::new("mount").arg("--bind").arg(&etc).arg("/etc"));
        assert!(!Path::new("/etc/resolv.conf").exists());
        let mut world = World::new(net, "enforce a.test");
        world.works("getent hosts a.test && curl -sS http://a.test/");
        world.fails("getent hosts b.test");
        world.works("python3 -c 'import socket; socket.create_connection((\"a.test\", 80))'");
    });
}
