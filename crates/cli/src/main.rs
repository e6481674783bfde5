//! Substrate: a shell that checks, contains and records what it runs.
#![cfg_attr(not(test), no_main)]

use std::ffi::OsString;

mod args;
mod authority;
mod commands;
mod failure;
mod out;
mod replay_args;
mod shell_args;
mod shell_mode;
mod trace_args;

/// The allocator of musl asks the kernel for single pages and gives them back at once, which is a fifth
/// of what a short command takes.
#[cfg(target_env = "musl")]
#[global_allocator]
static MEMORY: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

#[cfg(not(test))]
substrate_sys::main!(run);

#[cfg_attr(test, expect(dead_code, reason = "tests have a `main` of their own"))]
fn run(arguments: Vec<OsString>) -> ! {
    let ending = if args::is_subcommand(&arguments) {
        commands::run(&arguments)
    } else {
        shell_mode::run(&arguments)
    };
    substrate_sys::supervise::end_like(ending)
}
