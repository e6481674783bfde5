//! Real work inside an enforcing session: what people and agents do all day has to pass in its world,
//! and what cannot says which switch it is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Sandbox, script, skip};

/// An enforcing policy whose sessions live in worlds; `more` goes into its sections.
fn policy(more: &str) -> String {
    format!(
        "mode: enforce\nfs:\n  read: [\"/**\"]\n  write: [\"$PROJECT/**\", \"/tmp/**\"]\n\
         commands:\n  denied: [\"git push *\"]\n{more}"
    )
}

fn text(output: &Output) -> String {
    format!(
        "{}{}({})",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        output.status
    )
}

/// Runs a line in the session's world.
fn line(sandbox: &Sandbox, line: &str) -> Output {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let tools = |name: &str, directory: &str| {
        std::env::var_os(name).unwrap_or_else(|| home.join(directory).into_os_string())
    };
    sandbox
        .substrate()
        .env("RUSTUP_HOME", tools("RUSTUP_HOME", ".rustup"))
        .env("CARGO_HOME", sandbox.project().join(".cargo-home"))
        .args(["-c", line])
        .output()
        .unwrap()
}

/// Runs a line that must succeed, and answers what it printed.
fn works(sandbox: &Sandbox, text_of_line: &str) -> String {
    let output = line(sandbox, text_of_line);
    assert!(output.status.success(), "{text_of_line}: {}", text(&output));
    let done = sandbox.events("command_complete");
    let last = done.last().unwrap();
    assert_eq!(last["place"], "session", "{last}");
    assert_eq!(last["enforced"]["level"], "full", "{last}");
    assert_eq!(last["enforced"]["exec"], "guard", "{last}");
    text(&output)
}

fn installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Whether these programs are here; says so when they are not.
fn have(test: &str, programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs
        .iter()
        .copied()
        .filter(|name| !installed(name))
        .collect();
    if !missing.is_empty() {
        skip(test, &format!("{} is not installed", missing.join(", ")));
    }
    missing.is_empty()
}

/// A process of the host that ends with the test.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn git(directory: &Path, arguments: &[&str]) {
    let done = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
        .args(arguments)
        .current_dir(directory)
        .env("HOME", directory)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(done.success(), "git {arguments:?}");
}

#[test]
fn a_clone_from_a_server_of_the_policy() {
    if !have("clone", &["git", "python3"]) {
        return;
    }
    let served = tempfile::tempdir().unwrap();
    let source = served.path().join("source");
    std::fs::create_dir(&source).unwrap();
    git(&source, &["init", "-q", "-b", "main"]);
    write(&source.join("file"), "cloned\n");
    git(&source, &["add", "file"]);
    git(&source, &["commit", "-qm", "one"]);
    git(
        served.path(),
        &["clone", "-q", "--bare", "source", "repo.git"],
    );
    git(&served.path().join("repo.git"), &["update-server-info"]);
    let port = free_port();
    let server = Command::new("python3")
        .args([
            "-m",
            "http.server",
            "--bind",
            "127.0.0.1",
            &port.to_string(),
        ])
        .current_dir(served.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _server = Helper(server);
    wait_for_port(port);
    let sandbox = Sandbox::with_policy(&policy(&format!(
        "net:\n  allowed: [\"git.test:{port}\"]\n  resolve: {{ git.test: 127.0.0.1 }}\n"
    )));
    let url = format!("http://git.test:{port}/repo.git");
    works(
        &sandbox,
        &format!("git clone -q {url} copy && cat copy/file"),
    );
    assert_eq!(
        std::fs::read_to_string(sandbox.project().join("copy/file")).unwrap(),
        "cloned\n"
    );
    let done = sandbox.events("command_complete");
    let scopes = done.last().unwrap()["scopes_used"].to_string();
    assert!(scopes.contains(&format!("tcp:git.test:{port}")), "{scopes}");
    // The same server under a name that nobody allowed.
    let other = line(
        &sandbox,
        &format!("git clone -q http://127.0.0.1:{port}/repo.git other"),
    );
    assert!(!other.status.success(), "{}", text(&other));
}

#[test]
fn configure_and_make() {
    if !have("make", &["make", "gcc"]) {
        return;
    }
    let sandbox = Sandbox::with_policy(&policy(""));
    let project = sandbox.project();
    script(
        &project.join("configure"),
        "#!/bin/sh\nset -e\necho 'int main(void){return 0;}' > conftest.c\ngcc conftest.c -o conftest\n\
         ./conftest\nrm -f conftest conftest.c\nprintf 'all: prog\\nprog: main.o part.o\\n\\tgcc -o $@ $^\\n\
         %%.o: %%.c\\n\\tgcc -c -o $@ $<\\n' > Makefile\n",
    );
    write(
        &project.join("main.c"),
        "int part(void);\nint main(void){return part();}\n",
    );
    write(&project.join("part.c"), "int part(void){return 7;}\n");
    works(&sandbox, "./configure && make -j2");
    assert_eq!(line(&sandbox, "./prog").status.code(), Some(7));
    assert!(project.join("prog").exists(), "the project is real");
}

#[test]
fn a_crate_is_built_and_tested() {
    if !have("cargo", &["cargo", "gcc"]) {
        return;
    }
    let sandbox = Sandbox::with_policy(&policy(""));
    let project = sandbox.project();
    write(
        &project.join("Cargo.toml"),
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    );
    write(
        &project.join("src/main.rs"),
        "fn main() { println!(\"tiny {}\", 6 * 7); }\n#[test]\nfn it() { assert_eq!(1 + 1, 2); }\n",
    );
    works(&sandbox, "cargo build --offline && cargo test --offline -q");
    assert!(works(&sandbox, "target/debug/tiny").contains("tiny 42"));
}

#[test]
fn npm_runs_its_tests() {
    if !have("npm", &["npm", "node"]) {
        return;
    }
    let sandbox = Sandbox::with_policy(&policy(""));
    let project = sandbox.project();
    write(
        &project.join("package.json"),
        "{\"name\":\"t\",\"version\":\"1.0.0\",\"scripts\":{\"test\":\"node test.js\"}}\n",
    );
    write(
        &project.join("test.js"),
        "const {execFileSync} = require('child_process');\n\
         console.log('child said ' + execFileSync('echo', ['hello']).toString());\n",
    );
    assert!(works(&sandbox, "npm test").contains("child said hello"));
}

#[test]
fn pytest_starts_programs() {
    let python = "/usr/bin/python3";
    let there = Command::new(python)
        .args(["-m", "pytest", "--version"])
        .output();
    if !there.is_ok_and(|output| output.status.success()) {
        return skip("pytest", "python3-pytest is not installed");
    }
    let sandbox = Sandbox::with_policy(&policy(""));
    write(
        &sandbox.project().join("test_it.py"),
        "import multiprocessing, subprocess, sys\n\n\
         def test_program():\n    assert subprocess.check_output(['echo', 'hi']) == b'hi\\n'\n\n\
         def test_shell():\n    assert subprocess.getoutput('echo $((6*7))') == '42'\n\n\
         def test_refused(tmp_path):\n    \
         done = subprocess.run(['git', 'push', 'origin'], capture_output=True)\n    \
         assert done.returncode != 0\n\n\
         def test_pool():\n    \
         assert multiprocessing.Pool(2).map(abs, [-1, -2]) == [1, 2]\n",
    );
    let said = line(&sandbox, &format!("{python} -m pytest -q test_it.py"));
    // The start that the policy refuses is refused as a program start, which python reports.
    let all = text(&said);
    assert!(
        all.contains("3 passed") || all.contains("4 passed"),
        "{all}"
    );
    assert!(
        all.contains("PermissionError") || all.contains("4 passed"),
        "{all}"
    );
}

#[test]
fn a_commit_runs_its_hooks_and_cannot_change_them() {
    if !have("git", &["git"]) {
        return;
    }
    let sandbox = Sandbox::with_policy(&policy(""));
    let project = sandbox.project();
    std::fs::remove_dir_all(project.join(".git")).unwrap();
    git(&project, &["init", "-q", "-b", "main"]);
    git(&project, &["config", "user.name", "t"]);
    git(&project, &["config", "user.email", "t@example.com"]);
    script(
        &project.join(".git/hooks/pre-commit"),
        "#!/bin/sh\necho hook ran > hook.txt\ngit diff --cached --name-only\n",
    );
    write(&project.join("file"), "one\n");
    let said = works(
        &sandbox,
        "git add file && git commit -qm one && git log --oneline",
    );
    assert!(said.contains("one"), "{said}");
    assert!(project.join("hook.txt").exists(), "{said}");
    let planted = line(
        &sandbox,
        "python3 -c \"open('.git/hooks/pre-commit','w').write('x')\"",
    );
    assert!(!planted.status.success(), "{}", text(&planted));
    let pushed = line(&sandbox, "sh -c 'git pu\"\"sh origin main'");
    assert!(text(&pushed).contains("git push *"), "{}", text(&pushed));
}

/// Names that git obeys and that the repository does not have yet: no mount can lie on them.
#[test]
fn what_sends_git_elsewhere_does_not_come_into_being_in_a_session() {
    if !have("git", &["git", "python3"]) {
        return;
    }
    let sandbox = Sandbox::with_policy(&policy(""));
    let project = sandbox.project();
    std::fs::remove_dir_all(project.join(".git")).unwrap();
    git(&project, &["init", "-q", "-b", "main"]);
    std::fs::remove_dir_all(project.join(".git/hooks")).unwrap();
    write(&project.join("file"), "one\n");
    git(&project, &["add", "file"]);
    git(&project, &["commit", "-qm", "one"]);
    script(
        &project.join("evil.sh"),
        "git init -q evil\nprintf '#!/bin/sh\\ntouch planted\\n' > evil/run; chmod +x evil/run\n\
         printf '[core]\\n\\tfsmonitor = %s/evil/run\\n' \"$PWD\" >> evil/.git/config\neval \"$1\"\n",
    );
    for (what, name) in [
        ("printf ../evil/.git > .git/commondir", "commondir"),
        ("ln -s ../evil .git/hooks", "hooks"),
        ("mv evil .git/hooks", "hooks"),
        (
            "mkdir -p .git/info; echo '* filter=x' > .git/info/attributes",
            "info/attributes",
        ),
        (
            "echo > .git/config.worktree; chmod 500 .git",
            "config.worktree",
        ),
        (
            "cp evil/.git/config .git/work; mv .git/work .git/commondir",
            "commondir",
        ),
        (
            "mv .git/info .git/old; mkdir -p .git/info; echo '* filter=x' > .git/info/attributes",
            "info/attributes",
        ),
        // Made when nobody waits for the command any more.
        (
            "(sleep 0.2; printf ../evil/.git > .git/commondir; sleep 0.3) & wait",
            "commondir",
        ),
    ] {
        let output = line(&sandbox, &format!("sh evil.sh \"{what}\""));
        let said = text(&output);
        let path = project.join(".git").join(name);
        assert!(path.symlink_metadata().is_err(), "{what}: {said}");
        assert!(said.contains("is protected"), "{what}: {said}");
        assert!(
            project
                .join(".git")
                .join(format!("{name}.refused"))
                .symlink_metadata()
                .is_ok(),
            "{what}: {said}"
        );
        let done = sandbox.events("command_complete");
        let degraded = done.last().unwrap()["enforced"]["degraded"].to_string();
        assert!(degraded.contains("fs.protect"), "{degraded}");
        git(&project, &["status", "--short"]);
        assert!(!project.join("planted").exists(), "{what}");
        std::fs::set_permissions(project.join(".git"), PermissionsExt::from_mode(0o755)).unwrap();
        for left in [
            "evil",
            ".git/hooks.refused",
            ".git/commondir.refused",
            ".git/config.worktree.refused",
            ".git/info/attributes.refused",
        ] {
            let left = project.join(left);
            let _ = std::fs::remove_dir_all(&left).or_else(|_| std::fs::remove_file(&left));
        }
    }
    // What git itself does all day leaves nothing to say.
    let said = works(
        &sandbox,
        "git add -A && git -c user.name=t -c user.email=t@example.com commit -qm two && git stash list && \
         git checkout -q -b side && git checkout -q main && git gc -q && git worktree add -q side-tree side",
    );
    assert!(!said.contains("is protected"), "{said}");
}

/// Were the mark of a work tree renamed away, everything around it would be the project of the next command.
#[test]
fn what_marks_a_project_stays_in_its_place_and_what_lies_around_stays_hidden() {
    if !have("marks", &["git", "python3"]) {
        return;
    }
    let sandbox = Sandbox::with_policy(
        "mode: enforce\nfs:\n  read: [\"/**\"]\n  write: [\"$PROJECT/**\"]\n  hide: [\"$PROJECT/**/.env\"]\n",
    );
    let project = sandbox.project();
    std::fs::remove_dir_all(project.join(".git")).unwrap();
    git(&project, &["init", "-q", "-b", "main"]);
    write(&project.join(".env"), "s3cret\n");
    for tree in ["sub", "other"] {
        std::fs::create_dir_all(project.join(tree)).unwrap();
    }
    write(&project.join("sub/.git"), "gitdir: ../.git/modules/sub\n");
    std::fs::create_dir(project.join("other/.hg")).unwrap();
    let inside = |tree: &str, line: &str| {
        let mut command = sandbox.substrate();
        let command = command.current_dir(project.join(tree)).args(["-c", line]);
        command.output().unwrap()
    };
    for (tree, mark) in [
        ("sub", ".git"),
        ("other", ".hg"),
        (".", "sub/.git"),
        (".", ".git"),
    ] {
        let moved = format!("python3 -c \"import os; os.rename('{mark}', 'away')\"");
        let output = inside(tree, &moved);
        assert!(!output.status.success(), "{tree}: {}", text(&output));
        assert!(project.join(tree).join(mark).exists(), "{tree}");
    }
    let output = inside("sub", "python3 -c \"open('../top','w')\"");
    assert!(!project.join("top").exists(), "{}", text(&output));
    // A work tree that somebody makes inside another moves the project, and uncovers nothing.
    std::fs::create_dir_all(project.join("new/.git")).unwrap();
    for tree in ["new", "sub", "."] {
        let output = inside(
            tree,
            "python3 -c \"print(open('../.env' if not __import__('os').path.exists('.env') else '.env').read())\"",
        );
        assert!(
            !text(&output).contains("s3cret"),
            "{tree}: {}",
            text(&output)
        );
    }
}

/// A world has /var/tmp to itself, but for a project that lies there.
#[test]
fn a_project_below_var_tmp_is_written_where_a_policy_names_both() {
    let sandbox = Sandbox::with_policy(
        "mode: enforce\nfs:\n  read: [\"/**\"]\n  write: [\"$PROJECT/**\", \"/var/tmp/**\", \"$HOME/go/pkg/**\"]\n",
    );
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::create_dir(place.path().join(".git")).unwrap();
    let mut command = sandbox.substrate();
    let line = "echo x > made && echo y > /var/tmp/substrate-test-of-its-own && ls /var/tmp";
    let output = command
        .current_dir(place.path())
        .args(["-c", line])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(place.path().join("made").exists(), "{}", text(&output));
    assert!(!Path::new("/var/tmp/substrate-test-of-its-own").exists());
    // A root below $HOME is made as a whole.
    let home = sandbox.home().parent().unwrap().join("go/pkg");
    assert!(
        home.is_dir() && !text(&output).contains("go/pkg"),
        "{}",
        text(&output)
    );
}

/// A result may hold what would run outside; only somebody outside takes it over.
#[test]
fn no_session_applies_what_would_run_outside_of_it() {
    let sandbox = Sandbox::with_policy(
        "mode: enforce\nworld: { enabled: 'off' }\nfs: { write: ['$PROJECT/**'], outside: allow }\n",
    );
    let ours = env!("CARGO_BIN_EXE_substrate");
    let make = |what: &str| format!("{ours} run --isolated -- sh -c '{what}'");
    let harmless = line(
        &sandbox,
        &format!("{}; {ours} world apply -", make("echo x > notes")),
    );
    assert!(
        sandbox.project().join("notes").exists(),
        "{}",
        text(&harmless)
    );
    for (what, flags) in [
        (
            "mkdir -p .github/workflows; echo x > .github/workflows/x.yml",
            "",
        ),
        ("echo x > plain", "--held"),
        ("echo x > plain", "--force"),
    ] {
        let output = line(
            &sandbox,
            &format!("{}; {ours} world apply - {flags}", make(what)),
        );
        assert!(!output.status.success(), "{what}: {}", text(&output));
        assert!(
            text(&output).contains("nothing was changed"),
            "{}",
            text(&output)
        );
    }
    assert!(!sandbox.project().join(".github").exists());
    let outside = sandbox.run(["world", "apply", "-", "--held"]);
    assert!(outside.status.success(), "{}", text(&outside));
}

/// What a shim hands over names a span; nobody gets lines into another one by that.
#[test]
fn no_line_of_the_trace_is_written_for_somebody_elses_span() {
    let sandbox = Sandbox::with_policy("mode: observe\n");
    sandbox.run(["-c", "echo the-first"]);
    let id = sandbox.events("command_complete")[0]["span_id"].clone();
    let forged = sandbox.run([
        "shim-exec",
        "--home",
        sandbox.home().to_str().unwrap(),
        "--target",
        "/usr/bin/true",
        "--span",
        id.as_str().unwrap(),
        "--",
        "true",
    ]);
    assert!(forged.status.success(), "{}", text(&forged));
    let of_it = |kind: &str| {
        sandbox
            .events(kind)
            .iter()
            .filter(|event| event["span_id"] == id)
            .count()
    };
    assert_eq!((of_it("command_start"), of_it("command_complete")), (1, 1));
    // It has one of its own, whose end is written once the tool is gone.
    let start = Instant::now();
    while sandbox.events("command_complete").len() < 2 {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_for_port(port: u16) -> TcpStream {
    let start = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(
                start.elapsed() < Duration::from_secs(60),
                "port {port}: {error}"
            ),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_dev_server_is_reached_through_a_published_port() {
    if !have("dev server", &["python3"]) {
        return;
    }
    let port = free_port();
    let sandbox = Sandbox::with_policy(&policy(&format!("world:\n  publish: [{port}]\n")));
    write(&sandbox.project().join("page.txt"), "from inside\n");
    let server = sandbox
        .substrate()
        .args([
            "-c",
            &format!("python3 -m http.server --bind 127.0.0.1 {port}"),
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _server = Helper(server);
    let start = Instant::now();
    loop {
        let mut answer = String::new();
        let mut stream = wait_for_port(port);
        let _ = stream.write_all(b"GET /page.txt HTTP/1.0\r\n\r\n");
        let _ = stream.read_to_string(&mut answer);
        if answer.contains("from inside") {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{answer}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A program that nobody has described is contained by the world that the session has: its servers and its files
/// in `/tmp` are there for the next line.
#[test]
fn an_unknown_program_lives_on_in_the_world_of_the_session() {
    let sandbox = Sandbox::with_policy(&policy(
        "effects: { isolated: [\"exec:unknown\"] }\nworld: { isolated: session }\n",
    ));
    // A link in the project stands for what it points to, so this is none of the project's own programs.
    std::os::unix::fs::symlink("/bin/bash", sandbox.project().join("frobd")).unwrap();
    let work = sandbox.project().join("work");
    write(
        &work,
        "./frobd -c 'echo $$ > /tmp/frobd; exec sleep 60' &\n\
         for i in $(seq 50); do test -s /tmp/frobd && break; sleep 0.1; done\n\
         kill -0 $(cat /tmp/frobd) && echo alive\n\
         kill $(cat /tmp/frobd)\n",
    );
    let output = sandbox
        .substrate()
        .stdin(std::fs::File::open(work).unwrap())
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"alive\n", "{}", text(&output));
    assert!(!text(&output).contains("held back"), "{}", text(&output));
    let done = sandbox.events("command_complete");
    assert!(
        done.iter().all(|span| span["place"] == "session"),
        "{done:#?}"
    );
    let starts = sandbox.events("command_start");
    assert_eq!(starts[0]["verdict"], "isolate", "{starts:#?}");
}

#[test]
fn an_ssh_agent_is_let_in_by_name() {
    if !have("ssh-agent", &["ssh-agent", "ssh-add"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("agent");
    let agent = Command::new("ssh-agent")
        .args(["-D", "-a"])
        .arg(&socket)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _agent = Helper(agent);
    let start = Instant::now();
    while !socket.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "no agent");
        std::thread::sleep(Duration::from_millis(20));
    }
    let ask = format!("SSH_AUTH_SOCK={} ssh-add -l", socket.display());
    let world = format!("world:\n  sockets: [\"{}\"]\n", socket.display());
    let open = Sandbox::with_policy(&policy(&world));
    let said = line(&open, &ask);
    // 1: the agent answered that it has no keys; 2: there is no agent.
    assert_eq!(said.status.code(), Some(1), "{}", text(&said));
    let closed = Sandbox::with_policy(&policy(""));
    assert_eq!(line(&closed, &ask).status.code(), Some(2));
}

#[test]
fn what_cannot_work_names_the_switch() {
    let sandbox = Sandbox::with_policy(&policy(""));
    for (program, command, switch) in [
        (
            "gdb",
            "gdb -q -batch -ex run /bin/true",
            "world.allow: [ptrace]",
        ),
        ("strace", "strace -f true", "world.allow: [ptrace]"),
        ("bwrap", "bwrap --ro-bind / / true", "world.enabled: off"),
        ("unshare", "unshare -Ur true", "world.allow: [userns]"),
    ] {
        if !installed(program) {
            skip("switches", &format!("{program} is not installed"));
            continue;
        }
        let said = text(&line(&sandbox, command));
        assert!(said.contains(switch), "{command}: {said}");
    }
    if installed("strace") {
        let open = Sandbox::with_policy(&policy("world:\n  allow: [ptrace]\n"));
        let said = line(&open, "strace -f -o trace.txt true");
        assert!(said.status.success(), "{}", text(&said));
        let done = open.events("command_complete");
        let degraded = done.last().unwrap()["enforced"].to_string();
        assert!(degraded.contains("ptrace"), "{degraded}");
    }
}

#[test]
fn git_says_why_its_configuration_stays() {
    if !have("git", &["git"]) {
        return;
    }
    let sandbox = Sandbox::with_policy(&policy(""));
    git(&sandbox.project(), &["init", "-q"]);
    for text_of_line in ["git config user.name x", "git remote add o /nowhere"] {
        let said = text(&line(&sandbox, text_of_line));
        assert!(said.contains("`fs.protect` of policy 'test'"), "{said}");
    }
    let program = text(&line(&sandbox, "git config core.pager evil"));
    assert!(
        program.contains("is protected against changes"),
        "{program}"
    );
    // The way that is named works.
    works(
        &sandbox,
        "git -c user.name=x -c user.email=x@example.org commit -q --allow-empty -m one",
    );
}
