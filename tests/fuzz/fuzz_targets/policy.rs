//! The policy loader takes any bytes and answers with a policy or with complaints that have a place.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use substrate_policy::compile::{Inputs, compile, shipped};
use substrate_policy::diagnostic::SourceFile;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let source = SourceFile {
        name: "fuzz.yaml".to_owned(),
        path: None,
        text: text.to_owned(),
    };
    let inputs = Inputs {
        find: &|id| Ok(shipped(id)),
        tools: &[],
        clients: &BTreeMap::new(),
    };
    if let Err(error) = compile(source, &inputs) {
        assert!(!error.problems.is_empty());
        assert!(!error.to_string().is_empty());
    }
});
