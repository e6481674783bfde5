//! The architecture page shows every crate with what it stands on, as cargo knows it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends at the first surprise"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
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
    let rows: Vec<_> = rows.collect();
    let names: BTreeSet<_> = rows.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names.len(), rows.len(), "a crate has two rows");
    rows.into_iter().collect()
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

/// Lines of source above which the page gives a reason.
const LARGE: usize = 8_000;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The source folder of every crate, by its name.
fn sources() -> Vec<(String, PathBuf)> {
    let crates = fs::read_dir(top().join("crates")).unwrap();
    let mut found: Vec<(String, PathBuf)> = crates
        .flatten()
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, entry.path().join("src"))
        })
        .collect();
    found.push(("shim".to_owned(), top().join("shims/src")));
    found.sort();
    found
}

/// The modules below a folder, named as in a path of the language, without what only tests see.
fn modules(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![(folder.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let path = format!("{prefix}{}", name.trim_end_matches(".rs"));
            if entry.path().is_dir() {
                folders.push((entry.path(), format!("{path}::")));
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(entry.path()).unwrap();
                let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
                let path = path.strip_suffix("::mod").unwrap_or(&path);
                found.insert(path.to_owned(), text.to_owned());
            }
        }
    }
    found
}

/// Every path that begins with `keyword::`, with the branches of `use a::{b, c::d}` written out.
fn paths(text: &str, keyword: &str) -> Vec<String> {
    let start = format!("{keyword}::");
    let found = text.match_indices(&start).filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
    });
    found
        .flat_map(|(at, _)| branches(&text[at + start.len()..], ""))
        .collect()
}

fn branches(text: &str, prefix: &str) -> Vec<String> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let path = format!("{prefix}{name}");
    let Some(list) = rest
        .strip_prefix('{')
        .filter(|_| path.is_empty() || path.ends_with("::"))
    else {
        return vec![path];
    };
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.extend(branches(list[begin..at].trim(), &path));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.extend(branches(list[begin..at].trim(), &path));
                begin = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// Which modules of a crate a module uses.
fn uses(name: &str, text: &str, all: &BTreeMap<String, String>) -> BTreeSet<String> {
    let parent = name.rsplit_once("::").map_or("", |(parent, _)| parent);
    let from_crate = paths(text, "crate");
    let from_parent = paths(text, "super").into_iter().map(|path| match parent {
        "" => path,
        parent => format!("{parent}::{path}"),
    });
    let mut used = BTreeSet::new();
    for path in from_crate.into_iter().chain(from_parent) {
        let mut path = path.trim_matches(':');
        while !path.is_empty() && !all.contains_key(path) {
            path = path.rsplit_once("::").map_or("", |(shorter, _)| shorter);
        }
        if !path.is_empty() && path != name {
            used.insert(path.to_owned());
        }
    }
    used
}

/// Modules that are left when those that stand on nothing that is left are taken away, again and again:
/// circles, and what stands on them.
fn circles(folder: &Path) -> Vec<String> {
    let all = modules(folder);
    let roots = ["lib", "main"];
    let mut left: BTreeMap<&str, BTreeSet<String>> = all
        .iter()
        .filter(|(name, _)| !roots.contains(&name.as_str()))
        .map(|(name, text)| (name.as_str(), uses(name, text, &all)))
        .collect();
    loop {
        let free: Vec<&str> = left
            .iter()
            .filter(|(_, uses)| !uses.iter().any(|used| left.contains_key(used.as_str())))
            .map(|(name, _)| *name)
            .collect();
        if free.is_empty() {
            return left.into_keys().map(str::to_owned).collect();
        }
        for name in free {
            left.remove(name);
        }
    }
}

#[test]
fn modules_stand_on_each_other_one_way() {
    let found: Vec<(String, Vec<String>)> = sources()
        .into_iter()
        .map(|(name, folder)| (name, circles(&folder)))
        .filter(|(_, circles)| !circles.is_empty())
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_search_for_circles_finds_one() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    write("one.rs", "use crate::{three, two::{self, Two}};");
    write("two.rs", "fn f() { super::one::g() }");
    write("three.rs", "#[cfg(test)]\nmod tests { use crate::one; }");
    assert_eq!(circles(place.path()), ["one", "two"]);
}

#[test]
fn a_large_crate_has_a_reason() {
    let reasons: Vec<&str> = PAGE.lines().filter(|line| line.contains("8,000")).collect();
    for (name, folder) in sources() {
        let lines: usize = modules(&folder)
            .values()
            .map(|text| text.lines().count())
            .sum();
        let reason = reasons
            .iter()
            .any(|line| line.contains(&format!("`{name}`")));
        assert!(
            lines <= LARGE || reason,
            "{name} has {lines} lines, and the page gives no reason"
        );
    }
}

/// Ids of decisions, in the order of the page.
fn ids(page: &str, letter: char) -> Vec<usize> {
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    let id = |heading: &str| {
        heading
            .strip_prefix(letter)?
            .split('.')
            .next()?
            .parse()
            .ok()
    };
    headings
        .map(|heading| id(heading).unwrap_or_else(|| panic!("`{heading}` has no id")))
        .collect()
}

#[test]
fn decisions_have_ids_that_do_not_move() {
    let pages = [
        ('D', include_str!("../docs/decisions.md")),
        ('T', include_str!("../docs/tuning.md")),
    ];
    for (letter, page) in pages {
        let found = ids(page, letter);
        assert!(found.len() > 15, "{}", found.len());
        assert_eq!(found, (1..=found.len()).collect::<Vec<_>>(), "{letter}");
    }
}
