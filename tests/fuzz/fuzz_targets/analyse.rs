//! Any bytes as a line and as an argument vector: no panic, no hang, bounded output.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use substrate_command::{Limits, Line, analyse, analyse_argv};

#[allow(unexpected_cfgs)]
#[path = "../../../crates/command/tests/common/mod.rs"]
mod common;

static MODELS: LazyLock<common::Table> = LazyLock::new(common::models);

fn check(line: &Line) {
    let limits = Limits::default();
    assert!(line.invocations.len() <= limits.max_invocations);
    for (index, found) in line.invocations.iter().enumerate() {
        assert!(found.parent.is_none_or(|parent| parent < index));
        assert!(found.via.len() <= 2 * limits.max_depth);
    }
}

fuzz_target!(|data: &[u8]| {
    let context = common::context(&MODELS);
    check(&analyse(data, &context));
    let argv: Vec<Vec<u8>> = data.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
    for found in &analyse_argv(&argv, &context).invocations {
        assert!(found.argv.len() <= data.len() + 512);
    }
});
