//! Python, by its grammar.

use tree_sitter::Node;

use super::{Argument, Code, MAX_CALLS, Reader, Value, unescaped};
use crate::word::{Piece, Word};

/// Statements and expressions that do nothing but what their parts do.
const PLAIN: [&str; 47] = [
    "argument_list",
    "as_pattern_target",
    "assert_statement",
    "block",
    "boolean_operator",
    "break_statement",
    "comment",
    "comparison_operator",
    "continue_statement",
    "delete_statement",
    "dictionary",
    "dictionary_splat",
    "elif_clause",
    "ellipsis",
    "else_clause",
    "except_clause",
    "expression_list",
    "expression_statement",
    "false",
    "finally_clause",
    "float",
    "format_specifier",
    "global_statement",
    "if_clause",
    "if_statement",
    "integer",
    "line_continuation",
    "list_splat",
    "module",
    "none",
    "nonlocal_statement",
    "not_operator",
    "pair",
    "pass_statement",
    "print_statement",
    "raise_statement",
    "set",
    "slice",
    "true",
    "try_statement",
    "type_conversion",
    "unary_operator",
    "while_statement",
    "with_clause",
    "with_item",
    "with_statement",
    "chevron",
];

fn children<'t>(node: Node<'t>) -> Vec<Node<'t>> {
    let mut cursor = node.walk();
    node.named_children(&mut cursor).collect()
}

impl Reader<'_> {
    pub(super) fn python_program<'t>(&mut self, root: Node<'t>, code: &Code<'t>) {
        self.python_names(root, code, 0);
        self.python(root, code);
    }

    /// Finds the functions, and what is given a value more than once.
    fn python_names<'t>(&mut self, node: Node<'t>, code: &Code<'t>, depth: usize) {
        self.steps += 1;
        if depth > super::MAX_DEPTH || self.steps > super::MAX_STEPS {
            self.plain = false;
            return;
        }
        for assigned in code.assigned(node) {
            if !self.seen.insert(assigned.clone()) {
                self.often.insert(assigned);
            }
        }
        // Annotations are evaluated, some of them later.
        self.plain &= node.kind() != "type";
        if node.kind() == "function_definition"
            && let Some(name) = node.child_by_field_name("name")
        {
            let name = code.of(name).to_owned();
            if code
                .functions
                .borrow_mut()
                .insert(name.clone(), node)
                .is_some()
            {
                self.often.insert(name);
            }
        }
        for child in children(node) {
            self.python_names(child, code, depth + 1);
        }
    }

    fn python_all<'t>(&mut self, node: Node<'t>, code: &Code<'t>) -> Value {
        let mut value = Value::Data;
        for child in children(node) {
            let child = self.python(child, code);
            value = value.or(self.settle(child));
        }
        value
    }

    /// The value of an expression that is handed on.
    fn python_value<'t>(&mut self, node: Option<Node<'t>>, code: &Code<'t>) -> Value {
        let Some(node) = node else {
            return Value::Data;
        };
        let value = self.python(node, code);
        self.settle(value)
    }

    /// Follows a statement or an expression.
    fn python<'t>(&mut self, node: Node<'t>, code: &Code<'t>) -> Value {
        if !self.enter() {
            return Value::Opaque;
        }
        let value = self.python_node(node, code);
        self.depth -= 1;
        value
    }

    fn python_node<'t>(&mut self, node: Node<'t>, code: &Code<'t>) -> Value {
        let field = |name: &str| node.child_by_field_name(name);
        match node.kind() {
            "identifier" => {
                let name = code.of(node);
                match code.functions.borrow().contains_key(name) {
                    true if self.often.contains(name) => self.opaque(),
                    true => Value::Local(name.to_owned()),
                    false => self.lookup(name),
                }
            }
            "string" => self.python_string(node, code),
            "concatenated_string" => {
                let mut whole = Value::text("");
                for part in children(node) {
                    let part = self.python(part, code);
                    whole = self.joined(whole, part);
                }
                whole
            }
            "parenthesized_expression" => match node.named_child(0) {
                Some(inner) => self.python(inner, code),
                None => Value::Data,
            },
            "list" | "tuple" => {
                let mut values = Vec::new();
                for child in children(node) {
                    let spread = child.kind() == "list_splat";
                    let value = self.python(child, code);
                    values.push(match spread {
                        true => Value::Opaque,
                        false => self.settle(value),
                    });
                }
                Value::List(values)
            }
            "binary_operator" => {
                let (left, right) = (field("left"), field("right"));
                let operator = field("operator")
                    .map(|node| node.kind())
                    .unwrap_or_default();
                let left = left.map_or(Value::Data, |node| self.python(node, code));
                let right = right.map_or(Value::Data, |node| self.python(node, code));
                match (operator, &left) {
                    ("+", _) => self.joined(left, right),
                    ("/", Value::Path { .. }) => self.call(
                        "pathlib.Path().joinpath",
                        [left, right]
                            .map(|value| Argument {
                                keyword: None,
                                value,
                            })
                            .into(),
                    ),
                    _ => {
                        let (left, right) = (self.settle(left), self.settle(right));
                        match left.or(right).is_data() {
                            true => Value::Data,
                            false => Value::Opaque,
                        }
                    }
                }
            }
            "conditional_expression" => {
                let values = children(node);
                let mut values = values
                    .into_iter()
                    .map(|child| self.python_value(Some(child), code));
                let (Some(one), Some(_), Some(other)) =
                    (values.next(), values.next(), values.next())
                else {
                    return Value::Opaque;
                };
                one.or(other).unsure()
            }
            "attribute" => {
                let object = field("object").map_or(Value::Opaque, |node| self.python(node, code));
                let name = field("attribute").map(|node| code.of(node));
                self.member(object, name.unwrap_or_default())
            }
            "subscript" => self.python_subscript(node, code),
            "call" => self.python_call(node, code),
            "keyword_argument" => {
                self.python_value(field("value"), code);
                Value::Data
            }
            "import_statement" => {
                for (module, name) in code.imported(node) {
                    let value = self.module(&module);
                    match name {
                        Some(name) => self.bind(&name, value),
                        None => {
                            let first = module.split('.').next().unwrap_or(&module).to_owned();
                            let known = matches!(value, Value::Name(_));
                            let value = match known {
                                true => Value::Name(first.clone()),
                                false => value,
                            };
                            self.names.insert(first, value);
                        }
                    }
                }
                Value::Data
            }
            "import_from_statement" => {
                let module = field("module_name")
                    .map(|node| code.of(node))
                    .unwrap_or_default();
                if module.starts_with('.') {
                    return self.opaque();
                }
                let value = self.module(module);
                let names = code.imported(node);
                let star = children(node)
                    .iter()
                    .any(|child| child.kind() == "wildcard_import");
                self.plain &= !star;
                for (inner, name) in names {
                    let whole = match &value {
                        Value::Name(module) => Value::Name(format!("{module}.{inner}")),
                        _ => Value::Opaque,
                    };
                    self.plain &= !super::is_hidden(self.language, &inner);
                    self.bind(&name.unwrap_or(inner), whole);
                }
                Value::Data
            }
            "future_import_statement" => Value::Data,
            "assignment" | "named_expression" => {
                let value = field("right").or_else(|| field("value"));
                let value = value.map_or(Value::Data, |node| self.python(node, code));
                if let Some(target) = field("left").or_else(|| field("name")) {
                    self.python_assign(target, value.clone(), code);
                }
                match node
                    .parent()
                    .is_some_and(|outer| outer.kind() == "expression_statement")
                {
                    true => Value::Data,
                    false => value,
                }
            }
            "augmented_assignment" => {
                let value = self.python_value(field("right"), code);
                let Some(target) = field("left") else {
                    return Value::Data;
                };
                if target.kind() == "identifier" {
                    let before = self.lookup(code.of(target));
                    let whole = self.joined(before, value);
                    self.names
                        .insert(code.of(target).to_owned(), whole.unsure());
                } else {
                    self.python_assign(target, value, code);
                }
                Value::Data
            }
            "for_statement" => {
                let over = field("right").map_or(Value::Data, |node| self.python(node, code));
                for element in self.elements(over) {
                    if let Some(target) = field("left") {
                        self.python_assign(target, element, code);
                    }
                    if let Some(body) = field("body") {
                        self.python(body, code);
                    }
                }
                if let Some(other) = field("alternative") {
                    self.python(other, code);
                }
                Value::Data
            }
            "list_comprehension"
            | "set_comprehension"
            | "dictionary_comprehension"
            | "generator_expression" => {
                for clause in children(node) {
                    if clause.kind() == "for_in_clause" {
                        let right = clause.child_by_field_name("right");
                        let over = right.map_or(Value::Data, |node| self.python(node, code));
                        let element = self.elements(over).into_iter().reduce(Value::or);
                        if let Some(target) = clause.child_by_field_name("left") {
                            let element = element.unwrap_or(Value::Data);
                            self.python_assign(target, element, code);
                        }
                    } else if clause.kind() == "if_clause" {
                        self.python(clause, code);
                    }
                }
                match self.python_value(field("body"), code).is_data() {
                    true => Value::Data,
                    false => Value::Opaque,
                }
            }
            "as_pattern" => {
                let value = node.named_child(0);
                let value = value.map_or(Value::Opaque, |node| self.python(node, code));
                if let Some(target) = field("alias").and_then(|alias| alias.named_child(0)) {
                    let value = match value {
                        Value::Name(_) => Value::Data,
                        value => value,
                    };
                    self.python_assign(target, value, code);
                }
                Value::Data
            }
            // Followed where it is called.
            "function_definition" => Value::Data,
            "lambda" => {
                for name in self.python_parameters(node, code) {
                    self.names.insert(name, Value::Data);
                }
                self.python_value(field("body"), code);
                Value::Local(String::new())
            }
            "return_statement" | "yield" | "await" => {
                let value = self.python_all(node, code);
                if let Some(returned) = self.returned.pop() {
                    self.returned.push(returned.or(value));
                }
                Value::Data
            }
            "interpolation" => self.python_all(node, code),
            kind if PLAIN.contains(&kind) => {
                let value = self.python_all(node, code);
                match value.is_data() {
                    true => Value::Data,
                    false => Value::Opaque,
                }
            }
            _ => {
                self.python_all(node, code);
                self.opaque()
            }
        }
    }

    fn python_string<'t>(&mut self, node: Node<'t>, code: &Code<'t>) -> Value {
        let mut word = Word {
            quoted: true,
            ..Word::default()
        };
        let mut raw = false;
        let mut known = true;
        for part in children(node) {
            match part.kind() {
                "string_start" => raw = code.of(part).bytes().any(|byte| b"rR".contains(&byte)),
                "string_content"
                    if children(part)
                        .iter()
                        .any(|child| child.kind() == "escape_interpolation") =>
                {
                    known = false;
                }
                "string_content" if part.named_child_count() == 0 || raw => {
                    word.push_known(code.of(part).as_bytes());
                }
                "string_content" => match unescaped(code.of(part)) {
                    Some(bytes) => word.push_known(&bytes),
                    None => known = false,
                },
                "interpolation" => {
                    let inner = part.child_by_field_name("expression");
                    let value = self.python_value(inner, code);
                    let formatted = part.named_child_count() > 1;
                    for child in children(part).into_iter().skip(1) {
                        self.python(child, code);
                    }
                    match value {
                        Value::Text {
                            word: inner,
                            sure: true,
                        } if !formatted => {
                            for piece in inner.pieces {
                                crate::flow::push_piece(&mut word.pieces, piece);
                            }
                        }
                        _ => word
                            .pieces
                            .push(Piece::Unknown(code.of(part).as_bytes().to_vec())),
                    }
                }
                _ => {}
            }
        }
        match known {
            true => Value::Text { word, sure: true },
            false => Value::Data,
        }
    }

    fn python_subscript<'t>(&mut self, node: Node<'t>, code: &Code<'t>) -> Value {
        let object = node.child_by_field_name("value");
        let object = object.map_or(Value::Opaque, |node| self.python(node, code));
        let index = node.child_by_field_name("subscript");
        self.python_value(index, code);
        match object {
            Value::Name(name) if name == "sys.argv" => {
                let index = index.filter(|index| index.kind() == "integer");
                let index = index.and_then(|index| code.of(index).parse::<usize>().ok());
                let word = index.and_then(|index| self.given.get(index.checked_sub(1)?));
                match word {
                    Some(word) => Value::Text {
                        word: word.clone(),
                        sure: true,
                    },
                    None => Value::Data,
                }
            }
            Value::Name(name) => {
                let whole = format!("{name}[]");
                match super::has(self.api.harmless, &whole) {
                    true => Value::Data,
                    false => self.opaque(),
                }
            }
            value if value.is_data() => Value::Data,
            _ => Value::Opaque,
        }
    }

    fn python_call<'t>(&mut self, node: Node<'t>, code: &Code<'t>) -> Value {
        let mut arguments = Vec::new();
        let list = node.child_by_field_name("arguments");
        let generator = list.filter(|list| list.kind() == "generator_expression");
        if let Some(generator) = generator {
            let value = self.python(generator, code);
            arguments.push(Argument {
                keyword: None,
                value,
            });
        }
        let given = list.filter(|_| generator.is_none()).map(children);
        for child in given.unwrap_or_default() {
            match child.kind() {
                "comment" => {}
                "keyword_argument" => {
                    let keyword = child.child_by_field_name("name").map(|name| code.of(name));
                    let value = child.child_by_field_name("value");
                    // Switched off is as if it were not there.
                    if value.is_some_and(|value| value.kind() == "false") {
                        continue;
                    }
                    let value = value.map_or(Value::Data, |node| self.python(node, code));
                    arguments.push(Argument {
                        keyword: keyword.map(str::to_owned),
                        value,
                    });
                }
                "list_splat" | "dictionary_splat" => {
                    let value = self.python(child, code);
                    arguments.push(Argument {
                        keyword: Some("*".to_owned()),
                        value,
                    });
                }
                _ => {
                    let value = self.python(child, code);
                    arguments.push(Argument {
                        keyword: None,
                        value,
                    });
                }
            }
        }
        let Some(callee) = node.child_by_field_name("function") else {
            return self.opaque();
        };
        if callee.kind() == "attribute" {
            let object = callee.child_by_field_name("object");
            let object = object.map_or(Value::Opaque, |node| self.python(node, code));
            let name = callee.child_by_field_name("attribute");
            let name = name.map(|node| code.of(node)).unwrap_or_default();
            return self.method(object, name, arguments);
        }
        match self.python(callee, code) {
            Value::Name(name) => self.call(&name, arguments),
            Value::Local(name) => self.python_local(&name, arguments, code),
            _ => {
                self.settle_all(arguments);
                self.opaque()
            }
        }
    }

    /// A call of a function of the code itself, followed with what it is given.
    pub(super) fn python_local<'t>(
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
        let parameters = self.python_parameters(function, code);
        for name in &parameters {
            self.names.insert(name.clone(), Value::Data);
        }
        let mut places = parameters.iter();
        for argument in arguments {
            let value = self.settle(argument.value);
            let name = match &argument.keyword {
                Some(keyword) => parameters.iter().find(|name| *name == keyword),
                None => places.next(),
            };
            match name {
                Some(name) => drop(self.names.insert(name.clone(), value)),
                None => self.plain &= value.is_data(),
            }
        }
        self.calls += 1;
        self.returned.push(Value::Data);
        if let Some(body) = function.child_by_field_name("body") {
            self.python(body, code);
        }
        self.calls -= 1;
        let returned = self.returned.pop();
        for name in parameters {
            self.names.insert(name, Value::Data);
        }
        returned.map_or(Value::Opaque, Value::unsure)
    }

    /// The names that a function is given values by; what they are without one is followed.
    fn python_parameters<'t>(&mut self, node: Node<'t>, code: &Code<'t>) -> Vec<String> {
        let mut names = Vec::new();
        let list = node.child_by_field_name("parameters");
        for parameter in list.map(children).unwrap_or_default() {
            let default = parameter.child_by_field_name("value");
            if let Some(default) = default {
                // What it then is would have to be followed too.
                let value = self.python_value(Some(default), code);
                self.plain &= value.is_data();
            }
            let mut name = Some(parameter);
            while let Some(inner) = name.filter(|name| name.kind() != "identifier") {
                name = inner
                    .child_by_field_name("name")
                    .or_else(|| inner.named_child(0));
            }
            if let Some(name) = name {
                names.push(code.of(name).to_owned());
            }
        }
        names
    }

    fn python_assign<'t>(&mut self, target: Node<'t>, value: Value, code: &Code<'t>) {
        match target.kind() {
            "identifier" => self.bind(code.of(target), value),
            "pattern_list" | "tuple_pattern" | "list_pattern" => {
                let value = self.settle(value);
                let targets = children(target);
                match value {
                    Value::List(values) if values.len() == targets.len() => {
                        for (target, value) in targets.into_iter().zip(values) {
                            self.python_assign(target, value, code);
                        }
                    }
                    value => {
                        let part = match value.is_data() {
                            true => Value::Data,
                            false => Value::Opaque,
                        };
                        for target in targets {
                            self.python_assign(target, part.clone(), code);
                        }
                    }
                }
            }
            "list_splat_pattern" => {
                if let Some(inner) = target.named_child(0) {
                    self.python_assign(inner, value, code);
                }
            }
            "attribute" | "subscript" => {
                let value = self.settle(value);
                let object = target.child_by_field_name("object");
                let object = object.or_else(|| target.child_by_field_name("value"));
                let object = object.map_or(Value::Opaque, |node| self.python(node, code));
                let name = target
                    .child_by_field_name("attribute")
                    .map(|node| code.of(node));
                self.plain &= object.is_data()
                    && value.is_data()
                    && !name.is_some_and(|name| super::is_hidden(self.language, name));
                self.python_value(target.child_by_field_name("subscript"), code);
            }
            _ => self.plain = false,
        }
    }
}

impl<'t> Code<'t> {
    /// The names that a statement gives a value.
    fn assigned(&self, node: Node<'t>) -> Vec<String> {
        let target = match node.kind() {
            "assignment" | "augmented_assignment" | "for_statement" | "for_in_clause" => {
                node.child_by_field_name("left")
            }
            "named_expression" => node.child_by_field_name("name"),
            "as_pattern" => node.child_by_field_name("alias"),
            "import_statement" | "import_from_statement" => {
                let names = self.imported(node).into_iter();
                return names
                    .map(|(module, name)| {
                        let first = module.split('.').next().unwrap_or(&module).to_owned();
                        name.unwrap_or(first)
                    })
                    .collect();
            }
            "parameters" | "lambda_parameters" => Some(node),
            "function_definition" | "class_definition" => node.child_by_field_name("name"),
            _ => None,
        };
        let mut names = Vec::new();
        let mut left: Vec<Node> = target.into_iter().collect();
        while let Some(node) = left.pop() {
            match node.kind() {
                "identifier" => names.push(self.of(node).to_owned()),
                // What these name is not given a new value.
                "attribute" | "subscript" => {}
                _ => left.extend(children(node)),
            }
        }
        names
    }

    /// What an import names, and by which name it is known afterwards.
    fn imported(&self, node: Node<'t>) -> Vec<(String, Option<String>)> {
        let mut cursor = node.walk();
        node.children_by_field_name("name", &mut cursor)
            .map(|name| match name.kind() {
                "aliased_import" => {
                    let inner = name.child_by_field_name("name");
                    let alias = name.child_by_field_name("alias");
                    (
                        inner
                            .map(|node| self.of(node))
                            .unwrap_or_default()
                            .to_owned(),
                        alias.map(|node| self.of(node).to_owned()),
                    )
                }
                _ => (self.of(name).to_owned(), None),
            })
            .collect()
    }
}
