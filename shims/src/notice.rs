//! What a shim says on standard error, in the same shape as the shell.

use std::ffi::CString;
use std::io::{IsTerminal, Write};

use substrate_runtime::inherit;
use substrate_sys::environment;

/// How notices look here.
#[derive(Debug, Clone, Copy)]
pub struct Notices {
    unicode: bool,
    colour: bool,
}

impl Notices {
    /// Reads what the environment and the terminal allow.
    pub fn new(env: &[CString]) -> Self {
        let set = |name: &&str| environment::get(env, name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(set)
            .unwrap_or_default()
            .to_ascii_uppercase();
        let plain = environment::get(env, "TERM").is_none_or(|term| term == b"dumb")
            || set(&"NO_COLOR").is_some();
        Self {
            unicode: [&b"UTF-8"[..], b"UTF8"]
                .iter()
                .any(|name| locale.windows(name.len()).any(|part| part == *name)),
            colour: !plain && std::io::stderr().is_terminal(),
        }
    }

    /// The tool was refused.
    pub fn refused(&self, text: &str) {
        self.say(if self.unicode { "🔒 " } else { "substrate: " }, "31", text);
    }

    /// Something is not as it should be, and the tool runs.
    pub fn warning(&self, text: &str) {
        self.say(
            if self.unicode {
                "⚠️  substrate: "
            } else {
                "substrate: warning: "
            },
            "33",
            text,
        );
    }

    /// Substrate itself failed.
    pub fn failed(&self, text: &str) {
        self.say("substrate: ", "31", text);
    }

    /// What any shell would say.
    pub fn plain(&self, text: &str) {
        self.write(&format!("{text}\n"));
    }

    fn say(&self, sign: &str, colour: &str, text: &str) {
        let line = if self.colour {
            format!("\x1b[{colour}m{sign}{text}\x1b[0m\n")
        } else {
            format!("{sign}{text}\n")
        };
        self.write(&line);
    }

    fn write(&self, line: &str) {
        // Where there was no standard error, its number may mean another file by now.
        if !inherit::was_closed(2) {
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}
