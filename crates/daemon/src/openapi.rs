//! The description of the API, made from its types.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use substrate_api::approvals::{Answer, Answered, WaitingList};
use substrate_api::errors::ErrorBody;
use substrate_api::execute::{ExecuteRequest, ExecuteResponse, Pending};
use substrate_api::explain::ExplainRequest;
use substrate_api::service::{Agents, Capabilities, Ended, Status, World, WorldRequest, Worlds};
use substrate_api::stream::{Control, Open, Told};

type Of = fn(&mut SchemaGenerator) -> Schema;

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Something that can be asked for.
struct Operation {
    method: &'static str,
    path: &'static str,
    name: &'static str,
    summary: &'static str,
    request: Option<Of>,
    answers: &'static [(&'static str, &'static str, Option<Of>)],
    query: &'static [(&'static str, &'static str, &'static str)],
}

const NO_QUERY: &[(&str, &str, &str)] = &[];

/// All of it. The router answers the same; a test compares.
const OPERATIONS: &[Operation] = &[
    Operation {
        method: "get",
        path: "/v1/capabilities",
        name: "capabilities",
        summary: "What there is, and its limits.",
        request: None,
        answers: &[("200", "What there is.", Some(of::<Capabilities>))],
        query: NO_QUERY,
    },
    Operation {
        method: "get",
        path: "/v1/status",
        name: "status",
        summary: "How the service is.",
        request: None,
        answers: &[("200", "How it is.", Some(of::<Status>))],
        query: NO_QUERY,
    },
    Operation {
        method: "get",
        path: "/v1/openapi.json",
        name: "openapi",
        summary: "This description.",
        request: None,
        answers: &[("200", "It.", None)],
        query: NO_QUERY,
    },
    Operation {
        method: "post",
        path: "/v1/execute",
        name: "execute",
        summary: "Run a command: judged, contained and recorded as everywhere. What is refused is an answer with exit 126.",
        request: Some(of::<ExecuteRequest>),
        answers: &[
            ("200", "What came of it.", Some(of::<ExecuteResponse>)),
            (
                "202",
                "A person has to be asked first, and the client wants to come back.",
                Some(of::<Pending>),
            ),
        ],
        query: NO_QUERY,
    },
    Operation {
        method: "post",
        path: "/v1/explain",
        name: "explain",
        summary: "What would become of a command: the document of `substrate policy explain --json`. Nothing runs.",
        request: Some(of::<ExplainRequest>),
        answers: &[("200", "Verdict, reasons, commands and their effects.", None)],
        query: NO_QUERY,
    },
    Operation {
        method: "get",
        path: "/v1/attempts/{id}",
        name: "attempt",
        summary: "What became of a command.",
        request: None,
        answers: &[
            ("200", "What came of it.", Some(of::<ExecuteResponse>)),
            ("202", "It is not over.", Some(of::<Pending>)),
        ],
        query: NO_QUERY,
    },
    Operation {
        method: "delete",
        path: "/v1/attempts/{id}",
        name: "abandon",
        summary: "End a command.",
        request: None,
        answers: &[("202", "It is being ended.", Some(of::<Pending>))],
        query: NO_QUERY,
    },
    Operation {
        method: "get",
        path: "/v1/stream",
        name: "stream",
        summary: "A command on a terminal, over a WebSocket: binary frames are its bytes, text frames the documents Open (first), Control and Told.",
        request: None,
        answers: &[("101", "Go on as a WebSocket.", None)],
        query: &[
            (
                "agent_id",
                "string",
                "Who acts, where the command is named here.",
            ),
            (
                "cmd",
                "string",
                "The command; without it the first text frame is the document Open.",
            ),
            ("cwd", "string", "Where it runs."),
            ("rows", "integer", "Rows of the terminal."),
            ("columns", "integer", "Columns of the terminal."),
            ("terminal", "string", "Come back to this terminal instead."),
            ("since", "integer", "And go on from this offset."),
        ],
    },
    Operation {
        method: "get",
        path: "/v1/trace/{span}",
        name: "trace",
        summary: "The events of a span.",
        request: None,
        answers: &[("200", "They, as they stand in the trace.", None)],
        query: NO_QUERY,
    },
    Operation {
        method: "get",
        path: "/v1/events",
        name: "events",
        summary: "Events as they are written, as server-sent events; Last-Event-ID resumes.",
        request: None,
        answers: &[("200", "A stream that does not end.", None)],
        query: NO_QUERY,
    },
    Operation {
        method: "get",
        path: "/v1/agents",
        name: "agents",
        summary: "Who acted, and what they used.",
        request: None,
        answers: &[("200", "They.", Some(of::<Agents>))],
        query: NO_QUERY,
    },
    Operation {
        method: "get",
        path: "/v1/approvals",
        name: "approvals",
        summary: "Questions that wait for a person.",
        request: None,
        answers: &[("200", "They.", Some(of::<WaitingList>))],
        query: NO_QUERY,
    },
    Operation {
        method: "post",
        path: "/v1/approvals/{id}",
        name: "answer",
        summary: "Answer one. What a session encloses cannot; a client can for once; a person at a terminal for longer.",
        request: Some(of::<Answer>),
        answers: &[("200", "It is answered.", Some(of::<Answered>))],
        query: NO_QUERY,
    },
    Operation {
        method: "get",
        path: "/v1/worlds",
        name: "worlds",
        summary: "The worlds that are kept.",
        request: None,
        answers: &[("200", "They.", Some(of::<Worlds>))],
        query: NO_QUERY,
    },
    Operation {
        method: "post",
        path: "/v1/worlds/warm",
        name: "warm",
        summary: "Make the world of a session before it is needed.",
        request: Some(of::<WorldRequest>),
        answers: &[("200", "It.", Some(of::<World>))],
        query: NO_QUERY,
    },
    Operation {
        method: "post",
        path: "/v1/worlds/restart",
        name: "restart",
        summary: "End worlds in which nothing runs; the next command makes new ones.",
        request: Some(of::<WorldRequest>),
        answers: &[("200", "They were ended.", Some(of::<Ended>))],
        query: NO_QUERY,
    },
    Operation {
        method: "get",
        path: "/v1/results",
        name: "results",
        summary: "What isolated commands left, waiting for a person.",
        request: None,
        answers: &[("200", "It.", None)],
        query: NO_QUERY,
    },
    Operation {
        method: "get",
        path: "/v1/results/{id}",
        name: "result",
        summary: "What a result changes.",
        request: None,
        answers: &[("200", "It.", None)],
        query: NO_QUERY,
    },
];

/// Methods and paths.
pub(crate) fn routes() -> Vec<String> {
    let one =
        |operation: &Operation| format!("{} {}", operation.method.to_uppercase(), operation.path);
    OPERATIONS.iter().map(one).collect()
}

/// The whole description.
pub(crate) fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    let error = of::<ErrorBody>(&mut generator);
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let described = describe(operation, &error, &mut generator);
        let at = paths.entry(operation.path).or_insert_with(|| json!({}));
        if let Some(at) = at.as_object_mut() {
            at.insert(operation.method.to_owned(), described);
        }
    }
    // Frames of the WebSocket, which paths do not name.
    for frame in [of::<Open> as Of, of::<Control>, of::<Told>] {
        frame(&mut generator);
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Substrate",
            "version": substrate_api::VERSION.to_string(),
            "description": "Commands that are judged, contained and recorded. On a unix socket; who connects is asked of the kernel."
        },
        "paths": paths,
        "components": { "schemas": schemas }
    })
}

fn describe(operation: &Operation, error: &Schema, generator: &mut SchemaGenerator) -> Value {
    let content = |schema: &Schema| json!({ "application/json": { "schema": schema } });
    let mut responses = Map::new();
    for (status, text, schema) in operation.answers {
        let mut answer = json!({ "description": text });
        if let (Some(of), Some(answer)) = (schema, answer.as_object_mut()) {
            answer.insert("content".to_owned(), content(&of(generator)));
        }
        responses.insert((*status).to_owned(), answer);
    }
    responses.insert(
        "default".to_owned(),
        json!({ "description": "What went wrong.", "content": content(error) }),
    );
    let mut described = json!({
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters(operation),
        "responses": responses,
    });
    if let (Some(of), Some(described)) = (operation.request, described.as_object_mut()) {
        let body = json!({ "required": true, "content": content(&of(generator)) });
        described.insert("requestBody".to_owned(), body);
    }
    described
}

fn parameters(operation: &Operation) -> Vec<Value> {
    let in_path = operation.path.split('/').filter_map(|part| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        let schema = json!({ "type": "string", "minLength": 1 });
        Some(json!({ "name": name, "in": "path", "required": true, "schema": schema }))
    });
    let in_query = operation.query.iter().map(|(name, kind, text)| {
        json!({ "name": name, "in": "query", "description": text, "schema": { "type": kind } })
    });
    in_path.chain(in_query).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_somewhere_and_every_name_is_its_own() {
        let document = document();
        let text = document.to_string();
        let mut at = 0;
        while let Some(found) = text[at..].find("#/components/schemas/") {
            let start = at + found + "#/components/schemas/".len();
            let end = start + text[start..].find('"').unwrap();
            let schemas = &document["components"]["schemas"];
            assert!(
                schemas.get(&text[start..end]).is_some(),
                "{}",
                &text[start..end]
            );
            at = end;
        }
        assert!(at > 0);
        let mut names: Vec<&str> = OPERATIONS.iter().map(|one| one.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OPERATIONS.len());
    }
}
