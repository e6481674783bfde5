//! Any bytes and descriptors between a world's first process and its owner, in both directions: no panic,
//! nothing is waited for that does not come, and what leads out of a request is refused.

#![no_main]

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use libfuzzer_sys::fuzz_target;
use substrate_init::control::{self, Kind, Message};
use substrate_init::launch::{Command, Parts, Progress};
use substrate_init::netplan::NetPlan;
use substrate_init::own_starts::OwnStarts;
use substrate_init::request::{self, Request};
use substrate_sys::{memfd, scm};

/// Says what the input says: each message a length, a count of descriptors, and bytes.
fn say(mut script: &[u8], socket: BorrowedFd<'_>, fd: BorrowedFd<'_>) {
    for _ in 0..16 {
        let Some((&[length, count], rest)) = script.split_first_chunk() else {
            return;
        };
        let (bytes, rest) = rest.split_at(usize::from(length % 24).min(rest.len()));
        let _ = scm::send(socket, bytes, &vec![fd; usize::from(count % 40)]);
        script = rest;
    }
}

/// The owner hears its first process.
fn owner_hears(script: &[u8], file: &OwnedFd) {
    for listener in 0..4 {
        let Ok((ours, theirs)) = control::pair() else {
            return;
        };
        say(script, theirs.as_fd(), file.as_fd());
        drop(theirs);
        match listener {
            0 => {
                while let Ok(Some(received)) = control::receive(ours.as_fd()) {
                    assert_eq!(received.pid.cast_unsigned(), std::process::id());
                    let _ = Progress::told(received);
                }
            }
            1 => {
                let mut command = Command::over(1, ours);
                if command.await_start().is_ok() {
                    let _ = (command.take_terminal(), command.wait(), command.was_last());
                }
            }
            2 => {
                let _ = Command::over(1, ours).next();
            }
            _ => {
                let _ = NetPlan::default().receive(ours.as_fd());
            }
        }
    }
    if let Ok((own, guard)) = OwnStarts::pair() {
        say(script, guard.as_fd(), file.as_fd());
        // No process is behind these descriptors.
        assert!(own.take(std::process::id().cast_signed()).is_none());
    }
}

/// Looks at everything that the first process would use.
fn use_up(mut request: Request) {
    for sh in [false, true] {
        if sh {
            request.use_sh();
        }
        let length = request.program().count_bytes() + request.cwd().count_bytes();
        let words = request.argv().chain(request.env());
        let length: usize = length + words.map(|word| word.count_bytes()).sum::<usize>();
        let numbers: i64 = request.fd_numbers().map(i64::from).sum();
        let null: i32 = request.null_for().map(|(number, mode)| number + mode).sum();
        std::hint::black_box((length, numbers, null, request.size(), request.umask()));
        std::hint::black_box((request.terminal_for(), request.terminal_at()));
        assert!(request.argv().next().is_some());
    }
}

/// The first process hears its owner.
fn first_process_hears(script: &[u8], file: &OwnedFd) {
    if let Ok(request) = Request::map(file) {
        use_up(request);
    }
    let Ok((ours, theirs)) = control::pair() else {
        return;
    };
    let start = Message::new(Kind::Start);
    let _ = start.send(theirs.as_fd(), &[file.as_fd(), file.as_fd()]);
    say(script, theirs.as_fd(), file.as_fd());
    drop(theirs);
    while let Ok(Some(mut received)) = control::receive(ours.as_fd()) {
        if let Some(request) = received.fds[1].take().and_then(|file| Request::map(&file).ok()) {
            use_up(request);
        }
    }
}

/// What was asked for is what arrives.
fn there_and_back(data: &[u8]) {
    let mut words = data.split(|byte| *byte == 0).map(OsStr::from_bytes);
    let (program, cwd) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let argv: Vec<&OsStr> = words.clone().step_by(2).take(50).chain([program]).collect();
    let env: Vec<Vec<u8>> = words.skip(1).step_by(2).map(|w| w.as_bytes().to_vec()).collect();
    let parts = Parts {
        program,
        argv: &argv,
        env: &env,
        cwd,
        umask: Some(data.len() as u32),
        terminal_for: data.first().map_or(0, |byte| byte & 7),
        terminal_at: None,
        size: (24, 80),
        null_for: [None; 3],
        fds: &[0, 1, 2],
        judged: data.first().is_some_and(|byte| byte & 8 != 0),
        tag: data.len() as u32,
    };
    let Ok(file) = request::to_memory_file(&parts) else {
        return;
    };
    let request = Request::map(&file).expect("what was built is understood");
    assert_eq!(request.program().to_bytes(), program.as_bytes());
    assert_eq!(request.cwd().to_bytes(), cwd.as_bytes());
    assert!(request.argv().map(|word| word.to_bytes()).eq(argv.iter().map(|word| word.as_bytes())));
    assert!(request.env().map(|word| word.to_bytes()).eq(env.iter().map(Vec::as_slice)));
    assert_eq!(request.terminal_for(), parts.terminal_for);
    assert!(request.fd_numbers().eq([0, 1, 2]));
}

/// Words that lead to places near the block, as hostile ones would.
fn block(data: &[u8]) -> Vec<u8> {
    let (words, text) = data.split_at(data.len() / 2);
    let words = words.iter().flat_map(|byte| u64::from(*byte).to_ne_bytes());
    words.chain(text.iter().copied()).chain([0]).collect()
}

fuzz_target!(|data: &[u8]| {
    there_and_back(data);
    for content in [data, &block(data)] {
        let Ok(file) = memfd::sealed(c"fuzz", content) else {
            return;
        };
        owner_hears(data, &file);
        first_process_hears(data, &file);
    }
});
