//! Capabilities and the promise to gain no more.

use std::io;

const VERSION_3: u32 = 0x2008_0522;
/// The kernel's own bound; it knows fewer.
const LAST_POSSIBLE: i32 = 63;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Default, Clone, Copy)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives up every capability in every set, for this thread and all it will start.
pub fn drop_all() -> io::Result<()> {
    for capability in 0..=LAST_POSSIBLE {
        // SAFETY: plain system call without pointers.
        let rc = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        if rc < 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                // Past the last capability this kernel knows.
                Some(libc::EINVAL) => break,
                // Nobody may shrink the set without a capability; without any, and with
                // no_new_privs, there is also nothing that it could let in.
                Some(libc::EPERM) if effective()? == 0 => break,
                _ => return Err(error),
            }
        }
    }
    // SAFETY: plain system call without pointers.
    if unsafe {
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_CLEAR_ALL,
            0,
            0,
            0,
        )
    } < 0
    {
        return Err(io::Error::last_os_error());
    }
    let header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let data = [Data::default(); 2];
    // SAFETY: version 3 reads one header and two data records, which is what is passed.
    let rc = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The effective capabilities of this thread, as a bit set.
pub fn effective() -> io::Result<u64> {
    let header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let mut data = [Data::default(); 2];
    // SAFETY: version 3 reads one header and writes two data records.
    let rc = unsafe { libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::from(data[0].effective) | u64::from(data[1].effective) << 32)
}

/// No program started from here on can gain privileges, setuid bits included.
pub fn no_new_privs() -> io::Result<()> {
    // SAFETY: plain system call without pointers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
