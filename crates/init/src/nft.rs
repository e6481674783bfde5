//! The world's own nftables, written as netlink messages: one table, two chains.
//!
//! `output` lets loopback, and TCP to what the gate serves, pass; everything else is logged to
//! the gate and rejected at once, so that programs fail fast instead of waiting.
//! `prerouting` hands that TCP, whatever its port, to the gate's listener.

use std::net::{IpAddr, SocketAddr};

use substrate_sys::netlink::{ACK, APPEND, CREATE, Messages};

/// Group under which rejected packets are logged inside the world's namespace.
pub const LOG_GROUP: u16 = 1;
/// What the log entries carry.
pub const LOG_PREFIX: &str = "substrate-dropped-";

const TABLE: &str = "substrate";
const SUBSYSTEM: u16 = 10;
const INET: u8 = 1;
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const TCP: u8 = 6;

/// Network, prefix length, and first and last port.
pub type LoopbackPorts = (IpAddr, u8, (u16, u16));

/// What the rules are made from.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Where the listener is, per family.
    pub listeners: Vec<SocketAddr>,
    /// The world's own addresses, besides loopback.
    pub own: Vec<IpAddr>,
    /// Networks whose TCP goes to the gate.
    pub gated: Vec<(IpAddr, u8)>,
    /// Loopback addresses and ports that go to the gate instead of the world itself.
    pub loopback: Vec<LoopbackPorts>,
    /// TCP to any address goes to the gate.
    pub everything: bool,
    /// Rejected packets are reported.
    pub log: bool,
}

/// The whole table in one transaction, which answers with one acknowledgement.
pub fn transaction(rules: &Rules) -> Vec<u8> {
    let mut m = Messages::default();
    m.message(0x10, 0, &[0, 0, 0, SUBSYSTEM as u8]);
    m.message(kind(0), CREATE, &head()).string(1, TABLE);
    chain(&mut m, "prerouting", 0, -150);
    chain(&mut m, "output", 3, 0);

    for &(net, prefix, ports) in &rules.loopback {
        for &listener in rules
            .listeners
            .iter()
            .filter(|l| l.is_ipv4() == net.is_ipv4())
        {
            rule(&mut m, "prerouting", |r| {
                r.family(net)
                    .tcp()
                    .destination(net, prefix, EQUAL)
                    .ports(ports)
                    .tproxy(listener);
            });
        }
    }
    for &listener in &rules.listeners {
        let v4 = listener.is_ipv4();
        let (loopback, bits) = loopback_network(v4);
        rule(&mut m, "prerouting", |r| {
            r.family(loopback)
                .tcp()
                .destination(loopback, bits, DIFFERENT);
            for &own in rules.own.iter().filter(|a| a.is_ipv4() == v4) {
                r.destination(own, full(own), DIFFERENT);
            }
            r.tproxy(listener);
        });
    }

    for v4 in [true, false] {
        let (loopback, bits) = loopback_network(v4);
        rule(&mut m, "output", |r| {
            r.family(loopback)
                .destination(loopback, bits, EQUAL)
                .verdict(ACCEPT);
        });
    }
    for &own in &rules.own {
        rule(&mut m, "output", |r| {
            r.family(own)
                .destination(own, full(own), EQUAL)
                .verdict(ACCEPT);
        });
    }
    for &(net, prefix) in &rules.gated {
        rule(&mut m, "output", |r| {
            r.family(net)
                .tcp()
                .destination(net, prefix, EQUAL)
                .verdict(ACCEPT);
        });
    }
    if rules.everything {
        rule(&mut m, "output", |r| {
            r.tcp().verdict(ACCEPT);
        });
    }
    rule(&mut m, "output", |r| {
        r.tcp();
        r.log_if(rules.log).counter().reject(true);
    });
    rule(&mut m, "output", |r| {
        r.log_if(rules.log).counter().reject(false);
    });
    let last = m.finish();
    with_ack_on_last(last)
}

/// Appends the end of the batch, after asking for an acknowledgement of the last rule.
fn with_ack_on_last(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while let Some(length) = bytes.get(at..at + 4).and_then(|b| b.try_into().ok()) {
        let next = at + u32::from_ne_bytes(length) as usize;
        if next >= bytes.len() {
            break;
        }
        at = next;
    }
    let flags = u16::from_ne_bytes([bytes[at + 6], bytes[at + 7]]) | ACK;
    bytes[at + 6..at + 8].copy_from_slice(&flags.to_ne_bytes());
    let mut end = Messages::default();
    bytes.extend(end.message(0x11, 0, &[0, 0, 0, SUBSYSTEM as u8]).finish());
    bytes
}

/// Binds the log group to the socket that sends this.
pub fn bind_log() -> Vec<u8> {
    const ULOG: u16 = 4;
    const CONFIG: u16 = 1;
    let group = LOG_GROUP.to_be_bytes();
    let head = [0, 0, group[0], group[1]];
    let mut m = Messages::default();
    // Bind, copy the first bytes of each packet, and report each at once.
    m.message(ULOG << 8 | CONFIG, ACK, &head)
        .attribute(1, &[1])
        .attribute(2, &[0, 0, 0, 128, 2, 0])
        .number(5, 1);
    m.finish()
}

fn kind(message: u16) -> u16 {
    SUBSYSTEM << 8 | message
}

fn head() -> [u8; 4] {
    [INET, 0, 0, 0]
}

fn full(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn loopback_network(v4: bool) -> (IpAddr, u8) {
    if v4 {
        (IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 0)), 8)
    } else {
        (IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), 128)
    }
}

fn chain(m: &mut Messages, name: &str, hook: u32, priority: i32) {
    m.message(kind(3), CREATE, &head())
        .string(1, TABLE)
        .string(3, name)
        .nest(4, |m| {
            m.number(1, hook).number(2, priority as u32);
        })
        .number(5, ACCEPT)
        .string(7, "filter");
}

fn rule(m: &mut Messages, chain: &str, fill: impl FnOnce(&mut Expressions<'_>)) {
    m.message(kind(6), CREATE | APPEND, &head())
        .string(1, TABLE)
        .string(2, chain)
        .nest(4, |m| fill(&mut Expressions { m }));
}

const EQUAL: u32 = 0;
const DIFFERENT: u32 = 1;
const AT_MOST: u32 = 3;
const AT_LEAST: u32 = 5;
const ACCEPT: u32 = 1;

/// The expressions of one rule; values travel through register 1, ports through 2.
struct Expressions<'a> {
    m: &'a mut Messages,
}

impl Expressions<'_> {
    fn add(&mut self, name: &str, fill: impl FnOnce(&mut Messages)) -> &mut Self {
        self.m.nest(1, |m| {
            m.string(1, name).nest(2, fill);
        });
        self
    }

    fn compare(&mut self, operator: u32, value: &[u8]) -> &mut Self {
        self.add("cmp", |m| {
            m.number(1, 1).number(2, operator).nest(3, |m| {
                m.attribute(1, value);
            });
        })
    }

    fn meta(&mut self, key: u32, value: u8) -> &mut Self {
        self.add("meta", |m| {
            m.number(1, 1).number(2, key);
        });
        self.compare(EQUAL, &[value])
    }

    /// Only packets of the family of this address.
    fn family(&mut self, like: IpAddr) -> &mut Self {
        self.meta(15, if like.is_ipv4() { IPV4 } else { IPV6 })
    }

    fn tcp(&mut self) -> &mut Self {
        self.meta(16, TCP)
    }

    /// Only packets whose destination is, or is not, in this network.
    fn destination(&mut self, net: IpAddr, prefix: u8, operator: u32) -> &mut Self {
        let (offset, length) = if net.is_ipv4() { (16, 4) } else { (24, 16) };
        self.add("payload", |m| {
            m.number(1, 1)
                .number(2, 1)
                .number(3, offset)
                .number(4, length);
        });
        let value = octets(crate::routes::network(net, prefix));
        if prefix < full(net) {
            let ones = if net.is_ipv4() {
                IpAddr::from([255u8; 4])
            } else {
                IpAddr::from([255u8; 16])
            };
            let mask = octets(crate::routes::network(ones, prefix));
            self.add("bitwise", |m| {
                m.number(1, 1)
                    .number(2, 1)
                    .number(3, length)
                    .nest(4, |m| {
                        m.attribute(1, &mask);
                    })
                    .nest(5, |m| {
                        m.attribute(1, &vec![0; mask.len()]);
                    });
            });
        }
        self.compare(operator, &value)
    }

    fn ports(&mut self, (low, high): (u16, u16)) -> &mut Self {
        self.add("payload", |m| {
            m.number(1, 1).number(2, 2).number(3, 2).number(4, 2);
        });
        self.compare(AT_LEAST, &low.to_be_bytes());
        self.compare(AT_MOST, &high.to_be_bytes())
    }

    fn load(&mut self, register: u32, value: &[u8]) -> &mut Self {
        self.add("immediate", |m| {
            m.number(1, register).nest(2, |m| {
                m.attribute(1, value);
            });
        })
    }

    fn tproxy(&mut self, to: SocketAddr) -> &mut Self {
        let family = if to.is_ipv4() { IPV4 } else { IPV6 };
        self.load(1, &octets(to.ip()));
        self.load(2, &to.port().to_be_bytes());
        self.add("tproxy", |m| {
            m.number(1, u32::from(family)).number(2, 1).number(3, 2);
        });
        self.verdict(ACCEPT)
    }

    fn verdict(&mut self, code: u32) -> &mut Self {
        self.add("immediate", |m| {
            m.number(1, 0).nest(2, |m| {
                m.nest(2, |m| {
                    m.number(1, code);
                });
            });
        })
    }

    fn log_if(&mut self, log: bool) -> &mut Self {
        if !log {
            return self;
        }
        self.add("log", |m| {
            m.attribute(1, &LOG_GROUP.to_be_bytes())
                .string(2, LOG_PREFIX);
        })
    }

    fn counter(&mut self) -> &mut Self {
        self.add("counter", |_| {})
    }

    /// TCP gets a reset, everything else "administratively prohibited".
    fn reject(&mut self, tcp: bool) -> &mut Self {
        self.add("reject", |m| {
            if tcp {
                m.number(1, 1);
            } else {
                m.number(1, 2).attribute(2, &[3]);
            }
        })
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}
