//! One connection of a client: its requests, one after the other.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};

use crate::answer::{Broken, Incoming, is_closed, push_headers};
use crate::client::{Client, Stop};
use crate::config::{Event, GateConfig};
use crate::dial::{Dialer, Line};
use crate::head::{self, Request};
use crate::ledger::{Limit, RanOut, Reservation};
use crate::refusal::{self, Why};
use crate::request::{self, Asked};
use crate::tools;
use crate::usage::Usage;
use crate::wire::Kind;

/// What happens to the connection next.
#[derive(PartialEq, Eq)]
enum Next {
    Again,
    Close,
}

/// Serves a client until it hangs up.
pub(crate) fn serve(config: &GateConfig, dialer: &Dialer, stream: TcpStream) {
    let Ok(client) = Client::new(stream) else {
        return;
    };
    let mut exchange = Exchange {
        config,
        dialer,
        client,
    };
    while let Ok(Next::Again) = exchange.one() {}
    // The last words arrive even when the client still sends.
    let _ = exchange.client.stream.shutdown(Shutdown::Write);
}

struct Exchange<'a> {
    config: &'a GateConfig,
    dialer: &'a Dialer,
    client: Client,
}

impl Exchange<'_> {
    /// One request and its answer.
    fn one(&mut self) -> io::Result<Next> {
        let head = match self.client.head()? {
            None => return Ok(Next::Close),
            Some(Ok(head)) => head,
            Some(Err(stop)) => return self.refuse("a request", stop, false),
        };
        let name = format!("{} {}", head.method, shortened(&head.path));
        if let Err(stop) = self.may_pass(&head) {
            return self.refuse(&name, stop, false);
        }
        let body = match self.client.body(&head)? {
            Ok(body) => body,
            Err(stop) => return self.refuse(&name, stop, false),
        };
        let kind = self.config.wire.kind(&head.method, &head.path);
        let asked = match self.judged(&name, kind, &head, body) {
            Ok(asked) => asked,
            Err(stop) => return self.refuse(&name, stop.after_body(), head.keep),
        };
        let config = self.config;
        let reserved = match kind.costs() {
            false => None,
            true => match config.ledger.reserve(asked.most) {
                Ok(reserved) => Some(reserved),
                Err(out) => {
                    self.tell(Event::RanOut {
                        wanted: out.wanted,
                        used: out.used,
                        limit: out.limit,
                    });
                    let text = ran_out(&out);
                    let mut stop = Stop::new(Why::Budget, text).after_body();
                    stop.told = true;
                    return self.refuse(&name, stop, head.keep);
                }
            },
        };
        self.carry_out(&name, &head, kind, &asked, reserved)
    }

    /// Whether a request of this method and path may pass.
    fn may_pass(&self, head: &Request) -> Result<(), Stop> {
        let mut routes = self.config.routes.iter();
        if routes.any(|route| route.matches(&head.method, &head.path)) {
            return Ok(());
        }
        let text =
            "the model gate does not pass this on; it is not among the agent's `models[].allow`";
        Err(Stop::new(Why::Route, text.to_owned()))
    }

    /// What a request asks for, once it is known that it may.
    fn judged(&self, name: &str, kind: Kind, head: &Request, body: Vec<u8>) -> Result<Asked, Stop> {
        let unread = |body: Vec<u8>| Asked {
            body,
            value: serde_json::Value::Null,
            model: None,
            most: self.config.longest_answer * u64::from(kind.costs()),
        };
        let coded = head::all(&head.headers, "content-encoding")
            .any(|coding| !coding.eq_ignore_ascii_case("identity"));
        let read = match (body.is_empty(), &*head.method, coded) {
            (true, ..) if !kind.costs() => return Ok(unread(body)),
            (_, "GET" | "HEAD" | "OPTIONS", _) => Err("it has a body".to_owned()),
            (_, _, true) => Err("its body is compressed".to_owned()),
            _ => request::read(kind, &head.path, &body, self.config.longest_answer),
        };
        let asked = match read {
            Ok(understood) => understood.of(body),
            Err(why) if self.config.enforce => return Err(Stop::new(Why::Unreadable, why)),
            Err(why) => {
                self.tell(Event::WouldRefuse {
                    what: name.to_owned(),
                    why,
                });
                unread(body)
            }
        };
        for reach in tools::reaches(&asked.value, self.config.wire) {
            let Err(why) = self.config.judge.connect(&reach) else {
                continue;
            };
            let text = format!("{reach}: {why}");
            if self.config.enforce {
                return Err(Stop::new(Why::Policy, text));
            }
            self.tell(Event::WouldRefuse {
                what: name.to_owned(),
                why: text,
            });
        }
        Ok(asked)
    }

    /// Sends a request that may leave and passes its answer on.
    fn carry_out(
        &mut self,
        name: &str,
        head: &Request,
        kind: Kind,
        asked: &Asked,
        reserved: Option<Reservation<'_>>,
    ) -> io::Result<Next> {
        let mut ticket = Ticket {
            config: self.config,
            model: asked.model.clone(),
            reserved,
        };
        let (mut incoming, answer) = match self.ask(head, asked) {
            Ok(answered) => answered,
            Err(NoAnswer::Client) => {
                ticket.broke("the client hung up", Usage::default());
                return Ok(Next::Close);
            }
            Err(NoAnswer::NotSent(why)) => {
                ticket.release();
                self.tell(Event::Unreachable(why.clone()));
                return self.no_answer(name, &why, head.keep);
            }
            Err(NoAnswer::Broken(why)) => {
                ticket.broke(&why, Usage::default());
                return self.no_answer(name, &why, head.keep);
            }
        };
        if matches!(answer.status, 300..=303 | 305..=399) {
            ticket.release();
            let why = format!(
                "it answers {} with another place, which is not followed",
                answer.status
            );
            return self.no_answer(name, &why, head.keep);
        }
        let coded = head::all(&answer.headers, "content-encoding")
            .any(|coding| !coding.eq_ignore_ascii_case("identity"));
        if coded && self.config.enforce {
            let why = "its answer is compressed although nobody asked for that";
            ticket.broke(why, Usage::default());
            return self.no_answer(name, why, head.keep);
        }
        let status = answer.status;
        let mut settle = |end: Result<Option<Usage>, Usage>| match end {
            Ok(usage) => ticket.settle(status, usage),
            Err(seen) => ticket.broke("an answer broke off", seen),
        };
        let client = &mut self.client;
        match incoming.pass(&answer, kind, client, head.keep, &mut settle) {
            Ok(again) => {
                if again {
                    self.dialer.give_back(incoming.line);
                }
                Ok(if head.keep { Next::Again } else { Next::Close })
            }
            // Half an answer cannot be taken back; the client sees that it broke off.
            Err(_) => Ok(Next::Close),
        }
    }

    /// Has a request answered as far as the head. A connection that was used before may be closed by now:
    /// then nobody has seen the request, and it is sent once more.
    fn ask(&self, head: &Request, asked: &Asked) -> Result<(Incoming, head::Answer), NoAnswer> {
        let request = self.request(head, &asked.body);
        loop {
            let line = self.dialer.line();
            let mut line: Line = line.map_err(|error| NoAnswer::NotSent(error.to_string()))?;
            match line.send(&request) {
                Ok(()) => {}
                Err(error) if line.used && is_closed(&error) => continue,
                Err(error) => return Err(NoAnswer::NotSent(error.to_string())),
            }
            let mut incoming = Incoming::new(line);
            return match incoming.head(&head.method, &self.client) {
                Ok(answer) => Ok((incoming, answer)),
                Err(Broken::Stale) => continue,
                Err(Broken::Client) => Err(NoAnswer::Client),
                Err(Broken::Host(why)) => Err(NoAnswer::Broken(why)),
            };
        }
    }

    /// The request as it leaves: put together anew from what was understood of it.
    fn request(&self, head: &Request, body: &[u8]) -> Vec<u8> {
        let config = self.config;
        let path = head.path.strip_prefix(&config.base).unwrap_or(&head.path);
        let query = head
            .query
            .as_deref()
            .map(without_credentials)
            .unwrap_or_default();
        let mut text = format!(
            "{} {}{path}{query} HTTP/1.1\r\n",
            head.method, config.upstream.base
        );
        text.push_str(&format!("host: {}\r\n", config.upstream.authority()));
        let named: Vec<String> = head::all(&head.headers, "connection")
            .flat_map(|value| value.split(','))
            .map(|name| name.trim().to_ascii_lowercase())
            .collect();
        let passes = |name: &str| may_leave(name) && !named.iter().any(|word| word == name);
        push_headers(&head.headers, passes, &mut text);
        if !body.is_empty() {
            // What was judged is JSON in UTF-8, whatever the client calls it.
            text.push_str("content-type: application/json\r\n");
        }
        text.push_str("accept-encoding: identity\r\n");
        if let Some(credential) = &config.credential {
            text.push_str(&format!("{}: {}\r\n", credential.header, credential.value));
        }
        if !body.is_empty() || head.method == "POST" {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        let mut request = text.into_bytes();
        request.extend_from_slice(body);
        request
    }

    fn no_answer(&mut self, name: &str, why: &str, keep: bool) -> io::Result<Next> {
        let host = &self.config.upstream.host;
        let mut stop = Stop::new(Why::Unreachable, format!("{host}: {why}")).after_body();
        stop.told = true;
        self.refuse(name, stop, keep)
    }

    fn refuse(&mut self, name: &str, stop: Stop, keep: bool) -> io::Result<Next> {
        if !stop.told {
            self.tell(Event::Refused {
                what: name.to_owned(),
                why: stop.text.clone(),
            });
        }
        let keep = keep && !stop.close;
        let answer = refusal::answer(self.config.wire, stop.why, &stop.text, keep);
        self.client.stream.write_all(&answer)?;
        Ok(if keep { Next::Again } else { Next::Close })
    }

    fn tell(&self, event: Event) {
        (self.config.on_event)(&event);
    }
}

/// Why there is no answer.
enum NoAnswer {
    /// The client did not wait for it.
    Client,
    /// Nothing was sent.
    NotSent(String),
    /// It was sent, and what came back is no answer.
    Broken(String),
}

/// What one request may cost, until it is known.
struct Ticket<'a> {
    config: &'a GateConfig,
    model: Option<String>,
    reserved: Option<Reservation<'a>>,
}

impl Ticket<'_> {
    fn model(&self) -> &str {
        self.model.as_deref().unwrap_or("unnamed")
    }

    /// The answer came whole.
    fn settle(&mut self, status: u16, usage: Option<Usage>) {
        let Some(reserved) = self.reserved.take() else {
            return;
        };
        match usage {
            Some(usage) => reserved.settle(self.model(), &usage),
            // Errors cost nothing.
            None if status >= 400 => reserved.release(),
            None => reserved.charge(self.model(), &Usage::default()),
        }
        (self.config.on_event)(&Event::Answered {
            model: self.model.clone(),
            usage,
            status,
        });
    }

    fn broke(&mut self, why: &str, seen: Usage) {
        if let Some(reserved) = self.reserved.take() {
            reserved.charge(self.model(), &seen);
            (self.config.on_event)(&Event::Broke(why.to_owned()));
        }
    }

    fn release(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            reserved.release();
        }
    }
}

fn ran_out(out: &RanOut) -> String {
    match out.what {
        Limit::Tokens => format!(
            "the token budget of this agent is used up: {} of {} tokens are spent or reserved, and \
             this request may take {}; nothing was sent",
            out.used, out.limit, out.wanted
        ),
        Limit::Turns => format!(
            "this agent has taken all of its {} turns; nothing was sent",
            out.limit
        ),
    }
}

/// Headers that clients of models send and that lead nowhere else; gateways obey others that name another place,
/// another method or another account.
const HEADERS: [&str; 22] = [
    "accept",
    "accept-language",
    "user-agent",
    "idempotency-key",
    "originator",
    "openai-beta",
    "session_id",
    "session-id",
    "conversation_id",
    "conversation-id",
    "thread_id",
    "thread-id",
    "version",
    "x-app",
    "x-goog-api-client",
    "x-client-request-id",
    "x-request-id",
    "x-initiator",
    "x-interaction-id",
    "x-session-affinity",
    "traceparent",
    "tracestate",
];
/// Whole families of them.
const FAMILIES: [&str; 5] = [
    "anthropic-",
    "x-stainless-",
    "x-codex-",
    "copilot-",
    "editor-",
];
/// What a query may say.
const QUERY: [&str; 8] = [
    "alt",
    "beta",
    "api-version",
    "client_version",
    "limit",
    "pagesize",
    "after_id",
    "before_id",
];

fn may_leave(header: &str) -> bool {
    let known = HEADERS.contains(&header) || FAMILIES.iter().any(|start| header.starts_with(start));
    known && (!is_credential(header) || header == "x-goog-api-client")
}

/// What a name has in it that may carry a credential.
const CREDENTIALS: [&str; 10] = [
    "auth",
    "key",
    "token",
    "secret",
    "cookie",
    "credential",
    "password",
    "signature",
    "x-amz-",
    "user-project",
];

/// Whether a header or a part of a query may carry a credential: a client's own would lead to an account of
/// its own, which is a way out.
fn is_credential(name: &str) -> bool {
    name != "idempotency-key" && CREDENTIALS.iter().any(|word| name.contains(word))
}

/// A query with its question mark, without what may carry a credential.
fn without_credentials(query: &str) -> String {
    let fits = |pair: &&str| {
        let name = pair
            .split('=')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        QUERY.contains(&name.as_str())
    };
    let kept: Vec<&str> = query.split('&').filter(fits).collect();
    match kept.is_empty() {
        true => String::new(),
        false => format!("?{}", kept.join("&")),
    }
}

fn shortened(path: &str) -> String {
    path.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_a_client_do_not_leave() {
        for name in [
            "authorization",
            "proxy-authorization",
            "x-api-key",
            "api-key",
            "x-goog-api-key",
            "x-auth-token",
            "cookie",
            "x-amz-security-token",
            "x-goog-user-project",
        ] {
            assert!(is_credential(name), "{name}");
        }
        for name in [
            "anthropic-version",
            "anthropic-beta",
            "idempotency-key",
            "x-stainless-lang",
            "x-goog-api-client",
        ] {
            assert!(may_leave(name), "{name}");
        }
        for name in [
            "authorization",
            "anthropic-auth-token",
            "x-original-url",
            "x-http-method-override",
            "helicone-target-url",
            "x-forwarded-host",
            "openai-organization",
            "content-type",
            "content-encoding",
            "upgrade",
        ] {
            assert!(!may_leave(name), "{name}");
        }
        let hidden = "alt=sse&$httpHeaders=x-goog-api-key:A&$httpMethod=PATCH&%24req=x";
        assert_eq!(without_credentials(hidden), "?alt=sse");
        assert_eq!(without_credentials("alt=sse&key=A"), "?alt=sse");
        assert_eq!(without_credentials("beta=true"), "?beta=true");
        for query in [
            "key=A",
            "KEY=A",
            "%6bey=A",
            "access_token=A",
            "api_key=A",
            "k+ey=1",
            "x y=1",
        ] {
            assert_eq!(without_credentials(query), "", "{query}");
        }
    }
}
