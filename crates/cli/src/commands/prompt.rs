//! `substrate prompt`: the policy in force here, short enough for a prompt.

use crate::asker::Asker;
use serde_json::json;
use substrate_broker::{Around, Input, Origin, Request};
use substrate_text::visible;

use crate::failure::Failure;
use crate::out;

/// Prints `policy:mode`, without colours, which are the prompt's own business.
pub fn run(asker: &Asker, as_json: bool) -> Result<(), Failure> {
    let broker = asker.broker(None)?;
    let cwd = asker.cwd()?;
    // An empty line is judged by whatever governs this directory.
    let here = broker.evaluate(&Request {
        input: Input::Line(b""),
        origin: Origin::OneShot,
        cwd: &cwd,
        search_path: "".as_ref(),
        variables: &[],
        aliases: &[],
        isolate: false,
        around: Around::Nothing,
    });
    let (policy, mode) = (&here.policy.id, here.policy.mode.as_str());
    let text = if as_json {
        let profile = here.profile_text();
        json!({"v": 1, "policy": policy, "mode": mode, "profile": profile}).to_string()
    } else {
        visible(format!("{policy}:{mode}").as_bytes())
    };
    Ok(out::print(&format!("{text}\n"))?)
}
