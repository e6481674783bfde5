//! Substrate: a shell that checks, contains and records what it runs.
#![cfg_attr(not(test), no_main)]

use std::ffi::OsString;

use crate::asker::Asker;

mod agent_args;
mod agent_run_args;
mod args;
mod ask;
mod asker;
mod clients;
mod commands;
mod failure;
mod out;
mod replay_args;
mod service;
mod service_args;
mod shell_args;
mod shell_mode;
mod start_up;
mod trace_args;
mod working_directory;
mod worlds;

/// In place of musl's own, which asks the kernel for single pages.
#[cfg(target_env = "musl")]
#[global_allocator]
static MEMORY: substrate_runtime::heap::Heap = substrate_runtime::heap::Heap::new();

#[cfg(not(test))]
substrate_runtime::main!(run);

#[cfg_attr(test, expect(dead_code, reason = "tests have a `main` of their own"))]
fn run(arguments: Vec<OsString>) -> ! {
    let arguments = args::in_order(&arguments).unwrap_or(arguments);
    let ending = if commands::door::is_one(&arguments) {
        commands::door::run(&arguments)
    } else if args::is_subcommand(&arguments) {
        commands::run(&arguments, &Asker::own())
    } else {
        shell_mode::run(&arguments)
    };
    substrate_runtime::supervise::end_like(ending)
}
