//! The end of a program that met a bug of ours, in a few bytes: the standard panic message brings a
//! reader of debug information with it, which is larger than the whole shim.

/// Says so and ends with the status of a fault of Substrate. The shim is linked so that panics end
/// here; see `crates/cli/build.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn substrate_fault() -> ! {
    const TEXT: &[u8] =
        b"substrate: the shim met a fault of its own; nothing more is known, please report it\n";
    // SAFETY: writes a constant and ends the process; no destructor or handler is run.
    unsafe {
        libc::write(2, TEXT.as_ptr().cast(), TEXT.len());
        libc::_exit(125)
    }
}
