//! A gate: takes the connections of a world and serves each on a thread of its own.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use substrate_sys::poll;

use crate::config::GateConfig;
use crate::dial::Dialer;
use crate::exchange;

/// Connections at one time; a client has a handful.
const MOST_CONNECTIONS: usize = 32;
/// How long the end waits for what is under way; clients are gone by then.
const ENDING: Duration = Duration::from_secs(5);

/// A gate that serves. It ends when it is dropped.
pub struct Gate {
    stop: Option<UnixStream>,
    accepting: Option<JoinHandle<()>>,
    open: Arc<Open>,
}

/// The connections that are served.
#[derive(Default)]
struct Open {
    streams: Mutex<HashMap<u64, TcpStream>>,
    closed: Condvar,
}

impl Gate {
    /// Serves the connections of a listening socket, whatever network that lives in.
    pub fn start(listener: OwnedFd, config: GateConfig) -> io::Result<Gate> {
        let listener = TcpListener::from(listener);
        poll::set_nonblocking(&listener)?;
        let (stop, stopped) = UnixStream::pair()?;
        let open = Arc::new(Open::default());
        let serving = Serving {
            dialer: Dialer::new(
                config.upstream.clone(),
                config.roots.clone(),
                config.proxies.clone(),
            ),
            config,
            open: Arc::clone(&open),
        };
        let accepting = thread::Builder::new()
            .name("model-gate".to_owned())
            .spawn(move || Arc::new(serving).accept(&listener, &stopped))?;
        Ok(Gate {
            stop: Some(stop),
            accepting: Some(accepting),
            open,
        })
    }

    /// Ends it: what is under way is broken off, and counted.
    pub fn finish(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.open.end();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.end();
    }
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, TcpStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        let mut streams = self.lock();
        for stream in streams.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let end = Instant::now() + ENDING;
        while !streams.is_empty() && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            let waited = self.closed.wait_timeout(streams, left);
            streams = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

struct Serving {
    config: GateConfig,
    dialer: Dialer,
    open: Arc<Open>,
}

impl Serving {
    fn accept(self: Arc<Self>, listener: &TcpListener, stopped: &UnixStream) {
        self.dialer.make_ready();
        let mut next = 0;
        loop {
            let ready = poll::readable(&[listener.as_fd(), stopped.as_fd()], None);
            match ready.as_deref() {
                Ok([_, true]) | Err(_) => return,
                Ok([true, false]) => {}
                Ok(_) => continue,
            }
            // One that hung up meanwhile, or a moment without descriptors.
            let Ok((stream, _)) = listener.accept() else {
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            if self.open.lock().len() >= MOST_CONNECTIONS {
                continue;
            }
            next += 1;
            let _ = Arc::clone(&self).serve(next, stream);
        }
    }

    fn serve(self: Arc<Self>, id: u64, stream: TcpStream) -> io::Result<()> {
        poll::set_blocking(&stream)?;
        self.open.lock().insert(id, stream.try_clone()?);
        let serving = Arc::clone(&self);
        let thread = thread::Builder::new().name("model-client".to_owned());
        let spawned = thread.spawn(move || {
            let _leaving = Leaving(id, &serving.open);
            exchange::serve(&serving.config, &serving.dialer, stream);
        });
        if spawned.is_err() {
            drop(Leaving(id, &self.open));
        }
        spawned.map(drop)
    }
}

/// Takes a connection off the list, however its thread ends.
struct Leaving<'a>(u64, &'a Open);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.1.lock().remove(&self.0);
        self.1.closed.notify_all();
    }
}
