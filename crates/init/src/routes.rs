//! Loopback, the world's own addresses, and routes that make other addresses local.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use substrate_sys::netlink::{ACK, APPEND, CREATE, Messages};

/// `lo` is the first interface of every namespace.
const LOOPBACK_INDEX: u32 = 1;

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 2,
        IpAddr::V6(_) => 10,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The address with every bit after `prefix` cleared.
pub fn network(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let keep = u32::MAX
                .checked_shl(32 - u32::from(prefix.min(32)))
                .unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & keep).into()
        }
        IpAddr::V6(v6) => {
            let keep = u128::MAX
                .checked_shl(128 - u32::from(prefix.min(128)))
                .unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & keep).into()
        }
    }
}

/// Whether an address lies in a network.
pub fn contains(net: IpAddr, prefix: u8, address: IpAddr) -> bool {
    net.is_ipv4() == address.is_ipv4() && network(net, prefix) == network(address, prefix)
}

/// Brings `lo` up.
pub fn loopback_up() -> Vec<u8> {
    const IFF_UP: u32 = 1;
    let mut head = vec![0u8; 4];
    head.extend_from_slice(&LOOPBACK_INDEX.to_ne_bytes());
    head.extend_from_slice(&IFF_UP.to_ne_bytes());
    head.extend_from_slice(&IFF_UP.to_ne_bytes());
    Messages::default()
        .message(RTM_NEWLINK, ACK, &head)
        .finish()
}

/// Gives `lo` one more address.
pub fn address(own: IpAddr) -> Vec<u8> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const NO_DUPLICATE_DETECTION: u8 = 2;
    let bytes = octets(own);
    let mut head = vec![
        family(own),
        (bytes.len() * 8) as u8,
        NO_DUPLICATE_DETECTION,
        0,
    ];
    head.extend_from_slice(&LOOPBACK_INDEX.to_ne_bytes());
    Messages::default()
        .message(RTM_NEWADDR, ACK | CREATE, &head)
        .attribute(IFA_LOCAL, &bytes)
        .attribute(IFA_ADDRESS, &bytes)
        .finish()
}

/// Makes every address of a network local; connections to it come from `source`.
pub fn local_route(net: IpAddr, prefix: u8, source: IpAddr) -> Vec<u8> {
    const RTA_DST: u16 = 1;
    const RTA_OIF: u16 = 4;
    const RTA_PREFSRC: u16 = 7;
    const TABLE_LOCAL: u8 = 255;
    const PROTOCOL_STATIC: u8 = 4;
    const TYPE_LOCAL: u8 = 2;
    let scope = if net.is_ipv4() { 254 } else { 0 };
    let mut head = vec![
        family(net),
        prefix,
        0,
        0,
        TABLE_LOCAL,
        PROTOCOL_STATIC,
        scope,
        TYPE_LOCAL,
    ];
    head.extend_from_slice(&[0; 4]);
    let mut messages = Messages::default();
    messages.message(RTM_NEWROUTE, ACK | CREATE | APPEND, &head);
    if prefix > 0 {
        messages.attribute(RTA_DST, &octets(network(net, prefix)));
    }
    messages
        .attribute(RTA_OIF, &LOOPBACK_INDEX.to_ne_bytes())
        .attribute(RTA_PREFSRC, &octets(source))
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_contain_what_their_prefix_says() {
        assert!(contains(ip("198.18.0.0"), 15, ip("198.19.255.255")));
        assert!(!contains(ip("198.18.0.0"), 15, ip("198.20.0.0")));
        assert!(contains(ip("0.0.0.0"), 0, ip("255.255.255.255")));
        assert!(contains(ip("10.1.2.3"), 32, ip("10.1.2.3")));
        assert!(!contains(ip("10.1.2.3"), 32, ip("10.1.2.2")));
        assert!(contains(ip("::"), 0, ip("ffff::1")));
        assert!(contains(ip("fd00::"), 8, ip("fdff::1")));
        assert!(!contains(ip("::"), 0, ip("10.0.0.1")));
        assert_eq!(network(ip("10.1.2.3"), 8), ip("10.0.0.0"));
    }
}
