//! One command in many disguises: each must come out as the same words.
#![cfg(feature = "parse")]

mod common;

use common::{commands, line};
use substrate_command::{Line, Word};

const WORDS: [&str; 3] = ["rm", "-rf", "/home/x"];

/// Ways to write one word.
fn spellings(word: &str) -> Vec<String> {
    let bytes = word.as_bytes();
    let (head, tail) = word.split_at(1);
    let mut all = vec![
        word.to_owned(),
        format!("'{word}'"),
        format!("\"{word}\""),
        format!("$'{word}'"),
        format!("$\"{word}\""),
        format!("{head}''{tail}"),
        format!("{head}\"\"{tail}"),
        format!("'{head}'\"{tail}\""),
        format!("{head}\\\n{tail}"),
        format!("\"{head}\\\n{tail}\""),
        format!("$(echo '{word}')"),
        format!("`echo '{word}'`"),
        format!("$(printf %s '{word}')"),
        format!("$(cat <<< '{word}')"),
        format!("${{e:-{word}}}"),
        format!("${{e+no}}{word}"),
        format!("${{s:+{word}}}"),
    ];
    all.push(format!(
        "$'{}'",
        bytes
            .iter()
            .map(|byte| format!("\\x{byte:02x}"))
            .collect::<String>()
    ));
    all.push(format!(
        "$'{}'",
        bytes
            .iter()
            .map(|byte| format!("\\{byte:03o}"))
            .collect::<String>()
    ));
    all.push(format!(
        "$'{}'",
        bytes
            .iter()
            .map(|byte| format!("\\u{byte:04x}"))
            .collect::<String>()
    ));
    all.push(format!(
        "$(printf '{}')",
        bytes
            .iter()
            .map(|byte| format!("\\x{byte:02x}"))
            .collect::<String>()
    ));
    all.push(format!(
        "$(echo -e '{}')",
        bytes
            .iter()
            .map(|byte| format!("\\0{byte:03o}"))
            .collect::<String>()
    ));
    all.push(word.chars().map(|letter| format!("\\{letter}")).collect());
    all.push(word.chars().map(|letter| format!("'{letter}'")).collect());
    all
}

/// The variables that some spellings lean on: `e` is unset, `s` is set.
const PREAMBLE: &str = "unset e; s=set; ";

/// Ways to write a whole command whose words are given in shell syntax.
fn frames(command: &str, quoted: &str) -> Vec<String> {
    vec![
        command.to_owned(),
        format!("  {command}  # harmless"),
        format!("ls; {command}"),
        format!("ls && {command}"),
        format!("ls || {command}"),
        format!("ls | {command}"),
        format!("{command} &"),
        format!("! {command}"),
        format!("({command})"),
        format!("{{ {command}; }}"),
        format!("if {command}; then ls; fi"),
        format!("for i in 1; do {command}; done"),
        format!("while {command}; do ls; done"),
        format!("case x in x) {command};; esac"),
        format!("f() {{ {command}; }}; f"),
        format!("echo $({command})"),
        format!("echo \"$({command})\""),
        format!("cat <({command})"),
        format!("eval {command}"),
        format!("eval {quoted}"),
        format!("sh -c {quoted}"),
        format!("bash -xec {quoted}"),
        format!("echo {quoted} | sh"),
        format!("bash <<< {quoted}"),
        format!("sh <<'EOF'\n{command}\nEOF"),
        format!("source <(echo {quoted})"),
        format!("bash <(echo {quoted})"),
        format!("trap {quoted} EXIT"),
        format!("x={quoted}; eval \"$x\""),
        format!("alias zap={quoted}; zap"),
        format!("coproc {command}"),
        format!("time {command}"),
        format!("> log {command} < in"),
        format!("A=1 {command}"),
        format!("[[ -n $({command}) ]]"),
        format!("a=($({command}))"),
        format!("((x = $({command})))"),
        format!("PROMPT_COMMAND={quoted}"),
    ]
}

/// Programs in front that run the rest.
const WRAPPERS: [&str; 12] = [
    "sudo -u root",
    "sudo A=1",
    "env",
    "env -i B=2",
    "nohup",
    "nice -n 5",
    "timeout 5",
    "setsid -w",
    "stdbuf -o0",
    "busybox",
    "command",
    "exec",
];

fn finds(line: &Line) -> bool {
    line.invocations.iter().any(|found| {
        let words: Option<Vec<&[u8]>> = found.argv.iter().map(Word::value).collect();
        words.is_some_and(|words| words == WORDS.map(str::as_bytes))
    })
}

fn assert_found(text: &str) {
    let line = line(text);
    assert!(
        finds(&line),
        "{text:?}\nfound {:?}\nunclear {:?}",
        commands(&line),
        line.unclear
    );
}

#[test]
fn every_spelling_of_every_word() {
    for (position, word) in WORDS.iter().enumerate() {
        for spelling in spellings(word) {
            let mut words: Vec<String> = WORDS.iter().map(|&word| word.to_owned()).collect();
            words[position] = spelling;
            assert_found(&format!("{PREAMBLE}{}", words.join(" ")));
        }
    }
}

#[test]
fn every_frame() {
    let command = WORDS.join(" ");
    for text in frames(&command, &format!("'{command}'")) {
        assert_found(&text);
    }
}

#[test]
fn every_frame_in_every_frame() {
    // Inside another frame only single quotes are safe to nest by doubling them in `$'…'`.
    let command = WORDS.join(" ");
    for inner in frames(&command, &format!("'{command}'")) {
        let quoted = format!("'{}'", inner.replace('\'', "'\\''"));
        for frame in ["sh -c", "eval", "bash -ec", "sudo sh -c", "env A=1 bash -c"] {
            assert_found(&format!("{frame} {quoted}"));
        }
    }
}

#[test]
fn chains_of_wrappers_to_depth_four() {
    let command = WORDS.join(" ");
    for one in WRAPPERS {
        assert_found(&format!("{one} {command}"));
        for two in WRAPPERS {
            assert_found(&format!("{one} {two} {command}"));
        }
    }
    for shift in 0..WRAPPERS.len() {
        let chain: Vec<&str> = (0..4)
            .map(|step| WRAPPERS[(shift + 5 * step) % WRAPPERS.len()])
            .collect();
        assert_found(&format!("{} {command}", chain.join(" ")));
        assert_found(&format!("{} sh -c '{command}'", chain.join(" ")));
    }
}

#[test]
fn other_ways_to_the_same_words() {
    for text in [
        "{rm,-rf,/home/x}",
        "rm${IFS}-rf${IFS}/home/x",
        "rm$IFS-rf$IFS'/home/x'",
        "x=rm; y=-rf; z=/home/x; $x $y $z",
        "x='rm -rf /home/x'; $x",
        "x=rm,-rf,/home/x; IFS=,; $x",
        "a=(rm -rf /home/x); \"${a[@]}\"",
        "set -- rm -rf /home/x; \"$@\"",
        "set -- rm -rf /home/x; $*",
        "f() { \"$@\"; }; f rm -rf /home/x",
        "f() { rm -rf \"$1\"; }; f /home/x",
        "for x in /home/x /y; do rm -rf $x; done",
        "read c <<< 'rm -rf /home/x'; $c",
        "printf -v c 'rm -rf %s' /home/x; $c",
        "rm -rf ~x/../x 2>/dev/null || rm -rf /home/{x,y} || rm -rf /home/x",
        "x=xrmx; ${x:1:2} -rf /home/x",
        "x=mr; rm -rf ${HOME%u}x",
        "cd /; rm -rf $PWD/home/x || rm -rf /home/x",
        "echo /home/x | xargs rm -rf",
        "echo /home/x | xargs -I{} rm -rf {}",
        "parallel rm -rf ::: /home/x",
        "echo cm0gLXJmIC9ob21lL3g= | base64 -d | sh",
        "echo cm0gLXJmIC9ob21lL3g= | base64 --decode | bash",
        "sh -c \"$(echo cm0gLXJmIC9ob21lL3g= | base64 -d)\"",
        "eval \"$(printf 'rm -rf %s' /home/x)\"",
        "ssh example.com rm -rf /home/x",
        "watch -n 1 'rm -rf /home/x'",
        "find . -exec rm -rf /home/x \\;",
        "git -c alias.z='!rm -rf /home/x' z",
        "GIT_SSH_COMMAND='rm -rf /home/x' git push",
        "r\\\nm \\\n -rf \\\n /home/x",
        "ls #\\\nrm -rf /nothing\nrm -rf /home/x",
        "cat <<E | sh\nrm -rf /home/x\nE",
        "cat <<E; rm -rf /home/x\nE",
        "(((1))); rm -rf /home/x",
        "echo ${x:=rm}; ls `rm -rf /home/x`",
        "echo \"`echo \\`rm -rf /home/x\\``\"",
        "hash -p /bin/rm foo; rm -rf /home/x",
    ] {
        assert_found(text);
    }
}

#[test]
fn absolute_paths_and_flag_orders_keep_their_meaning() {
    for text in [
        "/bin/rm -rf /home/x",
        "/usr/bin/../bin/rm -fr /home/x",
        "rm -r -f /home/x",
        "rm /home/x -rf",
        "rm --recursive --force -- /home/x",
        "rm --rec /home/x",
        "rm -fvr /home/x",
        "./rm -R /home/x",
    ] {
        let line = line(text);
        let found = &line.invocations[0];
        assert_eq!(found.args.tool.as_deref(), Some("rm"), "{text}");
        assert!(found.args.has("-r"), "{text}");
        let deleted: Vec<_> = found
            .effects
            .iter()
            .map(|effect| (effect.action.name(), effect.recursive))
            .collect();
        assert_eq!(deleted, [("delete", true)], "{text}");
    }
}

#[test]
fn harmless_text_stays_harmless() {
    let command = WORDS.join(" ");
    for text in [
        format!("git commit -m '{command}'"),
        format!("echo {command}"),
        format!("echo '{command}' > notes.txt"),
        format!("cat > notes.txt <<'EOF'\n{command}\nEOF"),
        format!("ls # {command}"),
        format!("grep '{command}' file"),
        format!("x='{command}'; echo \"$x\""),
        format!("printf '%s' '{command}' | grep rm"),
        format!("command -v {command}"),
    ] {
        assert!(!finds(&line(&text)), "{text}");
    }
}

/// Text that bash evaluates later is not understood, whatever is found in it.
#[test]
fn what_is_evaluated_later_is_not_called_understood() {
    for text in [
        "let 'x[$(rm -rf v)]=1'",
        "[[ -v 'x[$(rm -rf v)]' ]]",
        "x='a[`rm -rf v`]'; echo $((x))",
        "x='$(rm -rf v)'; echo \"${x@P}\"",
        "BASH_CMDS[ls]=/bin/rm; ls -rf v",
        "BASH_ALIASES[ls]='rm -rf'; true",
    ] {
        assert!(!line(text).complete(), "{text}");
    }
}
