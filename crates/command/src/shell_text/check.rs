//! A second, independent reading of the same text by tree-sitter-bash.
//!
//! A clean parse is not yet understanding. A line counts as understood only when both readers see
//! simple commands at exactly the same places; what either one misreads shows up as a difference.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tree_sitter::{Language, ParseOptions, ParseState, Parser, Tree, TreeCursor};

use super::lexer::{Mask, Trail};

/// How the two readings differ.
pub(crate) struct Disagreement {
    pub why: &'static str,
    /// Commands that only the second reader sees.
    pub missed: Vec<Range<usize>>,
}

/// Named node kinds whose meaning for the position of commands is understood.
const KNOWN: [&str; 56] = [
    "program",
    "list",
    "pipeline",
    "command",
    "command_name",
    "word",
    "string",
    "raw_string",
    "ansi_c_string",
    "translated_string",
    "string_content",
    "concatenation",
    "number",
    "simple_expansion",
    "expansion",
    "special_variable_name",
    "variable_name",
    "variable_assignment",
    "variable_assignments",
    "array",
    "subscript",
    "command_substitution",
    "process_substitution",
    "redirected_statement",
    "file_redirect",
    "herestring_redirect",
    "file_descriptor",
    "subshell",
    "compound_statement",
    "if_statement",
    "elif_clause",
    "else_clause",
    "for_statement",
    "c_style_for_statement",
    "while_statement",
    "do_group",
    "case_statement",
    "case_item",
    "extglob_pattern",
    "function_definition",
    "negated_command",
    "test_command",
    "test_operator",
    "unary_expression",
    "binary_expression",
    "parenthesized_expression",
    "postfix_expression",
    "ternary_expression",
    "regex",
    "arithmetic_expansion",
    "brace_expression",
    "declaration_command",
    "unset_command",
    "comment",
    "last_case_item",
    "heredoc_redirect",
];

thread_local! {
    static PARSER: RefCell<Option<Parser>> = const { RefCell::new(None) };
}

fn language() -> Language {
    tree_sitter_bash::LANGUAGE.into()
}

/// What a node kind means to the comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Unknown,
    Plain,
    /// Its `name` child is where a simple command's name stands.
    Command,
    /// The node itself starts with the name: `export`, `unset`.
    Named,
    /// `[` or `[[`.
    Test,
}

fn roles() -> &'static [Role] {
    static ROLES: OnceLock<Vec<Role>> = OnceLock::new();
    ROLES.get_or_init(|| {
        let language = language();
        (0..language.node_kind_count())
            .map(|id| {
                let id = id as u16;
                let name = language.node_kind_for_id(id).unwrap_or_default();
                match name {
                    _ if !language.node_kind_is_named(id) => Role::Plain,
                    "command" => Role::Command,
                    "declaration_command" | "unset_command" => Role::Named,
                    "test_command" => Role::Test,
                    _ if KNOWN.contains(&name) => Role::Plain,
                    _ => Role::Unknown,
                }
            })
            .collect()
    })
}

/// Compares our reading with the second one.
pub(crate) fn second_reading(
    text: &[u8],
    trail: &Trail,
    deadline: Duration,
) -> Result<(), Disagreement> {
    let (shown, map) = masked(text, trail);
    let Some(tree) = parse(&shown, deadline) else {
        return Err(Disagreement {
            why: "the line takes too long to read",
            missed: Vec::new(),
        });
    };
    let mut seen = Vec::new();
    let mut why = None;
    collect(&tree, &shown, &mut seen, &mut why);
    let mut seen: Vec<(usize, Range<usize>)> = seen
        .into_iter()
        .map(|(at, span)| {
            (
                map.original(at),
                map.original(span.start)..map.original(span.end),
            )
        })
        .collect();
    seen.sort_unstable_by_key(|(at, _)| *at);
    seen.dedup_by_key(|(at, _)| *at);
    let mut ours = trail.names.clone();
    ours.sort_unstable();
    let missed: Vec<Range<usize>> = seen
        .iter()
        .filter(|(at, _)| ours.binary_search_by_key(at, |(ours, _)| *ours).is_err())
        .map(|(_, span)| span.clone())
        .collect();
    let unseen = ours
        .iter()
        .any(|(at, optional)| !optional && seen.binary_search_by_key(at, |(at, _)| *at).is_err());
    if why.is_none() && (unseen || !missed.is_empty()) {
        why = Some("two readings of the line find different commands");
    }
    match why {
        None => Ok(()),
        Some(why) => Err(Disagreement { why, missed }),
    }
}

fn parse(text: &[u8], deadline: Duration) -> Option<Tree> {
    PARSER.with_borrow_mut(|slot| {
        if slot.is_none() {
            let mut parser = Parser::new();
            parser.set_language(&language()).ok()?;
            *slot = Some(parser);
        }
        let parser = slot.as_mut()?;
        let mut started: Option<Instant> = None;
        let mut late =
            |_: &ParseState| started.get_or_insert_with(Instant::now).elapsed() > deadline;
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

fn collect(
    tree: &Tree,
    text: &[u8],
    seen: &mut Vec<(usize, Range<usize>)>,
    why: &mut Option<&'static str>,
) {
    let roles = roles();
    let mut cursor = tree.walk();
    let troubled = tree.root_node().has_error();
    if troubled {
        *why = Some("the second reader finds a syntax error");
    }
    loop {
        let node = cursor.node();
        let role = roles
            .get(usize::from(node.kind_id()))
            .copied()
            .unwrap_or(Role::Unknown);
        match role {
            Role::Plain => {}
            Role::Unknown if node.is_error() => {}
            Role::Unknown => {
                *why = Some("it uses syntax that is not on the list of what is understood")
            }
            Role::Command => {
                if let Some(name) = node.child_by_field_name("name") {
                    seen.push((name.start_byte(), node.byte_range()));
                }
            }
            Role::Named => seen.push((node.start_byte(), node.byte_range())),
            Role::Test => {
                if text.get(node.start_byte()) == Some(&b'[')
                    && text.get(node.start_byte() + 1) != Some(&b'[')
                {
                    seen.push((node.start_byte(), node.byte_range()));
                }
            }
        }
        if !advance(&mut cursor) {
            return;
        }
    }
}

fn advance(cursor: &mut TreeCursor) -> bool {
    if cursor.goto_first_child() {
        return true;
    }
    loop {
        if cursor.goto_next_sibling() {
            return true;
        }
        if !cursor.goto_parent() {
            return false;
        }
    }
}

/// From positions in the text shown to the second reader back to the original.
struct Map<'a> {
    splices: &'a [usize],
}

impl Map<'_> {
    fn original(&self, at: usize) -> usize {
        // The n-th continuation lies, in shown text, n times two bytes before its own place.
        let (mut low, mut high) = (0, self.splices.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.splices[middle] - 2 * middle <= at {
                low = middle + 1
            } else {
                high = middle
            }
        }
        at + 2 * low
    }
}

/// The text with continuations taken out and known misreadings covered.
fn masked<'a>(text: &'a [u8], trail: &'a Trail) -> (std::borrow::Cow<'a, [u8]>, Map<'a>) {
    let map = Map {
        splices: &trail.splices,
    };
    if trail.masks.is_empty() && trail.splices.is_empty() {
        return (std::borrow::Cow::Borrowed(text), map);
    }
    let mut shown = text.to_vec();
    for (range, mask) in &trail.masks {
        let Some(covered) = shown.get_mut(range.clone()) else {
            continue;
        };
        for (index, byte) in covered.iter_mut().enumerate() {
            *byte = match mask {
                Mask::Blank if *byte == b'\n' => b'\n',
                Mask::Blank => b' ',
                Mask::Read if index == 0 => b'<',
                Mask::Read => b' ',
                Mask::Letters | Mask::Equals => b'x',
            };
        }
    }
    let mut kept = Vec::with_capacity(shown.len());
    let mut from = 0;
    for &splice in &trail.splices {
        kept.extend_from_slice(shown.get(from..splice).unwrap_or_default());
        from = splice + 2;
    }
    kept.extend_from_slice(shown.get(from..).unwrap_or_default());
    (std::borrow::Cow::Owned(kept), map)
}
