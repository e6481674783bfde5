//! One call, carried out by our own program: bounded, and ended when the client calls it off.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use substrate_broker::env::SUBSTRATE_AGENT_ID;
use substrate_sys::process_group;
use substrate_text::push_visible;

use super::kept::{Kept, cut};
use super::tools::Plan;

/// How much of a stream is kept for whoever reads on.
const KEPT: usize = 4 << 20;

/// How often a client that wants to hear of it is told that a call goes on.
const NEWS: Duration = Duration::from_secs(2);

/// A call that goes on.
#[derive(Debug, Clone, Default)]
pub struct Running {
    cancelled: Arc<AtomicBool>,
}

impl Running {
    /// Calls it off.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
    }

    /// Whether it was called off.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }
}

/// Carries a plan out and gives the result of the call.
pub fn carry_out(
    program: &Path,
    plan: Plan,
    agent: Option<String>,
    running: &Running,
    kept: &Kept,
    progress: &dyn Fn(u64),
) -> Value {
    let words = match plan {
        Plan::Start(words) => words,
        Plan::Rest { handle, offset } => return rest(kept, handle, offset),
    };
    match start(program, &words, agent, running, progress) {
        Ok(Ended {
            status,
            output,
            errors,
        }) => told(status, &output, &errors, kept),
        Err(error) => result(format!("it could not be started: {error}"), true),
    }
}

struct Ended {
    status: Option<i32>,
    output: Vec<u8>,
    errors: Vec<u8>,
}

fn start(
    program: &Path,
    words: &[String],
    agent: Option<String>,
    running: &Running,
    progress: &dyn Fn(u64),
) -> io::Result<Ended> {
    let mut command = Command::new(program);
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(agent) = agent.filter(|_| std::env::var_os(SUBSTRATE_AGENT_ID).is_none()) {
        command.env(SUBSTRATE_AGENT_ID, agent);
    }
    let mut child = command.spawn()?;
    let output = reader(child.stdout.take());
    let errors = reader(child.stderr.take());
    let status = wait(&mut child, running, progress)?;
    let collect = |thread: JoinHandle<Vec<u8>>| thread.join().unwrap_or_default();
    Ok(Ended {
        status,
        output: collect(output),
        errors: collect(errors),
    })
}

/// Waits for the end, which a call that is called off comes to soon.
fn wait(child: &mut Child, running: &Running, progress: &dyn Fn(u64)) -> io::Result<Option<i32>> {
    let begun = Instant::now();
    let (mut pause, mut told) = (Duration::from_micros(200), Duration::ZERO);
    loop {
        if let Some(status) = child.try_wait()? {
            let signal = status.signal().map(|signal| 128 + signal);
            return Ok(status.code().or(signal));
        }
        if running.is_cancelled() {
            end(child)?;
            return Ok(None);
        }
        if begun.elapsed() - told > NEWS {
            told = begun.elapsed();
            progress(told.as_secs());
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Ends a call: our program hands signals on, and what does not heed them is killed.
fn end(child: &mut Child) -> io::Result<()> {
    signal(child, process_group::signal::TERM);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    signal(child, process_group::signal::KILL);
    child.wait().map(drop)
}

fn signal(child: &Child, number: i32) {
    if let Ok(group) = i32::try_from(child.id()) {
        // It may have ended in between.
        let _ = process_group::send_group(group, number);
    }
}

/// Reads a stream to its end and keeps the beginning.
fn reader(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut kept = Vec::new();
        if let Some(mut stream) = stream {
            let limit = u64::try_from(KEPT).unwrap_or(u64::MAX);
            let read = stream.by_ref().take(limit).read_to_end(&mut kept);
            if read.is_ok() {
                // Whoever writes more must not wait for us.
                let _ = io::copy(&mut stream, &mut io::sink());
            }
        }
        kept
    })
}

fn told(status: Option<i32>, output: &[u8], errors: &[u8], kept: &Kept) -> Value {
    let mut text = String::new();
    for (name, bytes) in [("", output), ("stderr", errors)] {
        if bytes.is_empty() {
            continue;
        }
        if !name.is_empty() {
            text.push_str(&format!("\n[{name}]\n"));
        }
        let mut whole = String::new();
        push_visible(bytes, &['\n', '\t'], &mut whole);
        let (part, next) = cut(&whole, 0);
        text.push_str(part);
        if let Some(next) = next {
            let (length, handle) = (whole.len(), kept.keep(whole));
            text.push_str(&format!("\n[{next} of {length} bytes; `rest` with handle {handle} and offset {next} reads on]\n"));
        }
    }
    let status = status.map_or("unknown".to_owned(), |status| status.to_string());
    text.push_str(&format!("\n[exit {status}]"));
    result(text, status != "0")
}

fn rest(kept: &Kept, handle: u64, offset: usize) -> Value {
    match kept.part(handle, offset) {
        None => result("it is no longer there".to_owned(), true),
        Some((part, None)) => result(part, false),
        Some((part, Some(next))) => result(format!("{part}\n[offset {next} reads on]"), false),
    }
}

fn result(text: String, failed: bool) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "isError": failed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::kept::{MAX_KEPT, SHOWN};

    #[test]
    fn what_is_long_is_cut_and_can_be_read_on() {
        let kept = Kept::default();
        let text = "é".repeat(SHOWN);
        let answer = told(Some(0), text.as_bytes(), b"", &kept);
        let shown = answer["content"][0]["text"].as_str().unwrap();
        assert!(
            shown.len() < SHOWN + 200 && shown.contains("handle 1"),
            "{}",
            shown.len()
        );
        let mut all = String::new();
        let mut at = Some(0);
        while let Some(offset) = at {
            let (part, next) = kept.part(1, offset).unwrap();
            all.push_str(&part);
            at = next;
        }
        assert_eq!(all, text);
        for number in 0..MAX_KEPT {
            kept.keep(number.to_string());
        }
        assert!(!kept.has(1));
    }
}
