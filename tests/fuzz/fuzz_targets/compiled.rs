//! Any bytes as a compiled policy: no panic, and nothing outside of it is read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use substrate_compiled::file::{Compiled, Section, find_sorted};

fuzz_target!(|data: &[u8]| {
    let _ = find_sorted(data, b"git");
    let Ok(compiled) = Compiled::open(data) else {
        return;
    };
    for section in Section::ALL {
        let _ = compiled.section(section);
    }
    for name in [&b"git"[..], b"", b"rm"] {
        let _ = compiled.tool(name);
    }
});
