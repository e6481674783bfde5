//! `substrate policy explain`: what would become of a line.

use crate::asker::Asker;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use substrate_broker::explained::{self, verdict};
use substrate_broker::{Around, Broker, Explanation, Input, Moment, Origin, Request};
use substrate_command::{Effect, ToolCall};
use substrate_policy::Reason;
use substrate_sys::environment;
use substrate_text::visible;
use substrate_text::wire::Bytes;
use substrate_trace::Verdict;

use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::out;

/// Explains one line, or every line of standard input.
pub fn run(asker: &Asker, args: &ExplainArgs) -> Result<(), Failure> {
    let env = environment::raw();
    let here = asker.cwd()?;
    let cwd = args.cwd.as_ref().map_or(here.clone(), |cwd| here.join(cwd));
    let broker = asker.broker_at(args.policy.clone(), false, &cwd)?;
    let path = environment::get(&env, "PATH")
        .map(OsStr::from_bytes)
        .unwrap_or_default();
    if args.jsonl {
        return lines(&broker, &cwd, path);
    }
    let moment = Moment::default();
    let explanation = match &args.tool {
        Some(tool) => {
            let call = tool_call(tool, &args.effect).map_err(Failure::Usage)?;
            judge(&broker, Input::Tool(&call), &cwd, path, &moment)
        }
        None => {
            let line = args.line.clone().unwrap_or_default();
            explain(&broker, line.as_bytes(), &cwd, path, &moment)
        }
    };
    if args.json {
        let mut text = Vec::new();
        explained::write(&Map::new(), &explanation, &mut text)?;
        out::print(&String::from_utf8_lossy(&text))?;
    } else {
        out::print(&tree(&explanation, asker.colours()))?;
    }
    Ok(())
}

/// What would become of a line.
pub fn explain(
    broker: &Broker,
    line: &[u8],
    cwd: &Path,
    path: &OsStr,
    moment: &Moment,
) -> Explanation {
    judge(broker, Input::Line(line), cwd, path, moment)
}

fn judge(
    broker: &Broker,
    input: Input<'_>,
    cwd: &Path,
    path: &OsStr,
    moment: &Moment,
) -> Explanation {
    let request = Request {
        input,
        origin: Origin::OneShot,
        cwd,
        search_path: path,
        variables: &[],
        aliases: &[],
        isolate: false,
        around: Around::Nothing,
    };
    broker.explain(&request, moment)
}

/// A call by its name and its effects as text. With none given, nobody knows what it does.
fn tool_call(name: &str, effects: &[String]) -> Result<ToolCall, String> {
    let wrong = |text: &String| {
        format!(
            "`{text}` is not an effect; write for example write:/x, connect:HOST:443, write:remote"
        )
    };
    let read = |text: &String| Effect::parse(text).ok_or_else(|| wrong(text));
    Ok(ToolCall {
        name: name.to_owned(),
        effects: effects.iter().map(read).collect::<Result<_, _>>()?,
        known: !effects.is_empty(),
    })
}

fn lines(broker: &Broker, cwd: &Path, path: &OsStr) -> Result<(), Failure> {
    let mut output = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let mut input = std::io::BufReader::with_capacity(1 << 16, std::io::stdin().lock());
    let (mut line, mut text) = (Vec::new(), Vec::new());
    let moment = Moment::default();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        text.clear();
        answer(broker, &line, cwd, path, &moment, &mut text)?;
        match output.write_all(&text) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            result => result?,
        }
    }
    match output.flush() {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// Writes the answer to one line of input: its own fields, then ours.
fn answer(
    broker: &Broker,
    line: &[u8],
    cwd: &Path,
    path: &OsStr,
    moment: &Moment,
    to: &mut Vec<u8>,
) -> std::io::Result<()> {
    let asked: Map<String, Value> = match serde_json::from_slice(line) {
        Ok(Value::Object(asked)) => asked,
        Ok(_) => {
            let problem = "a line must be a JSON object with `command`";
            return write_problem(Map::new(), problem, to);
        }
        Err(error) => return write_problem(Map::new(), &format!("not JSON: {error}"), to),
    };
    let call = match asked
        .get("tool")
        .map(|tool| called(tool, asked.get("effects")))
    {
        Some(Err(problem)) => return write_problem(asked, &problem, to),
        Some(Ok(call)) => Some(call),
        None => None,
    };
    let command = asked.get("command").and_then(bytes);
    let input = match (&call, &command) {
        (Some(call), _) => Input::Tool(call),
        (None, Some(command)) => Input::Line(command),
        (None, None) => {
            return write_problem(asked, "`command` must be a string or {\"b64\": …}", to);
        }
    };
    let cwd = match asked.get("cwd") {
        None | Some(Value::Null) => Cow::Borrowed(cwd),
        Some(value) => match bytes(value) {
            Some(bytes) => Cow::Owned(cwd.join(OsStr::from_bytes(&bytes))),
            None => return write_problem(asked, "`cwd` must be a string or {\"b64\": …}", to),
        },
    };
    let explanation = judge(broker, input, &cwd, path, moment);
    explained::write(&asked, &explanation, to)
}

/// The tool call that a line of input is about.
fn called(tool: &Value, effects: Option<&Value>) -> Result<ToolCall, String> {
    let wrong = "`tool` must be a string, `effects` a list of strings";
    let name = tool.as_str().ok_or(wrong)?;
    let effects = match effects {
        None | Some(Value::Null) => Vec::new(),
        Some(list) => Vec::<String>::deserialize(list).map_err(|_| wrong)?,
    };
    tool_call(name, &effects)
}

fn write_problem(
    mut asked: Map<String, Value>,
    text: &str,
    to: &mut Vec<u8>,
) -> std::io::Result<()> {
    asked.insert("v".to_owned(), json!(1));
    asked.insert("verdict".to_owned(), Value::Null);
    asked.insert("error".to_owned(), json!(text));
    serde_json::to_writer(&mut *to, &asked)?;
    to.push(b'\n');
    Ok(())
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    Bytes::deserialize(value).ok().map(|bytes| bytes.0)
}

/// The evaluation for a person: verdict, the tree of commands, and why.
fn tree(explained: &Explanation, colours: bool) -> String {
    let paint = |verdict: Verdict, text: &str| {
        let code = match verdict {
            Verdict::Allow => "32",
            Verdict::Isolate => "36",
            Verdict::Ask => "33",
            Verdict::Deny => "31",
        };
        if colours {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    };
    let verdict = verdict(&explained.judgement);
    let policy = &explained.policy;
    let mut text = format!(
        "{} under policy '{}' ({}, {})\n",
        paint(verdict, verdict.as_str()),
        policy.id,
        policy.path,
        policy.mode.as_str()
    );
    for profile in &explained.profiles {
        text.push_str(&format!(
            "profile {}\n",
            visible(profile.to_string().as_bytes())
        ));
    }
    for grant in &explained.approved {
        text.push_str(&format!(
            "a person has approved `{}` ({})\n",
            visible(grant.what.text().as_bytes()),
            grant.id
        ));
    }
    if let Some(outcome) = &explained.would {
        text.push_str(&format!(
            "the policy only observes: it runs, and the trace says {}\n",
            outcome.as_str()
        ));
    }
    if let Some(why) = &explained.line.unclear {
        text.push_str(&format!("not fully understood: {why}\n"));
    }
    for (index, invocation) in explained.line.invocations.iter().enumerate() {
        let mut words: Vec<String> = invocation
            .argv
            .iter()
            .map(|word| visible(&word.text()))
            .collect();
        let called = explained.line.called.as_ref();
        words.extend(called.map(|called| visible(called.name.as_bytes())));
        let depth = invocation.via.len() + 1;
        text.push_str(&format!("{}{}\n", "  ".repeat(depth), words.join(" ")));
        for effect in &invocation.effects {
            text.push_str(&format!(
                "{}  {}\n",
                "  ".repeat(depth),
                visible(effect.text().as_bytes())
            ));
        }
        let about = explained
            .judgement
            .reasons
            .iter()
            .filter(|reason| reason.invocation == Some(index));
        for reason in about {
            text.push_str(&format!(
                "{}  {}\n",
                "  ".repeat(depth),
                reason_text(reason, &paint)
            ));
        }
    }
    for reason in explained
        .judgement
        .reasons
        .iter()
        .filter(|reason| reason.invocation.is_none())
    {
        text.push_str(&format!("  {}\n", reason_text(reason, &paint)));
    }
    text
}

fn reason_text(reason: &Reason, paint: &impl Fn(Verdict, &str) -> String) -> String {
    let rule = &reason.rule;
    let why = rule
        .reason
        .as_deref()
        .map(|why| format!(": {}", visible(why.as_bytes())))
        .unwrap_or_default();
    format!(
        "{} by {} `{}` ({rule}){why}",
        paint(reason.verdict, reason.verdict.as_str()),
        rule.list,
        visible(rule.pattern.as_bytes())
    )
}
