//! Landlock: rules on what a process and its descendants may open. The calls are made without
//! allocating, because rules must name files as they are after the world's mounts.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fstat, open};

use crate::mount;

/// Start a program.
pub const EXECUTE: u64 = 1;
/// Open a file for writing.
pub const WRITE_FILE: u64 = 1 << 1;
/// Open a file for reading.
pub const READ_FILE: u64 = 1 << 2;
/// List a directory.
pub const READ_DIR: u64 = 1 << 3;
/// Remove a directory.
pub const REMOVE_DIR: u64 = 1 << 4;
/// Remove a file.
pub const REMOVE_FILE: u64 = 1 << 5;
/// Make any kind of file, from character device to symlink.
pub const MAKE: u64 = 0x7f << 6;
/// Link or rename across directories (ABI 2).
pub const REFER: u64 = 1 << 13;
/// Truncate a file (ABI 3).
pub const TRUNCATE: u64 = 1 << 14;
/// Send commands to a device opened from here on (ABI 5).
pub const IOCTL_DEV: u64 = 1 << 15;

/// Bind a TCP port (ABI 4).
pub const BIND_TCP: u64 = 1;
/// Connect to a TCP port (ABI 4).
pub const CONNECT_TCP: u64 = 2;

/// Abstract unix sockets of processes outside (ABI 6).
pub const SCOPE_ABSTRACT: u64 = 1;
/// Signals to processes outside (ABI 6).
pub const SCOPE_SIGNAL: u64 = 2;

/// Rights that make sense on a file that is not a directory.
const ON_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
const RULE_PATH_BENEATH: u32 = 1;

/// What a domain restricts; whatever is handled and not allowed by a rule is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Handled {
    /// Rights on files.
    pub fs: u64,
    /// Rights on TCP ports.
    pub net: u64,
    /// What stays within the domain.
    pub scoped: u64,
}

impl Handled {
    /// Everything that a kernel of this ABI can restrict of what this file knows.
    pub fn all(abi: u32) -> Handled {
        let mut fs = EXECUTE | WRITE_FILE | READ_FILE | READ_DIR | REMOVE_DIR | REMOVE_FILE | MAKE;
        for (since, right) in [(2, REFER), (3, TRUNCATE), (5, IOCTL_DEV)] {
            if abi >= since {
                fs |= right;
            }
        }
        Handled {
            fs,
            net: if abi >= 4 { BIND_TCP | CONNECT_TCP } else { 0 },
            scoped: if abi >= 6 {
                SCOPE_ABSTRACT | SCOPE_SIGNAL
            } else {
                0
            },
        }
    }
}

#[repr(C, packed)]
struct PathBeneath {
    access: u64,
    parent: i32,
}

/// The ABI version of the running kernel; 0 when Landlock is off or absent.
pub fn abi() -> u32 {
    // SAFETY: null, zero and the version flag ask for the version only.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<Handled>(),
            0,
            1,
        )
    };
    u32::try_from(version).unwrap_or(0)
}

/// Starts a set of rules.
pub fn create(handled: &Handled) -> io::Result<OwnedFd> {
    // Older kernels refuse a longer structure only when its tail is not zero.
    // SAFETY: the pointer and size describe `handled`.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::from_ref(handled),
            size_of::<Handled>(),
            0,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Allows rights on a path and everything below. A path that is not there is passed over: it
/// has nothing to allow. Nor has a link, except in `/proc`, where nobody can put one.
pub fn allow(rules: &OwnedFd, path: &CStr, access: u64) -> io::Result<()> {
    let opened = match path.to_bytes().starts_with(b"/proc/") {
        true => Ok(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?),
        false => mount::open_place(path),
    };
    let fd = match opened {
        Ok(fd) => fd,
        Err(error) => {
            return match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::ELOOP) => Ok(()),
                _ => Err(error),
            };
        }
    };
    let access = match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
        FileType::Directory => access,
        _ => access & ON_FILES,
    };
    if access == 0 {
        return Ok(());
    }
    let rule = PathBeneath {
        access,
        parent: fd.as_raw_fd(),
    };
    // SAFETY: the pointer describes `rule`, of the kind the rule type asks for.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            rules.as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const rule,
            0,
        )
    };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Restricts the calling thread and all it will start. Needs `no_new_privs`.
pub fn restrict_self(rules: &OwnedFd) -> io::Result<()> {
    // SAFETY: plain system call without pointers.
    let rc = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landlock::{ABI, Access, AccessFs, AccessNet, Scope};

    #[test]
    fn the_landlock_crate_knows_the_same_rights_for_every_abi() {
        let abis = [
            ABI::V1,
            ABI::V2,
            ABI::V3,
            ABI::V4,
            ABI::V5,
            ABI::V6,
            ABI::V7,
        ];
        for (number, abi) in (1..).zip(abis) {
            let theirs = Handled {
                fs: AccessFs::from_all(abi).bits(),
                net: AccessNet::from_all(abi).bits(),
                scoped: Scope::from_all(abi).bits(),
            };
            assert_eq!(Handled::all(number), theirs, "ABI {number}");
            let on_files = Handled::all(number).fs & ON_FILES;
            assert_eq!(on_files, AccessFs::from_file(abi).bits(), "ABI {number}");
        }
        assert_eq!(Handled::all(0).net | Handled::all(0).scoped, 0);
    }

    #[test]
    fn each_right_is_the_one_of_its_name() {
        let pairs = [
            (EXECUTE, AccessFs::Execute),
            (WRITE_FILE, AccessFs::WriteFile),
            (READ_FILE, AccessFs::ReadFile),
            (READ_DIR, AccessFs::ReadDir),
            (REMOVE_DIR, AccessFs::RemoveDir),
            (REMOVE_FILE, AccessFs::RemoveFile),
            (REFER, AccessFs::Refer),
            (TRUNCATE, AccessFs::Truncate),
            (IOCTL_DEV, AccessFs::IoctlDev),
        ];
        for (ours, theirs) in pairs {
            assert_eq!(ours, theirs as u64, "{theirs:?}");
        }
        let make = AccessFs::MakeChar
            | AccessFs::MakeDir
            | AccessFs::MakeReg
            | AccessFs::MakeSock
            | AccessFs::MakeFifo
            | AccessFs::MakeBlock
            | AccessFs::MakeSym;
        assert_eq!(MAKE, make.bits());
        assert_eq!(
            (BIND_TCP, CONNECT_TCP),
            (AccessNet::BindTcp as u64, AccessNet::ConnectTcp as u64)
        );
        let scopes = (Scope::AbstractUnixSocket as u64, Scope::Signal as u64);
        assert_eq!((SCOPE_ABSTRACT, SCOPE_SIGNAL), scopes);
    }
}
