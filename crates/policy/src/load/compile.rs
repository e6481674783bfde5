//! From policy files to a compiled policy: find what it extends, check the shape, read, try the
//! examples, encode.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use substrate_command::{Context, analyse};
use substrate_command::{Models, Tool, codec};
use substrate_compiled::codec::{Decoder, Encoder};
use substrate_compiled::file::Parts;
use substrate_compiled::rules::RuleTable;
use substrate_text::nearest;

use super::diagnostic::{LoadError, Problem, SourceFile};
use super::document::{self, ClientSets, Document, Examples};
use super::yaml::Node;
use crate::facts::Given;
use crate::judge::judge;
use crate::policy::{List, Policy};
use crate::settings::Coded;
use crate::tools;

pub use super::document::CLIENT_SETS;

/// Policies that Substrate ships, by id.
const SHIPPED: [(&str, &str); 6] = [
    ("default", include_str!("../../../../policies/default.yaml")),
    (
        "restricted",
        include_str!("../../../../policies/restricted.yaml"),
    ),
    ("dev", include_str!("../../../../policies/dev.yaml")),
    ("agent", include_str!("../../../../policies/agent.yaml")),
    ("ci", include_str!("../../../../policies/ci.yaml")),
    ("locked", include_str!("../../../../policies/locked.yaml")),
];

/// Rules that protect Substrate itself; part of every policy.
const OWN: &str = include_str!("../../../../policies/parts/self.yaml");

const CLASSES: &str = include_str!("../../../../policies/parts/classes.yaml");
/// What runs later; what nobody has to start is the class `@persistence`.
const RUNS_LATER: &str = include_str!("../../../../policies/parts/runs-later.yaml");

/// How many policies may extend each other in a row.
const MAX_EXTENDS: usize = 16;

/// The schema of policy files.
pub fn schema() -> &'static str {
    include_str!("../../../../schemas/policy.json")
}

/// Ids of the policies that Substrate ships for people to use.
pub fn shipped_ids() -> impl Iterator<Item = &'static str> {
    SHIPPED.into_iter().map(|(id, _)| id)
}

/// A policy that Substrate ships.
pub fn shipped(id: &str) -> Option<SourceFile> {
    SHIPPED
        .into_iter()
        .find(|(known, _)| *known == id)
        .map(|(id, text)| SourceFile {
            name: format!("builtin:{id}.yaml"),
            path: None,
            text: text.to_owned(),
        })
}

/// What a policy is compiled with.
pub struct Inputs<'a> {
    /// Finds the policy that another one extends, by id.
    pub find: &'a dyn Fn(&str) -> Result<Option<SourceFile>, String>,
    /// The user's tool models; each replaces a shipped model of the same name.
    pub tools: &'a [SourceFile],
    /// What client sets stand for on this machine.
    pub clients: &'a ClientSets,
}

/// A compiled policy, before it is stamped and sealed.
pub struct Output {
    /// Everything but the stamp.
    pub parts: Parts,
    /// The files it was made of, the policy's own first.
    pub files: Vec<Arc<SourceFile>>,
}

/// Compiles a policy with everything it extends.
pub fn compile(source: SourceFile, inputs: &Inputs<'_>) -> Result<Output, LoadError> {
    let source = Arc::new(source);
    let (root, files) = merged(&source, inputs)?;
    let models = Shelf::new(inputs.tools)?;
    let classes = Arc::new(SourceFile {
        name: "builtin:classes.yaml".into(),
        path: None,
        text: CLASSES.into(),
    });
    let runs_later = Arc::new(SourceFile {
        name: "builtin:runs-later.yaml".into(),
        path: None,
        text: RUNS_LATER.into(),
    });
    let shipped = document::Shipped {
        classes: Node::parse(&classes)?,
        runs_later: Node::parse(&runs_later)?,
    };
    let mut document = document::read(&root, &models, &shipped, inputs.clients)?;
    document.details.files = files.iter().map(|file| file.name.clone()).collect();
    document.details.sha256 = fingerprint(&files);
    let parts = encode(&document, &models);
    try_examples(&document, &parts)?;
    Ok(Output { parts, files })
}

/// The document with everything it extends under it.
fn merged(
    source: &Arc<SourceFile>,
    inputs: &Inputs<'_>,
) -> Result<(Node, Vec<Arc<SourceFile>>), LoadError> {
    let mut chain = vec![checked(source)?];
    let mut files = vec![source.clone()];
    let mut seen = BTreeSet::from([id_of(&chain[0])]);
    while let Some(parent) = chain.last().and_then(|node| node.get("extends")).cloned() {
        let id = parent.text().unwrap_or_default().to_owned();
        if !seen.insert(id.clone()) || chain.len() >= MAX_EXTENDS {
            return Err(LoadError::at(
                &parent.place,
                format!("`extends: {id}` goes round in a circle"),
                None,
            ));
        }
        let found =
            (inputs.find)(&id).map_err(|problem| LoadError::at(&parent.place, problem, None))?;
        let Some(found) = found.map(Arc::new) else {
            let hint = "`substrate policy list` shows the policies that can be extended";
            return Err(LoadError::at(
                &parent.place,
                format!("there is no policy `{id}`"),
                Some(hint),
            ));
        };
        chain.push(checked(&found)?);
        files.push(found);
    }
    let own = Arc::new(SourceFile {
        name: "builtin:self.yaml".into(),
        path: None,
        text: OWN.into(),
    });
    Ok((
        chain
            .into_iter()
            .rev()
            .fold(Node::parse(&own)?, Node::merge),
        files,
    ))
}

fn id_of(node: &Node) -> String {
    node.get("id")
        .and_then(Node::text)
        .unwrap_or_default()
        .to_owned()
}

/// A document whose shape is right.
fn checked(source: &Arc<SourceFile>) -> Result<Node, LoadError> {
    static VALIDATOR: OnceLock<Option<jsonschema::Validator>> = OnceLock::new();
    let node = Node::parse(source)?;
    let validator = VALIDATOR.get_or_init(|| {
        let schema = serde_json::from_str(schema()).ok()?;
        jsonschema::options()
            .with_draft(jsonschema::Draft::Draft7)
            .build(&schema)
            .ok()
    });
    let Some(validator) = validator else {
        return Err(LoadError::whole(
            source,
            "the built-in schema is broken; please report this",
        ));
    };
    let json = node.to_json();
    let problems: Vec<Problem> = validator
        .iter_errors(&json)
        .map(|error| shape_problem(&node, &error))
        .collect();
    if problems.is_empty() {
        Ok(node)
    } else {
        Err(LoadError { problems })
    }
}

/// The keys that a mapping may have, whose schema this path of a complaint leads to.
fn known_keys(complaint: &str) -> Vec<String> {
    let schema: serde_json::Value = serde_json::from_str(schema()).unwrap_or_default();
    let mut at = &schema;
    for step in complaint.split('/').skip(1) {
        if step == "additionalProperties" {
            break;
        }
        let next = match (step, at) {
            ("$ref", serde_json::Value::Object(object)) => object
                .get("$ref")
                .and_then(serde_json::Value::as_str)
                .and_then(|target| schema.pointer(target.strip_prefix('#')?)),
            (step, serde_json::Value::Array(items)) => {
                step.parse().ok().and_then(|index: usize| items.get(index))
            }
            (step, at) => at.get(step.replace("~1", "/").replace("~0", "~").as_str()),
        };
        let Some(next) = next else {
            return Vec::new();
        };
        at = next;
    }
    let properties = at.get("properties").and_then(serde_json::Value::as_object);
    properties.map_or_else(Vec::new, |all| all.keys().cloned().collect())
}

/// A schema error in words, at the node or key that it is about.
fn shape_problem(root: &Node, error: &jsonschema::ValidationError<'_>) -> Problem {
    use jsonschema::error::ValidationErrorKind as Kind;
    let pointer = error.instance_path().to_string();
    let node = root.at_pointer(&pointer);
    let name = pointer
        .rsplit('/')
        .next()
        .filter(|name| !name.is_empty())
        .unwrap_or("the policy");
    let mut place = node.place.clone();
    let (message, hint) = match error.kind() {
        Kind::AdditionalProperties { unexpected } => {
            let unknown = unexpected.first().cloned().unwrap_or_default();
            if let Some((key, _)) = node.entries().iter().find(|(key, _)| key.text == unknown) {
                place = key.place.clone();
            }
            let keys = known_keys(error.schema_path().as_str());
            let known: Vec<&str> = keys.iter().map(String::as_str).collect();
            let hint = match nearest(&unknown, &known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here are {}; `substrate help policy` says what they mean", known.join(", ")),
            };
            (format!("`{unknown}` is not a known key here"), Some(hint))
        }
        Kind::Required { property } => {
            (format!("`{}` is missing", property.as_str().unwrap_or_default()), Some("every policy has `id` and `name`".to_owned()))
        }
        Kind::Enum { options } => {
            let known: Vec<String> = options.as_array().into_iter().flatten().map(|option| option.as_str().unwrap_or_default().to_owned()).collect();
            (format!("`{name}` must be one of {}", known.join(", ")), None)
        }
        Kind::Pattern { pattern } => (format!("`{name}` does not have the form {pattern}"), form_hint(name)),
        Kind::Type { .. } => (format!("`{name}` has the wrong type: {error}"), None),
        Kind::OneOfNotValid { .. } if name == "cpu" => ("`cpu` must be a number of CPUs".to_owned(), form_hint(name)),
        Kind::OneOfNotValid { .. } => (
            "this must be a pattern, or a mapping with `pattern` and perhaps `reason`, `match`, `not_match`".to_owned(),
            None,
        ),
        _ => (error.to_string(), None),
    };
    Problem {
        place,
        message,
        hint,
    }
}

fn form_hint(name: &str) -> Option<String> {
    let hint = match name {
        "memory" | "microvm_memory" => "write for example \"512Mi\" or \"2Gi\"",
        "time" => "write for example \"90s\", \"10m\" or \"2h\"",
        "cpu" => "write for example \"2\" or \"0.5\"",
        "id" | "extends" => "lower-case letters, digits and dashes only",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// The shipped models, compiled by the build script.
static SHIPPED_MODELS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/models.bin"));

/// Shipped and user models in their compiled form, by name.
struct Shelf {
    models: BTreeMap<String, Rc<Vec<u8>>>,
}

impl Shelf {
    fn new(user: &[SourceFile]) -> Result<Self, LoadError> {
        let mut models = BTreeMap::new();
        let mut put = |names: Vec<String>, model: Vec<u8>| {
            let model = Rc::new(model);
            models.extend(names.into_iter().map(|name| (name, model.clone())));
        };
        let shipped = Decoder::new(SHIPPED_MODELS).list(|from| {
            let names = from.list(|from| from.text().map(str::to_owned))?;
            Some((names, from.bytes()?.to_vec()))
        });
        for (names, model) in shipped.unwrap_or_default() {
            put(names, model);
        }
        let own = user
            .iter()
            .map(|file| (file.name.as_str(), file.text.as_str()));
        for tool in tools::load(own).map_err(|error| model_error(&error, user))? {
            put(tool.all_names().cloned().collect(), codec::encode(&tool));
        }
        Ok(Self { models })
    }
}

impl Models for Shelf {
    fn tool(&self, name: &[u8]) -> Option<Tool> {
        codec::decode(self.models.get(std::str::from_utf8(name).ok()?)?)
    }
}

fn model_error(error: &tools::ToolError, files: &[SourceFile]) -> LoadError {
    let at = error.place();
    let source = files.iter().find(|file| file.name == at.file).cloned();
    let source = Arc::new(source.unwrap_or_else(|| SourceFile {
        name: at.file.clone(),
        path: None,
        text: String::new(),
    }));
    let skip = usize::try_from(at.line.saturating_sub(1)).unwrap_or(0);
    let line: usize = source
        .text
        .split_inclusive('\n')
        .take(skip)
        .map(str::len)
        .sum();
    let column = usize::try_from(at.column.saturating_sub(1)).unwrap_or(0);
    let start = (line + column).min(source.text.len());
    let start = (0..=start)
        .rev()
        .find(|at| source.text.is_char_boundary(*at))
        .unwrap_or(0);
    let message = error.to_string();
    let message = message
        .strip_prefix(&format!("{at}: "))
        .unwrap_or(&message)
        .to_owned();
    LoadError::one(Problem {
        place: source.place(start..start),
        message,
        hint: Some("docs/tools.md describes tool models".to_owned()),
    })
}

fn fingerprint(files: &[Arc<SourceFile>]) -> String {
    let mut all = Vec::new();
    for file in files {
        all.extend_from_slice(&(file.text.len() as u64).to_le_bytes());
        all.extend_from_slice(file.text.as_bytes());
    }
    substrate_trace::sha256_hex(&all)
}

fn encode(document: &Document, models: &Shelf) -> Parts {
    let coded = |value: &dyn Fn(&mut Encoder)| {
        let mut encoder = Encoder::new();
        value(&mut encoder);
        encoder.finish()
    };
    let rules: Vec<_> = document
        .rules
        .iter()
        .map(|(rule, _)| rule.clone())
        .collect();
    let tools = models
        .models
        .iter()
        .map(|(name, model)| (name.clone().into_bytes(), model.clone()))
        .collect();
    Parts {
        stamp: Vec::new(),
        settings: coded(&|to| document.settings.put(to)),
        effects: coded(&|to| document.effects.put(to)),
        rules: RuleTable::encode(&rules),
        tools,
        full: coded(&|to| document.details.put(to)),
    }
}

/// Runs the examples that rules carry; a wrong one is an error of the policy.
fn try_examples(document: &Document, parts: &Parts) -> Result<(), LoadError> {
    if document
        .rules
        .iter()
        .all(|(_, Examples { matching, others })| matching.is_empty() && others.is_empty())
    {
        return Ok(());
    }
    let bytes: Arc<Vec<u8>> = Arc::new(parts.seal());
    let Ok(policy) = Policy::open(bytes) else {
        return Ok(());
    };
    let facts = Given {
        cwd: b"/project".to_vec(),
        home: Some(b"/home/user".to_vec()),
        project: Some(b"/project".to_vec()),
        ..Given::default()
    };
    let context = Context::new(&policy);
    let mut problems = Vec::new();
    for (rule, examples) in &document.rules {
        let hits = |line: &str| {
            let line = analyse(line.as_bytes(), &context);
            let list = List::ALL
                .into_iter()
                .find(|list| list.number() == rule.list)
                .map_or("", List::name);
            judge(&policy, &line, &facts).reasons.iter().any(|reason| {
                reason.rule.list == list
                    && reason.rule.line == rule.line
                    && *reason.rule.file.as_os_str() == *rule.file
            })
        };
        for (nodes, expected) in [(&examples.matching, true), (&examples.others, false)] {
            for node in nodes {
                let line = node.text().unwrap_or_default();
                if hits(line) != expected {
                    let verb = if expected {
                        "does not match"
                    } else {
                        "matches"
                    };
                    let message =
                        format!("the rule `{}` {verb} its example `{line}`", rule.pattern);
                    problems.push(Problem {
                        place: node.place.clone(),
                        message,
                        hint: None,
                    });
                }
            }
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(LoadError { problems })
    }
}
