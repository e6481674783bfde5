//! Capabilities and the promise to gain no more.

use std::io;

use rustix::io::Errno;
use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// The kernel's own bound; it knows fewer.
const LAST_POSSIBLE: u32 = 63;

/// Gives up every capability in every set, for this thread and all it will start. Allocates nothing.
pub fn drop_all() -> io::Result<()> {
    for number in 0..=LAST_POSSIBLE {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Past the last capability this kernel knows.
            Err(Errno::INVAL) => break,
            // Nobody may shrink the set without a capability; without any, and with
            // no_new_privs, there is also nothing that it could let in.
            Err(Errno::PERM) if effective()? == 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    thread::clear_ambient_capability_set()?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(thread::set_capabilities(None, none)?)
}

/// The effective capabilities of this thread, as a bit set.
pub fn effective() -> io::Result<u64> {
    Ok(thread::capabilities(None)?.effective.bits())
}

/// No program started from here on can gain privileges, setuid bits included.
pub fn no_new_privs() -> io::Result<()> {
    Ok(thread::set_no_new_privs(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::caps::CapSet;

    /// A set as the `caps` crate reads it.
    fn read(set: CapSet) -> u64 {
        let all = ::caps::read(None, set).unwrap();
        all.iter()
            .fold(0, |bits, capability| bits | capability.bitmask())
    }

    #[test]
    fn the_caps_crate_sees_what_we_have_and_that_nothing_is_left() {
        assert_eq!(effective().unwrap(), read(CapSet::Effective));
        // Capabilities belong to a thread, and end with this one.
        let dropped = std::thread::spawn(|| {
            let shrinks = read(CapSet::Effective) & ::caps::Capability::CAP_SETPCAP.bitmask() != 0;
            no_new_privs().unwrap();
            drop_all().unwrap();
            let sets = [
                CapSet::Effective,
                CapSet::Permitted,
                CapSet::Inheritable,
                CapSet::Ambient,
            ];
            assert_eq!(sets.map(read), [0; 4]);
            assert_eq!(effective().unwrap(), 0);
            // Nobody but those with this capability may shrink the last set.
            assert!(!shrinks || read(CapSet::Bounding) == 0);
        });
        dropped.join().unwrap();
    }
}
