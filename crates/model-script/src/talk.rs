//! What a request says in any format, and which answer of the script it gets.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use crate::script::{Answer, Call, Conversation, Script, Usage};

/// One turn of the history that a request carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// The user said this; results of tools are no turn of his.
    User(String),
    /// The model said this.
    Said(String),
    /// The model called tools.
    Called,
}

/// A request, without its format.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The history, oldest first.
    pub turns: Vec<Turn>,
    /// The tools on offer.
    pub tools: Vec<String>,
    /// Whether the answer is to come as events.
    pub stream: bool,
    /// The model asked for.
    pub model: String,
    /// Whether the answer has to be JSON.
    pub json: bool,
}

/// An answer, without its format.
#[derive(Debug, Clone)]
pub struct Told {
    /// Its name; clients take two answers of one name for one.
    pub id: String,
    /// What is said; may stand beside calls.
    pub text: Option<String>,
    /// Calls with their ids.
    pub calls: Vec<(String, Call)>,
    /// What it cost.
    pub usage: Usage,
}

/// The place in the script that a request has come to.
#[derive(Debug)]
pub struct Place<'a> {
    /// Which conversation, by its number.
    pub conversation: usize,
    /// Which answer in it.
    pub step: usize,
    /// The answer; `None` after the last.
    pub answer: Option<&'a Answer>,
}

/// Finds the place of a request. One that offers no tools is a client's own errand, such as a title, and
/// has none.
pub fn place<'a>(script: &'a Script, asked: &Asked) -> Option<Place<'a>> {
    let belongs = |conversation: &Conversation| {
        conversation.prompt.is_empty()
            || asked
                .turns
                .iter()
                .any(|turn| matches!(turn, Turn::User(text) if text.contains(&conversation.prompt)))
    };
    let number = script.conversations.iter().position(belongs)?;
    let conversation = &script.conversations[number];
    let calls = conversation.answers.iter().any(Answer::is_call);
    if asked.json || (calls && asked.tools.is_empty()) {
        return None;
    }
    let step = steps_done(conversation, &asked.turns);
    Some(Place {
        conversation: number,
        step,
        answer: conversation.answers.get(step),
    })
}

fn steps_done(conversation: &Conversation, turns: &[Turn]) -> usize {
    let mut done = 0;
    for turn in turns {
        let Some(next) = conversation.answers.get(done) else {
            break;
        };
        let said = |text: &String| next.text.as_ref().is_some_and(|told| text.contains(told));
        let is_it = match turn {
            Turn::User(_) => false,
            Turn::Called => next.is_call(),
            Turn::Said(text) => !next.is_call() && said(text),
        };
        done += usize::from(is_it);
    }
    done
}

/// What is told at a place.
pub fn tell(place: Option<&Place<'_>>, asked: &Asked, bytes: usize) -> Told {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = format!("scripted_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let quarter = |bytes: usize| u64::try_from(bytes / 4).unwrap_or(u64::MAX).max(1);
    let Some(Place {
        conversation,
        step,
        answer: Some(answer),
    }) = place
    else {
        let text = if asked.json { "{}" } else { "done" };
        return Told {
            id,
            text: Some(text.to_owned()),
            calls: Vec::new(),
            usage: Usage {
                input: quarter(bytes),
                output: 1,
            },
        };
    };
    let calls = answer.calls_for(&asked.tools).into_iter().enumerate();
    let calls: Vec<_> = calls
        .map(|(number, call)| (format!("call_{conversation}_{step}_{number}"), call))
        .collect();
    let size = |call: &Call| call.tool.len() + call.input.to_string().len();
    let written = answer.text.as_ref().map_or(0, String::len)
        + calls.iter().map(|(_, call)| size(call)).sum::<usize>();
    Told {
        id,
        text: answer.text.clone(),
        calls,
        usage: answer.usage.unwrap_or(Usage {
            input: quarter(bytes),
            output: quarter(written),
        }),
    }
}

/// The text of a message's content: a string, or the `text` of its parts.
pub fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}
