//! Many connections, bad ones among them, and budgets: nothing leaks, nothing is harmed, not
//! one byte too many passes.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

mod egress_rig;

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use egress_rig::{Internet, World, eventually, internet, open_fds};
use substrate_egress::{Event, Reason};

/// Not a test: what the rig starts inside a world's namespaces.
#[test]
fn world_process() {
    egress_rig::world_process();
}

/// Bytes of memory that this process holds.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn python(code: &str) -> String {
    format!("ulimit -n $(ulimit -Hn)\npython3 - <<'END'\nimport socket, time\n{code}\nEND")
}

#[test]
fn fifty_downloads_share_one_budget_to_the_byte() {
    internet("fifty_downloads_share_one_budget_to_the_byte", |net| {
        net.serve_http("0.0.0.0:80");
        net.serve_http("0.0.0.0:8080");
        let mut world = World::new(net, "enforce a.test a.test:8080 total=1000000");
        let ran = world.run(
            "for i in $(seq 25); do\n\
             curl -s -o a$i http://a.test/size/1000000 & curl -s -o b$i http://a.test:8080/size/1000000 &\n\
             done; wait; cat a* b* | wc -c",
        );
        let bodies: u64 = ran.out.trim().parse().unwrap();
        let report = world.report();
        let counted: u64 = report.uses.iter().map(|u| u.tx + u.rx).sum();
        assert!(bodies > 900_000, "most of it is used: {bodies}");
        assert!(bodies <= 1_000_000, "{bodies}");
        assert_eq!(counted, 1_000_000);
        assert!(
            report.refusals.iter().any(|r| r.reason == Reason::Budget),
            "{report:#?}"
        );
        let told = world.events.lock().unwrap().clone();
        let exceeded = told.iter().any(|event| {
            matches!(
                event,
                Event::BudgetExceeded {
                    bytes: 1..,
                    used: 1_000_000,
                    total: 1_000_000
                }
            )
        });
        assert!(exceeded, "{told:?}");
        world.fails("curl -sS http://a.test/");
        assert_eq!(
            world.report().uses.iter().map(|u| u.tx + u.rx).sum::<u64>(),
            0
        );
    });
}

#[test]
fn the_rate_is_kept_by_the_clock() {
    internet("the_rate_is_kept_by_the_clock", |net| {
        net.serve_http("0.0.0.0:8080");
        let millis = Arc::new(AtomicU64::new(0));
        let hand = Arc::clone(&millis);
        let mut world = World::with(net, "enforce a.test:8080 rate=100000", |config| {
            config.clock = Arc::new(move || Duration::from_millis(hand.load(Ordering::SeqCst)));
        });
        let passed = |world: &World, sum: &mut u64| {
            *sum += world.report().uses.iter().map(|u| u.tx + u.rx).sum::<u64>();
            *sum
        };
        world.works("curl -s -o got http://a.test:8080/size/200000 & echo $!");
        let mut sum = 0;
        eventually("the first burst passes", || {
            passed(&world, &mut sum) >= 12_500
        });
        for second in 1..=3u64 {
            millis.store(second * 1000, Ordering::SeqCst);
            let due = (second * 100_000).min(200_000);
            // Each second's worth comes in quarters, since credit is not saved up beyond that.
            for quarter in 1..=4u64 {
                millis.store(second * 1000 + quarter * 250, Ordering::SeqCst);
                let least = (sum + 12_500).min(due);
                eventually("a quarter passes", || passed(&world, &mut sum) >= least);
                let most = 25_000 + (second * 1000 + quarter * 250) * 100;
                assert!(sum <= most, "{sum} of {most}");
            }
        }
        assert!(world.events.lock().unwrap().contains(&Event::RateLimited {
            bytes_per_sec: 100_000
        }));
    });
}

/// A server for every bad habit: what it does is in the first line it is sent.
fn serve_habits(net: &Internet) {
    net.serve("0.0.0.0:7000", |mut stream| {
        let mut word = [0; 5];
        if stream.read_exact(&mut word).is_err() {
            return;
        }
        match &word {
            b"drip\n" => {
                while stream.write_all(b".").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            b"pour\n" => while stream.write_all(&[b'x'; 65536]).is_ok() {},
            b"kill\n" => {
                let _ = stream.write_all(b"almost");
                let _ = substrate_sys::inet::reset_on_close(std::os::fd::AsFd::as_fd(&stream));
            }
            b"gone\n" => {}
            b"hold\n" => {
                let _ = stream.read(&mut [0]);
            }
            _ => {
                let _ = stream.write_all(&word);
            }
        }
    });
}

#[test]
fn a_thousand_connections_at_once_and_every_descriptor_comes_back() {
    let _ = substrate_sys::fdlimit::raise(65536);
    internet(
        "a_thousand_connections_at_once_and_every_descriptor_comes_back",
        |net| {
            let _ = substrate_sys::fdlimit::raise(65536);
            serve_habits(net);
            let mut world = World::new(net, "enforce a.test:7000");
            let thousand = python(
                "s = [socket.create_connection(('a.test', 7000)) for i in range(1000)]\n\
             for i, c in enumerate(s): c.sendall(b'%04d\\n' % i)\n\
             print(all(c.recv(5, socket.MSG_WAITALL) == b'%04d\\n' % i for i, c in enumerate(s)))",
            );
            assert_eq!(world.works(&thousand), "True\n");
            eventually("the first thousand is gone", || open_fds() < 500);
            let before = open_fds();
            for _ in 0..2 {
                assert_eq!(world.works(&thousand), "True\n");
                eventually("every descriptor comes back", || open_fds() <= before + 8);
            }
            let tx: u64 = world.report().uses.iter().map(|u| u.tx).sum();
            assert_eq!(tx, 15_000);
        },
    );
}

#[test]
fn bad_servers_and_bad_clients_harm_nobody_else() {
    internet("bad_servers_and_bad_clients_harm_nobody_else", |net| {
        net.serve_http("0.0.0.0:80");
        serve_habits(net);
        let mut world = World::new(net, "enforce a.test a.test:7000");
        let good = "curl -sS http://a.test/size/3000000 | sha256sum";
        let want = world.works(good);
        eventually("quiet", || open_fds() < 200);
        let before = open_fds();
        // Servers that drip or die, clients that never read, never speak, or vanish.
        let bad = python(
            "s = []\n\
             for i in range(120):\n\
             \x20   word = [b'drip\\n', b'pour\\n', b'kill\\n', b'gone\\n', b'hold\\n', b''][i % 6]\n\
             \x20   c = socket.create_connection(('a.test', [7000, 80][i % 7 == 0]))\n\
             \x20   c.sendall(word)\n\
             \x20   s.append(c)\n\
             time.sleep(0.3)\n\
             import subprocess\n\
             print(subprocess.run(['sh', '-c', 'curl -sS http://a.test/size/3000000 | sha256sum'], capture_output=True).stdout.decode(), end='')\n\
             for i, c in enumerate(s):\n\
             \x20   if i % 2: c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\\1\\0\\0\\0\\0\\0\\0\\0')\n\
             \x20   c.close()",
        );
        for _ in 0..2 {
            assert_eq!(world.works(&bad), want, "a good download among the bad");
            assert_eq!(world.works(good), want);
            eventually("every descriptor comes back", || open_fds() <= before + 64);
        }
        let (after, memory) = (open_fds(), resident());
        for _ in 0..2 {
            world.works(&bad);
            eventually("and stays back", || open_fds() <= after + 8);
        }
        let grown = resident().saturating_sub(memory);
        assert!(grown < 16 << 20, "{grown} bytes more than before");
    });
}

#[test]
fn large_transfers_arrive_unchanged_both_ways() {
    internet("large_transfers_arrive_unchanged_both_ways", |net| {
        net.serve_http("0.0.0.0:80");
        let sums: Arc<std::sync::Mutex<Vec<(usize, u64)>>> = Arc::default();
        let log = Arc::clone(&sums);
        net.serve("0.0.0.0:7001", move |mut stream| {
            let (mut total, mut sum, mut buffer) = (0, 0u64, [0; 65536]);
            while let Ok(n) = stream.read(&mut buffer) {
                if n == 0 {
                    break;
                }
                total += n;
                sum = buffer[..n]
                    .iter()
                    .fold(sum, |s, b| s.wrapping_mul(31).wrapping_add(u64::from(*b)));
            }
            log.lock().unwrap().push((total, sum));
            let _ = stream.write_all(b"done");
        });
        let mut world = World::new(net, "enforce a.test a.test:7001");
        let direct = std::process::Command::new("sh")
            .args(["-c", "curl -sS http://9.9.9.10/size/1000000000 | sha256sum"])
            .output()
            .unwrap();
        let through = world.works("curl -sS http://a.test/size/1000000000 | sha256sum");
        assert_eq!(through, String::from_utf8(direct.stdout).unwrap());
        // An upload, ended by closing one direction only.
        let up = python(
            "import random\n\
             data = random.Random(7).randbytes(1 << 16) * 200\n\
             c = socket.create_connection(('a.test', 7001))\n\
             c.sendall(data); c.shutdown(socket.SHUT_WR)\n\
             print(c.recv(10).decode())\n\
             print(len(data))\n\
             open('data', 'wb').write(data)",
        );
        assert_eq!(world.works(&up), format!("done\n{}\n", 200 << 16));
        let data = std::fs::read(world.dir().join("data")).unwrap();
        let sum = data
            .iter()
            .fold(0u64, |s, b| s.wrapping_mul(31).wrapping_add(u64::from(*b)));
        assert_eq!(*sums.lock().unwrap(), [(data.len(), sum)]);
        // The same through the checked path, as the body of a request.
        let out = world.works("curl -sS -H Expect: --data-binary @data http://a.test/up");
        assert!(out.contains(&format!("with {} bytes", data.len())), "{out}");
        let uses = world.report().uses;
        let web = uses.iter().find(|u| u.port == 80).unwrap();
        assert!(
            web.rx > 1_000_000_000 && web.tx > data.len() as u64,
            "{web:?}"
        );
    });
}

#[test]
fn nonsense_to_the_stub_is_survived() {
    internet("nonsense_to_the_stub_is_survived", |net| {
        net.serve_http("0.0.0.0:80");
        let mut world = World::new(net, "enforce a.test *.wild.test");
        let noise = python(
            "import random\n\
             r = random.Random(3)\n\
             u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
             u.connect(('127.0.0.53', 53))\n\
             u.setblocking(False)\n\
             for i in range(3000):\n\
             \x20   data = bytearray(r.randbytes(r.randrange(80)))\n\
             \x20   if i % 2 and len(data) > 12: data[2:6] = b'\\1\\0\\0\\1'\n\
             \x20   try: u.send(data)\n\
             \x20   except OSError: pass\n\
             \x20   try: u.recv(2000)\n\
             \x20   except OSError: pass\n\
             for i in range(200):\n\
             \x20   t = socket.create_connection(('127.0.0.53', 53))\n\
             \x20   t.sendall(r.randbytes(r.randrange(1, 90)))\n\
             for i in range(300):\n\
             \x20   try: socket.gethostbyname('n%d.wild.test' % i)\n\
             \x20   except OSError: pass",
        );
        world.works(&noise);
        world.works("curl -sS http://a.test/");
        assert!(world.gate.as_ref().unwrap().is_alive());
    });
}
