//! Why a system call failed, by the names of the kernel.

pub use libc::{
    E2BIG, EACCES, EAGAIN, EBUSY, ECONNREFUSED, EFAULT, EINTR, EINVAL, EIO, EISCONN, ELOOP, EMFILE,
    ENAMETOOLONG, ENFILE, ENOBUFS, ENOENT, ENOEXEC, ENOMEM, ENOSPC, ENOSYS, ENOTDIR, EPERM, EPIPE,
    ESTALE, EUSERS,
};

/// What the kernel says to itself of a call that is made again once what interrupted it is over.
pub const ERESTARTNOINTR: i32 = 513;
