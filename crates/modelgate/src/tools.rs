//! What a request asks the provider to do in the client's place: to fetch, to search live, to call other
//! servers, to use files that lie there. A way out of a world that no gate of the world sees.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::config::Reach;
use crate::wire::Wire;

/// How deep a request may nest; providers take less.
const DEEPEST: usize = 200;

/// Everything of that kind in the body of a request. Names of keys are compared without case and
/// underscores, as some providers read them.
pub fn reaches(body: &Value, wire: Wire) -> BTreeSet<Reach> {
    let mut found = Found {
        wire,
        reaches: BTreeSet::new(),
    };
    walk(body, 0, &mut found);
    found.reaches
}

/// What was found, and in whose language.
struct Found {
    wire: Wire,
    reaches: BTreeSet<Reach>,
}

impl Found {
    fn insert(&mut self, reach: Reach) -> bool {
        self.reaches.insert(reach)
    }

    fn len(&self) -> usize {
        self.reaches.len()
    }
}

fn walk(value: &Value, depth: usize, found: &mut Found) {
    if depth > DEEPEST {
        found.insert(Reach::Anywhere("a request that nests too deep".to_owned()));
        return;
    }
    match value {
        Value::Array(all) => all.iter().for_each(|one| walk(one, depth + 1, found)),
        Value::Object(object) => walk_object(object, depth, found),
        _ => {}
    }
}

fn walk_object(object: &Map<String, Value>, depth: usize, found: &mut Found) {
    said_twice(object, found);
    for (key, value) in object {
        let name = folded(key);
        match (name.as_str(), value) {
            ("tools" | "tool", value) => tools(value, depth + 1, found),
            ("mcpservers", value) => servers(value, found),
            ("websearchoptions", value) if !value.is_null() => {
                found.insert(Reach::Anywhere("web_search".to_owned()));
            }
            ("fileid" | "cachedcontent" | "connectorid" | "vectorstoreids" | "fileids", value)
                if !is_empty(value) =>
            {
                found.insert(Reach::Stored(key.clone()));
            }
            // What a model or a tool of the client said: data, which nobody follows.
            _ if is_data(object, &name) => {}
            (_, Value::String(text)) if is_place(&name) => address(text, found),
            (_, value) => walk(value, depth + 1, found),
        }
    }
}

/// Two keys that are one to whoever reads without case and underscores: which of them counts nobody knows here.
fn said_twice(object: &Map<String, Value>, found: &mut Found) {
    let mut names: Vec<String> = object.keys().map(|key| folded(key)).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        found.insert(Reach::Anywhere(format!("{} said twice", pair[0])));
    }
}

/// Lower case, without what some write between words.
fn folded(key: &str) -> String {
    let letters = key.chars().filter(|letter| !matches!(letter, '_' | '-'));
    letters.flat_map(char::to_lowercase).collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => false,
    }
}

/// Keys whose values are followed when they are addresses.
fn is_place(name: &str) -> bool {
    name.ends_with("url") || name.ends_with("uri") || name == "url"
}

/// The arguments and results of calls that the client carries out itself.
fn is_data(object: &Map<String, Value>, name: &str) -> bool {
    let kind = object.get("type").and_then(Value::as_str).unwrap_or("");
    match name {
        "input" => matches!(kind, "tool_use" | "server_tool_use" | "mcp_tool_use"),
        "arguments" => true,
        "args" | "response" => object.contains_key("name"),
        _ => false,
    }
}

/// An address that a provider is to follow; one of the content itself (`data:`) leads nowhere.
fn address(text: &str, found: &mut Found) {
    let text =
        text.trim_start_matches(|letter: char| letter.is_whitespace() || letter.is_control());
    let Some((scheme, rest)) = text.split_once(':') else {
        return;
    };
    let scheme = scheme.to_ascii_lowercase();
    if scheme == "data" {
        return;
    }
    let authority = rest.trim_start_matches(['/', '\\']);
    let end = authority
        .find(['/', '\\', '?', '#'])
        .unwrap_or(authority.len());
    let authority = authority[..end].rsplit('@').next().unwrap_or_default();
    let port = if scheme == "http" { 80 } else { 443 };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, written)) if !written.contains(']') => (host, written.parse().unwrap_or(port)),
        _ => (authority, port),
    };
    let host = host.trim_matches(['[', ']']).trim_end_matches('.');
    found.insert(match (scheme.as_str(), host) {
        ("http" | "https" | "ws" | "wss", host) if !host.is_empty() => {
            Reach::Host(host.to_ascii_lowercase(), port)
        }
        _ => Reach::Stored(format!("{scheme}:")),
    });
}

/// Remote MCP servers.
fn servers(value: &Value, found: &mut Found) {
    let before = found.len();
    walk(value, 0, found);
    if found.len() == before && !is_empty(value) {
        found.insert(Reach::Anywhere("mcp_servers".to_owned()));
    }
}

/// Declarations of tools: those of the client, and those that the provider runs.
fn tools(value: &Value, depth: usize, found: &mut Found) {
    match value {
        Value::Array(all) if depth <= DEEPEST => {
            all.iter().for_each(|one| tools(one, depth + 1, found));
        }
        Value::Object(tool) => one_tool(tool, found),
        Value::Null => {}
        _ => {
            found.insert(Reach::Anywhere("tools".to_owned()));
        }
    }
}

/// Types of tools that only tell the client what to do, or that have no way out of the provider.
const OWN: [&str; 18] = [
    "function",
    "custom",
    "namespace",
    "localshell",
    "shell",
    "applypatch",
    "bash",
    "texteditor",
    "computer",
    "computerusepreview",
    "memory",
    "imagegeneration",
    "codeexecution",
    "codeinterpreter",
    "toolsearch",
    "toolsearchtoolregex",
    "toolsearchtoolbm25",
    "mcptoolset",
];

/// Keys of Gemini's tools with the same property.
const OWN_KEYS: [&str; 5] = [
    "functiondeclarations",
    "codeexecution",
    "computeruse",
    "googlesearch",
    "googlesearchretrieval",
];

/// Those of them that run at the provider, or may: what they are given leads out.
const AT_THE_PROVIDER: [&str; 6] = [
    "shell",
    "codeexecution",
    "codeinterpreter",
    "computer",
    "computerusepreview",
    "imagegeneration",
];

/// Whether a setting of such a tool opens a way out: a network, or an environment that is not the client's.
fn opens_a_way(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(all) => depth > DEEPEST || all.iter().any(|one| opens_a_way(one, depth + 1)),
        Value::Object(object) => object.iter().any(|(key, value)| {
            let name = folded(key);
            let network = ["network", "internet", "domain", "allowlist"];
            let other_place =
                name == "environment" && value.get("type").and_then(Value::as_str) != Some("local");
            !is_empty(value)
                && (depth > DEEPEST
                    || other_place
                    || network.iter().any(|word| name.contains(word))
                    || opens_a_way(value, depth + 1))
        }),
        _ => false,
    }
}

fn one_tool(tool: &Map<String, Value>, found: &mut Found) {
    said_twice(tool, found);
    let text = |wanted: &str| {
        let pair = tool.iter().find(|(key, _)| folded(key) == wanted);
        pair.and_then(|(_, value)| value.as_str())
    };
    let Some(kind) = text("type") else {
        return without_type(tool, found);
    };
    // `bash_20250124` is `bash`.
    let name =
        folded(kind.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '_'));
    if OWN.contains(&name.as_str()) {
        // A code interpreter may be given files, and a namespace has tools of its own.
        if let Some(container) = tool.get("container") {
            walk(container, 0, found);
        }
        if let Some(inner) = tool.get("tools") {
            tools(inner, 1, found);
        }
        let at_the_provider = AT_THE_PROVIDER.contains(&name.as_str());
        if at_the_provider && opens_a_way(&Value::Object(tool.clone()), 0) {
            found.insert(Reach::Anywhere(kind.to_owned()));
        }
        return;
    }
    match (name.as_str(), text("serverurl")) {
        ("mcp", Some(url)) => return address(url, found),
        // An index that lies at the provider, from which nothing is fetched for the model.
        ("websearch" | "websearchpreview", _) if stays(tool, found.wire) => return,
        _ => {}
    }
    // Of other tools nobody knows whether they keep to a list.
    let domains = match name.starts_with("websearch") || name.starts_with("webfetch") {
        true => domains(tool),
        false => Vec::new(),
    };
    match domains.is_empty() {
        true => found.insert(Reach::Anywhere(kind.to_owned())),
        false => domains.into_iter().all(|domain| found.insert(domain)),
    };
}

/// Tools of Anthropic's and Gemini's without a `type`: what the client declares, or keys by name.
fn without_type(tool: &Map<String, Value>, found: &mut Found) {
    let declared = tool.contains_key("name") && tool.contains_key("input_schema");
    if declared {
        return;
    }
    for (key, value) in tool {
        let name = folded(key);
        if !OWN_KEYS.contains(&name.as_str()) && !is_empty_setting(value) {
            match name.as_str() {
                "mcpservers" => servers(value, found),
                _ => {
                    found.insert(Reach::Anywhere(key.clone()));
                }
            }
        }
    }
}

/// `urlContext: {}` switches a tool on; only what is absent is off.
fn is_empty_setting(value: &Value) -> bool {
    value.is_null()
}

/// A search whose pages are not fetched: it says so, or it is the kind that has no way to.
fn stays(tool: &Map<String, Value>, wire: Wire) -> bool {
    match tool.get("external_web_access") {
        Some(live) => live == &Value::Bool(false),
        None => wire == Wire::Anthropic && tool.contains_key("name"),
    }
}

/// The only domains that a tool is allowed to reach.
fn domains(tool: &Map<String, Value>) -> Vec<Reach> {
    let filters = tool.get("filters").and_then(Value::as_object);
    let listed = tool.get("allowed_domains");
    let listed = listed.or_else(|| filters.and_then(|filters| filters.get("allowed_domains")));
    let listed = listed.and_then(Value::as_array).into_iter().flatten();
    let host = |entry: &Value| {
        let entry = entry.as_str()?;
        let host = entry.split('/').next().unwrap_or_default();
        Some(Reach::Host(host.to_ascii_lowercase(), 443))
    };
    listed.filter_map(host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(body: Value) -> Vec<String> {
        let found = reaches(&body, Wire::Anthropic);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_the_provider_would_fetch_is_found() {
        let host = "evil.example:443, fetched by the provider";
        for body in [
            json!({"messages": [{"content": [{"type": "image",
                "source": {"type": "url", "url": "https://evil.example/x?leak"}}]}]}),
            json!({"messages": [{"content": [{"type": "tool_result", "content": [{"type": "document",
                "source": {"type": "url", "URL": "https://evil.example/"}}]}]}]}),
            json!({"messages": [{"content": [{"image_url": {"url": " HTTPS://evil.example"}}]}]}),
            json!({"input": [{"content": [{"type": "input_image", "image_url": "https://u@evil.example:443/"}]}]}),
            json!({"input": [{"content": [{"type": "input_file", "file_url": "https:\\\\evil.example."}]}]}),
            json!({"contents": [{"parts": [{"fileData": {"fileUri": "https://evil.example/v"}}]}]}),
            json!({"contents": [{"parts": [{"file_data": {"file_uri": "https://evil.example/v"}}]}]}),
            json!({"mcp_servers": [{"type": "url", "url": "https://evil.example/mcp"}]}),
            json!({"tools": [{"type": "mcp", "server_url": "https://evil.example/mcp"}]}),
            json!({"tools": [{"mcpServers": [{"streamableHttpTransport": {"url": "https://evil.example"}}]}]}),
            json!({"tools": [{"type": "web_fetch_20250910", "name": "web_fetch",
                "allowed_domains": ["evil.example/sub"]}]}),
            json!({"tools": [{"type": "web_search", "filters": {"allowed_domains": ["evil.example"]}}]}),
        ] {
            assert_eq!(found(body.clone()), [host], "{body}");
        }
    }

    #[test]
    fn tools_that_reach_anywhere_are_found() {
        for (tool, name) in [
            (
                json!({"type": "web_fetch_20250910", "name": "web_fetch"}),
                "web_fetch_20250910",
            ),
            (json!({"type": "web_search"}), "web_search"),
            (
                json!({"type": "web_search", "external_web_access": true}),
                "web_search",
            ),
            (json!({"type": "a_new_thing"}), "a_new_thing"),
            (json!({"urlContext": {}}), "urlContext"),
            (json!({"url_context": {}}), "url_context"),
            (json!({"googleMaps": {}}), "googleMaps"),
            (json!({"type": "file_search"}), "file_search"),
            (json!("web_fetch"), "tools"),
        ] {
            let any = format!("any host, by the provider's `{name}`");
            assert_eq!(
                found(json!({"tools": [tool.clone()]})),
                std::slice::from_ref(&any),
                "{tool}"
            );
            assert_eq!(found(json!({"Tools": tool.clone()})), [any], "{tool}");
        }
        let nested = (0..300).fold(json!("x"), |inner, _| json!([inner]));
        assert_eq!(found(nested).len(), 1);
    }

    #[test]
    fn what_reads_two_ways_or_speaks_for_itself_is_a_way_out() {
        for tool in [
            json!({"Type": "function", "type": "mcp", "server_url": "https://evil.example"}),
            json!({"type": "mcp", "ServerUrl": "https://good.example/", "server_url": "https://evil.example"}),
            json!({"type": "mcp", "connector": 1, "allowed_domains": ["good.example"]}),
            json!({"type": "file_search", "allowed_domains": ["good.example"]}),
            json!({"type": "invented", "url": "https://evil.example", "allowed_domains": ["good.example"]}),
            json!({"type": "shell", "environment": {"type": "container_auto",
                "network_policy": {"type": "allowlist", "allowed_domains": ["evil.example"]}}}),
            json!({"type": "code_interpreter", "container": {"type": "auto",
                "network_policy": {"allowed_domains": ["evil.example"]}}}),
        ] {
            let found = found(json!({"tools": [tool.clone()]}));
            assert!(
                found.iter().any(|one| one.starts_with("any host")),
                "{tool}: {found:?}"
            );
        }
        let search = json!({"tools": [{"type": "web_search", "name": "x"}]});
        assert!(reaches(&search, Wire::Anthropic).is_empty());
        assert!(!reaches(&search, Wire::Openai).is_empty());
        let plain = json!({"tools": [{"type": "shell"}, {"type": "shell", "environment": {"type": "local"}},
            {"type": "code_interpreter", "container": {"type": "auto"}},
            {"type": "function", "name": "f", "parameters": {"properties": {"network": {"type": "string"}}}}]});
        assert_eq!(found(plain), Vec::<String>::new());
    }

    #[test]
    fn what_lies_at_the_provider_is_found() {
        for body in [
            json!({"messages": [{"content": [{"source": {"type": "file", "file_id": "f1"}}]}]}),
            json!({"cachedContent": "cachedContents/1"}),
            json!({"tools": [{"type": "code_interpreter", "container": {"file_ids": ["f"]}}]}),
            json!({"contents": [{"parts": [{"fileData": {"fileUri": "gs://bucket/x"}}]}]}),
        ] {
            assert!(found(body.clone())[0].contains("at the provider"), "{body}");
        }
    }

    #[test]
    fn what_the_client_does_itself_is_nobody_elses() {
        for body in [
            json!({"tools": [{"name": "Fetch", "input_schema": {"properties": {"url": {"default": "https://x"}}}}],
                "messages": [{"content": [
                    {"type": "text", "text": "see https://example.com"},
                    {"type": "tool_use", "input": {"url": "https://example.com"}},
                    {"type": "image", "source": {"type": "base64", "data": "aGk="}}]}]}),
            json!({"tools": [{"type": "function", "name": "f", "parameters": {"url": "https://x"}},
                {"type": "web_search", "external_web_access": false},
                {"type": "bash_20250124", "name": "bash"},
                {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
                "input": [{"type": "function_call", "arguments": "{\"url\":\"https://x\"}"},
                    {"content": [{"type": "input_image", "image_url": "data:image/png;base64,aGk="}]}]}),
            json!({"tools": [{"functionDeclarations": [{"name": "f", "parameters": {"url": "https://x"}}]},
                {"googleSearch": {}}],
                "contents": [{"parts": [{"functionCall": {"name": "f", "args": {"url": "https://x"}}},
                    {"functionResponse": {"name": "f", "response": {"url": "https://x"}}}]}]}),
        ] {
            assert_eq!(found(body.clone()), Vec::<String>::new(), "{body}");
        }
    }
}
