//! The program behind every shim.
#![cfg_attr(not(test), no_main)]

use std::ffi::OsString;

use substrate_runtime::arena::Arena;

/// Nothing lives long enough to be worth giving back.
#[global_allocator]
static MEMORY: Arena = Arena::new();

#[cfg(not(test))]
substrate_runtime::main!(run);

#[cfg_attr(test, expect(dead_code, reason = "tests have a `main` of their own"))]
fn run(arguments: Vec<OsString>) -> ! {
    let ending = substrate_shim::guard::run(arguments, substrate_sys::environment::raw());
    substrate_runtime::supervise::end_like(ending)
}
