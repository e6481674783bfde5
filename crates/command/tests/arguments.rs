//! Argument vectors, with and without models.

mod common;

use common::{arguments, models};
use substrate_command::{Args, Models, Piece, Word, analyse_argv};

fn words(text: &str) -> Vec<Word> {
    text.split_whitespace()
        .map(|word| match word.split_once('$') {
            Some((prefix, name)) => {
                let mut pieces = Vec::new();
                if !prefix.is_empty() {
                    pieces.push(Piece::Known(prefix.as_bytes().to_vec()));
                }
                pieces.push(Piece::Unknown(format!("${name}").into_bytes()));
                Word {
                    pieces,
                    splits: true,
                    quoted: false,
                }
            }
            None => Word::from(word),
        })
        .collect()
}

fn read(text: &str) -> String {
    let argv = words(text);
    let tool = argv[0].value().and_then(|name| models().tool(name));
    let args = Args::parse(&argv, tool.as_ref());
    arguments(&args, &argv)
}

#[test]
fn options_are_read_as_the_model_says() {
    let cases = [
        ("rm -rf a b", "-r -f | a b"),
        ("rm a -r -- -f", "-r | a -f"),
        ("rm --recurs --force a", "-r -f | a"),
        ("rm --rec=x a", "-r=x | a"),
        ("rm --r a", "-r | a"),
        ("rm -rq a", "-r ?-q | ?a"),
        ("rm --what a b", "?--what | ?a b"),
        ("rm - a", "| - a"),
        ("curl -o out -sfL url", "-o=out -s -f -L | url"),
        ("curl -sSoout url", "-s -S -o=out | url"),
        ("curl --output=out --data @f url", "-o=out -d=@f | url"),
        ("ls --color --color=never x", "--color --color=never | x"),
        ("tail -20 f", "-#=20 | f"),
        ("tail -n5 f", "-n=5 | f"),
        ("head -20 f", "?-20 | f"),
        ("tar xzf a.tgz -C d b", "-x -z -f=a.tgz -C=d | b"),
        ("tar -xzf a.tgz b", "-x -z -f=a.tgz | b"),
        ("tar cfC a.tar d x", "-c -f=a.tar -C=d | x"),
        (
            "find . -type f ( -name a ) -delete",
            "-type=f ( -name=a ) -delete | .",
        ),
        ("find . -exec rm -r {} ; -name x", "-exec=rm -name=x | ."),
        ("find . -exec rm {} + -delete", "-exec=rm -delete | ."),
        ("find . -exec rm {}", "-exec=rm | ."),
        ("env -i A=1 rm -r x", "-i | A=1 rm -r x"),
        ("sudo -u root -n rm -n", "-u=root -n | rm -n"),
        ("dd if=a -x", "| if=a -x"),
        ("git -C d commit -am msg -- f", "commit -C=d -a -m=msg | f"),
        ("git commit --amend -m msg f", "commit --amend -m=msg | f"),
        ("git st -s", "status -s |"),
        ("git remote add o url", "remote add | o url"),
        ("git frobnicate push", "| frobnicate push"),
        (
            "git push --force-with-lease=x o",
            "push --force-with-lease=x | o",
        ),
        ("kubectl delete --all -n ns", "delete --all -n=ns |"),
        ("vim +w file", "+=w | file"),
        ("bwrap --bind a b c --bind", "--bind=a | c --bind"),
        ("rm $x a", "| ?{$x}… a"),
        ("rm -r$x a", "-r ?-$x | a"),
        ("curl --output=$x url", "-o=?{$x}… | url"),
        ("curl -o$x url", "-o=?{$x}… | url"),
        (
            "unknown -abc --long=x --y z",
            "?-a ?-b ?-c ?--long=x ?--y | ?z",
        ),
        ("rm", "|"),
    ];
    let mut differences = String::new();
    for (text, expected) in cases {
        let found = read(text);
        if found != expected {
            differences.push_str(&format!(
                "{text}\n  found    {found}\n  expected {expected}\n"
            ));
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
}

#[test]
fn argument_vectors_are_judged_like_lines() {
    let models = models();
    let context = common::context(&models);
    let argv = |text: &str| {
        text.split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect::<Vec<_>>()
    };
    let line = analyse_argv(&argv("sudo env A=1 rm -rf /x"), &context);
    assert_eq!(
        common::render(&line),
        [
            "sudo env A=1 rm -rf /x; privilege -",
            "sudo> env A=1 rm -rf /x",
            "sudo>env> A=1 rm -rf /x; delete(r) /x"
        ]
    );
    assert!(line.complete() && !line.operators);
    assert_eq!(line.plain, Some(argv("sudo env A=1 rm -rf /x")));
    // Words are final: nothing in them is expanded.
    let line = analyse_argv(&argv("rm $x ~ * a;b"), &context);
    assert_eq!(common::commands(&line), ["rm $x ~ * a;b"]);
    assert!(line.invocations[0].argv.iter().all(Word::is_literal));
    assert_eq!(analyse_argv(&[], &context).plain, None);
}

#[test]
fn shell_text_in_an_argument_vector() {
    let models = models();
    let context = common::context(&models);
    let argv: Vec<Vec<u8>> = ["sh", "-c", "rm -rf \"$1\"", "sh", "/x"]
        .map(|word| word.as_bytes().to_vec())
        .to_vec();
    let line = analyse_argv(&argv, &context);
    if cfg!(feature = "parse") {
        assert_eq!(common::commands(&line)[1], "rm -rf /x");
        assert!(line.complete());
    } else {
        assert!(!line.complete());
        assert!(line.invocations[0].unclear.is_some());
    }
    // Plain words need no parser.
    let argv: Vec<Vec<u8>> = ["sh", "-c", "rm -rf /x"]
        .map(|word| word.as_bytes().to_vec())
        .to_vec();
    assert_eq!(
        common::commands(&analyse_argv(&argv, &context))[1],
        "rm -rf /x"
    );
}
