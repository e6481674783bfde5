//! `trace prune`: removing what is old, and snapshots that no span needs any more.

use std::collections::HashSet;
use std::time::SystemTime;

use serde_json::json;
use substrate_broker::Home;
use substrate_snapshots::Store;
use substrate_trace::read::{Filter, Order, Reader};

use crate::failure::Failure;
use crate::out;

/// Removes rotated files beyond a size or age, then what only they needed.
pub fn run(
    home: &Home,
    keep: Option<u64>,
    before: Option<SystemTime>,
    as_json: bool,
) -> Result<(), Failure> {
    if keep.is_none() && before.is_none() {
        return Err(Failure::Usage(
            "say what may go: --keep SIZE, --before TIME, or both".to_owned(),
        ));
    }
    let removed = substrate_trace::prune(&home.path, keep.unwrap_or(u64::MAX), before);
    let (files, bytes) = removed.map_err(|error| Failure::File {
        what: format!("cannot prune the trace in {}", home.path.display()),
        error,
    })?;
    let wanted = needed(&Reader::open(&home.path)?)?;
    let collected = Store::open(&home.path).collect(&wanted);
    let snapshots = collected.map_err(|error| Failure::File {
        what: format!("cannot prune the snapshots in {}", home.path.display()),
        error,
    })?;
    let text = match as_json {
        true => {
            let snapshots = json!({
                "trees": snapshots.trees,
                "contents": snapshots.objects,
                "bytes": snapshots.bytes,
            });
            let all = json!({"files": files, "bytes": bytes, "snapshots": snapshots});
            format!("{all}\n")
        }
        false => format!(
            "removed {files} files, {bytes} bytes; {} snapshots, {} bytes\n",
            snapshots.trees, snapshots.bytes
        ),
    };
    Ok(out::print(&text)?)
}

/// The snapshots that spans name.
fn needed(reader: &Reader) -> Result<HashSet<String>, Failure> {
    let filter = Filter {
        event_types: vec!["command_complete".to_owned()],
        ..Filter::default()
    };
    let mut needed = HashSet::new();
    for record in reader.records(Order::OldestFirst, &filter) {
        let record = record?;
        if let Some(replay) = record.replay_context() {
            needed.extend(replay.base_tree);
            needed.extend(replay.after_tree);
        }
        needed.extend(record.span.fs_diff.and_then(|diff| diff.tree_hash));
    }
    Ok(needed)
}
