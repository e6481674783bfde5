//! Watches the files of policies for a shell that sits at its prompt, so that a person hears of a
//! change at once. Judgements do not depend on it: they look for themselves.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use substrate_broker::Broker;
use substrate_broker::choice::FLOOR;
use substrate_executor::session::Session;
use substrate_trace::Writer;

use crate::notice::Announcer;

/// Editors write a file in several steps; the last one counts.
const QUIET: Duration = Duration::from_millis(300);

/// A running watch; it ends when this is dropped.
pub struct PolicyWatch {
    _watcher: RecommendedWatcher,
}

/// Tells of changed policies as soon as they change, while a person edits a line; what changes while a
/// program has the screen is left for the next prompt.
pub fn announce(session: &Session, announcer: &Announcer) -> notify::Result<PolicyWatch> {
    let (teller, announcer) = (session.policy_teller(), announcer.clone());
    let (front, home) = (
        Arc::clone(&session.front),
        session.broker.home().path.clone(),
    );
    start(session.broker.clone(), move || {
        if !announcer.is_editing() {
            return;
        }
        let writer = Writer::open(&home);
        let say = |kind, text: &str| announcer.say(&front.line(kind, text));
        teller.tell(&say, &|event| {
            if let Ok(writer) = &writer {
                let _ = writer.write(event);
            }
        });
    })
}

/// Watches the directories that policies come from, because editors replace files. `changed` is called
/// from another thread when there is something to tell: see `Session::heed_policy_changes`.
fn start(broker: Broker, changed: impl Fn() + Send + 'static) -> notify::Result<PolicyWatch> {
    let (sender, events) = mpsc::channel();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading files is no change; the broker does it all the time.
        if event.is_ok_and(|event| !event.kind.is_access()) {
            let _ = sender.send(());
        }
    })?;
    let home = broker.home();
    let floor = PathBuf::from(FLOOR);
    let directories = [
        Some(home.path.clone()),
        Some(home.policies()),
        Some(home.tools()),
        floor.parent().map(ToOwned::to_owned),
    ];
    for directory in directories
        .into_iter()
        .flatten()
        .filter(|path| path.is_dir())
    {
        watcher.watch(&directory, RecursiveMode::NonRecursive)?;
    }
    std::thread::Builder::new()
        .name("policy-watch".to_owned())
        .spawn(move || {
            while events.recv().is_ok() {
                loop {
                    match events.recv_timeout(QUIET) {
                        Ok(()) => {}
                        Err(RecvTimeoutError::Timeout) => break,
                        Err(RecvTimeoutError::Disconnected) => return,
                    }
                }
                broker.refresh();
                if broker.has_notes() {
                    changed();
                }
            }
        })?;
    Ok(PolicyWatch { _watcher: watcher })
}
