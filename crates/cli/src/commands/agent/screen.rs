//! The one screen at the end of a run.

use std::path::PathBuf;

use substrate_modelgate::Limit;
use substrate_runtime::supervise::Ending;
use substrate_text::size::human;
use substrate_text::visible;

use super::plan::Login;
use super::report::{Report, Run};

/// Lines of each kind; the trace has all of them.
const MOST: usize = 8;

/// The screen.
pub fn text(run: &Run, report: &Report) -> String {
    let mut screen = Screen(String::new());
    screen.line("", &headline(run, report));
    changes(run, report, &mut screen);
    let later = report
        .later
        .iter()
        .map(|(path, why)| format!("{}: {why}", shown(path)));
    screen.list("runs later", "", later.collect());
    let refused = report.refused.iter().map(|(refusal, count)| {
        let times = if *count > 1 {
            format!(" ({count} times)")
        } else {
            String::new()
        };
        format!(
            "{}: {}{times}",
            visible(refusal.what.as_bytes()),
            visible(refusal.why.as_bytes())
        )
    });
    screen.list("refused", "nothing", refused.collect());
    let talked = report
        .net
        .iter()
        .filter(|used| used.tx + used.rx > 0)
        .map(|used| {
            let host = visible(used.host.as_bytes());
            format!(
                "{host}:{}, {} sent, {} received",
                used.port,
                human(used.tx),
                human(used.rx)
            )
        });
    screen.list("talked to", "nobody by name", talked.collect());
    model(run, &mut screen);
    screen.list(
        "limits",
        "",
        report
            .limits
            .iter()
            .map(|limit| visible(limit.as_bytes()))
            .collect(),
    );
    screen.list(
        "not held",
        "",
        report
            .degraded
            .iter()
            .map(|text| visible(text.as_bytes()))
            .collect(),
    );
    screen.line("trace", &trace(run));
    screen.0
}

struct Screen(String);

impl Screen {
    fn line(&mut self, name: &str, text: &str) {
        match name.is_empty() {
            true => self.0.push_str(&format!("substrate: {text}\n")),
            false => self.0.push_str(&format!("  {name:<11} {text}\n")),
        }
    }

    /// A list below its name; what stands for none of them is left out when it is empty.
    fn list(&mut self, name: &str, none: &str, mut items: Vec<String>) {
        let more = items.len().saturating_sub(MOST);
        items.truncate(MOST);
        if items.is_empty() && !none.is_empty() {
            self.line(name, none);
        }
        for (at, item) in items.iter().enumerate() {
            self.line(if at == 0 { name } else { " " }, item);
        }
        if more > 0 {
            self.line(" ", &format!("and {more} more"));
        }
    }
}

fn headline(run: &Run, report: &Report) -> String {
    let how = match run.ending {
        Ending::Exit(0) => "ended".to_owned(),
        Ending::Exit(status) => format!("ended with status {status}"),
        Ending::Signal(signal) => format!("was ended by signal {signal}"),
    };
    let outcome = match run.headless {
        true => format!(", {}", report.outcome(run).word()),
        false => String::new(),
    };
    let seconds = run.duration.as_secs();
    let time = match seconds {
        0..=99 => format!("{:.1} s", run.duration.as_secs_f64()),
        _ => format!("{} min {} s", seconds / 60, seconds % 60),
    };
    format!("{} {how}{outcome} after {time}", run.name)
}

fn changes(run: &Run, report: &Report, screen: &mut Screen) {
    if run.span.is_none() {
        return;
    }
    let Some(diff) = report.changes.as_ref().filter(|diff| !diff.is_empty()) else {
        let known = report.changes.is_some();
        let text = if known {
            "nothing"
        } else {
            "not known: there is no work tree here to compare"
        };
        return screen.line("changed", text);
    };
    let held = match report.settled.as_deref() {
        Some("apply") => ", applied",
        Some("discard") => ", discarded",
        _ if report.is_held(run) => ", held back",
        _ => "",
    };
    let (new, modified, gone) = (diff.writes.len(), diff.mods.len(), diff.deletes.len());
    screen.line(
        "changed",
        &format!("{new} new, {modified} modified, {gone} deleted{held}"),
    );
    let of = |sign: &'static str, paths: &[PathBuf]| -> Vec<String> {
        paths
            .iter()
            .map(|path| format!("{sign} {}", shown(path)))
            .collect()
    };
    let all = [
        of("+", &diff.writes),
        of("~", &diff.mods),
        of("-", &diff.deletes),
    ];
    screen.list(" ", "", all.concat());
}

fn model(run: &Run, screen: &mut Screen) {
    match &run.login {
        Login::Outside(variable) => {
            let host = run.upstream.as_deref().unwrap_or_default();
            screen.line(
                "key",
                &format!("{variable} stayed outside; models at {host}"),
            );
        }
        Login::Inside(_) => screen.line("key", "inside the world; tokens were not counted"),
        Login::None => {}
    }
    let models = run.spent.models.iter().map(|(model, usage)| {
        let cached = match usage.cache_read {
            0 => String::new(),
            read => format!(" ({read} from the cache)"),
        };
        let read = usage.input + usage.cache_read + usage.cache_write;
        format!(
            "{}: {read} read{cached}, {} written",
            visible(model.as_bytes()),
            usage.output
        )
    });
    screen.list("tokens", "", models.collect());
    if run.spent.charged > 0 {
        screen.line(
            " ",
            &format!("{} charged for answers that broke off", run.spent.charged),
        );
    }
    if let Some(limit) = run.limit {
        let out = match run.ran_out {
            Some(Limit::Tokens) => "; used up",
            _ => "",
        };
        screen.line(
            "budget",
            &format!("{} of {limit} tokens{out}", run.spent.total()),
        );
    }
    if let Some(cost) = run.cost() {
        screen.line(
            "cost",
            &format!("${cost:.4}, by the prices of the agent's descriptor"),
        );
    }
}

fn trace(run: &Run) -> String {
    match run.span {
        Some(span) => {
            let id = span.to_string();
            let short = &id[id.len().saturating_sub(12)..];
            format!(
                "`substrate trace {short}`; `substrate trace list --session {}` has all of it",
                run.session
            )
        }
        None => "nothing was started".to_owned(),
    }
}

fn shown(path: &std::path::Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    visible(path.as_os_str().as_bytes())
}
