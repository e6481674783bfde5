//! Any bytes as a trace file: no panic, the same events from both ends, none genuine.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use substrate_trace::read::{Filter, Order, Reader};
use substrate_trace::{Authenticity, Key, Redactor};

/// A directory of this process, in memory where there is such a place.
static HOME: LazyLock<PathBuf> = LazyLock::new(|| {
    let base = match PathBuf::from("/dev/shm") {
        memory if memory.is_dir() => memory,
        _ => std::env::temp_dir(),
    };
    let home = base.join(format!("substrate-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    home
});
static KEY: LazyLock<Key> = LazyLock::new(|| Key::load(&HOME).unwrap());

fn read(order: Order, filter: &Filter) -> Vec<Vec<u8>> {
    let reader = Reader::open(&HOME).unwrap();
    reader
        .records(order, filter)
        .map(|record| {
            let record = record.unwrap();
            assert_ne!(KEY.verify(&record.raw), Authenticity::Genuine);
            record.replay_context();
            record.span.time();
            record.span.paths().count();
            record.span.hosts().count();
            record.raw
        })
        .collect()
}

fuzz_target!(|bytes: &[u8]| {
    std::fs::write(HOME.join("trace.jsonl"), bytes).unwrap();
    let all = read(Order::OldestFirst, &Filter::default());
    let mut backwards = read(Order::NewestFirst, &Filter::default());
    backwards.reverse();
    assert_eq!(all, backwards);

    let needle = bytes.get(..4).unwrap_or_default().to_vec();
    let filter = Filter {
        command: Some(needle),
        ..Filter::default()
    };
    assert!(read(Order::OldestFirst, &filter).len() <= all.len());
    if let Ok(reader) = Reader::open(&HOME) {
        let _ = reader.find(&String::from_utf8_lossy(bytes));
        let _ = reader.find("-");
    }
    Redactor::default().line(bytes);
});
