//! Descriptors as files: every complaint names the file, the line and the column, and what to write instead.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use substrate_modelgate::{Route, Url, Wire};
use substrate_policy::diagnostic::{Problem, SourceFile};
use substrate_policy::terms::{HostPattern, HostRule};
use substrate_policy::yaml::{Node, Value};
use substrate_text::nearest;

use crate::descriptor::{
    Access, Auth, Descriptor, HomePath, Key, Model, Outcome, Outcomes, Price, is_name,
};

/// The JSON schema of descriptors.
pub fn schema() -> &'static str {
    include_str!("../../../schemas/agent.json")
}

/// Why a file was not taken: everything that is wrong with it.
#[derive(Debug, Clone)]
pub struct LoadError {
    /// At least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            f.write_str(&problem.text("Agent descriptor error"))?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}

/// Reads a descriptor. `name` is what messages call the file.
pub fn parse(text: &str, name: &str) -> Result<Descriptor, LoadError> {
    let source = Arc::new(SourceFile {
        name: name.to_owned(),
        path: None,
        text: text.to_owned(),
    });
    let root = Node::parse(&source).map_err(|error| LoadError {
        problems: error.problems,
    })?;
    let mut reader = Reader {
        problems: Vec::new(),
    };
    let descriptor = reader.descriptor(&root, name);
    match reader.problems.is_empty() {
        true => Ok(descriptor),
        false => Err(LoadError {
            problems: reader.problems,
        }),
    }
}

const KEYS: &[&str] = &[
    "name",
    "title",
    "command",
    "version",
    "install",
    "auth",
    "keys",
    "login",
    "models",
    "hosts",
    "home",
    "env",
    "arguments",
    "settings",
    "outcome",
    "prices",
];
const MODEL_KEYS: &[&str] = &[
    "wire",
    "host",
    "base",
    "base_url",
    "keys",
    "inside",
    "allow",
    "arguments",
    "env",
    "longest_answer",
];
const ARGUMENT_KEYS: &[&str] = &[
    "always",
    "interactive",
    "headless",
    "turns",
    "streamed",
    "resume",
];

/// What an answer costs at most when neither the request nor the descriptor says it.
const LONGEST_ANSWER: u64 = 32_000;

struct Reader {
    problems: Vec<Problem>,
}

impl Reader {
    fn complain(&mut self, node: &Node, message: impl Into<String>, hint: Option<String>) {
        self.problems.push(Problem {
            place: node.place.clone(),
            message: message.into(),
            hint,
        });
    }

    fn descriptor(&mut self, root: &Node, file: &str) -> Descriptor {
        self.mapping(root, "a descriptor", KEYS, &["name", "command", "auth"]);
        let arguments = root.get("arguments");
        if let Some(node) = arguments {
            self.mapping(node, "`arguments`", ARGUMENT_KEYS, &[]);
        }
        let settings = root.get("settings");
        if let Some(node) = settings {
            self.mapping(node, "`settings`", &["hooks", "mcp"], &[]);
        }
        let of =
            |section: Option<&Node>, key: &str| section.and_then(|node| node.get(key)).cloned();
        let name = self.name(root.get("name"));
        let descriptor = Descriptor {
            title: match root.get("title") {
                Some(node) => self.text(node, "title"),
                None => name.clone(),
            },
            name,
            file: file.to_owned(),
            command: self.command(root.get("command")),
            version: self.texts(root.get("version"), "version"),
            install: self.install(root.get("install")),
            auth: self.auth(root.get("auth")),
            keys: self.variables(root.get("keys"), "keys"),
            login: self.home_paths(root.get("login"), "login"),
            models: self.models(root.get("models")),
            hosts: self.hosts(root.get("hosts")),
            home: self.home(root.get("home")),
            env: self.env(root.get("env"), &[]),
            always: self.words(of(arguments, "always"), &[]),
            interactive: self.words(of(arguments, "interactive"), &[]),
            headless: self.template(of(arguments, "headless"), "{goal}"),
            turns: self.template(of(arguments, "turns"), "{turns}"),
            streamed: of(arguments, "streamed").map(|node| self.words(Some(node), &["{goal}"])),
            resume: of(arguments, "resume").map(|node| self.words(Some(node), &["{session}"])),
            hooks: self.texts(settings.and_then(|node| node.get("hooks")), "hooks"),
            mcp: self.texts(settings.and_then(|node| node.get("mcp")), "mcp"),
            outcomes: root.get("outcome").map(|node| self.outcomes(node)),
            prices: self.prices(root.get("prices")),
        };
        if descriptor.auth == Auth::Gated && descriptor.models.is_empty() {
            let node = root.get("auth").unwrap_or(root);
            let hint = "add `models`, or write `auth: inside`".to_owned();
            self.complain(node, "`auth: gated` needs a model to gate", Some(hint));
        }
        descriptor
    }

    /// A mapping with these keys and no others.
    fn mapping(&mut self, node: &Node, what: &str, known: &[&str], required: &[&str]) {
        if !matches!(node.value, Value::Map(_)) {
            return self.complain(node, format!("{what} is a mapping"), None);
        }
        for (key, _) in node.entries() {
            if !known.contains(&key.text.as_str()) {
                let hint = match nearest(&key.text, known) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("known are {}", known.join(", ")),
                };
                self.problems.push(Problem {
                    place: key.place.clone(),
                    message: format!("`{}` is not a known key of {what}", key.text),
                    hint: Some(hint),
                });
            }
        }
        for key in required {
            if node.get(key).is_none() {
                self.complain(node, format!("`{key}` is missing in {what}"), None);
            }
        }
    }

    fn text(&mut self, node: &Node, what: &str) -> String {
        match node.text() {
            Some(text) if !text.contains(['\0', '\n', '\r']) => text.to_owned(),
            Some(_) => {
                self.complain(node, format!("`{what}` is one line of text"), None);
                String::new()
            }
            None => {
                let hint = "put it in quotes".to_owned();
                self.complain(node, format!("`{what}` is text"), Some(hint));
                String::new()
            }
        }
    }

    fn texts(&mut self, node: Option<&Node>, what: &str) -> Vec<String> {
        let Some(node) = node else {
            return Vec::new();
        };
        if !matches!(node.value, Value::List(_)) {
            let hint = format!("write `{what}: [ … ]`");
            self.complain(node, format!("`{what}` is a list"), Some(hint));
        }
        node.items()
            .iter()
            .map(|item| self.text(item, what))
            .collect()
    }

    fn name(&mut self, node: Option<&Node>) -> String {
        let Some(node) = node else {
            return String::new();
        };
        let name = self.text(node, "name");
        if !name.is_empty() && !is_name(&name) {
            let hint = "lower-case letters, digits and dashes only".to_owned();
            self.complain(node, format!("`{name}` is no name of an agent"), Some(hint));
        }
        name
    }

    fn command(&mut self, node: Option<&Node>) -> Vec<String> {
        let words = self.texts(node, "command");
        if let Some(node) = node
            && words.first().is_none_or(String::is_empty)
        {
            self.complain(node, "`command` names a program", None);
        }
        words
    }

    fn install(&mut self, node: Option<&Node>) -> Option<(String, String)> {
        let node = node?;
        let known = ["npm", "pip", "cargo", "brew", "script"];
        self.mapping(node, "`install`", &known, &[]);
        let (manager, package) = node.entries().first()?;
        let package = self.text(package, &manager.text);
        Some((manager.text.clone(), package))
    }

    fn auth(&mut self, node: Option<&Node>) -> Auth {
        match node.and_then(Node::text) {
            Some("gated") => Auth::Gated,
            Some("inside") => Auth::Inside,
            Some("none") => Auth::None,
            _ => {
                if let Some(node) = node {
                    self.complain(node, "`auth` must be one of gated, inside, none", None);
                }
                Auth::None
            }
        }
    }

    fn variables(&mut self, node: Option<&Node>, what: &str) -> Vec<String> {
        let names = self.texts(node, what);
        let items = node.map(Node::items).unwrap_or_default();
        for (item, name) in items.iter().zip(&names) {
            self.variable(item, name);
        }
        names
    }

    fn variable(&mut self, node: &Node, name: &str) {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(fits) {
            self.complain(node, format!("`{name}` is no name of a variable"), None);
        }
        if is_ours(name) {
            let message = format!("`{name}` decides what is run, and is not a descriptor's to set");
            self.complain(node, message, None);
        }
    }

    fn env(&mut self, node: Option<&Node>, places: &[&str]) -> BTreeMap<String, String> {
        let Some(node) = node else {
            return BTreeMap::new();
        };
        if !matches!(node.value, Value::Map(_)) {
            self.complain(node, "`env` is a mapping", None);
        }
        let mut all = BTreeMap::new();
        for (key, value) in node.entries() {
            self.variable(value, &key.text);
            let text = self.text(value, &key.text);
            self.placeholders(value, &text, places);
            all.insert(key.text.clone(), text);
        }
        all
    }

    /// Words with these places and no others to fill in.
    fn words(&mut self, node: Option<Node>, places: &[&str]) -> Vec<String> {
        let words = self.texts(node.as_ref(), "arguments");
        let items = node.iter().flat_map(Node::items);
        for (item, word) in items.zip(&words) {
            self.placeholders(item, word, places);
        }
        words
    }

    fn template(&mut self, node: Option<Node>, place: &str) -> Option<Vec<String>> {
        let node = node?;
        let words = self.words(Some(node.clone()), &[place]);
        if !words.iter().any(|word| word.contains(place)) {
            self.complain(&node, format!("`{place}` is missing here"), None);
        }
        Some(words)
    }

    /// `{word}` that nobody fills in would reach the program as it is.
    fn placeholders(&mut self, node: &Node, text: &str, known: &[&str]) {
        for (at, _) in text.match_indices('{') {
            let Some(length) = text[at..].find('}') else {
                continue;
            };
            let place = &text[at..=at + length];
            let inner = &place[1..place.len() - 1];
            let is_word = !inner.is_empty()
                && inner
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            if is_word && !known.contains(&place) {
                let hint = match known {
                    [] => "nothing is filled in here".to_owned(),
                    known => format!("known here: {}", known.join(", ")),
                };
                self.complain(
                    node,
                    format!("`{place}` is nothing that is filled in"),
                    Some(hint),
                );
            }
        }
    }

    fn home_paths(&mut self, node: Option<&Node>, what: &str) -> Vec<PathBuf> {
        let texts = self.texts(node, what);
        let items = node.map(Node::items).unwrap_or_default();
        for (item, text) in items.iter().zip(&texts) {
            self.below_home(item, text);
        }
        texts.into_iter().map(PathBuf::from).collect()
    }

    /// A path that stays below `$HOME`, and is none of those that a policy protects from agents.
    fn below_home(&mut self, node: &Node, text: &str) {
        let path = Path::new(text);
        let plain = path
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if text.is_empty() || !plain {
            let hint = "write it relative to `$HOME`, as in `.claude`".to_owned();
            self.complain(
                node,
                format!("`{text}` is no path below `$HOME`"),
                Some(hint),
            );
        }
        let first = path.components().next().map(|part| part.as_os_str());
        if first.is_some_and(|first| NEVER.iter().any(|never| first == *never)) {
            self.complain(
                node,
                format!("`{text}` is never let into an agent's world"),
                None,
            );
        }
    }

    fn home(&mut self, node: Option<&Node>) -> Vec<HomePath> {
        let Some(node) = node else {
            return Vec::new();
        };
        if !matches!(node.value, Value::List(_)) {
            self.complain(node, "`home` is a list", None);
        }
        let mut all = Vec::new();
        for item in node.items() {
            self.mapping(
                item,
                "an entry of `home`",
                &["path", "access"],
                &["path", "access"],
            );
            let (Some(path), Some(access)) = (item.get("path"), item.get("access")) else {
                continue;
            };
            let text = self.text(path, "path");
            self.below_home(path, &text);
            let access = match access.text() {
                Some("read") => Access::Read,
                Some("write") => Access::Write,
                _ => {
                    self.complain(access, "`access` must be one of read, write", None);
                    Access::Read
                }
            };
            all.push(HomePath {
                path: text.into(),
                access,
            });
        }
        all
    }

    fn hosts(&mut self, node: Option<&Node>) -> Vec<HostRule> {
        let texts = self.texts(node, "hosts");
        let items = node.map(Node::items).unwrap_or_default();
        let mut rules = Vec::new();
        for (item, text) in items.iter().zip(&texts) {
            match HostRule::parse(text) {
                Ok(rule) if matches!(rule.host, HostPattern::Name(_) | HostPattern::Below(_)) => {
                    rules.push(rule);
                }
                Ok(_) => self.complain(item, format!("`{text}` is not the name of a host"), None),
                Err(why) => self.complain(item, why, None),
            }
        }
        rules
    }

    fn models(&mut self, node: Option<&Node>) -> Vec<Model> {
        let Some(node) = node else {
            return Vec::new();
        };
        if !matches!(node.value, Value::List(_)) {
            self.complain(node, "`models` is a list", None);
        }
        node.items().iter().map(|item| self.model(item)).collect()
    }

    fn model(&mut self, node: &Node) -> Model {
        self.mapping(node, "a model", MODEL_KEYS, &["wire", "keys", "allow"]);
        let host = node.get("host").map(|host| self.url(host));
        let base_url = node.get("base_url").map(|name| {
            let text = self.text(name, "base_url");
            self.variable(name, &text);
            text
        });
        if host.is_none() && base_url.is_none() {
            let hint =
                "add `host: https://…`, or `base_url` with a variable that says it".to_owned();
            self.complain(node, "nothing says where the model is", Some(hint));
        }
        let base = node.get("base").map(|base| {
            let text = self.text(base, "base");
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_/.".contains(&byte);
            if !text.starts_with('/') || text.ends_with('/') || !text.bytes().all(plain) {
                let hint = "write for example `/v1`".to_owned();
                self.complain(
                    base,
                    format!("`{text}` is no beginning of a path"),
                    Some(hint),
                );
            }
            text
        });
        Model {
            wire: self.wire(node.get("wire")),
            host: host.flatten(),
            base: base.unwrap_or_default(),
            base_url,
            keys: self.model_keys(node.get("keys")),
            inside: node.get("inside").map(|name| {
                let text = self.text(name, "inside");
                self.variable(name, &text);
                text
            }),
            allow: self.routes(node.get("allow")),
            arguments: self.words(node.get("arguments").cloned(), &["{base_url}"]),
            env: self.env(node.get("env"), &["{base_url}"]),
            longest_answer: match node.get("longest_answer") {
                None => LONGEST_ANSWER,
                Some(number) => number.integer().unwrap_or_else(|| {
                    self.complain(number, "`longest_answer` is a number of tokens", None);
                    LONGEST_ANSWER
                }),
            },
        }
    }

    fn url(&mut self, node: &Node) -> Option<Url> {
        let text = self.text(node, "host");
        match Url::parse(&text) {
            Ok(url) if url.tls => Some(url),
            Ok(_) => {
                self.complain(node, "a descriptor's host is reached by https://", None);
                None
            }
            Err(error) => {
                self.complain(node, error.to_string(), None);
                None
            }
        }
    }

    fn wire(&mut self, node: Option<&Node>) -> Wire {
        match node.and_then(Node::text) {
            Some("openai") => Wire::Openai,
            Some("gemini") => Wire::Gemini,
            Some("anthropic") => Wire::Anthropic,
            _ => {
                if let Some(node) = node {
                    self.complain(
                        node,
                        "`wire` must be one of anthropic, openai, gemini",
                        None,
                    );
                }
                Wire::Anthropic
            }
        }
    }

    fn model_keys(&mut self, node: Option<&Node>) -> Vec<Key> {
        let items = node.map(Node::items).unwrap_or_default();
        if let Some(node) = node
            && items.is_empty()
        {
            let hint = "write `keys: [{ env: NAME, header: x-api-key }]`".to_owned();
            self.complain(
                node,
                "`keys` lists the variables that may hold the key",
                Some(hint),
            );
        }
        items.iter().map(|item| self.key(item)).collect()
    }

    fn key(&mut self, node: &Node) -> Key {
        self.mapping(
            node,
            "a key",
            &["env", "header", "prefix"],
            &["env", "header"],
        );
        let mut text = |name: &str| node.get(name).map(|value| self.text(value, name));
        let (env, header, prefix) = (text("env"), text("header"), text("prefix"));
        let header = header.unwrap_or_default();
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if let Some(value) = node.get("header")
            && !header.bytes().all(fits)
        {
            let hint = "lower-case, as in `x-api-key`".to_owned();
            self.complain(
                value,
                format!("`{header}` is no name of a header"),
                Some(hint),
            );
        }
        let env = env.unwrap_or_default();
        if let Some(value) = node.get("env") {
            self.variable(value, &env);
        }
        Key {
            env,
            header,
            prefix: prefix.unwrap_or_default(),
        }
    }

    fn routes(&mut self, node: Option<&Node>) -> Vec<Route> {
        let texts = self.texts(node, "allow");
        let items = node.map(Node::items).unwrap_or_default();
        let mut routes = Vec::new();
        for (item, text) in items.iter().zip(&texts) {
            match Route::parse(text) {
                Ok(route) => routes.push(route),
                Err(error) => self.complain(item, error.to_string(), None),
            }
        }
        routes
    }

    fn outcomes(&mut self, node: &Node) -> Outcomes {
        let mut outcomes = Outcomes {
            at: String::new(),
            words: BTreeMap::new(),
        };
        for (key, value) in node.entries() {
            let text = self.text(value, &key.text);
            if key.text == "at" {
                if !text.starts_with('/') {
                    let hint = "write for example `/subtype`".to_owned();
                    self.complain(value, format!("`{text}` is no JSON pointer"), Some(hint));
                }
                outcomes.at = text;
                continue;
            }
            match Outcome::from_word(&text) {
                Some(outcome) => {
                    outcomes.words.insert(key.text.clone(), outcome);
                }
                None => {
                    let words =
                        "completed, await_user, failed, cancelled, max_turns, max_tokens, budget";
                    self.complain(
                        value,
                        format!("`{}` must be one of {words}", key.text),
                        None,
                    );
                }
            }
        }
        if outcomes.at.is_empty() {
            self.complain(node, "`at` is missing in `outcome`", None);
        }
        outcomes
    }

    fn prices(&mut self, node: Option<&Node>) -> Vec<Price> {
        let items = node.map(Node::items).unwrap_or_default();
        if let Some(node) = node
            && !matches!(node.value, Value::List(_))
        {
            self.complain(node, "`prices` is a list", None);
        }
        items.iter().map(|item| self.price(item)).collect()
    }

    fn price(&mut self, node: &Node) -> Price {
        let known = ["model", "input", "output", "cache_read", "cache_write"];
        self.mapping(node, "a price", &known, &["model", "input", "output"]);
        let model = node.get("model").map(|model| self.text(model, "model"));
        let mut number = |name: &str, otherwise: f64| {
            let Some(value) = node.get(name) else {
                return otherwise;
            };
            let price = value.text().and_then(|text| text.parse::<f64>().ok());
            match price.filter(|price| price.is_finite() && *price >= 0.0) {
                Some(price) => price,
                None => {
                    self.complain(
                        value,
                        format!("`{name}` is dollars for a million tokens"),
                        None,
                    );
                    otherwise
                }
            }
        };
        let input = number("input", 0.0);
        Price {
            output: number("output", 0.0),
            cache_read: number("cache_read", input),
            cache_write: number("cache_write", input),
            model: model.unwrap_or_default(),
            input,
        }
    }
}

/// What of `$HOME` no descriptor lets in: keys of other things, and what runs when a person logs in.
const NEVER: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".substrate",
    ".password-store",
    ".bashrc",
    ".bash_profile",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".netrc",
    ".git-credentials",
];

/// Variables that decide which programs run or whose Substrate it is.
fn is_ours(name: &str) -> bool {
    let exact = ["PATH", "HOME", "SHELL", "BASH_ENV", "ENV", "IFS"];
    exact.contains(&name)
        || ["SUBSTRATE_", "LD_", "SHIM_"]
            .iter()
            .any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        parse(text, "agents/x.yaml").unwrap_err().to_string()
    }

    const GOOD: &str = "name: x\ncommand: [x]\nauth: none\n";

    #[test]
    fn a_slip_of_the_pen_is_shown_where_it_is() {
        let text = wrong("name: x\ncomand: [x]\nauth: none\n");
        assert!(
            text.contains("agents/x.yaml:2:1: `comand` is not a known key"),
            "{text}"
        );
        assert!(text.contains("did you mean `command`?"), "{text}");
        assert!(text.contains("^^^^^^"), "{text}");
        assert!(text.contains("`command` is missing"), "{text}");
    }

    #[test]
    fn whatever_is_not_understood_is_an_error() {
        for (added, says) in [
            ("auth: gated\n", "stands twice"),
            (
                "models: [{ wire: x, keys: [], allow: [] }]\n",
                "`wire` must be one of",
            ),
            (
                "models: [{ wire: openai, keys: [{ env: A, header: X }], allow: [GET x] }]\n",
                "a route is",
            ),
            (
                "models: [{ wire: openai, host: 'http://x.example', keys: [{ env: A, header: x }], allow: [] }]\n",
                "own loopback",
            ),
            (
                "home: [{ path: ../x, access: write }]\n",
                "no path below `$HOME`",
            ),
            (
                "home: [{ path: /etc, access: write }]\n",
                "no path below `$HOME`",
            ),
            (
                "home: [{ path: .ssh/id, access: read }]\n",
                "never let into",
            ),
            (
                "home: [{ path: .substrate, access: write }]\n",
                "never let into",
            ),
            (
                "home: [{ path: .x, access: all }]\n",
                "`access` must be one of",
            ),
            ("hosts: ['*']\n", "not the name of a host"),
            ("env: { LD_PRELOAD: /tmp/x }\n", "not a descriptor's to set"),
            ("env: { PATH: /tmp }\n", "not a descriptor's to set"),
            ("env: { A: '{base_url}' }\n", "nothing that is filled in"),
            ("arguments: { headless: ['-p'] }\n", "`{goal}` is missing"),
            (
                "arguments: { headless: ['{gaol}', '{goal}'] }\n",
                "`{gaol}` is nothing that is filled in",
            ),
            ("outcome: { at: /x, ok: done }\n", "`ok` must be one of"),
            (
                "prices: [{ model: m, input: -1, output: 2 }]\n",
                "dollars for a million",
            ),
            ("version: 1\n", "`version` is a list"),
        ] {
            let text = parse(&format!("{GOOD}{added}"), "x")
                .err()
                .map(|error| error.to_string());
            let text = text.unwrap_or_default();
            assert!(
                text.contains(says) || says == "stands twice" && !text.is_empty(),
                "{added} {text}"
            );
        }
        assert!(wrong("name: X Y\ncommand: [x]\nauth: none\n").contains("no name of an agent"));
        assert!(wrong("[]").contains("a descriptor is a mapping"));
        assert!(wrong("name: x\ncommand: []\nauth: gated\n").contains("names a program"));
        assert!(parse(GOOD, "x").is_ok());
    }
}
