//! Addresses that a public name has no business resolving to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use substrate_init::routes::contains;

/// What is special about an address; `None` for ordinary public ones.
///
/// An IPv6 address that carries an IPv4 one (mapped, NAT64, 6to4) is judged by what it carries.
pub fn kind(address: IpAddr) -> Option<&'static str> {
    if let IpAddr::V6(v6) = address {
        if let Some(v4) = v6.to_ipv4_mapped() {
            return Some(kind_v4(v4).unwrap_or("IPv4-mapped"));
        }
        return TABLE_V6
            .iter()
            .find_map(|&(text, bits, kind)| within(text, bits, address, kind));
    }
    match address {
        IpAddr::V4(v4) => kind_v4(v4),
        IpAddr::V6(_) => None,
    }
}

/// Whether a kind of address is one that organisations use inside.
pub fn is_internal(kind: &str) -> bool {
    ["private", "shared (CGNAT)", "documentation"].contains(&kind)
}

fn kind_v4(v4: Ipv4Addr) -> Option<&'static str> {
    let bits_of = |a: [u8; 4]| IpAddr::V4(Ipv4Addr::from(a));
    TABLE_V4
        .iter()
        .find_map(|&(net, bits, kind)| contains(bits_of(net), bits, v4.into()).then_some(kind))
}

fn within(net: [u16; 8], bits: u8, address: IpAddr, kind: &'static str) -> Option<&'static str> {
    let net = IpAddr::V6(Ipv6Addr::from(net));
    contains(net, bits, address).then_some(kind)
}

const TABLE_V4: &[([u8; 4], u8, &str)] = &[
    ([0, 0, 0, 0], 8, "unspecified"),
    ([127, 0, 0, 0], 8, "loopback"),
    ([169, 254, 169, 254], 32, "cloud metadata"),
    ([169, 254, 0, 0], 16, "link-local"),
    ([168, 63, 129, 16], 32, "cloud metadata"),
    ([100, 100, 100, 200], 32, "cloud metadata"),
    ([10, 0, 0, 0], 8, "private"),
    ([172, 16, 0, 0], 12, "private"),
    ([192, 168, 0, 0], 16, "private"),
    ([100, 64, 0, 0], 10, "shared (CGNAT)"),
    ([192, 0, 0, 0], 24, "reserved"),
    ([192, 0, 2, 0], 24, "documentation"),
    ([198, 51, 100, 0], 24, "documentation"),
    ([203, 0, 113, 0], 24, "documentation"),
    ([192, 88, 99, 0], 24, "6to4 relay"),
    ([198, 18, 0, 0], 15, "benchmarking"),
    ([224, 0, 0, 0], 4, "multicast"),
    ([240, 0, 0, 0], 4, "reserved"),
];

const TABLE_V6: &[([u16; 8], u8, &str)] = &[
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, "unspecified"),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, "loopback"),
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, "IPv4-compatible"),
    ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, "NAT64"),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "NAT64"),
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 64, "discard"),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "Teredo"),
    ([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28, "ORCHID"),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "documentation"),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "6to4"),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "documentation"),
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, "cloud metadata"),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "private"),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local"),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "site-local"),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_told_from_its_public_neighbours() {
        let table = [
            ("127.0.0.1", Some("loopback")),
            ("126.255.255.255", None),
            ("128.0.0.1", None),
            ("10.0.0.1", Some("private")),
            ("11.0.0.1", None),
            ("172.15.0.1", None),
            ("172.16.0.1", Some("private")),
            ("172.31.255.255", Some("private")),
            ("172.32.0.1", None),
            ("192.168.1.1", Some("private")),
            ("192.169.0.1", None),
            ("169.254.169.254", Some("cloud metadata")),
            ("169.254.1.1", Some("link-local")),
            ("100.64.0.1", Some("shared (CGNAT)")),
            ("100.128.0.1", None),
            ("0.0.0.0", Some("unspecified")),
            ("224.0.0.1", Some("multicast")),
            ("255.255.255.255", Some("reserved")),
            ("198.19.0.1", Some("benchmarking")),
            ("1.1.1.1", None),
            ("8.8.8.8", None),
            ("::1", Some("loopback")),
            ("::", Some("unspecified")),
            ("::ffff:127.0.0.1", Some("loopback")),
            ("::ffff:10.0.0.1", Some("private")),
            ("::ffff:1.1.1.1", Some("IPv4-mapped")),
            ("::7f00:1", Some("IPv4-compatible")),
            ("64:ff9b::a00:1", Some("NAT64")),
            ("2002:a00:1::", Some("6to4")),
            ("fd00::1", Some("private")),
            ("fd00:ec2::254", Some("cloud metadata")),
            ("fe80::1", Some("link-local")),
            ("ff02::1", Some("multicast")),
            ("2606:4700::1", None),
            ("2001:4860:4860::8888", None),
        ];
        for (text, want) in table {
            assert_eq!(kind(text.parse().unwrap()), want, "{text}");
        }
    }
}
