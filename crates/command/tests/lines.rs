//! Lines and what is found in them.
#![cfg(feature = "parse")]

mod common;

use common::{commands, line, render};

/// Compares all cases before failing, so that one run shows every difference.
fn check(cases: &[(&str, &[&str])], understood: bool) {
    let mut differences = String::new();
    for (text, expected) in cases {
        let line = line(text);
        let found = render(&line);
        if found != *expected {
            differences.push_str(&format!(
                "{text}\n  found    {found:?}\n  expected {expected:?}\n"
            ));
        }
        if understood && let Some(why) = &line.unclear {
            differences.push_str(&format!("{text}\n  unclear: {why}\n"));
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
}

/// Lines that must be fully understood, with every invocation rendered.
#[test]
fn understood_lines() {
    let cases: &[(&str, &[&str])] = &[
        // Structure.
        (
            "ls -l; rm a && rm b || rm c",
            &[
                "ls -l",
                "rm a; delete a",
                "rm b; delete b",
                "rm c; delete c",
            ],
        ),
        ("! ls", &["ls"]),
        ("[ $x = 3 ] && rm a", &["[ ?{$x}… = 3 ]", "rm a; delete a"]),
        (
            "[ \\( a != \"$(rm b)\" \\) -o c \\< d ]",
            &["[ ( a != ?{$(rm b)} ) -o c < d ]", "rm b; delete b"],
        ),
        ("[[ ! -e a || ! -d b ]]; rm c", &["rm c; delete c"]),
        ("time -p rm x", &["rm x; delete x"]),
        ("ls | time rm x", &["ls", "rm x; delete x"]),
        (
            "x=1; echo $x{a,b} ${x}{a,b}",
            &["x=1 ", "echo ?{$x}… ?{$x}… 1a 1b"],
        ),
        ("echo ~:$x", &["echo ?{~:}?{$x}…"]),
        (
            "(rm a; rm b) | cat",
            &["rm a; delete a", "rm b; delete b", "cat"],
        ),
        (
            "if true; then rm a; elif false; then rm b; else rm c; fi",
            &[
                "true",
                "rm a; delete a",
                "false",
                "rm b; delete b",
                "rm c; delete c",
            ],
        ),
        ("while false; do rm a; done", &["false", "rm a; delete a"]),
        ("until false; do rm a; done", &["false", "rm a; delete a"]),
        (
            "for x in a 'b c'; do rm \"$x\"; done",
            &["rm a; delete a", "rm b c; delete b c"],
        ),
        ("for x in a b; do ls; done", &["ls"]),
        (
            "for ((i=0; i<$(rm a); i++)); do rm b; done",
            &["rm a; delete a", "rm b; delete b"],
        ),
        (
            "select x in a; do rm \"$x\"; done",
            &["rm a; delete a", "rm ?{$x}; delete ?{$x}"],
        ),
        (
            "case $(rm a) in b) rm c;; (d|e) rm f;& *) rm g; esac",
            &[
                "rm a; delete a",
                "rm c; delete c",
                "rm f; delete f",
                "rm g; delete g",
            ],
        ),
        (
            "[[ -f $(rm a) && x =~ ^(b|c)$ ]] && (( 1 + $(rm d) ))",
            &["rm a; delete a", "rm d; delete d"],
        ),
        (
            "f() { rm \"$1\"; }; f /x",
            &["rm ?{$1}; delete ?{$1}", "f /x", "f> rm /x; delete /x"],
        ),
        (
            "function g { rm a; }; g",
            &["rm a; delete a", "g", "g> rm a; delete a"],
        ),
        ("coproc rm a", &["rm a; delete a"]),
        ("coproc C { rm a; }", &["rm a; delete a"]),
        (
            "echo `rm a` $(rm b) <(rm c)",
            &[
                "echo ?{`rm a`}… ?{$(rm b)}… ?{<(rm c)}",
                "rm a; delete a",
                "rm b; delete b",
                "rm c; delete c",
            ],
        ),
        (
            "echo \"${x:-$(rm a)}\" $((1 + `rm b`))",
            &[
                "echo ?{${x:-$(rm a)}} ?{$((1 + `rm b`))}",
                "rm a; delete a",
                "rm b; delete b",
            ],
        ),
        ("ls & rm a", &["ls", "rm a; delete a"]),
        ("# rm x", &[]),
        ("", &[]),
        ("ls # rm x", &["ls"]),
        ("echo a#b", &["echo a#b"]),
        ("a=(x $(rm b) z)", &["a=?{(...)} ", "rm b; delete b"]),
        // Text that is not a command.
        (
            "git commit -m \"remove rm -rf / from docs\"",
            &["git commit -m remove rm -rf / from docs"],
        ),
        (
            "cat > f <<'E'\nrm -rf / $(id) `id`\nE\nls",
            &["cat; write f", "ls"],
        ),
        ("cat <<E\n$(rm a)\nE", &["cat", "rm a; delete a"]),
        ("cat <<A <<-B; ls\na\nA\n\tb\n\tB", &["cat", "ls"]),
        ("echo 'rm -rf /' \"rm\" rm\\ x", &["echo rm -rf / rm rm x"]),
        // Redirections.
        (
            "ls > a 2>&1 >> b < c 3<> d &> e >| f",
            &["ls; write a; write b; read c; read d; write d; write e; write f"],
        ),
        ("ls > /dev/null 2> /dev/stderr < /dev/tty", &["ls"]),
        (
            "{ ls; rm a; } > log",
            &["ls; write log", "rm a; write log; delete a"],
        ),
        ("> empty", &["; write empty"]),
        (
            "exec 3<>/dev/tcp/10.0.0.1/99",
            &["exec; connect 10.0.0.1:99"],
        ),
        ("exec {fd}> out", &["exec; write out"]),
        ("rm !(a|b)", &["rm *{!(a|b)}; delete *{!(a|b)}"]),
        // Words.
        (
            "rm a* [b]? ~/c ~ \\~ '*' $HOME/d ${PWD}",
            &[
                "rm a*{*} *{[b]}*{?} /home/u/c /home/u ~ * /home/u/d /srv/p; delete a*{*}; delete *{[b]}*{?}; delete /home/u/c; delete /home/u; delete ~; delete *; delete /home/u/d; delete /srv/p",
            ],
        ),
        ("rm ~x/y", &["rm ?{~x}/y; delete ?{~x}/y"]),
        (
            "rm {a,b}{1..2}",
            &["rm a1 a2 b1 b2; delete a1; delete a2; delete b1; delete b2"],
        ),
        ("{rm,-rf,/x}", &["rm -rf /x; delete(r) /x"]),
        ("x=rm; $x -rf /x", &["x=rm ", "rm -rf /x; delete(r) /x"]),
        (
            "x='rm -rf' y=/x; $x \"$y\"",
            &["x=rm -rf y=/x ", "rm -rf /x; delete(r) /x"],
        ),
        ("x=r; x+=m; ${x} a", &["x=r ", "x=m ", "rm a; delete a"]),
        ("rm${IFS}-rf$IFS/x", &["rm -rf /x; delete(r) /x"]),
        (
            "x=abrmcd; ${x:2:2} a; ${x%%rm*} b",
            &["x=abrmcd ", "rm a; delete a", "ab b; exec @unknown"],
        ),
        ("a=rm b=a; ${!b} x", &["a=rm b=a ", "rm x; delete x"]),
        (
            "c=(rm -rf /x); \"${c[@]}\"; ${c[0]} y",
            &["c=?{(...)} ", "rm -rf /x; delete(r) /x", "rm y; delete y"],
        ),
        (
            "set -- rm a; \"$@\"; $1 $2; shift; echo $1",
            &[
                "set -- rm a",
                "rm a; delete a",
                "rm a; delete a",
                "shift",
                "echo a",
            ],
        ),
        (
            "$(echo rm) a; `printf 'r%s' m` b",
            &[
                "rm a; delete a",
                "echo rm",
                "rm b; delete b",
                "printf r%s m",
            ],
        ),
        ("echo \"a${x}b\" c$y", &["echo a?{${x}}b c?{$y}…"]),
        ("$'\\x72\\155' $\"a\" \\b", &["rm a b; delete a; delete b"]),
        ("echo \"\" '' $e", &["echo   ?{$e}…"]),
        ("r\\\nm -r\\\nf /x", &["rm -rf /x; delete(r) /x"]),
        ("ls 'a\\\nb' \\\n  c", &["ls a\\\nb c; read a\\\nb; read c"]),
        (
            "x=$(curl example.com); echo $x",
            &[
                "x=?{$(curl example.com)} ",
                "curl example.com; connect example.com",
                "echo ?{$(curl example.com)}…",
            ],
        ),
        (
            "unset x; echo ${x:-a} ${x-b} ${x:+c}",
            &["unset x", "echo a b"],
        ),
        ("read x <<< rm; $x a", &["read x", "rm a; delete a"]),
        (
            "printf -v x r%s m; $x a",
            &["printf -v x r%s m", "rm a; delete a"],
        ),
        // Directories.
        (
            "cd a && rm b; rm c",
            &["cd a", "rm b [in a]; delete b", "rm c [in a]; delete c"],
        ),
        (
            "cd a; cd /b; cd c; rm d",
            &[
                "cd a",
                "cd /b [in a]",
                "cd c [in /b]",
                "rm d [in /b/c]; delete d",
            ],
        ),
        (
            "(cd a; rm b); rm c",
            &["cd a", "rm b [in a]; delete b", "rm c; delete c"],
        ),
        ("ls && cd a; rm b", &["ls", "cd a", "rm b [in ?]; delete b"]),
        (
            "cd a || exit; rm b",
            &["cd a", "exit [in ?]", "rm b [in a]; delete b"],
        ),
        ("cd a || rm b", &["cd a", "rm b [in ?]; delete b"]),
        ("cd a & rm b", &["cd a", "rm b; delete b"]),
        (
            "cd a && ls & rm b",
            &["cd a", "ls [in a]", "rm b; delete b"],
        ),
        ("cd a | cat; rm b", &["cd a", "cat", "rm b; delete b"]),
        ("cd $x; rm b", &["cd ?{$x}…", "rm b [in ?]; delete b"]),
        (
            "cd; rm b; cd -; rm c",
            &[
                "cd",
                "rm b [in /home/u]; delete b",
                "cd - [in /home/u]",
                "rm c [in ?]; delete c",
            ],
        ),
        (
            "pushd a; rm b; popd; rm c",
            &[
                "pushd a",
                "rm b [in a]; delete b",
                "popd [in a]",
                "rm c; delete c",
            ],
        ),
        (
            "if true; then cd a; fi; rm b",
            &["true", "cd a", "rm b [in ?]; delete b"],
        ),
        (
            "while true; do rm b; cd a; done",
            &["true [in ?]", "rm b [in ?]; delete b", "cd a [in ?]"],
        ),
        (
            "cd /a; rm $PWD/b",
            &["cd /a", "rm /a/b [in /a]; delete /a/b"],
        ),
        (
            "git -C a -C b status; env -C c rm d; rm e",
            &[
                "git -C a -C b status [in a/b]",
                "env -C c rm d [in c]",
                "env> rm d [in c]; delete d",
                "rm e; delete e",
            ],
        ),
        // Uncertain values stay unknown.
        (
            "true && x=a; rm \"$x\"",
            &["true", "x=a ", "rm ?{$x}; delete ?{$x}"],
        ),
        ("x=a && rm \"$x\"", &["x=a ", "rm a; delete a"]),
        (
            "x=a; while read -r x; do rm \"$x\"; done",
            &["x=a ", "read -r x", "rm ?{$x}; delete ?{$x}"],
        ),
        ("x=a; (x=b); rm $x", &["x=a ", "x=b ", "rm a; delete a"]),
        (
            "x=a | cat; rm \"$x\"",
            &["x=a ", "cat", "rm ?{$x}; delete ?{$x}"],
        ),
        (
            "x=a y; rm \"$x\"",
            &["x=a y; exec @unknown", "rm ?{$x}; delete ?{$x}"],
        ),
        ("x=1; ((x++)); echo $x", &["x=1 ", "echo ?{$x}…"]),
    ];
    check(cases, true);
}

/// Commands inside commands.
#[test]
fn wrapped_commands() {
    let cases: &[(&str, &[&str])] = &[
        (
            "sudo -u root rm -rf /x",
            &[
                "sudo -u root rm -rf /x; privilege -",
                "sudo> rm -rf /x; delete(r) /x",
            ],
        ),
        (
            "env -i A=1 rm x",
            &["env -i A=1 rm x", "env> A=1 rm x; delete x"],
        ),
        (
            "timeout -k 1 5 nice -n 3 rm x",
            &[
                "timeout -k 1 5 nice -n 3 rm x",
                "timeout> nice -n 3 rm x",
                "timeout>nice> rm x; delete x",
            ],
        ),
        (
            "command rm x; builtin cd y; command -v rm",
            &[
                "command rm x",
                "command> rm x; delete x",
                "builtin cd y",
                "builtin> cd y",
                "command -v rm [in y]",
            ],
        ),
        (
            "exec -a name rm x",
            &["exec -a name rm x", "exec> rm x; delete x"],
        ),
        (
            "eval 'rm a' b",
            &["eval rm a b", "eval> rm a b; delete a; delete b"],
        ),
        (
            "eval 'x=rm'; $x a",
            &["eval x=rm", "eval> x=rm ", "rm a; delete a"],
        ),
        (
            "sh -c 'rm \"$1\"' sh a",
            &["sh -c rm \"$1\" sh a", "sh> rm a; delete a"],
        ),
        (
            "bash -ec 'x=rm; $x a'",
            &["bash -ec x=rm; $x a", "bash> x=rm ", "bash> rm a; delete a"],
        ),
        (
            "A=rm sh -c '$A x'",
            &["A=rm sh -c $A x", "sh> rm x; delete x"],
        ),
        (
            "sh -c 'sh -c \"sh -c \\\"rm x\\\"\"'",
            &[
                "sh -c sh -c \"sh -c \\\"rm x\\\"\"",
                "sh> sh -c sh -c \"rm x\"",
                "sh>sh> sh -c rm x",
                "sh>sh>sh> rm x; delete x",
            ],
        ),
        (
            "find a -name b -exec rm -r {} +",
            &[
                "find a -name b -exec rm -r {} +; read a",
                "find> rm -r a/?{{}}; delete(r) a/?{{}}",
            ],
        ),
        (
            "find a -exec sh -c 'rm b' \\; -name c",
            &[
                "find a -exec sh -c rm b ; -name c; read a",
                "find> sh -c rm b",
                "find>sh> rm b; delete b",
            ],
        ),
        (
            "ls | xargs rm -r",
            &[
                "ls",
                "xargs rm -r",
                "xargs> rm -r ?{<input>}…; delete(r) ?{<input>}…",
            ],
        ),
        (
            "echo a b | xargs -n 1 rm",
            &[
                "echo a b",
                "xargs -n 1 rm",
                "xargs> rm a b; delete a; delete b",
            ],
        ),
        (
            "echo a | xargs -I% rm x/%",
            &["echo a", "xargs -I% rm x/%", "xargs> rm x/a; delete x/a"],
        ),
        (
            "parallel 'cd {}; rm x' ::: 'a b'; ls | parallel rm",
            &[
                "parallel cd {}; rm x ::: a b",
                "parallel> cd a b",
                "parallel> rm x [in a b]; delete x",
                "ls",
                "parallel rm !",
                "parallel> rm ?{${_}}…; delete(r) ?{${_}}…",
            ],
        ),
        (
            "parallel -j 2 rm {}.o ::: a b",
            &[
                "parallel -j 2 rm {}.o ::: a b",
                "parallel> rm a.o; delete a.o",
                "parallel> rm b.o; delete b.o",
            ],
        ),
        (
            "ssh -p 22 u@example.com rm -r x",
            &[
                "ssh -p 22 u@example.com rm -r x; connect example.com",
                "ssh> rm -r x; delete(r) x",
            ],
        ),
        (
            "docker run --rm -v /:/h img rm x",
            &[
                "docker run --rm -v /:/h img rm x; read(r) /; write(r) /",
                "docker> rm x; delete x",
            ],
        ),
        (
            "kubectl exec pod -n ns rm x",
            &["kubectl exec pod -n ns rm x", "kubectl> rm x; delete x"],
        ),
        (
            "bwrap --bind a b --ro-bind c d rm x",
            &[
                "bwrap --bind a b --ro-bind c d rm x; read a; write b; read c",
                "bwrap> rm x; delete x",
            ],
        ),
        (
            "trap 'rm x' EXIT; trap - INT; trap -l",
            &[
                "trap rm x EXIT",
                "trap> rm x; delete x",
                "trap - INT",
                "trap -l",
            ],
        ),
        (
            "alias q='rm x'; q y",
            &[
                "alias q=rm x",
                "alias> rm x; delete x",
                "q y; exec @unknown",
                "alias> rm x y; delete x; delete y",
            ],
        ),
        (
            "git -c alias.x='!rm a' x; git -c alias.y='push -f' y",
            &[
                "git -c alias.x=!rm a x",
                "git> rm a; delete a",
                "git -c alias.y=push -f y",
                "git> git push -f; delete @git-history",
            ],
        ),
        (
            "tar cf x.tar --to-command='rm y' z",
            &[
                "tar cf x.tar --to-command=rm y z; read z; write x.tar",
                "tar> rm y; delete y",
            ],
        ),
        (
            "awk 'BEGIN{system(\"rm x\")}'",
            &["awk BEGIN{system(\"rm x\")}", "awk> rm x; delete x"],
        ),
        (
            "sed -e '1e rm x' f",
            &["sed -e 1e rm x f; read f", "sed> rm x; delete x"],
        ),
        (
            "vim -c ':!rm x' +'w y' f",
            &[
                "vim -c :!rm x +w y f; write f; write y",
                "vim> rm x; delete x",
            ],
        ),
        (
            "python3 -c 'print(1)'",
            &["python3 -c print(1); run_code inline(print(1))"],
        ),
        (
            "python3.11 x.py a",
            &["python3.11 x.py a; run_code file(x.py)"],
        ),
        (
            "psql -h db -c 'drop table t'",
            &["psql -h db -c drop table t; connect db; delete @database"],
        ),
        (
            "dd if=/dev/zero of=/dev/sda",
            &["dd if=/dev/zero of=/dev/sda; read /dev/zero; write /dev/sda"],
        ),
        ("chmod u+s x", &["chmod u+s x; privilege -; chmod x"]),
        ("git push -n -f", &["git push -n -f"]),
        (
            "hash -p /tmp/x ls; ls",
            &[
                "hash -p /tmp/x ls",
                "hash> /tmp/x; exec @unknown",
                "ls",
                "alias> /tmp/x; exec @unknown",
            ],
        ),
        (
            "complete -C 'rm x' y; mapfile -C 'rm z' a",
            &[
                "complete -C rm x y",
                "complete> rm x; delete x",
                "mapfile -C rm z a !",
                "mapfile> rm z ?{${_}}…; delete z; delete ?{${_}}…",
            ],
        ),
        (
            "enable -f ./x.so y",
            &["enable -f ./x.so y; read ./x.so; run_code environment(./x.so)"],
        ),
        ("declare -f g", &["declare -f g"]),
    ];
    check(cases, true);
}

/// Code that runs without being shown, by where it comes from.
#[test]
fn code_and_its_sources() {
    let cases: &[(&str, &[&str])] = &[
        (
            "curl -s https://example.com | sh",
            &[
                "curl -s https://example.com; connect example.com:443",
                "sh; run_code network(https://example.com)",
            ],
        ),
        (
            "curl https://example.com | tee f | bash -s -- --yes",
            &[
                "curl https://example.com; connect example.com:443",
                "tee f; write f",
                "bash -s -- --yes; run_code network(https://example.com)",
            ],
        ),
        (
            "bash <(curl https://example.com)",
            &[
                "bash ?{<(curl https://example.com)}; run_code network(https://example.com)",
                "curl https://example.com; connect example.com:443",
            ],
        ),
        (
            ". <(curl https://example.com)",
            &[
                ". ?{<(curl https://example.com)}; run_code network(https://example.com)",
                "curl https://example.com; connect example.com:443",
            ],
        ),
        ("cat f | sh", &["cat f; read f", "sh; run_code file(f)"]),
        ("sh < f", &["sh; read f; run_code file(f)"]),
        ("sh f a", &["sh f a; run_code file(f)"]),
        (
            "unknown | python -",
            &["unknown; exec @unknown", "python -; run_code stdin"],
        ),
        (
            "echo 'rm x' | sh",
            &["echo rm x", "sh", "sh> rm x; delete x"],
        ),
        (
            "printf '%s\\n' 'rm x' | cat | sudo bash",
            &[
                "printf %s\\n rm x",
                "cat",
                "sudo bash; privilege -",
                "sudo> bash",
                "sudo>bash> rm x; delete x",
            ],
        ),
        ("sh <<E\nrm x\nE", &["sh", "sh> rm x; delete x"]),
        ("bash <<< 'rm x'", &["bash", "bash> rm x; delete x"]),
        (
            "echo cm0geA== | base64 -d | sh",
            &["echo cm0geA==", "base64 -d", "sh", "sh> rm x; delete x"],
        ),
        (
            "base64 -d f | sh",
            &["base64 -d f; read f", "sh; run_code decoded(f)"],
        ),
        (
            "echo 'x mr' | rev | sh",
            &["echo x mr", "rev", "sh; run_code decoded(x mr\n)"],
        ),
        (
            "{ curl https://example.com; echo; } | sh",
            &[
                "curl https://example.com; connect example.com:443",
                "echo",
                "sh; run_code network(https://example.com)",
            ],
        ),
        ("python < f", &["python; read f; run_code file(f)"]),
        ("python --version", &["python --version"]),
        (
            "source f; . g",
            &["source f; run_code file(f)", ". g; run_code file(g)"],
        ),
        (
            "curl https://example.com | xargs -I{} sh -c '{}'",
            &[
                "curl https://example.com; connect example.com:443",
                "xargs -I{} sh -c {}",
                "xargs> sh -c ?{<input>}…; run_code network(?{<input>}…) !",
            ],
        ),
    ];
    check(cases, true);
}

/// What is partly known is searched, and says that it is not fully understood.
#[test]
fn text_known_in_part() {
    let cases: &[(&str, &[&str])] = &[
        (
            "eval \"$(curl example.com)\"",
            &[
                "eval ?{$(curl example.com)}; run_code network(?{$(curl example.com)}) !",
                "curl example.com; connect example.com",
            ],
        ),
        (
            "x=$(curl example.com); eval \"$x\"",
            &[
                "x=?{$(curl example.com)} ",
                "curl example.com; connect example.com",
                "eval ?{$(curl example.com)}; run_code network(?{$(curl example.com)}) !",
            ],
        ),
        (
            "sh -c \"$cmd\"",
            &["sh -c ?{$cmd}; run_code dynamic(?{$cmd}) !"],
        ),
        (
            "sh -c \"rm -r $x\"",
            &[
                "sh -c rm -r ?{$x} !",
                "sh> rm -r ?{${x}}…; delete(r) ?{${x}}…",
            ],
        ),
        (
            "sh -c \"$x; rm y\"",
            &[
                "sh -c ?{$x}; rm y; run_code dynamic(?{$x}; rm y) !",
                "sh> ?{${x}}… !",
                "sh> rm y; delete y",
            ],
        ),
        ("$x -r /", &["?{$x}… -r / !"]),
        ("/bin/r? x", &["/bin/r*{?} x !"]),
        (
            "export $(cat f)",
            &["export ?{$(cat f)}… !", "cat f; read f"],
        ),
    ];
    check(cases, false);
}

/// Variables that make programs run things.
#[test]
fn environment_is_code() {
    let cases: &[(&str, &[&str])] = &[
        (
            "LD_PRELOAD=./x.so ls",
            &["LD_PRELOAD=./x.so ls; run_code environment(LD_PRELOAD=./x.so)"],
        ),
        (
            "PATH=/x:$PATH ls",
            &["PATH=/x:?{$PATH} ls; run_code environment(PATH=/x:?{$PATH})"],
        ),
        (
            "export BASH_ENV=~/x",
            &[
                "BASH_ENV=/home/u/x export BASH_ENV=/home/u/x; run_code environment(BASH_ENV=/home/u/x)",
            ],
        ),
        (
            "GIT_SSH_COMMAND='rm x' git push",
            &[
                "GIT_SSH_COMMAND=rm x git push; run_code environment(GIT_SSH_COMMAND=rm x)",
                "GIT_SSH_COMMAND> rm x; delete x",
            ],
        ),
        (
            "PROMPT_COMMAND='rm x'",
            &[
                "PROMPT_COMMAND=rm x ; run_code environment(PROMPT_COMMAND=rm x)",
                "PROMPT_COMMAND> rm x; delete x",
            ],
        ),
        (
            "env PAGER='sh -c id' git status",
            &[
                "env PAGER=sh -c id git status",
                "env> PAGER=sh -c id git status; run_code environment(PAGER=sh -c id)",
                "env>PAGER> sh -c id",
                "env>PAGER>sh> id; exec @unknown",
            ],
        ),
        (
            "GIT_PAGER=cat LANG=C git status",
            &["GIT_PAGER=cat LANG=C git status"],
        ),
        ("IFS= read -r x", &["IFS= read -r x"]),
        ("IFS=/", &["IFS=/ ; run_code environment(IFS=/)"]),
    ];
    check(cases, true);
}

/// Text that is no shell program, or not surely one, still shows its commands.
#[test]
fn unclear_lines_are_searched() {
    let cases: &[(&str, &str)] = &[
        ("rm -rf /x; if", "rm -rf /x"),
        ("rm -rf /x &&", "rm -rf /x"),
        ("if true; then rm -rf /x", "rm -rf /x"),
        ("echo $(rm -rf /x", "rm -rf /x"),
        ("(rm -rf /x", "rm -rf /x"),
        ("echo \"a; rm -rf /x", "rm -rf /x"),
        ("ls; ); rm -rf /x", "rm -rf /x"),
        ("((ls); (rm -rf /x))", "rm -rf /x"),
        ("x() rm -rf /x", "rm -rf /x"),
        ("rm -rf /x \0", "rm -rf /x"),
        ("cat <<E\nrm -rf /x", "cat"),
        ("case x in rm -rf /x", "rm -rf /x"),
        ("echo ${ rm -rf /x; }", "rm -rf /x"),
    ];
    for (text, wanted) in cases {
        let line = line(text);
        assert!(line.unclear.is_some(), "{text}");
        assert!(
            commands(&line)
                .iter()
                .any(|command| command.contains(wanted)),
            "{text}: {:?}",
            commands(&line)
        );
        assert_eq!(line.plain, None, "{text}");
    }
}

#[test]
fn pipelines_are_numbered() {
    let stages = |text: &str| -> Vec<(u32, u32)> {
        line(text)
            .invocations
            .iter()
            .map(|found| (found.pipeline.pipeline, found.pipeline.index))
            .collect()
    };
    assert_eq!(stages("a | b | c; d"), [(0, 0), (0, 1), (0, 2), (1, 0)]);
    assert_eq!(stages("{ a; b; } | c"), [(0, 0), (0, 0), (0, 1)]);
    assert_eq!(stages("(a | b) | c"), [(0, 0), (0, 1), (0, 2)]);
    assert_eq!(stages("a | sudo b"), [(0, 0), (0, 1), (0, 1)]);
    assert_eq!(stages("echo $(a | b)"), [(0, 0), (1, 0), (1, 1)]);
}

#[test]
fn parents_and_sources_point_back() {
    let text = "ls; sudo  env rm x";
    let line = line(text);
    let parents: Vec<Option<usize>> = line.invocations.iter().map(|found| found.parent).collect();
    assert_eq!(parents, [None, None, Some(1), Some(2)]);
    let sources: Vec<&str> = line
        .invocations
        .iter()
        .map(|found| &text[found.source.clone()])
        .collect();
    assert_eq!(
        sources,
        ["ls", "sudo  env rm x", "sudo  env rm x", "sudo  env rm x"]
    );
}

#[test]
fn plain_lines_can_be_started_without_a_shell() {
    let plain = |text: &str| {
        line(text).plain.map(|argv| {
            argv.iter()
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(plain("/bin/true"), Some(vec!["/bin/true".to_owned()]));
    assert_eq!(
        plain(" echo 'a b' \"c\"\\ d\n"),
        Some(vec!["echo".to_owned(), "a b".to_owned(), "c d".to_owned()])
    );
    for text in [
        "a | b",
        "a > b",
        "A=1 b",
        "echo $x",
        "echo *",
        "echo ~",
        "! a",
        "a &",
        "time a",
        "a; b",
        "echo {a,b}",
        "echo $(a)",
        "(a)",
        "",
        "echo \"$x\"",
    ] {
        assert_eq!(plain(text), None, "{text}");
    }
}

#[test]
fn operators_are_reported() {
    for text in [
        "a | b",
        "a; b",
        "a > b",
        "a &",
        "(a)",
        "echo $(a)",
        "if a; then b; fi",
        "a && b",
        "echo \"`a`\"",
        "cat <<< x",
    ] {
        assert!(line(text).operators, "{text}");
    }
    for text in ["a b", "A=1 b", "echo 'a | b'", "echo $x", "a # b; c"] {
        assert!(!line(text).operators, "{text}");
    }
}

#[test]
fn functions_are_named() {
    assert_eq!(
        line("f() { ls; }; function g { ls; }").functions,
        [b"f".to_vec(), b"g".to_vec()]
    );
}

#[test]
fn aliases_of_the_shell_are_expanded() {
    let models = common::models();
    let aliases = [
        (b"ll".to_vec(), b"ls -l".to_vec()),
        (b"ls".to_vec(), b"ls --color".to_vec()),
    ];
    let context = substrate_command::Context {
        aliases: &aliases,
        ..common::context(&models)
    };
    let found = substrate_command::analyse(b"ll 'a b'", &context);
    assert_eq!(
        commands(&found),
        ["ll a b", "ls -l a b", "ls --color -l a b"]
    );
    let plain = substrate_command::analyse(b"ll a", &context);
    assert_eq!(commands(&plain), ["ll a", "ls -l a", "ls --color -l a"]);
    let quoted = substrate_command::analyse(b"\\ls", &context);
    assert_eq!(commands(&quoted), ["ls"]);
}

#[test]
fn variables_of_the_shell_are_used() {
    let models = common::models();
    let variables = [(b"X".to_vec(), b"rm -r".to_vec())];
    let context = substrate_command::Context {
        variables: &variables,
        ..common::context(&models)
    };
    assert_eq!(
        commands(&substrate_command::analyse(b"$X a", &context)),
        ["rm -r a"]
    );
}

/// A name may be given several meanings; every one of them that a way through the line leads to counts.
#[test]
fn every_meaning_of_a_name_counts() {
    for text in [
        "if a; then f() { ls; }; else f() { rm -rf \"$1\"; }; fi; f /x",
        "if a; then f() { rm -rf \"$1\"; }; else f() { ls; }; fi; f /x",
        "a && f() { rm -rf \"$1\"; }; f /x",
        "f() { ls; }; a || f() { rm -rf \"$1\"; }; f /x",
        "case $a in b) f() { rm -rf \"$1\"; };; *) f() { ls; };; esac; f /x",
        "f() { ls; }; while a; do f /x; f() { rm -rf \"$1\"; }; done",
        "for i in 1 2; do f /x; f() { rm -rf \"$1\"; }; done",
        "for ((i=0;i<2;i++)); do f /x; f() { rm -rf \"$1\"; }; done",
        "f() { ls; }; g() { f() { rm -rf \"$1\"; }; }; g; f /x",
        "if a; then rm() { ls; }; fi; rm -rf /x",
        "rm() { ls; }; a && unset -f rm; rm -rf /x",
        "f() { rm -rf \"$1\"; }; export -f f; bash -c 'f /x'",
        "f() { rm -rf \"$1\"; }; declare -fx f; env sh -c 'f /x'",
        "set -a; f() { rm -rf \"$1\"; }; bash -c 'f /x'",
        "if a; then alias f=ls; else alias f='rm -rf'; fi; f /x",
        "if a; then alias f='rm -rf'; else alias f=ls; fi; f /x",
        "alias f=ls; a && alias f='rm -rf'; f /x",
        "alias rm=ls; rm -rf /x",
    ] {
        let found = render(&line(text));
        assert!(
            found
                .iter()
                .any(|command| command.ends_with("rm -rf /x; delete(r) /x")),
            "{text}\n{found:?}"
        );
    }
}

#[test]
fn an_alias_that_ends_in_a_blank_expands_the_next_word() {
    for (text, expected) in [
        (
            "alias s='sudo '; alias f='rm -rf'; s f /x",
            "sudo rm -rf /x",
        ),
        (
            "alias s='sudo\t'; alias f='rm -rf'; s f /x",
            "sudo rm -rf /x",
        ),
        (
            "alias a='env '; alias b='nice '; alias f='rm -rf'; a b f /x",
            "env nice rm -rf /x",
        ),
        (
            "alias a='env '; if x; then alias f=ls; else alias f='rm -rf'; fi; a f /x",
            "env rm -rf /x",
        ),
        ("alias a='env'; alias f='rm -rf'; a f /x", "env f /x"),
        ("alias a='a '; alias f='rm -rf'; a f /x", "a rm -rf /x"),
        ("alias a='env '; alias f='rm -rf'; a \\f /x", "env f /x"),
    ] {
        let found = commands(&line(text));
        assert!(
            found.iter().any(|command| command == expected),
            "{text}\n{found:?}"
        );
    }
    let many = "alias a='b '; x && alias a='c '; x && alias a='d '; x && alias a='e '; a a a a a";
    assert!(!line(many).complete());
}

#[test]
fn word_lists_of_completion_are_expanded() {
    for text in [
        "compgen -W '$(rm -rf /x)'",
        "compgen -W'`rm -rf /x`' -- a",
        "complete -W 'a \"$(rm -rf /x)\" b' tool",
        "compgen -W '${a:-$(rm -rf /x)}'",
    ] {
        let found = commands(&line(text));
        assert!(
            found.iter().any(|command| command == "rm -rf /x"),
            "{text}\n{found:?}"
        );
    }
    for text in [
        "compgen -W 'start|stop; rm -rf /x' -- s",
        "complete -W 'a b' tool",
    ] {
        assert_eq!(commands(&line(text)).len(), 1, "{text}");
    }
}

#[test]
fn what_a_function_keeps_to_itself_comes_back() {
    for text in [
        "T=rm; f() { local T=echo; }; f; $T -rf /x",
        "T=rm; f() { declare T=echo; T=ls; }; f; $T -rf /x",
        "T=rm; f() { local T; T=echo; }; f; $T -rf /x",
        "T=rm; f() { g() { local T=ls; }; g; $T -rf /x; }; f",
        "T=ls; f() { declare -g T=rm; }; f; $T -rf /x",
        "T=ls; f() { T=rm; }; f; $T -rf /x",
        "f() { local T=rm; $T -rf /x; }; f",
    ] {
        let found = render(&line(text));
        assert!(
            found
                .iter()
                .any(|command| command.ends_with("rm -rf /x; delete(r) /x")),
            "{text}\n{found:?}"
        );
    }
}

#[test]
fn processes_without_end_are_noticed() {
    let bombs = |text: &str| {
        let found = render(&line(text));
        found
            .iter()
            .any(|command| command.contains("exec @process"))
    };
    for text in [
        ":(){ :|:& };:",
        "b() { b | b & }; b",
        "b() { b & b & }; b",
        "b() { (b) & }; b",
        "while true; do work & done",
        "for ((;;)); do work & done",
        "for ((i=0;;i++)); do work & done",
        "for (( i = 0 ; ; i++ )); do work & done",
    ] {
        assert!(bombs(text), "{text}");
    }
    for text in [
        "walk() { for d in \"$1\"/*; do walk \"$d\"; done; }; walk .",
        "for ((i=0;i<3;i++)); do work & done",
        "f() { g | h & }; f",
        "fact() { echo $(( $1 * $(fact $(( $1 - 1 ))) )); }; fact 3",
    ] {
        assert!(!bombs(text), "{text}");
    }
}

#[test]
fn a_coprocess_reads_what_nobody_knows() {
    let found = render(&line("coproc bash -i"));
    assert!(found[0].contains("run_code stdin"), "{found:?}");
}

#[test]
fn switching_the_history_off_is_noticed() {
    for text in ["unset HISTFILE", "set +o history", "set -e +o history"] {
        let found = render(&line(text));
        assert!(found[0].contains("delete @log"), "{found:?}");
    }
    for text in ["unset X", "set -o history", "set +o vi"] {
        assert!(!render(&line(text))[0].contains("delete"), "{text}");
    }
}
