//! Unix sockets of the host that a world could connect to: a network namespace does not hold
//! those that have a path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Paths of sockets that take connections or datagrams, from the text of `/proc/net/unix`.
pub fn parse(table: &[u8]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = table
        .split(|byte| *byte == b'\n')
        .skip(1)
        .filter_map(|line| {
            let mut words = line.split(|byte| *byte == b' ').filter(|w| !w.is_empty());
            let flags = words.nth(3)?;
            let kind = words.next()?;
            // Skip the state; the path follows the inode and may hold spaces.
            let inode = words.nth(1)?;
            let start = inode.as_ptr() as usize - line.as_ptr() as usize + inode.len() + 1;
            let path = line.get(start..)?;
            let accepts = flags == b"00010000";
            let datagram = kind == b"0002";
            (path.first() == Some(&b'/') && (accepts || datagram))
                .then(|| PathBuf::from(OsStr::from_bytes(path)))
        })
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_that_others_can_reach_by_path_count() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/dbus/system_bus_socket\n\
0000000000000000: 00000003 00000000 00000000 0001 03   247\n\
0000000000000000: 00000003 00000000 00000000 0001 03   248 /run/connected\n\
0000000000000000: 00000002 00000000 00010000 0001 01   9 @abstract\n\
0000000000000000: 00000002 00000000 00000000 0002 01 17 /dev/log\n\
0000000000000000: 00000002 00000000 00010000 0005 01 77 /tmp/with space\n";
        assert_eq!(
            parse(table),
            ["/dev/log", "/run/dbus/system_bus_socket", "/tmp/with space"].map(PathBuf::from)
        );
    }
}
