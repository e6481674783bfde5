//! `substrate agent mock`: a client that does what a file says, for trying out how agents are held.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use substrate_runtime::supervise::Ending;

use crate::failure::Failure;
use crate::out;

/// Carries out the lines of a file, or asks its model what it is to do.
pub fn run(goal: Option<String>, script: Option<PathBuf>) -> Result<Ending, Failure> {
    let lines = match (&script, goal) {
        (Some(path), _) => fs::read_to_string(path).map_err(|error| Failure::File {
            what: path.display().to_string(),
            error,
        })?,
        (None, Some(goal)) => format!("ask {}", goal.replace('\n', " ")),
        (None, None) => {
            return Err(Failure::Usage("a script or --goal is expected".to_owned()));
        }
    };
    let mut failed = false;
    for line in lines
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "say" => out::print(&format!("{rest}\n"))?,
            "run" => {
                // What is refused is told and gone on from, as clients do.
                let told = match Command::new("sh").args(["-c", rest]).status() {
                    Ok(status) => status.code().unwrap_or(-1).to_string(),
                    Err(error) => error.to_string(),
                };
                out::print(&format!("[{told}]\n"))?;
            }
            "ask" => {
                let (fine, answer) = ask(rest).unwrap_or_else(|error| (false, error.to_string()));
                failed |= !fine;
                out::print(&format!("{answer}\n"))?;
            }
            other => {
                let text = format!("`{other}`: a line says, runs or asks something");
                return Err(Failure::Usage(text));
            }
        }
    }
    Ok(Ending::Exit(i32::from(failed)))
}

/// Asks the model at the base URL, as a client does, and gives its text or its error.
fn ask(text: &str) -> io::Result<(bool, String)> {
    let url = std::env::var("MOCK_BASE_URL").unwrap_or_default();
    let authority = url
        .strip_prefix("http://")
        .unwrap_or(&url)
        .trim_end_matches('/');
    let key = std::env::var("MOCK_API_KEY").unwrap_or_default();
    let body = json!({"model": "mock-1", "max_tokens": 100,
        "messages": [{"role": "user", "content": text}]});
    let body = body.to_string();
    let mut stream = TcpStream::connect(authority)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(
        stream,
        "POST /v1/messages HTTP/1.1\r\nhost: {authority}\r\nx-api-key: {key}\r\n\
         content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let said = value
        .pointer("/content/0/text")
        .or_else(|| value.pointer("/error/message"));
    let said = said.and_then(Value::as_str).unwrap_or(body);
    Ok((head.starts_with("HTTP/1.1 200"), said.to_owned()))
}
