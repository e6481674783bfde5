//! Connections: who they are, how long they may take, and their end.

use std::io;
use std::os::unix::net::UnixListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use substrate_broker::Caller;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use crate::service::Service;
use crate::{routes, who};

/// Connections at once; more wait to be taken.
const CONNECTIONS: usize = 256;
/// How long a head may take.
const HEAD: Duration = Duration::from_secs(10);
/// Longest head.
const LONGEST_HEAD: usize = 32 * 1024;
/// What open conversations have for their end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves until the service is to end.
pub(crate) fn serve(
    service: &Arc<Service>,
    listener: UnixListener,
    ready: impl FnOnce(),
) -> io::Result<()> {
    // Waited for together with everything else.
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("substrate-http")
        .enable_all()
        .build()?;
    let served = runtime.block_on(accept(service, listener, ready));
    runtime.shutdown_timeout(FAREWELL);
    served
}

async fn accept(
    service: &Arc<Service>,
    listener: UnixListener,
    ready: impl FnOnce(),
) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut ends = service.ends();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let router = routes::router(service);
    ready();
    loop {
        let connection = tokio::select! {
            connection = listener.accept() => connection,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = ends.wait_for(|end| *end) => break,
        };
        let Ok((stream, _)) = connection else {
            // Too many descriptors, or a client that is gone: neither lasts.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            break;
        };
        let (service, router) = (Arc::clone(service), router.clone());
        tokio::spawn(async move {
            converse(&service, router, stream).await;
            drop(place);
        });
    }
    service.end();
    Ok(())
}

async fn converse(service: &Arc<Service>, router: Router, stream: UnixStream) {
    // Asked while he is connected; one that is gone already gets no answer.
    let Ok(caller) = Caller::peer(&stream) else {
        return;
    };
    if who::admit(&caller).is_err() {
        return;
    }
    let _connection = service.connected();
    let router = router.layer(Extension(caller));
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(LONGEST_HEAD)
        .half_close(false);
    let served = server
        .serve_connection::<_, TowerToHyperService<Router>>(
            TokioIo::new(stream),
            TowerToHyperService::new(router),
        )
        .with_upgrades();
    let mut served = pin!(served);
    let mut ends = service.ends();
    let end = async {
        let _ = ends.wait_for(|end| *end).await;
    };
    tokio::select! {
        _ = served.as_mut() => return,
        () = end => served.as_mut().graceful_shutdown(),
    }
    // An answer that is being written is finished.
    let _ = served.await;
}
