//! A policy document, read: from a checked tree of nodes to settings, details and rules.

use crate::settings::IsolatedIn;
use std::collections::BTreeMap;

use substrate_command::Models;
use substrate_compiled::{Rule, Stage};
use substrate_trace::{Mode, RuleRef, Verdict};

use super::diagnostic::{LoadError, Problem};
use super::pattern::{self, Sets};
use super::yaml::{Node, Value};
use crate::judge_tools;
use crate::policy::List;
use crate::settings::{
    CommandSettings, Details, EffectRule, EffectRules, ExecRecord, FsRules, HostEntry, Miss,
    Nested, NetRules, ObjectPattern, OnUnparsed, OutputRecord, PathEntry, PrivacySettings,
    Settings, Snapshots, ToolRule, ToolRules, TraceSettings, WorldSettings, WorldSwitch,
};
use crate::terms::{HomeMode, HostRule, Limits, OnFinish};

/// A policy as its document says it.
pub struct Document {
    /// For every judgement.
    pub settings: Settings,
    /// For judgements of effects.
    pub effects: EffectRules,
    /// For everything else.
    pub details: Details,
    /// Command rules, with their examples still to be tried.
    pub rules: Vec<(Rule, Examples)>,
}

/// Lines that a rule must, and must not, match.
#[derive(Debug, Clone, Default)]
pub struct Examples {
    /// With their places.
    pub matching: Vec<Node>,
    /// With their places.
    pub others: Vec<Node>,
}

/// Hosts that client sets such as `@npm` stand for on this machine.
pub type ClientSets = BTreeMap<String, Vec<String>>;

/// The client sets that a policy may name, whether or not this machine has the client.
pub const CLIENT_SETS: [&str; 26] = [
    "ansible",
    "arch",
    "asdf",
    "brew",
    "cargo",
    "conda",
    "debian",
    "docker",
    "fedora",
    "git",
    "github",
    "go",
    "helm",
    "maven",
    "mise",
    "nix",
    "npm",
    "nuget",
    "packages",
    "packer",
    "php",
    "python",
    "ruby",
    "terraform",
    "toolchains",
    "vagrant",
];

/// What snapshots leave out where a policy does not say.
const IGNORED: [&str; 5] = [
    "~/.ssh",
    "~/Library",
    "/var/log/auth*",
    "**/.env",
    "**/secrets",
];

const DEFAULT_PROTECT: [&str; 21] = [
    "$PROJECT/**/.git/config",
    "$PROJECT/**/.git/config.worktree",
    "$PROJECT/**/.git/commondir",
    "$PROJECT/**/.git/info/attributes",
    "$PROJECT/**/.git/hooks/**",
    "$PROJECT/**/.envrc",
    "$PROJECT/**/.substrate-profile",
    "$HOME/.cargo/bin/**",
    "$HOME/.cargo/env",
    "$HOME/.cargo/config",
    "$HOME/.cargo/config.toml",
    "$HOME/.cargo/config*",
    "$HOME/.bashrc",
    "$HOME/.bash_profile",
    "$HOME/.bash_login",
    "$HOME/.bash_logout",
    "$HOME/.profile",
    "$HOME/.zshrc",
    "$HOME/.zshenv",
    "$HOME/.zprofile",
    "$HOME/.config/fish/**",
];

/// The class of what runs later without being started by name.
const PERSISTENCE: &str = "persistence";

/// The lists of places that come with every policy.
pub struct Shipped {
    /// Named path classes.
    pub classes: Node,
    /// What runs later, by what runs it.
    pub runs_later: Node,
}

/// Reads a document whose shape the schema has already found right.
pub fn read(
    root: &Node,
    models: &dyn Models,
    shipped: &Shipped,
    clients: &ClientSets,
) -> Result<Document, LoadError> {
    let mut reader = Reader {
        problems: Vec::new(),
        models,
        clients,
    };
    let document = reader.document(root, shipped);
    if reader.problems.is_empty() {
        Ok(document)
    } else {
        Err(LoadError {
            problems: reader.problems,
        })
    }
}

struct Reader<'a> {
    problems: Vec<Problem>,
    models: &'a dyn Models,
    clients: &'a ClientSets,
}

impl Reader<'_> {
    fn document(&mut self, root: &Node, shipped: &Shipped) -> Document {
        let mode = match root.get("mode").and_then(Node::text) {
            Some("enforce") => Mode::Enforce,
            _ => Mode::Observe,
        };
        let mut classes = self.classes(root, shipped);
        let effects = self.effects(root.get("effects"), &classes);
        // Every use of a policy reads them, so those that no rule names stay out.
        classes.retain(|(name, _)| {
            let mut steps = effects.iter().flat_map(|rule| &rule.steps);
            steps.any(|step| matches!(&step.object, ObjectPattern::Class(used) if used == name))
        });
        let id = text(root.get("id"));
        let (commands, rules) = self.commands(root);
        let approval = root.get("approval");
        let net = root.get("net");
        let settings = Settings {
            id: id.clone(),
            mode,
            commands,
            require_approval: flag(approval, "required", false),
            allow_bypass: flag(root.get("shims"), "allow_bypass", true),
            redact: redact(root.get("trace")),
        };
        let effects = EffectRules {
            fs: self.fs(root.get("fs"), mode, &id),
            net: self.net(net),
            effects,
            classes,
            tools: self.tools(root.get("tools")),
        };
        let budget = net.and_then(|net| net.get("egress_budget"));
        let mut world = self.world(root.get("world"));
        world.limits.tokens = integer(root.get("guards"), "tokens");
        let details = Details {
            name: text(root.get("name")),
            files: Vec::new(),
            sha256: String::new(),
            world,
            resolve: self.resolve(net),
            bytes_per_sec: integer(budget, "bytes_per_sec"),
            total_bytes: integer(budget, "total_bytes"),
            refresh_secs: integer(net.and_then(|net| net.get("dns")), "refresh_secs").unwrap_or(60),
            interactive: flag(approval, "interactive", true),
            trace: trace(root.get("trace")),
            privacy: self.privacy(root.get("privacy")),
            document: root.to_json().to_string(),
        };
        Document {
            settings,
            effects,
            details,
            rules,
        }
    }

    fn complain(&mut self, node: &Node, message: impl Into<String>, hint: Option<&str>) {
        self.problems.push(Problem {
            place: node.place.clone(),
            message: message.into(),
            hint: hint.map(str::to_owned),
        });
    }

    fn fs(&mut self, fs: Option<&Node>, mode: Mode, id: &str) -> FsRules {
        let list = |name: &str| fs.and_then(|fs| fs.get(name));
        for name in ["read", "write", "share"] {
            for node in list(name).map(Node::items).unwrap_or_default() {
                let pattern = node.text().unwrap_or_default();
                let base = pattern.strip_suffix("/**").unwrap_or(pattern);
                if mode == Mode::Enforce
                    && pattern != "/**"
                    && substrate_compiled::glob::is_pattern(base.as_bytes())
                {
                    let message = format!("`{pattern}`: worlds know whole subtrees only");
                    self.complain(
                        node,
                        message,
                        Some("write `PATH` or `PATH/**`; `hide` and `protect` take any glob"),
                    );
                }
            }
        }
        for node in ["hide", "protect"].iter().flat_map(|name| list(name)) {
            self.need_a_beginning(node);
        }
        let protect = match list("protect") {
            Some(node) => self.paths(node),
            None => DEFAULT_PROTECT
                .iter()
                .map(|pattern| PathEntry {
                    pattern: (*pattern).to_owned(),
                    file: format!("policy:{id}"),
                    line: 0,
                })
                .collect(),
        };
        FsRules {
            read: match list("read") {
                Some(node) => self.paths(node),
                None => vec![PathEntry {
                    pattern: "/**".to_owned(),
                    file: format!("policy:{id}"),
                    line: 0,
                }],
            },
            write: list("write")
                .map(|node| self.paths(node))
                .unwrap_or_default(),
            hide: list("hide")
                .map(|node| self.paths(node))
                .unwrap_or_default(),
            protect,
            share: list("share")
                .map(|node| self.paths(node))
                .unwrap_or_default(),
            outside: miss(fs.and_then(|fs| fs.get("outside"))).unwrap_or(Miss::Deny),
        }
    }

    /// What a world hides or protects is searched for when it starts, so a pattern has to say where.
    fn need_a_beginning(&mut self, list: &Node) {
        for node in list.items() {
            let pattern = node.text().unwrap_or_default();
            let first = pattern.trim_start_matches('/').split('/').next();
            if first.is_some_and(|first| substrate_compiled::glob::is_pattern(first.as_bytes())) {
                let message =
                    format!("`{pattern}`: the whole machine would have to be searched for this");
                let hint = "begin with a directory, as in `$PROJECT/**/.env` or `$HOME/*/.env`";
                self.complain(node, message, Some(hint));
            }
        }
    }

    fn paths(&mut self, list: &Node) -> Vec<PathEntry> {
        self.paths_and(list, false)
    }

    /// Paths, and with `exceptions` those behind `!`.
    fn paths_and(&mut self, list: &Node, exceptions: bool) -> Vec<PathEntry> {
        list.items()
            .iter()
            .map(|node| {
                let written = node.text().unwrap_or_default();
                let pattern = match exceptions {
                    true => written.strip_prefix('!').unwrap_or(written),
                    false => written,
                };
                if let Err(problem) = pattern::valid_glob(pattern) {
                    self.complain(node, problem, None);
                } else if pattern.starts_with('!') {
                    self.complain(
                        node,
                        format!("`{pattern}`: a world cannot mount or hide all but some, so this list has no exceptions"),
                        Some("name what is meant; lists of `effects.classes` may have exceptions"),
                    );
                } else if !pattern.starts_with(['/', '~', '$']) && !pattern.starts_with("**/") {
                    self.complain(
                        node,
                        format!("`{pattern}` is not an absolute path"),
                        Some("begin with `/`, `~/`, `$HOME/`, `$PROJECT/` or `**/`"),
                    );
                } else if pattern.starts_with('$')
                    && !["$HOME", "$PROJECT", "$SUBSTRATE_HOME"].iter().any(|name| {
                        pattern
                            .strip_prefix(name)
                            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                    })
                {
                    self.complain(
                        node,
                        format!("`{pattern}`: only `$HOME` and `$PROJECT` are known here"),
                        None,
                    );
                }
                PathEntry {
                    pattern: written.to_owned(),
                    file: node.place.source.name.clone(),
                    line: node.place.line,
                }
            })
            .collect()
    }

    fn net(&mut self, net: Option<&Node>) -> NetRules {
        if let Some(node) = net.and_then(|net| net.get("allow_udp")) {
            self.complain(
                node,
                "UDP cannot be let out of a world",
                Some("remove `allow_udp`; TCP hosts go into `allowed`"),
            );
        }
        if let Some(node) = net
            .and_then(|net| net.get("dns"))
            .and_then(|dns| dns.get("pinned"))
            && node.bool() == Some(false)
        {
            self.complain(
                node,
                "names are always pinned: the address that was checked is the one that is dialled",
                Some("remove `dns.pinned`; `net.resolve` gives a name an address of your choice"),
            );
        }
        let mut list = |name: &str| -> Vec<HostEntry> {
            net.and_then(|net| net.get(name))
                .map(Node::items)
                .unwrap_or_default()
                .iter()
                .filter_map(|node| self.host(node))
                .collect()
        };
        let (allowed, denied) = (list("allowed"), list("denied"));
        for node in net
            .and_then(|net| net.get("allowed"))
            .map(Node::items)
            .unwrap_or_default()
        {
            self.whose_loopback(node);
        }
        NetRules {
            given: net.is_some_and(|net| {
                net.get("allowed").is_some()
                    || net.get("denied").is_some()
                    || net.get("unlisted").is_some()
            }),
            allowed,
            denied,
            unlisted: miss(net.and_then(|net| net.get("unlisted"))).unwrap_or(Miss::Deny),
        }
    }

    /// In a world `localhost` is the world's own, all of it; who names a port of it means the machine's.
    fn whose_loopback(&mut self, node: &Node) {
        let written = node.text().unwrap_or_default();
        let rule = HostRule::parse(written).ok();
        let narrow = |rule: &HostRule| rule.is_own_loopback() && rule.ports != Some((1, u16::MAX));
        if let Some(rule) = rule.filter(narrow) {
            let ports = match rule.ports {
                None => "80".to_owned(),
                Some((from, to)) if from == to => from.to_string(),
                Some((from, to)) => format!("{from}-{to}"),
            };
            let message = format!("`{written}`: the loopback of a world is its own, at every port");
            let hint = format!(
                "for this machine's write `host-loopback:{ports}`; for a command's own, `localhost:*`"
            );
            self.complain(node, message, Some(&hint));
        }
    }

    fn host(&mut self, node: &Node) -> Option<HostEntry> {
        let written = node.text()?.to_owned();
        let (file, line) = (node.place.source.name.clone(), node.place.line);
        if let Some(set) = written.strip_prefix('@') {
            if !CLIENT_SETS.contains(&set) {
                let known: Vec<String> = CLIENT_SETS.iter().map(|set| format!("@{set}")).collect();
                self.complain(
                    node,
                    format!("there is no client set `{written}`"),
                    Some(&format!("known are {}", known.join(", "))),
                );
                return None;
            }
            let members = self.clients.get(set).map(Vec::as_slice).unwrap_or_default();
            let members = members
                .iter()
                .filter_map(|host| HostRule::parse(host).ok())
                .map(|rule| HostRule {
                    internal: true,
                    ..rule
                })
                .collect();
            return Some(HostEntry {
                rule: None,
                written,
                members,
                file,
                line,
            });
        }
        match HostRule::parse(&written) {
            Ok(rule) => Some(HostEntry {
                rule: Some(rule),
                written,
                members: Vec::new(),
                file,
                line,
            }),
            Err(problem) => {
                self.complain(node, problem, None);
                None
            }
        }
    }

    fn resolve(&mut self, net: Option<&Node>) -> Vec<(String, std::net::IpAddr)> {
        let mut result = Vec::new();
        for (key, node) in net
            .and_then(|net| net.get("resolve"))
            .map(Node::entries)
            .unwrap_or_default()
        {
            let address = node.text().and_then(|text| text.parse().ok());
            match (crate::hosts::parse_name(&key.text), address) {
                (Ok(name), Some(address)) => result.push((name, address)),
                (Err(problem), _) => self.complain(node, problem, None),
                (_, None) => self.complain(
                    node,
                    "this is not an IP address",
                    Some("write for example `10.0.0.5`"),
                ),
            }
        }
        result
    }

    fn commands(&mut self, root: &Node) -> (CommandSettings, Vec<(Rule, Examples)>) {
        let commands = root.get("commands");
        let sets: Sets = commands
            .and_then(|commands| commands.get("sets"))
            .map(Node::entries)
            .unwrap_or_default()
            .iter()
            .map(|(key, node)| {
                (
                    key.text.clone(),
                    node.items()
                        .iter()
                        .filter_map(Node::text)
                        .map(str::to_owned)
                        .collect(),
                )
            })
            .collect();
        let mut rules = Vec::new();
        for list in List::ALL {
            let (section, name) = list
                .name()
                .split_once('.')
                .unwrap_or(("commands", list.name()));
            let nodes = root
                .get(section)
                .and_then(|section| section.get(name))
                .map(Node::items)
                .unwrap_or_default();
            for node in nodes {
                if let Some(rule) = self.rule(node, list, &sets) {
                    rules.push(rule);
                }
            }
        }
        let allowed = commands.and_then(|commands| commands.get("allowed"));
        let has_allowed = allowed.is_some_and(|list| !list.items().is_empty());
        let default = commands.and_then(|commands| commands.get("default"));
        let settings = CommandSettings {
            default: miss(default).unwrap_or(if has_allowed { Miss::Deny } else { Miss::Allow }),
            default_at: default.or(allowed).map(|node| PathEntry {
                pattern: default.and_then(Node::text).unwrap_or("allowed").to_owned(),
                file: node.place.source.name.clone(),
                line: node.place.line,
            }),
            has_allowed,
            allow_shell_operators: flag(commands, "allow_shell_operators", true),
            on_unparsed: match commands
                .and_then(|commands| commands.get("on_unparsed"))
                .and_then(Node::text)
            {
                Some("isolate") => OnUnparsed::Isolate,
                Some("ask") => OnUnparsed::Ask,
                Some("deny") => OnUnparsed::Deny,
                _ => OnUnparsed::Guard,
            },
            nested: match commands
                .and_then(|commands| commands.get("nested"))
                .and_then(Node::text)
            {
                Some("deny") => Nested::Deny,
                _ => Nested::World,
            },
        };
        (settings, rules)
    }

    fn rule(&mut self, node: &Node, list: List, sets: &Sets) -> Option<(Rule, Examples)> {
        let RuleText {
            pattern,
            reason,
            examples,
        } = rule_text(node)?;
        match pattern::command(&pattern, sets, self.models) {
            Ok(stages) => {
                if stages.len() > 1
                    && matches!(list, List::Allowed | List::AutoApprove | List::Direct)
                {
                    self.complain(
                        node,
                        "a pipeline cannot be allowed as a whole",
                        Some("allow each command of it"),
                    );
                }
                Some((self.build(node, list, pattern, reason, stages), examples))
            }
            Err(problem) => {
                self.complain(node, problem, None);
                None
            }
        }
    }

    fn build(
        &self,
        node: &Node,
        list: List,
        pattern: String,
        reason: Option<String>,
        stages: Vec<Stage>,
    ) -> Rule {
        let file = node.place.source.name.clone();
        Rule {
            list: list.number(),
            pattern,
            file,
            line: node.place.line,
            reason,
            stages,
        }
    }

    fn effects(
        &mut self,
        effects: Option<&Node>,
        classes: &[(String, Vec<String>)],
    ) -> Vec<EffectRule> {
        let mut rules = Vec::new();
        for (name, verdict) in [
            ("denied", Verdict::Deny),
            ("ask", Verdict::Ask),
            ("isolated", Verdict::Isolate),
        ] {
            for node in effects
                .and_then(|effects| effects.get(name))
                .map(Node::items)
                .unwrap_or_default()
            {
                let Some(RuleText {
                    pattern,
                    reason,
                    examples,
                }) = rule_text(node)
                else {
                    continue;
                };
                if !examples.matching.is_empty() || !examples.others.is_empty() {
                    self.complain(
                        node,
                        "examples are for command patterns",
                        Some("test effect rules with `substrate policy test`"),
                    );
                }
                match pattern::effect(&pattern, classes) {
                    Ok(steps) => rules.push(EffectRule {
                        verdict,
                        rule: RuleRef {
                            list: format!("effects.{name}"),
                            pattern,
                            file: node.place.source.name.clone().into(),
                            line: node.place.line,
                            reason,
                            policy: None,
                        },
                        steps,
                    }),
                    Err(problem) => self.complain(node, problem, None),
                }
            }
        }
        rules
    }

    fn tools(&mut self, tools: Option<&Node>) -> ToolRules {
        let get = |name: &str| tools.and_then(|tools| tools.get(name));
        let mut rules = Vec::new();
        for (name, verdict) in [
            ("denied", Verdict::Deny),
            ("ask", Verdict::Ask),
            ("allowed", Verdict::Allow),
        ] {
            for node in get(name).map(Node::items).unwrap_or_default() {
                rules.extend(self.tool_rule(node, name, verdict));
            }
        }
        let default = get("default");
        ToolRules {
            rules,
            default: miss(default).unwrap_or(Miss::Ask),
            default_at: default.map(|node| PathEntry {
                pattern: node.text().unwrap_or_default().to_owned(),
                file: node.place.source.name.clone(),
                line: node.place.line,
            }),
        }
    }

    fn tool_rule(&mut self, node: &Node, list: &str, verdict: Verdict) -> Option<ToolRule> {
        let RuleText {
            pattern,
            reason,
            examples,
        } = rule_text(node)?;
        if let Err(problem) = pattern::tool(&pattern) {
            let hint = "write for example `mcp:github/*` or `claude:Write`";
            self.complain(node, problem, Some(hint));
            return None;
        }
        for (nodes, expected) in [(&examples.matching, true), (&examples.others, false)] {
            for example in nodes {
                let name = example.text().unwrap_or_default();
                if judge_tools::means(&pattern, name, verdict) != expected {
                    let verb = if expected {
                        "does not match"
                    } else {
                        "matches"
                    };
                    let message = format!("the rule `{pattern}` {verb} its example `{name}`");
                    self.complain(example, message, None);
                }
            }
        }
        Some(ToolRule {
            verdict,
            rule: RuleRef {
                list: format!("tools.{list}"),
                pattern,
                file: node.place.source.name.clone().into(),
                line: node.place.line,
                reason,
                policy: None,
            },
        })
    }

    fn classes(&mut self, root: &Node, shipped: &Shipped) -> Vec<(String, Vec<String>)> {
        let own = root
            .get("effects")
            .and_then(|effects| effects.get("classes"));
        let mut unasked = Vec::new();
        for places in shipped.runs_later.items() {
            if let Some(list) = places.get("unasked") {
                unasked.extend(self.paths_and(list, false));
            }
        }
        let unasked = unasked.into_iter().map(|entry| entry.pattern).collect();
        let mut classes: Vec<(String, Vec<String>)> = vec![(PERSISTENCE.to_owned(), unasked)];
        for (key, node) in shipped
            .classes
            .entries()
            .iter()
            .chain(own.map(Node::entries).unwrap_or_default())
        {
            let patterns: Vec<String> = self
                .paths_and(node, true)
                .into_iter()
                .map(|entry| entry.pattern)
                .collect();
            match classes.iter_mut().find(|(name, _)| *name == key.text) {
                Some((_, known)) => known.extend(patterns),
                None => classes.push((key.text.clone(), patterns)),
            }
        }
        classes
    }

    fn world(&mut self, world: Option<&Node>) -> WorldSettings {
        let get = |name: &str| world.and_then(|world| world.get(name));
        if let Some(node) = get("enable_preload").filter(|node| node.bool() == Some(true)) {
            self.complain(
                node,
                "preload telemetry is not part of Substrate",
                Some("remove `enable_preload`"),
            );
        }
        if let Some(node) = get("high_isolation")
            .and_then(|node| node.get("enabled"))
            .filter(|node| node.bool() == Some(true))
        {
            self.complain(
                node,
                "worlds in micro-VMs are not part of Substrate",
                Some("remove `high_isolation`"),
            );
        }
        let allow = |what: &str| {
            get("allow")
                .map(Node::items)
                .unwrap_or_default()
                .iter()
                .any(|node| node.text() == Some(what))
        };
        WorldSettings {
            enabled: match get("enabled").and_then(Node::text) {
                Some("on") => WorldSwitch::On,
                Some("off") => WorldSwitch::Off,
                _ => WorldSwitch::Auto,
            },
            reuse_session: flag(world, "reuse_session", true),
            isolate_network: flag(world, "isolate_network", true),
            isolated: match get("isolated").and_then(Node::text) {
                Some("session") => IsolatedIn::Session,
                _ => IsolatedIn::Fresh,
            },
            on_finish: match get("on_finish").and_then(Node::text) {
                Some("keep") => OnFinish::Keep,
                Some("apply") => OnFinish::Apply,
                Some("discard") => OnFinish::Discard,
                _ => OnFinish::Ask,
            },
            home: match get("home").and_then(Node::text) {
                Some("read-only") => HomeMode::ReadOnly,
                _ => HomeMode::Overlay,
            },
            sockets: get("sockets")
                .map(|node| self.paths(node))
                .unwrap_or_default()
                .into_iter()
                .map(|entry| entry.pattern)
                .collect(),
            publish: get("publish")
                .map(Node::items)
                .unwrap_or_default()
                .iter()
                .filter_map(|node| u16::try_from(node.integer()?).ok())
                .collect(),
            allow_ptrace: allow("ptrace"),
            allow_userns: allow("userns"),
            limits: limits(get("limits")),
        }
    }

    fn privacy(&mut self, privacy: Option<&Node>) -> PrivacySettings {
        for (name, needed) in [("hash_code_only", true), ("index_user_docs", false)] {
            if let Some(node) = privacy
                .and_then(|privacy| privacy.get(name))
                .filter(|node| node.bool() == Some(!needed))
            {
                self.complain(
                    node,
                    format!(
                        "there is no index that `{name}: {}` could apply to",
                        !needed
                    ),
                    Some(&format!("write `{name}: {needed}` or remove it")),
                );
            }
        }
        let ignored = privacy.and_then(|privacy| privacy.get("ignore_paths"));
        PrivacySettings {
            ignore_paths: match ignored {
                Some(node) => {
                    let entries = self.paths(node).into_iter();
                    entries.map(|entry| entry.pattern).collect()
                }
                // A policy that says nothing about it keeps secrets out all the same.
                None => IGNORED.map(ToOwned::to_owned).to_vec(),
            },
            hash_code_only: flag(privacy, "hash_code_only", true),
            index_user_docs: flag(privacy, "index_user_docs", false),
        }
    }
}

struct RuleText {
    pattern: String,
    reason: Option<String>,
    examples: Examples,
}

fn rule_text(node: &Node) -> Option<RuleText> {
    let list = |name: &str| node.get(name).map(Node::items).unwrap_or_default().to_vec();
    match &node.value {
        Value::Map(_) => Some(RuleText {
            pattern: node.get("pattern")?.text()?.to_owned(),
            reason: node.get("reason").and_then(Node::text).map(str::to_owned),
            examples: Examples {
                matching: list("match"),
                others: list("not_match"),
            },
        }),
        _ => Some(RuleText {
            pattern: node.text()?.to_owned(),
            reason: None,
            examples: Examples::default(),
        }),
    }
}

fn text(node: Option<&Node>) -> String {
    node.and_then(Node::text).unwrap_or_default().to_owned()
}

fn flag(section: Option<&Node>, name: &str, default: bool) -> bool {
    section
        .and_then(|section| section.get(name))
        .and_then(Node::bool)
        .unwrap_or(default)
}

fn integer(section: Option<&Node>, name: &str) -> Option<u64> {
    section
        .and_then(|section| section.get(name))
        .and_then(Node::integer)
}

fn miss(node: Option<&Node>) -> Option<Miss> {
    node.and_then(Node::text).and_then(Miss::from_word)
}

fn trace(trace: Option<&Node>) -> TraceSettings {
    let word = |name: &str| trace.and_then(|trace| trace.get(name)).and_then(Node::text);
    TraceSettings {
        files: flag(trace, "files", true),
        output: match word("output") {
            Some("digest") => OutputRecord::Digest,
            Some("bounded") => OutputRecord::Bounded,
            _ => OutputRecord::Off,
        },
        snapshot: match word("snapshot") {
            Some("full") => Snapshots::Full,
            Some("off") => Snapshots::Off,
            _ => Snapshots::Auto,
        },
        execs: match word("execs") {
            Some("all") => ExecRecord::All,
            Some("off") => ExecRecord::Off,
            _ => ExecRecord::Denied,
        },
    }
}

fn redact(trace: Option<&Node>) -> Vec<String> {
    trace
        .and_then(|trace| trace.get("redact"))
        .map(Node::items)
        .unwrap_or_default()
        .iter()
        .filter_map(Node::text)
        .map(str::to_owned)
        .collect()
}

fn limits(limits: Option<&Node>) -> Limits {
    let text = |name: &str| {
        limits
            .and_then(|limits| limits.get(name))
            .and_then(Node::text)
    };
    Limits {
        cpu_milli: text("cpu").and_then(milli),
        memory: text("memory").and_then(bytes),
        pids: integer(limits, "pids").and_then(|pids| pids.try_into().ok()),
        seconds: text("time").and_then(seconds),
        tokens: None,
    }
}

/// `90s`, `10m` or `2h`; the schema has checked the form.
fn seconds(text: &str) -> Option<u32> {
    let (number, unit) = [("s", 1), ("m", 60), ("h", 3600)]
        .into_iter()
        .find_map(|(unit, seconds)| text.strip_suffix(unit).map(|number| (number, seconds)))?;
    number.parse::<u32>().ok()?.checked_mul(unit)
}

/// `1.5` CPUs are 1500; the schema has checked the form.
fn milli(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    whole
        .parse::<u32>()
        .ok()?
        .checked_mul(1000)?
        .checked_add(part.parse().ok()?)
}

fn bytes(text: &str) -> Option<u64> {
    let (number, shift) = [("Ki", 10), ("Mi", 20), ("Gi", 30)]
        .into_iter()
        .find_map(|(unit, shift)| text.strip_suffix(unit).map(|number| (number, shift)))?;
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}
