//! Code so simple that a reader cannot be wrong about it: expressions one after the other, without functions, branches or
//! loops of its own. Everything else may do harm that is found, and is never called harmless.

use tree_sitter::Node;

use crate::model::Language;

const PYTHON: [&str; 37] = [
    "argument_list",
    "attribute",
    "binary_operator",
    "boolean_operator",
    "call",
    "comment",
    "comparison_operator",
    "concatenated_string",
    "conditional_expression",
    "dictionary",
    "dotted_name",
    "escape_sequence",
    "expression_statement",
    "false",
    "float",
    "format_specifier",
    "identifier",
    "import_from_statement",
    "import_statement",
    "integer",
    "interpolation",
    "keyword_argument",
    "list",
    "module",
    "none",
    "not_operator",
    "pair",
    "parenthesized_expression",
    "slice",
    "string",
    "string_content",
    "string_end",
    "string_start",
    "subscript",
    "true",
    "tuple",
    "unary_operator",
];

const JAVASCRIPT: [&str; 29] = [
    "arguments",
    "array",
    "binary_expression",
    "call_expression",
    "comment",
    "escape_sequence",
    "expression_statement",
    "false",
    "identifier",
    "lexical_declaration",
    "member_expression",
    "null",
    "number",
    "object",
    "optional_chain",
    "pair",
    "parenthesized_expression",
    "program",
    "property_identifier",
    "string",
    "string_fragment",
    "subscript_expression",
    "template_string",
    "template_substitution",
    "ternary_expression",
    "true",
    "unary_expression",
    "undefined",
    "variable_declarator",
];

/// Whether a text has nothing else in it.
pub(super) fn is_simple(language: Language, root: Node<'_>, text: &[u8]) -> bool {
    let known: &[&str] = match language {
        Language::Python => &PYTHON,
        Language::JavaScript => &JAVASCRIPT,
        Language::Perl | Language::Ruby => return false,
    };
    let of = |node: Node<'_>| text.get(node.byte_range()).unwrap_or_default();
    let mut cursor = root.walk();
    loop {
        let node = cursor.node();
        let fits = match node.kind() {
            // Languages differ in all others.
            "escape_sequence" => matches!(of(node), b"\\n" | b"\\t"),
            "variable_declarator" => loads_a_module(node, of),
            // One name, which the reader follows; in a straight line it has one value at a time.
            "assignment" => {
                let left = node.child_by_field_name("left");
                left.is_some_and(|left| left.kind() == "identifier")
            }
            kind => !node.is_named() || known.binary_search(&kind).is_ok(),
        };
        if !fits || !text.is_ascii() {
            return false;
        }
        if cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return true;
            }
        }
    }
}

/// `fs = require('fs')`: one name, given once, for a module.
fn loads_a_module<'t>(node: Node<'_>, of: impl Fn(Node<'_>) -> &'t [u8]) -> bool {
    let named = node
        .child_by_field_name("name")
        .is_some_and(|name| name.kind() == "identifier");
    let called = node
        .child_by_field_name("value")
        .and_then(|value| value.child_by_field_name("function"));
    let constant = node
        .parent()
        .is_some_and(|declaration| of(declaration).starts_with(b"const "));
    named && constant && called.is_some_and(|function| of(function) == b"require")
}
