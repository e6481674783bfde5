//! What can be asked for, and how it is answered. [`crate::openapi`] describes the same list.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{DefaultBodyLimit, Extension, Path, Query, Request, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http_body_util::LengthLimitError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use substrate_api::VERSION;
use substrate_api::approvals::{Answer, Answered, WaitingList};
use substrate_api::errors::{Code, ErrorBody, Problem};
use substrate_api::execute::{Approval, ExecuteRequest, Pending, State as Progress};
use substrate_api::explain::ExplainRequest;
use substrate_api::service::{Agents, Capabilities, Limits, Status, WorldRequest, Worlds};
use substrate_api::stream::{Open, Size};
use substrate_broker::Caller;
use substrate_changes::diff;
use substrate_changes::pending::Pending as Held;
use substrate_trace::read::{Filter, Follow, Order, Reader, Record};

use crate::attempt::{Attempt, Interest, State};
use crate::execute::{self, Ends, OUTPUT, json};
use crate::queue::NotAnswered;
use crate::service::{COMMANDS, Service};
use crate::streaming::{self, Wish, blocking};
use crate::{explain, openapi, who, worlds};

/// Longest body of a request.
const BODY: usize = 16 << 20;
/// How long a body may take.
const BODY_TIME: Duration = Duration::from_secs(30);
/// How often a stream of events looks for news.
const GLANCE: Duration = Duration::from_millis(200);
/// Longest key of an attempt.
const LONGEST_KEY: usize = 255;

type App = Shared<Arc<Service>>;
type Who = Extension<Caller>;

/// An error as a client gets it.
pub(crate) struct Refusal(Problem);

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        Refusal(problem)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(ErrorBody::from(self.0))).into_response()
    }
}

type Answers<T> = Result<Json<T>, Refusal>;

/// All routes.
pub(crate) fn router(service: &Arc<Service>) -> Router {
    Router::new()
        .route("/v1/capabilities", get(capabilities))
        .route("/v1/status", get(status))
        .route(
            "/v1/openapi.json",
            get(|| async { Json(openapi::document()) }),
        )
        .route("/v1/execute", post(execute))
        .route("/v1/explain", post(explain))
        .route("/v1/attempts/{id}", get(attempt).delete(abandon))
        .route("/v1/stream", get(stream))
        .route("/v1/trace/{span}", get(trace))
        .route("/v1/events", get(events))
        .route("/v1/agents", get(agents))
        .route("/v1/approvals", get(approvals))
        .route("/v1/approvals/{id}", post(answer))
        .route("/v1/worlds", get(kept))
        .route("/v1/worlds/warm", post(warm))
        .route("/v1/worlds/restart", post(restart))
        .route("/v1/results", get(results))
        .route("/v1/results/{id}", get(result))
        .fallback(|| async { Refusal(nothing_here()) })
        .method_not_allowed_fallback(|| async { Refusal(other_method()) })
        .layer(middleware::from_fn(of_the_living))
        .layer(middleware::from_fn(in_words))
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::clone(service))
}

fn nothing_here() -> Problem {
    Problem::new(Code::NotFound, "there is nothing at this path")
        .hint("GET /v1/openapi.json lists what there is")
}

fn other_method() -> Problem {
    Problem::new(Code::MethodNotAllowed, "not by this method")
        .hint("GET /v1/openapi.json tells which; /v1/stream is a WebSocket, which begins with GET")
}

/// Whoever holds a connection that another process made is not known: with its end it gets nothing more.
async fn of_the_living(
    Extension(caller): Who,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    who::admit(&caller)?;
    Ok(next.run(request).await)
}

/// Errors of the layers below have the shape of all others.
async fn in_words(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let status = response.status();
    let content = response.headers().get(header::CONTENT_TYPE);
    let is_json = content.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if is_json || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let code = match status.as_u16() {
        404 => Code::NotFound,
        405 => Code::MethodNotAllowed,
        413 => Code::TooLarge,
        400..500 => Code::BadRequest,
        _ => Code::Failed,
    };
    let body = axum::body::to_bytes(response.into_body(), 4096).await;
    let text = String::from_utf8_lossy(&body.unwrap_or_default()).into_owned();
    Refusal(Problem::new(code, substrate_text::visible(text.as_bytes()))).into_response()
}

/// A document of a request, whatever it says its type is.
async fn document<T: DeserializeOwned>(body: Body) -> Result<T, Problem> {
    let whole = tokio::time::timeout(BODY_TIME, axum::body::to_bytes(body, BODY)).await;
    let late = |_| Problem::new(Code::Timeout, "the body did not come in time");
    let bytes: Bytes = whole.map_err(late)?.map_err(|error| too_long(&error))?;
    serde_json::from_slice(&bytes).map_err(|error| {
        let text = substrate_text::visible(error.to_string().as_bytes());
        Problem::new(
            Code::BadRequest,
            format!("the body is not what is expected: {text}"),
        )
        .hint("GET /v1/openapi.json describes it")
    })
}

fn too_long(error: &axum::Error) -> Problem {
    let source = std::error::Error::source(error);
    match source.is_some_and(|source| source.is::<LengthLimitError>()) {
        true => Problem::new(Code::TooLarge, format!("a body has {BODY} bytes at most")),
        false => Problem::new(Code::BadRequest, "the body broke off"),
    }
}

async fn capabilities(Shared(service): App) -> Json<Capabilities> {
    Json(Capabilities {
        v: VERSION,
        version: service.version.clone(),
        api: vec![VERSION],
        backend: "linux".to_owned(),
        routes: openapi::routes(),
        limits: Limits {
            body_bytes: BODY as u64,
            output_bytes: OUTPUT as u64,
            commands: COMMANDS as u64,
            worlds: service.bounds.worlds as u64,
        },
    })
}

async fn status(Shared(service): App, Extension(caller): Who) -> Answers<Status> {
    who::outside(&caller, "what runs is shown outside sessions only")?;
    let (made, reused) = service.keeper.counts().read();
    Ok(Json(Status {
        v: VERSION,
        version: service.version.clone(),
        pid: std::process::id(),
        uptime_ms: u64::try_from(service.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        running: service.running() as u64,
        waiting: service.queue.len() as u64,
        worlds_made: made,
        worlds_reused: reused,
        memory_bytes: resident(),
        worlds: worlds::list(&service),
    }))
}

/// Resident memory of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

async fn execute(
    Shared(service): App,
    Extension(caller): Who,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Refusal> {
    let request: ExecuteRequest = document(request.into_body()).await?;
    let (approval, pty) = (request.approval, request.pty);
    let key = idempotency_key(&headers)?;
    if key.is_some() {
        let text =
            "an Idempotency-Key is for clients outside sessions, who may come back for the answer";
        who::outside(&caller, text)?;
    }
    if approval == Approval::Later {
        let text =
            "approval `later` is for clients outside sessions, who may come back for the answer";
        who::outside(&caller, text)?;
    }
    let starting = Arc::clone(&service);
    let prepared = blocking(move || execute::prepare(&starting, request, pty)).await??;
    let keyed = key.is_some();
    let attempt = match pty {
        false => execute::start(&service, caller, prepared, key.as_deref(), Ends::Collected)?,
        true => streaming::collected(&service, caller, prepared, key.as_deref())?,
    };
    // Whoever gave a key comes back for the answer, and so does who was told a place.
    let interest = (!keyed).then(|| Interest(Arc::clone(&attempt)));
    let response = outcome(&attempt, approval == Approval::Later).await?;
    if let Some(interest) = interest
        && response.status() == StatusCode::ACCEPTED
    {
        std::mem::forget(interest);
    }
    Ok(response)
}

async fn explain(Shared(service): App, Extension(caller): Who, request: Request) -> Answers<Value> {
    let request: ExplainRequest = document(request.into_body()).await?;
    Ok(Json(
        blocking(move || explain::explain(&service, caller, &request)).await??,
    ))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(key) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = key.to_str().ok();
    let good = text.filter(|text| !text.is_empty() && text.len() <= LONGEST_KEY);
    good.map(|text| Some(text.to_owned())).ok_or_else(|| {
        Problem::new(
            Code::BadRequest,
            format!("Idempotency-Key: 1 to {LONGEST_KEY} visible characters are expected"),
        )
    })
}

/// What becomes of an attempt: its answer, or that a person has to be asked first.
async fn outcome(attempt: &Arc<Attempt>, later: bool) -> Result<Response, Refusal> {
    let mut state = attempt.watch();
    let settled = |state: &State| match state {
        State::Over(_) => true,
        State::Asking(_) => later,
        State::Running => false,
    };
    let found = state.wait_for(settled).await.map(|state| state.clone());
    match found.unwrap_or(State::Running) {
        State::Over(result) => match result.as_ref() {
            Ok(response) => Ok(Json(response.clone()).into_response()),
            Err(problem) => Err(Refusal(problem.clone())),
        },
        other => Ok(pending(attempt, &other)),
    }
}

fn pending(attempt: &Attempt, state: &State) -> Response {
    let (state, approval) = match state {
        State::Asking(id) => (Progress::Asking, Some(id.clone())),
        _ => (Progress::Running, None),
    };
    let pending = Pending {
        v: VERSION,
        attempt: attempt.id.clone(),
        state,
        approval,
    };
    let place = format!("/v1/attempts/{}", attempt.id);
    (
        StatusCode::ACCEPTED,
        [(header::LOCATION, place)],
        Json(pending),
    )
        .into_response()
}

fn known(service: &Service, id: &str) -> Result<Arc<Attempt>, Problem> {
    service.attempts.find(id).ok_or_else(|| {
        Problem::new(
            Code::NotFound,
            "no such attempt is known; it may be long over",
        )
        .hint("its span is in the trace: GET /v1/trace/{span_id}")
    })
}

async fn attempt(
    Shared(service): App,
    Extension(caller): Who,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    who::outside(&caller, "attempts are shown to their clients only")?;
    let attempt = known(&service, &id)?;
    match attempt.state() {
        State::Over(_) => outcome(&attempt, false).await,
        other => Ok(pending(&attempt, &other)),
    }
}

async fn abandon(
    Shared(service): App,
    Extension(caller): Who,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    who::outside(&caller, "attempts are ended by their clients only")?;
    let attempt = known(&service, &id)?;
    attempt.abandon(None);
    Ok(pending(&attempt, &attempt.state()))
}

/// How a stream is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamQuery {
    agent_id: Option<String>,
    cmd: Option<String>,
    cwd: Option<String>,
    rows: Option<u16>,
    columns: Option<u16>,
    terminal: Option<String>,
    since: Option<u64>,
}

async fn stream(
    Shared(service): App,
    Extension(caller): Who,
    Query(query): Query<StreamQuery>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let upgrade = upgrade.map_err(|error| {
        let text = format!("/v1/stream is a WebSocket: {error}");
        Refusal(Problem::new(Code::BadRequest, text))
    })?;
    let wish = match (&query.terminal, &query.cmd) {
        (Some(id), _) => {
            who::outside(&caller, "terminals are shown to their clients only")?;
            let found = service.terminals.find(id);
            let terminal = found.ok_or_else(|| {
                Refusal(Problem::new(
                    Code::NotFound,
                    "there is no such terminal any more",
                ))
            })?;
            Wish::Back(terminal, query.since)
        }
        (None, None) => Wish::Frame,
        (None, Some(_)) => Wish::Command(Box::new(open(query))),
    };
    Ok(upgrade.on_upgrade(move |socket| streaming::talk(service, caller, socket, wish)))
}

fn open(query: StreamQuery) -> Open {
    let size = Size::default();
    Open {
        execute: ExecuteRequest {
            v: VERSION,
            agent_id: query.agent_id,
            cmd: query.cmd.as_deref().map(Into::into),
            cwd: query.cwd.as_deref().map(Into::into),
            ..ExecuteRequest::default()
        },
        size: Size {
            rows: query.rows.unwrap_or(size.rows),
            columns: query.columns.unwrap_or(size.columns),
        },
        lease_ms: streaming::LEASE_MS,
    }
}

async fn trace(
    Shared(service): App,
    Extension(caller): Who,
    Path(span): Path<String>,
) -> Answers<Value> {
    who::outside(&caller, "the trace is shown outside sessions only")?;
    let home = service.home.path.clone();
    let found = blocking(move || -> Result<Value, Problem> {
        let failed = |error: substrate_trace::Error| Problem::new(Code::Failed, error.to_string());
        let reader = Reader::open(&home).map_err(failed)?;
        let missing = |error: substrate_trace::read::FindError| {
            Problem::new(Code::NotFound, error.to_string())
        };
        let events = reader.find(&span).map_err(missing)?;
        let lines = events.events.iter();
        let lines: Result<Vec<Value>, _> = lines
            .map(|record| serde_json::from_slice(&record.raw))
            .collect();
        let lines = lines.map_err(|error| Problem::new(Code::Failed, error.to_string()))?;
        Ok(json!({ "v": VERSION, "span_id": events.id, "events": lines }))
    });
    Ok(Json(found.await??))
}

/// Events as they are written, from now on.
async fn events(
    Shared(service): App,
    Extension(caller): Who,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Refusal> {
    who::outside(&caller, "events are shown outside sessions only")?;
    let home = service.home.path.clone();
    let open = move || Follow::from_end(&home, &Filter::default());
    let follow = blocking(open).await?;
    let follow = follow.map_err(|error| Refusal(Problem::new(Code::Failed, error.to_string())))?;
    let earlier = match headers.get("last-event-id") {
        None => Vec::new(),
        Some(id) => after(&service, id.to_str().unwrap_or_default().to_owned()).await?,
    };
    let held = Following {
        follow,
        found: earlier.into_iter(),
        ends: service.ends(),
    };
    let stream = futures_util::stream::unfold(held, Following::next);
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

/// By what an event is found again.
fn event_id(record: &Record) -> String {
    let span = &record.span;
    format!("{}/{}/{}", span.ts, span.span_id, span.event_type)
}

/// The events after one that a client has seen; all that there are where it is not there any more.
async fn after(service: &Service, last: String) -> Result<Vec<Record>, Problem> {
    let home = service.home.path.clone();
    let read = move || -> Result<Vec<Record>, substrate_trace::Error> {
        let reader = Reader::open(&home)?;
        let all: Result<Vec<Record>, _> = reader
            .records(Order::OldestFirst, &Filter::default())
            .collect();
        let mut all = all?;
        if let Some(at) = all.iter().rposition(|record| event_id(record) == last) {
            all.drain(..=at);
        }
        Ok(all)
    };
    let found = blocking(read).await?;
    found.map_err(|error| Problem::new(Code::Failed, error.to_string()))
}

/// What a stream of events holds between them.
struct Following {
    follow: Follow,
    found: std::vec::IntoIter<Record>,
    ends: tokio::sync::watch::Receiver<bool>,
}

impl Following {
    /// The next event, when there is one; nothing once the service ends.
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        loop {
            if let Some(record) = self.found.next() {
                let event = Event::default()
                    .event(record.span.event_type.clone())
                    .id(event_id(&record))
                    .data(String::from_utf8_lossy(&record.raw));
                return Some((Ok(event), self));
            }
            tokio::select! {
                _ = self.ends.wait_for(|end| *end) => return None,
                () = tokio::time::sleep(GLANCE) => {}
            }
            let mut follow = self.follow;
            let looked = tokio::task::spawn_blocking(move || (follow.poll(), follow)).await;
            let (records, back) = looked.ok()?;
            self.follow = back;
            self.found = records.ok()?.into_iter();
        }
    }
}

async fn agents(Shared(service): App, Extension(caller): Who) -> Answers<Agents> {
    who::outside(&caller, "what agents used is shown outside sessions only")?;
    let listed = blocking(move || service.accounts().and_then(|all| all.list())).await?;
    let agents = listed.map_err(|error| Problem::new(Code::Failed, error.to_string()))?;
    Ok(Json(Agents { v: VERSION, agents }))
}

async fn approvals(Shared(service): App, Extension(caller): Who) -> Answers<WaitingList> {
    who::outside(&caller, "questions are shown outside sessions only")?;
    Ok(Json(WaitingList {
        v: VERSION,
        waiting: service.queue.list(),
    }))
}

async fn answer(
    Shared(service): App,
    Extension(caller): Who,
    Path(id): Path<String>,
    request: Request,
) -> Answers<Answered> {
    let given: Answer = document(request.into_body()).await?;
    execute::same_version(given.v)?;
    let by = blocking(move || who::answers_as(&caller)).await??;
    let answered = service.queue.answer(&id, given.answer);
    answered.map_err(|NotAnswered::Unknown| {
        Problem::new(Code::NotFound, NotAnswered::Unknown.to_string())
    })?;
    Ok(Json(Answered {
        v: VERSION,
        id,
        answer: given.answer,
        by,
    }))
}

async fn kept(Shared(service): App, Extension(caller): Who) -> Answers<Worlds> {
    who::outside(&caller, "worlds are shown outside sessions only")?;
    Ok(Json(Worlds {
        v: VERSION,
        worlds: worlds::list(&service),
    }))
}

async fn warm(
    Shared(service): App,
    Extension(caller): Who,
    request: Request,
) -> Answers<substrate_api::service::World> {
    let request: WorldRequest = document(request.into_body()).await?;
    Ok(Json(
        blocking(move || worlds::warm(&service, caller, &request)).await??,
    ))
}

async fn restart(
    Shared(service): App,
    Extension(caller): Who,
    request: Request,
) -> Answers<substrate_api::service::Ended> {
    let request: WorldRequest = document(request.into_body()).await?;
    Ok(Json(
        blocking(move || worlds::restart(&service, &caller, &request)).await??,
    ))
}

/// Results that wait for a person.
async fn results(Shared(service): App, Extension(caller): Who) -> Answers<Value> {
    who::outside(&caller, "results are shown outside sessions only")?;
    let home = service.home.path.clone();
    let listed = blocking(move || Held::list(&home)).await?;
    let listed = listed.map_err(|error| Problem::new(Code::Failed, error.to_string()))?;
    let waiting = listed.iter().filter(|held| !held.is_running());
    let results: Vec<Value> = waiting.map(|held| json(held.meta())).collect();
    Ok(Json(json!({ "v": VERSION, "results": results })))
}

/// What a result changes.
async fn result(
    Shared(service): App,
    Extension(caller): Who,
    Path(id): Path<String>,
) -> Answers<Value> {
    who::outside(&caller, "results are shown outside sessions only")?;
    let home = service.home.path.clone();
    let found = blocking(move || -> Result<Value, Problem> {
        let missing = |error: substrate_changes::pending::PendingError| {
            Problem::new(Code::NotFound, error.to_string())
        };
        let held = Held::find(&home, &id).map_err(missing)?;
        let diff = diff::settle(&held, false, &mut |_| true)
            .map_err(|error| Problem::new(Code::Failed, error.to_string()))?;
        Ok(json!({ "v": VERSION, "result": json(held.meta()), "fs_diff": json(&diff) }))
    });
    Ok(Json(found.await??))
}
