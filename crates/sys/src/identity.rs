//! Who we are.

/// The real user id.
pub fn user_id() -> u32 {
    // SAFETY: getuid has no arguments and cannot fail.
    unsafe { libc::getuid() }
}

/// The effective user id.
pub fn effective_user_id() -> u32 {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// The file mode creation mask, left as it is.
pub fn umask() -> u32 {
    // SAFETY: umask cannot fail; the first call's answer is put back at once. Only start-up code
    // calls this, before there are threads that could create a file in between.
    unsafe {
        let mask = libc::umask(0o077);
        libc::umask(mask);
        mask
    }
}

/// On how many processors this thread may run, at least one.
pub fn processors() -> usize {
    let mut set = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: an all-zero set is valid, and the kernel writes no more than its size.
    unsafe {
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr());
        usize::try_from(libc::CPU_COUNT(set.assume_init_ref())).map_or(1, |count| count.max(1))
    }
}
