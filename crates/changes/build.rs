//! Turns the list of what runs later into a table, so that nobody reads YAML while a result is applied.

use std::fmt::Write;
use std::path::Path;

const LIST: &str = "../../policies/parts/runs-later.yaml";

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Places {
    why: String,
    unasked: Vec<String>,
    started: Vec<String>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={LIST}");
    let list: Vec<Places> = serde_saphyr::from_str(&std::fs::read_to_string(LIST)?)?;
    let mut code = String::from("const PLACES: &[Place] = &[\n");
    for places in list {
        // `git-hook` is `RunsLater::GitHook`.
        let reason: String = places
            .why
            .split('-')
            .map(|word| word[..1].to_uppercase() + &word[1..])
            .collect();
        for pattern in places.unasked.iter().chain(&places.started) {
            let anywhere = pattern
                .strip_prefix("$HOME/")
                .or(pattern.strip_prefix("**/"));
            let rooted = anywhere.is_none();
            let rest = anywhere.or(pattern.strip_prefix('/'));
            let rest = rest.ok_or_else(|| {
                format!("`{pattern}` begins neither with / nor with **/ nor with $HOME/")
            })?;
            let parts: Vec<&str> = rest.split('/').collect();
            writeln!(
                code,
                "    Place {{ reason: RunsLater::{reason}, rooted: {rooted}, parts: &{parts:?} }},"
            )?;
        }
    }
    code.push_str("];\n");
    let directory = std::env::var_os("OUT_DIR").ok_or("cargo gives no OUT_DIR")?;
    std::fs::write(Path::new(&directory).join("places.rs"), code)?;
    Ok(())
}
