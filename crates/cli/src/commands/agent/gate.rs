//! The model gate of a run: made when its world is, told of in the trace.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use substrate_egress::Proxies;
use substrate_egress::rules::{Rules, Target};
use substrate_egress::service::Service;
use substrate_modelgate::{
    Credential, Event as Passed, Gate, GateConfig, Judge, Ledger, Reach, Roots, Usage,
};
use substrate_policy::terms::{HostPattern, Mode, WorldSpec};
use substrate_trace::{
    AgentEvent, Event, RateLimit, Redactor, Retention, SpanInfo, Tokens, Writer,
};

use super::plan::{PORT, Through};

/// The service that is a gate.
pub fn service(through: &Through, spec: &WorldSpec, ledger: &Arc<Ledger>, book: &Book) -> Service {
    let (through, spec, ledger) = (through.clone(), spec.clone(), Arc::clone(ledger));
    let heard = book.sender();
    let serve = move |listener: OwnedFd| -> io::Result<Box<dyn Send>> {
        let heard = heard.clone();
        let config = GateConfig {
            upstream: through.upstream.clone(),
            roots: Roots::System,
            proxies: Proxies::from_variables(|name| std::env::var(name).ok()),
            base: through.model.base.clone(),
            wire: through.model.wire,
            routes: through.model.allow.clone(),
            credential: Some(Credential {
                header: through.header.clone(),
                value: through.key.read()?,
            }),
            enforce: spec.mode == Mode::Enforce,
            ledger: Arc::clone(&ledger),
            longest_answer: through.model.longest_answer,
            judge: Arc::new(ByPolicy::new(&spec)),
            on_event: Arc::new(move |event| {
                // Nobody listens any more once the run has ended.
                let _ = heard.send(Told::Passed(event.clone()));
            }),
        };
        Ok(Box::new(Gate::start(listener, config)?))
    };
    Service {
        port: PORT,
        serve: Arc::new(serve),
    }
}

/// Judges what a provider is asked to fetch as a connection of the world's own.
struct ByPolicy {
    rules: Rules,
    anywhere: bool,
}

impl ByPolicy {
    fn new(spec: &WorldSpec) -> ByPolicy {
        let mut allowed = spec.net.allowed.iter();
        ByPolicy {
            rules: Rules::new(&spec.net, spec.mode),
            anywhere: allowed.any(|rule| rule.host == HostPattern::Any),
        }
    }
}

impl Judge for ByPolicy {
    fn connect(&self, reach: &Reach) -> Result<(), String> {
        let Reach::Host(host, port) = reach else {
            let hint = "the policy's net.allowed does not let connections go everywhere (`*`); switch \
                        this tool of the client's off";
            return if self.anywhere {
                Ok(())
            } else {
                Err(hint.to_owned())
            };
        };
        let target = match host.parse() {
            Ok(address) => Target::Address(address),
            Err(_) => Target::Name(host.as_str().into()),
        };
        match self.rules.judge(&target, *port).against {
            None => Ok(()),
            Some(reason) => Err(reason.to_string()),
        }
    }
}

enum Told {
    Span(Box<SpanInfo>),
    Passed(Passed),
    End(AgentEvent),
}

/// Writes down what happens to an agent, on a thread of its own: nothing waits for a disk.
pub struct Book {
    told: Mutex<Option<Sender<Told>>>,
    thread: Option<JoinHandle<()>>,
}

impl Book {
    /// Opens it, for an agent of this provider.
    pub fn open(home: PathBuf, redact: Vec<String>, provider: Option<String>) -> Book {
        let (told, heard) = mpsc::channel();
        let thread =
            std::thread::spawn(move || write_down(&heard, &home, &redact, provider.as_ref()));
        Book {
            told: Mutex::new(Some(told)),
            thread: Some(thread),
        }
    }

    fn sender(&self) -> Sender<Told> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // Open as long as the book is.
        told.clone().unwrap_or_else(|| mpsc::channel().0)
    }

    /// From here on it is about this span.
    pub fn begin(&self, span: &SpanInfo) {
        let _ = self.sender().send(Told::Span(Box::new(span.clone())));
    }

    /// Writes down the end and closes it.
    pub fn close(mut self, end: AgentEvent) {
        let _ = self.sender().send(Told::End(end));
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write_down(
    heard: &Receiver<Told>,
    home: &std::path::Path,
    redact: &[String],
    provider: Option<&String>,
) {
    let writer = Writer::open_with(home, Retention::default(), Redactor::new(redact));
    let mut span: Option<Box<SpanInfo>> = None;
    for told in heard {
        let (Some(known), Ok(writer)) = (&span, &writer) else {
            if let Told::Span(new) = told {
                start(&writer, &new, provider);
                span = Some(new);
            }
            continue;
        };
        match told {
            Told::Span(_) => {}
            Told::Passed(event) => passed(writer, known, &event, provider),
            Told::End(mut event) => {
                event.provider = provider.cloned();
                let _ = writer.write(&Event::agent_event(known, &event));
                return;
            }
        }
    }
}

fn start(
    writer: &Result<Writer, substrate_trace::Error>,
    span: &SpanInfo,
    provider: Option<&String>,
) {
    let event = AgentEvent {
        action: "started".to_owned(),
        provider: provider.cloned(),
        ..AgentEvent::default()
    };
    if let Ok(writer) = writer {
        let _ = writer.write(&Event::agent_event(span, &event));
    }
}

fn passed(writer: &Writer, span: &SpanInfo, event: &Passed, provider: Option<&String>) {
    if let Passed::RanOut {
        wanted,
        used,
        limit,
    } = event
    {
        let limit = RateLimit {
            limit: "guards.tokens".to_owned(),
            bytes: *wanted,
            used: *used,
            total: *limit,
        };
        let _ = writer.write(&Event::rate_limit(span, &limit));
        return;
    }
    let mut told = words(event);
    told.provider = provider.cloned();
    let _ = writer.write(&Event::agent_event(span, &told));
}

fn words(event: &Passed) -> AgentEvent {
    let of = |action: &str, detail: String| AgentEvent {
        action: action.to_owned(),
        detail: Some(detail),
        ..AgentEvent::default()
    };
    match event {
        Passed::Answered {
            model,
            usage,
            status,
        } => AgentEvent {
            action: "answered".to_owned(),
            detail: (*status != 200).then(|| format!("status {status}")),
            model: model.clone(),
            tokens: usage.as_ref().map(|usage| counted(usage, 0)),
            ..AgentEvent::default()
        },
        Passed::Refused { what, why } => of("refused", format!("{what}: {why}")),
        Passed::WouldRefuse { what, why } => of("would_refuse", format!("{what}: {why}")),
        Passed::Broke(why) => of("broke", why.clone()),
        Passed::Unreachable(why) => of("unreachable", why.clone()),
        Passed::RanOut { .. } => AgentEvent::default(),
    }
}

/// Tokens as the trace has them.
pub fn counted(usage: &Usage, charged: u64) -> Tokens {
    Tokens {
        input: usage.input,
        cache_write: usage.cache_write,
        cache_read: usage.cache_read,
        output: usage.output,
        reasoning: usage.reasoning,
        charged,
    }
}
