//! Who is who in a new world.

use std::fs;

use substrate_init::launch::Maps;
use substrate_sys::{access, caps};
use substrate_world::error::WorldError;

/// Who is who in a new world, and who writes that down.
pub(crate) struct IdMaps {
    pub by: MapsBy,
    pub lines: Option<Maps>,
}

/// With the privilege to do so, everybody keeps his number; else only we do.
pub(crate) fn maps() -> Result<IdMaps, WorldError> {
    const SETGID: u64 = 1 << 6;
    const SETUID: u64 = 1 << 7;
    let held = caps::effective().map_err(WorldError::own("read our capabilities"))?;
    let (user, group) = access::identity();
    if held & (SETUID | SETGID) != SETUID | SETGID {
        return Ok(IdMaps {
            by: MapsBy::World(user, group),
            lines: None,
        });
    }
    let same = |path: &'static str| {
        let text = fs::read_to_string(path).map_err(WorldError::own("read the id map"))?;
        Ok::<String, WorldError>(identity_lines(&text))
    };
    Ok(IdMaps {
        by: MapsBy::Owner,
        lines: Some(Maps {
            users: same("/proc/self/uid_map")?,
            groups: same("/proc/self/gid_map")?,
        }),
    })
}

/// Every number that exists in our namespace, mapped to itself.
fn identity_lines(map: &str) -> String {
    map.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (first, count) = (words.next()?, words.nth(1)?);
            Some(format!("{first} {first} {count}\n"))
        })
        .collect()
}

/// Who writes the id maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapsBy {
    /// The owner, which has the privilege to map everybody.
    Owner,
    /// The world itself, which can map only its own user and group.
    World(u32, u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_keeps_the_number_he_has() {
        assert_eq!(
            identity_lines("         0          0 4294967295\n"),
            "0 0 4294967295\n"
        );
        assert_eq!(
            identity_lines("0 100000 1000\n1000 1000 1\n"),
            "0 0 1000\n1000 1000 1\n"
        );
    }
}
