//! Names that were allowed are reached, and nothing else is: unmodified programs in worlds of
//! their own, against servers in an internet of their own. Whatever must fail is paired with
//! something that must work, so that a dead network cannot pass.

mod egress_rig;

use std::io::{Read, Write};
use std::process::Command;

use egress_rig::{Running, World, internet, internet_as, on_path, skip};
use substrate_egress::{Event, Reason};

/// Not a test: what the rig starts inside a world's namespaces.
#[test]
fn world_process() {
    egress_rig::world_process();
}

#[test]
fn an_allowed_name_works_and_its_neighbour_on_the_same_address_does_not() {
    internet(
        "an_allowed_name_works_and_its_neighbour_on_the_same_address_does_not",
        |net| {
            net.serve_http("0.0.0.0:80");
            let mut world = World::new(net, "enforce a.test *.wild.test in-hosts.test");
            assert!(world.gate.as_ref().unwrap().redirected());
            for name in [
                "a.test",
                "A.TEST",
                "a.test.",
                "sub.wild.test",
                "in-hosts.test",
            ] {
                world.works(&format!("curl -sS http://{name}/x | grep /x"));
                let ran = world.fails("curl -sS http://b.test/");
                assert_eq!(ran.code, 6, "no such name: {ran:?}");
            }
            let report = world.report();
            let passed = report.uses.iter().find(|u| u.host == "a.test").unwrap();
            assert_eq!((passed.port, passed.refused), (80, 0));
            assert!(passed.tx > 100 && passed.rx > 100, "{passed:?}");
            assert!(report.scopes().contains(&"tcp:sub.wild.test:80".to_owned()));
            let refused = report.refusals.iter().find(|r| r.host == "b.test").unwrap();
            assert_eq!((refused.port, &refused.reason), (0, &Reason::NotAllowed));
            let program = refused.program.as_ref().expect("who asked");
            assert!(
                program.path.to_string_lossy().ends_with("/curl"),
                "{program:?}"
            );
            assert!(
                !net.asked().iter().any(|n| n == "b.test"),
                "refused names stay inside"
            );
            assert!(net.asked().iter().any(|n| n == "a.test"));
            let told = world.events.lock().unwrap();
            let of_b = |e: &&Event| matches!(e, Event::Refused(r) if r.host == "b.test");
            assert_eq!(
                told.iter().filter(of_b).count(),
                1,
                "told once, counted always"
            );
        },
    );
}

#[test]
fn wildcards_denials_and_ports() {
    internet("wildcards_denials_and_ports", |net| {
        net.serve_http("0.0.0.0:80");
        net.serve_http("0.0.0.0:8080");
        net.serve_http("0.0.0.0:8081");
        net.name("wild.test", "9.9.9.10");
        net.name("bad.wild.test", "9.9.9.10");
        net.name("deep.sub.wild.test", "9.9.9.10");
        let mut world = World::new(net, "enforce *.wild.test !bad.wild.test a.test:8080-8081");
        world.works("curl -sS http://sub.wild.test/ && curl -sS http://deep.sub.wild.test/");
        assert_eq!(world.fails("curl -sS http://wild.test/").code, 6);
        assert_eq!(world.fails("curl -sS http://bad.wild.test/").code, 6);
        world.works("curl -sS http://a.test:8080/ && curl -sS http://a.test:8081/");
        world.fails("curl -sS http://a.test/");
        world.fails("curl -sS http://sub.wild.test:8080/");
        let report = world.report();
        let reason = |host: &str, port| {
            let mut all = report.refusals.iter();
            all.find(|r| r.host == host && r.port == port)
                .map(|r| r.reason.clone())
        };
        assert_eq!(
            reason("bad.wild.test", 0),
            Some(Reason::Denied("bad.wild.test".into()))
        );
        assert_eq!(reason("a.test", 80), Some(Reason::PortNotAllowed));
        assert_eq!(reason("sub.wild.test", 8080), Some(Reason::PortNotAllowed));
        assert_eq!(reason("wild.test", 0), Some(Reason::NotAllowed));
    });
}

#[test]
fn tls_must_name_the_host_the_address_stands_for() {
    internet("tls_must_name_the_host_the_address_stands_for", |net| {
        let _tls = net.serve_tls(443);
        let (cert, _) = net.certificate();
        let curl = format!("curl -sS --cacert {}", cert.display());
        let mut world = World::new(net, "enforce a.test sub.wild.test");
        let good = format!("{curl} https://a.test/ok");
        assert_eq!(world.works(&good), "tls asked a.test for /ok\n");
        world.works(&format!("{curl} -6 https://a.test/v6"));
        // The neighbour, by every way curl knows to say one thing and connect to another.
        let synthetic = world
            .works("getent ahostsv4 a.test")
            .split(' ')
            .next()
            .unwrap()
            .to_owned();
        for bad in [
            format!("{curl} https://b.test/"),
            format!("{curl} --resolve b.test:443:{synthetic} https://b.test/"),
            format!("{curl} --connect-to b.test:443:a.test:443 https://b.test/"),
            format!("{curl} --resolve b.test:443:9.9.9.10 https://b.test/"),
            format!("{curl} --noproxy '*' https://9.9.9.10/"),
            format!("{curl} -k https://{synthetic}/"),
            format!("{curl} --doh-url https://9.9.9.10/dns https://b.test/"),
            "openssl s_client -connect a.test:443 -noservername -brief </dev/null".to_owned(),
            "openssl s_client -connect a.test:443 -servername b.test -brief </dev/null".to_owned(),
        ] {
            world.fails(&bad);
            world.works(&good);
        }
        world.works("openssl s_client -connect a.test:443 -servername a.test -brief </dev/null");
        let report = world.report();
        let seen = |reason: Reason| report.refusals.iter().any(|r| r.reason == reason);
        assert!(seen(Reason::ServerName("b.test".into())) && seen(Reason::NoServerName));
    });
}

#[test]
fn every_request_of_a_connection_must_be_for_its_host() {
    internet(
        "every_request_of_a_connection_must_be_for_its_host",
        |net| {
            net.serve_http("0.0.0.0:80");
            let mut world = World::new(net, "enforce a.test");
            let good = "curl -sS -H 'X: y' -d 'some body' http://a.test/post";
            assert!(world.works(good).contains("with 9 bytes"));
            for bad in [
                "curl -sS -f -H 'Host: b.test' http://a.test/",
                "curl -sS -f --connect-to b.test:80:a.test:80 http://b.test/",
                "curl -sS -f -x http://a.test:80 http://b.test/",
                "curl -sS -f -p -x http://a.test:80 http://b.test/",
                "curl -sS -f --http2-prior-knowledge http://a.test/",
                "curl -sS -f --http0.9 -H Host: http://a.test/",
            ] {
                world.fails(bad);
                world.works(good);
            }
            let out = world.run("curl -sS -H 'Host: b.test' http://a.test/").out;
            assert!(
                out.contains("substrate: a.test:80 refused"),
                "the client is told why: {out}"
            );
            // Two requests on one connection: both fine; then the second for the neighbour.
            let two = |second: &str| {
                format!(
                    "python3 - <<'END'\n\
                 import socket\n\
                 s = socket.create_connection(('a.test', 80))\n\
                 s.sendall(b'GET /1 HTTP/1.1\\r\\nHost: a.test\\r\\n\\r\\n')\n\
                 print(s.recv(4096).decode())\n\
                 s.sendall(b'GET /2 HTTP/1.1\\r\\nHost: {second}\\r\\n\\r\\n')\n\
                 print(s.recv(4096).decode())\n\
                 END"
                )
            };
            let out = world.works(&two("a.test"));
            assert!(out.contains("for /1") && out.contains("for /2"), "{out}");
            let out = world.works(&two("b.test"));
            assert!(
                out.contains("for /1") && out.contains("403") && !out.contains("for /2"),
                "{out}"
            );
        },
    );
}

#[test]
fn addresses_datagrams_and_other_protocols_stay_inside() {
    internet(
        "addresses_datagrams_and_other_protocols_stay_inside",
        |net| {
            let web = net.serve_http("[::]:80");
            let mut world = World::new(net, "enforce a.test");
            let good = "curl -sS http://a.test/";
            world.works(good);
            let before = web.load(std::sync::atomic::Ordering::SeqCst);
            for (bad, code) in [
                ("curl -sS http://9.9.9.10/", 7),
                ("curl -sS http://127.0.0.1/", 7),
                ("curl -sS 'http://[2606:4700::10]/'", 7),
                ("curl -sS 'http://[::ffff:9.9.9.10]/'", 7),
                ("curl -sS http://9.9.8.1/", 7),
                ("curl -sS --dns-servers 9.9.9.10 http://b.test/", 0),
            ] {
                let ran = world.fails(bad);
                assert!(code == 0 || ran.code == code, "{bad}: {ran:?}");
            }
            let python = |code: &str| format!("python3 - <<'END'\nimport socket\n{code}\nEND");
            let udp = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                   s.settimeout(1)\n\
                   s.sendto(b'x' * 20, ('9.9.9.10', 53))\n\
                   s.recv(1)";
            world.fails(&python(udp));
            let udp6 = udp
                .replace("AF_INET,", "AF_INET6,")
                .replace("9.9.9.10", "2606:4700::10");
            world.fails(&python(&udp6));
            let quic = udp.replace("('9.9.9.10', 53)", "(socket.gethostbyname('a.test'), 443)");
            world.fails(&python(&quic));
            world.works(good);
            // With every capability over its own namespace the world still has nowhere to send to.
            let ping = "s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)\n\
                    s.settimeout(1)\n\
                    s.sendto(b'\\x08\\x00\\xf7\\xff\\x00\\x00\\x00\\x00', ('9.9.9.10', 0))\n\
                    s.recv(100)";
            let ran = world.run_with_capabilities(&python(ping));
            assert_ne!(ran.code, 0, "{ran:?}");
            assert_ne!(world.run(&python(ping)).code, 0);
            assert_eq!(
                web.load(std::sync::atomic::Ordering::SeqCst),
                before + 1,
                "one good visit"
            );

            let report = world.report();
            let reason = |host: &str, port| {
                let mut all = report.refusals.iter();
                all.find(|r| r.host == host && r.port == port)
                    .map(|r| r.reason.clone())
            };
            assert_eq!(reason("9.9.9.10", 80), Some(Reason::NotAllowed));
            assert_eq!(reason("2606:4700::10", 80), Some(Reason::NotAllowed));
            assert_eq!(reason("9.9.9.10", 53), Some(Reason::NotTcp("UDP")));
            assert_eq!(reason("a.test", 443), Some(Reason::NotTcp("UDP")));
            assert_eq!(reason("9.9.9.10", 0), Some(Reason::NotTcp("ICMP")));
        },
    );
}

#[test]
fn names_that_lead_to_special_addresses_must_be_listed() {
    internet(
        "names_that_lead_to_special_addresses_must_be_listed",
        |net| {
            let web = net.serve_http("0.0.0.0:80");
            let names = "private.test metadata.test loop.test self.test mixed.test a.test";
            let mut world = World::new(net, &format!("enforce {names}"));
            for name in ["private.test", "metadata.test", "loop.test", "self.test"] {
                let before = web.load(std::sync::atomic::Ordering::SeqCst);
                world.fails(&format!("curl -sS http://{name}/"));
                assert_eq!(
                    web.load(std::sync::atomic::Ordering::SeqCst),
                    before,
                    "{name}"
                );
                world.works("curl -sS http://a.test/");
            }
            world.works("curl -sS http://mixed.test/");
            let report = world.report();
            let special = |host: &str| {
                report.refusals.iter().any(|r| {
                    r.host == host && r.port == 80 && matches!(r.reason, Reason::SpecialAddress(..))
                })
            };
            for name in ["private.test", "metadata.test", "loop.test", "self.test"] {
                assert!(special(name), "{name}: {report:#?}");
            }
            // Listed by network, or fixed by the policy: then they are reached.
            let mut world = World::new(net, "enforce private.test 10.0.0.0/24 !9.9.9.0/24 a.test");
            world.works("curl -sS http://private.test/ && curl -sS http://10.0.0.7/");
            world.fails("curl -sS http://a.test/");
            world.fails("curl -sS http://10.0.1.7/");
            // A mirror that the user's own settings name may lie inside, but not on the machine or its cloud.
            let mut world = World::new(
                net,
                "enforce ~private.test ~metadata.test ~loop.test ~self.test",
            );
            world.works("curl -sS http://private.test/");
            for name in ["metadata.test", "loop.test", "self.test", "10.0.0.7"] {
                world.fails(&format!("curl -sS http://{name}/"));
            }
            let mut world = World::new(net, "enforce db.corp.test db.corp.test=10.0.0.5");
            world.works("curl -sS http://db.corp.test/");
            world.fails("curl -sS http://10.0.0.5/");
        },
    );
}

#[test]
fn the_hosts_loopback_is_reached_only_where_it_is_listed() {
    internet(
        "the_hosts_loopback_is_reached_only_where_it_is_listed",
        |net| {
            net.serve_http("127.0.0.1:5432");
            net.serve_http("127.0.0.1:5433");
            let mut world = World::new(net, "enforce host-loopback:5432");
            world.works("curl -sS http://localhost:5432/ && curl -sS http://127.0.0.1:5432/");
            world.fails("curl -sS http://localhost:5433/");
            // The world's own loopback is its own.
            world.works(
            "python3 -m http.server 5433 --bind 127.0.0.1 >/dev/null 2>&1 & server=$!\n\
             for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; curl -sS http://127.0.0.1:5433/ && break; done\n\
             code=$?; kill $server; exit $code",
        );
            assert!(
                world
                    .report()
                    .scopes()
                    .contains(&"tcp:localhost:5432".to_owned())
            );
            for mode in ["enforce", "observe"] {
                let entries = "localhost:1-65535 127.0.0.1:1-65535 127.0.0.0/8 *:1-65535";
                let mut world = World::new(net, &format!("{mode} {entries}"));
                world.fails("curl -sS http://localhost:5432/");
                world.fails("curl -sS http://127.0.0.1:5433/");
                world.fails("curl -sS http://127.9.9.9:5433/");
            }
        },
    );
}

#[test]
fn observing_passes_everything_and_says_what_it_would_refuse() {
    internet(
        "observing_passes_everything_and_says_what_it_would_refuse",
        |net| {
            net.serve_http("0.0.0.0:80");
            net.serve_http("0.0.0.0:8080");
            let _tls = net.serve_tls(443);
            let mut world = World::new(net, "observe a.test total=1000");
            for good in [
                "curl -sS http://a.test/",
                "curl -sS http://b.test/",
                "curl -sS http://b.test:8080/",
                "curl -sS http://9.9.9.11:8080/",
                "curl -sS http://private.test/",
                "curl -sS -f -H 'Host: b.test' http://a.test/",
                "curl -sS -k --connect-to b.test:443:a.test:443 https://b.test/",
                "curl -sS http://a.test/size/100000 | wc -c | grep 100000",
            ] {
                world.works(good);
            }
            assert_eq!(world.fails("curl -sS http://nowhere.test/").code, 6);
            let report = world.report();
            assert!(report.refusals.iter().all(|r| !r.enforced), "{report:#?}");
            let would = |host: &str, port, reason: &Reason| {
                report
                    .refusals
                    .iter()
                    .any(|r| r.host == host && r.port == port && r.reason == *reason)
            };
            assert!(report.refusals.iter().any(|r| r.reason == Reason::Budget));
            assert!(would("b.test", 0, &Reason::NotAllowed));
            assert!(would("b.test", 80, &Reason::NotAllowed));
            assert!(would("9.9.9.11", 8080, &Reason::NotAllowed));
            assert!(would("a.test", 80, &Reason::HttpHost("b.test".into())));
            assert!(would("a.test", 443, &Reason::ServerName("b.test".into())));
            assert!(
                !report
                    .refusals
                    .iter()
                    .any(|r| r.host == "a.test" && r.port == 0)
            );
            assert!(report.uses.iter().all(|u| u.refused == 0));
        },
    );
}

#[test]
fn programs_of_all_kinds_work_unmodified() {
    internet("programs_of_all_kinds_work_unmodified", |net| {
        net.serve_http("9.9.9.10:80");
        let _tls = net.serve_tls(443);
        let (cert, _) = net.certificate();
        let cert = cert.display();
        let site = net.dir.join("site");
        std::fs::create_dir_all(&site).unwrap();
        let make = "set -e; export HOME=$PWD GIT_CONFIG_NOSYSTEM=1\n\
             git init -q work && cd work && echo hello > f && git add f\n\
             git -c user.name=t -c user.email=t@t.test commit -qm one\n\
             cd .. && git clone -q --bare work repo.git && cd repo.git && git update-server-info\n\
             cd .. && mkdir -p simple/tiny && python3 - <<'END'\n\
             import zipfile\n\
             name = 'simple/tiny/tiny-1.0-py3-none-any.whl'\n\
             z = zipfile.ZipFile(name, 'w')\n\
             z.writestr('tiny.py', 'answer = 42\\n')\n\
             z.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')\n\
             z.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
             z.writestr('tiny-1.0.dist-info/RECORD', '')\n\
             z.close()\n\
             open('simple/tiny/index.html', 'w').write('<a href=\"tiny-1.0-py3-none-any.whl\">tiny-1.0-py3-none-any.whl</a>')\n\
             END\n\
             mkdir -p pkg/package && echo '{\"name\":\"tinyjs\",\"version\":\"1.0.0\"}' > pkg/package/package.json\n\
             tar czf tinyjs-1.0.0.tgz -C pkg package\n\
             echo '{\"name\":\"tinyjs\",\"dist-tags\":{\"latest\":\"1.0.0\"},\"versions\":{\"1.0.0\":{\"name\":\"tinyjs\",\"version\":\"1.0.0\",\"dist\":{\"tarball\":\"http://c.test/tinyjs-1.0.0.tgz\"}}}}' > tinyjs\n";
        let made = Command::new("sh")
            .args(["-c", make])
            .current_dir(&site)
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let server = Command::new("python3")
            .args([
                "-m",
                "http.server",
                "80",
                "--bind",
                "9.9.9.11",
                "--directory",
            ])
            .arg(&site)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let _server = Running(server);
        let mut world = World::new(net, "enforce a.test c.test");
        egress_rig::eventually("the file server answers", || {
            world.run("curl -sS -f http://c.test/repo.git/HEAD").code == 0
        });
        for (tool, good, bad) in [
            (
                "wget",
                "wget -q -O - http://a.test/",
                "wget -q -t 1 -O - http://b.test/",
            ),
            (
                "git",
                "rm -rf clone && git clone -q http://c.test/repo.git clone && grep hello clone/f",
                "git clone -q http://b.test/repo.git other",
            ),
            (
                "python3",
                "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://a.test/\").read())'",
                "python3 -c 'import urllib.request as u; u.urlopen(\"http://b.test/\")'",
            ),
            (
                "node",
                "node -e 'require(\"http\").get(\"http://a.test/\", r => r.pipe(process.stdout))'",
                "node -e 'require(\"http\").get(\"http://b.test/\", r => r.pipe(process.stdout))'",
            ),
            (
                "pip",
                "pip download -q --no-cache-dir --disable-pip-version-check --no-deps --index-url http://c.test/simple/ --trusted-host c.test -d got tiny && ls got/tiny-1.0*",
                "pip download -q --no-cache-dir --disable-pip-version-check --retries 0 --no-deps --index-url http://b.test/simple/ --trusted-host b.test -d other tiny",
            ),
            (
                "npm",
                "mkdir -p np && cd np && npm install --silent --no-audit --no-fund --no-update-notifier --registry http://c.test/ tinyjs && ls node_modules/tinyjs/package.json",
                "mkdir -p nq && cd nq && npm install --silent --no-audit --no-fund --no-update-notifier --fetch-retries 0 --registry http://b.test/ tinyjs",
            ),
        ] {
            if !on_path(tool) {
                skip(
                    "programs_of_all_kinds_work_unmodified",
                    &format!("no {tool}"),
                );
                continue;
            }
            world.works(good);
            world.fails(bad);
        }
        let get = format!(
            "python3 -c 'import ssl, urllib.request as u\n\
             c = ssl.create_default_context(cafile=\"{cert}\")\n\
             print(u.urlopen(\"https://a.test/py\", context=c).read().decode())'"
        );
        assert!(world.works(&get).contains("tls asked a.test for /py"));
        if on_path("node") {
            let get = format!(
                "NODE_EXTRA_CA_CERTS={cert} node -e 'require(\"https\").get(\"https://a.test/js\", r => r.pipe(process.stdout))'"
            );
            assert!(world.works(&get).contains("tls asked a.test for /js"));
        }
    });
}

#[test]
fn an_entry_with_a_port_passes_any_protocol_unseen() {
    internet("an_entry_with_a_port_passes_any_protocol_unseen", |net| {
        net.serve("0.0.0.0:2222", |mut stream| {
            // The server speaks first, as SSH and SMTP do.
            let _ = stream.write_all(b"hello, who are you?\n");
            let mut name = String::new();
            let _ = std::io::BufRead::read_line(&mut std::io::BufReader::new(&stream), &mut name);
            let _ = stream.write_all(format!("goodbye {name}").as_bytes());
        });
        let _tls = net.serve_tls(443);
        let mut world = World::new(net, "enforce a.test:2222 a.test:443");
        let talk = |host: &str| {
            format!(
                "python3 - <<'END'\n\
                 import socket\n\
                 s = socket.create_connection(('{host}', 2222), 5)\n\
                 f = s.makefile('rw')\n\
                 print(f.readline(), end='')\n\
                 f.write('me\\n'); f.flush(); s.shutdown(socket.SHUT_WR)\n\
                 print(f.read())\n\
                 END"
            )
        };
        assert_eq!(
            world.works(&talk("a.test")),
            "hello, who are you?\ngoodbye me\n\n"
        );
        world.fails(&talk("b.test"));
        world.works("openssl s_client -connect a.test:443 -noservername -brief </dev/null");
    });
}

#[test]
fn a_switched_protocol_needs_an_entry_with_a_port() {
    internet("a_switched_protocol_needs_an_entry_with_a_port", |net| {
        let switch = |mut stream: std::net::TcpStream| {
            let mut head = [0; 1024];
            if stream.read(&mut head).is_err() {
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
            let mut frame = [0; 4];
            if stream.read_exact(&mut frame).is_ok() {
                let _ = stream.write_all(b"echo");
            }
        };
        net.serve("0.0.0.0:80", switch);
        net.serve("0.0.0.0:8080", switch);
        let mut world = World::new(net, "enforce a.test a.test:8080");
        let talk = |port: u16| {
            format!(
                "python3 - <<'END'\n\
                 import socket\n\
                 s = socket.create_connection(('a.test', {port}), 5)\n\
                 s.sendall(b'GET / HTTP/1.1\\r\\nHost: a.test\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n')\n\
                 print(s.recv(100)[:12])\n\
                 s.sendall(b'\\x81\\x02\\r\\n')\n\
                 print(s.recv(4, socket.MSG_WAITALL))\n\
                 END"
            )
        };
        assert_eq!(world.works(&talk(8080)), "b'HTTP/1.1 101'\nb'echo'\n");
        let ran = world.run(&talk(80));
        assert!(
            ran.out.starts_with("b'HTTP/1.1 101'\n") && !ran.out.contains("echo"),
            "{ran:?}"
        );
    });
}

#[test]
fn one_dead_address_is_no_obstacle() {
    internet("one_dead_address_is_no_obstacle", |net| {
        net.serve_http("9.9.9.10:8080");
        for address in ["9.9.9.50", "2606:4700::50", "9.9.9.10"] {
            net.name("many.test", address);
        }
        net.name("dead.test", "9.9.9.50");
        let mut world = World::new(net, "enforce many.test:8080 dead.test:8080");
        world.works("curl -sS http://many.test:8080/");
        world.fails("curl -sS http://dead.test:8080/");
        let report = world.report();
        assert_eq!(report.refusals, [], "not reached is not refused");
        assert!(
            report.unreachable[0].starts_with("dead.test:8080: "),
            "{report:?}"
        );
    });
}

#[test]
fn every_resolver_understands_the_stub() {
    internet("every_resolver_understands_the_stub", |net| {
        let mut world = World::new(net, "enforce a.test *.wild.test");
        let out = world.works("getent ahosts a.test");
        assert!(
            out.contains("198.18.0.1") && out.contains("fd73:7562:7374::c612:1"),
            "{out}"
        );
        assert_eq!(world.fails("getent hosts b.test").code, 2);
        assert!(
            world.works("getent hosts 198.18.0.1").contains("a.test"),
            "reverse"
        );
        world.works("getent ahosts localhost");
        assert_eq!(
            world.fails("getent ahosts gone.wild.test").code,
            2,
            "allowed, but not there"
        );
        if on_path("node") {
            let ask = |call: &str| {
                format!(
                    "node -e 'require(\"dns\").{call}, (e, r) => {{ if (e) {{ console.log(e.code); process.exit(1) }} console.log(JSON.stringify(r)) }})'"
                )
            };
            assert_eq!(
                world.works(&ask("resolve4(\"a.test\"")),
                "[\"198.18.0.1\"]\n"
            );
            assert!(world.works(&ask("resolve6(\"a.test\"")).contains("fd73"));
            assert_eq!(
                world.works(&ask("resolveTxt(\"a.test\"")),
                "[[\"hello by text\"]]\n"
            );
            assert_eq!(
                world.fails(&ask("resolveTxt(\"b.test\"")).out,
                "ENOTFOUND\n"
            );
            assert_eq!(world.fails(&ask("resolve4(\"b.test\"")).out, "ENOTFOUND\n");
            assert_eq!(world.fails(&ask("resolveCaa(\"a.test\"")).out, "ENODATA\n");
            assert_eq!(
                world.works(&ask("reverse(\"198.18.0.1\"")),
                "[\"a.test\"]\n"
            );
        } else {
            skip("every_resolver_understands_the_stub", "no node (c-ares)");
        }
        if on_path("musl-gcc") {
            let source = "#include <netdb.h>\n#include <stdio.h>\n#include <arpa/inet.h>\n\
                int main(int c, char **v) { struct addrinfo *r, h = {.ai_family = AF_INET, .ai_flags = AI_ADDRCONFIG};\n\
                int e = getaddrinfo(v[1], 0, &h, &r); if (e) { puts(gai_strerror(e)); return 1; }\n\
                puts(inet_ntoa(((struct sockaddr_in *)r->ai_addr)->sin_addr)); return 0; }\n";
            std::fs::write(world.dir().join("ask.c"), source).unwrap();
            assert_eq!(
                world.works("musl-gcc -static ask.c -o ask && ./ask a.test"),
                "198.18.0.1\n"
            );
            assert_eq!(world.fails("./ask b.test").out, "Name does not resolve\n");
        } else {
            skip("every_resolver_understands_the_stub", "no musl-gcc");
        }
        // Over TCP, two queries in one segment, one of them nonsense.
        let tcp = "python3 - <<'END'\n\
            import socket, struct\n\
            def query(name, kind):\n\
            \x20   q = b''.join(bytes([len(p)]) + p for p in name.encode().split(b'.')) + b'\\0'\n\
            \x20   m = struct.pack('>HHHHHH', 7, 0x100, 1, 0, 0, 0) + q + struct.pack('>HH', kind, 1)\n\
            \x20   return struct.pack('>H', len(m)) + m\n\
            s = socket.create_connection(('127.0.0.53', 53))\n\
            s.sendall(query('a.test', 1) + struct.pack('>H', 3) + b'abc' + query('b.test', 1))\n\
            data = b''\n\
            while len(data) < 100:\n\
            \x20   data += s.recv(4096)\n\
            print(bytes([198, 18, 0, 1]) in data, data.count(b'\\x04test'))\n\
            END";
        assert_eq!(world.works(tcp), "True 2\n");
        assert!(
            net.asked()
                .iter()
                .all(|n| n == "a.test" || n.ends_with("wild.test")),
            "{:?}",
            net.asked()
        );
    });
}

#[test]
fn a_published_port_is_reached_from_the_hosts_loopback() {
    internet(
        "a_published_port_is_reached_from_the_hosts_loopback",
        |net| {
            let mut world = World::new(net, "enforce a.test publish=3000");
            let fetch = || -> Option<String> {
                let mut stream = std::net::TcpStream::connect(egress_rig::at(3000)).ok()?;
                stream
                    .write_all(b"GET /file HTTP/1.0\r\nHost: localhost\r\n\r\n")
                    .ok()?;
                let mut text = String::new();
                stream.read_to_string(&mut text).ok()?;
                text.contains("200 OK").then_some(text)
            };
            assert_eq!(fetch(), None, "nothing listens yet");
            std::fs::write(world.dir().join("file"), "from the world\n").unwrap();
            for bind in ["127.0.0.1", "::1"] {
                world.works(&format!(
                    "python3 -m http.server 3000 --bind {bind} >/dev/null 2>&1 & echo $! > pid"
                ));
                egress_rig::eventually("the published server answers", || fetch().is_some());
                // More connections, one after the other, than there are dialers.
                for _ in 0..100 {
                    assert!(fetch().is_some_and(|t| t.ends_with("from the world\n")));
                }
                world.works("kill $(cat pid)");
                egress_rig::eventually("the published server ends", || fetch().is_none());
            }
            let report = world.report();
            assert_eq!((report.published[0].port, report.uses.len()), (3000, 0));
            assert!(report.published[0].tx > 1000, "{report:?}");
        },
    );
}

#[test]
fn without_nftables_listed_ports_still_work_and_nothing_else_does() {
    internet(
        "without_nftables_listed_ports_still_work_and_nothing_else_does",
        |net| {
            net.serve_http("0.0.0.0:80");
            net.serve_http("0.0.0.0:8080");
            let mut world = World::new(net, "no-nftables enforce a.test a.test:8080 c.test");
            assert!(!world.gate.as_ref().unwrap().redirected(), "and it says so");
            world.works("curl -sS http://a.test/ && curl -sS -6 http://a.test:8080/");
            world.fails("curl -sS http://c.test:8080/");
            world.fails("curl -sS http://b.test/");
            assert_eq!(world.fails("curl -sS http://9.9.9.10/").code, 7);
            assert_eq!(world.fails("curl -sS 'http://[2606:4700::10]/'").code, 7);
            world.fails("curl -sS -f -H 'Host: b.test' http://a.test/");
        },
    );
}

#[test]
fn a_dead_gate_is_a_dead_network() {
    internet("a_dead_gate_is_a_dead_network", |net| {
        net.serve_http("0.0.0.0:80");
        let mut world = World::new(net, "enforce a.test");
        world.works("curl -sS http://a.test/");
        let report = world.gate.take().unwrap().finish();
        assert_eq!(report.scopes(), ["tcp:a.test:80"]);
        world.fails("curl -sS -m 5 http://a.test/");
        world.fails("curl -sS -m 5 http://198.18.0.1/");
        world.fails("curl -sS -m 5 http://9.9.9.10/");
        let direct = Command::new("curl")
            .args(["-sS", "http://9.9.9.10/"])
            .output()
            .unwrap();
        assert!(
            direct.status.success(),
            "the host's own network is unharmed"
        );
    });
}

#[test]
fn new_rules_count_at_once() {
    internet("new_rules_count_at_once", |net| {
        net.serve_http("0.0.0.0:80");
        let mut world = World::new(net, "enforce a.test");
        world.works("curl -sS http://a.test/");
        world.fails("curl -sS http://b.test/");
        let (spec, mode, ..) = egress_rig::parse("enforce b.test");
        world.gate.as_ref().unwrap().set_rules(&spec, mode);
        world.works("curl -sS http://b.test/");
        world.fails("curl -sS http://a.test/");
        world.fails("curl -sS http://198.18.0.1/");
    });
}

#[test]
fn the_users_proxy_is_used_for_dialling() {
    internet("the_users_proxy_is_used_for_dialling", |net| {
        let seen: std::sync::Arc<std::sync::Mutex<Vec<String>>> = Default::default();
        let log = std::sync::Arc::clone(&seen);
        net.serve("127.0.0.1:3128", move |mut stream| {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            let text = String::from_utf8_lossy(&head).into_owned();
            let first = text.lines().next().unwrap_or("").to_owned();
            log.lock().unwrap().push(text);
            if first.starts_with("CONNECT") {
                let mut server = std::net::TcpStream::connect("9.9.9.10:443").unwrap();
                stream
                    .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    .unwrap();
                let (mut a, mut b) = (stream.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut a, &mut b));
                let _ = std::io::copy(&mut server, &mut stream);
            } else {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nproxied\n");
            }
        });
        let _tls = net.serve_tls(443);
        let (cert, _) = net.certificate();
        let variables = |name: &str| match name {
            "https_proxy" | "http_proxy" => Some("http://user:word@localhost:3128".to_owned()),
            _ => None,
        };
        let proxies = substrate_egress::Proxies::from_variables(variables);
        // The proxy knows this name, the host does not.
        let mut world = World::with(net, "enforce a.test only-there.test", |c| {
            c.proxies = proxies
        });
        let curl = format!("curl -sS --cacert {}", cert.display());
        assert_eq!(
            world.works(&format!("{curl} https://a.test/t")),
            "tls asked a.test for /t\n"
        );
        assert_eq!(
            world.works("curl -sS http://only-there.test/p?q"),
            "proxied\n"
        );
        world.fails("curl -sS http://b.test/");
        world.fails(&format!(
            "{curl} --connect-to b.test:443:a.test:443 https://b.test/"
        ));
        let seen = seen.lock().unwrap();
        assert!(
            seen[0].starts_with("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n"),
            "{seen:?}"
        );
        assert!(seen[0].contains("Proxy-Authorization: Basic dXNlcjp3b3Jk\r\n"));
        assert!(
            seen[1].starts_with("GET http://only-there.test/p?q HTTP/1.1\r\n"),
            "{seen:?}"
        );
        assert!(seen[1].contains("Proxy-Authorization: Basic dXNlcjp3b3Jk\r\n"));
        assert!(!seen.iter().any(|head| head.contains("b.test")), "{seen:?}");
    });
}

#[test]
fn an_ordinary_user_needs_no_privilege() {
    let name = "an_ordinary_user_needs_no_privilege";
    let root = std::fs::metadata("/proc/self").is_ok_and(|m| {
        use std::os::unix::fs::MetadataExt;
        m.uid() == 0
    });
    let inside = std::env::var_os("EGRESS_RIG_INTERNET").is_some();
    let user = (root && !inside).then_some(65534);
    internet_as(name, user, |net| {
        net.serve_http("0.0.0.0:80");
        let mut world = World::new(net, "enforce a.test");
        assert!(world.gate.as_ref().unwrap().redirected());
        world.works("curl -sS http://a.test/ && curl -sS -6 http://a.test/");
        world.fails("curl -sS http://b.test/");
        world.fails("curl -sS http://9.9.9.10/");
    });
}
