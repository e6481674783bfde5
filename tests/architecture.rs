//! The architecture page shows every crate with what it stands on, as cargo knows it.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::collections::BTreeMap;
use std::process::Command;

const PAGE: &str = include_str!("../docs/architecture.md");

/// The crates that may be built on the one with the backend of this machine.
const NAMES_A_BACKEND: [&str; 1] = ["cli"];

type Arrows = BTreeMap<String, Vec<String>>;

fn built() -> Arrows {
    let top = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(top)
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let ours = |name: &serde_json::Value| {
        let name = name.as_str()?.strip_prefix("substrate-")?;
        Some(name.to_owned())
    };
    let packages = metadata["packages"].as_array().unwrap();
    let arrows = packages.iter().filter_map(|package| {
        let dependencies = package["dependencies"].as_array()?.iter();
        let mut below: Vec<String> = dependencies
            .filter(|dependency| dependency["kind"].is_null())
            .filter_map(|dependency| ours(&dependency["name"]))
            .collect();
        below.sort();
        Some((ours(&package["name"])?, below))
    });
    arrows.collect()
}

fn drawn() -> Arrows {
    let rows = PAGE.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, _, below, _] = cells.as_slice() else {
            return None;
        };
        let name = name.strip_prefix('`')?.strip_suffix('`')?;
        let below = below.split_whitespace().map(str::to_owned).collect();
        Some((name.to_owned(), below))
    });
    rows.collect()
}

#[test]
fn the_page_draws_what_is_built() {
    assert_eq!(drawn(), built());
}

#[test]
fn only_the_doors_name_a_backend() {
    for (name, below) in built() {
        let names = below.iter().any(|crate_| crate_ == "linux");
        assert!(!names || NAMES_A_BACKEND.contains(&name.as_str()), "{name}");
    }
}
