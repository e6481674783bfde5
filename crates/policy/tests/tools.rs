//! The shipped tool models load, and mistakes in models are named with their place.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop"
)]

use substrate_command::effect::{Action, Source};
use substrate_command::model::{
    Arity, Condition, Consequence, Meaning, OperandSpec, Product, RESOURCES, Stdin, Style, Subject,
    Tool,
};
use substrate_policy::tools::{self, ToolError};

fn parse(text: &str) -> Result<Vec<Tool>, ToolError> {
    tools::parse(text, "own.yaml")
}

/// The error of a wrong file, as the user sees it.
fn error(text: &str) -> String {
    match parse(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(error) => error.to_string(),
    }
}

fn one(text: &str) -> Tool {
    match parse(text) {
        Ok(mut tools) => tools.remove(0),
        Err(error) => panic!("{error}"),
    }
}

fn any(tests: &[&str]) -> Condition {
    Condition {
        any: tests.iter().map(|&test| test.to_owned()).collect(),
        ..Condition::default()
    }
}

#[test]
fn shipped_models_load_together() {
    let files = tools::shipped();
    let models = tools::load(files.iter().copied()).unwrap_or_else(|error| panic!("{error}"));
    for name in ["rm", "git", "sudo", "bash", "curl", "docker", "aws"] {
        assert!(
            models
                .iter()
                .any(|tool| tool.names.iter().any(|own| own == name)),
            "{name}"
        );
    }
}

#[test]
fn shipped_models_fit_the_schema() {
    let schema = serde_json::from_str(tools::schema()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for (file, text) in tools::shipped() {
        let value: serde_json::Value = serde_saphyr::from_str(text).unwrap();
        let mistakes: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| format!("{file}: {}: {error}", error.instance_path()))
            .collect();
        assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    }
}

#[test]
fn the_schema_refuses_what_the_loader_refuses() {
    let schema = serde_json::from_str(tools::schema()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for text in [
        "tools: [{names: []}]",
        "tools: [{names: ['mkfs.*']}]",
        "tools: [{names: [x], style: dos}]",
        "tools: [{names: [x], optoins: -a}]",
        "tools: [{names: [x], keys: {a: wirte}}]",
        "tools: [{names: [x], options: '-a=; -b'}]",
        "tools: [{names: [x], effects: [burn]}]",
        "tools: [{names: [x], produces: [gold]}]",
        "tools: [{names: [x], recursive: sometimes}]",
    ] {
        let value: serde_json::Value = serde_saphyr::from_str(text).unwrap();
        assert!(!validator.is_valid(&value), "schema accepts {text}");
        error(text);
    }
}

#[test]
fn a_model_becomes_what_it_says() {
    let tool = one("
tools:
  - names: [tool|t]
    style: posix
    options:
      - -r, -R, --recursive; -o, --output=write; --color[=text]; --bind=read text
      - {option: -c=keyed, keys: {'alias.*': alias, 'of': read+write, '': text}}
    recursive: [--recursive]
    inert: [--color=never]
    usages:
      - {when: [-R], all: [-o, '*.txt'], unless: [--], operands: read... remote-write}
    operands: assignment... command
    effects: [privilege, 'run_code:package', 'connect:@npm', {effect: 'write:--output', when: [-r]}, 'write:here', 'read:path:~/.netrc', 'delete:cloud']
    produces: [{what: network, unless: [-o]}]
    stdin: arguments
    inherit: true
    subcommands:
      - names: [list|ls, show]
        effects: [{effect: listen, when: [-r]}]
");
    assert_eq!(tool.names, ["tool", "t"]);
    assert_eq!(tool.style, Style::Posix);
    assert_eq!(tool.options[0].names, ["-r", "-R", "--recursive"]);
    assert_eq!(
        tool.options[1].value,
        Arity::Required(Meaning::Path(vec![Action::Write]))
    );
    assert_eq!(tool.options[2].value, Arity::Optional(Meaning::Text));
    assert_eq!(
        tool.options[3].value,
        Arity::Several(vec![Meaning::Path(vec![Action::Read]), Meaning::Text])
    );
    assert_eq!(
        tool.options[4].value,
        Arity::Required(Meaning::Keyed(vec![
            ("alias.*".into(), Meaning::Alias),
            (
                "of".into(),
                Meaning::Path(vec![Action::Read, Action::Write])
            ),
            (String::new(), Meaning::Text),
        ]))
    );
    assert_eq!(tool.recursive, Some(any(&["-r"])));
    assert_eq!(tool.inert, Some(any(&["--help", "--color=never"])));
    let condition = &tool.usages[0].when;
    assert_eq!(condition.any, ["-r"]);
    assert_eq!(condition.all, ["-o", "*.txt"]);
    assert_eq!(condition.none, ["--"]);
    let operand = |means, repeated| OperandSpec { means, repeated };
    assert_eq!(
        tool.usages[0].operands,
        [
            operand(Meaning::Path(vec![Action::Read]), true),
            operand(Meaning::Remote(vec![Action::Write]), false)
        ]
    );
    assert_eq!(
        tool.usages[1].operands,
        [
            operand(Meaning::Assignment, true),
            operand(Meaning::Command, false)
        ]
    );
    let effect = |action, to| Consequence { action, to };
    let effects: Vec<Consequence> = tool
        .effects
        .iter()
        .map(|effect| effect.what.clone())
        .collect();
    assert_eq!(
        effects,
        [
            effect(Action::Privilege, Subject::Unspecified),
            effect(Action::RunCode, Subject::Code(Source::Package)),
            effect(Action::Connect, Subject::Host("@npm".into())),
            effect(Action::Write, Subject::OptionValue("-o".into())),
            effect(Action::Write, Subject::WorkingDirectory),
            effect(Action::Read, Subject::Path("~/.netrc".into())),
            effect(Action::Delete, Subject::Resource("cloud".into())),
        ]
    );
    assert_eq!(tool.effects[3].when, any(&["-r"]));
    assert_eq!(tool.produces[0].what, Product::Network);
    assert_eq!(tool.produces[0].when.none, ["-o"]);
    assert_eq!(tool.stdin, Stdin::Arguments);
    assert!(tool.inherit);
    let list = &tool.subcommands[0];
    assert_eq!(list.names, ["list", "ls"]);
    assert_eq!(list.also, [["show"]]);
    assert_eq!(list.style, Style::Posix);
    assert_eq!(list.effects[0].when, any(&["-r"]));
}

#[test]
fn several_programs_can_share_one_description() {
    let tool = one("tools: [{names: [python|python3, pypy, ipython|ipython3], recursive: always}]");
    assert_eq!(tool.names, ["python", "python3"]);
    assert_eq!(tool.also, [vec!["pypy"], vec!["ipython", "ipython3"]]);
    assert_eq!(tool.recursive, Some(Condition::default()));
    assert_eq!(tool.inert, Some(any(&["--help", "--version"])));
}

#[test]
fn an_option_of_a_subcommand_is_not_mistaken_for_one_of_its_tool() {
    let tool = one("
tools:
  - names: [box]
    options: -v, --version; -C=directory; -q
    inert: [-v]
    subcommands:
      - names: [run]
        options: -v, --volume=volume; -C; -q
        effects: [{effect: listen, when: [-v]}, {effect: connect, when: [-C]}]
");
    let run = &tool.subcommands[0];
    assert_eq!(tool.inert, Some(any(&["--help", "-v"])));
    assert_eq!(run.options[0].names, ["--volume", "-v"]);
    assert_eq!(run.options[1].names, ["-C of box run", "-C"]);
    assert_eq!(run.options[2].names, ["-q"]);
    assert_eq!(run.effects[0].when, any(&["--volume"]));
    assert_eq!(run.effects[1].when, any(&["-C of box run"]));
}

#[test]
fn version_of_a_subcommand_is_not_taken_for_a_question() {
    let tool = one("tools: [{names: [x], subcommands: [{names: [install]}]}]");
    assert_eq!(tool.subcommands[0].inert, Some(any(&["--help"])));
}

#[test]
fn mistakes_are_named_with_their_place() {
    let cases = [
        ("tools: 1", "own.yaml:1:8: "),
        (
            "tools:\n  - names: [x]\n    optoins: -a\n",
            "own.yaml:3:5: unknown field `optoins`",
        ),
        (
            "tools:\n  - names: [x]\n    names: [y]\n",
            "own.yaml:3:5: duplicate mapping key: names",
        ),
        (
            "tools:\n  - names: [x]\n    options: >\n      -a, --all;\n      -o, --out=wirte\n",
            "own.yaml:5:17: `wirte` is no meaning; known are text, ",
        ),
        (
            "tools:\n  - names: [x]\n    operands: text wirte...\n",
            "own.yaml:3:20: `wirte` is no meaning",
        ),
        (
            "tools:\n  - names: [x]\n    options: -a, --all; -b; -a\n",
            "own.yaml:3:14: option `-a` is named twice in `x`",
        ),
        (
            "tools:\n  - names: [x]\n    options: [-a, '--all', '-b, --all']\n",
            "own.yaml:3:33: option `--all` is named twice in `x`",
        ),
        (
            "tools:\n  - names: [x]\n    subcommands:\n      - names: [y]\n        effects: [{effect: listen, when: [-l]}]\n",
            "own.yaml:5:43: `x y` has no option `-l`; add it",
        ),
        (
            "tools:\n  - names: [x]\n    recursive: [--deep]\n",
            "own.yaml:3:17: `x` has no option `--deep`",
        ),
        (
            "tools:\n  - names: [x]\n    effects: ['write:--out']\n",
            "own.yaml:3:15: `x` has no option `--out`",
        ),
        (
            "tools:\n  - names: [x]\n    effects: ['delete:everything']\n",
            "own.yaml:3:15: `everything` is no resource; known are backup, ",
        ),
        (
            "tools:\n  - names: [x]\n    effects: [burn]\n",
            "own.yaml:3:15: `burn` is no action; known are read, write",
        ),
        (
            "tools:\n  - names: [x]\n    effects: ['run_code:fridge']\n",
            "own.yaml:3:15: `fridge` is no source of code",
        ),
        (
            "tools:\n  - names: [x, y]\n  - names: [z, y]\n",
            "own.yaml:3:16: `y` is already modelled at own.yaml:2:16",
        ),
        (
            "tools:\n  - names: []\n",
            "own.yaml:2:12: a tool needs a name: `names: []`",
        ),
        (
            "tools:\n  - names: ['mkfs.*']\n",
            "own.yaml:2:13: only names of subcommands may contain `*`",
        ),
        (
            "tools:\n  - names: [/bin/x]\n",
            "own.yaml:2:13: a tool is named by the last part of its path",
        ),
        (
            "tools:\n  - names: [x]\n    style: dos\n",
            "own.yaml:3:12: `dos` is no style",
        ),
        (
            "tools:\n  - names: [x]\n    stdin: tea\n",
            "own.yaml:3:12: `tea` is no use of standard input",
        ),
        (
            "tools:\n  - names: [x]\n    produces: [gold]\n",
            "own.yaml:3:16: `gold` is no product",
        ),
        (
            "tools:\n  - names: [x]\n    operands: read... write...\n",
            "own.yaml:3:23: only one operand can be repeated: `write...`",
        ),
        (
            "tools:\n  - names: [x]\n    operands: command text\n",
            "own.yaml:3:23: nothing can follow `command` or `shell`",
        ),
        (
            "tools:\n  - names: [x]\n    operands: keyed...\n",
            "own.yaml:3:15: `keyed` needs `keys` beside it",
        ),
        (
            "tools:\n  - names: [x]\n    options: -name=text\n",
            "own.yaml:3:14: one dash before a long name needs `style: single-dash`",
        ),
        (
            "tools:\n  - names: [x]\n    options: --out=\n",
            "own.yaml:3:14: a meaning is missing after `=`",
        ),
    ];
    for (text, expected) in cases {
        let error = error(text);
        assert!(
            error.starts_with(expected),
            "{text}\n  expected {expected}\n  got      {error}"
        );
    }
}

#[test]
fn a_tool_in_two_files_names_both() {
    let text = "tools: [{names: [x]}]";
    let error = tools::load([("a.yaml", text), ("b.yaml", text)]).unwrap_err();
    assert!(matches!(error, ToolError::ToolTwice { .. }));
    assert_eq!(
        error.to_string(),
        "b.yaml:1:18: `x` is already modelled at a.yaml:1:18"
    );
    assert_eq!(error.place().file, "b.yaml");
}

const REFERENCE: &str = include_str!("../../../docs/tools.md");

#[test]
fn the_reference_lists_every_resource() {
    for (name, description) in RESOURCES {
        let row = format!("| `{name}` | {description} |");
        assert!(REFERENCE.contains(&row), "docs/tools.md lacks {row}");
    }
}

#[test]
fn the_examples_of_the_reference_load() {
    let mut examples = 0;
    for block in REFERENCE.split("```yaml\n").skip(1) {
        let example = block.split("```").next().unwrap_or_default();
        if example.starts_with("tools:") {
            if let Err(error) = parse(example) {
                panic!("{error}\n{example}");
            }
            examples += 1;
        }
    }
    assert!(examples > 0);
}

/// Options by whose name a call only shows what it would do.
const SHOWS: [&str; 7] = [
    "--dry-run",
    "--dryrun",
    "--dry_run",
    "--simulate",
    "--just-print",
    "--version",
    "--help",
];

/// Where such an option is none, or does not stop everything: `make` still runs what its file computes, `gradle`
/// its build script, and the others have no such mode or are harmless.
const ACTS_ALL_THE_SAME: [&str; 6] = [
    "make -n,--just-print,--dry-run,--recon",
    "gradle -m,--dry-run",
    "git checkout-index --dry-run",
    "git daemon --dry-run",
    "gh workflow install --dry-run",
    "uv init --dry-run",
];

#[test]
fn what_only_shows_is_inert_in_every_model() {
    fn walk(tool: &Tool, path: &str, inherited: &[String], found: &mut Vec<String>) {
        let path = format!("{path}{} ", tool.names[0]);
        let mut inert = inherited.to_vec();
        inert.extend(
            tool.inert
                .iter()
                .flat_map(|condition| condition.any.clone()),
        );
        for option in &tool.options {
            let shows = option.value == Arity::None
                && option
                    .names
                    .iter()
                    .any(|name| SHOWS.contains(&name.as_str()));
            let known = inert.iter().any(|entry| {
                let name = entry.split('=').next().unwrap();
                option.names.iter().any(|own| own == name)
            });
            // Without subcommands there is nothing that the option would have to be kept apart from.
            if shows && !known && !tool.effects.is_empty() | tool.has_subcommands() {
                found.push(format!("{path}{}", option.names.join(",")));
            }
        }
        for sub in &tool.subcommands {
            walk(sub, &path, &inert, found);
        }
    }
    let models = tools::load(tools::shipped().iter().copied()).unwrap();
    let mut found = Vec::new();
    for tool in &models {
        walk(tool, "", &[], &mut found);
    }
    found.retain(|path| !ACTS_ALL_THE_SAME.contains(&path.as_str()));
    assert!(found.is_empty(), "{found:#?}");
}
