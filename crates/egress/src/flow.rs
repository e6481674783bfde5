//! One direction of a connection: bytes out of one socket into another, through a pipe.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use substrate_policy::budget::{Budget, Grant};
use substrate_sys::{inet, splice};

/// Bytes asked for at once; a pipe holds about as much.
const CHUNK: usize = 1 << 20;
/// Bytes of one direction before the others get their turn.
const TURN: usize = 4 << 20;
const PIPE_SIZE: usize = 1 << 18;
/// Bytes copied at once where there is no pipe.
const COPY: usize = 64 * 1024;
/// Pipes kept for the next one who needs one.
const KEPT: usize = 32;

/// A socket and what is known about it since its last event.
#[derive(Debug)]
pub struct Side {
    /// The socket.
    pub fd: OwnedFd,
    /// It may have something to read.
    pub readable: bool,
    /// It may take something.
    pub writable: bool,
}

impl Side {
    /// A socket that may be ready.
    pub fn new(fd: OwnedFd) -> Side {
        Side {
            fd,
            readable: true,
            writable: true,
        }
    }
}

#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    _counted: Arc<()>,
}

/// Pipes that wait for use; a direction holds one only while bytes are under way. There are at
/// most so many, because connections need descriptors too; who gets none copies.
#[derive(Debug)]
pub struct Pipes {
    free: Vec<Pipe>,
    alive: Arc<()>,
    most: usize,
}

impl Pipes {
    /// No pipes yet, and never more than `most`.
    pub fn new(most: usize) -> Pipes {
        Pipes {
            free: Vec::new(),
            alive: Arc::new(()),
            most,
        }
    }

    fn take(&mut self) -> Option<Pipe> {
        if let Some(pipe) = self.free.pop() {
            return Some(pipe);
        }
        if Arc::strong_count(&self.alive) > self.most {
            return None;
        }
        let (read, write) = splice::pipe().ok()?;
        splice::set_pipe_size(write.as_fd(), PIPE_SIZE);
        let _counted = Arc::clone(&self.alive);
        Some(Pipe {
            read,
            write,
            _counted,
        })
    }

    fn put(&mut self, pipe: Pipe) {
        if self.free.len() < KEPT {
            self.free.push(pipe);
        }
    }
}

/// How much waits to pass.
fn waiting(from: &Side) -> u64 {
    inet::available(from.fd.as_fd()).map_or(0, |bytes| bytes as u64)
}

/// How much to ask the budget for. Where little is left, no more than what really waits to pass,
/// so that other gates of the session do not see it used up before it is.
fn wanted(budget: &Budget, from: &Side) -> usize {
    const PLENTY: u64 = 64 << 20;
    let scarce = budget
        .total()
        .is_some_and(|total| total.saturating_sub(budget.used()) < PLENTY);
    match scarce {
        true => inet::available(from.fd.as_fd()).map_or(CHUNK, |n| n.clamp(1, CHUNK)),
        false => CHUNK,
    }
}

/// What a turn ended with.
#[derive(Debug)]
pub enum Turn {
    /// Nothing to do before the next event.
    Idle,
    /// More to do, but others are waiting.
    More,
    /// The rate allows no more before this long.
    Later(Duration),
    /// The budget allows no more at all; so many bytes wait.
    Exhausted(u64),
    /// One of the two sockets is broken.
    Broken,
}

/// One direction.
#[derive(Debug, Default)]
pub struct Flow {
    pipe: Option<Pipe>,
    piped: usize,
    pending: Vec<u8>,
    sent: usize,
    /// The source will send no more.
    pub ended: bool,
    /// The target was told so.
    pub closed: bool,
    /// Bytes taken from the source.
    pub moved: u64,
}

impl Flow {
    /// Queues bytes to go before anything else.
    pub fn queue(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.piped == 0 && self.sent == self.pending.len()
    }

    /// Writes what is under way; true when everything is gone.
    pub fn drain(&mut self, to: &mut Side) -> io::Result<bool> {
        while !self.is_empty() {
            if !to.writable {
                return Ok(false);
            }
            let wrote = if self.sent < self.pending.len() {
                inet::send(to.fd.as_fd(), &self.pending[self.sent..])
            } else {
                match &self.pipe {
                    Some(pipe) => splice::splice(pipe.read.as_fd(), to.fd.as_fd(), self.piped),
                    None => Ok(std::mem::take(&mut self.piped)),
                }
            };
            match wrote {
                Ok(n) if self.sent < self.pending.len() => {
                    self.sent += n;
                    if self.sent == self.pending.len() {
                        self.pending.clear();
                        self.sent = 0;
                    }
                }
                Ok(n) => self.piped -= n.min(self.piped),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => to.writable = false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Passes the end on, once everything before it is gone.
    pub fn close_if_done(&mut self, to: &Side) {
        if self.ended && !self.closed && self.is_empty() {
            self.closed = true;
            // Fails only when the peer is gone, which its own event reports.
            let _ = inet::shutdown_write(to.fd.as_fd());
        }
    }

    /// Moves bytes until something has to be waited for.
    pub fn pump(
        &mut self,
        from: &mut Side,
        to: &mut Side,
        pipes: &mut Pipes,
        budget: Option<&Budget>,
        now: Duration,
    ) -> Turn {
        let mut left = TURN;
        let turn = loop {
            match self.drain(to) {
                Ok(true) => {}
                Ok(false) => break Turn::Idle,
                Err(_) => break Turn::Broken,
            }
            if self.ended {
                self.close_if_done(to);
                break Turn::Idle;
            }
            if !from.readable {
                break Turn::Idle;
            }
            if left == 0 {
                break Turn::More;
            }
            let grant = match budget.map(|b| b.take(wanted(b, from), now)) {
                None => CHUNK,
                Some(Grant::Bytes(n)) => n,
                Some(Grant::Later(wait)) => break Turn::Later(wait),
                Some(Grant::Exhausted) => break Turn::Exhausted(waiting(from)),
            };
            let moved = self.take_in(from, pipes, grant);
            let used = moved.as_ref().map_or(0, |n| *n);
            if let Some(budget) = budget {
                budget.give_back(grant - used);
            }
            match moved {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    self.moved += n as u64;
                    left = left.saturating_sub(n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => from.readable = false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break Turn::Broken,
            }
        };
        if self.piped == 0
            && let Some(pipe) = self.pipe.take()
        {
            pipes.put(pipe);
        }
        turn
    }

    /// Takes bytes in; 0 means the end.
    fn take_in(&mut self, from: &Side, pipes: &mut Pipes, limit: usize) -> io::Result<usize> {
        let Some(pipe) = self.pipe.take().or_else(|| pipes.take()) else {
            let mut buffer = vec![0; limit.min(COPY)];
            let moved = inet::receive(from.fd.as_fd(), &mut buffer, false)?;
            self.pending.extend_from_slice(&buffer[..moved]);
            return Ok(moved);
        };
        let pipe = self.pipe.insert(pipe);
        let moved = splice::splice(from.fd.as_fd(), pipe.write.as_fd(), limit)?;
        self.piped += moved;
        Ok(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, Side) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let fd = inet::accept(server.as_fd()).unwrap();
        (client, Side::new(fd))
    }

    #[test]
    fn queued_bytes_go_first_and_the_end_last_with_and_without_pipes() {
        for most in [8, 0] {
            let (mut source, mut from) = pair();
            let (mut sink, mut to) = pair();
            let mut flow = Flow::default();
            flow.queue(b"first ");
            source.write_all(b"second").unwrap();
            drop(source);
            let mut pipes = Pipes::new(most);
            while !flow.closed {
                from.readable = true;
                let turn = flow.pump(&mut from, &mut to, &mut pipes, None, Duration::ZERO);
                assert!(matches!(turn, Turn::Idle));
            }
            let mut text = String::new();
            sink.read_to_string(&mut text).unwrap();
            assert_eq!(text, "first second");
            assert_eq!(flow.moved, 6);
            assert_eq!(pipes.free.len(), most.min(1), "the pipe went back");
        }
    }

    #[test]
    fn pipes_of_flows_that_ended_early_are_counted_out() {
        let mut pipes = Pipes::new(2);
        let (a, b) = (pipes.take(), pipes.take());
        assert!(a.is_some() && b.is_some() && pipes.take().is_none());
        drop(a);
        assert!(pipes.take().is_some());
    }

    #[test]
    fn not_one_byte_more_than_the_budget_passes() {
        let (mut source, mut from) = pair();
        let (mut sink, mut to) = pair();
        source.write_all(&[7; 5000]).unwrap();
        let budget = Budget::new(None, Some(1234));
        let mut flow = Flow::default();
        let mut pipes = Pipes::new(8);
        let turn = loop {
            match flow.pump(
                &mut from,
                &mut to,
                &mut pipes,
                Some(&budget),
                Duration::ZERO,
            ) {
                Turn::Idle => from.readable = true,
                other => break other,
            }
        };
        assert!(matches!(turn, Turn::Exhausted(1..)), "{turn:?}");
        assert_eq!((flow.moved, budget.used()), (1234, 1234));
        drop(to);
        let mut got = Vec::new();
        sink.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), 1234);
    }

    #[test]
    fn a_target_that_does_not_read_stops_the_source() {
        let (source, mut from) = pair();
        let (_sink, mut to) = pair();
        source.set_nonblocking(true).unwrap();
        let mut flow = Flow::default();
        let mut pipes = Pipes::new(8);
        let mut written = 0usize;
        for _ in 0..2000 {
            if let Ok(n) = (&source).write(&[1; 65536]) {
                written += n;
            }
            from.readable = true;
            flow.pump(&mut from, &mut to, &mut pipes, None, Duration::ZERO);
            if !to.writable && written as u64 > flow.moved + (1 << 20) {
                break;
            }
        }
        assert!(!to.writable);
        let held = flow.moved;
        from.readable = true;
        flow.pump(&mut from, &mut to, &mut pipes, None, Duration::ZERO);
        assert_eq!(flow.moved, held, "nothing more is taken in");
    }
}
