//! Turns the list of verbs into sorted tables, so that no program start reads YAML.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

const VERBS: &str = "../../policies/parts/verbs.yaml";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={VERBS}");
    let lists: BTreeMap<String, Vec<String>> =
        serde_saphyr::from_str(&std::fs::read_to_string(VERBS)?)?;
    let mut code = String::new();
    for (name, mut verbs) in lists {
        verbs.sort_unstable();
        verbs.dedup();
        // One text for each list: a table of references would take more room than the words.
        let text: String = verbs.iter().map(|verb| format!("{verb} ")).collect();
        writeln!(code, "const {}: &str = {text:?};", name.to_uppercase())?;
    }
    let directory = std::env::var_os("OUT_DIR").ok_or("cargo gives no OUT_DIR")?;
    std::fs::write(Path::new(&directory).join("verbs.rs"), code)?;
    Ok(())
}
