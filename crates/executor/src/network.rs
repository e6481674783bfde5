//! What the gates of worlds tell while a command runs: said at once, and recorded with its span.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use substrate_broker::facts::Machine;
use substrate_egress::gated::{Following, OnEvent};
use substrate_egress::{self as egress, Refusal};
use substrate_policy::budget::{Cells, own_cells};
use substrate_policy::terms::{Mode, WorldSpec};
use substrate_trace::{
    Event, NetAttempt, Outcome, RateLimit, Redactor, Retention, SpanInfo, WorldEvent, Writer,
};

use crate::front::{Front, Kind};
use crate::hosting::Hosting;
use crate::session::Session;
use crate::worlds::Wire;

/// Lines about the network that one command gets; the trace has the rest.
const MOST_LINES: usize = 12;

/// Hears from all gates of a session. A thread of its own does the talking, so that a standard
/// error that nobody reads stops neither the gates nor the books.
#[derive(Clone)]
pub struct Teller {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    span: Option<Arc<SpanInfo>>,
    voice: Voice,
    thread: Option<(Sender<Told>, JoinHandle<()>)>,
}

type Told = (Arc<SpanInfo>, egress::Event);

#[derive(Clone)]
struct Voice {
    front: Arc<dyn Front>,
    home: PathBuf,
    redact: Vec<String>,
}

impl Teller {
    /// One for all worlds of a session.
    pub fn new(session: &Session) -> Teller {
        let voice = Voice {
            front: Arc::clone(&session.front),
            home: session.broker.home().path.clone(),
            redact: session.broker.last_policy().settings().redact.clone(),
        };
        let inner = Inner {
            span: None,
            voice,
            thread: None,
        };
        Teller {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// What is told from here on belongs to this span.
    pub fn begin(&self, span: &SpanInfo) {
        self.finish();
        lock(&self.inner).span = Some(Arc::new(span.clone()));
    }

    /// Waits until everything that was told is said and recorded.
    pub fn finish(&self) {
        let thread = lock(&self.inner).thread.take();
        if let Some((told, thread)) = thread {
            drop(told);
            let _ = thread.join();
        }
    }

    /// The host's end of the networks of worlds with these terms; all of them spend the session's budget.
    pub fn wire(&self, session: &Session, spec: &WorldSpec) -> Result<Wire, String> {
        Ok(Wire {
            on_event: self.listener(),
            spent: spent(session, spec)?,
            following: None,
            services: Vec::new(),
        })
    }

    /// The same for one command, which a policy that gets stricter meanwhile holds too.
    pub fn wire_of_command(
        &self,
        session: &Session,
        spec: &WorldSpec,
        cwd: &Path,
        hosting: Option<&Hosting>,
    ) -> Result<Wire, String> {
        let services = hosting.map_or_else(Vec::new, |hosting| hosting.services.clone());
        let hosting = hosting.cloned();
        let (broker, cwd) = (session.broker.clone(), cwd.to_owned());
        let following: Following = Box::new(move |world| {
            let (mut changes, world) = (broker.changes(), world.clone());
            let (broker, cwd, hosting) = (broker.clone(), cwd.clone(), hosting.clone());
            Box::new(move || {
                changes().then(|| {
                    let facts = Machine::new(&cwd, &cwd, broker.home(), OsStr::new(""));
                    let mut now = broker.world_spec(&facts);
                    if let Some(hosting) = &hosting {
                        hosting.dress(&mut now);
                    }
                    world.clone().narrowed(&now).net
                })
            })
        });
        Ok(Wire {
            following: Some(following),
            services,
            ..self.wire(session, spec)?
        })
    }

    fn listener(&self) -> OnEvent {
        let inner = Arc::clone(&self.inner);
        Arc::new(move |event| lock(&inner).tell(event))
    }
}

impl Inner {
    fn tell(&mut self, event: &egress::Event) {
        let Some(span) = self.span.clone() else {
            return;
        };
        let (told, _) = self.thread.get_or_insert_with(|| {
            let (told, heard) = mpsc::channel();
            let voice = self.voice.clone();
            (told, std::thread::spawn(move || voice.speak(&heard)))
        });
        // The thread ends only when this sender does.
        let _ = told.send((span, event.clone()));
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the session's bytes are counted. What cannot be shared is not silently unshared where a
/// limit is to be enforced.
fn spent(session: &Session, spec: &WorldSpec) -> Result<Cells, String> {
    let limited = spec.net.total_bytes.is_some() || spec.net.bytes_per_sec.is_some();
    if !limited || !spec.net.isolate {
        return Ok(own_cells());
    }
    match session.broker.egress_cells() {
        Ok(cells) => Ok(cells),
        Err(error) if spec.mode == Mode::Enforce => Err(format!(
            "the session's egress budget cannot be kept in {}: {error}",
            session.broker.home().path.join("egress").display()
        )),
        Err(error) => {
            let text = format!("the egress budget is this command's alone: {error}");
            session.front.say(Kind::Warning, &text);
            Ok(own_cells())
        }
    }
}

impl Voice {
    fn speak(&self, heard: &Receiver<Told>) {
        let redactor = Redactor::new(&self.redact);
        let writer = Writer::open_with(&self.home, Retention::default(), redactor);
        let mut speech = Speech {
            front: Arc::clone(&self.front),
            writer: writer.map_err(|error| error.to_string()),
            said: HashSet::new(),
        };
        for (span, event) in heard {
            speech.heed(&span, &event);
        }
    }
}

struct Speech {
    front: Arc<dyn Front>,
    writer: Result<Writer, String>,
    said: HashSet<String>,
}

impl Speech {
    fn heed(&mut self, span: &SpanInfo, event: &egress::Event) {
        match event {
            egress::Event::Refused(refusal) => self.refused(span, refusal),
            egress::Event::BudgetExceeded { bytes, used, total } => {
                let limit = "net.egress_budget.total_bytes";
                self.limit(span, limit, *bytes, *used, *total);
                let text = format!(
                    "Egress budget exceeded: {used} of {total} bytes of this session are used \
                     (net.egress_budget.total_bytes)"
                );
                self.say("budget", Kind::Refused, &text);
            }
            egress::Event::RateLimited { bytes_per_sec } => {
                let limit = "net.egress_budget.bytes_per_sec";
                // It was passed on later; only the rate is known.
                self.limit(span, limit, 0, 0, *bytes_per_sec);
            }
            egress::Event::Unreachable(text) => {
                self.world(span, "unreachable", text);
                self.say(text, Kind::Info, &format!("network: {text}"));
            }
            egress::Event::Problem(text) => {
                self.world(span, "degraded", text);
                self.say(text, Kind::Warning, &format!("network: {text}"));
            }
            egress::Event::Failed(why) => {
                self.world(span, "failed", &format!("the gate: {why}"));
                let text = format!("the world's network failed and is closed: {why}");
                self.say("failed", Kind::Failed, &text);
            }
        }
    }

    fn refused(&mut self, span: &SpanInfo, refusal: &Refusal) {
        let program = refusal.program.as_ref();
        let attempt = NetAttempt {
            host: refusal.host.clone(),
            port: refusal.port,
            why: refusal.reason.code().to_owned(),
            program: program.map(|program| program.path.clone()),
            pid: program.map(|program| program.pid),
        };
        let place = match refusal.port {
            0 => refusal.host.clone(),
            port => format!("{}:{port}", refusal.host),
        };
        let what = format!("{place}: {}", refusal.reason);
        let mut violation = span.clone();
        violation.reason = Some(what.clone());
        violation.rule = None;
        violation.replay = None;
        let outcome = match refusal.enforced {
            true => Outcome::Deny,
            false => Outcome::WouldDeny,
        };
        self.record(&Event::net_refusal(&violation, outcome, &attempt));
        if refusal.enforced && refusal.reason != egress::Reason::Budget {
            let who = program.map(|program| format!(" ({})", program.path.display()));
            let text = format!("network: {what}{}", who.unwrap_or_default());
            let kind = format!("{} {}", refusal.host, refusal.reason.code());
            self.say(&kind, Kind::Refused, &text);
        }
    }

    fn limit(&mut self, span: &SpanInfo, limit: &str, bytes: u64, used: u64, total: u64) {
        let limit = RateLimit {
            limit: limit.to_owned(),
            bytes,
            used,
            total,
        };
        self.record(&Event::rate_limit(span, &limit));
    }

    fn world(&mut self, span: &SpanInfo, action: &str, detail: &str) {
        let event = WorldEvent {
            action: action.to_owned(),
            detail: Some(detail.to_owned()),
            ..WorldEvent::default()
        };
        self.record(&Event::world_event(span, &event));
    }

    fn record(&mut self, event: &Event<'_>) {
        let written = match &self.writer {
            Ok(writer) => writer.write(event).map_err(|error| error.to_string()),
            Err(error) => Err(error.clone()),
        };
        if let Err(error) = written {
            let text = format!("what the network refuses is not recorded: {error}");
            self.say("unrecorded", Kind::Warning, &text);
        }
    }

    /// Says something once, as long as it is not the last straw.
    fn say(&mut self, what: &str, kind: Kind, text: &str) {
        if self.said.len() > MOST_LINES || !self.said.insert(what.to_owned()) {
            return;
        }
        if self.said.len() > MOST_LINES {
            let text = "network: more was refused; `substrate trace` has all of it";
            return self.front.say_beside(Kind::Info, text);
        }
        self.front.say_beside(kind, text);
    }
}
