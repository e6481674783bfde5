//! `trace prune`: removing what is old, and snapshots that no span needs any more.

use std::collections::HashSet;
use std::time::SystemTime;

use serde_json::json;
use substrate_broker::{Around, Home, Input, Origin, Request};
use substrate_snapshots::{Collected, Limits, Store, Tree};
use substrate_trace::read::{Filter, Order, Reader};

use crate::asker::Asker;
use crate::failure::Failure;
use crate::out;

/// What is to go.
pub struct What {
    /// Rotated files beyond this size.
    pub keep: Option<u64>,
    /// Rotated files that are older.
    pub before: Option<SystemTime>,
    /// Snapshots with files that are private now.
    pub private: bool,
}

/// Removes rotated files beyond a size or age, then what only they needed, and what is private.
pub fn run(asker: &Asker, home: &Home, what: &What, as_json: bool) -> Result<(), Failure> {
    let What {
        keep,
        before,
        private,
    } = *what;
    if keep.is_none() && before.is_none() && !private {
        return Err(Failure::Usage(
            "say what may go: --keep SIZE, --before TIME, --private, or several of them".to_owned(),
        ));
    }
    let unpruned = |error| Failure::File {
        what: format!("cannot prune the snapshots in {}", home.path.display()),
        error,
    };
    let (mut files, mut bytes, mut snapshots) = (0, 0, Collected::default());
    if keep.is_some() || before.is_some() {
        let removed = substrate_trace::prune(&home.path, keep.unwrap_or(u64::MAX), before);
        (files, bytes) = removed.map_err(|error| Failure::File {
            what: format!("cannot prune the trace in {}", home.path.display()),
            error,
        })?;
        let wanted = needed(&Reader::open(&home.path)?)?;
        let collected = Store::open(&home.path).collect(&wanted);
        snapshots = collected.map_err(unpruned)?;
    }
    if private {
        let broker = asker.broker(None)?;
        // Settles which policy holds here.
        let cwd = asker.cwd()?;
        broker.evaluate(&Request {
            input: Input::Line(b""),
            origin: Origin::OneShot,
            cwd: &cwd,
            search_path: "".as_ref(),
            variables: &[],
            aliases: &[],
            isolate: false,
            around: Around::Nothing,
        });
        let is_private = |tree: &Tree| {
            let limits = Limits {
                private: substrate_executor::snapshot::private(&broker, Some(&tree.root)),
                ..Limits::default()
            };
            limits.keep_out_of(tree)
        };
        let purged = Store::open(&home.path)
            .purge(&is_private)
            .map_err(unpruned)?;
        snapshots.trees += purged.trees;
        snapshots.objects += purged.objects;
        snapshots.bytes += purged.bytes;
    }
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
