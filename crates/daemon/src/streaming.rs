//! `GET /v1/stream`: a command on a terminal over a WebSocket, and a way back to one that runs.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use substrate_api::VERSION;
use substrate_api::errors::{Code, Problem};
use substrate_api::stream::{Control, Open, Place, Told};
use substrate_broker::Caller;
use substrate_executor::front::GivenStdio;
use substrate_sys::terminal::Size;
use substrate_world::backend::Master;
use tokio::sync::mpsc;

use crate::attempt::{Attempt, State};
use crate::execute::{self, Ends, Prepared};
use crate::service::Service;
use crate::terminals::{Next, Reader, Terminal};

/// Bytes of one frame.
const FRAME: usize = 4096;
/// How long a client may take to say what he wants.
const OPENING: Duration = Duration::from_secs(30);

/// The lease of a command that was asked for by its address alone.
pub(crate) const LEASE_MS: u64 = 60_000;

/// What a client asked for with his connection.
pub(crate) enum Wish {
    /// The command of his first text frame.
    Frame,
    /// This command.
    Command(Box<Open>),
    /// A terminal that is there, from this offset on.
    Back(Arc<Terminal>, Option<u64>),
}

/// One conversation. When it breaks the command goes on, as long as its lease.
pub(crate) async fn talk(service: Arc<Service>, caller: Caller, mut socket: WebSocket, wish: Wish) {
    let opened = match wish {
        Wish::Back(terminal, since) => {
            back(&terminal).map(|attempt| (terminal, attempt, since, None))
        }
        Wish::Command(open) => begin(&service, caller, *open).await,
        Wish::Frame => match first_frame(&mut socket).await {
            Ok(open) => begin(&service, caller, open).await,
            Err(problem) => Err(problem),
        },
    };
    match opened {
        Ok((terminal, attempt, since, notices)) => {
            let reader = terminal.join(since);
            // Whoever is gone comes back, or does not.
            let _ = relay(&mut socket, &terminal, &attempt, &reader, notices).await;
        }
        Err(problem) => drop(tell(&mut socket, &Told::Error(problem)).await),
    }
    let _ = socket.send(Message::Close(None)).await;
}

type Opened = (
    Arc<Terminal>,
    Arc<Attempt>,
    Option<u64>,
    Option<mpsc::UnboundedReceiver<String>>,
);

fn back(terminal: &Terminal) -> Result<Arc<Attempt>, Problem> {
    let gone = || {
        Problem::new(
            Code::NotFound,
            "the command of this terminal is not there yet",
        )
    };
    terminal.attempt().ok_or_else(gone)
}

async fn first_frame(socket: &mut WebSocket) -> Result<Open, Problem> {
    let bad = |text: &str| Problem::new(Code::BadRequest, text);
    loop {
        let frame = tokio::time::timeout(OPENING, socket.recv()).await;
        match frame.map_err(|_| Problem::new(Code::Timeout, "no first frame came"))? {
            Some(Ok(Message::Text(text))) => {
                return serde_json::from_str(&text).map_err(|error| bad(&error.to_string()));
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            _ => return Err(bad("the first frame is a text frame that says what to run")),
        }
    }
}

async fn begin(service: &Arc<Service>, caller: Caller, open: Open) -> Result<Opened, Problem> {
    let (size, lease) = (open.size, Duration::from_millis(open.lease_ms));
    let starting = Arc::clone(service);
    let prepare = move || execute::prepare(&starting, open.execute, true);
    let prepared = blocking(prepare).await??;
    let terminal = Terminal::new(size, lease);
    let (told, notices) = mpsc::unbounded_channel();
    let size = Size {
        rows: size.rows,
        columns: size.columns,
    };
    let attempt = start(service, caller, prepared, &terminal, (size, told))?;
    terminal.belongs_to(&attempt);
    service.terminals.add(&terminal);
    let (kept, watched, at) = (
        Arc::clone(&terminal),
        Arc::clone(&attempt),
        Arc::clone(service),
    );
    tokio::spawn(async move { kept.keep(watched, &at.terminals).await });
    Ok((terminal, attempt, None, Some(notices)))
}

fn start(
    service: &Arc<Service>,
    caller: Caller,
    prepared: Prepared,
    terminal: &Arc<Terminal>,
    (size, told): (Size, mpsc::UnboundedSender<String>),
) -> Result<Arc<Attempt>, Problem> {
    let attached = Arc::clone(terminal);
    let master = Master(Box::new(move |master| {
        if let Err(error) = attached.attach(master) {
            crate::log(&format!("a terminal cannot be looked after: {error}"));
        }
    }));
    let stdio = GivenStdio::Terminal(size, master);
    let notice = Box::new(move |line: &str| drop(told.send(line.to_owned())));
    execute::start(
        service,
        caller,
        prepared,
        None,
        Ends::Terminal(stdio, notice),
    )
}

/// The same for a client that waits for the answer and sees only what the terminal showed.
pub(crate) fn collected(
    service: &Arc<Service>,
    caller: Caller,
    prepared: Prepared,
    key: Option<&str>,
) -> Result<Arc<Attempt>, Problem> {
    let size = Size {
        rows: 24,
        columns: 80,
    };
    execute::start(
        service,
        caller,
        prepared,
        key,
        Ends::CollectedTerminal(size),
    )
}

/// Runs something that waits where it keeps nobody else waiting.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Problem::new(Code::Failed, error.to_string()))
}

async fn tell(socket: &mut WebSocket, told: &Told) -> Result<(), axum::Error> {
    let text = serde_json::to_string(told).unwrap_or_default();
    socket.send(Message::Text(text.into())).await
}

async fn relay(
    socket: &mut WebSocket,
    terminal: &Arc<Terminal>,
    attempt: &Arc<Attempt>,
    reader: &Reader,
    mut notices: Option<mpsc::UnboundedReceiver<String>>,
) -> Result<(), axum::Error> {
    let place = |offset| Place {
        v: VERSION,
        terminal: terminal.id.clone(),
        offset,
    };
    tell(socket, &Told::Terminal(place(reader.offset()))).await?;
    let mut state = attempt.watch();
    loop {
        let changed = terminal.changed.notified();
        tokio::pin!(changed);
        // Announced before the look, so that nothing that comes after it is missed.
        changed.as_mut().enable();
        match reader.next(FRAME) {
            Next::Bytes(bytes) => {
                let count = bytes.len();
                socket.send(Message::Binary(bytes.into())).await?;
                reader.seen(count);
                continue;
            }
            Next::Skipped(offset) => {
                tell(socket, &Told::Skipped(place(offset))).await?;
                continue;
            }
            Next::Over => {
                let over = ended(&mut state).await;
                drain(socket, &mut notices).await?;
                return tell(socket, &over).await;
            }
            Next::Wait => {}
        }
        tokio::select! {
            () = &mut changed => {}
            notice = next_notice(&mut notices) => tell(socket, &Told::Notice(notice)).await?,
            frame = socket.recv() => match frame {
                Some(frame) => heed(frame?, terminal, attempt).await?,
                None => return Ok(()),
            },
        }
    }
}

async fn next_notice(notices: &mut Option<mpsc::UnboundedReceiver<String>>) -> String {
    if let Some(open) = notices.as_mut() {
        if let Some(notice) = open.recv().await {
            return notice;
        }
        *notices = None;
    }
    std::future::pending().await
}

async fn drain(
    socket: &mut WebSocket,
    notices: &mut Option<mpsc::UnboundedReceiver<String>>,
) -> Result<(), axum::Error> {
    while let Some(Ok(notice)) = notices.as_mut().map(mpsc::UnboundedReceiver::try_recv) {
        tell(socket, &Told::Notice(notice)).await?;
    }
    Ok(())
}

/// Waits for the answer of a command whose terminal is over.
async fn ended(state: &mut tokio::sync::watch::Receiver<State>) -> Told {
    let over = state
        .wait_for(|state| matches!(state, State::Over(_)))
        .await;
    match over.as_deref() {
        Ok(State::Over(result)) => match result.as_ref() {
            Ok(response) => Told::Exit(Box::new(response.clone())),
            Err(problem) => Told::Error(problem.clone()),
        },
        _ => Told::Error(Problem::new(Code::Failed, "the command is lost")),
    }
}

async fn heed(
    frame: Message,
    terminal: &Arc<Terminal>,
    attempt: &Arc<Attempt>,
) -> Result<(), axum::Error> {
    match frame {
        Message::Binary(bytes) => {
            terminal.write(&bytes).await;
            Ok(())
        }
        Message::Text(text) => {
            match serde_json::from_str(&text) {
                Ok(Control::Resize(size)) => terminal.resize(size),
                Ok(Control::End(_)) => attempt.abandon(None),
                // What nobody understands ends the conversation, not the command.
                Err(error) => return Err(axum::Error::new(error)),
            }
            Ok(())
        }
        Message::Close(_) => Err(axum::Error::new(std::io::Error::other("closed"))),
        Message::Ping(_) | Message::Pong(_) => Ok(()),
    }
}
