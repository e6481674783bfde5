//! From a line or an argument vector to its invocations.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use crate::effect::Source;
use crate::flow::{Flow, Producers};
use crate::line::{Invocation, Line, Stage};
use crate::model::{Models, Tool};
use crate::names::is_keyword;
use crate::scope::Scope;
use crate::shell_text::state::{Around, Following};
use crate::word::{Piece, Word};

/// What the analysis may assume about the shell that would run the line, and how far it may go.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Tool models.
    pub models: &'a dyn Models,
    /// Home directory, for `~` and `$HOME`.
    pub home: Option<&'a [u8]>,
    /// Working directory, for `$PWD`.
    pub pwd: Option<&'a [u8]>,
    /// Variables of the shell whose values are certain.
    pub variables: &'a [(Vec<u8>, Vec<u8>)],
    /// Aliases of the shell.
    pub aliases: &'a [(Vec<u8>, Vec<u8>)],
    /// Bounds on the work.
    pub limits: Limits,
}

/// Bounds on an analysis; what goes past one of them makes the line unclear.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest text that is read.
    pub max_bytes: usize,
    /// Deepest nesting of constructs, and of commands within commands.
    pub max_depth: usize,
    /// Most invocations that are reported.
    pub max_invocations: usize,
    /// Longest time that the parser may take.
    pub deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 1 << 20,
            max_depth: 64,
            max_invocations: 4096,
            deadline: Duration::from_millis(200),
        }
    }
}

impl<'a> Context<'a> {
    /// A context that knows the models and nothing about the shell.
    pub fn new(models: &'a dyn Models) -> Self {
        Self {
            models,
            home: None,
            pwd: None,
            variables: &[],
            aliases: &[],
            limits: Limits::default(),
        }
    }
}

/// Judges one argument vector, as a program start gets it.
pub fn analyse_argv(argv: &[Vec<u8>], context: &Context) -> Line {
    let mut analyser = Analyser::new(context);
    let mut scope = Scope::default();
    let length = argv.iter().map(|word| word.len() + 1).sum::<usize>();
    if length > context.limits.max_bytes {
        analyser.unclear(format!(
            "the arguments are longer than {} bytes",
            context.limits.max_bytes
        ));
    }
    let place = Surroundings {
        program: true,
        ..Surroundings::top()
    };
    let words = argv
        .iter()
        .map(|word| Word::literal(word.as_slice()))
        .collect();
    analyser.simple(words, 0..0, &mut scope, &place);
    analyser.line.plain = Some(argv.to_vec()).filter(|argv| !argv.is_empty());
    analyser.finish()
}

/// Splits a line of plain words, one simple command without quoting, expansions or operators.
pub(crate) fn split_plain(text: &[u8]) -> Option<Vec<&[u8]>> {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./- \t".contains(&byte);
    if !text.iter().all(|&byte| safe(byte)) {
        return None;
    }
    let words: Vec<&[u8]> = text
        .split(|&byte| byte == b' ' || byte == b'\t')
        .filter(|word| !word.is_empty())
        .collect();
    let first = words.first()?;
    (!is_keyword(first) && !first.contains(&b'=')).then_some(words)
}

/// Where in the line a command stands.
#[derive(Clone)]
pub(crate) struct Surroundings {
    /// The bytes that nested text came from; `None` when spans are meant in the line itself.
    pub source: Option<Range<usize>>,
    pub via: Rc<[String]>,
    pub parent: Option<usize>,
    pub stage: Option<Stage>,
    /// Redirections of enclosing groups.
    pub redirects: Around,
    /// Standard input.
    pub input: Flow,
    /// The words start a program for certain: no alias, function or builtin answers to the name.
    pub program: bool,
    /// What is done to a path is done to everything below it.
    pub deep: bool,
}

impl Surroundings {
    pub(crate) fn top() -> Self {
        Self {
            source: None,
            via: Rc::from([]),
            parent: None,
            stage: None,
            redirects: Around::default(),
            input: Flow::default(),
            program: false,
            deep: false,
        }
    }

    /// The place of a command inside the invocation of that number.
    pub fn inside(&self, parent: usize, name: &str, source: Range<usize>) -> Self {
        let mut via = self.via.to_vec();
        via.push(name.to_owned());
        Self {
            via: Rc::from(via),
            parent: Some(parent),
            source: Some(source),
            program: false,
            ..self.clone()
        }
    }
}

/// What is known of text that only exists at run time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origin {
    pub from: Option<(Source, Word)>,
    /// The text itself, for a process substitution that only prints.
    pub text: Option<Vec<Piece>>,
    /// Names, and only some of those that there are.
    pub some: bool,
    /// The invocations that print it, by number.
    pub producers: Producers,
    /// The invocations that read what is written to it, for `>(…)`.
    pub consumers: Range<usize>,
}

/// The state of one analysis.
pub(crate) struct Analyser<'a> {
    pub context: &'a Context<'a>,
    pub line: Line,
    pub depth: usize,
    /// Steps and produced bytes that are left.
    pub budget: usize,
    /// Next free stage of each pipeline.
    pub stages: Vec<u32>,
    /// Where the unknown pieces come from, by their source text.
    pub origins: BTreeMap<Vec<u8>, Origin>,
    /// What the line itself has put into files, as far as it is known; nothing is believed by it that would not be
    /// without, as the file may be another by then.
    #[cfg(feature = "parse")]
    pub files: BTreeMap<Vec<u8>, Vec<Piece>>,
    tools: BTreeMap<Vec<u8>, Option<Rc<Tool>>>,
    pub following: Following,
}

impl<'a> Analyser<'a> {
    pub fn new(context: &'a Context<'a>) -> Self {
        Self {
            context,
            line: Line::default(),
            depth: 0,
            budget: context.limits.max_bytes.saturating_mul(8).max(1 << 16),
            stages: Vec::new(),
            origins: BTreeMap::new(),
            #[cfg(feature = "parse")]
            files: BTreeMap::new(),
            tools: BTreeMap::new(),
            following: Following::default(),
        }
    }

    pub(crate) fn finish(self) -> Line {
        self.line
    }

    /// Notes why the line is not fully understood; the first reason stays.
    pub fn unclear(&mut self, why: impl Into<String>) {
        if self.line.unclear.is_none() {
            self.line.unclear = Some(why.into());
        }
    }

    /// Pays for work; `false` when the analysis has gone on long enough.
    pub fn spend(&mut self, amount: usize) -> bool {
        match self.budget.checked_sub(amount) {
            Some(left) => {
                self.budget = left;
                true
            }
            None => {
                self.budget = 0;
                self.unclear("the line grows too large when expanded");
                false
            }
        }
    }

    /// Enters a nested command; `false` when that is too deep.
    pub fn descend(&mut self) -> bool {
        if self.depth >= self.context.limits.max_depth {
            self.unclear("commands are nested too deeply");
            return false;
        }
        self.depth += 1;
        true
    }

    /// The model of a program, by its base name or that without a version.
    pub fn tool(&mut self, name: &[u8]) -> Option<Rc<Tool>> {
        if let Some(found) = self.tools.get(name) {
            return found.clone();
        }
        let models = self.context.models;
        let found = models.shared(name).or_else(|| {
            let end = name
                .iter()
                .rposition(|byte| !byte.is_ascii_digit() && *byte != b'.')?
                + 1;
            let trimmed = name[..end].strip_suffix(b"-").unwrap_or(&name[..end]);
            (trimmed.len() < name.len())
                .then(|| models.shared(trimmed))
                .flatten()
        });
        self.tools.insert(name.to_vec(), found.clone());
        found
    }

    /// Makes room for an invocation, in source order.
    pub fn reserve(
        &mut self,
        place: &Surroundings,
        source: Range<usize>,
        scope: &Scope,
    ) -> Option<usize> {
        if self.line.invocations.len() >= self.context.limits.max_invocations {
            // Nothing that follows could be reported, so nothing more is followed.
            self.budget = 0;
            self.unclear("the line holds too many commands");
            return None;
        }
        let stage = place.stage.unwrap_or_else(|| self.new_pipeline());
        self.line.invocations.push(Invocation {
            via: place.via.to_vec(),
            parent: place.parent,
            pipeline: stage,
            cwd: scope.cwd.clone(),
            source: place.source.clone().unwrap_or(source),
            ..Invocation::default()
        });
        Some(self.line.invocations.len() - 1)
    }

    /// Starts a pipeline; its first stage.
    pub fn new_pipeline(&mut self) -> Stage {
        self.stages.push(1);
        Stage {
            pipeline: (self.stages.len() - 1) as u32,
            index: 0,
        }
    }

    /// One simple command of known words.
    fn simple(
        &mut self,
        words: Vec<Word>,
        source: Range<usize>,
        scope: &mut Scope,
        place: &Surroundings,
    ) -> Flow {
        let Some(index) = self.reserve(place, source, scope) else {
            return Flow::unknown();
        };
        self.invoke(index, words, Vec::new(), Vec::new(), scope, place)
    }

    pub(crate) fn plain(
        &mut self,
        text: &[u8],
        words: Vec<&[u8]>,
        scope: &mut Scope,
        place: &Surroundings,
    ) -> Flow {
        let blank = |&byte: &u8| byte == b' ' || byte == b'\t';
        let start = text.iter().take_while(|byte| blank(byte)).count();
        let end = text.len() - text.iter().rev().take_while(|byte| blank(byte)).count();
        let argv: Vec<Word> = words.iter().map(|&word| Word::literal(word)).collect();
        if place.parent.is_none() {
            self.line.plain = Some(words.iter().map(|word| word.to_vec()).collect());
        }
        self.simple(argv, start..end, scope, place)
    }

    /// Whether plain words are not what they look like.
    pub(crate) fn begins_with_alias(&self, words: &[&[u8]], scope: &Scope) -> bool {
        let Some(&first) = words.first() else {
            return false;
        };
        let mut known = self.context.aliases.iter();
        scope.aliases.contains_key(first) || known.any(|(name, _)| name == first)
    }

    /// Shell text inside a command: `sh -c TEXT`, `eval TEXT`, an alias.
    pub fn nested_text(&mut self, text: &[u8], scope: &mut Scope, place: &Surroundings) -> Flow {
        if !self.descend() {
            return Flow::unknown();
        }
        let words = split_plain(text).filter(|words| !self.begins_with_alias(words, scope));
        let flow = if let Some(words) = words {
            self.plain(text, words, scope, place)
        } else {
            self.nested_program(text, scope, place)
        };
        self.depth -= 1;
        flow
    }
}
