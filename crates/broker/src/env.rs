//! Every environment variable that Substrate reads or sets, in one table; `docs/environment.md` is
//! made from it.

/// One environment variable.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it holds when nobody sets it.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// Substrate's home directory.
pub const SUBSTRATE_HOME: &str = "SUBSTRATE_HOME";
/// Who acts, for the trace.
pub const SUBSTRATE_AGENT_ID: &str = "SUBSTRATE_AGENT_ID";
/// Worlds on or off.
pub const SUBSTRATE_WORLD: &str = "SUBSTRATE_WORLD";
/// Whether the service is used.
pub const SUBSTRATE_SERVICE: &str = "SUBSTRATE_SERVICE";
/// The pivot_root variant of worlds.
pub const SUBSTRATE_HEAVY_ISOLATION: &str = "SUBSTRATE_HEAVY_ISOLATION";
/// Skips a shim's check where the policy permits it.
pub const SHIM_BYPASS: &str = "SHIM_BYPASS";
/// `exec` or `spawn`: how a shim starts its tool.
pub const SUBSTRATE_SHIM_MODE: &str = "SUBSTRATE_SHIM_MODE";

/// Where refusals are told as JSON.
pub const SUBSTRATE_JSON_ERRORS: &str = "SUBSTRATE_JSON_ERRORS";
/// Whether the prompt says that it is Substrate's.
pub const SUBSTRATE_PROMPT_SIGN: &str = "SUBSTRATE_PROMPT_SIGN";
/// The keys of the line editor.
pub const SUBSTRATE_EDIT_MODE: &str = "SUBSTRATE_EDIT_MODE";

/// Where `agent run` put the key that it took out of its environment.
pub const SUBSTRATE_AGENT_VAULT: &str = "SUBSTRATE_AGENT_VAULT";

/// The table.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: SUBSTRATE_HOME,
        default: "`~/.substrate`",
        meaning: "Substrate's home: policies, tool models, trace, worlds. Ignored inside a Substrate session.",
    },
    Variable {
        name: "HOME",
        default: "the passwd entry",
        meaning: "Your home directory, where nothing encloses Substrate and the directory is yours; a user without a passwd entry needs it. Inside a session the home of that session holds.",
    },
    Variable {
        name: SUBSTRATE_AGENT_ID,
        default: "`human`",
        meaning: "Who acts; written to every span. It names, it does not authorise.",
    },
    Variable {
        name: substrate_trace::PARENT_SPAN_VAR,
        default: "unset",
        meaning: "Set by Substrate for what it starts: session and span that the next span hangs under.",
    },
    Variable {
        name: SUBSTRATE_WORLD,
        default: "what `world.enabled` says",
        meaning: "`enabled` turns worlds on in `observe`; `disabled` turns them off, in `observe` only.",
    },
    Variable {
        name: SUBSTRATE_SERVICE,
        default: "unset",
        meaning: "`off`: this command neither uses nor starts the service; its world is made for it alone.",
    },
    Variable {
        name: SUBSTRATE_HEAVY_ISOLATION,
        default: "unset",
        meaning: "`1` builds worlds with pivot_root instead of in place.",
    },
    Variable {
        name: SHIM_BYPASS,
        default: "unset",
        meaning: "`1` makes a shim run its tool unchecked where `shims.allow_bypass` permits it; its use is recorded.",
    },
    Variable {
        name: SUBSTRATE_SHIM_MODE,
        default: "what the kernel can do",
        meaning: "`exec` or `spawn`: a shim becomes its tool, or starts it and waits.",
    },
    Variable {
        name: SUBSTRATE_JSON_ERRORS,
        default: "unset",
        meaning: "The number of a descriptor that refusals are written to as well, each as one line of JSON: `verdict`, `policy`, `rule`, `list`, `file`, `line`, `reason`, `hint`. With `2`, which `--json-errors` means, in place of the sentence on standard error.",
    },
    Variable {
        name: SUBSTRATE_PROMPT_SIGN,
        default: "unset",
        meaning: "`off`: your own prompt is shown as it is, without the policy in brackets. The shell's own variable counts, so it can be set in its start-up files.",
    },
    Variable {
        name: SUBSTRATE_EDIT_MODE,
        default: "what the shell or the inputrc says",
        meaning: "`vi` or `emacs`: the keys of the line editor.",
    },
    Variable {
        name: SUBSTRATE_AGENT_VAULT,
        default: "unset",
        meaning: "Set by `substrate agent run` for itself alone: where the key is that it took out of its environment.",
    },
    Variable {
        name: "NO_COLOR",
        default: "unset",
        meaning: "Any value: no colours.",
    },
    Variable {
        name: "VISUAL, EDITOR",
        default: "`vi`",
        meaning: "What `substrate policy edit` opens a policy in. At a prompt whose shell lives in a world, only well-known editors by their bare name.",
    },
    Variable {
        name: "PAGER",
        default: "`less`",
        meaning: "What long lists are shown in; the same holds.",
    },
    Variable {
        name: "PATH",
        default: "inherited",
        meaning: "Where programs are found, by Substrate as by any shell.",
    },
    Variable {
        name: "LC_ALL, LC_CTYPE, LANG",
        default: "inherited",
        meaning: "Without UTF-8 in the first that is set, messages use ASCII only.",
    },
];

/// The descriptor that refusals go to as JSON, if an environment names one.
pub fn json_errors(value: Option<&[u8]>) -> Option<i32> {
    let text = std::str::from_utf8(value?).ok()?;
    text.parse()
        .ok()
        .filter(|number| (0..4096).contains(number))
}

/// What says how text is shown, and no more.
const DISPLAY: [&str; 7] = [
    "NO_COLOR",
    "TERM",
    "COLORTERM",
    "COLUMNS",
    "LINES",
    "LANG",
    "TZ",
];

/// Editors and pagers that do nothing but show and edit what they are given; one that starts what the
/// directory around it says is none.
const TOOLS: [&[u8]; 13] = [
    b"vi", b"vim", b"nvim", b"nano", b"emacs", b"mg", b"micro", b"joe", b"mcedit", b"less",
    b"more", b"most", b"cat",
];

/// Whether Substrate's own commands, typed at a prompt, take over a variable of the shell behind it. They
/// run outside every world and with a person's authority, so none that chooses Substrate's home, policy
/// or worlds counts; and where that shell lives in a world (`held`), none that would have them start
/// something of its choice.
pub fn is_taken_over(name: &[u8], value: &[u8], held: bool) -> bool {
    let own = name.starts_with(b"SUBSTRATE_") || name == SHIM_BYPASS.as_bytes() || name == b"HOME";
    let display = name.starts_with(b"LC_") || DISPLAY.iter().any(|known| known.as_bytes() == name);
    let tool = matches!(name, b"VISUAL" | b"EDITOR" | b"PAGER") && TOOLS.contains(&value);
    match held {
        true => display || tool,
        false => !own,
    }
}

/// The reference page.
pub fn reference() -> String {
    let mut page = String::from(
        "# Environment variables\n\nThis page is made from the table in `crates/broker/src/env.rs`; a test compares them.\n\n| variable | default | meaning |\n|---|---|---|\n",
    );
    for Variable {
        name,
        default,
        meaning,
    } in VARIABLES
    {
        page.push_str(&format!("| `{name}` | {default} | {meaning} |\n"));
    }
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_a_shell_says_loosens_nothing() {
        let taken = |name: &str, value: &str, held| {
            super::is_taken_over(name.as_bytes(), value.as_bytes(), held)
        };
        for held in [false, true] {
            for name in ["SUBSTRATE_HOME", "SUBSTRATE_WORLD", "SHIM_BYPASS", "HOME"] {
                assert!(!taken(name, "x", held), "{name}");
            }
            assert!(taken("NO_COLOR", "1", held) && taken("LC_ALL", "C", held));
            assert!(taken("EDITOR", "nano", held));
        }
        assert!(taken("EDITOR", "code --wait", false) && taken("PATH", "/x", false));
        for (name, value) in [
            ("EDITOR", "sh"),
            ("EDITOR", "/project/nano"),
            ("PAGER", "less +!x"),
            ("LESS", "+!x"),
            ("LESSOPEN", "|x"),
            ("PATH", "/x"),
            ("LD_PRELOAD", "/x"),
        ] {
            assert!(!taken(name, value, true), "{name}={value}");
        }
    }

    #[test]
    fn the_page_is_what_the_table_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/environment.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            page,
            super::reference(),
            "write the table's text to docs/environment.md"
        );
    }
}
