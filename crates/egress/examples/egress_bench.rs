//! Speed of the gate beside direct loopback, in one run: `cargo run --release --example egress_bench`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr
)]

#[path = "../tests/egress_rig/mod.rs"]
mod egress_rig;

use std::process::Command;
use std::time::Instant;

use egress_rig::{Internet, World};

const ROUNDS: usize = 5;
const GIGABYTE: u64 = 1 << 30;

fn main() {
    egress_rig::world_process();
    egress_rig::internet("egress_bench", |net| {
        net.serve_http("0.0.0.0:80");
        net.serve_http("0.0.0.0:8080");
        let mut world = World::new(net, "enforce a.test a.test:8080");
        download(&mut world);
        latency(net, &mut world);
    });
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn host(script: &str) -> String {
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn download(world: &mut World) {
    let curl = |url: &str| format!("curl -sS -o /dev/null -w '%{{time_total}}' {url}");
    let direct = curl(&format!("http://9.9.9.10/size/{GIGABYTE}"));
    let checked = curl(&format!("http://a.test/size/{GIGABYTE}"));
    let unseen = curl(&format!("http://a.test:8080/size/{GIGABYTE}"));
    let (mut d, mut c, mut u) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        d.push(host(&direct).parse().unwrap());
        c.push(world.works(&checked).trim().parse().unwrap());
        u.push(world.works(&unseen).trim().parse().unwrap());
    }
    let (d, c, u) = (median(d), median(c), median(u));
    println!(
        "BENCH 1 GB by curl, median of {ROUNDS}: direct {d:.2} s, gate {c:.2} s, gate with a port in the entry {u:.2} s"
    );
    println!(
        "BENCH speed against direct loopback: {:.2} and {:.2} (promise: at least 0.7)",
        d / c,
        d / u
    );
    let sum = "curl -sS http://HOST/size/1073741824 | sha256sum";
    let same = host(&sum.replace("HOST", "9.9.9.10"))
        == world.works(&sum.replace("HOST", "a.test")).trim();
    println!("BENCH hash of 1 GB through the gate equals the direct one: {same}");
    assert!(same);
}

fn latency(net: &Internet, world: &mut World) {
    let script = |address: &str| {
        format!(
            "import socket, time\n\
             address = socket.getaddrinfo('{address}', 8080, socket.AF_INET)[0][4]\n\
             times = []\n\
             for i in range(400):\n\
             \x20   start = time.perf_counter()\n\
             \x20   s = socket.create_connection(address)\n\
             \x20   s.sendall(b'GET / HTTP/1.0\\r\\nHost: a.test\\r\\n\\r\\n')\n\
             \x20   while s.recv(4096): pass\n\
             \x20   times.append(time.perf_counter() - start)\n\
             print(sorted(times)[200] * 1000)\n"
        )
    };
    let (direct, through) = (net.dir.join("direct.py"), net.dir.join("through.py"));
    std::fs::write(&direct, script("9.9.9.10")).unwrap();
    std::fs::write(&through, script("a.test")).unwrap();
    let (mut d, mut t) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        d.push(
            host(&format!("python3 {}", direct.display()))
                .parse()
                .unwrap(),
        );
        t.push(
            world
                .works(&format!("python3 {}", through.display()))
                .trim()
                .parse()
                .unwrap(),
        );
    }
    let (d, t) = (median(d), median(t));
    println!(
        "BENCH one request on a new connection: direct {d:.3} ms, gate {t:.3} ms, added {:.3} ms (promise: at most 1)",
        t - d
    );
    let start = Instant::now();
    for _ in 0..20 {
        drop(World::new(net, "enforce a.test"));
    }
    println!(
        "BENCH a world with its gate, process starts included: {:.1} ms",
        start.elapsed().as_secs_f64() * 50.0
    );
}
