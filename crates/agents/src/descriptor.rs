//! What is known about an agent program: data that a file says, checked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use substrate_modelgate::{Route, Url, Wire};
use substrate_policy::terms::HostRule;

/// Whether a word can be the name of an agent.
pub fn is_name(word: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=64).contains(&word.len()) && word.bytes().all(fits) && !word.starts_with('-')
}

/// An agent program.
#[derive(Debug, Clone)]
pub struct Descriptor {
    /// How it is called here.
    pub name: String,
    /// How people call it.
    pub title: String,
    /// The file that says so.
    pub file: String,
    /// The program, and words that always come first.
    pub command: Vec<String>,
    /// What makes it tell its version; nothing where it cannot.
    pub version: Vec<String>,
    /// The package manager and the package that bring it.
    pub install: Option<(String, String)>,
    /// Where its key lives.
    pub auth: Auth,
    /// Variables with keys that go inside where the log-in is inside.
    pub keys: Vec<String>,
    /// Files below `$HOME`, one of which is there when somebody has logged in.
    pub login: Vec<PathBuf>,
    /// The models that it can be pointed to through the gate, the first that fits is used.
    pub models: Vec<Model>,
    /// Hosts that it reaches by name where its log-in is inside.
    pub hosts: Vec<HostRule>,
    /// What of `$HOME` it is let have.
    pub home: Vec<HomePath>,
    /// Variables that it gets.
    pub env: BTreeMap<String, String>,
    /// Words that come before a person's own.
    pub always: Vec<String>,
    /// The same for a face at a terminal.
    pub interactive: Vec<String>,
    /// The words of a run that nobody watches; `{goal}` is what it is to do.
    pub headless: Option<Vec<String>>,
    /// How it is told how many turns it may take; `{turns}` is the number.
    pub turns: Option<Vec<String>>,
    /// The words of a run that is spoken to by a program.
    pub streamed: Option<Vec<String>>,
    /// How an earlier conversation is taken up; `{session}` names it.
    pub resume: Option<Vec<String>>,
    /// Where its hooks are set, below `$HOME` or `{project}`.
    pub hooks: Vec<String>,
    /// Where its MCP servers are set.
    pub mcp: Vec<String>,
    /// What the last object that a headless run prints says about how it ended.
    pub outcomes: Option<Outcomes>,
    /// What tokens cost.
    pub prices: Vec<Price>,
}

/// Where the key of an agent lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// Outside: the gate puts it in.
    Gated,
    /// In the world: the client needs it itself.
    Inside,
    /// Nowhere: it works without.
    None,
}

/// A part of `$HOME` that an agent has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomePath {
    /// Relative to `$HOME`.
    pub path: PathBuf,
    /// What it may do there.
    pub access: Access,
}

/// What an agent may do with its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read them.
    Read,
    /// Read and change them; they are the client's own and appear in no diff.
    Write,
}

/// A model behind the gate.
#[derive(Debug, Clone)]
pub struct Model {
    /// What is spoken.
    pub wire: Wire,
    /// Where it is; else the variable of its base URL has to say.
    pub host: Option<Url>,
    /// What the base URL of the world ends with.
    pub base: String,
    /// The variable by which the client is told its base URL, and outside says where the model really is.
    pub base_url: Option<String>,
    /// The variables that may hold the key, and how it is sent.
    pub keys: Vec<Key>,
    /// The variable in which the client finds a key that means nothing; else the first of `keys`.
    pub inside: Option<String>,
    /// What passes the gate.
    pub allow: Vec<Route>,
    /// Words for the client; `{base_url}` is the gate.
    pub arguments: Vec<String>,
    /// Variables for the client; `{base_url}` is the gate.
    pub env: BTreeMap<String, String>,
    /// What an answer costs at most of which the request does not say it.
    pub longest_answer: u64,
}

/// A variable that holds a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub env: String,
    /// The header that the key is sent in.
    pub header: String,
    /// What comes before it there.
    pub prefix: String,
}

/// How a headless run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is done.
    Completed,
    /// It needs a person's word.
    AwaitUser,
    /// It gave up.
    Failed,
    /// It was ended.
    Cancelled,
    /// It took as many turns as it may.
    MaxTurns,
    /// An answer was cut off.
    MaxTokens,
    /// A budget is used up.
    Budget,
}

impl Outcome {
    /// By the word that files and JSON use.
    pub fn from_word(word: &str) -> Option<Outcome> {
        Some(match word {
            "completed" => Outcome::Completed,
            "await_user" => Outcome::AwaitUser,
            "failed" => Outcome::Failed,
            "cancelled" => Outcome::Cancelled,
            "max_turns" => Outcome::MaxTurns,
            "max_tokens" => Outcome::MaxTokens,
            "budget" => Outcome::Budget,
            _ => return None,
        })
    }

    /// That word.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::AwaitUser => "await_user",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
            Outcome::MaxTurns => "max_turns",
            Outcome::MaxTokens => "max_tokens",
            Outcome::Budget => "budget",
        }
    }
}

/// Words of a client about how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcomes {
    /// Where they stand in what it prints, a JSON pointer.
    pub at: String,
    /// What each means.
    pub words: BTreeMap<String, Outcome>,
}

/// What a million tokens of a model cost, in dollars.
#[derive(Debug, Clone, PartialEq)]
pub struct Price {
    /// Its name; a `*` at the end stands for anything.
    pub model: String,
    /// Read anew.
    pub input: f64,
    /// Written.
    pub output: f64,
    /// Read from the cache.
    pub cache_read: f64,
    /// Put into the cache.
    pub cache_write: f64,
}

impl Price {
    fn is_of(&self, model: &str) -> bool {
        match self.model.strip_suffix('*') {
            Some(beginning) => model.starts_with(beginning),
            None => model == self.model,
        }
    }
}

impl Descriptor {
    /// What these tokens of a model cost in dollars, where the file says it.
    pub fn cost(&self, model: &str, usage: &substrate_modelgate::Usage) -> Option<f64> {
        let price = self.prices.iter().find(|price| price.is_of(model))?;
        let parts = [
            (usage.input, price.input),
            (usage.output, price.output),
            (usage.cache_read, price.cache_read),
            (usage.cache_write, price.cache_write),
        ];
        let cost = parts.iter().map(|(tokens, price)| *tokens as f64 * price);
        Some(cost.sum::<f64>() / 1e6)
    }
}
