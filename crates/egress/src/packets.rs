//! Packets that the world's firewall rejected, as its log reports them.

use std::net::{IpAddr, SocketAddr};

use substrate_sys::netlink;

/// What a rejected packet tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Where it came from.
    pub from: SocketAddr,
    /// Where it should have gone; port 0 where there are none.
    pub to: SocketAddr,
    /// `None` for TCP, else the protocol's name.
    pub other: Option<&'static str>,
}

/// The attempts in one datagram of the log.
pub fn read(datagram: &[u8]) -> Vec<Attempt> {
    const LOG_PACKET: u16 = 4 << 8;
    const PAYLOAD: u16 = 9;
    let mut found = Vec::new();
    for (kind, body) in netlink::messages(datagram) {
        if kind != LOG_PACKET {
            continue;
        }
        let attributes = netlink::attributes(body.get(4..).unwrap_or(&[]));
        let packets = attributes.filter(|(kind, _)| *kind == PAYLOAD);
        found.extend(packets.filter_map(|(_, value)| packet(value)));
    }
    found
}

fn packet(bytes: &[u8]) -> Option<Attempt> {
    let (from, to, protocol, body): (IpAddr, IpAddr, u8, &[u8]) = match bytes.first()? >> 4 {
        4 => {
            let header = bytes.get(..20)?;
            let body = bytes.get(usize::from(bytes[0] & 15) * 4..)?;
            let address = |at: usize| header[at..at + 4].first_chunk::<4>().map(|b| (*b).into());
            (address(12)?, address(16)?, header[9], body)
        }
        6 => {
            let header = bytes.get(..40)?;
            let address = |at: usize| header[at..at + 16].first_chunk::<16>().map(|b| (*b).into());
            (address(8)?, address(24)?, header[6], &bytes[40..])
        }
        _ => return None,
    };
    let other = match protocol {
        6 => None,
        17 => Some("UDP"),
        1 | 58 => Some("ICMP"),
        132 => Some("SCTP"),
        _ => Some("this protocol"),
    };
    let port = |at: usize| match protocol {
        6 | 17 | 132 => body
            .get(at..at + 2)
            .map_or(0, |b| u16::from_be_bytes([b[0], b[1]])),
        _ => 0,
    };
    Some(Attempt {
        from: SocketAddr::new(from, port(0)),
        to: SocketAddr::new(to, port(2)),
        other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn logged(packet: &[u8]) -> Vec<u8> {
        let mut m = netlink::Messages::default();
        m.message(4 << 8, 0, &[2, 0, 0, 1])
            .string(10, "substrate-dropped-")
            .attribute(9, packet);
        m.finish()
    }

    #[test]
    fn addresses_and_ports_are_read() {
        let mut udp = vec![
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 198, 19, 255, 254, 8, 8, 8, 8,
        ];
        udp.extend([0x30, 0x39, 0, 53, 0, 8, 0, 0]);
        let want = Attempt {
            from: "198.19.255.254:12345".parse().unwrap(),
            to: "8.8.8.8:53".parse().unwrap(),
            other: Some("UDP"),
        };
        assert_eq!(read(&logged(&udp)), [want]);
        let mut v6 = vec![0x60, 0, 0, 0, 0, 20, 6, 64];
        v6.extend([0; 15]);
        v6.push(1);
        v6.extend([0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        v6.extend([0, 99, 1, 187]);
        let seen = read(&logged(&v6));
        assert_eq!(seen[0].to, "[2001::9]:443".parse().unwrap());
        assert_eq!(seen[0].other, None);
    }

    proptest! {
        #[test]
        fn no_bytes_confuse_it(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = read(&bytes);
            let _ = read(&logged(&bytes));
        }
    }
}
