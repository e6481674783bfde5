//! Tool models: which options a program has, and what its words mean.
//!
//! A model is data. It comes from `policies/tools/*.yaml`, is compiled with the policy, and is
//! decoded one tool at a time, so that a start-up pays only for the tools of its own line.

use std::ops::Deref;
use std::rc::Rc;
use std::sync::OnceLock;

use crate::effect::{Action, Source, UNKNOWN};
use crate::packed::Packed;

/// The classes of things that are neither file nor host (`Object::Resource`), with what they stand for.
pub const RESOURCES: [(&str, &str); 22] = [
    ("backup", "backups and snapshots"),
    ("clipboard", "what the user copied"),
    ("cloud", "resources of a cloud account"),
    ("cluster", "objects of a Kubernetes or other cluster"),
    (
        "container",
        "containers, images, volumes and virtual machines of this host",
    ),
    ("database", "databases and what they hold"),
    (
        "device",
        "screen, camera, microphone, keyboard and pointer of the user",
    ),
    ("disk", "block devices, partitions, file systems and mounts"),
    ("firewall", "packet filters, routes and interfaces"),
    (
        "git-history",
        "commits, branches, tags, stashes and reflogs of a repository",
    ),
    ("git-worktree", "uncommitted changes of a work tree"),
    ("log", "logs, audit trails and shell history"),
    ("package-registry", "published packages"),
    ("process", "running processes of others"),
    ("remote", "a forge or a remote repository"),
    ("schedule", "commands that will run later"),
    ("secret", "passwords, tokens and keys in a store"),
    ("service", "services of this host"),
    (
        "system",
        "installed packages, kernel, boot and security settings, power",
    ),
    (UNKNOWN, "what a program without a model does"),
    ("user", "accounts, groups and their passwords"),
    ("web", "what an HTTP server keeps"),
];

/// Looks up the model of a program by its base name.
pub trait Models {
    /// The model, if there is one.
    fn tool(&self, name: &[u8]) -> Option<Tool>;

    /// The model for reading only; whoever keeps decoded models hands them out here.
    fn shared(&self, name: &[u8]) -> Option<Rc<Tool>> {
        self.tool(name).map(Rc::new)
    }
}

/// No models at all: every word is an operand without meaning.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoModels;

impl Models for NoModels {
    fn tool(&self, _name: &[u8]) -> Option<Tool> {
        None
    }
}

/// The model of one program or subcommand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tool {
    /// Names it goes by; the first is the canonical one. Names of subcommands may contain `*`;
    /// [`Tool::subcommand`] says how they are found.
    pub names: Vec<String>,
    /// Other programs, or subcommands, that take the same arguments, each with its own names.
    pub also: Vec<Vec<String>>,
    /// How its options are written.
    pub style: Style,
    /// Its options.
    pub options: Options,
    /// What its operands mean; the first usage whose condition holds applies. Where subcommands are
    /// met, usages, `produces`, `stdin` and `recursive` are those of the innermost one.
    pub usages: Vec<Usage>,
    /// Effects that come from the call itself, not from an operand. Those of a tool hold for its
    /// subcommands too.
    pub effects: Vec<Conditional<Consequence>>,
    /// What its standard output consists of, for what a later stage of the pipeline runs.
    pub produces: Vec<Conditional<Product>>,
    /// What it does with standard input when no operand gives it something else to run.
    pub stdin: Stdin,
    /// When the path effects of this call are recursive; `None`: never.
    pub recursive: Option<Condition>,
    /// When the call only shows something (`--help`, `--dry-run`): then no word and no consequence
    /// of it or of a subcommand has an effect. `None`: never.
    pub inert: Option<Condition>,
    /// Subcommands; options of the parent that stand before the subcommand are parsed first. A first
    /// operand that names none leaves the call to the usages and effects of this level.
    pub subcommands: Vec<Tool>,
    /// Options of the parent may also stand after the subcommand (`git` no, `kubectl` yes).
    pub inherit: bool,
    /// The resource that it is the client of, if it is one: below the last word that the model knows, verbs decide what is done
    /// to it. Subcommands have that of their tool, or [`Tool::NO_SERVICE`].
    pub service: Option<String>,
    /// Its words are names that people choose, subcommands' included, so no verb in them says anything.
    pub free_text: bool,
    /// The language of the code that it runs, where somebody here reads it.
    pub language: Option<Language>,
    /// Programs that it starts by itself as part of what it was asked to do.
    pub own_work: Vec<String>,
    /// Subcommands that are still in compiled form: `codec::decode` leaves them so, as a call uses
    /// one of many. [`Tool::find_subcommand`] looks here too.
    pub packed: Packed,
}

impl Tool {
    /// What [`Tool::service`] says of a subcommand that is none of its tool's service.
    pub const NO_SERVICE: &str = "none";

    /// Every name that this is the model of.
    pub fn all_names(&self) -> impl Iterator<Item = &String> {
        self.names.iter().chain(self.also.iter().flatten())
    }

    /// Whether it has subcommands at all.
    pub fn has_subcommands(&self) -> bool {
        !self.subcommands.is_empty() || !self.packed.is_empty()
    }

    /// The subcommand that a word names, with its canonical name. An exact name is tried first,
    /// then the patterns in order; what fits a pattern is its own canonical name.
    pub fn subcommand<'a>(&'a self, word: &'a [u8]) -> Option<(&'a Tool, &'a [u8])> {
        let exact = self.subcommands.iter().find_map(|tool| {
            let mut all = std::iter::once(&tool.names).chain(&tool.also);
            let names = all.find(|names| names.iter().any(|name| name.as_bytes() == word))?;
            Some((tool, names[0].as_bytes()))
        });
        exact.or_else(|| {
            let fitting = self.subcommands.iter().find(|tool| {
                let mut all = tool.names.iter().chain(tool.also.iter().flatten());
                all.any(|name| name.contains('*') && fits(name, word))
            });
            fitting.map(|tool| (tool, word))
        })
    }
}

/// Whether a text fits a pattern of a model: `*` stands for any text, ASCII case does not count.
pub fn fits(pattern: &str, text: &[u8]) -> bool {
    let pattern = pattern.as_bytes();
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern
            .get(p)
            .is_some_and(|byte| byte.eq_ignore_ascii_case(&text[t]))
        {
            p += 1;
            t += 1;
        } else if let Some((at, taken)) = star {
            // The last `*` takes one byte more; going back further cannot help.
            star = Some((at, taken + 1));
            p = at + 1;
            t = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// A language whose code is looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Read by a grammar.
    Python,
    /// Read by a grammar.
    JavaScript,
    /// Looked through for calls that are plain.
    Perl,
    /// Looked through for calls that are plain.
    Ruby,
}

impl Language {
    /// All languages, in the order in which the compiled form counts them.
    pub const ALL: [Language; 4] = [
        Language::Python,
        Language::JavaScript,
        Language::Perl,
        Language::Ruby,
    ];

    /// The name used in tool models.
    pub fn name(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::JavaScript => "javascript",
            Language::Perl => "perl",
            Language::Ruby => "ruby",
        }
    }
}

/// How options are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// `-abc`, `-ovalue`, `--long=value`, operands and options mixed, unique long prefixes.
    #[default]
    Gnu,
    /// As `Gnu`, but the first operand ends the options (wrappers: `env`, `sudo`, `ssh`).
    Posix,
    /// One dash before long names, no clusters: `-name value`, `-name=value` (`go`, `terraform`).
    SingleDash,
    /// As `SingleDash`, and `--` ends nothing (`find`).
    Expression,
    /// As `Gnu`, and the first word may be a cluster without a dash (`tar xzf`, `ps aux`).
    Bundle,
    /// No options at all; every word is an operand (`echo`, `dd`, `test`).
    Plain,
}

impl Style {
    /// Whether long names stand behind one dash.
    pub fn is_single_dash(self) -> bool {
        matches!(self, Style::SingleDash | Style::Expression)
    }
}

/// A list of options, in compiled form until one is looked for: most words are none.
#[derive(Clone)]
pub struct Options {
    list: OnceLock<Vec<Opt>>,
    packed: Packed,
    decode: fn(&[u8]) -> Option<Vec<Opt>>,
    undashed: bool,
}

impl Options {
    /// Options in compiled form; `undashed` as [`Options::undashed`] says it of them.
    pub(crate) fn packed(
        packed: Packed,
        decode: fn(&[u8]) -> Option<Vec<Opt>>,
        undashed: bool,
    ) -> Self {
        Self {
            list: OnceLock::new(),
            packed,
            decode,
            undashed,
        }
    }

    /// Whether a spelling without a dash is among them, so that any word may be an option.
    pub fn undashed(&self) -> bool {
        self.undashed
    }
}

impl Default for Options {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl From<Vec<Opt>> for Options {
    fn from(list: Vec<Opt>) -> Self {
        let undashed = list
            .iter()
            .flat_map(|option| &option.names)
            .any(|name| !name.starts_with('-'));
        Self {
            list: list.into(),
            packed: Packed::default(),
            decode: |_| None,
            undashed,
        }
    }
}

impl Deref for Options {
    type Target = [Opt];

    fn deref(&self) -> &[Opt] {
        // A checksum has vouched for these bytes: what cannot be read was never written.
        self.list
            .get_or_init(|| (self.decode)(&self.packed).unwrap_or_default())
    }
}

impl<'a> IntoIterator for &'a Options {
    type Item = &'a Opt;
    type IntoIter = std::slice::Iter<'a, Opt>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Options {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Options {}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// An option.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Opt {
    /// Spellings with their dashes; the first is the canonical one, which rules compare. `-#` is a
    /// dash and a number (`head -5`). A spelling without a dash (`+` of `vim +cmd`, `(` of `find`)
    /// is an option all the same.
    pub names: Vec<String>,
    /// Whether a value belongs to it, and what that value means.
    pub value: Arity,
}

/// Whether an option takes a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Arity {
    /// No value.
    #[default]
    None,
    /// A value, attached or as the next word.
    Required(Meaning),
    /// A value only when attached (`--color=always`, `-i.bak`).
    Optional(Meaning),
    /// Several values, each a word of its own (`bwrap --bind FROM TO`, `jq --arg NAME VALUE`).
    Several(Vec<Meaning>),
}

/// What a word means to the program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Meaning {
    /// Nothing that a policy speaks of.
    #[default]
    Text,
    /// A path, and what is done to it.
    Path(Vec<Action>),
    /// The directory that the program works in; relative paths of the call are meant from there.
    Directory,
    /// A URL; its host is connected to, a `file:` URL is read.
    Url,
    /// `host`, `host:port` or `user@host`; connected to.
    Host,
    /// A local path, `[user@]host:path` or a URL: connected to when remote, else the path actions,
    /// of which there may be none (a remote that may be a mere name, as in `git fetch origin`).
    Remote(Vec<Action>),
    /// A port that is listened on.
    Port,
    /// This and all following words are another command.
    Command,
    /// Words up to `;` or `+` are another command (`find -exec`).
    CommandUntil,
    /// Shell text. As an operand: this and all following words, joined by blanks.
    Shell,
    /// One word of shell text, as an operand that others may follow.
    ShellWord,
    /// A program started without arguments that we know.
    Program,
    /// Code in a language that we do not read.
    Code,
    /// A file whose content is run; `-` is standard input.
    Script,
    /// `NAME=value` for the environment of the wrapped command; other words end the assignments.
    Assignment,
    /// A `sed` script: its `e`, `w`, `r` commands are effects.
    Sed,
    /// An `awk` program: `system()`, pipes and redirections are effects.
    Awk,
    /// An editor command: `!cmd` is shell text, `w file` a write.
    EditorCommand,
    /// `host-path:target[:ro]` of a container mount.
    Volume,
    /// `key=value`; the first entry whose key pattern (`*` allowed) fits gives the value's meaning.
    /// Keys are compared without regard to case. A word without `=` has the empty key's meaning.
    Keyed(Vec<(String, Meaning)>),
    /// SQL text: `DROP`, `TRUNCATE`, `DELETE` without `WHERE` delete from a database.
    Sql,
    /// The mode operand of `chmod`; setting setuid or setgid bits raises privilege.
    Mode,
    /// Text in which `@path`, `name@path`, `name=@path` or `name=<path` reads that file (`curl -d`, `-F`).
    AtFile,
    /// An argument of which only the program knows what it is for: what looks like a path, behind
    /// `--name=` or `@` too, may be read.
    Argument,
    /// A `git` alias: shell text after `!`, else arguments of the same tool.
    Alias,
}

/// What the operands of a call mean, as a synopsis.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// When this usage applies.
    pub when: Condition,
    /// Operands in order; at most one is repeated and takes what the others leave.
    pub operands: Vec<OperandSpec>,
}

/// One operand of a synopsis.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperandSpec {
    /// What it means.
    pub means: Meaning,
    /// It stands for any number of operands.
    pub repeated: bool,
}

/// What must, and must not, be given. Each entry is the text of a [`Test`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Condition {
    /// At least one of these is given; empty: always holds.
    pub any: Vec<String>,
    /// All of these are given.
    pub all: Vec<String>,
    /// None of these is given.
    pub none: Vec<String>,
}

/// One entry of a condition. In patterns `*` stands for any text, case does not count, and what a
/// word leaves unknown is fitted by `*` only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test<'a> {
    /// `-x`, `--long`: the option of that canonical name is given.
    Option(&'a str),
    /// `--long=pattern`: the option is given with a value that fits.
    Value(&'a str, &'a str),
    /// `--`: the end of options is marked.
    EndOfOptions,
    /// Anything else: an operand, subcommand names apart, fits the pattern. A leading backslash is
    /// not part of it and serves for operands that begin with a dash.
    Operand(&'a str),
}

impl<'a> Test<'a> {
    /// Reads an entry.
    pub fn read(entry: &'a str) -> Self {
        if let Some(operand) = entry.strip_prefix('\\') {
            return Test::Operand(operand);
        }
        if entry == "--" {
            return Test::EndOfOptions;
        }
        if entry.len() < 2 || !entry.starts_with('-') {
            return Test::Operand(entry);
        }
        match entry.split_once('=') {
            Some((name, pattern)) => Test::Value(name, pattern),
            None => Test::Option(entry),
        }
    }
}

/// Something that holds only under a condition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conditional<T> {
    /// The condition.
    pub when: Condition,
    /// What then holds.
    pub what: T,
}

/// An effect of the call itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consequence {
    /// What is done.
    pub action: Action,
    /// To what.
    pub to: Subject,
}

/// What a consequence is done to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Nothing in particular.
    Unspecified,
    /// A named resource, see `Object::Resource`.
    Resource(String),
    /// A fixed path; `~/` and `$HOME` are resolved by the judge.
    Path(String),
    /// The path that this option's value names (`tar -f`, written or read as the mode has it).
    OptionValue(String),
    /// Code from this source.
    Code(Source),
    /// A fixed host, or a client set such as `@npm`.
    Host(String),
    /// The working directory of the call.
    WorkingDirectory,
}

/// What a program writes to its standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// Something downloaded.
    Network,
    /// Something decoded or decrypted.
    Decoded,
    /// Its own operands (`echo`, `printf`).
    Operands,
    /// The files that its operands name (`cat`).
    Files,
    /// What it got on standard input, perhaps changed (`tee`, `sed`, `head`).
    Input,
}

/// What a program does with its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stdin {
    /// Treats it as data.
    #[default]
    Data,
    /// Runs it as shell text when no operand or `-c` gives a script.
    Shell,
    /// Runs it as code in another language when no operand or `-c` gives a script.
    Code,
    /// Runs each line or item as words of a command (`xargs`, `parallel`).
    Arguments,
}

#[cfg(test)]
mod tests {
    use super::{Test, Tool, fits};

    #[test]
    fn stars_take_any_text_and_case_does_not_count() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("delete-*", "DELETE-x"),
            ("*a*b", "xaabab"),
            ("a", "A"),
        ] {
            assert!(fits(pattern, text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("a*", "ba"), ("*a*b", "xaaba"), ("aa", "a")] {
            assert!(!fits(pattern, text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn an_exact_subcommand_comes_before_a_pattern() {
        let named = |names: &[&str]| Tool {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            ..Tool::default()
        };
        let mut list = named(&["list", "ls"]);
        list.also.push(vec!["show".to_owned(), "get".to_owned()]);
        let tool = Tool {
            subcommands: vec![named(&["l*"]), list, named(&["*"])],
            ..Tool::default()
        };
        let found = |word: &'static str| {
            tool.subcommand(word.as_bytes())
                .map(|(tool, name)| (tool.names[0].as_str(), name))
        };
        assert_eq!(found("ls"), Some(("list", b"list".as_slice())));
        assert_eq!(found("get"), Some(("list", b"show".as_slice())));
        assert_eq!(found("load"), Some(("l*", b"load".as_slice())));
        assert_eq!(found("x"), Some(("*", b"x".as_slice())));
    }

    #[test]
    fn entries_of_conditions_say_what_they_test() {
        assert_eq!(Test::read("--prune=now"), Test::Value("--prune", "now"));
        assert_eq!(Test::read("-f"), Test::Option("-f"));
        assert_eq!(Test::read("--"), Test::EndOfOptions);
        assert_eq!(Test::read("+*"), Test::Operand("+*"));
        assert_eq!(Test::read("-"), Test::Operand("-"));
        assert_eq!(Test::read("\\-1"), Test::Operand("-1"));
    }
}
