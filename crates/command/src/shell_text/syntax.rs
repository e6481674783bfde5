//! The shape of a parsed line: commands, words and their parts, still unexpanded.

use std::ops::Range;
use std::rc::Rc;

/// Commands with what connects each to the next.
#[derive(Debug, Default)]
pub(crate) struct List {
    pub items: Vec<Item>,
}

/// One pipeline of a list.
#[derive(Debug)]
pub(crate) struct Item {
    pub stages: Vec<Command>,
    /// `!` or `time` stands in front.
    pub prefixed: bool,
    pub next: Connector,
}

/// What stands after a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connector {
    End,
    Sequence,
    And,
    Or,
    Background,
}

impl Connector {
    /// Whether the outcome of one command decides about the next.
    pub fn chains(self) -> bool {
        matches!(self, Connector::And | Connector::Or)
    }
}

/// A stage of a pipeline.
#[derive(Debug)]
pub(crate) struct Command {
    pub kind: Kind,
    /// Redirections of a compound command; those of a simple one are in `Simple`.
    pub redirects: Vec<Redirection>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Simple(Simple),
    Subshell(List),
    Group(List),
    If {
        branches: Vec<(List, List)>,
        otherwise: Option<List>,
    },
    Loop {
        condition: List,
        body: List,
    },
    For {
        name: Vec<u8>,
        /// `None` without `in`: the positional parameters.
        words: Option<Vec<RawWord>>,
        /// The values come from a menu, so any of them may be taken.
        select: bool,
        body: List,
    },
    CountingFor {
        header: Vec<Part>,
        body: List,
    },
    Case {
        subject: RawWord,
        arms: Vec<(Vec<RawWord>, List)>,
    },
    Function {
        name: Vec<u8>,
        body: Rc<Command>,
    },
    /// `[[ … ]]`
    Test(Vec<RawWord>),
    /// `(( … ))`
    Arithmetic(Vec<Part>),
    Coproc {
        name: Vec<u8>,
        body: Box<Command>,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Simple {
    pub assignments: Vec<RawAssignment>,
    pub words: Vec<RawWord>,
    pub redirects: Vec<Redirection>,
    pub span: Range<usize>,
}

#[derive(Debug)]
pub(crate) struct RawAssignment {
    pub name: Vec<u8>,
    /// `a[i]=…`: one element of an array.
    pub subscript: Option<Vec<Part>>,
    pub append: bool,
    pub value: Vec<Part>,
}

#[derive(Debug)]
pub(crate) struct Redirection {
    /// Digits before the operator; empty when there are none.
    pub descriptor: Vec<u8>,
    pub kind: RedirectOp,
    pub target: RedirectTarget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedirectOp {
    Read,
    Write,
    Append,
    ReadWrite,
    DuplicateIn,
    DuplicateOut,
    Both,
    BothAppend,
    Text,
}

#[derive(Debug)]
pub(crate) enum RedirectTarget {
    Word(RawWord),
    /// Index into the bodies that the parser collected.
    HereDocument(usize),
}

#[derive(Debug, Clone)]
pub(crate) struct RawWord {
    pub parts: Vec<Part>,
    pub span: Range<usize>,
}

impl RawWord {
    /// The text of a word that has nothing quoted or expanded in it.
    pub fn plain(&self) -> Option<&[u8]> {
        match self.parts.as_slice() {
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }
}

/// A part of a word as written.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// Unquoted bytes, in which globs, braces and a leading tilde count.
    Text(Vec<u8>),
    /// Bytes that were quoted, and so stand for themselves.
    Quoted(Vec<u8>),
    /// The inside of double quotes.
    Double(Vec<Part>),
    Parameter(Rc<Parameter>),
    Substitution {
        body: Rc<Script>,
        span: Range<usize>,
    },
    Process {
        body: Rc<Script>,
        span: Range<usize>,
    },
    /// `$((…))`; the parts matter only for the commands inside.
    Arithmetic {
        parts: Vec<Part>,
        span: Range<usize>,
    },
    /// `!(a|b)` and its kin.
    ExtendedGlob(Range<usize>),
    /// `(a b c)` after `name=`.
    Array(Vec<RawWord>),
}

/// The commands of a substitution.
#[derive(Debug)]
pub(crate) struct Script {
    pub list: List,
    /// A backtick body after its backslashes were taken away: then spans are meant in this text.
    pub own: Option<Rc<Unit>>,
}

/// A text that was parsed as a whole; spans and here-document numbers are meant in it.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    pub text: Vec<u8>,
    pub bodies: Vec<Body>,
}

/// A here-document.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub parts: Vec<Part>,
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub name: Vec<u8>,
    pub form: Form,
    pub subscript: Option<Subscript>,
    /// Written with braces; without, letters that brace expansion puts behind belong to the name.
    pub braced: bool,
    /// The operator (`:-`, `%%`, `/`, …); empty when there is none.
    pub operator: Vec<u8>,
    pub operand: Vec<Part>,
    pub span: Range<usize>,
}

impl Parameter {
    /// `$name`
    pub fn plain(name: Vec<u8>, span: Range<usize>) -> Self {
        Self {
            name,
            form: Form::Value,
            subscript: None,
            braced: false,
            operator: Vec::new(),
            operand: Vec::new(),
            span,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Value,
    Length,
    Indirect,
}

#[derive(Debug)]
pub(crate) enum Subscript {
    /// `[@]` or `[*]`
    All,
    Element(Vec<Part>),
}
