//! Nothing may panic, hang or grow without bound, whatever the bytes.
#![cfg(feature = "parse")]

mod common;

use std::time::Duration;

use proptest::prelude::*;
use substrate_command::{Context, Limits, Line, analyse, analyse_argv};

fn run(text: &[u8]) -> Line {
    let models = common::models();
    let line = analyse(text, &common::context(&models));
    assert_bounded(&line, text.len());
    line
}

/// What comes out stays in proportion to what goes in.
fn assert_bounded(line: &Line, input: usize) {
    let limits = Limits::default();
    assert!(line.invocations.len() <= limits.max_invocations);
    let size: usize = line
        .invocations
        .iter()
        .flat_map(|found| &found.argv)
        .map(|word| word.text().len() + 1)
        .sum();
    assert!(
        size <= 64 * (1 << 20) + 64 * input,
        "{size} bytes out of {input}"
    );
    for found in &line.invocations {
        assert!(found.source.start <= found.source.end && found.source.end <= input);
        assert!(
            found
                .parent
                .is_none_or(|parent| parent < line.invocations.len())
        );
    }
}

/// Fragments that make grammar-aware nonsense when strung together.
const FRAGMENTS: [&str; 96] = [
    "rm", "-rf", "/", "ls", "echo", "sh", "-c", "eval", "sudo", "env", "xargs", "find", "-exec",
    "{}", "\\;", "+", ";", "&", "&&", "||", "|", "|&", "\n", "(", ")", "((", "))", "{", "}", "[[",
    "]]", "[", "]", "if", "then", "elif", "else", "fi", "for", "in", "do", "done", "while",
    "until", "case", "esac", ";;", ";&", "select", "function", "f()", "coproc", "time", "!", "<",
    ">", ">>", "<<E", "<<-'E'", "E\n", "<<<", "<>", ">&", "2>&1", "&>", "<(", ">(", "$(", "`",
    "$((", "${", "${x", ":-", "#", "%", "}", "$x", "$@", "$1", "\"", "'", "$'", "\\x41", "\\",
    "\\\n", "~", "*", "?", "{a,b}", "{1..9}", "x=", "x=(", "x[1]=", "\t", "é", "\0",
];

/// Characters that C libraries see differently, or do not expect.
const FAR: [&str; 3] = ["\u{3000}", "\u{f0001}", "\u{10ffff}"];

/// The grammar asks what kind each character is, and a table of some C libraries ends after 384: the
/// answer for what lies far behind came from memory that is not there.
#[test]
fn every_character_is_of_some_kind() {
    for character in ['\u{85}', '\u{3000}', '\u{e0067}', '\u{f0001}', '\u{10ffff}'] {
        for (before, after) in [
            ("echo a{", ",b}"),
            ("echo x{", "}"),
            ("ls a{", ""),
            ("echo $", ""),
            ("echo ${a#", "}"),
            ("cat <<", "\n"),
        ] {
            run(format!("{before}{character}{after}").as_bytes());
        }
    }
}

/// Bash knows the blanks of ASCII, whatever a C library takes for one.
#[test]
fn a_wide_blank_is_a_character_like_others() {
    for blank in ['\u{85}', '\u{2003}', '\u{2028}', '\u{3000}'] {
        for (line, programs) in [
            (format!("a={blank}b ls"), vec!["ls"]),
            (format!("echo ${{a#{blank}}}"), vec!["echo"]),
            (format!("case x in a{blank}*) ls;; esac"), vec!["ls"]),
        ] {
            let read = run(line.as_bytes());
            let found: Vec<_> = read
                .invocations
                .iter()
                .map(|found| String::from_utf8_lossy(&found.argv[0].text()).into_owned())
                .collect();
            assert!(read.complete(), "{line:?}");
            assert_eq!(found, programs, "{line:?}");
        }
    }
}

fn fragments() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        (
            prop::sample::select([&FRAGMENTS[..], &FAR].concat()),
            any::<bool>(),
        ),
        0..40,
    )
    .prop_map(|parts| {
        parts
            .into_iter()
            .map(|(text, blank)| {
                if blank {
                    format!("{text} ")
                } else {
                    text.to_owned()
                }
            })
            .collect()
    })
}

fn safe_line() -> impl Strategy<Value = String> {
    "[ \t]{0,3}([A-Za-z0-9_@%+=:,./-]{1,8}[ \t]{1,3}){0,6}[A-Za-z0-9_@%+=:,./-]{0,8}"
}

/// A negated group where a command could start is neither a pattern nor read for ever.
#[test]
fn negation_before_a_group_is_read_once() {
    for text in [
        "[[ (!(-f x)) ]]",
        "[[(B\"\"(!($",
        "[[ a && (!(b)) ]]; rm x",
        "case x in (!(a)) ls;; esac",
        "!(ls)",
        "{ !(ls); }",
    ] {
        run(text.as_bytes());
    }
    let line = run(b"!(rm x)");
    assert_eq!(line.invocations.len(), 1, "{line:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        run(&bytes);
    }

    #[test]
    fn any_grammar_like_text(text in fragments()) {
        run(text.as_bytes());
    }

    #[test]
    fn any_argument_vector(argv in proptest::collection::vec(proptest::collection::vec(1u8.., 0..20), 0..10)) {
        let models = common::models();
        analyse_argv(&argv, &common::context(&models));
    }

    #[test]
    fn any_words_for_the_tools(words in proptest::collection::vec(prop::sample::select(FRAGMENTS.as_slice()), 0..20), tool in 0usize..40) {
        let models = common::models();
        let tools = common::tools();
        let mut argv = vec![tools[tool % tools.len()].0.names[0].clone().into_bytes()];
        argv.extend(words.iter().map(|word| word.as_bytes().to_vec()));
        analyse_argv(&argv, &common::context(&models));
    }

    /// The short way for plain lines gives what the parsers give.
    #[test]
    fn plain_lines_need_no_parser(text in safe_line()) {
        // A newline at the end changes nothing but sends the line through the parsers.
        let (short, long) = (run(text.as_bytes()), run(format!("{text}\n").as_bytes()));
        prop_assert_eq!(format!("{short:?}"), format!("{long:?}"));
    }

    /// Quoting a word changes nothing about what is found.
    #[test]
    fn quoting_is_transparent(words in proptest::collection::vec("[a-z/.-]{1,6}", 1..6)) {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let doubled: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let plain = common::commands(&run(words.join(" ").as_bytes()));
        prop_assume!(!substrate_command::is_keyword(words[0].as_bytes()));
        prop_assert_eq!(&plain, &common::commands(&run(quoted.join(" ").as_bytes())));
        prop_assert_eq!(&plain, &common::commands(&run(doubled.join("  ").as_bytes())));
    }
}

#[test]
fn a_line_of_a_megabyte() {
    let line = run("echo hello; ".repeat((1 << 20) / 12).as_bytes());
    assert!(line.unclear.is_some());
    run(format!("echo '{}'", "x".repeat((1 << 20) - 10)).as_bytes());
    run(format!("echo {}", "$x".repeat(500_000)).as_bytes());
    run(format!("echo {}", "a ".repeat(500_000)).as_bytes());
    run(&vec![b'{'; 1 << 20]);
    run(&vec![b'\\'; 1 << 20]);
    run(&b"\\\n".repeat(1 << 19));
    run(&b"<<a ".repeat(1 << 18));
    run(&b"a|".repeat(1 << 19));
    run(&b"`".repeat(1 << 20));
    run(&b"$((".repeat(300_000));
    run(&b"x=$x$x;".repeat(100_000));
    let line = run(&vec![b'a'; (1 << 20) + 1]);
    assert!(line.unclear.is_some() && line.invocations.is_empty());
}

#[test]
fn a_hundred_thousand_nested_parentheses() {
    for open in [
        "(",
        "$(",
        "\"$(",
        "{ ",
        "((",
        "<(",
        "${x:-",
        "`",
        "if ",
        "while ",
        "! ",
        "f() { ",
        "case x in x) ",
        "[[ ( ",
        "\"",
        "sh -c '",
    ] {
        let line = run(open.repeat(100_000).as_bytes());
        // These two are whole; the second reader may be done with them in time, or not.
        let whole = ["! ", "\""].contains(&open);
        assert!(line.unclear.is_some() || whole, "{open}");
    }
    let nested = format!("{}rm -rf /x{}", "( ".repeat(100_000), " )".repeat(100_000));
    let line = run(nested.as_bytes());
    assert!(line.unclear.is_some());
    assert!(
        common::commands(&line)
            .iter()
            .any(|command| command == "rm -rf /x")
    );
    run(format!("echo {}", "{a,".repeat(100_000)).as_bytes());
}

#[test]
fn expansions_do_not_explode() {
    let doubling = format!("x=aaaaaaaa; {} echo $x", "x=$x$x; ".repeat(60));
    run(doubling.as_bytes());
    let loops: String = (0..12)
        .map(|n| format!("for v{n} in 1 2 3 4 5 6 7 8; do "))
        .collect();
    let uses: String = (0..12).map(|n| format!("$v{n} ")).collect();
    let line = run(format!("{loops} echo {uses}; {}", "done; ".repeat(12)).as_bytes());
    assert!(line.unclear.is_some());
    run("echo {a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}".as_bytes());
    run("f() { g; g; }; g() { h; h; }; h() { f; f; }; f".as_bytes());
    let calls: String = (0..40)
        .map(|n| format!("f{n}() {{ f{}; f{}; }}; ", n + 1, n + 1))
        .collect();
    run(format!("{calls} f0").as_bytes());
    run("alias a='b b' b='c c' c='a a'; a".as_bytes());
    run("x='eval $x$x'; eval $x".as_bytes());
    run(format!("{} rm x", "sudo ".repeat(10_000)).as_bytes());
    run(format!("echo $({} x)", "echo $(".repeat(1000)).as_bytes());
}

#[test]
fn wrappers_reach_at_least_eight_deep_and_then_say_so() {
    let eight = run(format!("{}rm -rf /x", "sudo ".repeat(8)).as_bytes());
    assert!(eight.complete());
    assert_eq!(eight.invocations[8].via.len(), 8);
    let many = run(format!("{}rm -rf /x", "sudo ".repeat(200)).as_bytes());
    assert!(!many.complete());
}

#[test]
fn the_deadline_makes_a_line_unclear() {
    let models = common::models();
    let limits = Limits {
        deadline: Duration::ZERO,
        ..Limits::default()
    };
    let context = Context {
        limits,
        ..common::context(&models)
    };
    let line = analyse("echo \"a\" ".repeat(20_000).as_bytes(), &context);
    assert!(line.unclear.is_some_and(|why| why.contains("too long")));
}

#[test]
fn bytes_that_are_no_text_are_kept() {
    let line = run(b"rm \xff\xfe '\x80'");
    assert!(line.complete());
    let words: Vec<Option<&[u8]>> = line.invocations[0]
        .argv
        .iter()
        .map(|word| word.value())
        .collect();
    assert_eq!(
        words,
        [Some(b"rm".as_slice()), Some(b"\xff\xfe"), Some(b"\x80")]
    );
}
