//! The server as clients meet it: the same script in four formats, streamed and not.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use substrate_model_script::{Answer, Conversation, Options, Script, Server, Usage};

fn start(answers: Vec<Answer>) -> Server {
    Server::start(Script::of(answers), &Options::default()).unwrap()
}

fn post(server: &Server, path: &str, body: &Value) -> (String, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut stream = BufReader::new(stream);
    let (mut head, mut chunked, mut length) = (String::new(), false, 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        chunked |= line.starts_with("transfer-encoding");
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    if !chunked {
        let mut text = vec![0; length];
        stream.read_exact(&mut text).unwrap();
        return (head, String::from_utf8(text).unwrap());
    }
    let mut text = String::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).unwrap_or(0) == 0 {
            return (head, text);
        }
        let size = usize::from_str_radix(line.trim(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        stream.read_exact(&mut chunk).unwrap();
        if size == 0 {
            return (head, text);
        }
        text.push_str(std::str::from_utf8(&chunk[..size]).unwrap());
    }
}

fn whole(server: &Server, path: &str, body: &Value) -> Value {
    serde_json::from_str(&post(server, path, body).1).unwrap()
}

#[test]
fn messages_call_the_tool_and_then_speak() {
    let server = start(vec![Answer::shell("id"), Answer::text("that is all")]);
    let tools = json!([{ "name": "Bash" }]);
    let user = json!({ "role": "user", "content": "go" });
    let mut body = json!({ "model": "m", "tools": tools, "messages": [user] });
    let first = whole(&server, "/v1/messages?beta=true", &body);
    assert_eq!(first["stop_reason"], "tool_use");
    assert_eq!(first["content"][0]["input"]["command"], "id");

    body["messages"] = json!([
        user,
        { "role": "assistant", "content": first["content"] },
        { "role": "user", "content": [{ "type": "tool_result", "content": "uid=0" }] },
    ]);
    body["stream"] = json!(true);
    let (_, events) = post(&server, "/v1/messages", &body);
    assert!(events.contains("event: message_start\n"), "{events}");
    assert!(events.contains("\"text\":\"that \"") && events.contains("\"text\":\"is all\""));
    assert!(events.contains("message_stop"), "{events}");

    let requests = server.requests();
    assert_eq!(requests[0]["step"], 0);
    assert_eq!(requests[1]["step"], 1);
    assert_eq!(requests[0]["body"]["messages"][0]["content"], "go");
}

#[test]
fn responses_take_functions_and_free_texts() {
    let patch = Answer::call("apply_patch", json!("*** Begin Patch"));
    let server = start(vec![Answer::shell("id"), patch]);
    let tools = json!([{ "type": "function", "name": "exec_command" }, { "type": "custom", "name": "apply_patch" }]);
    let user = json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "go" }] });
    let mut body = json!({ "model": "m", "tools": tools, "input": [user] });
    let first = whole(&server, "/v1/responses", &body);
    let call = &first["output"][0];
    assert_eq!(call["type"], "function_call");
    assert_eq!(call["arguments"], "{\"cmd\":\"id\"}");

    body["input"] = json!([user, call, { "type": "function_call_output", "call_id": call["call_id"], "output": "x" }]);
    body["stream"] = json!(true);
    let (_, events) = post(&server, "/v1/responses", &body);
    assert!(events.contains("\"type\":\"custom_tool_call\""), "{events}");
    assert!(events.contains("event: response.completed"), "{events}");
}

#[test]
fn chat_and_gemini_answer_too() {
    let server = start(vec![Answer::shell("id")]);
    let tools = json!([{ "type": "function", "function": { "name": "bash" } }]);
    let body = json!({ "model": "m", "stream": true, "tools": tools, "messages": [{ "role": "user", "content": "go" }] });
    let (_, events) = post(&server, "/v1/chat/completions", &body);
    assert!(
        events.contains("tool_calls") && events.ends_with("data: [DONE]\n\n"),
        "{events}"
    );

    let tools = json!([{ "functionDeclarations": [{ "name": "run_shell_command" }] }]);
    let body =
        json!({ "tools": tools, "contents": [{ "role": "user", "parts": [{ "text": "go" }] }] });
    let (_, events) = post(&server, "/v1beta/models/g:streamGenerateContent", &body);
    let data = events.strip_prefix("data: ").unwrap();
    let answer: Value = serde_json::from_str(data.trim()).unwrap();
    let call = &answer["candidates"][0]["content"]["parts"][0]["functionCall"];
    assert_eq!(call["name"], "run_shell_command");
}

#[test]
fn conversations_are_told_apart_and_errands_take_nothing() {
    let conversation = |prompt: &str, line: &str| Conversation {
        prompt: prompt.to_owned(),
        answers: vec![Answer::shell(line)],
    };
    let script = Script {
        conversations: vec![conversation("child", "inner"), conversation("", "outer")],
    };
    let server = Server::start(script, &Options::default()).unwrap();
    let ask = |prompt: &str, tools: Value| {
        let body = json!({ "tools": tools, "messages": [{ "role": "user", "content": prompt }] });
        whole(&server, "/v1/messages", &body)
    };
    let bash = json!([{ "name": "Bash" }]);
    let line = |answer: Value| answer["content"][0]["input"]["command"].clone();
    assert_eq!(line(ask("you are a child", bash.clone())), "inner");
    assert_eq!(line(ask("hello", bash)), "outer");
    assert_eq!(ask("name this", json!([]))["content"][0]["text"], "done");
}

#[test]
fn faults_costs_and_the_log_are_as_scripted() {
    let top = tempfile::tempdir().unwrap();
    let log = top.path().join("log");
    let failing = Answer {
        status: Some(529),
        ..Answer::default()
    };
    let cut = Answer {
        cut: true,
        ..Answer::text("never whole")
    };
    let costly = Answer {
        usage: Some(Usage {
            input: 7,
            output: 9,
        }),
        ..Answer::text("dear")
    };
    let conversations = [("fail", failing), ("cut", cut), ("cost", costly)];
    let conversations = conversations.map(|(prompt, answer)| Conversation {
        prompt: prompt.to_owned(),
        answers: vec![answer],
    });
    let script = Script {
        conversations: conversations.into(),
    };
    let options = Options {
        log: Some(log.clone()),
        ..Options::default()
    };
    let server = Server::start(script, &options).unwrap();
    let body = |prompt: &str| json!({ "stream": prompt == "cut", "messages": [{ "role": "user", "content": prompt }] });
    let (head, _) = post(&server, "/v1/messages", &body("fail"));
    assert!(head.starts_with("HTTP/1.1 529"), "{head}");
    let (_, events) = post(&server, "/v1/messages", &body("cut"));
    assert!(
        events.contains("message_start") && !events.contains("message_stop"),
        "{events}"
    );
    let dear = whole(&server, "/v1/messages", &body("cost"));
    assert_eq!(
        dear["usage"],
        json!({ "input_tokens": 7, "output_tokens": 9 })
    );
    let count = whole(&server, "/v1/messages/count_tokens", &body("12345678"));
    assert!(count["input_tokens"].as_u64().unwrap() > 2);
    let lines = std::fs::read_to_string(log).unwrap();
    assert_eq!(lines.lines().count(), 4);
}
