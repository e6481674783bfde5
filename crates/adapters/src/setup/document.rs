//! A settings document, changed as text.

use std::fmt;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use serde_json::Value;

/// Something that is to stand in a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Want {
    /// A list, found by these names, holds this element.
    Element(Vec<String>, Value),
    /// A field, found by these names, has this value.
    Field(Vec<String>, Value),
}

/// Why a document is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// It is not JSON, not even with comments.
    NotJson(String),
    /// What stands at this place is of another kind than it has to be.
    OtherKind(String),
    /// A name stands twice, and clients go by different ones.
    Twice(String),
    /// It has comments or trailing commas, and its client reads none: it passes over the whole file.
    Ignored(String),
    /// Somebody has set this otherwise.
    Taken(String, String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::NotJson(why) => write!(f, "this is not JSON: {why}"),
            Problem::OtherKind(name) => {
                write!(f, "`{name}` is of another kind than the client wants")
            }
            Problem::Twice(name) => write!(f, "`{name}` stands there twice"),
            Problem::Ignored(why) => write!(f, "the client ignores this file as it is: {why}"),
            Problem::Taken(name, value) => write!(f, "`{name}` is {value} already"),
        }
    }
}

/// The document with everything that is wanted, changed no more than that takes.
pub fn with(text: Option<&str>, wants: &[Want]) -> Result<String, Problem> {
    let root = match text.filter(|text| !text.trim().is_empty()) {
        Some(text) => parse(text)?,
        None => parse("{}\n")?,
    };
    let top = top(&root)?;
    for want in wants {
        match want {
            Want::Element(names, value) => add(&top, names, value)?,
            Want::Field(names, value) => set(&top, names, value)?,
        }
    }
    Ok(root.to_string())
}

/// Whether a client that reads plain JSON only takes a text for that.
pub fn is_plain(text: &str) -> Result<(), Problem> {
    let plain: Result<Value, _> = serde_json::from_str(text);
    plain
        .map(drop)
        .map_err(|error| Problem::Ignored(error.to_string()))
}

/// The document without what was wanted, and without what that leaves empty.
pub fn without(text: &str, wants: &[Want]) -> Result<String, Problem> {
    let root = parse(text)?;
    let top = top(&root)?;
    for want in wants {
        match want {
            Want::Element(names, value) => take_out(&top, names, value)?,
            Want::Field(names, value) => unset(&top, names, value)?,
        }
    }
    Ok(root.to_string())
}

/// Whether a text has a field that is wanted, by whomever it was set.
pub fn has_field(text: Option<&str>, want: &Want) -> bool {
    let Want::Field(..) = want else { return false };
    text.is_some_and(|text| {
        with(Some(text), std::slice::from_ref(want)).is_ok_and(|same| same == text)
    })
}

fn parse(text: &str) -> Result<CstRootNode, Problem> {
    let options = ParseOptions {
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
        ..ParseOptions::default()
    };
    CstRootNode::parse(text, &options).map_err(|error| Problem::NotJson(error.to_string()))
}

fn top(root: &CstRootNode) -> Result<CstObject, Problem> {
    root.object_value()
        .ok_or_else(|| Problem::OtherKind("the whole".to_owned()))
}

/// A field that stands once, or not at all.
fn once(object: &CstObject, name: &str) -> Result<Option<CstNode>, Problem> {
    let named = |property: &jsonc_parser::cst::CstObjectProp| {
        property.decoded_name().is_some_and(|found| found == name)
    };
    let mut all = object.properties().into_iter().filter(named);
    let first = all.next();
    match all.next() {
        Some(_) => Err(Problem::Twice(name.to_owned())),
        None => Ok(first.and_then(|property| property.value())),
    }
}

fn object(parent: &CstObject, name: &str) -> Result<CstObject, Problem> {
    once(parent, name)?;
    let other = || Problem::OtherKind(name.to_owned());
    parent.object_value_or_create(name).ok_or_else(other)
}

/// The object that the names lead to, and the last name.
fn lead<'a>(top: &CstObject, names: &'a [String]) -> Result<(CstObject, &'a str), Problem> {
    let Some((last, before)) = names.split_last() else {
        return Err(Problem::OtherKind(String::new()));
    };
    let parent = before
        .iter()
        .try_fold(top.clone(), |parent, name| object(&parent, name))?;
    Ok((parent, last))
}

/// The same, of what is there.
fn find<'a>(top: &CstObject, names: &'a [String]) -> Result<Option<(CstObject, &'a str)>, Problem> {
    let Some((last, before)) = names.split_last() else {
        return Ok(None);
    };
    let mut parent = top.clone();
    for name in before {
        match once(&parent, name)?.and_then(|node| node.as_object()) {
            Some(object) => parent = object,
            None => return Ok(None),
        }
    }
    Ok(Some((parent, last)))
}

fn add(top: &CstObject, names: &[String], value: &Value) -> Result<(), Problem> {
    let (parent, name) = lead(top, names)?;
    once(&parent, name)?;
    let other = || Problem::OtherKind(name.to_owned());
    let list = parent.array_value_or_create(name).ok_or_else(other)?;
    if element(&list, value).is_none() {
        list.append(input(value));
    }
    Ok(())
}

fn element(list: &CstArray, value: &Value) -> Option<CstNode> {
    let mut all = list.elements().into_iter();
    all.find(|node| node.to_serde_value().as_ref() == Some(value))
}

fn set(top: &CstObject, names: &[String], value: &Value) -> Result<(), Problem> {
    let (parent, name) = lead(top, names)?;
    match once(&parent, name)?.map(|node| node.to_serde_value()) {
        None => {
            parent.append(name, input(value));
            Ok(())
        }
        Some(Some(found)) if found == *value => Ok(()),
        Some(found) => {
            let found = found.map_or_else(String::new, |found| found.to_string());
            Err(Problem::Taken(name.to_owned(), found))
        }
    }
}

fn take_out(top: &CstObject, names: &[String], value: &Value) -> Result<(), Problem> {
    let Some((parent, name)) = find(top, names)? else {
        return Ok(());
    };
    if let Some(list) = once(&parent, name)?.and_then(|node| node.as_array()) {
        while let Some(ours) = element(&list, value) {
            ours.remove();
        }
        if list.elements().is_empty() {
            remove(&parent, name);
        }
    }
    remove_empty(top, names)
}

fn unset(top: &CstObject, names: &[String], value: &Value) -> Result<(), Problem> {
    let Some((parent, name)) = find(top, names)? else {
        return Ok(());
    };
    let found = once(&parent, name)?.and_then(|node| node.to_serde_value());
    if found.as_ref() == Some(value) {
        remove(&parent, name);
        remove_empty(top, names)?;
    }
    Ok(())
}

fn remove(parent: &CstObject, name: &str) {
    if let Some(property) = parent.get(name) {
        property.remove();
    }
}

/// Takes away the objects on the way that hold nothing any more.
fn remove_empty(top: &CstObject, names: &[String]) -> Result<(), Problem> {
    for length in (1..names.len()).rev() {
        let Some((parent, name)) = find(top, &names[..length])? else {
            continue;
        };
        let object = once(&parent, name)?.and_then(|node| node.as_object());
        if object.is_some_and(|object| object.properties().is_empty()) {
            remove(&parent, name);
        }
    }
    Ok(())
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (name.clone(), input(value)));
            CstInputValue::Object(fields.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wants() -> Vec<Want> {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        let hook =
            json!({ "matcher": "*", "hooks": [{ "type": "command", "command": "s hook claude" }] });
        vec![
            Want::Element(names(&["hooks", "PreToolUse"]), hook),
            Want::Field(names(&["env", "PREFIX"]), json!("/door")),
        ]
    }

    #[test]
    fn comments_order_and_layout_stay() {
        let before = "{\n    // mine\n    \"model\": \"opus\",   /* yes */\n    \"hooks\": {\n        \"PreToolUse\": [\n            {\"matcher\": \"Bash\"}\n        ]\n    },\n    \"z\": 1\n}\n";
        let after = with(Some(before), &wants()).unwrap();
        for kept in [
            "    // mine\n",
            "\"opus\",   /* yes */\n",
            "{\"matcher\": \"Bash\"}",
            "    \"z\": 1",
        ] {
            assert!(after.contains(kept), "{after}");
        }
        assert_eq!(with(Some(&after), &wants()).unwrap(), after);
        let back = without(&after, &wants()).unwrap();
        assert!(back.contains("// mine") && !back.contains("PREFIX") && !back.contains("s hook"));
        assert!(back.contains("{\"matcher\": \"Bash\"}"), "{back}");
    }

    #[test]
    fn what_was_not_there_is_made_and_taken_away_again() {
        let made = with(None, &wants()).unwrap();
        let value: Value = serde_json::from_str(&made).unwrap();
        assert_eq!(value["env"]["PREFIX"], "/door");
        let back = without(&made, &wants()).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&back).unwrap(), json!({}));
        assert_eq!(with(Some(" \n"), &wants()).unwrap(), made);
    }

    #[test]
    fn what_others_changed_since_stays() {
        let made = with(Some("{ \"a\": 1 }"), &wants()).unwrap();
        let edited = made
            .replace("/door", "/other")
            .replace("\"a\": 1", "\"a\": 2");
        let back: Value = serde_json::from_str(&without(&edited, &wants()).unwrap()).unwrap();
        assert_eq!(back, json!({ "a": 2, "env": { "PREFIX": "/other" } }));
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        for (text, said) in [
            ("{", "not JSON"),
            ("[]", "another kind"),
            ("{ hooks: {} }", "not JSON"),
            ("{ \"hooks\": [] }", "`hooks` is of another kind"),
            (
                "{ \"hooks\": { \"PreToolUse\": {} } }",
                "`PreToolUse` is of another kind",
            ),
            (
                "{ \"hooks\": {}, \"hooks\": {} }",
                "`hooks` stands there twice",
            ),
            (
                "{ \"hooks\": {}, \"h\\u006foks\": {} }",
                "`hooks` stands there twice",
            ),
            (
                "{ \"env\": { \"PREFIX\": \"/mine\" } }",
                "`PREFIX` is \"/mine\" already",
            ),
            ("\u{0}", "not JSON"),
        ] {
            let problem = with(Some(text), &wants()).unwrap_err().to_string();
            assert!(problem.contains(said), "{text}: {problem}");
        }
    }

    #[test]
    fn trailing_commas_and_windows_lines_stay() {
        let before = "{\r\n  \"a\": [1, 2,],\r\n}\r\n";
        let after = with(Some(before), &wants()).unwrap();
        assert!(
            after.contains("[1, 2,]") && after.contains("\r\n"),
            "{after:?}"
        );
        assert!(!after.replace("\r\n", "").contains('\n'), "{after:?}");
    }
}
