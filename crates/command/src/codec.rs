//! Tool models as bytes, for the compiled policy: compact, bounds-checked, total on garbage.

use std::borrow::Cow;

use crate::effect::{Action, Source};
use crate::model::{
    Arity, Condition, Conditional, Consequence, Language, Meaning, OperandSpec, Opt, Options,
    Product, Stdin, Style, Subject, Tool, Usage, fits,
};
use crate::packed::Packed;

/// Deepest nesting of meanings and subcommands that is read.
const MAX_DEPTH: usize = 16;

/// The model as bytes.
pub fn encode(tool: &Tool) -> Vec<u8> {
    let mut out = Writer(Vec::new());
    out.tool(tool);
    out.0
}

/// The model that these bytes are; options and subcommands stay packed until one is asked for.
pub fn decode(bytes: &[u8]) -> Option<Tool> {
    decode_part(&Packed::copy(bytes))
}

/// The same without a copy of the bytes.
pub fn decode_part(bytes: &Packed) -> Option<Tool> {
    let mut reader = Reader { bytes };
    let tool = reader.tool(bytes)?;
    reader.bytes.is_empty().then_some(tool)
}

/// The options that these bytes are.
fn decode_options(bytes: &[u8]) -> Option<Vec<Opt>> {
    let mut reader = Reader { bytes };
    let options = reader.list(Reader::option)?;
    reader.bytes.is_empty().then_some(options)
}

/// The model with all its subcommands, however deep, in plain form.
pub fn unpack(tool: &Tool) -> Option<Tool> {
    unpack_level(tool, 0)
}

fn unpack_level(tool: &Tool, depth: usize) -> Option<Tool> {
    if depth > MAX_DEPTH {
        return None;
    }
    let mut plain = tool.clone();
    plain.subcommands.clear();
    plain.packed = Packed::default();
    for sub in &tool.subcommands {
        plain.subcommands.push(unpack_level(sub, depth + 1)?);
    }
    let mut reader = Reader {
        bytes: &tool.packed,
    };
    while !reader.bytes.is_empty() {
        let sub = decode_part(&tool.packed.inner(reader.subcommand()?.body))?;
        plain.subcommands.push(unpack_level(&sub, depth + 1)?);
    }
    Some(plain)
}

impl Tool {
    /// As [`Tool::subcommand`], among those in compiled form too.
    pub fn find_subcommand<'a>(&'a self, word: &'a [u8]) -> Option<(Cow<'a, Tool>, Cow<'a, [u8]>)> {
        match self.subcommand(word) {
            Some((tool, name)) => Some((Cow::Borrowed(tool), Cow::Borrowed(name))),
            None => find_packed(&self.packed, word)
                .map(|(tool, name)| (Cow::Owned(tool), Cow::Owned(name))),
        }
    }
}

/// Looks a subcommand up in packed form as [`Tool::subcommand`] does, and decodes only that one.
fn find_packed(packed: &Packed, word: &[u8]) -> Option<(Tool, Vec<u8>)> {
    search(packed, kind(word), |name| name == word)
        .or_else(|| {
            search(packed, PATTERN, |name| {
                name.contains(&b'*') && std::str::from_utf8(name).is_ok_and(|name| fits(name, word))
            })
        })
        .map(|(tool, canonical)| {
            let canonical = if canonical.contains(&b'*') {
                word.to_vec()
            } else {
                canonical
            };
            (tool, canonical)
        })
}

/// The first packed subcommand with a name that is wanted, which is of this kind, and the canonical
/// name of that group.
fn search(packed: &Packed, kind: u64, wanted: impl Fn(&[u8]) -> bool) -> Option<(Tool, Vec<u8>)> {
    let mut reader = Reader { bytes: packed };
    while !reader.bytes.is_empty() {
        let subcommand = reader.subcommand()?;
        if subcommand.kinds & kind == 0 {
            continue;
        }
        let mut names = Reader {
            bytes: subcommand.names,
        };
        let mut canonical: Option<&[u8]> = None;
        for _ in 0..names.count()? {
            let mut first: Option<&[u8]> = None;
            for _ in 0..names.count()? {
                let name = names.blob()?;
                let group = *first.get_or_insert(name);
                if canonical.is_none() && wanted(name) {
                    canonical = Some(group);
                }
            }
        }
        if let Some(canonical) = canonical {
            let tool = decode_part(&packed.inner(subcommand.body))?;
            return Some((tool, canonical.to_vec()));
        }
    }
    None
}

/// The kind of names that are patterns.
const PATTERN: u64 = 1 << 63;

/// One of many kinds of names, so that most subcommands are passed by without a look at theirs.
fn kind(name: &[u8]) -> u64 {
    if name.contains(&b'*') {
        return PATTERN;
    }
    let sum = name.iter().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(*byte))
    });
    1 << (sum % 63)
}

/// A subcommand in compiled form.
struct Subcommand<'a> {
    /// The kinds of all its names.
    kinds: u64,
    names: &'a [u8],
    body: &'a [u8],
}

struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Seven bits a byte, so that the small numbers that models consist of take one.
    fn count(&mut self, count: usize) {
        let mut left = count;
        while left >= 0x80 {
            self.byte(left as u8 | 0x80);
            left >>= 7;
        }
        self.byte(left as u8);
    }

    fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn strings(&mut self, list: &[String]) {
        self.count(list.len());
        for text in list {
            self.blob(text.as_bytes());
        }
    }

    fn list<T>(&mut self, list: &[T], each: impl Fn(&mut Self, &T)) {
        self.count(list.len());
        for item in list {
            each(self, item);
        }
    }

    fn tool(&mut self, tool: &Tool) {
        self.strings(&tool.names);
        self.list(&tool.also, |out, names| out.strings(names));
        self.byte(tool.style as u8);
        self.byte(tool.stdin as u8);
        self.byte(u8::from(tool.inherit));
        self.byte(u8::from(tool.options.undashed()));
        let mut options = Writer(Vec::new());
        options.list(&tool.options, |out, option| out.option(option));
        self.blob(&options.0);
        self.list(&tool.usages, |out, usage| {
            out.condition(&usage.when);
            out.list(&usage.operands, |out, operand| {
                out.byte(u8::from(operand.repeated));
                out.meaning(&operand.means);
            });
        });
        self.list(&tool.effects, |out, effect| {
            out.condition(&effect.when);
            out.byte(effect.what.action as u8);
            out.subject(&effect.what.to);
        });
        self.list(&tool.produces, |out, product| {
            out.condition(&product.when);
            out.byte(product.what as u8);
        });
        self.optional_condition(tool.recursive.as_ref());
        self.optional_condition(tool.inert.as_ref());
        self.blob(tool.service.as_deref().unwrap_or_default().as_bytes());
        self.byte(u8::from(tool.free_text));
        let language = Language::ALL
            .iter()
            .position(|known| Some(*known) == tool.language);
        self.byte(language.map_or(u8::MAX, |number| number as u8));
        self.strings(&tool.own_work);
        let mut packed = Writer(Vec::new());
        for sub in &tool.subcommands {
            let kinds = sub.all_names().map(|name| kind(name.as_bytes()));
            let kinds = kinds.fold(0, |all, kind| all | kind);
            packed.0.extend_from_slice(&u64::to_le_bytes(kinds));
            let groups: Vec<&Vec<String>> = std::iter::once(&sub.names).chain(&sub.also).collect();
            let mut names = Writer(Vec::new());
            names.list(&groups, |out, names| out.strings(names));
            packed.blob(&names.0);
            packed.blob(&encode(sub));
        }
        packed.0.extend_from_slice(&tool.packed);
        self.blob(&packed.0);
    }

    fn option(&mut self, option: &Opt) {
        self.strings(&option.names);
        match &option.value {
            Arity::None => self.byte(0),
            Arity::Required(meaning) => {
                self.byte(1);
                self.meaning(meaning);
            }
            Arity::Optional(meaning) => {
                self.byte(2);
                self.meaning(meaning);
            }
            Arity::Several(meanings) => {
                self.byte(3);
                self.list(meanings, |out, meaning| out.meaning(meaning));
            }
        }
    }

    fn optional_condition(&mut self, condition: Option<&Condition>) {
        self.byte(u8::from(condition.is_some()));
        if let Some(condition) = condition {
            self.condition(condition);
        }
    }

    fn condition(&mut self, condition: &Condition) {
        self.strings(&condition.any);
        self.strings(&condition.all);
        self.strings(&condition.none);
    }

    fn subject(&mut self, subject: &Subject) {
        match subject {
            Subject::Unspecified => self.byte(0),
            Subject::Resource(name) => {
                self.byte(1);
                self.blob(name.as_bytes());
            }
            Subject::Path(path) => {
                self.byte(2);
                self.blob(path.as_bytes());
            }
            Subject::Code(source) => {
                self.byte(3);
                self.byte(*source as u8);
            }
            Subject::Host(host) => {
                self.byte(4);
                self.blob(host.as_bytes());
            }
            Subject::WorkingDirectory => self.byte(5),
            Subject::OptionValue(name) => {
                self.byte(6);
                self.blob(name.as_bytes());
            }
        }
    }

    fn meaning(&mut self, meaning: &Meaning) {
        let actions = |out: &mut Self, tag: u8, actions: &[Action]| {
            out.byte(tag);
            out.list(actions, |out, action| out.byte(*action as u8));
        };
        match meaning {
            Meaning::Path(list) => actions(self, 1, list),
            Meaning::Remote(list) => actions(self, 5, list),
            Meaning::Keyed(entries) => {
                self.byte(20);
                self.list(entries, |out, (key, meaning)| {
                    out.blob(key.as_bytes());
                    out.meaning(meaning);
                });
            }
            other => {
                let tag = SIMPLE
                    .iter()
                    .position(|(_, simple)| simple == other)
                    .map_or(0, |index| SIMPLE[index].0);
                self.byte(tag);
            }
        }
    }
}

/// Meanings without further data, by their number.
const SIMPLE: [(u8, Meaning); 22] = [
    (0, Meaning::Text),
    (2, Meaning::Directory),
    (3, Meaning::Url),
    (4, Meaning::Host),
    (6, Meaning::Port),
    (7, Meaning::Command),
    (8, Meaning::CommandUntil),
    (9, Meaning::Shell),
    (10, Meaning::ShellWord),
    (11, Meaning::Program),
    (12, Meaning::Code),
    (13, Meaning::Script),
    (14, Meaning::Assignment),
    (15, Meaning::Sed),
    (16, Meaning::Awk),
    (17, Meaning::EditorCommand),
    (18, Meaning::Volume),
    (19, Meaning::Sql),
    (21, Meaning::Mode),
    (22, Meaning::AtFile),
    (23, Meaning::Alias),
    (24, Meaning::Argument),
];

const STYLES: [Style; 6] = [
    Style::Gnu,
    Style::Posix,
    Style::SingleDash,
    Style::Expression,
    Style::Bundle,
    Style::Plain,
];
const STDINS: [Stdin; 4] = [Stdin::Data, Stdin::Shell, Stdin::Code, Stdin::Arguments];
const PRODUCTS: [Product; 5] = [
    Product::Network,
    Product::Decoded,
    Product::Operands,
    Product::Files,
    Product::Input,
];

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    fn count(&mut self) -> Option<usize> {
        let mut value = 0usize;
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn blob(&mut self) -> Option<&'a [u8]> {
        let length = self.count()?;
        let (blob, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(blob)
    }

    fn string(&mut self) -> Option<String> {
        std::str::from_utf8(self.blob()?).ok().map(str::to_owned)
    }

    /// A list; every item takes at least one byte, so a count beyond what is left is garbage.
    fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.count()?;
        if count > self.bytes.len() {
            return None;
        }
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(each(self)?);
        }
        Some(list)
    }

    fn strings(&mut self) -> Option<Vec<String>> {
        self.list(Self::string)
    }

    fn subcommand(&mut self) -> Option<Subcommand<'a>> {
        let (kinds, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(Subcommand {
            kinds: u64::from_le_bytes(*kinds),
            names: self.blob()?,
            body: self.blob()?,
        })
    }

    fn option(&mut self) -> Option<Opt> {
        Some(Opt {
            names: self.strings()?,
            value: match self.byte()? {
                0 => Arity::None,
                1 => Arity::Required(self.meaning(0)?),
                2 => Arity::Optional(self.meaning(0)?),
                3 => Arity::Several(self.list(|reader| reader.meaning(0))?),
                _ => return None,
            },
        })
    }

    /// The model whose bytes, which are part of these, are next.
    fn tool(&mut self, within: &Packed) -> Option<Tool> {
        Some(Tool {
            names: self.strings()?,
            also: self.list(Self::strings)?,
            style: *STYLES.get(usize::from(self.byte()?))?,
            stdin: *STDINS.get(usize::from(self.byte()?))?,
            inherit: self.byte()? != 0,
            options: {
                let undashed = self.byte()? != 0;
                Options::packed(within.inner(self.blob()?), decode_options, undashed)
            },
            usages: self.list(|reader| {
                Some(Usage {
                    when: reader.condition()?,
                    operands: reader.list(|reader| {
                        Some(OperandSpec {
                            repeated: reader.byte()? != 0,
                            means: reader.meaning(0)?,
                        })
                    })?,
                })
            })?,
            effects: self.list(|reader| {
                Some(Conditional {
                    when: reader.condition()?,
                    what: Consequence {
                        action: reader.action()?,
                        to: reader.subject()?,
                    },
                })
            })?,
            produces: self.list(|reader| {
                Some(Conditional {
                    when: reader.condition()?,
                    what: *PRODUCTS.get(usize::from(reader.byte()?))?,
                })
            })?,
            recursive: self.optional_condition()?,
            inert: self.optional_condition()?,
            service: Some(self.string()?).filter(|service| !service.is_empty()),
            free_text: self.byte()? != 0,
            language: Language::ALL.get(usize::from(self.byte()?)).copied(),
            own_work: self.strings()?,
            subcommands: Vec::new(),
            packed: within.inner(self.blob()?),
        })
    }

    fn action(&mut self) -> Option<Action> {
        Action::ALL.get(usize::from(self.byte()?)).copied()
    }

    fn optional_condition(&mut self) -> Option<Option<Condition>> {
        match self.byte()? {
            0 => Some(None),
            _ => Some(Some(self.condition()?)),
        }
    }

    fn condition(&mut self) -> Option<Condition> {
        Some(Condition {
            any: self.strings()?,
            all: self.strings()?,
            none: self.strings()?,
        })
    }

    fn subject(&mut self) -> Option<Subject> {
        Some(match self.byte()? {
            0 => Subject::Unspecified,
            1 => Subject::Resource(self.string()?),
            2 => Subject::Path(self.string()?),
            3 => Subject::Code(*Source::ALL.get(usize::from(self.byte()?))?),
            4 => Subject::Host(self.string()?),
            5 => Subject::WorkingDirectory,
            6 => Subject::OptionValue(self.string()?),
            _ => return None,
        })
    }

    fn meaning(&mut self, depth: usize) -> Option<Meaning> {
        if depth > MAX_DEPTH {
            return None;
        }
        match self.byte()? {
            1 => Some(Meaning::Path(self.list(Self::action)?)),
            5 => Some(Meaning::Remote(self.list(Self::action)?)),
            20 => Some(Meaning::Keyed(self.list(|reader| {
                Some((reader.string()?, reader.meaning(depth + 1)?))
            })?)),
            tag => SIMPLE
                .iter()
                .find(|(number, _)| *number == tag)
                .map(|(_, meaning)| meaning.clone()),
        }
    }
}
