//! Terminals of commands that clients look at: what a terminal showed last is kept, so that a client whose
//! connection broke can come back to where he was, and a slow one holds up nobody but his own command.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use substrate_api::stream::Size;
use substrate_sys::{poll, process_group, terminal};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::attempt::{Attempt, State};
use crate::locked::lock;

/// What is kept of each terminal.
pub(crate) const RING: usize = 1 << 20;
/// Longest lease: nobody is forgotten for ever.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 3600);
/// Frames of keys that wait for a command which does not read.
const KEYS: usize = 16;
/// What a terminal has for showing what a command wrote before its end.
const LAST_WORDS: Duration = Duration::from_millis(50);
/// How long the end of a command can be asked for.
const AFTERWARDS: Duration = Duration::from_secs(60);

/// All terminals, by their ids.
#[derive(Default)]
pub(crate) struct Terminals(Mutex<BTreeMap<String, Arc<Terminal>>>);

impl Terminals {
    pub fn find(&self, id: &str) -> Option<Arc<Terminal>> {
        lock(&self.0).get(id).cloned()
    }

    pub fn add(&self, terminal: &Arc<Terminal>) {
        lock(&self.0).insert(terminal.id.clone(), Arc::clone(terminal));
    }

    pub fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    fn remove(&self, id: &str) {
        lock(&self.0).remove(id);
    }
}

/// One of them.
pub(crate) struct Terminal {
    pub id: String,
    lease: Duration,
    shown: Mutex<Shown>,
    /// Rings when something changed.
    pub changed: Notify,
    /// Rings when there is room for more.
    room: Condvar,
    master: Mutex<Option<Master>>,
    size: Mutex<Size>,
    attempt: Mutex<Option<Arc<Attempt>>>,
}

/// The side of a terminal that is ours.
struct Master {
    fd: Arc<OwnedFd>,
    typed: mpsc::Sender<Vec<u8>>,
}

fn type_into(master: &OwnedFd, mut keys: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = keys.blocking_recv() {
        if poll::write_all(master, &bytes).is_err() {
            return;
        }
    }
}

/// What it showed.
#[derive(Default)]
struct Shown {
    /// How many bytes came before those that are kept.
    start: u64,
    kept: VecDeque<u8>,
    /// How far each client has come, by a number of his own.
    readers: BTreeMap<u64, u64>,
    next_reader: u64,
    /// Nothing more comes.
    over: bool,
}

impl Shown {
    fn end(&self) -> u64 {
        self.start + self.kept.len() as u64
    }

    /// How much may be read from the command now: as long as somebody looks, nothing that he has not seen is
    /// forgotten.
    fn room(&self) -> usize {
        let behind = self.readers.values().min();
        let waiting = behind.map_or(0, |at| self.end().saturating_sub(*at));
        RING.saturating_sub(usize::try_from(waiting).unwrap_or(RING))
    }

    fn add(&mut self, bytes: &[u8]) {
        self.kept.extend(bytes);
        let too_many = self.kept.len().saturating_sub(RING);
        self.kept.drain(..too_many);
        self.start += too_many as u64;
    }
}

/// What a client sees next.
pub(crate) enum Next {
    /// These bytes.
    Bytes(Vec<u8>),
    /// What came before this offset is gone.
    Skipped(u64),
    /// Nothing now.
    Wait,
    /// Nothing any more.
    Over,
}

impl Terminal {
    pub fn new(size: Size, lease: Duration) -> Arc<Terminal> {
        Arc::new(Terminal {
            id: substrate_trace::unique("tty"),
            lease: lease.min(LONGEST_LEASE),
            shown: Mutex::default(),
            changed: Notify::new(),
            room: Condvar::new(),
            master: Mutex::default(),
            size: Mutex::new(size),
            attempt: Mutex::default(),
        })
    }

    /// Says whose terminal it is.
    pub fn belongs_to(&self, attempt: &Arc<Attempt>) {
        *lock(&self.attempt) = Some(Arc::clone(attempt));
    }

    pub fn attempt(&self) -> Option<Arc<Attempt>> {
        lock(&self.attempt).clone()
    }

    /// Looks after the master of a command's terminal until nobody has the other side any more.
    pub fn attach(self: &Arc<Terminal>, master: OwnedFd) -> io::Result<()> {
        // It may have been resized before it was there.
        self.apply_size(&master);
        let master = Arc::new(master);
        let (typed, keys) = mpsc::channel(KEYS);
        let (shows, types) = (Arc::clone(&master), Arc::clone(&master));
        let terminal = Arc::clone(self);
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        thread("substrate-screen").spawn(move || terminal.pump(&shows))?;
        thread("substrate-keys").spawn(move || type_into(&types, keys))?;
        *lock(&self.master) = Some(Master { fd: master, typed });
        Ok(())
    }

    fn pump(&self, master: &OwnedFd) {
        let mut buffer = vec![0; 64 * 1024];
        while let Some(room) = self.wait_for_room() {
            let room = room.min(buffer.len());
            match process_group::readable(&[master.as_fd()], Some(LAST_WORDS)) {
                Ok(ready) if ready.contains(&true) => {}
                Ok(_) => continue,
                Err(_) => break,
            }
            match poll::read(master, &mut buffer[..room]) {
                // EIO: nobody has the other side open any more.
                Ok(0) | Err(_) => break,
                Ok(got) => {
                    lock(&self.shown).add(&buffer[..got]);
                    self.changed.notify_waiters();
                }
            }
        }
        self.end();
    }

    /// How much may be read; nothing once it is over.
    fn wait_for_room(&self) -> Option<usize> {
        let shown = lock(&self.shown);
        let full = |shown: &mut Shown| !shown.over && shown.room() == 0;
        let waited = self.room.wait_while(shown, full);
        let shown = waited.unwrap_or_else(PoisonError::into_inner);
        (!shown.over).then(|| shown.room())
    }

    fn end(&self) {
        lock(&self.shown).over = true;
        *lock(&self.master) = None;
        self.room.notify_all();
        self.changed.notify_waiters();
    }

    /// The command has ended, or was never started. What it showed last is taken in; what it left in the
    /// background with this terminal shows nothing more.
    async fn close(&self) {
        let is_over = || lock(&self.shown).over;
        let mut before = None;
        while !is_over() {
            let now = lock(&self.shown).end();
            let quiet = before == Some(now) && lock(&self.shown).room() > 0;
            if quiet || lock(&self.master).is_none() {
                break;
            }
            before = Some(now);
            tokio::time::sleep(LAST_WORDS).await;
        }
        self.end();
    }

    /// What was typed, all of it, in its order; whoever types faster than it is read waits.
    pub async fn write(&self, bytes: &[u8]) {
        let typed = lock(&self.master)
            .as_ref()
            .map(|master| master.typed.clone());
        if let Some(typed) = typed {
            // A terminal that has just ended takes nothing.
            let _ = typed.send(bytes.to_vec()).await;
        }
    }

    pub fn resize(&self, size: Size) {
        *lock(&self.size) = size;
        if let Some(master) = lock(&self.master).as_ref() {
            self.apply_size(&master.fd);
        }
    }

    fn apply_size(&self, master: &OwnedFd) {
        let size = *lock(&self.size);
        let size = terminal::Size {
            rows: size.rows,
            columns: size.columns,
        };
        // One that has just been closed has no size.
        let _ = terminal::set_size(master, size);
    }

    /// Somebody looks from this offset on; without one, from the beginning of what is kept.
    pub fn join(self: &Arc<Terminal>, since: Option<u64>) -> Reader {
        let mut shown = lock(&self.shown);
        let number = shown.next_reader;
        shown.next_reader += 1;
        let at = since.unwrap_or(shown.start).min(shown.end());
        shown.readers.insert(number, at);
        Reader {
            terminal: Arc::clone(self),
            number,
        }
    }

    fn is_watched(&self) -> bool {
        !lock(&self.shown).readers.is_empty()
    }

    /// Ends the command once nobody has looked for as long as the lease, and forgets the terminal some time
    /// after its end.
    pub async fn keep(self: Arc<Terminal>, attempt: Arc<Attempt>, terminals: &Terminals) {
        let mut state = attempt.watch();
        let mut unwatched: Option<Instant> = None;
        loop {
            if matches!(*state.borrow_and_update(), State::Over(_)) {
                break;
            }
            unwatched = match self.is_watched() {
                true => None,
                false => Some(unwatched.unwrap_or_else(Instant::now)),
            };
            if unwatched.is_some_and(|since| since.elapsed() >= self.lease) {
                attempt.abandon(Some("lease_ms"));
            }
            let glance = self
                .lease
                .clamp(Duration::from_millis(50), Duration::from_secs(1));
            tokio::select! {
                changed = state.changed() => if changed.is_err() { break },
                () = tokio::time::sleep(glance) => {}
            }
        }
        self.close().await;
        tokio::time::sleep(AFTERWARDS).await;
        terminals.remove(&self.id);
    }
}

/// A client who looks at a terminal.
pub(crate) struct Reader {
    terminal: Arc<Terminal>,
    number: u64,
}

impl Reader {
    /// What he has not seen yet, in pieces of this many bytes at most.
    pub fn next(&self, most: usize) -> Next {
        let mut shown = lock(&self.terminal.shown);
        let at = shown.readers.get(&self.number).copied().unwrap_or(0);
        if at < shown.start {
            let start = shown.start;
            shown.readers.insert(self.number, start);
            return Next::Skipped(start);
        }
        let from = usize::try_from(at - shown.start).unwrap_or(usize::MAX);
        let bytes: Vec<u8> = shown.kept.iter().skip(from).take(most).copied().collect();
        match (bytes.is_empty(), shown.over) {
            (true, true) => Next::Over,
            (true, false) => Next::Wait,
            (false, _) => Next::Bytes(bytes),
        }
    }

    /// That he has them: until then they count as unseen.
    pub fn seen(&self, count: usize) {
        let mut shown = lock(&self.terminal.shown);
        if let Some(at) = shown.readers.get_mut(&self.number) {
            *at += count as u64;
        }
        drop(shown);
        self.terminal.room.notify_all();
    }

    /// Where he is.
    pub fn offset(&self) -> u64 {
        let shown = lock(&self.terminal.shown);
        shown.readers.get(&self.number).copied().unwrap_or(0)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        lock(&self.terminal.shown).readers.remove(&self.number);
        self.terminal.room.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminal() -> Arc<Terminal> {
        Terminal::new(Size::default(), Duration::from_secs(1))
    }

    fn read(reader: &Reader) -> Vec<u8> {
        match reader.next(usize::MAX) {
            Next::Bytes(bytes) => {
                reader.seen(bytes.len());
                bytes
            }
            _ => Vec::new(),
        }
    }

    #[test]
    fn who_comes_back_goes_on_where_he_was() {
        let terminal = terminal();
        lock(&terminal.shown).add(b"abc");
        let first = terminal.join(None);
        assert_eq!(read(&first), b"abc");
        let offset = first.offset();
        drop(first);
        lock(&terminal.shown).add(b"def");
        assert_eq!(read(&terminal.join(Some(offset))), b"def");
        assert_eq!(read(&terminal.join(None)), b"abcdef");
        assert!(matches!(terminal.join(Some(99)).next(1), Next::Wait));
    }

    #[test]
    fn a_slow_reader_stops_his_own_command_and_an_absent_one_misses_something() {
        let terminal = terminal();
        let slow = terminal.join(None);
        lock(&terminal.shown).add(&vec![b'x'; RING]);
        assert_eq!(lock(&terminal.shown).room(), 0);
        slow.seen(10);
        assert_eq!(lock(&terminal.shown).room(), 10);
        let offset = slow.offset();
        drop(slow);
        assert_eq!(lock(&terminal.shown).room(), RING);
        lock(&terminal.shown).add(&vec![b'y'; RING]);
        let back = terminal.join(Some(offset));
        assert!(matches!(back.next(1), Next::Skipped(at) if at == RING as u64));
        assert_eq!(read(&back).len(), RING);
        lock(&terminal.shown).over = true;
        assert!(matches!(back.next(1), Next::Over));
    }
}
