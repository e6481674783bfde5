//! Turns the lists of verbs and of what languages do into sorted tables, so that no program start reads YAML.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

const VERBS: &str = "../../policies/parts/verbs.yaml";
const APIS: &str = "../../policies/parts/apis.yaml";

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Api {
    loaded: Vec<String>,
    harmless: String,
    options: String,
    methods: String,
    modules: String,
    foreign: String,
    calls: BTreeMap<String, String>,
    gives: BTreeMap<String, String>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let directory = std::env::var_os("OUT_DIR").ok_or("cargo gives no OUT_DIR")?;
    let directory = Path::new(&directory);
    std::fs::write(directory.join("verbs.rs"), verbs()?)?;
    std::fs::write(directory.join("apis.rs"), apis()?)?;
    Ok(())
}

fn verbs() -> Result<String, Box<dyn std::error::Error>> {
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
    Ok(code)
}

fn apis() -> Result<String, Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={APIS}");
    let languages: BTreeMap<String, Api> = serde_saphyr::from_str(&std::fs::read_to_string(APIS)?)?;
    let mut code = String::new();
    for (name, api) in languages {
        let sorted = |words: &str| {
            let mut words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            words.sort_unstable();
            words.dedup();
            words
        };
        let pairs = |map: &BTreeMap<String, String>| map.clone().into_iter().collect::<Vec<_>>();
        writeln!(
            code,
            "static {}: Api = Api {{ loaded: &{:?}, harmless: &{:?}, options: &{:?}, methods: &{:?}, modules: &{:?}, foreign: &{:?}, calls: &{:?}, gives: &{:?} }};",
            name.to_uppercase(),
            sorted(&api.loaded.join(" ")),
            sorted(&api.harmless),
            sorted(&api.options),
            sorted(&api.methods),
            sorted(&api.modules),
            sorted(&api.foreign),
            pairs(&api.calls),
            pairs(&api.gives),
        )?;
    }
    Ok(code)
}
