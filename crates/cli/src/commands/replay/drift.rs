//! What is not as it was around a command.

use std::ffi::OsString;
use std::fs::File;
use std::io::Seek;
use std::os::fd::AsFd;

use substrate_broker::Broker;
use substrate_executor::recording;
use substrate_replay::{Past, Warning};
use substrate_snapshots::Capture;
use substrate_trace::{Enforced, Environment, Key, Via};

type Variables = Vec<(OsString, OsString)>;

/// Policy, kernel, programs and files.
pub fn around(broker: &Broker, past: &Past) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let then = &past.context;
    if then.policy_hash.as_ref() != Some(&broker.info().sha256) {
        let now = &broker.info().id;
        let then = then.policy_id.as_deref().unwrap_or("unknown");
        let text = match then == now {
            true => format!("'{now}' has another content now"),
            false => format!("it was '{then}', now it is '{now}', or has another content"),
        };
        warnings.push(Warning::new("policy", text));
    }
    if let Some(kernel) = then.world_image_version.as_deref().map(kernel)
        && kernel != self::kernel(&recording::image(""))
    {
        let now = recording::image("");
        let text = format!("it was {kernel}, now it is {}", self::kernel(&now));
        warnings.push(Warning::new("kernel", text));
    }
    let paths: Vec<_> = then.tools.iter().map(|tool| tool.path.clone()).collect();
    let now = substrate_snapshots::tools(&broker.home().path, &paths);
    for tool in &then.tools {
        let found = now.iter().find(|(path, _)| *path == tool.path);
        let text = match found {
            Some((_, sha256)) if *sha256 == tool.sha256 => continue,
            Some(_) => format!("{} is not the file of then", tool.path.display()),
            None => format!("{} is gone, or cannot be read", tool.path.display()),
        };
        warnings.push(Warning::new("tool", text));
    }
    if past.base.is_none() || past.here {
        warnings.push(Warning::new("files", "it runs on today's files"));
    }
    warnings
}

fn kernel(image: &str) -> &str {
    image.split('/').next().unwrap_or(image)
}

/// What held it then and now, if something did.
pub fn held(past: &Past, now: &Enforced) -> Option<Warning> {
    let then = past.context.world_image_version.as_deref()?;
    let (_, then) = then.split_once('/')?;
    let text = match then == "direct" || then == now.level.as_str() {
        true => return None,
        false => format!("it was '{then}', now it is '{}'", now.level),
    };
    Some(Warning::new("level", text))
}

/// The variables it gets. Where the environment is the one of then, that is all of it; else only
/// the recorded part is known.
pub fn environment(past: &Past, key: &Key) -> (Variables, Option<Warning>) {
    let today = std::env::vars_os().collect::<Variables>();
    let mut env = past.env();
    if past.context.env_hash != Environment::record(today.clone(), Some(key)).hash {
        let text = "it is another one; only its recorded part is used";
        return (env, Some(Warning::new("environment", text)));
    }
    let rest = Environment::unstored(today);
    env.extend(rest);
    (env, None)
}

/// What it reads: the file that is our own standard input, if it has the content of then.
pub fn stdin(past: &Past, key: &Key) -> (Option<File>, Option<Warning>) {
    let then = past.context.stdin.as_ref();
    let text = match then.map(|then| then.kind.as_str()) {
        Some("tty") => "it was a terminal; now there is nothing on it",
        Some("pipe") => "it was a pipe, whose content is not kept; now there is nothing on it",
        Some("content") => match given(key) {
            Some((file, digest)) if then.and_then(|then| then.digest.as_ref()) == Some(&digest) => {
                return (Some(file), None);
            }
            _ => "it was a file, which is not kept; give it again: substrate replay SPAN < FILE",
        },
        _ => return (None, None),
    };
    (None, Some(Warning::new("stdin", text)))
}

fn given(key: &Key) -> Option<(File, String)> {
    let mut file = File::from(std::io::stdin().as_fd().try_clone_to_owned().ok()?);
    file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let start = file.stream_position().ok()?;
    let mut capture = Capture::new(false);
    capture.feed_from(&file).ok()?;
    file.seek(std::io::SeekFrom::Start(start)).ok()?;
    Some((file, capture.stream(key, Via::File).digest))
}
