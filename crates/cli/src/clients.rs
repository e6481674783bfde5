//! Which hosts this machine's package clients use: their own commands and files are asked, so that
//! mirrors and proxies work and no host is known in advance.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use substrate_broker::{Broker, Home};
use substrate_policy::settings::HostEntry;
use substrate_sys::bounded::{self, Links};

use crate::failure::Failure;

/// How long a client may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How one client is asked; its hosts.
type Ask = fn(&Path) -> Vec<String>;

/// The hosts of every client that was found, by the name of its set. The clients are asked side by side.
pub fn ask(user: &Path) -> BTreeMap<String, Vec<String>> {
    let asked: [(&str, Ask); 7] = [
        ("npm", |user| hosts_of(&npm(user))),
        ("python", |user| hosts_of(&python(user))),
        ("cargo", cargo),
        ("go", |user| hosts_in(&with_scheme(&go(user)))),
        ("ruby", |user| {
            let sources = output("gem", &["sources", "--list"]);
            hosts_of(&[sources, file(&user.join(".gemrc"))])
        }),
        ("debian", |_| hosts_of(&debian(Path::new("/etc/apt")))),
        ("git", |_| {
            hosts_in(&output("git", &["config", "--global", "--list"]))
        }),
    ];
    thread::scope(|scope| {
        let answers = asked.map(|(set, ask)| (set, scope.spawn(move || ask(user))));
        let answers = answers.into_iter().filter_map(|(set, answer)| {
            let hosts = answer.join().ok().filter(|hosts| !hosts.is_empty())?;
            Some((set.to_owned(), hosts))
        });
        answers.collect()
    })
}

fn hosts_of(texts: &[String]) -> Vec<String> {
    let mut hosts: Vec<String> = texts.iter().flat_map(|text| hosts_in(text)).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

/// Whether a policy names a set of hosts that stands for nothing because no client was ever asked.
pub fn unknown(broker: &Broker) -> bool {
    !broker.home().clients().exists() && !empty_sets(broker).is_empty()
}

/// The sets of the policy in use that stand for no host.
pub fn empty_sets(broker: &Broker) -> Vec<String> {
    let policy = broker.policy();
    let Ok(effects) = policy.effects() else {
        return Vec::new();
    };
    let empty = |entry: &&HostEntry| entry.rule.is_none() && entry.members.is_empty();
    let sets = effects.net.allowed.iter().filter(empty);
    sets.map(|entry| entry.written.clone()).collect()
}

/// Asks the clients and writes down what they said.
pub fn learn(home: &Home) -> Result<(), Failure> {
    let path = home.clients();
    let text = format!("{:#}\n", serde_json::json!(ask(&home.user)));
    home.ensure(&home.path)
        .and_then(|()| write(&path, text.as_bytes()))
        .map_err(|error| Failure::File {
            what: format!("cannot write {}", path.display()),
            error,
        })
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let aside = path.with_extension(format!("new.{}", std::process::id()));
    fs::write(&aside, bytes).and_then(|()| fs::rename(&aside, path))
}

/// The directories of `PATH` that nobody's project can put a program into.
fn own_path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let outside = |dir: &PathBuf| {
        let theirs = here != Path::new("/") && dir.starts_with(&here);
        dir.is_absolute() && !theirs
    };
    let own = std::env::split_paths(&path).filter(outside);
    std::env::join_paths(own).unwrap_or_default()
}

/// Without a cache and without logs, npm leaves nothing behind.
fn npm(user: &Path) -> Vec<String> {
    vec![
        output(
            "npm",
            &[
                "config",
                "get",
                "registry",
                "--cache=/dev/null",
                "--logs-max=0",
            ],
        ),
        file(&user.join(".npmrc")),
    ]
}

/// The settings name an index only when somebody set one; otherwise pip itself knows its own.
fn python(user: &Path) -> Vec<String> {
    const OWN: &str = "from pip._internal.models.index import PyPI; print(PyPI.simple_url); print('https://' + PyPI.file_storage_domain)";
    let set = output("pip", &["config", "list"]);
    let files = [".config/pip/pip.conf", ".pip/pip.conf"].map(|name| file(&user.join(name)));
    let variables = ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL"]
        .map(|name| std::env::var(name).unwrap_or_default());
    let mut texts = vec![set.clone()];
    texts.extend(files);
    texts.extend(variables);
    if !texts.iter().any(|text| text.contains("://")) {
        texts.push(output("python3", &["-c", OWN]));
    }
    texts
}

/// Go counts its own uses in a file beside its settings; here it finds no place for that, and the
/// settings by their own variable.
fn go(user: &Path) -> String {
    let settings = std::env::var_os("GOENV").unwrap_or_else(|| {
        let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        let config = config.unwrap_or_else(|| user.join(".config"));
        config.join("go/env").into_os_string()
    });
    let mut go = Command::new("go");
    go.args(["env", "GOPROXY", "GOSUMDB"])
        .env("GOENV", settings)
        .env("XDG_CONFIG_HOME", "/dev/null");
    answer(go)
}

/// Settings, and the indexes that cargo has used: each is a directory named after its host, with a
/// file that says where packages are downloaded.
fn cargo(user: &Path) -> Vec<String> {
    let home = std::env::var_os("CARGO_HOME").map_or_else(|| user.join(".cargo"), PathBuf::from);
    let mut texts = vec![file(&home.join("config.toml")), file(&home.join("config"))];
    for entry in fs::read_dir(home.join("registry/index"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some((host, _)) = name.rsplit_once('-') {
            texts.push(format!("https://{host}/"));
        }
        texts.push(file(&entry.path().join("config.json")));
    }
    match hosts_of(&texts) {
        hosts if hosts.is_empty() => cargo_knows().unwrap_or_default(),
        hosts => hosts,
    }
}

/// The index that an unused cargo is built for, and its neighbours: where the downloads lie only the index
/// itself says.
fn cargo_knows() -> Option<Vec<String>> {
    const MARK: &[u8] = b"sparse+https://";
    let sysroot = output("rustc", &["--print", "sysroot"]);
    let binary = Path::new(sysroot.trim()).join("bin/cargo");
    let bytes = bounded::read(&binary, Links::Follow, 256 << 20).ok()?;
    let hosts = bytes
        .windows(MARK.len())
        .enumerate()
        .filter(|(_, window)| *window == MARK);
    let hosts = hosts.filter_map(|(at, _)| {
        let rest = bytes.get(at + MARK.len()..)?;
        let end = rest.iter().position(|byte| *byte == b'/')?;
        let host = std::str::from_utf8(rest.get(..end)?).ok()?;
        let name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
        let known = host.split('.').count() > 2 && host.len() < 100 && host.chars().all(name);
        known.then(|| {
            let beside = host.split_once('.').map_or(host, |(_, domain)| domain);
            [host.to_owned(), format!("*.{beside}")]
        })
    });
    Some(hosts.flatten().collect())
}

fn debian(directory: &Path) -> Vec<String> {
    let mut texts = vec![file(&directory.join("sources.list"))];
    for entry in fs::read_dir(directory.join("sources.list.d"))
        .into_iter()
        .flatten()
        .flatten()
    {
        texts.push(file(&entry.path()));
    }
    let is_comment = |line: &&str| !line.trim_start().starts_with('#');
    texts
        .iter()
        .map(|text| {
            text.lines()
                .filter(is_comment)
                .collect::<Vec<_>>()
                .join("\n")
        })
        .collect()
}

/// `GOSUMDB` is a bare host.
fn with_scheme(text: &str) -> String {
    text.lines()
        .flat_map(|line| line.split([',', '|']))
        .map(|word| {
            if word.contains("://") || !word.contains('.') {
                word.to_owned()
            } else {
                let host = word.split(['+', ' ']).next().unwrap_or(word);
                format!("https://{host}/")
            }
        })
        .collect::<Vec<_>>()
        .join("\n")
}

fn file(path: &Path) -> String {
    bounded::read(path, Links::Follow, 1 << 20)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

/// What a program prints when it is asked so.
fn output(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments);
    answer(command)
}

/// What a command prints, or nothing when it is not there, fails or takes too long. It must change
/// nothing: this is also asked in a dry run.
fn answer(mut command: Command) -> String {
    let child = command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PATH", own_path())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return String::new();
    };
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break,
            Ok(None) if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return String::new();
            }
        }
    }
    child
        .wait_with_output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}

/// The hosts of the URLs in a text, with the port where one is given.
fn hosts_in(text: &str) -> Vec<String> {
    let mut hosts = Vec::new();
    for part in text.split("://").skip(1) {
        let end = part
            .find(|c: char| !(c.is_ascii_alphanumeric() || "-._:@[]%~!$&+".contains(c)))
            .unwrap_or(part.len());
        let authority = &part[..end];
        let host = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        let host = host.trim_end_matches([':', '.']).to_ascii_lowercase();
        let valid = substrate_policy::terms::HostRule::parse(&host).is_ok();
        if valid && (host.contains('.') || host.starts_with("localhost")) && !host.contains('*') {
            hosts.push(host);
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_urls() {
        assert_eq!(
            hosts_in(
                "registry=https://user:secret@npm.test:8443/a/\n@x:registry=http://other.test/"
            ),
            ["npm.test:8443", "other.test"]
        );
        assert_eq!(
            hosts_in("deb [arch=amd64] https://Mirror.Test/debian x"),
            ["mirror.test"]
        );
        assert!(hosts_in("no url, file:///srv/x, https://*/").is_empty());
    }

    #[test]
    fn go_names_bare_hosts() {
        let text = with_scheme("https://proxy.test,direct\nsum.test+033de0ae\n");
        assert_eq!(hosts_in(&text), ["proxy.test", "sum.test"]);
    }
}
