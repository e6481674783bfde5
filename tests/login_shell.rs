//! Substrate as the login shell, on a machine of its own: every way in, nothing extra on the wire, and a
//! prompt whatever is broken.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use crate::login_support::{ANN, Machine, PASSWORD, SHELL, text_of};
use crate::person::Person;

/// What a login shell tells about itself: which start-up files it has read, and where it is.
const ABOUT: &str = "echo \"[$PROFILE_READ] [$RC_READ] $(pwd) $HOME $USER\"; shopt -q login_shell && echo login; case $- in *i*) echo interactive;; esac; echo to-stderr >&2; exit 5";

fn with_startup_files(machine: &Machine) {
    machine.file_of("home/ann/.bash_profile", ANN, "PROFILE_READ=yes\n");
    machine.file_of("home/ann/.bashrc", ANN, "RC_READ=yes\n");
}

/// Says something at a prompt and hears the answer, then leaves.
fn is_alive(person: &mut Person) {
    person.types("echo alive-$((40+2))\r");
    person.sees("alive-42");
    person.types("exit\r");
}

#[test]
fn commands_come_in_as_they_come_into_bash() {
    let Some(machine) = Machine::new("commands_come_in_as_they_come_into_bash", &[]) else {
        return;
    };
    with_startup_files(&machine);
    let ways = [
        format!("su - ann -c '{ABOUT}'"),
        format!("su ann -c 'cd; {ABOUT}'"),
        format!("su ann -c 'cd; exec $SHELL -l -c \"$0\"' '{ABOUT}'"),
        format!("su ann -c 'cd; exec $SHELL --login -c \"$0\"' '{ABOUT}'"),
        format!("su ann -c 'cd; exec $SHELL -i -c \"$0\"' '{ABOUT}'"),
        format!("su ann -c 'cd; exec $SHELL --norc -i -c \"$0\"' '{ABOUT}'"),
        format!("su ann -c 'cd; exec $SHELL --noprofile -l -c \"$0\"' '{ABOUT}'"),
        format!("su ann -c 'cd; echo \"$0\" | $SHELL -l' '{ABOUT}'"),
        format!("su ann -c 'cd; echo \"$0\" > s; exec $SHELL s' '{ABOUT}'"),
    ];
    for way in ways {
        let told = ["/bin/bash", SHELL].map(|shell| {
            machine.set_shell("ann", shell);
            let output = machine.run(&way);
            // Without a terminal an interactive bash complains about itself.
            let quiet = |text: String| {
                text.lines()
                    .filter(|line| !line.starts_with("bash: ") && !line.starts_with("substrate: "))
                    .collect::<Vec<_>>()
                    .join("\n")
            };
            (output.status.code(), quiet(text_of(&output)))
        });
        assert!(told[0].1.contains("/home/ann"), "{way}: {told:?}");
        assert_eq!(told[0], told[1], "{way}");
    }
}

#[test]
fn a_person_gets_a_prompt_by_su_and_login() {
    let Some(machine) = Machine::new("a_person_gets_a_prompt_by_su_and_login", &["login"]) else {
        return;
    };
    with_startup_files(&machine);
    for (program, arguments) in [
        ("su", &["-", "ann"][..]),
        ("login", &["-f", "ann"]),
        ("su", &["ann", "-s", SHELL]),
        (
            "setpriv",
            &[
                "--reuid=54001",
                "--regid=54001",
                "--clear-groups",
                "env",
                "HOME=/home/ann",
                SHELL,
                "-l",
                "-i",
            ],
        ),
    ] {
        let mut person = machine.person("", program, arguments);
        person.types("echo \"p[$PROFILE_READ] r[$RC_READ] $SHELL\" alive-$((40+2))\r");
        person.sees("alive-42");
        let text = person.text();
        let login = arguments.contains(&"-") || program != "su";
        let files = if login { "p[yes] r[]" } else { "p[] r[yes]" };
        assert!(text.contains(files), "{program} {arguments:?}: {text}");
        assert!(!text.contains("warning"), "{program}: {text}");
        person.types("shopt -q login_shell; echo kind-$?-; exit\r");
        person.sees(if login { "kind-0-" } else { "kind-1-" });
        person.end();
    }
    // What was typed is in the user's own trace.
    let trace = fs::read_to_string(machine.path("home/ann/.substrate/trace.jsonl")).unwrap();
    assert!(trace.contains("shopt -q login_shell"), "{trace}");
}

/// A server and its client, both with everything of their own.
const SSH: &str = r#"set -e
mkdir -p /run/sshd /run/k /home/ann/.ssh
ssh-keygen -q -t ed25519 -N '' -f /run/k/host
ssh-keygen -q -t ed25519 -N '' -f /run/k/id
cp /run/k/id.pub /home/ann/.ssh/authorized_keys
chmod 700 /home/ann/.ssh && chown -R 54001:54001 /home/ann/.ssh
printf '%s\n' 'Port 2222' 'ListenAddress 127.0.0.1' 'HostKey /run/k/host' 'PidFile none' 'UsePAM yes' \
  'PasswordAuthentication no' 'PrintMotd no' 'PrintLastLog no' 'Subsystem sftp /usr/lib/openssh/sftp-server' > /run/k/sshd_config
printf '%s\n' 'Host m' 'HostName 127.0.0.1' 'Port 2222' 'User ann' 'IdentityFile /run/k/id' \
  'StrictHostKeyChecking no' 'UserKnownHostsFile /dev/null' 'LogLevel ERROR' > /run/k/config
/usr/sbin/sshd -f /run/k/sshd_config -E /run/k/log
# It goes into the background before it listens.
for try in $(seq 100); do [ -n "$(ssh-keyscan -p 2222 127.0.0.1 2>/dev/null)" ] && break; sleep 0.1; done
S="ssh -F /run/k/config m"
export GIT_SSH_COMMAND="ssh -F /run/k/config" GIT_CONFIG_GLOBAL=/dev/null
head -c 3000000 /dev/urandom > /run/k/blob
"#;

#[test]
fn nothing_is_added_over_ssh() {
    let programs = ["sshd", "ssh", "scp", "sftp", "rsync", "git"];
    let Some(machine) = Machine::new("nothing_is_added_over_ssh", &programs) else {
        return;
    };
    with_startup_files(&machine);
    // Each way prints only what it must; `cmp` is silent when all came through.
    let ways = [
        ("a command", "$S 'echo out; echo err >&2; exit 3'"),
        ("a plain command", "$S true"),
        (
            "start-up files",
            "$S 'echo $RC_READ$PROFILE_READ'; $S env | grep -c ^SSH_CLIENT=",
        ),
        (
            "not found",
            "$S /no/such/command 2>&1 | sed 's/.*: No such/No such/'",
        ),
        (
            "input",
            "$S 'cat > a' < /run/k/blob; cmp /run/k/blob /home/ann/a",
        ),
        ("output", "$S 'cat a' > /run/k/b; cmp /run/k/blob /run/k/b"),
        (
            "scp",
            "scp -q -F /run/k/config /run/k/blob m:c && scp -q -F /run/k/config m:c /run/k/c; cmp /run/k/blob /run/k/c",
        ),
        (
            "scp as it was",
            "scp -q -O -F /run/k/config /run/k/blob m:d && scp -q -O -F /run/k/config m:d /run/k/d; cmp /run/k/blob /run/k/d",
        ),
        (
            "sftp",
            "echo 'put /run/k/blob e' | sftp -q -b - -F /run/k/config m >/dev/null; cmp /run/k/blob /home/ann/e",
        ),
        (
            "rsync",
            "rsync -a -e 'ssh -F /run/k/config' /run/k/blob m:f; rsync -a -e 'ssh -F /run/k/config' m:f /run/k/f; cmp /run/k/blob /run/k/f",
        ),
        (
            "git",
            "$S 'git init -q --bare g.git' && git -c init.defaultBranch=main init -q /run/k/w && cd /run/k/w && git -c user.name=x -c user.email=x@example.com commit -q --allow-empty -m one && git push -q m:g.git HEAD:main && git clone -q m:g.git /run/k/w2 -b main && git -C /run/k/w2 log --format=%s",
        ),
    ];
    let mut script = SSH.to_owned();
    for (name, way) in ways {
        script.push_str(&format!(
            "echo '== {name}'; ({way}) || echo \"status $?\"\n"
        ));
    }
    let mut told = Vec::new();
    for shell in ["/bin/bash", SHELL] {
        machine.set_shell("ann", shell);
        for name in ["home/ann/g.git", "run/k"] {
            let _ = fs::remove_dir_all(machine.path(name));
        }
        let output = machine.run(&script);
        told.push((
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ));
    }
    assert!(told[0].0.contains("== git\none\n"), "{told:?}");
    assert_eq!(told[0].0, told[1].0, "standard output");
    assert_eq!(told[0].1, told[1].1, "standard error");
}

#[test]
fn a_prompt_over_ssh() {
    let Some(machine) = Machine::new("a_prompt_over_ssh", &["sshd"]) else {
        return;
    };
    with_startup_files(&machine);
    let mut command = machine.command(SSH, "ssh", &["-F", "/run/k/config", "-t", "m"]);
    command.env("OWN_PIDS", "1").env("TERM", "xterm");
    let mut person = Person::start(command);
    person.types("echo \"p[$PROFILE_READ]\" alive-$((40+2)) $SSH_TTY\r");
    person.sees("alive-42 /dev/pts/");
    assert!(person.text().contains("p[yes]"), "{}", person.text());
    // Ctrl-C, a job, and out.
    person.types("echo started-$((1+1)); sleep 600\r");
    person.sees("started-2");
    person.types("\x03");
    person.types("echo after-$((1+1))\r");
    person.sees("after-2");
    person.types("exit 9\r");
    assert_eq!(person.end().0, 9);
}

/// Kills the client once a line runs, and waits until nothing of the user's runs any more.
const CUT: &str = r#"exec 3<&0
ssh -F /run/k/config -t m <&3 & client=$!
until [ -e /home/ann/running ]; do sleep 0.1; done
sleep 0.5
kill -9 $client
n=0; while pgrep -u ann > /run/left && [ $n -lt 150 ]; do sleep 0.1; n=$((n+1)); done
echo "cut, left: $(cat /run/left | tr '\n' ' ')."
ps -u ann -o args= || true
"#;

#[test]
fn a_connection_that_is_cut_reaches_the_jobs_and_the_trace() {
    for enforcing in [false, true] {
        let name = "a_connection_that_is_cut_reaches_the_jobs_and_the_trace";
        let Some(machine) = Machine::new(name, &["sshd", "pgrep"]) else {
            return;
        };
        with_startup_files(&machine);
        if enforcing {
            let policy = "id: held\nname: Held\nmode: enforce\nfs:\n  read: [\"/**\"]\n  \
                          write: [\"/home/ann/**\"]\n";
            machine.file_of("home/ann/.substrate/policies/held.yaml", ANN, policy);
            machine.file_of("home/ann/.substrate/active", ANN, "held\n");
        }
        let mut command = machine.command(SSH, "sh", &["-c", CUT]);
        command.env("OWN_PIDS", "1").env("TERM", "xterm");
        let mut person = Person::start(command);
        person.types("echo there-$((40+2))\r");
        person.sees("there-42");
        person.types(
            "(trap 'echo job > told; exit' HUP; touch ready; while :; do sleep 0.1; done) &\r",
        );
        person.types("until [ -e ready ]; do sleep 0.1; done; touch running; sleep 600\r");
        let (_, shown) = person.end();
        assert!(shown.contains("cut, left: ."), "{shown}");
        let told = fs::read_to_string(machine.path("home/ann/told"));
        assert_eq!(told.unwrap_or_default(), "job\n", "{shown}");
        let trace = fs::read_to_string(machine.path("home/ann/.substrate/trace.jsonl")).unwrap();
        let last = |kind: &str| {
            let wanted = format!("\"event_type\":\"{kind}\"");
            let mut lines = trace.lines().filter(|line| line.contains(&wanted));
            lines.next_back().unwrap_or_default().to_owned()
        };
        // The line that ran has an end, and so has the world.
        assert!(last("command_start").contains("sleep 600"), "{trace}");
        assert!(last("command_complete").contains("sleep 600"), "{trace}");
        assert_eq!(
            last("world_event").contains("\"action\":\"ended\""),
            enforcing,
            "{trace}"
        );
        assert!(trace.ends_with('\n'));
    }
}

#[test]
fn cron_runs_its_jobs_by_it() {
    let Some(machine) = Machine::new("cron_runs_its_jobs_by_it", &["cron"]) else {
        return;
    };
    let table = format!(
        "SHELL={SHELL}\n@reboot ann echo \"from-$0 $HOME\" > /home/ann/told 2>&1; ls /nowhere 2>> /home/ann/told; touch /home/ann/done\n"
    );
    fs::write(machine.path("etc/cron.d/try"), table).unwrap();
    let output = machine.run("mkdir -p /var/spool/cron/crontabs; cron -f & n=0; until [ -e /home/ann/done ] || [ $n -gt 300 ]; do sleep 0.2; n=$((n+1)); done; cat /home/ann/told");
    let text = text_of(&output);
    assert!(text.contains("from-bash /home/ann"), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
    let trace = fs::read_to_string(machine.path("home/ann/.substrate/trace.jsonl")).unwrap();
    assert!(trace.contains("/nowhere"), "{trace}");
}

#[test]
fn tmux_and_editors_start_it() {
    let Some(machine) = Machine::new("tmux_and_editors_start_it", &["tmux", "script"]) else {
        return;
    };
    with_startup_files(&machine);
    let script = format!(
        r#"su - ann -s /bin/sh -c 'export SHELL={SHELL} TERM=xterm
tmux -L try -f /dev/null new-session -d -x 120 -y 30
tmux -L try send-keys "echo \"p[\$PROFILE_READ]\" alive-\$((40+2)) > ~/pane" Enter
n=0; until [ -s ~/pane ] || [ $n -gt 300 ]; do sleep 0.2; n=$((n+1)); done
cat ~/pane; tmux -L try kill-server
script -qec "echo by-script-\$((1+1))" /dev/null'"#
    );
    let text = text_of(&machine.run(&script));
    assert!(text.contains("p[yes] alive-42"), "{text}");
    assert!(text.contains("by-script-2"), "{text}");
    // Editors run commands by `$SHELL -c`, and their terminals by `$SHELL`, both below their own pty.
    let editor = ["vim", "vi"]
        .into_iter()
        .find(|name| std::path::Path::new("/usr/bin").join(name).exists());
    match editor {
        Some(editor) => {
            let text = text_of(&machine.run(&format!(
                "su - ann -s /bin/sh -c 'export SHELL={SHELL} TERM=xterm; {editor} -es -u NONE -c \"!echo by-editor-\\$((1+1)) > ~/edited\" -c q; cat ~/edited'"
            )));
            assert!(text.contains("by-editor-2"), "{text}");
        }
        None => crate::common::skip("tmux_and_editors_start_it", "there is no vi"),
    }
}

/// A way to break a machine, what is said about it, and how somebody logs in.
struct Broken {
    name: &'static str,
    /// Root's script that breaks it.
    script: &'static str,
    /// What the person is told; nothing when all goes on as before.
    told: &'static str,
    /// The terminal's type.
    terminal: Option<&'static str>,
}

const BROKEN: [Broken; 15] = [
    Broken {
        name: "no home",
        script: "rm -rf /home/ann",
        told: "not recorded",
        terminal: Some("xterm"),
    },
    Broken {
        name: "a policy with mistakes",
        script: "mkdir -p /home/ann/.substrate/policies; echo mine > /home/ann/.substrate/active; echo 'id: mine\nmode: [' > /home/ann/.substrate/policies/mine.yaml; chown -R ann: /home/ann/.substrate; chmod 700 /home/ann/.substrate",
        told: "the shipped policy `default` serves",
        terminal: Some("xterm"),
    },
    Broken {
        name: "a policy that is not there",
        script: "mkdir -p /home/ann/.substrate; echo gone > /home/ann/.substrate/active; chown -R ann: /home/ann/.substrate",
        told: "the shipped policy `default` serves",
        terminal: Some("xterm"),
    },
    Broken {
        name: "a shipped name with mistakes",
        script: "mkdir -p /home/ann/.substrate/policies; echo '{' > /home/ann/.substrate/policies/default.yaml; chown -R ann: /home/ann/.substrate",
        told: "the shipped policy `default` serves",
        terminal: Some("xterm"),
    },
    Broken {
        name: "a tool model with mistakes",
        script: "mkdir -p /home/ann/.substrate/tools; echo '{' > /home/ann/.substrate/tools/x.yaml; chown -R ann: /home/ann/.substrate",
        told: "the shipped policy `default` serves",
        terminal: Some("xterm"),
    },
    Broken {
        name: "a home that cannot be read",
        script: "mkdir -p /home/ann/.substrate; chmod 000 /home/ann/.substrate",
        told: "substrate",
        terminal: Some("xterm"),
    },
    Broken {
        name: "a read-only disk",
        script: "mount --bind /home/ann /home/ann; mount -o remount,bind,ro /home/ann",
        told: "not recorded",
        terminal: Some("xterm"),
    },
    Broken {
        name: "a full disk",
        script: "mount -t tmpfs -o size=64k,uid=54001,mode=755 none /home/ann; dd if=/dev/zero of=/home/ann/fill bs=1k 2>/dev/null || true",
        told: "not recorded",
        terminal: Some("xterm"),
    },
    Broken {
        name: "an unwritable trace",
        script: "mkdir -p /home/ann/.substrate/trace.jsonl; chown -R ann: /home/ann/.substrate; chmod 700 /home/ann/.substrate",
        told: "not recorded",
        terminal: Some("xterm"),
    },
    Broken {
        name: "no bash",
        script: "mkdir /run/usr; mount -t tmpfs none /run/usr; mkdir /run/usr/u /run/usr/w; mount -t overlay -o lowerdir=/usr/bin,upperdir=/run/usr/u,workdir=/run/usr/w none /usr/bin; rm /usr/bin/bash",
        told: "there is no bash",
        terminal: Some("xterm"),
    },
    Broken {
        name: "a bash that does not start",
        script: "mount --bind /bin/false /usr/bin/bash",
        told: "a plain sh serves",
        terminal: Some("xterm"),
    },
    Broken {
        name: "start-up files that end the shell",
        script: "echo 'exit 1' > /home/ann/.bash_profile",
        told: "starts without them",
        terminal: Some("xterm"),
    },
    Broken {
        name: "no terminal descriptions",
        script: "for d in /usr/share/terminfo /lib/terminfo /etc/terminfo; do [ ! -d $d ] || mount -t tmpfs none $d; done",
        told: "",
        terminal: Some("no-such-terminal"),
    },
    Broken {
        name: "no terminal type",
        script: "",
        told: "",
        terminal: None,
    },
    Broken {
        name: "a floor with mistakes",
        script: "mkdir -p /etc/substrate; echo '{' > /etc/substrate/policy.yaml",
        told: "until root repairs it",
        terminal: Some("xterm"),
    },
];

#[test]
fn nobody_is_locked_out() {
    for broken in &BROKEN {
        let Some(machine) = Machine::new("nobody_is_locked_out", &[]) else {
            return;
        };
        let mut command = machine.command(broken.script, "su", &["-", "ann"]);
        if let Some(terminal) = broken.terminal {
            command.env("TERM", terminal);
        }
        let mut person = Person::start(command);
        if broken.name == "a floor with mistakes" {
            person.sees(broken.told);
            person.types("true\r");
            person.sees("Root can repair it");
            person.types("exit\r");
            person.end();
            // Root has a shell to repair it with.
            machine.set_shell("root", SHELL);
            let mut root = machine.person("", "su", &["-"]);
            root.sees("does not hold for root");
            root.types("rm /etc/substrate/policy.yaml; echo alive-$((40+2))\r");
            root.sees("alive-42");
            root.types("exit\r");
            root.end();
            assert!(!machine.path("etc/substrate/policy.yaml").exists());
            continue;
        }
        is_alive(&mut person);
        let (_, text) = person.end();
        assert!(text.contains(broken.told), "{}: {text}", broken.name);
        if broken.told.is_empty() {
            assert!(!text.contains("warning"), "{}: {text}", broken.name);
        }
    }
}

#[test]
fn nobody_is_locked_out_without_a_directory_a_name_or_descriptors() {
    let Some(machine) = Machine::new(
        "nobody_is_locked_out_without_a_directory_a_name_or_descriptors",
        &["setpriv", "prlimit"],
    ) else {
        return;
    };
    let as_ann = ["--reuid=54001", "--regid=54001", "--clear-groups"];
    // The directory is gone under his feet.
    let gone = format!(
        "mkdir /home/ann/d; chmod 777 /home/ann/d; cd /home/ann/d; rmdir /home/ann/d; exec setpriv {} {SHELL} -i",
        as_ann.join(" ")
    );
    let mut person = machine.person("", "/bin/sh", &["-c", &gone]);
    person.sees("cannot tell the working directory");
    is_alive(&mut person);
    person.end();
    // Nobody knows him.
    let mut person = machine.person(
        "",
        "setpriv",
        &["--reuid=54999", "--clear-groups", SHELL, "-i"],
    );
    person.sees("no home directory for user 54999");
    is_alive(&mut person);
    person.end();
    // Next to no descriptors: a plain shell, which the policy permits and the trace knows.
    let mut arguments = vec!["--nofile=12:12", "setpriv"];
    arguments.extend(as_ann);
    arguments.extend([SHELL, "-l"]);
    let mut person = machine.person("", "prlimit", &arguments);
    is_alive(&mut person);
    person.end();
}

#[test]
fn a_repaired_policy_counts_from_the_next_line() {
    let Some(machine) = Machine::new("a_repaired_policy_counts_from_the_next_line", &[]) else {
        return;
    };
    machine.file_of("home/ann/.substrate/active", ANN, "mine\n");
    machine.file_of(
        "home/ann/.substrate/policies/mine.yaml",
        ANN,
        "id: mine\nmode: [\n",
    );
    // Where nobody is there to be told, nothing runs by a policy that is not known.
    let output = machine.run("su - ann -c 'touch /home/ann/made'");
    assert_eq!(output.status.code(), Some(125), "{}", text_of(&output));
    assert!(
        text_of(&output).contains("mine.yaml"),
        "{}",
        text_of(&output)
    );
    assert!(!machine.path("home/ann/made").exists());
    let mut person = machine.person("", "su", &["-", "ann"]);
    person.sees("the shipped policy `default` serves");
    machine.file_of(
        "home/ann/.substrate/policies/mine.yaml",
        ANN,
        "id: mine\nname: Mine\nmode: enforce\nworld: { enabled: off }\nfs: { outside: allow }\ncommands: { denied: [\"date *\"] }\n",
    );
    person.types("date\r");
    person.sees("denied by policy 'mine'");
    // A mistake later keeps what was good, and a one-shot uses it too.
    machine.file_of(
        "home/ann/.substrate/policies/mine.yaml",
        ANN,
        "id: mine\nmode: [\n",
    );
    person.types("date; echo next-$((1+1))\r");
    person.sees("denied by policy 'mine'");
    person.types("exit\r");
    let (_, text) = person.end();
    assert!(text.contains("last good version"), "{text}");
    assert!(!text.contains("next-2"), "{text}");
    let output = machine.run("su - ann -c date");
    assert_eq!(output.status.code(), Some(126), "{}", text_of(&output));
}

#[test]
fn the_floor_appears_changes_and_goes_under_a_running_shell() {
    let test = "the_floor_appears_changes_and_goes_under_a_running_shell";
    let Some(machine) = Machine::new(test, &[]) else {
        return;
    };
    let floor = |denied: &str| {
        fs::create_dir_all(machine.path("etc/substrate")).unwrap();
        let aside = machine.path("etc/substrate/.new");
        fs::write(&aside, format!("id: floor\nname: Floor\nmode: enforce\nworld: {{ enabled: off }}\nfs: {{ outside: allow }}\ncommands: {{ denied: [\"{denied}\"] }}\n")).unwrap();
        fs::rename(&aside, machine.path("etc/substrate/policy.yaml")).unwrap();
    };
    let mut person = machine.person("", "su", &["-", "ann"]);
    let rule = "/etc/substrate/policy.yaml:6";
    person.types("date; echo first-$((1+1))\r");
    person.sees("first-2");
    floor("date *");
    person.types("date\r");
    person.sees(rule);
    floor("uname *");
    person.types("date; echo second-$((1+1))\r");
    person.sees("second-2");
    person.types("uname\r");
    person.sees(rule);
    // A mistake keeps the floor that was good.
    fs::write(
        machine.path("etc/substrate/policy.yaml"),
        "id: floor\nmode: [\n",
    )
    .unwrap();
    person.types("uname\r");
    person.sees(rule);
    fs::remove_file(machine.path("etc/substrate/policy.yaml")).unwrap();
    person.types("uname; echo end-$((1+1))\r");
    person.sees("end-2");
    // One that appears with mistakes, and none was ever good: what it asks for is not known.
    fs::remove_dir_all(machine.path("home/ann/.substrate/cache")).unwrap();
    fs::write(
        machine.path("etc/substrate/policy.yaml"),
        "id: other\nmode: [[\n",
    )
    .unwrap();
    person.types("uname\r");
    person.sees("Root can repair it");
    person.types("cd /\r");
    fs::remove_file(machine.path("etc/substrate/policy.yaml")).unwrap();
    person.types("pwd; echo free-$((1+1))\r");
    person.sees("free-2");
    person.types("exit\r");
    person.end();
}

#[test]
fn init_makes_it_the_login_shell_and_uninstall_brings_the_old_one_back() {
    let test = "init_makes_it_the_login_shell_and_uninstall_brings_the_old_one_back";
    let Some(machine) = Machine::new(test, &["chsh"]) else {
        return;
    };
    let shells = || fs::read_to_string(machine.path("etc/shells")).unwrap();
    let unlist = || {
        let text = shells().replace(&format!("{SHELL}\n"), "");
        fs::write(machine.path("etc/shells"), text).unwrap();
    };
    machine.set_shell("ann", "/bin/bash");
    machine.set_shell("ben", "/bin/bash");
    unlist();
    let before = shells();

    // Somebody who is not root is told what root has to do.
    let output = machine.run(&format!("su ann -c '{SHELL} init --login-shell --yes'"));
    assert_eq!(output.status.code(), Some(1));
    let text = text_of(&output);
    assert!(
        text.contains(&format!("echo {SHELL} >> /etc/shells")),
        "{text}"
    );

    // Root: shown, then done, then undone to the byte.
    machine.set_shell("root", "/bin/bash");
    let text = text_of(&machine.run(&format!("{SHELL} init --login-shell --dry-run")));
    assert!(
        text.contains(
            "would change the login shell of root from /bin/bash to /usr/local/bin/substrate"
        ),
        "{text}"
    );
    assert_eq!(
        (machine.shell_of("root"), shells()),
        ("/bin/bash".to_owned(), before.clone())
    );
    let as_root = |arguments: &str| {
        machine.run(&format!(
            "SUBSTRATE_HOME=/run/root-home {SHELL} {arguments}"
        ))
    };
    let output = as_root("init --login-shell --yes");
    assert!(output.status.success(), "{}", text_of(&output));
    assert_eq!(machine.shell_of("root"), SHELL);
    assert_eq!(shells(), format!("{before}{SHELL}\n"));
    let mode = fs::metadata(machine.path("etc/shells"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o644);
    let output = as_root("uninstall --yes --purge");
    assert!(output.status.success(), "{}", text_of(&output));
    assert_eq!(
        (machine.shell_of("root"), shells()),
        ("/bin/bash".to_owned(), before)
    );
    let left = text_of(&machine.run("find /run/root-home 2>/dev/null"));
    assert_eq!(left, "", "{}", text_of(&output));

    // A person with a password, at a terminal.
    machine.append("etc/shells", &format!("{SHELL}\n"));
    let secret = format!("echo ann:{PASSWORD} | chpasswd");
    let mut person = machine.person(
        &secret,
        "su",
        &[
            "--session-command",
            &format!("{SHELL} init --login-shell"),
            "-",
            "ann",
        ],
    );
    person.sees("change the login shell of ann from /bin/bash to /usr/local/bin/substrate");
    person.sees("Make it your login shell?");
    person.types("\r");
    person.end();
    assert_eq!(machine.shell_of("ann"), "/bin/bash", "Enter alone is no");
    let mut person = machine.person(
        "",
        "su",
        &[
            "--session-command",
            &format!("{SHELL} init --login-shell"),
            "-",
            "ann",
        ],
    );
    person.sees("Make it your login shell?");
    person.types("y\r");
    person.sees("assword");
    person.types(&format!("{PASSWORD}\r"));
    person.sees("the login shell of ann is /usr/local/bin/substrate");
    assert_eq!(person.end().0, 0);
    assert_eq!(machine.shell_of("ann"), SHELL);
    is_alive(&mut machine.person("", "su", &["-", "ann"]));

    // A wrong password changes nothing and is said; the right one brings the old shell back.
    let leave = format!("{SHELL} uninstall");
    for (password, status, shell) in [("wrong", 1, SHELL), (PASSWORD, 0, "/bin/bash")] {
        let mut person = machine.person(
            "",
            "su",
            &["-s", "/bin/sh", "--session-command", &leave, "ann"],
        );
        person.sees("back to /bin/bash");
        person.sees("Go on?");
        person.types("y\r");
        person.sees("assword");
        person.types(&format!("{password}\r"));
        let (ended, text) = person.end();
        assert_eq!(ended, status, "{text}");
        assert_eq!(machine.shell_of("ann"), shell, "{text}");
    }
    assert!(shells().contains(SHELL), "root listed it, so it stays");

    // Somebody else can replace the program: then it is no login shell.
    let loose = "cp /usr/local/bin/substrate /run/loose; chmod 777 /run/loose";
    let mut command = machine.command(loose, "/run/loose", &["init", "--login-shell", "--dry-run"]);
    let text = text_of(&command.output().unwrap());
    assert!(text.contains("others can write to /run/loose"), "{text}");
}

#[test]
fn two_users_with_two_shells_each_keep_out_of_each_others_way() {
    let test = "two_users_with_two_shells_each_keep_out_of_each_others_way";
    let Some(machine) = Machine::new(test, &[]) else {
        return;
    };
    const POLICY: &str = "id: mine\nname: Mine\nmode: enforce\nworld: { enabled: off }\nfs: { outside: allow }\nnet: { unlisted: allow }\ncommands: { ask: [\"touch *\"] }\n";
    for (name, id) in [("ann", ANN), ("ben", ANN + 1)] {
        machine.file_of(&format!("home/{name}/.substrate/active"), id, "mine\n");
        machine.file_of(
            &format!("home/{name}/.substrate/policies/mine.yaml"),
            id,
            POLICY,
        );
        let home = machine.path(&format!("home/{name}/.substrate"));
        fs::set_permissions(home, fs::Permissions::from_mode(0o700)).unwrap();
        // A profile that the other one put above everybody's head has no say.
        fs::write(machine.path("home/.substrate-profile"), "locked\n").unwrap();
        chown(machine.path("home/.substrate-profile"), Some(id), Some(id)).unwrap();
    }
    chown(
        machine.path("home/.substrate-profile"),
        Some(60_000),
        Some(60_000),
    )
    .unwrap();
    let mut shells: Vec<(String, Person)> = ["ann", "ann", "ben", "ben"]
        .iter()
        .enumerate()
        .map(|(number, name)| {
            (
                format!("{name}{number}"),
                machine.person("", "su", &["-", name]),
            )
        })
        .collect();
    for (_, person) in &mut shells {
        person.types("echo up-$((1+1))\r");
    }
    for (_, person) in &mut shells {
        person.sees("up-2");
    }
    // All of them are asked at once, and each answers for always.
    for (name, person) in &mut shells {
        person.types(&format!("touch {name}; echo end-$((1+1))\r"));
    }
    for (_, person) in &mut shells {
        person.sees("> Deny");
    }
    for (_, person) in &mut shells {
        person.types("\x1b[A\r");
    }
    for (_, person) in &mut shells {
        person.sees("Remember commands like");
    }
    for (_, person) in &mut shells {
        person.types("\r");
    }
    for (_, person) in &mut shells {
        person.sees("end-2");
    }
    // Nothing is lost: each user has his own two grants, and no others.
    for (name, own) in [
        ("ann", ["touch ann0", "touch ann1"]),
        ("ben", ["touch ben2", "touch ben3"]),
    ] {
        let output = machine.run(&format!(
            "su - {name} -s /bin/sh -c '{SHELL} approvals list --json'"
        ));
        let grants: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut patterns: Vec<&str> = grants
            .as_array()
            .unwrap()
            .iter()
            .map(|grant| grant["pattern"].as_str().unwrap())
            .collect();
        patterns.sort_unstable();
        assert_eq!(patterns, own, "{name}");
    }
    // What one shell of a user was granted, the other one knows; the other user does not.
    shells[0].1.types("touch ann1; echo known-$((1+1))\r");
    shells[0].1.sees("known-2");
    shells[2].1.types("touch ann1\r");
    shells[2].1.sees("> Deny");
    shells[2].1.types("\r");
    shells[2].1.sees("User denied approval");
    for (name, mut person) in shells {
        person.types("exit\r");
        person.end();
        let user = &name[..3];
        assert!(
            machine.path(&format!("home/{user}/{name}")).exists(),
            "{name}"
        );
        for file in ["trace.jsonl", "approvals.json"] {
            let path = machine.path(&format!("home/{user}/.substrate/{file}"));
            let mode = fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{user} {file}");
        }
    }
}

/// Ways in which files come over ssh, each with the file that must be there afterwards if it says that all went well.
const BRINGS: [(&str, &str, &str); 9] = [
    ("a command at home", "$S 'cat > a' < /run/k/small", "a"),
    (
        "a command in a project",
        "$S 'cd app && cat > a' < /run/k/small",
        "app/a",
    ),
    ("scp", "scp -q -F /run/k/config /run/k/small m:b", "b"),
    (
        "scp into a project",
        "scp -q -F /run/k/config /run/k/small m:app/b",
        "app/b",
    ),
    (
        "scp as it was",
        "scp -q -O -F /run/k/config /run/k/small m:app/c",
        "app/c",
    ),
    (
        "sftp",
        "echo 'put /run/k/small app/d' | sftp -q -b - -F /run/k/config m",
        "app/d",
    ),
    (
        "rsync",
        "rsync -a -e 'ssh -F /run/k/config' /run/k/small m:app/e",
        "app/e",
    ),
    (
        "rsync at home",
        "rsync -a -e 'ssh -F /run/k/config' /run/k/small m:e",
        "e",
    ),
    (
        "git push",
        "cd /run/k/w && git push -q m:app/g.git HEAD:refs/heads/main",
        "app/g.git/refs/heads/main",
    ),
];

#[test]
fn what_is_sent_arrives_or_is_refused_aloud() {
    let programs = ["sshd", "ssh", "scp", "sftp", "rsync", "git"];
    let name = "what_is_sent_arrives_or_is_refused_aloud";
    let mut wrong = Vec::new();
    for preset in ["default", "dev", "agent", "ci", "locked", "restricted"] {
        let Some(machine) = Machine::new(name, &programs) else {
            return;
        };
        let mut script = SSH.to_owned();
        script.push_str(
            "echo small > /run/k/small
             su -s /bin/bash ann -c 'cd; git init -q app; git init -q --bare app/g.git'
             git -c init.defaultBranch=main init -q /run/k/w; cd /run/k/w; git -c user.name=x -c user.email=x@example.com commit -q --allow-empty -m one; cd /\n",
        );
        script.push_str(&format!(
            "su -s /bin/bash ann -c 'cd; mkdir -p .substrate; echo {preset} > .substrate/active; chmod 700 .substrate'\n"
        ));
        for (way, text, _) in BRINGS {
            script.push_str(&format!(
                "echo '== {way}'; n=0; ({text}) 2>&1 || n=$?; echo \"status $n\"\n"
            ));
        }
        let output = machine.run(&script);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        for ((way, _, file), told) in BRINGS.iter().zip(said.split("== ").skip(1)) {
            let there = machine.path(&format!("home/ann/{file}")).exists();
            let went_well = told.trim_end().ends_with("status 0");
            let aloud = told.lines().count() > 2;
            if there != went_well || !there && !aloud {
                wrong.push(format!("{preset}: {way}: there {there}: {told}"));
            }
            let works_everywhere = *way == "a command in a project" && preset != "locked";
            if !there && (works_everywhere || ["default", "dev"].contains(&preset)) {
                wrong.push(format!("{preset}: {way} is refused: {told}"));
            }
        }
        assert!(said.contains("== git push"), "{}", text_of(&output));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn cron_works_in_a_project_under_every_preset() {
    for preset in ["default", "dev", "agent", "ci", "restricted"] {
        let name = "cron_works_in_a_project_under_every_preset";
        let Some(machine) = Machine::new(name, &["cron", "git"]) else {
            return;
        };
        let table = format!(
            "SHELL={SHELL}\n@reboot ann cd app && touch made; sh ../hold.sh 2> told; touch done\n"
        );
        fs::write(machine.path("etc/cron.d/try"), table).unwrap();
        machine.file_of(
            "home/ann/hold.sh",
            ANN,
            "touch ~/outside || echo refused >&2\n",
        );
        machine.file_of("home/ann/.substrate/active", ANN, preset);
        fs::set_permissions(
            machine.path("home/ann/.substrate"),
            fs::Permissions::from_mode(0o700),
        )
        .unwrap();
        let output = machine.run("su -s /bin/bash ann -c 'cd; git init -q app'; mkdir -p /var/spool/cron/crontabs; cron -f & n=0; until [ -e /home/ann/app/done ] || [ $n -gt 300 ]; do sleep 0.2; n=$((n+1)); done");
        let text = text_of(&output);
        assert!(
            machine.path("home/ann/app/made").exists(),
            "{preset}: {text}"
        );
        let there = machine.path("home/ann/outside").exists();
        let told = fs::read_to_string(machine.path("home/ann/app/told")).unwrap_or_default();
        assert_eq!(there, !told.contains("refused"), "{preset}: {told}");
    }
}
