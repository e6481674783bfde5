//! JavaScript, by its grammar.

use tree_sitter::Node;

use super::{Argument, Code, MAX_CALLS, Reader, Value, unescaped};
use crate::flow::push_piece;
use crate::word::{Piece, Word};

/// Statements and expressions that do nothing but what their parts do.
const PLAIN: [&str; 35] = [
    "arguments",
    "array_pattern",
    "await_expression",
    "break_statement",
    "catch_clause",
    "comment",
    "computed_number",
    "continue_statement",
    "else_clause",
    "empty_statement",
    "export_statement",
    "expression_statement",
    "false",
    "finally_clause",
    "for_statement",
    "if_statement",
    "lexical_declaration",
    "null",
    "number",
    "program",
    "regex_flags",
    "regex_pattern",
    "sequence_expression",
    "spread_element",
    "statement_block",
    "switch_body",
    "switch_case",
    "switch_default",
    "switch_statement",
    "throw_statement",
    "true",
    "try_statement",
    "undefined",
    "variable_declaration",
    "while_statement",
];

fn children<'t>(node: Node<'t>) -> Vec<Node<'t>> {
    let mut cursor = node.walk();
    node.named_children(&mut cursor)
        .filter(|child| child.kind() != "comment")
        .collect()
}

fn is_function(kind: &str) -> bool {
    matches!(
        kind,
        "function_declaration"
            | "function_expression"
            | "arrow_function"
            | "generator_function"
            | "generator_function_declaration"
    )
}

impl Reader<'_> {
    pub(super) fn javascript_program<'t>(&mut self, root: Node<'t>, code: &Code<'t>) {
        self.javascript_names(root, code, 0);
        self.javascript(root, code);
    }

    /// Finds the functions, and what is given a value more than once.
    fn javascript_names<'t>(&mut self, node: Node<'t>, code: &Code<'t>, depth: usize) {
        self.steps += 1;
        if depth > super::MAX_DEPTH || self.steps > super::MAX_STEPS {
            self.plain = false;
            return;
        }
        let field = |name: &str| node.child_by_field_name(name);
        let target = match node.kind() {
            "variable_declarator" | "function_declaration" | "generator_function_declaration" => {
                field("name")
            }
            "assignment_expression" | "augmented_assignment_expression" | "for_in_statement" => {
                field("left")
            }
            "update_expression" => field("argument"),
            "formal_parameters" => Some(node),
            "arrow_function" => field("parameter"),
            _ => None,
        };
        let mut left: Vec<Node> = target.into_iter().collect();
        while let Some(node) = left.pop() {
            match node.kind() {
                "identifier" | "shorthand_property_identifier_pattern" => {
                    let name = code.of(node).to_owned();
                    if !self.seen.insert(name.clone()) {
                        self.often.insert(name);
                    }
                }
                "member_expression" | "subscript_expression" => {}
                _ => left.extend(children(node)),
            }
        }
        let function = match node.kind() {
            "variable_declarator" => field("value").filter(|value| is_function(value.kind())),
            kind if is_function(kind) => Some(node),
            _ => None,
        };
        if let (Some(name), Some(function)) = (field("name"), function) {
            let name = code.of(name).to_owned();
            let before = code.functions.borrow_mut().insert(name.clone(), function);
            if before.is_some_and(|before| before != function) {
                self.often.insert(name);
            }
        }
        for child in children(node) {
            self.javascript_names(child, code, depth + 1);
        }
    }

    fn javascript_all<'t>(&mut self, node: Node<'t>, code: &Code<'t>) -> Value {
        let mut value = Value::Data;
        for child in children(node) {
            let child = self.javascript(child, code);
            value = value.or(self.settle(child));
        }
        match value.is_data() {
            true => Value::Data,
            false => Value::Opaque,
        }
    }

    fn javascript_value<'t>(&mut self, node: Option<Node<'t>>, code: &Code<'t>) -> Value {
        let Some(node) = node else {
            return Value::Data;
        };
        let value = self.javascript(node, code);
        self.settle(value)
    }

    /// Follows a statement or an expression.
    fn javascript<'t>(&mut self, node: Node<'t>, code: &Code<'t>) -> Value {
        if !self.enter() {
            return Value::Opaque;
        }
        let value = self.javascript_node(node, code);
        self.depth -= 1;
        value
    }

    fn javascript_node<'t>(&mut self, node: Node<'t>, code: &Code<'t>) -> Value {
        let field = |name: &str| node.child_by_field_name(name);
        match node.kind() {
            "identifier" | "shorthand_property_identifier" => {
                let name = code.of(node);
                match code.functions.borrow().contains_key(name) {
                    true if self.often.contains(name) => self.opaque(),
                    true => Value::Local(name.to_owned()),
                    false => self.lookup(name),
                }
            }
            "string" => {
                let text = code.of(node);
                let inner = text
                    .get(1..text.len().saturating_sub(1))
                    .unwrap_or_default();
                unescaped(inner).map_or(Value::Data, Value::text)
            }
            "template_string" => {
                let mut word = Word {
                    quoted: true,
                    ..Word::default()
                };
                let mut known = true;
                for part in children(node) {
                    match part.kind() {
                        "string_fragment" => word.push_known(code.of(part).as_bytes()),
                        "escape_sequence" => match unescaped(code.of(part)) {
                            Some(bytes) => word.push_known(&bytes),
                            None => known = false,
                        },
                        _ => match self.javascript_value(part.named_child(0), code) {
                            Value::Text {
                                word: inner,
                                sure: true,
                            } => {
                                for piece in inner.pieces {
                                    push_piece(&mut word.pieces, piece);
                                }
                            }
                            _ => {
                                let source = code.of(part).as_bytes().to_vec();
                                word.pieces.push(Piece::Unknown(source));
                            }
                        },
                    }
                }
                match known {
                    true => Value::Text { word, sure: true },
                    false => Value::Data,
                }
            }
            "regex" => {
                // What stands before tells a division from a pattern; only where it can be nothing else is it believed.
                let before = code.text[..node.start_byte()].trim_ascii_end().last();
                self.plain &= before.is_none_or(|byte| b"(,=:[!&|?{;+".contains(byte));
                Value::Data
            }
            "parenthesized_expression" => match children(node).first() {
                Some(inner) if node.named_child_count() == 1 => self.javascript(*inner, code),
                _ => self.javascript_all(node, code),
            },
            "array" => {
                let mut values = Vec::new();
                for child in children(node) {
                    let spread = child.kind() == "spread_element";
                    let value = self.javascript(child, code);
                    values.push(match spread {
                        true => Value::Opaque,
                        false => self.settle(value),
                    });
                }
                Value::List(values)
            }
            "object" => {
                let mut all = Value::Data;
                for child in children(node) {
                    let value = match child.kind() {
                        "pair" => {
                            self.key(child.child_by_field_name("key"), code);
                            self.javascript_value(child.child_by_field_name("value"), code)
                        }
                        "shorthand_property_identifier" | "spread_element" => {
                            self.javascript_value(Some(child), code)
                        }
                        _ => self.opaque(),
                    };
                    all = all.or(value);
                }
                match all.is_data() {
                    true => Value::Data,
                    false => Value::Opaque,
                }
            }
            "binary_expression" => {
                let left = field("left").map_or(Value::Data, |node| self.javascript(node, code));
                let right = field("right").map_or(Value::Data, |node| self.javascript(node, code));
                let operator = field("operator").map(|node| node.kind());
                match operator {
                    Some("+") => match self.joined(left, right) {
                        Value::List(_) => Value::Data,
                        value => value,
                    },
                    _ => {
                        let (left, right) = (self.settle(left), self.settle(right));
                        left.or(right).unsure()
                    }
                }
            }
            "ternary_expression" => {
                self.javascript_value(field("condition"), code);
                let one = self.javascript_value(field("consequence"), code);
                one.or(self.javascript_value(field("alternative"), code))
                    .unsure()
            }
            "unary_expression" | "update_expression" => {
                self.javascript_value(field("argument"), code);
                Value::Data
            }
            "member_expression" => {
                let object =
                    field("object").map_or(Value::Opaque, |node| self.javascript(node, code));
                let name = field("property").map(|node| code.of(node));
                self.member(object, name.unwrap_or_default())
            }
            "subscript_expression" => {
                let object =
                    field("object").map_or(Value::Opaque, |node| self.javascript(node, code));
                let key = self.key(field("index"), code);
                match object {
                    Value::Name(name) => {
                        let whole = format!("{name}[]");
                        match super::has(self.api.harmless, &whole) {
                            true => Value::Data,
                            false => key.map_or(Value::Opaque, |key| {
                                let name = Value::Name(name);
                                self.member(name, &key)
                            }),
                        }
                    }
                    value if value.is_data() => Value::Data,
                    _ => Value::Opaque,
                }
            }
            "call_expression" => self.javascript_call(node, code),
            "new_expression" => {
                let arguments = self.javascript_arguments(field("arguments"), code);
                match field("constructor").map(|node| self.javascript(node, code)) {
                    Some(Value::Name(name)) => self.call(&name, arguments),
                    _ => {
                        self.settle_all(arguments);
                        self.opaque()
                    }
                }
            }
            "import_statement" => {
                let source =
                    field("source").map_or(Value::Opaque, |node| self.javascript(node, code));
                let module = match source.word().and_then(|(word, _)| word.value()) {
                    Some(name) => {
                        let name = String::from_utf8_lossy(name).into_owned();
                        self.module(&name)
                    }
                    None => self.opaque(),
                };
                let mut left = children(node);
                while let Some(part) = left.pop() {
                    match part.kind() {
                        "import_specifier" => {
                            let name = part.child_by_field_name("name").map(|node| code.of(node));
                            let alias = part.child_by_field_name("alias").map(|node| code.of(node));
                            let name = name.unwrap_or_default();
                            let value = self.member(module.clone(), name);
                            self.bind(alias.unwrap_or(name), value);
                        }
                        "identifier" => self.bind(code.of(part), module.clone()),
                        "import_clause" | "named_imports" | "namespace_import" => {
                            left.extend(children(part));
                        }
                        "string" => {}
                        _ => self.plain = false,
                    }
                }
                Value::Data
            }
            "variable_declarator" | "assignment_expression" => {
                let target = field("name").or_else(|| field("left"));
                let value = field("value").or_else(|| field("right"));
                let value = value.map_or(Value::Data, |node| self.javascript(node, code));
                if let Some(target) = target {
                    self.javascript_assign(target, value.clone(), code);
                }
                let statement = |outer: Node| outer.kind() == "expression_statement";
                let dropped =
                    node.kind() == "variable_declarator" || node.parent().is_some_and(statement);
                if dropped { Value::Data } else { value }
            }
            "augmented_assignment_expression" => {
                let value = self.javascript_value(field("right"), code);
                let Some(target) = field("left") else {
                    return Value::Data;
                };
                if target.kind() == "identifier" {
                    let before = self.lookup(code.of(target));
                    let whole = self.joined(before, value);
                    self.names
                        .insert(code.of(target).to_owned(), whole.unsure());
                } else {
                    self.javascript_assign(target, value, code);
                }
                Value::Data
            }
            "for_in_statement" => {
                let over = field("right").map_or(Value::Data, |node| self.javascript(node, code));
                let of = field("operator").is_some_and(|operator| operator.kind() == "of");
                let elements = match of {
                    true => self.elements(over),
                    false => {
                        self.settle(over);
                        vec![Value::Data]
                    }
                };
                for element in elements {
                    if let Some(target) = field("left") {
                        self.javascript_assign(target, element, code);
                    }
                    if let Some(body) = field("body") {
                        self.javascript(body, code);
                    }
                }
                Value::Data
            }
            "return_statement" | "yield_expression" => {
                let value = self.javascript_all(node, code);
                if let Some(returned) = self.returned.pop() {
                    self.returned.push(returned.or(value));
                }
                Value::Data
            }
            "catch_clause" => {
                if let Some(parameter) = field("parameter") {
                    self.javascript_assign(parameter, Value::Data, code);
                }
                if let Some(body) = field("body") {
                    self.javascript(body, code);
                }
                Value::Data
            }
            kind if is_function(kind) => {
                let name = code.functions.borrow();
                let name = name.iter().find(|(_, function)| **function == node);
                if let Some((name, _)) = name {
                    return match kind.ends_with("declaration") {
                        true => Value::Data,
                        false => Value::Local(name.clone()),
                    };
                }
                for name in self.javascript_parameters(node, code) {
                    self.names.insert(name, Value::Data);
                }
                self.returned.push(Value::Data);
                let value = field("body").map_or(Value::Data, |body| self.javascript(body, code));
                self.settle(value);
                self.returned.pop();
                Value::Local(String::new())
            }
            kind if PLAIN.contains(&kind) => self.javascript_all(node, code),
            _ => {
                self.javascript_all(node, code);
                self.opaque()
            }
        }
    }

    /// The key of a property, if it is one that is known.
    fn key<'t>(&mut self, node: Option<Node<'t>>, code: &Code<'t>) -> Option<String> {
        let node = node?;
        let text = match node.kind() {
            "property_identifier" => code.of(node).to_owned(),
            "number" => return None,
            _ => match self.javascript_value(Some(node), code) {
                Value::Text { word, sure: true } if word.is_literal() => {
                    String::from_utf8_lossy(&word.text()).into_owned()
                }
                // Any property of anything could be meant.
                _ => {
                    self.plain = false;
                    return None;
                }
            },
        };
        self.plain &= !super::is_hidden(self.language, &text);
        Some(text)
    }

    fn javascript_arguments<'t>(
        &mut self,
        list: Option<Node<'t>>,
        code: &Code<'t>,
    ) -> Vec<Argument> {
        let mut arguments = Vec::new();
        for child in list.map(children).unwrap_or_default() {
            if child.kind() == "spread_element" {
                let value = self.javascript(child, code);
                arguments.push(Argument {
                    keyword: Some("*".to_owned()),
                    value,
                });
                continue;
            }
            // An object is how options are given.
            if child.kind() == "object" {
                let value = self.javascript(child, code);
                for pair in children(child) {
                    let key = pair.child_by_field_name("key").map(|key| code.of(key));
                    let set = pair.child_by_field_name("value");
                    let off = set.is_some_and(|set| set.kind() == "false");
                    // What is taken from elsewhere has a name that nobody knows.
                    if !off {
                        arguments.push(Argument {
                            keyword: Some(key.unwrap_or("*").to_owned()),
                            value: value.clone(),
                        });
                    }
                }
                continue;
            }
            let value = self.javascript(child, code);
            arguments.push(Argument {
                keyword: None,
                value,
            });
        }
        arguments
    }

    fn javascript_call<'t>(&mut self, node: Node<'t>, code: &Code<'t>) -> Value {
        let list = node.child_by_field_name("arguments");
        self.plain &= list.is_some_and(|list| list.kind() == "arguments");
        let Some(callee) = node.child_by_field_name("function") else {
            return self.opaque();
        };
        let arguments = self.javascript_arguments(list, code);
        match callee.kind() {
            "import" => return self.call("import", arguments),
            "member_expression" => {
                let object = callee.child_by_field_name("object");
                let object = object.map_or(Value::Opaque, |node| self.javascript(node, code));
                let name = callee.child_by_field_name("property");
                let name = name.map(|node| code.of(node)).unwrap_or_default();
                return self.method(object, name, arguments);
            }
            _ => {}
        }
        match self.javascript(callee, code) {
            Value::Name(name) => self.call(&name, arguments),
            Value::Local(name) if name.is_empty() && arguments.is_empty() => Value::Opaque,
            Value::Local(name) => self.javascript_local(&name, arguments, code),
            _ => {
                self.settle_all(arguments);
                self.opaque()
            }
        }
    }

    /// A call of a function of the code itself, followed with what it is given.
    pub(super) fn javascript_local<'t>(
        &mut self,
        name: &str,
        arguments: Vec<Argument>,
        code: &Code<'t>,
    ) -> Value {
        let function = code.functions.borrow().get(name).copied();
        let (Some(function), true) = (function, self.calls < MAX_CALLS) else {
            self.settle_all(arguments);
            return self.opaque();
        };
        self.followed.insert(name.to_owned());
        let parameters = self.javascript_parameters(function, code);
        for name in &parameters {
            self.names.insert(name.clone(), Value::Data);
        }
        for (index, argument) in arguments.into_iter().enumerate() {
            let value = self.settle(argument.value);
            match parameters.get(index).filter(|_| argument.keyword.is_none()) {
                Some(name) => drop(self.names.insert(name.clone(), value)),
                None => self.plain &= value.is_data(),
            }
        }
        self.calls += 1;
        self.returned.push(Value::Data);
        let body = function.child_by_field_name("body");
        let value = body.map_or(Value::Data, |body| self.javascript(body, code));
        let value = self.settle(value);
        self.calls -= 1;
        let returned = self.returned.pop().unwrap_or(Value::Opaque);
        for name in parameters {
            self.names.insert(name, Value::Data);
        }
        returned.or(value).unsure()
    }

    fn javascript_parameters<'t>(&mut self, node: Node<'t>, code: &Code<'t>) -> Vec<String> {
        let list = node.child_by_field_name("parameters");
        let mut names = Vec::new();
        let alone = node.child_by_field_name("parameter");
        let mut left: Vec<Node> = list.map(children).unwrap_or_default();
        left.extend(alone);
        left.reverse();
        while let Some(node) = left.pop() {
            match node.kind() {
                "identifier" | "shorthand_property_identifier_pattern" => {
                    names.push(code.of(node).to_owned());
                }
                "array_pattern" | "object_pattern" | "rest_pattern" => left.extend(children(node)),
                "pair_pattern" => {
                    self.key(node.child_by_field_name("key"), code);
                    left.extend(node.child_by_field_name("value"));
                }
                _ => self.plain = false,
            }
        }
        names
    }

    fn javascript_assign<'t>(&mut self, target: Node<'t>, value: Value, code: &Code<'t>) {
        match target.kind() {
            "identifier" => match value {
                Value::Local(_) => {}
                value => self.bind(code.of(target), value),
            },
            "object_pattern" => {
                for part in children(target) {
                    let (key, name) = match part.kind() {
                        "shorthand_property_identifier_pattern" => (code.of(part), Some(part)),
                        "pair_pattern" => (
                            part.child_by_field_name("key")
                                .map(|key| code.of(key))
                                .unwrap_or_default(),
                            part.child_by_field_name("value"),
                        ),
                        _ => {
                            self.plain = false;
                            continue;
                        }
                    };
                    let inner = self.member(value.clone(), key);
                    match name {
                        Some(name) if name.kind() == "shorthand_property_identifier_pattern" => {
                            self.bind(code.of(name), inner);
                        }
                        Some(name) => self.javascript_assign(name, inner, code),
                        None => {}
                    }
                }
            }
            "array_pattern" => {
                let value = self.settle(value);
                let part = match value.is_data() {
                    true => Value::Data,
                    false => Value::Opaque,
                };
                for inner in children(target) {
                    self.javascript_assign(inner, part.clone(), code);
                }
            }
            "member_expression" | "subscript_expression" => {
                let value = self.settle(value);
                let object = target.child_by_field_name("object");
                let object = object.map_or(Value::Opaque, |node| self.javascript(node, code));
                let name = target
                    .child_by_field_name("property")
                    .map(|node| code.of(node));
                self.plain &= object.is_data()
                    && value.is_data()
                    && !name.is_some_and(|name| super::is_hidden(self.language, name));
                self.key(target.child_by_field_name("index"), code);
            }
            _ => self.plain = false,
        }
    }
}
