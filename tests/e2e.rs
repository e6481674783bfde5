//! The binary from outside, as those who use it meet it: one file a subject, one program for all.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop"
)]

mod agent_setup;
mod agents;
mod agents_real;
mod architecture;
mod bad_input;
mod broker_people;
mod broker_setup;
mod common;
mod completion;
mod differential;
mod fidelity;
mod follows;
mod guard;
mod hooks;
mod login_shell;
mod login_support;
mod mcp;
mod nested;
mod network;
mod package;
mod person;
mod policy_commands;
mod policy_history;
mod real_agents;
mod replay;
mod replay_changes;
mod replay_golden;
mod replay_recording;
mod service_api;
mod service_attacks;
mod service_life;
mod service_load;
mod service_stream;
mod service_support;
mod session;
mod session_work;
mod shell_mode;
mod shim_guard;
mod shim_install;
mod shim_same;
mod shim_support;
mod shim_tools;
mod shim_trace;
mod start_up;
mod surface;
mod tasks;
mod terminal;
mod texts;
mod trace_commands;
mod trace_view;
mod verdicts;
mod world_faults;
mod worlds;

/// A file that nobody declares would never run.
#[test]
fn every_file_of_tests_is_declared() {
    let declared = include_str!("e2e.rs");
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests");
    for entry in std::fs::read_dir(here).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(module) = name.strip_suffix(".rs") else {
            continue;
        };
        let own_program = ["e2e", "session_repl"].contains(&module);
        assert!(
            own_program || declared.contains(&format!("\nmod {module};\n")),
            "tests/{name} is not declared in tests/e2e.rs"
        );
    }
}
