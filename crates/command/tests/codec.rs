//! Models as bytes.

mod common;

use proptest::prelude::*;
use substrate_command::codec::{decode, encode, unpack};
use substrate_command::{Args, Word};

#[test]
fn every_model_comes_back() {
    for common::Describe(tool) in common::tools() {
        let decoded = decode(&encode(&tool)).unwrap();
        assert_eq!(unpack(&decoded).unwrap(), tool, "{:?}", tool.names);
        // What is still packed is encoded as it is.
        assert_eq!(encode(&decoded), encode(&tool), "{:?}", tool.names);
    }
}

#[test]
fn packed_subcommands_are_found_as_plain_ones_are() {
    let git = common::tools()
        .into_iter()
        .map(|described| described.0)
        .find(|tool| tool.names[0] == "git")
        .unwrap();
    let packed = decode(&encode(&git)).unwrap();
    assert!(packed.subcommands.is_empty() && !packed.packed.is_empty());
    for text in [
        "git st -s",
        "git remote rm x",
        "git push -f origin",
        "git frobnicate",
    ] {
        let argv: Vec<Word> = text.split(' ').map(Word::from).collect();
        assert_eq!(
            Args::parse(&argv, Some(&packed)),
            Args::parse(&argv, Some(&git)),
            "{text}"
        );
    }
}

#[test]
fn every_word_means_the_same_in_compiled_form() {
    for common::Describe(plain) in common::tools() {
        let packed = decode(&encode(&plain)).unwrap();
        let mut words: Vec<&str> = vec!["word", "+12", "-", "--", "-5", "-xyz", "--none=1", "("];
        let levels = std::iter::once(&plain).chain(&plain.subcommands);
        for level in levels {
            words.extend(level.all_names().map(String::as_str));
            words.extend(
                level
                    .options
                    .iter()
                    .flat_map(|option| &option.names)
                    .map(String::as_str),
            );
        }
        for first in &words {
            for second in &words {
                let argv: Vec<Word> = ["x", first, second].into_iter().map(Word::from).collect();
                assert_eq!(
                    Args::parse(&argv, Some(&packed)),
                    Args::parse(&argv, Some(&plain)),
                    "{:?} {first} {second}",
                    plain.names
                );
            }
        }
    }
}

#[test]
fn truncated_models_are_refused() {
    for common::Describe(tool) in common::tools() {
        let bytes = encode(&tool);
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_none(), "{:?} {end}", tool.names);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_is_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Some(tool) = decode(&bytes) {
            let _ = (tool.options.len(), tool.find_subcommand(b"x"));
            let _ = unpack(&tool);
        }
    }

    #[test]
    fn damaged_models_are_read_without_harm(which in 0usize..30, at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let tools = common::tools();
        let tool = &tools[which % tools.len()].0;
        let mut bytes = encode(tool);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Some(tool) = decode(&bytes) {
            let _ = (tool.options.len(), tool.find_subcommand(b"add"));
            let _ = unpack(&tool);
        }
    }
}
