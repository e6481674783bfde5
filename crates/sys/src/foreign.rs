//! Writing a line on a descriptor that somebody else chose: without ever waiting, and only where
//! a line is nothing but a line.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Filesystems whose files are files. A write to one of the kernel's own files is a command, and
/// we might be allowed to give commands that the owner of the descriptor is not.
const PLAIN: [i64; 9] = [
    0xef53,      // ext2 to ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x794c_7630, // overlayfs
    0xf2f5_2010, // f2fs
    0x2fc1_2fc1, // zfs
    0x6969,      // nfs
    0xca45_1a4e, // bcachefs
];

/// Writes a line, or does not: where nobody reads, where it would wait, and where a write means
/// something else.
pub fn write_line(fd: &OwnedFd, line: &[u8]) -> io::Result<()> {
    let raw = fd.as_raw_fd();
    // SAFETY: an all-zero stat is valid and writable for the call.
    let kind = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::fstat(raw, &raw mut stat) < 0 {
            return Err(io::Error::last_os_error());
        }
        stat.st_mode & libc::S_IFMT
    };
    let unfit = || io::Error::from(io::ErrorKind::Unsupported);
    match kind {
        libc::S_IFSOCK => {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: the pointer and length describe `line`.
            let sent = unsafe { libc::send(raw, line.as_ptr().cast(), line.len(), flags) };
            if sent < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        }
        libc::S_IFREG if is_plain(raw) => write(raw, line),
        libc::S_IFIFO => write_fresh(raw, line),
        // SAFETY: plain system call without pointers.
        libc::S_IFCHR if unsafe { libc::isatty(raw) } == 1 => write_fresh(raw, line),
        _ => Err(unfit()),
    }
}

fn is_plain(raw: i32) -> bool {
    // SAFETY: an all-zero statfs is valid and writable for the call.
    unsafe {
        let mut info: libc::statfs = std::mem::zeroed();
        #[allow(
            clippy::unnecessary_cast,
            reason = "the type differs between architectures"
        )]
        let kind = |info: &libc::statfs| info.f_type as i64;
        libc::fstatfs(raw, &raw mut info) == 0 && PLAIN.contains(&kind(&info))
    }
}

/// Through a description of our own, whose being non-blocking is nobody else's business.
fn write_fresh(raw: i32, line: &[u8]) -> io::Result<()> {
    let own = File::options()
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(format!("/proc/self/fd/{raw}"))?;
    write(own.as_raw_fd(), line)
}

fn write(raw: i32, line: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and length describe `line`.
    if unsafe { libc::write(raw, line.as_ptr().cast(), line.len()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn pipes_and_sockets_get_the_line_and_full_ones_do_not_make_us_wait() {
        let (mut reader, writer) = io::pipe().unwrap();
        let fd: OwnedFd = writer.into();
        write_line(&fd, b"hello\n").unwrap();
        let mut got = [0; 6];
        reader.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hello\n");
        while write_line(&fd, &[b'x'; 4096]).is_ok() {}

        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let fd: OwnedFd = theirs.into();
        write_line(&fd, b"hello\n").unwrap();
        ours.read_exact(&mut got).unwrap();
        while write_line(&fd, &[b'x'; 4096]).is_ok() {}
        ours.flush().unwrap();
    }

    #[test]
    fn files_of_the_kernel_are_left_alone() {
        let name = "/proc/self/comm";
        let before = std::fs::read(name).unwrap();
        let file: OwnedFd = File::options().write(true).open(name).unwrap().into();
        write_line(&file, b"changed").unwrap_err();
        assert_eq!(std::fs::read(name).unwrap(), before);
        let null: OwnedFd = File::options()
            .write(true)
            .open("/dev/null")
            .unwrap()
            .into();
        write_line(&null, b"x").unwrap_err();
    }
}
