//! Writing a line on a descriptor that somebody else chose: without ever waiting, and only where
//! a line is nothing but a line.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs, open};
use rustix::io::write;
use rustix::net::{SendFlags, send};
use rustix::termios::isatty;

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
    match FileType::from_raw_mode(fstat(fd)?.st_mode) {
        FileType::Socket => send(fd, line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(drop)?,
        FileType::RegularFile if is_plain(fd) => write(fd, line).map(drop)?,
        FileType::Fifo => write_fresh(fd, line)?,
        FileType::CharacterDevice if isatty(fd) => write_fresh(fd, line)?,
        _ => return Err(io::ErrorKind::Unsupported.into()),
    }
    Ok(())
}

fn is_plain(fd: &OwnedFd) -> bool {
    #[allow(
        clippy::unnecessary_cast,
        reason = "the type differs between architectures"
    )]
    fstatfs(fd).is_ok_and(|info| PLAIN.contains(&(info.f_type as i64)))
}

/// Through a description of our own, whose being non-blocking is nobody else's business.
fn write_fresh(fd: &OwnedFd, line: &[u8]) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    write(open(path, flags, Mode::empty())?, line)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
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
