//! Argument vectors, read with the help of a tool model.

use std::borrow::Cow;

use crate::model::{Arity, Meaning, Opt, Style, Tool};
use crate::word::Word;

/// What the words after the program are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Args {
    /// Canonical name of the model that was used; `None` when there is no model.
    pub tool: Option<String>,
    /// Canonical names of the subcommands met, outermost first.
    pub subcommands: Vec<String>,
    /// The options, in order.
    pub options: Vec<OptionUse>,
    /// The operands, in order, subcommand names included.
    pub operands: Vec<Operand>,
    /// A `--` ends the options.
    pub end_of_options: bool,
}

/// One option as used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionUse {
    /// Canonical spelling from the model; for an unknown option the spelling as written
    /// (`-rf` of an unmodelled tool gives `-r` and `-f`).
    pub name: Vec<u8>,
    /// Its value, attached or taken from the next word.
    pub value: Option<Word>,
    /// Whether the model knows it.
    pub known: bool,
    /// Index in argv of the word that it stands in.
    pub index: usize,
}

/// One operand as used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operand {
    /// Index in argv.
    pub index: usize,
    /// It is a subcommand's name.
    pub subcommand: bool,
    /// It follows an option that we do not know, so it may be that option's value.
    pub maybe_value: bool,
}

impl Args {
    /// Whether an option of that canonical name is given.
    pub fn has(&self, name: &str) -> bool {
        self.options
            .iter()
            .any(|option| option.name == name.as_bytes())
    }

    /// Reads an argument vector; without a model every `-x` is an option without a value.
    pub fn parse(argv: &[Word], tool: Option<&Tool>) -> Args {
        Reader::new(argv, tool).read().0
    }
}

/// The models in force, outermost first: the tool and the subcommands met.
pub(crate) type Levels<'t> = Vec<Cow<'t, Tool>>;

/// As `Args::parse`, with the models that gave the words their meaning.
pub(crate) fn parse<'t>(argv: &[Word], tool: Option<&'t Tool>) -> (Args, Levels<'t>) {
    Reader::new(argv, tool).read()
}

/// The option of that canonical name, looked for from the innermost model outwards.
pub(crate) fn option<'l>(levels: &'l Levels<'_>, name: &[u8]) -> Option<&'l Opt> {
    levels
        .iter()
        .rev()
        .flat_map(|level| &level.options)
        .find(|option| {
            option
                .names
                .first()
                .is_some_and(|first| first.as_bytes() == name)
        })
}

struct Reader<'w, 't> {
    argv: &'w [Word],
    levels: Levels<'t>,
    args: Args,
    at: usize,
    /// Options have ended: `--`, or the first operand in the style of wrappers.
    ended: bool,
    /// Operands since the innermost subcommand.
    operands: usize,
    /// The word before was an unknown option that may take this one as its value.
    after_unknown: bool,
}

impl<'w, 't> Reader<'w, 't> {
    fn new(argv: &'w [Word], tool: Option<&'t Tool>) -> Self {
        let args = Args {
            tool: tool.and_then(|tool| tool.names.first().cloned()),
            ..Args::default()
        };
        Self {
            argv,
            levels: tool.map(Cow::Borrowed).into_iter().collect(),
            args,
            at: 1,
            ended: false,
            operands: 0,
            after_unknown: false,
        }
    }

    fn style(&self) -> Style {
        self.levels.last().map_or(Style::Gnu, |level| level.style)
    }

    fn read(mut self) -> (Args, Levels<'t>) {
        while let Some(word) = self.argv.get(self.at) {
            let style = self.style();
            let prefix = word.known_prefix();
            if self.ended || style == Style::Plain {
                self.operand(word);
            } else if style == Style::Expression && word.value() == Some(b"--") {
                self.at += 1;
            } else if word.value() == Some(b"--") {
                self.ended = true;
                self.args.end_of_options = true;
                self.after_unknown = false;
                self.at += 1;
            } else if self.exact(word) {
            } else if style.is_single_dash() && prefix.starts_with(b"-") && prefix.len() > 1 {
                self.single_dash(word);
            } else if prefix.starts_with(b"--") {
                self.long(word);
            } else if prefix.starts_with(b"-") && (prefix.len() > 1 || word.value().is_none()) {
                self.short(word, 1);
            } else if style == Style::Bundle && self.at == 1 && self.is_bundle(word) {
                self.short(word, 0);
            } else {
                self.operand(word);
            }
        }
        (self.args, self.levels)
    }

    /// Models whose options may be used here: the innermost, and outer ones that let theirs follow.
    fn find(&self, fits: impl Fn(&str) -> bool) -> Option<&Opt> {
        let innermost = self.levels.len().saturating_sub(1);
        self.levels
            .iter()
            .enumerate()
            .rev()
            .filter(|(index, level)| *index == innermost || level.inherit)
            .flat_map(|(_, level)| &level.options)
            .find(|option| option.names.iter().any(|name| fits(name)))
    }

    /// The only option with a long name that starts so.
    fn find_abbreviated(&self, prefix: &[u8]) -> Option<&Opt> {
        if prefix.len() < 3 {
            return None;
        }
        let innermost = self.levels.len().saturating_sub(1);
        let mut levels = self.levels.iter().enumerate().rev();
        levels.find_map(|(index, level)| {
            if index != innermost && !level.inherit {
                return None;
            }
            let fits = |option: &&Opt| {
                let mut names = option.names.iter();
                names.any(|name| name.as_bytes().starts_with(prefix))
            };
            let mut found = level.options.iter().filter(fits);
            found.next().filter(|_| found.next().is_none())
        })
    }

    fn operand(&mut self, word: &Word) {
        let maybe_value = std::mem::take(&mut self.after_unknown);
        let index = self.at;
        self.at += 1;
        if self.operands == 0
            && !maybe_value
            && let Some(name) = word.value()
            && let Some((sub, canonical)) = self.subcommand(name)
        {
            self.args
                .subcommands
                .push(String::from_utf8_lossy(&canonical).into_owned());
            self.args.operands.push(Operand {
                index,
                subcommand: true,
                maybe_value,
            });
            self.levels.push(sub);
            return;
        }
        self.operands += 1;
        self.args.operands.push(Operand {
            index,
            subcommand: false,
            maybe_value,
        });
        if self.style() == Style::Posix {
            self.ended = true;
        }
    }

    fn subcommand(&self, name: &[u8]) -> Option<(Cow<'t, Tool>, Vec<u8>)> {
        match self.levels.last()? {
            Cow::Borrowed(tool) => {
                // A borrowed level outlives this reader, the word that was looked up does not.
                if let Some((sub, canonical)) = tool.subcommand(name) {
                    let canonical = canonical.to_vec();
                    let sub = tool
                        .subcommands
                        .iter()
                        .find(|tool| std::ptr::eq(*tool, sub))?;
                    return Some((Cow::Borrowed(sub), canonical));
                }
                let (sub, canonical) = tool.find_subcommand(name)?;
                Some((Cow::Owned(sub.into_owned()), canonical.into_owned()))
            }
            Cow::Owned(tool) => {
                let (sub, canonical) = tool.find_subcommand(name)?;
                Some((Cow::Owned(sub.into_owned()), canonical.into_owned()))
            }
        }
    }

    /// Options that are a word of their own: `-5`, `-`, `+cmd`, `(`; also any option spelt out in full.
    fn exact(&mut self, word: &Word) -> bool {
        let prefix = word.known_prefix();
        let Some(&first) = prefix.first() else {
            return false;
        };
        if first != b'-' && !self.levels.iter().any(|level| level.options.undashed()) {
            return false;
        }
        let whole = word.value();
        if let Some(text) = whole
            && (first != b'-' || text == b"-")
            && let Some(option) = self.find(|name| name.as_bytes() == text).map(canonical)
        {
            self.note(Some(option), text, None);
            self.at += 1;
            return true;
        }
        if first == b'-'
            && whole.is_some_and(|text| text.len() > 1 && text[1..].iter().all(u8::is_ascii_digit))
            && let Some(option) = self.find(|name| name == "-#").map(canonical)
        {
            let value = word.tail(1);
            self.note(Some(option), prefix, Some(value));
            self.at += 1;
            return true;
        }
        // `+cmd`: a mark that is no dash, with its value attached.
        if first != b'-'
            && let Some(option) = self.find(|name| name.as_bytes() == [first]).map(canonical)
            && !matches!(option.1, Arity::None)
        {
            let value = word.tail(1);
            self.note(Some(option), &[first], Some(value));
            self.at += 1;
            return true;
        }
        false
    }

    /// Notes an option and takes the words that are its value.
    fn note(
        &mut self,
        canonical: Option<(Vec<u8>, Arity)>,
        written: &[u8],
        attached: Option<Word>,
    ) {
        let index = self.at;
        let Some((name, arity)) = canonical else {
            self.after_unknown = attached.is_none() && !written[1..].iter().all(u8::is_ascii_digit);
            self.args.options.push(OptionUse {
                name: written.to_vec(),
                value: attached,
                known: false,
                index,
            });
            return;
        };
        self.after_unknown = false;
        let mut value = attached;
        if let Arity::Several(meanings) = &arity {
            value = self.argv.get(self.at + 1).cloned();
            self.at += meanings.len();
        }
        if let (Arity::Required(meaning), None) = (&arity, &value) {
            value = self.argv.get(self.at + 1).cloned();
            self.at += match meaning {
                Meaning::CommandUntil => command_end(self.argv, self.at + 1) - self.at,
                Meaning::Command => self.argv.len() - self.at,
                _ => 1,
            };
        }
        self.args.options.push(OptionUse {
            name,
            value,
            known: true,
            index,
        });
    }

    fn long(&mut self, word: &Word) {
        let prefix = word.known_prefix();
        let (name, attached) = split_value(word, prefix);
        let canonical = self
            .find(|spelling| spelling.as_bytes() == name)
            .or_else(|| {
                if attached.is_some() || word.is_literal() {
                    self.find_abbreviated(name)
                } else {
                    None
                }
            })
            .map(canonical);
        let written = if word.is_literal() || attached.is_some() {
            name.to_vec()
        } else {
            word.text().into_owned()
        };
        self.note(canonical, &written, attached);
        self.at += 1;
    }

    fn single_dash(&mut self, word: &Word) {
        let prefix = word.known_prefix();
        let (name, attached) = split_value(word, prefix);
        let single = name
            .strip_prefix(b"-")
            .filter(|rest| rest.starts_with(b"-"))
            .unwrap_or(name);
        let canonical = self
            .find(|spelling| spelling.as_bytes() == name || spelling.as_bytes() == single)
            .map(canonical);
        let written = if word.is_literal() || attached.is_some() {
            name.to_vec()
        } else {
            word.text().into_owned()
        };
        self.note(canonical, &written, attached);
        self.at += 1;
    }

    /// A cluster of one-letter options, from the given byte of the word on.
    fn short(&mut self, word: &Word, from: usize) {
        let prefix = word.known_prefix();
        // Some tools in the usual style also have long names behind one dash.
        if prefix.len() > 2 && from == 1 {
            let (name, attached) = split_value(word, prefix);
            if let Some(option) = self
                .find(|spelling| spelling.as_bytes() == name)
                .map(canonical)
            {
                self.note(Some(option), name, attached);
                self.at += 1;
                return;
            }
        }
        if prefix.len() == from {
            let text = word.text().into_owned();
            self.note(None, &text, None);
            self.at += 1;
            return;
        }
        if from == 1
            && prefix[1..].iter().all(u8::is_ascii_digit)
            && word.is_literal()
            && prefix.len() > 2
        {
            self.note(None, prefix, None);
            self.at += 1;
            return;
        }
        let start = self.at;
        for (position, &letter) in prefix.iter().enumerate().skip(from) {
            let spelling = [b'-', letter];
            let canonical = self.find(|name| name.as_bytes() == spelling).map(canonical);
            let rest = word.tail(position + 1);
            let takes = matches!(
                canonical,
                Some((_, Arity::Required(_) | Arity::Optional(_)))
            );
            // Options in a cluster without dash take their values from the words after it.
            let attached = Some(rest).filter(|rest| takes && from == 1 && !rest.pieces.is_empty());
            let last = attached.is_some();
            self.note(canonical, &spelling, attached);
            if let Some(option) = self.args.options.last_mut() {
                option.index = start;
            }
            if last {
                self.at += 1;
                return;
            }
        }
        // What the rest of the cluster is, only the run will tell.
        let rest = word.tail(prefix.len());
        if !rest.pieces.is_empty() {
            let name = [b"-".as_slice(), &rest.text()].concat();
            self.args.options.push(OptionUse {
                name,
                value: None,
                known: false,
                index: start,
            });
        }
        self.at += 1;
    }

    /// Whether the first word is a cluster without a dash: every letter is an option of the tool.
    fn is_bundle(&self, word: &Word) -> bool {
        word.value().is_some_and(|text| {
            !text.is_empty()
                && text.iter().all(|&byte| {
                    byte.is_ascii_alphabetic()
                        && self.find(|name| name.as_bytes() == [b'-', byte]).is_some()
                })
        })
    }
}

fn canonical(option: &Opt) -> (Vec<u8>, Arity) {
    (
        option
            .names
            .first()
            .map(|name| name.clone().into_bytes())
            .unwrap_or_default(),
        option.value.clone(),
    )
}

/// `--name=value` in its two halves.
fn split_value<'p>(word: &Word, prefix: &'p [u8]) -> (&'p [u8], Option<Word>) {
    match prefix.iter().position(|&byte| byte == b'=') {
        Some(equals) => (&prefix[..equals], Some(word.tail(equals + 1))),
        None => (prefix, None),
    }
}

/// Index of the word that ends a `find -exec` command which starts at `from`.
pub(crate) fn command_end(argv: &[Word], from: usize) -> usize {
    let mut at = from;
    while let Some(word) = argv.get(at) {
        match word.value() {
            Some(b";") => return at,
            Some(b"+")
                if at > from && argv[at - 1].value().is_some_and(|before| before == b"{}") =>
            {
                return at;
            }
            _ => at += 1,
        }
    }
    argv.len().saturating_sub(1).max(from.saturating_sub(1))
}
