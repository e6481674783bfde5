//! The command by which a person approves elsewhere what was refused here.

use substrate_broker::approvals::Question;
use substrate_broker::{Broker, Input, Request};
use substrate_text::{command_line, visible};

/// What a person can type elsewhere to approve this.
pub fn command(broker: &Broker, request: &Request<'_>, question: &Question) -> String {
    let text = match request.input {
        Input::Line(line) => String::from_utf8_lossy(line).into_owned(),
        Input::Argv(argv) => command_line(argv).to_string_lossy().into_owned(),
        Input::Tool(call) => call.name.clone(),
    };
    if question.remember.is_empty() {
        return "it at his own prompt; it cannot be remembered".to_owned();
    }
    if !question.environment.is_plain() {
        let names = question.environment.variables();
        let names: Vec<String> = names.map(|(name, _)| visible(name)).collect();
        return format!(
            "it where he is asked, because of its environment ({})",
            names.join(", ")
        );
    }
    let mut words = vec!["substrate".to_owned(), "approvals".into(), "grant".into()];
    words.extend(broker.grant_flags());
    words.push("--cwd".into());
    words.push(request.cwd.to_string_lossy().into_owned());
    words.push("--".into());
    words.push(text);
    let mut command = command_line(&words).to_string_lossy().into_owned();
    let home = broker.home();
    if home.path != home.user.join(".substrate") {
        let path = command_line(&[&home.path]);
        command = format!("SUBSTRATE_HOME={} {command}", path.to_string_lossy());
    }
    visible(command.as_bytes())
}
