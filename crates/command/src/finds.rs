//! What programs that look for files find: where, and whether that is everything there.

use crate::args::{Args, OptionUse};
use crate::model::fits;
use crate::word::{Piece, Word};

/// What `find` does with what it has found.
const ACTS: [&[u8]; 15] = [
    b"-delete",
    b"-rm",
    b"-exec",
    b"-execdir",
    b"-ok",
    b"-okdir",
    b"-print",
    b"-print0",
    b"-printf",
    b"-printx",
    b"-ls",
    b"-fls",
    b"-fprint",
    b"-fprint0",
    b"-fprintf",
];

/// Names on which the history of a repository hangs.
const HISTORY: [&[u8]; 11] = [
    b".git",
    b"HEAD",
    b"refs",
    b"heads",
    b"objects",
    b"packed-refs",
    b"index",
    b"config",
    b"hooks",
    b"x.pack",
    b"x.idx",
];

/// So many characters of a name must be given by a pattern that is open on both sides.
const TELLING: usize = 3;

/// What is found.
pub(crate) struct Finds {
    /// The places where it is looked for.
    pub roots: Vec<Root>,
    /// What stands for a name that was found. All but the first stand for parts of it.
    pub marks: &'static [&'static [u8]],
    /// A name stands behind the words of a command that do not say where.
    pub appends: bool,
}

/// A place where something is looked for.
pub(crate) struct Root {
    /// The place.
    pub word: Word,
    /// Whether everything there may be found.
    pub all: bool,
}

impl Finds {
    /// What a call finds; places that are named otherwise, or only meant, become operands.
    pub(crate) fn of(args: &Args, operands: &mut Vec<Word>) -> Option<Finds> {
        match args.tool.as_deref()? {
            "find" => Some(find(args, operands)),
            "fd" => Some(fd(args, operands)),
            _ => None,
        }
    }

    /// Whether it is about some names only, wherever it looks.
    pub(crate) fn some(&self) -> bool {
        self.roots.iter().all(|root| !root.all)
    }
}

fn here() -> Word {
    Word::literal(b".".as_slice())
}

fn values<'a>(args: &'a Args, name: &'a [u8]) -> impl Iterator<Item = &'a Word> {
    let options = args
        .options
        .iter()
        .filter(move |option| option.name == name);
    options.filter_map(|option| option.value.as_ref())
}

fn find(args: &Args, operands: &mut Vec<Word>) -> Finds {
    operands.extend(values(args, b"-f").cloned());
    if values(args, b"-files0-from").next().is_some() {
        operands.push(Word {
            pieces: vec![Piece::Unknown(b"{}".to_vec())],
            splits: false,
            quoted: false,
        });
    } else if operands.is_empty() {
        operands.push(here());
    }
    let comma = operands.iter().any(|word| word.value() == Some(b","));
    let narrowed = !comma && Expression::is_narrow(&args.options);
    let names: Vec<String> = [b"-name".as_slice(), b"-iname"]
        .into_iter()
        .flat_map(|name| values(args, name))
        .filter_map(open_name)
        .collect();
    let roots = operands.iter().map(|word| Root {
        word: word.clone(),
        all: !narrowed || may_be_found(word, &names),
    });
    Finds {
        roots: roots.collect(),
        marks: &[b"{}"],
        appends: false,
    }
}

/// Whether a starting point itself, or what lies there by its nature, fits one of these names.
fn may_be_found(root: &Word, names: &[String]) -> bool {
    let Some(path) = root.value() else {
        return true;
    };
    let mut parts = path
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty());
    let git = parts.clone().any(|part| part == b".git");
    let own = parts.next_back().unwrap_or_default();
    git || own == b".." || names.iter().any(|name| fits(name, own))
}

fn fd(args: &Args, operands: &[Word]) -> Finds {
    let (pattern, places) = match operands {
        [] => (None, [].as_slice()),
        [pattern, places @ ..] => (Some(pattern), places),
    };
    let mut places: Vec<Word> = places.to_vec();
    places.extend(values(args, b"--search-path").cloned());
    if places.is_empty() {
        places.push(here());
    }
    let extension = values(args, b"-e").any(|value| {
        let letters = |text: &[u8]| text.iter().any(u8::is_ascii_alphanumeric);
        value.value().is_some_and(letters)
    });
    let telling = pattern.is_some_and(|pattern| match (args.has("-g"), pattern.value()) {
        (true, _) => open_name(pattern).is_some(),
        (false, Some(text)) => plain_regex(text, args.has("-F")),
        (false, None) => false,
    });
    let narrowed = extension || telling && !args.has("-p");
    let roots = places.into_iter().map(|word| {
        let all = !narrowed || may_be_found(&word, &[]);
        Root { word, all }
    });
    Finds {
        roots: roots.collect(),
        marks: &[b"{}", b"{//}", b"{/.}", b"{/}", b"{.}"],
        appends: true,
    }
}

/// Whether a regular expression is just a text that few names have.
fn plain_regex(text: &[u8], fixed: bool) -> bool {
    let mut given = Vec::new();
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if !fixed => match bytes.next() {
                Some(b'.') => given.push(b'.'),
                _ => return false,
            },
            b'^' | b'$' if !fixed => {}
            byte if byte.is_ascii_alphanumeric() || b"-_".contains(byte) => given.push(*byte),
            _ => return false,
        }
    }
    let letters = given.iter().filter(|byte| byte.is_ascii_alphanumeric());
    letters.count() >= TELLING && !HISTORY.iter().any(|name| contains(name, &given))
}

fn contains(name: &[u8], part: &[u8]) -> bool {
    name.windows(part.len()).any(|window| window == part)
}

/// A pattern for names, in which `*` is all that is open; `None` where it tells too little about them,
/// or may mean what history hangs on.
fn open_name(pattern: &Word) -> Option<String> {
    let pattern = pattern.value()?;
    let mut open = String::new();
    let mut letters = 0;
    let mut bytes = pattern.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            // What is between brackets may be nearly anything.
            b'[' => return None,
            b'\\' => {
                bytes.next();
                open.push('*');
            }
            b'*' | b'?' => open.push('*'),
            byte => {
                letters += usize::from(byte.is_ascii_alphanumeric() || b"~#_".contains(byte));
                open.push(char::from(*byte));
            }
        }
    }
    let least = if open.starts_with('*') && open.ends_with('*') {
        TELLING
    } else {
        1
    };
    (letters >= least && !HISTORY.iter().any(|name| fits(&open, name))).then_some(open)
}

/// The expression of a `find`, read from left to right.
struct Expression {
    /// The parentheses that are open, the outermost first.
    open: Vec<Group>,
    /// The next part is meant the other way round.
    not: bool,
}

#[derive(Default)]
struct Group {
    /// What was asked since the last `-o` holds for some names only.
    narrow: bool,
    /// The same of every alternative before it.
    before: Option<bool>,
    /// It stands behind a `!`.
    not: bool,
}

impl Group {
    fn alternative(&mut self) {
        self.before = Some(self.before.unwrap_or(true) && self.narrow);
        self.narrow = false;
    }
}

impl Expression {
    /// Whether everything that is done is done to some names only. What is asked after it was done
    /// does not matter.
    fn is_narrow(options: &[OptionUse]) -> bool {
        let mut this = Self {
            open: vec![Group::default()],
            not: false,
        };
        let done: Vec<bool> = options.iter().filter_map(|o| this.take(o)).collect();
        if done.is_empty() {
            let mut whole = this.open.swap_remove(0);
            whole.alternative();
            return whole.before == Some(true);
        }
        done.iter().all(|narrow| *narrow)
    }

    /// Goes on; for what does something, says whether that is about some names only.
    fn take(&mut self, option: &OptionUse) -> Option<bool> {
        let not = std::mem::take(&mut self.not);
        let mut narrow = false;
        match option.name.as_slice() {
            b"!" => self.not = !not,
            b"(" => self.open.push(Group {
                not,
                ..Group::default()
            }),
            b")" if self.open.len() > 1 => {
                let mut group = self.open.pop().unwrap_or_default();
                group.alternative();
                narrow = group.before == Some(true) && !group.not;
            }
            b"-o" => {
                if let Some(group) = self.open.last_mut() {
                    group.alternative();
                }
            }
            b"-name" | b"-iname" => {
                narrow = !not && option.value.as_ref().and_then(open_name).is_some();
            }
            b"-empty" => narrow = !not,
            name if ACTS.contains(&name) => {
                return Some(self.open.iter().any(|group| group.narrow));
            }
            _ => {}
        }
        if let Some(group) = self.open.last_mut() {
            group.narrow |= narrow;
        }
        None
    }
}
