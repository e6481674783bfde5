//! Shapes that several crates and every reader of the trace share.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use substrate_text::visible_whole;

use crate::json::Json;

/// A closed set of words: one table gives both directions.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// The word used in JSON and messages.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The value that a word stands for.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words! {
    /// What the policy answered, from mild to strict.
    Verdict {
        /// It may run.
        Allow = "allow",
        /// It may run in a fresh world.
        Isolate = "isolate",
        /// A person must agree first.
        Ask = "ask",
        /// It must not run.
        Deny = "deny",
    }
}

words! {
    /// What became of a violation.
    Outcome {
        /// It was refused.
        Deny = "deny",
        /// It would have been refused in `enforce`.
        WouldDeny = "would_deny",
        /// A person would have been asked in `enforce`.
        WouldAsk = "would_ask",
    }
}

words! {
    /// Whether refusals are carried out or only recorded.
    Mode {
        /// Nothing is refused; what would have been is recorded.
        Observe = "observe",
        /// Refusals are carried out.
        Enforce = "enforce",
    }
}

/// Nothing is refused unless somebody asked for it.
impl Default for Mode {
    fn default() -> Self {
        Self::Observe
    }
}

words! {
    /// The part of Substrate that wrote an event.
    Component {
        /// The shell front end.
        Shell = "shell",
        /// A shim in front of a tool.
        Shim = "shim",
        /// The broker.
        Broker = "broker",
        /// A world, its guard or its network gate.
        World = "world",
        /// A replay.
        Replay = "replay",
        /// A hook of an agent's client.
        Hook = "hook",
        /// A server of the Model Context Protocol.
        Mcp = "mcp",
    }
}

words! {
    /// How strongly the kernel contained a command, from nothing upwards.
    Level {
        /// Nothing was contained.
        None = "none",
        /// Landlock, seccomp and rlimits, without namespaces.
        Landlock = "landlock",
        /// Everything.
        Full = "full",
    }
}

/// What a command changed on disk. Paths are absolute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "read", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "read", serde(default))]
pub struct FsDiff {
    /// The directory that was compared.
    #[cfg_attr(feature = "read", serde(with = "substrate_text::wire"))]
    pub root: PathBuf,
    /// Files that were created.
    #[cfg_attr(feature = "read", serde(with = "substrate_text::wire::list"))]
    pub writes: Vec<PathBuf>,
    /// Files that were changed.
    #[cfg_attr(feature = "read", serde(with = "substrate_text::wire::list"))]
    pub mods: Vec<PathBuf>,
    /// Files and directories that were removed.
    #[cfg_attr(feature = "read", serde(with = "substrate_text::wire::list"))]
    pub deletes: Vec<PathBuf>,
    /// Directories that were created.
    #[cfg_attr(feature = "read", serde(with = "substrate_text::wire::list"))]
    pub created_dirs: Vec<PathBuf>,
    /// The lists hold only the first part; `tree_hash` and `summary` stand for all of it.
    pub truncated: bool,
    /// Hash of the whole change.
    pub tree_hash: Option<String>,
    /// The change in a few words, for people.
    pub summary: Option<String>,
    /// How the difference was found: `overlay`, `copy`, `snapshot`, `skipped`, …
    pub strategy: String,
}

impl FsDiff {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
            && self.mods.is_empty()
            && self.deletes.is_empty()
            && self.created_dirs.is_empty()
    }

    /// Writes the shared JSON shape.
    pub fn write_json(&self, json: &mut Json) {
        json.open_object();
        json.key("root").os(&self.root);
        json.key("writes").os_array(&self.writes);
        json.key("mods").os_array(&self.mods);
        json.key("deletes").os_array(&self.deletes);
        json.key("created_dirs").os_array(&self.created_dirs);
        json.key("truncated").bool(self.truncated);
        optional(json, "tree_hash", self.tree_hash.as_deref());
        optional(json, "summary", self.summary.as_deref());
        json.key("strategy").string(&self.strategy);
        json.close_object();
    }
}

/// What really held a command, as probed, not as wished.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "read", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "read", serde(default))]
pub struct Enforced {
    /// The level that was reached.
    #[cfg_attr(
        feature = "read",
        serde(deserialize_with = "crate::read::words::level")
    )]
    pub level: Level,
    /// What held files back: `overlay`, `binds`, `landlock`, `copy`, `none`, …
    pub fs: String,
    /// What held the network back: `gate`, `closed`, `none`, …
    pub net: String,
    /// What judged program starts: `guard`, `shims`, `none`, …
    pub exec: String,
    /// What limited resources: `cgroup2`, `cgroup1`, `rlimits`, `none`, …
    pub limits: String,
    /// What the policy asked for and this machine could not give.
    pub degraded: Vec<String>,
}

impl Default for Enforced {
    fn default() -> Self {
        let none = || "none".to_owned();
        Self {
            level: Level::None,
            fs: none(),
            net: none(),
            exec: none(),
            limits: none(),
            degraded: Vec::new(),
        }
    }
}

impl Enforced {
    /// Writes the shared JSON shape.
    pub fn write_json(&self, json: &mut Json) {
        json.open_object();
        json.key("level").string(self.level.as_str());
        json.key("fs").string(&self.fs);
        json.key("net").string(&self.net);
        json.key("exec").string(&self.exec);
        json.key("limits").string(&self.limits);
        json.key("degraded").string_array(&self.degraded);
        json.close_object();
    }
}

/// The rule that decided, and where it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "read", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "read", serde(default))]
pub struct RuleRef {
    /// The list it stands in, such as `commands.denied`.
    pub list: String,
    /// The pattern as written.
    pub pattern: String,
    /// The policy file; built-in ones are named `builtin:default.yaml`.
    #[cfg_attr(feature = "read", serde(with = "substrate_text::wire"))]
    pub file: PathBuf,
    /// The line in that file, from 1.
    pub line: u32,
    /// Why, in the words of the policy's author.
    pub reason: Option<String>,
    /// The policy it belongs to, where that is another than the one in use. Not recorded: the
    /// file says it.
    #[cfg_attr(feature = "read", serde(skip))]
    pub policy: Option<String>,
}

/// `policies/default.yaml:31`, or `builtin:default.yaml:31`; what holds without being written down
/// has no line.
impl fmt::Display for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&visible_whole(self.file.as_os_str().as_bytes()))?;
        match self.line {
            0 => Ok(()),
            line => write!(f, ":{line}"),
        }
    }
}

impl RuleRef {
    /// Writes the shared JSON shape.
    pub fn write_json(&self, json: &mut Json) {
        json.open_object();
        json.key("list").string(&self.list);
        json.key("pattern").string(&self.pattern);
        json.key("file").os(&self.file);
        json.key("line").int(self.line);
        json.key("reason");
        match &self.reason {
            Some(reason) => json.string(reason),
            None => json.null(),
        };
        json.close_object();
    }
}

/// The sentence about a refusal, the same in the shell and in the shim:
/// `denied by policy 'default' (sudo *, policies/default.yaml:31): no privileges`.
pub fn denial(policy_id: &str, rule: Option<&RuleRef>, reason: &str) -> String {
    let own = rule.and_then(|rule| rule.policy.as_deref());
    let mut text = format!(
        "denied by policy '{}'",
        visible_whole(own.unwrap_or(policy_id).as_bytes())
    );
    match rule {
        Some(rule) if rule.pattern.is_empty() => text.push_str(&format!(" ({rule})")),
        Some(rule) => text.push_str(&format!(
            " ({}, {rule})",
            visible_whole(rule.pattern.as_bytes())
        )),
        None => {}
    }
    if !reason.is_empty() {
        text.push_str(": ");
        text.push_str(&visible_whole(reason.as_bytes()));
    }
    text
}

/// The same for a program that reads it: one object in one line.
pub fn denial_json(
    verdict: Verdict,
    policy_id: &str,
    rule: Option<&RuleRef>,
    reason: &str,
    hint: &str,
) -> Vec<u8> {
    let mut json = Json::new();
    json.open_object();
    json.key("v").int(1);
    json.key("error").string("refused");
    json.key("verdict").string(verdict.as_str());
    let own = rule.and_then(|rule| rule.policy.as_deref());
    json.key("policy").string(own.unwrap_or(policy_id));
    json.key("rule");
    match rule.filter(|rule| !rule.pattern.is_empty()) {
        Some(rule) => json.string(&rule.pattern),
        None => json.null(),
    };
    json.key("list");
    match rule {
        Some(rule) => json.string(&rule.list),
        None => json.null(),
    };
    json.key("file");
    match rule {
        Some(rule) => json.os(&rule.file),
        None => json.null(),
    };
    json.key("line");
    match rule.filter(|rule| rule.line > 0) {
        Some(rule) => json.int(rule.line),
        None => json.null(),
    };
    json.key("reason").string(reason);
    json.key("hint").string(hint);
    json.close_object();
    let mut line = json.into_bytes();
    line.push(b'\n');
    line
}

/// What a command exchanged with one host and port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "read", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "read", serde(default))]
pub struct NetUse {
    /// The name, or the address where no name was used.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Bytes sent.
    pub tx: u64,
    /// Bytes received.
    pub rx: u64,
    /// Attempts that were refused.
    pub refused: u64,
}

/// What a program tried to reach and was refused, or would have been.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "read", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "read", serde(default))]
pub struct NetAttempt {
    /// The name, or the address where no name was used.
    pub host: String,
    /// The port; 0 for a name that was only looked up.
    pub port: u16,
    /// Why, as a word for programs: `not-allowed`, `tls-server-name`, …
    pub why: String,
    /// The file that the program runs, where it could be told.
    #[cfg_attr(feature = "read", serde(with = "substrate_text::wire::optional"))]
    pub program: Option<OsString>,
    /// Its process id, as the host sees it.
    pub pid: Option<i32>,
}

impl NetAttempt {
    /// Writes the shared JSON shape.
    pub fn write_json(&self, json: &mut Json) {
        json.open_object();
        json.key("host").string(&self.host);
        json.key("port").int(self.port);
        json.key("why").string(&self.why);
        if let Some(program) = &self.program {
            json.key("program").os(program);
        }
        if let Some(pid) = self.pid {
            json.key("pid").int(pid);
        }
        json.close_object();
    }
}

impl NetUse {
    /// Writes the shared JSON shape.
    pub fn write_json(&self, json: &mut Json) {
        json.open_object();
        json.key("host").string(&self.host);
        json.key("port").int(self.port);
        json.key("tx").int(self.tx);
        json.key("rx").int(self.rx);
        json.key("refused").int(self.refused);
        json.close_object();
    }
}

fn optional(json: &mut Json, key: &str, value: Option<&str>) {
    if let Some(value) = value {
        json.key(key).string(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_policy_pattern_place_and_reason() {
        let rule = RuleRef {
            list: "commands.denied".into(),
            pattern: "sudo *".into(),
            file: "policies/default.yaml".into(),
            line: 31,
            reason: None,
            policy: None,
        };
        let nameless = RuleRef {
            pattern: String::new(),
            ..rule.clone()
        };
        assert_eq!(
            denial("default", Some(&nameless), ""),
            "denied by policy 'default' (policies/default.yaml:31)"
        );
        let of_another = RuleRef {
            policy: Some("strict".into()),
            line: 0,
            ..rule.clone()
        };
        assert_eq!(
            denial("default", Some(&of_another), ""),
            "denied by policy 'strict' (sudo *, policies/default.yaml)"
        );
        assert_eq!(
            denial("default", Some(&rule), "no privileges"),
            "denied by policy 'default' (sudo *, policies/default.yaml:31): no privileges"
        );
        assert_eq!(denial("default", None, ""), "denied by policy 'default'");
        let built_in = RuleRef {
            file: "builtin:default.yaml".into(),
            ..rule
        };
        assert_eq!(built_in.to_string(), "builtin:default.yaml:31");
    }

    #[test]
    fn a_refusal_cannot_steer_the_terminal() {
        assert_eq!(
            denial("p", None, "a\u{1b}[2Jb\u{9b}c\n"),
            "denied by policy 'p': a\\u{1b}[2Jb\\u{9b}c\\n"
        );
    }

    #[test]
    fn words_go_both_ways() {
        for verdict in [
            Verdict::Allow,
            Verdict::Isolate,
            Verdict::Ask,
            Verdict::Deny,
        ] {
            assert_eq!(Verdict::from_word(verdict.as_str()), Some(verdict));
        }
        assert!(Verdict::Deny > Verdict::Ask);
        assert_eq!(Outcome::from_word("would_deny"), Some(Outcome::WouldDeny));
        assert_eq!(Outcome::from_word("would"), None);
    }
}
