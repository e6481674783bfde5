//! `substrate help TOPIC`: the documents, from the binary itself.

use std::ffi::OsString;

use crate::args;
use crate::asker::Asker;
use crate::commands::trace::look::Look;
use crate::commands::trace::pages::Pages;
use crate::failure::Failure;

/// A document: its name, what it is about, its text.
struct Page(&'static str, &'static str, &'static str);

macro_rules! page {
    ($name:literal, $about:literal) => {
        Page(
            $name,
            $about,
            include_str!(concat!("../../../../docs/", $name, ".md")),
        )
    };
}

/// All of them; a test compares the list with the directory.
const PAGES: &[Page] = &[
    page!("policy", "the policy file, patterns, profiles, approvals"),
    page!("tools", "tool models: what the words of a command mean"),
    page!("shell", "the prompt, and how it differs from bash"),
    page!("shims", "guarding tools in other shells"),
    page!("worlds", "what a world contains, and what it does not"),
    page!("network", "names, not addresses: the gate"),
    page!("agents", "running AI agents in worlds"),
    page!("adapters", "agents that you already use, and MCP"),
    page!("service", "worlds that stay warm"),
    page!("api", "the API of the service"),
    page!("trace", "the trace and the commands that read it"),
    page!("replay", "running a span again"),
    page!("security", "who can change what, and what stops them"),
    page!("environment", "environment variables"),
    page!("verdicts", "how the verdicts on many lines are measured"),
    page!("benchmarks", "what was promised in numbers"),
    page!("architecture", "how it fits together"),
    page!("decisions", "and why"),
    page!("tuning", "what speed is made of"),
];

/// Shows what `help` was asked for, if it is a document or nothing at all; everything else is about the
/// options of a command.
pub fn run(asker: &Asker, words: &[OsString]) -> Option<Result<(), Failure>> {
    let text = match words {
        [] => format!("{}\n{}", args::help(), topics()),
        [name] => {
            let page = PAGES.iter().find(|page| name == page.0)?;
            let options = match args::is_name(name) {
                true => format!("\n`substrate {} --help` lists its options.\n", page.0),
                false => String::new(),
            };
            format!("{}{options}", page.2)
        }
        _ => return None,
    };
    Some(show(asker, &text))
}

/// The list of documents.
pub fn topics() -> String {
    let mut text = String::from("Documents (substrate help NAME):\n");
    for Page(name, about, _) in PAGES {
        text.push_str(&format!("  {name:<13} {about}\n"));
    }
    text
}

fn show(asker: &Asker, text: &str) -> Result<(), Failure> {
    let look = Look::new(asker);
    let mut pages = Pages::new(asker, &look);
    pages.write(text.as_bytes())?;
    Ok(pages.finish()?)
}

#[cfg(test)]
mod tests {
    use super::PAGES;

    #[test]
    fn every_document_can_be_shown() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| Some(name.strip_suffix(".md")?.to_owned()))
            .collect();
        files.sort();
        let mut pages: Vec<&str> = PAGES.iter().map(|page| page.0).collect();
        pages.sort_unstable();
        assert_eq!(pages, files);
    }
}
