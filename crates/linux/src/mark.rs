//! How a process finds out that it runs in a world: by a mount that nobody inside can make or
//! take away, not by anything that the environment says.

use std::path::Path;

use substrate_trace::WorldId;

use crate::mountinfo::{self, Mount};

pub(crate) use substrate_sys::marker::WORLD_SOURCE as MARK;

/// The world that these mounts belong to.
pub fn world_of(mounts: &[Mount]) -> Option<WorldId> {
    let dev = mountinfo::covering(mounts, Path::new("/dev"))?;
    dev.source.strip_prefix(MARK)?.parse().ok()
}

/// The world that this process runs in, if it does.
pub fn enclosing() -> Option<WorldId> {
    world_of(&mountinfo::read().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_topmost_dev_counts() {
        let id = WorldId::new();
        let table = |last: &str| {
            mountinfo::parse(
                format!(
                    "1 0 8:1 / / rw - ext4 /dev/x rw\n\
                     2 1 0:5 / /dev rw - devtmpfs dev rw\n\
                     3 2 0:6 / /dev rw - tmpfs substrate:{id} rw\n{last}"
                )
                .as_bytes(),
            )
        };
        assert_eq!(world_of(&table("")), Some(id));
        assert_eq!(world_of(&table("4 3 0:7 / /dev rw - tmpfs x rw\n")), None);
        assert_eq!(world_of(&[]), None);
    }
}
