//! Synthetic addresses: each name that may be reached gets one of its own, in both families.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use substrate_init::routes::contains;

/// The network synthetic addresses come from; reserved for tests of equipment, so no real host.
pub const V4: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::new(198, 18, 0, 0)), 15);
/// Its IPv6 twin: the same number in the last 32 bits.
pub const V6: (IpAddr, u8) = (
    IpAddr::V6(Ipv6Addr::new(0xfd73, 0x7562, 0x7374, 0, 0, 0, 0, 0)),
    96,
);
/// The world's own address. Resolvers that look at the configured addresses want one that is
/// not loopback, or they leave the family out.
pub const OWN_V4: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 254);
/// The same for IPv6.
pub const OWN_V6: Ipv6Addr = twin(OWN_V4);

/// Names a world may have at once; the address space has room for twice as many.
const CAPACITY: usize = 1 << 16;

const fn twin(v4: Ipv4Addr) -> Ipv6Addr {
    let bits = 0xfd73_7562_7374_0000_0000_0000_0000_0000u128 | v4.to_bits() as u128;
    Ipv6Addr::from_bits(bits)
}

/// Which name each address stands for. An address is never given to a second name, so what a
/// program has remembered stays true as long as the world lives.
#[derive(Debug, Default)]
pub struct Pool {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Pool {
    /// The addresses of a name, given out now if it has none; `None` when the pool is used up.
    pub fn addresses(&mut self, name: &str) -> Option<(Ipv4Addr, Ipv6Addr)> {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => {
                if self.names.len() >= CAPACITY {
                    return None;
                }
                let name: Arc<str> = name.into();
                self.names.push(Arc::clone(&name));
                let number = self.names.len() as u32;
                self.numbers.insert(name, number);
                number
            }
        };
        let v4 = Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + number);
        Some((v4, twin(v4)))
    }

    /// The name an address stands for.
    pub fn name(&self, address: IpAddr) -> Option<Arc<str>> {
        let v4 = match address {
            IpAddr::V4(v4) => v4,
            IpAddr::V6(v6) => {
                let v4 = Ipv4Addr::from_bits(v6.to_bits() as u32);
                if twin(v4) != v6 {
                    return None;
                }
                v4
            }
        };
        let number = v4
            .to_bits()
            .checked_sub(Ipv4Addr::new(198, 18, 0, 0).to_bits())?;
        self.names.get(number.checked_sub(1)? as usize).cloned()
    }

    /// Whether an address is one that this pool gives out.
    pub fn covers(address: IpAddr) -> bool {
        contains(V4.0, V4.1, address) || contains(V6.0, V6.1, address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_addresses_and_an_address_its_name() {
        let mut pool = Pool::default();
        let (a4, a6) = pool.addresses("a.test").unwrap();
        let (b4, _) = pool.addresses("b.test").unwrap();
        assert_ne!(a4, b4);
        assert_eq!(pool.addresses("a.test").unwrap(), (a4, a6));
        assert_eq!(pool.name(a4.into()).as_deref(), Some("a.test"));
        assert_eq!(pool.name(a6.into()).as_deref(), Some("a.test"));
        assert!(Pool::covers(a4.into()) && Pool::covers(a6.into()));
    }

    #[test]
    fn addresses_outside_the_pool_have_no_name() {
        let mut pool = Pool::default();
        pool.addresses("a.test").unwrap();
        for text in [
            "198.18.0.0",
            "198.18.0.2",
            "10.0.0.1",
            "::1",
            "fd73:7562:7375::c612:1",
        ] {
            assert_eq!(pool.name(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn the_pool_ends_before_the_worlds_own_address() {
        let mut pool = Pool::default();
        let last = (0..CAPACITY)
            .map(|i| pool.addresses(&format!("h{i}.test")).unwrap())
            .last();
        assert!(last.unwrap().0 < OWN_V4);
        assert_eq!(pool.addresses("one.too.many"), None);
        assert!(pool.addresses("h7.test").is_some());
    }
}
