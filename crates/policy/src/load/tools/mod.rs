//! Tool models: YAML files in, [`Tool`]s out.
//!
//! The files read like the synopsis of a manual page; `docs/tools.md` describes them and
//! `schemas/tool.json` is their schema. A mistake in a model would silently turn a danger into a
//! harmless word, so whatever is not understood is an error that names its place.

mod file;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_saphyr::{Location, Spanned};
use substrate_command::effect::{Action, Source};
use substrate_command::model::{
    Arity, Condition, Conditional, Consequence, Language, Meaning, OperandSpec, Opt, Product,
    RESOURCES, Stdin, Style, Subject, Test, Tool, Usage,
};
use thiserror::Error;

use file::{File, Keys, Text, TextOr, TextOrList, ToolEntry};

/// A place in a model file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The file, as the caller named it.
    pub file: String,
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Why a model file was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ToolError {
    /// Not YAML, or not of the shape that a model file has.
    #[error("{at}: {message}")]
    Shape {
        /// Where.
        at: Position,
        /// What the YAML reader says.
        message: String,
    },
    /// A word that is none of those allowed in its place.
    #[error("{at}: `{found}` is no {what}; known are {known}")]
    Unknown {
        /// Where.
        at: Position,
        /// What was expected.
        what: &'static str,
        /// What stands there.
        found: String,
        /// What may stand there.
        known: String,
    },
    /// Something in one of the short notations that cannot be read.
    #[error("{at}: {message}: `{found}`")]
    Notation {
        /// Where.
        at: Position,
        /// What is wrong with it, and what to write instead.
        message: &'static str,
        /// What stands there.
        found: String,
    },
    /// An option that is named twice in one tool.
    #[error("{at}: option `{name}` is named twice in `{tool}`")]
    OptionTwice {
        /// Where the second one is.
        at: Position,
        /// The spelling.
        name: String,
        /// The tool.
        tool: String,
    },
    /// A condition or effect that names an option that the tool does not have.
    #[error("{at}: `{tool}` has no option `{name}`; add it to `options` or correct the spelling")]
    NoSuchOption {
        /// Where.
        at: Position,
        /// The spelling.
        name: String,
        /// The tool.
        tool: String,
    },
    /// A tool or subcommand that is modelled twice.
    #[error("{at}: `{name}` is already modelled at {first}")]
    ToolTwice {
        /// Where the second one is.
        at: Position,
        /// The name.
        name: String,
        /// Where the first one is.
        first: Position,
    },
}

impl ToolError {
    /// Where in which file.
    pub fn place(&self) -> &Position {
        match self {
            ToolError::Shape { at, .. }
            | ToolError::Unknown { at, .. }
            | ToolError::Notation { at, .. }
            | ToolError::OptionTwice { at, .. }
            | ToolError::NoSuchOption { at, .. }
            | ToolError::ToolTwice { at, .. } => at,
        }
    }
}

/// The JSON schema of model files.
pub fn schema() -> &'static str {
    include_str!("../../../../../schemas/tool.json")
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$((
            concat!("builtin:tools/", $name),
            include_str!(concat!("../../../../../policies/tools/", $name)),
        )),*]
    };
}

/// The models that Substrate comes with: file name and text.
pub fn shipped() -> &'static [(&'static str, &'static str)] {
    shipped![
        "archive.yaml",
        "build.yaml",
        "cloud.yaml",
        "containers.yaml",
        "coreutils.yaml",
        "databases.yaml",
        "desktop.yaml",
        "disks.yaml",
        "forge.yaml",
        "git.yaml",
        "media.yaml",
        "network.yaml",
        "packages.yaml",
        "search.yaml",
        "secrets.yaml",
        "shells.yaml",
        "system.yaml",
        "windows.yaml",
        "wrappers.yaml",
    ]
}

/// Reads one model file. `file` is the name that errors show.
pub fn parse(text: &str, file: &str) -> Result<Vec<Tool>, ToolError> {
    load([(file, text)])
}

/// Reads several model files (name, text) that belong together: no tool may be in two of them.
pub fn load<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Vec<Tool>, ToolError> {
    let mut seen = BTreeMap::new();
    let mut tools = Vec::new();
    for (file, text) in files {
        let reader = Reader { file, text };
        let options = serde_saphyr::options! { with_snippet: false };
        let parsed: File = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| reader.shape(&error))?;
        for entry in &parsed.tools {
            reader.tool(entry, &Scope::default(), &mut seen, &mut tools)?;
        }
    }
    Ok(tools)
}

/// What encloses a subcommand.
#[derive(Default, Clone)]
struct Scope {
    /// Names of the tools around it, outermost first.
    path: Vec<String>,
    style: Style,
    /// Every spelling of an option that is known here, with its canonical one.
    spellings: BTreeMap<String, String>,
    /// The options behind the canonical spellings.
    options: BTreeMap<String, Opt>,
}

impl Scope {
    /// Adds an option of the innermost tool.
    ///
    /// Options are told apart by their canonical spelling, so one that a tool further out uses for
    /// another option (`docker -v`, `docker run -v`) gives way to the next spelling, or to one that
    /// nobody can type.
    fn add(&mut self, option: &mut Opt) {
        let taken = |name: &String| self.options.get(name).is_some_and(|other| other != option);
        match option.names.iter().position(|name| !taken(name)) {
            Some(free) => option.names[..=free].rotate_right(1),
            None => {
                let own = format!("{} of {}", option.names[0], self.path.join(" "));
                option.names.insert(0, own);
            }
        }
        for name in &option.names {
            self.spellings.insert(name.clone(), option.names[0].clone());
        }
        self.options.insert(option.names[0].clone(), option.clone());
    }
}

/// Words of a closed set and what they stand for.
type Table<T> = [(&'static str, T)];

const STYLES: &Table<Style> = &[
    ("gnu", Style::Gnu),
    ("posix", Style::Posix),
    ("single-dash", Style::SingleDash),
    ("expression", Style::Expression),
    ("bundle", Style::Bundle),
    ("plain", Style::Plain),
];

const STDINS: &Table<Stdin> = &[
    ("data", Stdin::Data),
    ("shell", Stdin::Shell),
    ("code", Stdin::Code),
    ("arguments", Stdin::Arguments),
];

const PRODUCTS: &Table<Product> = &[
    ("network", Product::Network),
    ("decoded", Product::Decoded),
    ("operands", Product::Operands),
    ("files", Product::Files),
    ("input", Product::Input),
];

const MEANINGS: &Table<Meaning> = &[
    ("text", Meaning::Text),
    ("directory", Meaning::Directory),
    ("url", Meaning::Url),
    ("host", Meaning::Host),
    ("port", Meaning::Port),
    ("command", Meaning::Command),
    ("command-until", Meaning::CommandUntil),
    ("shell", Meaning::Shell),
    ("shell-word", Meaning::ShellWord),
    ("program", Meaning::Program),
    ("code", Meaning::Code),
    ("script", Meaning::Script),
    ("assignment", Meaning::Assignment),
    ("sed", Meaning::Sed),
    ("awk", Meaning::Awk),
    ("editor", Meaning::EditorCommand),
    ("volume", Meaning::Volume),
    ("sql", Meaning::Sql),
    ("mode", Meaning::Mode),
    ("at-file", Meaning::AtFile),
    ("alias", Meaning::Alias),
    ("argument", Meaning::Argument),
];

/// The actions that can be done to a path.
const PATH_ACTIONS: [Action; 5] = [
    Action::Read,
    Action::Write,
    Action::Delete,
    Action::Chmod,
    Action::List,
];

/// Reads the entries of one file.
struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

impl Reader<'_> {
    /// Reads a tool, and appends it and its copies to `tools`.
    fn tool(
        &self,
        entry: &ToolEntry,
        outer: &Scope,
        seen: &mut BTreeMap<String, Position>,
        tools: &mut Vec<Tool>,
    ) -> Result<(), ToolError> {
        let mut names = self.names(entry, outer, seen)?;
        let mut scope = outer.clone();
        scope.path.push(names[0][0].clone());
        if let Some(style) = &entry.style {
            scope.style = self.one_of(style, "style", STYLES)?;
        }
        let mut options = self.options(entry, &scope)?;
        let alone = outer.path.is_empty() && entry.subcommands.is_empty();
        let help = help(&mut options, scope.style, alone);
        for option in &mut options {
            scope.add(option);
        }

        let mut inert = Condition {
            any: help
                .iter()
                .map(|name| scope.spellings[name].clone())
                .collect(),
            ..Condition::default()
        };
        for test in entry.inert.iter().flatten() {
            inert.any.push(self.test(test, &scope)?);
        }
        let mut subcommands = Vec::new();
        let mut inner = BTreeMap::new();
        for subcommand in &entry.subcommands {
            self.tool(subcommand, &scope, &mut inner, &mut subcommands)?;
        }
        let mut tool = Tool {
            style: scope.style,
            options: options.into(),
            usages: self.usages(entry, &scope)?,
            effects: self.effects(entry, &scope)?,
            produces: self.products(entry, &scope)?,
            stdin: match &entry.stdin {
                Some(stdin) => self.one_of(stdin, "use of standard input", STDINS)?,
                None => Stdin::Data,
            },
            recursive: self.recursive(entry, &scope)?,
            inert: (!inert.any.is_empty()).then_some(inert),
            subcommands,
            inherit: entry.inherit,
            service: self.service(entry)?,
            free_text: entry.free_text,
            language: match &entry.language {
                Some(language) => {
                    let known = Language::ALL.map(|known| (known.name(), known));
                    Some(self.one_of(language, "language", &known)?)
                }
                None => None,
            },
            own_work: entry
                .own_work
                .iter()
                .map(|name| name.value.clone())
                .collect(),
            ..Tool::default()
        };
        tool.names = names.remove(0);
        tool.also = names;
        tools.push(tool);
        Ok(())
    }

    fn service(&self, entry: &ToolEntry) -> Result<Option<String>, ToolError> {
        let Some(service) = &entry.service else {
            return Ok(None);
        };
        let known = || {
            RESOURCES
                .iter()
                .map(|(name, _)| *name)
                .chain([Tool::NO_SERVICE])
        };
        match known().any(|name| name == service.value) {
            true => Ok(Some(service.value.clone())),
            false => Err(ToolError::Unknown {
                at: self.at(service),
                what: "service",
                found: service.value.clone(),
                known: join(known()),
            }),
        }
    }

    /// The names of each program that the entry is about, at least one.
    fn names(
        &self,
        entry: &ToolEntry,
        outer: &Scope,
        seen: &mut BTreeMap<String, Position>,
    ) -> Result<Vec<Vec<String>>, ToolError> {
        let mut all = Vec::new();
        for written in &entry.names.value {
            let names: Vec<String> = written.value.split('|').map(str::to_owned).collect();
            for name in &names {
                let message = if name.is_empty() || name.contains(char::is_whitespace) {
                    "a name is one word"
                } else if outer.path.is_empty() && name.contains('*') {
                    "only names of subcommands may contain `*`"
                } else if outer.path.is_empty() && name.contains('/') {
                    "a tool is named by the last part of its path"
                } else {
                    let at = self.at(written);
                    if let Some(first) = seen.insert(name.clone(), at.clone()) {
                        return Err(ToolError::ToolTwice {
                            at,
                            name: name.clone(),
                            first,
                        });
                    }
                    continue;
                };
                let (at, found) = (self.at(written), written.value.clone());
                return Err(ToolError::Notation { at, message, found });
            }
            all.push(names);
        }
        if all.is_empty() {
            let (at, found) = (self.at(&entry.names), "names: []".to_owned());
            return Err(ToolError::Notation {
                at,
                message: "a tool needs a name",
                found,
            });
        }
        Ok(all)
    }

    fn options(&self, entry: &ToolEntry, scope: &Scope) -> Result<Vec<Opt>, ToolError> {
        let mut options = Vec::new();
        let mut seen = BTreeSet::new();
        let Some(entries) = &entry.options else {
            return Ok(options);
        };
        match &entries.value {
            TextOrList::Text(list) => {
                self.option_list(list, entries.defined, None, scope, &mut seen, &mut options)?;
            }
            TextOrList::List(list) => {
                for item in list {
                    let (text, at, keys) = match &item.value {
                        TextOr::Text(text) => (text, item.defined, None),
                        TextOr::Map(keyed) => {
                            (&keyed.option.value, keyed.option.defined, Some(&keyed.keys))
                        }
                    };
                    self.option_list(text, at, keys, scope, &mut seen, &mut options)?;
                }
            }
        }
        Ok(options)
    }

    /// Reads options that are separated by semicolons.
    fn option_list(
        &self,
        list: &str,
        location: Location,
        keys: Option<&Keys>,
        scope: &Scope,
        seen: &mut BTreeSet<String>,
        options: &mut Vec<Opt>,
    ) -> Result<(), ToolError> {
        for written in list.split(';').map(str::trim) {
            let wrong = |message: &'static str| ToolError::Notation {
                at: self.within(location, written),
                message,
                found: written.to_owned(),
            };
            let (names, value) = match written.split_once('=') {
                None => (written, Arity::None),
                Some((names, values)) if names.ends_with('[') => {
                    let value = values
                        .strip_suffix(']')
                        .ok_or_else(|| wrong("an optional value is written `[=meaning]`"))?;
                    let value = self.meaning(value, location, keys)?;
                    (names.trim_end_matches('['), Arity::Optional(value))
                }
                Some((names, values)) => {
                    let mut meanings = values
                        .split_whitespace()
                        .map(|value| self.meaning(value, location, keys))
                        .collect::<Result<Vec<_>, _>>()?;
                    match meanings.len() {
                        0 => return Err(wrong("a meaning is missing after `=`")),
                        1 => (names, Arity::Required(meanings.remove(0))),
                        _ => (names, Arity::Several(meanings)),
                    }
                }
            };
            let names: Vec<String> = names
                .split(',')
                .map(|name| name.trim().to_owned())
                .collect();
            for name in &names {
                let at = || self.within(location, name);
                let dashes = name.len() - name.trim_start_matches('-').len();
                if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '"') {
                    return Err(wrong("options are written `-a, --all; -b, --bold=meaning`"));
                }
                if dashes == 1 && name.chars().count() > 2 && !scope.style.is_single_dash() {
                    let message = "one dash before a long name needs `style: single-dash`";
                    return Err(ToolError::Notation {
                        at: at(),
                        message,
                        found: name.clone(),
                    });
                }
                if !seen.insert(name.clone()) {
                    let (name, tool) = (name.clone(), scope.path.join(" "));
                    return Err(ToolError::OptionTwice {
                        at: at(),
                        name,
                        tool,
                    });
                }
            }
            options.push(Opt { names, value });
        }
        Ok(())
    }

    fn meaning(
        &self,
        written: &str,
        location: Location,
        keys: Option<&Keys>,
    ) -> Result<Meaning, ToolError> {
        if let Some(meaning) = find(MEANINGS, written) {
            return Ok(meaning);
        }
        if written == "keyed" {
            let Some(Keys(keys)) = keys else {
                let message = "`keyed` needs `keys` beside it";
                let at = self.within(location, written);
                return Err(ToolError::Notation {
                    at,
                    message,
                    found: written.to_owned(),
                });
            };
            return self.keys(keys).map(Meaning::Keyed);
        }
        if written == "remote" {
            return Ok(Meaning::Remote(Vec::new()));
        }
        let (actions, meaning): (_, fn(Vec<Action>) -> Meaning) =
            match written.strip_prefix("remote-") {
                Some(actions) => (actions, Meaning::Remote),
                None => (written, Meaning::Path),
            };
        actions
            .split('+')
            .map(|name| {
                PATH_ACTIONS
                    .into_iter()
                    .find(|action| action.name() == name)
            })
            .collect::<Option<Vec<_>>>()
            .map(meaning)
            .ok_or_else(|| ToolError::Unknown {
                at: self.within(location, written),
                what: "meaning",
                found: written.to_owned(),
                known: format!(
                    "{}, keyed, read, write, delete, chmod (joined by `+`), remote, remote-read, \
                     remote-write",
                    names(MEANINGS)
                ),
            })
    }

    fn keys(&self, keys: &[(String, Text)]) -> Result<Vec<(String, Meaning)>, ToolError> {
        keys.iter()
            .map(|(key, value)| {
                let meaning = self.meaning(&value.value, value.defined, None)?;
                Ok((key.clone(), meaning))
            })
            .collect()
    }

    /// The usages, and `operands` as the one that holds when no other does.
    fn usages(&self, entry: &ToolEntry, scope: &Scope) -> Result<Vec<Usage>, ToolError> {
        if let Some(Keys(keys)) = &entry.keys {
            self.keys(keys)?;
        }
        let mut usages = Vec::new();
        for usage in &entry.usages {
            usages.push(Usage {
                when: self.condition(&usage.when, &usage.all, &usage.unless, scope)?,
                operands: self
                    .synopsis(&usage.operands, usage.keys.as_ref().or(entry.keys.as_ref()))?,
            });
        }
        if let Some(operands) = &entry.operands {
            usages.push(Usage {
                when: Condition::default(),
                operands: self.synopsis(operands, entry.keys.as_ref())?,
            });
        }
        Ok(usages)
    }

    fn synopsis(&self, written: &Text, keys: Option<&Keys>) -> Result<Vec<OperandSpec>, ToolError> {
        let mut operands: Vec<OperandSpec> = Vec::new();
        for word in written.value.split_whitespace() {
            let message = match operands.last() {
                Some(OperandSpec {
                    means: Meaning::Command | Meaning::Shell,
                    ..
                }) => "nothing can follow `command` or `shell`, which take all words that are left",
                _ if word.ends_with("...") && operands.iter().any(|operand| operand.repeated) => {
                    "only one operand can be repeated"
                }
                _ => {
                    let name = word.trim_end_matches("...");
                    let means = self.meaning(name, written.defined, keys)?;
                    operands.push(OperandSpec {
                        means,
                        repeated: name != word,
                    });
                    continue;
                }
            };
            let at = self.within(written.defined, word);
            return Err(ToolError::Notation {
                at,
                message,
                found: word.to_owned(),
            });
        }
        Ok(operands)
    }

    fn effects(
        &self,
        entry: &ToolEntry,
        scope: &Scope,
    ) -> Result<Vec<Conditional<Consequence>>, ToolError> {
        let mut effects = Vec::new();
        for item in &entry.effects {
            effects.push(match &item.value {
                TextOr::Text(effect) => Conditional {
                    when: Condition::default(),
                    what: self.consequence(effect, self.place(item.defined), scope)?,
                },
                TextOr::Map(entry) => Conditional {
                    when: self.condition(&entry.when, &entry.all, &entry.unless, scope)?,
                    what: self.consequence(&entry.effect.value, self.at(&entry.effect), scope)?,
                },
            });
        }
        Ok(effects)
    }

    fn consequence(
        &self,
        written: &str,
        at: Position,
        scope: &Scope,
    ) -> Result<Consequence, ToolError> {
        let (name, object) = written.split_once(':').unwrap_or((written, ""));
        let unknown = |what, found: &str, known| ToolError::Unknown {
            at: at.clone(),
            what,
            found: found.to_owned(),
            known,
        };
        let action = Action::from_name(name).ok_or_else(|| {
            unknown(
                "action",
                name,
                join(Action::ALL.into_iter().map(Action::name)),
            )
        })?;
        let to = if object.is_empty() {
            Subject::Unspecified
        } else if object == "here" {
            Subject::WorkingDirectory
        } else if let Some(path) = object.strip_prefix("path:") {
            Subject::Path(path.to_owned())
        } else if object.starts_with('-') {
            Subject::OptionValue(self.canonical(object, at, scope)?)
        } else if action == Action::RunCode {
            Subject::Code(Source::from_name(object).ok_or_else(|| {
                unknown(
                    "source of code",
                    object,
                    join(Source::ALL.into_iter().map(Source::name)),
                )
            })?)
        } else if action == Action::Connect {
            Subject::Host(object.to_owned())
        } else if RESOURCES.iter().any(|(name, _)| *name == object) {
            Subject::Resource(object.to_owned())
        } else {
            return Err(unknown("resource", object, names(&RESOURCES)));
        };
        Ok(Consequence { action, to })
    }

    fn products(
        &self,
        entry: &ToolEntry,
        scope: &Scope,
    ) -> Result<Vec<Conditional<Product>>, ToolError> {
        let mut products = Vec::new();
        for item in &entry.produces {
            let (when, what) = match &item.value {
                TextOr::Text(what) => (
                    Condition::default(),
                    &Spanned::new(what.clone(), item.referenced, item.defined),
                ),
                TextOr::Map(entry) => (
                    self.condition(&entry.when, &entry.all, &entry.unless, scope)?,
                    &entry.what,
                ),
            };
            products.push(Conditional {
                when,
                what: self.one_of(what, "product", PRODUCTS)?,
            });
        }
        Ok(products)
    }

    fn recursive(&self, entry: &ToolEntry, scope: &Scope) -> Result<Option<Condition>, ToolError> {
        let Some(recursive) = &entry.recursive else {
            return Ok(None);
        };
        match &recursive.value {
            TextOrList::Text(word) if word == "always" => Ok(Some(Condition::default())),
            TextOrList::Text(word) => Err(ToolError::Unknown {
                at: self.place(recursive.defined),
                what: "value of `recursive`",
                found: word.clone(),
                known: "always, or a list of options".into(),
            }),
            TextOrList::List(tests) => self.condition(tests, &[], &[], scope).map(Some),
        }
    }

    fn condition(
        &self,
        any: &[Text],
        all: &[Text],
        none: &[Text],
        scope: &Scope,
    ) -> Result<Condition, ToolError> {
        let tests = |tests: &[Text]| -> Result<Vec<String>, ToolError> {
            tests.iter().map(|test| self.test(test, scope)).collect()
        };
        Ok(Condition {
            any: tests(any)?,
            all: tests(all)?,
            none: tests(none)?,
        })
    }

    /// Checks an entry of a condition, and puts the canonical spelling of its option in.
    fn test(&self, written: &Text, scope: &Scope) -> Result<String, ToolError> {
        Ok(match Test::read(&written.value) {
            Test::Option(name) => self.canonical(name, self.at(written), scope)?,
            Test::Value(name, pattern) => {
                format!(
                    "{}={pattern}",
                    self.canonical(name, self.at(written), scope)?
                )
            }
            Test::EndOfOptions | Test::Operand(_) => written.value.clone(),
        })
    }

    fn canonical(&self, name: &str, at: Position, scope: &Scope) -> Result<String, ToolError> {
        scope
            .spellings
            .get(name)
            .cloned()
            .ok_or_else(|| ToolError::NoSuchOption {
                at,
                name: name.to_owned(),
                tool: scope.path.join(" "),
            })
    }

    fn one_of<T: Clone>(
        &self,
        word: &Text,
        what: &'static str,
        table: &Table<T>,
    ) -> Result<T, ToolError> {
        find(table, &word.value).ok_or_else(|| ToolError::Unknown {
            at: self.at(word),
            what,
            found: word.value.clone(),
            known: names(table),
        })
    }

    fn shape(&self, error: &serde_saphyr::Error) -> ToolError {
        let at = self.place(error.location().unwrap_or(Location::UNKNOWN));
        let message = error.without_snippet().to_string();
        // The place is said once, in front.
        let message = match message
            .find(" at line ")
            .or_else(|| message.find(" (line "))
        {
            Some(end) => message[..end].to_owned(),
            None => message,
        };
        ToolError::Shape { at, message }
    }

    fn at<T>(&self, spanned: &Spanned<T>) -> Position {
        self.place(spanned.defined)
    }

    fn place(&self, location: Location) -> Position {
        Position {
            file: self.file.to_owned(),
            line: location.line(),
            column: location.column(),
        }
    }

    /// The place of a word inside the scalar that starts at `location`.
    fn within(&self, location: Location, word: &str) -> Position {
        let start = location.span().byte_offset().unwrap_or(0) as usize;
        let outside = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || "-_".contains(c));
        let rest = self.text.get(start..).unwrap_or_default();
        let found = rest.match_indices(word).find(|(at, _)| {
            outside(rest[..*at].chars().next_back())
                && outside(rest[*at + word.len()..].chars().next())
        });
        match found {
            Some((at, _)) if !word.is_empty() => {
                let before = &self.text[..start + at];
                let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
                Position {
                    file: self.file.to_owned(),
                    line: before.matches('\n').count() as u64 + 1,
                    column: before[line_start..].chars().count() as u64 + 1,
                }
            }
            _ => self.place(location),
        }
    }
}

/// Adds the options that make nearly every program show its help, and returns them as tests.
///
/// `--version` is added only to tools without subcommands: there it may well be an option that
/// takes a value.
fn help(options: &mut Vec<Opt>, style: Style, alone: bool) -> Vec<String> {
    let spellings: &[&[&str]] = match (style, alone) {
        (Style::Plain, _) => &[],
        (style, _) if style.is_single_dash() => &[&["--help", "-help"]],
        (_, false) => &[&["--help"]],
        (_, true) => &[&["--help"], &["--version"]],
    };
    let mut tests = Vec::new();
    for names in spellings {
        let own = options
            .iter()
            .find(|option| names.iter().any(|n| option.names.iter().any(|o| o == n)));
        match own {
            Some(option) if option.value == Arity::None => tests.push(option.names[0].clone()),
            Some(_) => {}
            None => {
                options.push(Opt {
                    names: names.iter().map(|&name| name.to_owned()).collect(),
                    value: Arity::None,
                });
                tests.push(names[0].to_owned());
            }
        }
    }
    tests
}

fn find<T: Clone>(table: &Table<T>, word: &str) -> Option<T> {
    table
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, value)| value.clone())
}

fn names<T>(table: &Table<T>) -> String {
    join(table.iter().map(|(name, _)| *name))
}

fn join(words: impl Iterator<Item = &'static str>) -> String {
    words.collect::<Vec<_>>().join(", ")
}
