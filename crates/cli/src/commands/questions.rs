//! `substrate approvals pending` and `answer`: questions that clients of the service wait with.

use substrate_api::approvals::{Answer, Answered, Choice, Waiting, WaitingList};
use substrate_api::{VERSION, client};
use substrate_text::visible;

use crate::asker::{Asker, Needs};
use crate::commands::when;
use crate::failure::Failure;
use crate::out;
use crate::service;

/// What a person says to a question.
#[derive(Debug, Clone, Copy)]
pub enum Reply {
    /// This once.
    Once,
    /// Until it is revoked.
    Always,
    /// No.
    Refuse,
}

/// Shows what waits.
pub fn pending(asker: &Asker, as_json: bool) -> Result<(), Failure> {
    let waiting = waiting(asker)?;
    if as_json {
        let list = WaitingList {
            v: VERSION,
            waiting,
        };
        let text = serde_json::to_string(&list).unwrap_or_default();
        return Ok(out::print(&format!("{text}\n"))?);
    }
    let mut text = String::new();
    for question in &waiting {
        text.push_str(&format!(
            "{}  {} for {}, in {}: {}\n",
            question.id,
            visible(question.agent_id.as_bytes()),
            when::lasting(question.waited_ms / 1000),
            visible(question.cwd.as_slice()),
            visible(question.cmd.as_slice()),
        ));
    }
    if text.is_empty() {
        text.push_str("nothing waits for an answer\n");
    } else {
        text.push_str(
            "`substrate approvals answer ID --once` (or --always, --refuse) answers one\n",
        );
    }
    Ok(out::print(&text)?)
}

/// Answers one. Without a choice its question is shown in full. `remember` grants what is to last.
pub fn answer(
    asker: &Asker,
    id: Option<&str>,
    choice: Option<Reply>,
    remember: &dyn Fn(&Waiting) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let question = find(waiting(asker)?, id)?;
    let Some(choice) = choice else {
        let mut text = question.text.clone();
        text.push_str(&format!(
            "\nanswer with `substrate approvals answer {} --once`, --always or --refuse\n",
            question.id
        ));
        return Ok(out::print(&text)?);
    };
    asker.require(Needs::Person)?;
    let choice = match choice {
        Reply::Refuse => Choice::Refuse,
        Reply::Once => Choice::Once,
        Reply::Always => {
            remember(&question)?;
            Choice::Once
        }
    };
    let home = asker.home()?;
    let Some(stream) = service::find(&home.path)? else {
        return Err(nobody());
    };
    let path = format!("/v1/approvals/{}", question.id);
    let answer = Answer {
        v: VERSION,
        answer: choice,
    };
    let _: Answered = client::post(stream, &path, &answer)?;
    Ok(out::print("answered\n")?)
}

fn nobody() -> Failure {
    Failure::Missing("the service does not run, so nobody waits".to_owned())
}

fn waiting(asker: &Asker) -> Result<Vec<Waiting>, Failure> {
    let home = asker.home()?;
    let Some(stream) = service::find(&home.path)? else {
        return Ok(Vec::new());
    };
    let list: WaitingList = client::get(stream, "/v1/approvals")?;
    Ok(list.waiting)
}

fn find(mut waiting: Vec<Waiting>, id: Option<&str>) -> Result<Waiting, Failure> {
    if let Some(id) = id {
        waiting.retain(|question| question.id.ends_with(id) || question.id.starts_with(id));
    }
    match waiting.len() {
        0 => Err(Failure::Missing("no such question waits".to_owned())),
        1 => Ok(waiting.remove(0)),
        _ => Err(Failure::Usage(
            "several questions wait; `substrate approvals pending` lists them".to_owned(),
        )),
    }
}
