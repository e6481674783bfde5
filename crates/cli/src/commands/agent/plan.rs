//! What a run of an agent comes to: which program with which words and variables, what of the home it
//! has, where its key lives.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use substrate_agents::{
    Access, Auth, Chosen, Descriptor, Model, NoModel, Shelf, choose, is_name, keys,
};
use substrate_broker::Home;
use substrate_egress::service::Service;
use substrate_executor::hosting::Hosting;
use substrate_modelgate::Url;
use substrate_policy::terms::HostRule;
use substrate_sys::environment;

use super::vault::{self, Key};
use crate::agent_run_args::AgentRunArgs;
use crate::asker::Asker;
use crate::failure::Failure;

/// Where a gate listens in a world: nobody's port, and below those that the kernel hands out.
pub const PORT: u16 = 7437;
/// A key that means nothing.
const NO_KEY: &str = "substrate-puts-the-key-in-outside";

/// Where the key of an agent lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// Outside, in this variable; the gate puts it in.
    Outside(String),
    /// In the world: in the client's own files, or in these variables.
    Inside(Vec<String>),
    /// Nowhere.
    None,
}

/// Where a gate leads, with the key.
#[derive(Debug, Clone)]
pub struct Through {
    /// The model.
    pub model: Model,
    /// Where it is.
    pub upstream: Url,
    /// The header that the key is sent in.
    pub header: String,
    /// The key, as it stands there.
    pub key: Key,
}

/// A run of an agent.
pub struct Plan {
    /// How it is called in the trace.
    pub name: String,
    /// The program that it is, where one is described.
    pub descriptor: Option<Descriptor>,
    /// The words of the command.
    pub argv: Vec<OsString>,
    /// Its environment.
    pub env: Vec<CString>,
    /// Where its key lives.
    pub login: Login,
    /// Where its gate leads, where it has one.
    pub through: Option<Through>,
    /// Settings of its own that run something later.
    pub settings: Vec<PathBuf>,
    home: PathBuf,
}

/// Makes a plan from what was typed.
pub fn make(
    asker: &Asker,
    args: &AgentRunArgs,
    arguments: &[OsString],
    mut env: Vec<CString>,
) -> Result<Plan, Failure> {
    let key = vault::open(&mut env)?;
    let home = asker.home()?;
    let shelf = Shelf::with_own(&home.path);
    let descriptor = match is_command(args, arguments) {
        true => None,
        false => Some(described(&shelf, &args.words[0])?),
    };
    let name = called(args, descriptor)?;
    let user = user_home(&env, &home);
    if let (Some(descriptor), None) = (descriptor, &key) {
        vault::lock(descriptor, &env, arguments)?;
    }
    let (login, chosen) = match descriptor {
        Some(descriptor) => log_in(descriptor, &env, &user, key.as_ref())?,
        None => (Login::None, None),
    };
    let mut plan = Plan {
        name,
        descriptor: descriptor.cloned(),
        argv: Vec::new(),
        env: Vec::new(),
        login,
        through: chosen.zip(key).map(|(chosen, key)| Through {
            model: chosen.model.clone(),
            upstream: chosen.upstream,
            header: chosen.credential.header,
            key,
        }),
        settings: Vec::new(),
        home: user,
    };
    plan.argv = plan.words(args)?;
    plan.env = plan.variables(env, &args.setenv)?;
    plan.settings = plan.settings(&asker.cwd()?);
    Ok(plan)
}

/// Where a client looks for its files: where the variable says.
pub fn user_home(env: &[CString], home: &Home) -> PathBuf {
    let named = environment::get(env, "HOME").map(|home| PathBuf::from(OsStr::from_bytes(home)));
    let real = named.filter(|path| path.is_absolute() && path.is_dir());
    real.unwrap_or_else(|| home.user.clone())
}

/// Whether the words are a command: they stand after the dashes.
fn is_command(args: &AgentRunArgs, arguments: &[OsString]) -> bool {
    let before = arguments.len().checked_sub(args.words.len() + 1);
    before
        .and_then(|at| arguments.get(at))
        .is_some_and(|word| word == "--")
}

fn described<'a>(shelf: &'a Shelf, word: &OsString) -> Result<&'a Descriptor, Failure> {
    let name = word.to_string_lossy();
    if let Some(descriptor) = shelf.get(&name) {
        return Ok(descriptor);
    }
    let file = format!("{name}.yaml");
    let broken = shelf
        .broken
        .iter()
        .map(ToString::to_string)
        .find(|text| text.contains(&file));
    let known: Vec<&str> = shelf
        .all()
        .map(|descriptor| descriptor.name.as_str())
        .collect();
    Err(Failure::Missing(broken.unwrap_or_else(|| {
        format!(
            "no agent is called `{}`; known are {}; any other command stands after `--`",
            substrate_text::visible(name.as_bytes()),
            known.join(", ")
        )
    })))
}

fn called(args: &AgentRunArgs, descriptor: Option<&Descriptor>) -> Result<String, Failure> {
    let own = |name: &str| {
        let fit = |letter: char| match letter.is_ascii_alphanumeric() {
            true => letter.to_ascii_lowercase(),
            false => '-',
        };
        let name: String = name.chars().map(fit).take(64).collect();
        let name = name.trim_matches('-').to_owned();
        if is_name(&name) {
            name
        } else {
            "agent".to_owned()
        }
    };
    match (&args.name, descriptor) {
        (Some(name), _) if is_name(name) && name != "human" => Ok(name.clone()),
        (Some(name), _) => Err(Failure::Usage(format!(
            "--name {}: lower-case letters, digits and dashes only, and not `human`",
            substrate_text::visible(name.as_bytes())
        ))),
        (None, Some(descriptor)) => Ok(descriptor.name.clone()),
        (None, None) => {
            let program = Path::new(&args.words[0]).file_name().unwrap_or_default();
            Ok(own(&program.to_string_lossy()))
        }
    }
}

/// Where the key is, from the variables and files that are there.
fn log_in<'a>(
    descriptor: &'a Descriptor,
    env: &[CString],
    home: &Path,
    key: Option<&Key>,
) -> Result<(Login, Option<Chosen<'a>>), Failure> {
    let set = |name: &str| {
        // Which key there is decides; the key itself is not here.
        if key.is_some_and(|key| key.variable == name) {
            return Some("key".to_owned());
        }
        let value = environment::get(env, name)?;
        Some(String::from_utf8_lossy(value).into_owned()).filter(|value| !value.is_empty())
    };
    let missing = match choose(descriptor, set) {
        Ok(chosen) => return Ok((Login::Outside(chosen.variable.to_owned()), Some(chosen))),
        Err(NoModel::NoKey(names)) => names,
        Err(other) => return Err(Failure::Usage(format!("{}: {other}", descriptor.name))),
    };
    let keys: Vec<String> = descriptor
        .keys
        .iter()
        .filter(|name| set(name).is_some())
        .cloned()
        .collect();
    let logged_in = descriptor.login.iter().any(|path| home.join(path).exists());
    if descriptor.auth == Auth::None {
        return Ok((Login::None, None));
    }
    if logged_in || !keys.is_empty() {
        return Ok((Login::Inside(keys), None));
    }
    let names: Vec<String> = missing
        .into_iter()
        .chain(descriptor.keys.iter().cloned())
        .collect();
    Err(Failure::Missing(format!(
        "{} has no key: set {}{}",
        descriptor.title,
        names.join(" or "),
        match descriptor.login.is_empty() {
            true => "",
            false => ", or log in with the client itself outside",
        }
    )))
}

impl Plan {
    /// What its world has besides the policy's terms.
    pub fn hosting(&self, services: Vec<Service>, seconds: Option<u32>) -> Hosting {
        let Some(descriptor) = &self.descriptor else {
            return Hosting {
                seconds,
                ..Hosting::default()
            };
        };
        let of = |access: Access| {
            let wanted = descriptor
                .home
                .iter()
                .filter(move |entry| entry.access == access);
            wanted.map(|entry| self.home.join(&entry.path)).collect()
        };
        let gated = self.through.as_ref().map(|through| &through.upstream);
        let withdrawn = gated.and_then(|url| HostRule::parse(&url.host).ok());
        Hosting {
            write: of(Access::Write),
            read: of(Access::Read),
            // Only what is there already can be held as it is; the rest is looked at in the end.
            protect: self.own_hooks().filter(|path| path.exists()).collect(),
            hosts: match &self.login {
                Login::Inside(_) => descriptor.hosts.clone(),
                _ => Vec::new(),
            },
            withdrawn: withdrawn.into_iter().collect(),
            services,
            seconds,
            not_held: match &self.login {
                Login::Inside(_) => vec!["the agent's log-in is inside its world".to_owned()],
                _ => Vec::new(),
            },
        }
    }

    /// Makes what the client keeps its state in, so that it is there to be let in.
    pub fn make_home(&self) -> Result<(), Failure> {
        let home = self
            .descriptor
            .iter()
            .flat_map(|descriptor| &descriptor.home);
        for entry in home.filter(|entry| entry.access == Access::Write) {
            let path = self.home.join(&entry.path);
            if path.symlink_metadata().is_ok() {
                continue;
            }
            // What has an ending besides its first dot is a file.
            let made = match path.extension() {
                Some(_) => make_file(&path),
                None => make_directory(&path),
            };
            made.map_err(|error| Failure::File {
                what: path.display().to_string(),
                error,
            })?;
        }
        Ok(())
    }

    /// The files of its hooks below `$HOME`: what runs when the client is next started without a world.
    fn own_hooks(&self) -> impl Iterator<Item = PathBuf> {
        let hooks = self
            .descriptor
            .iter()
            .flat_map(|descriptor| &descriptor.hooks);
        let own = hooks.filter(|path| !path.starts_with('{'));
        own.map(|path| self.home.join(path))
    }

    fn settings(&self, project: &Path) -> Vec<PathBuf> {
        let Some(descriptor) = &self.descriptor else {
            return Vec::new();
        };
        let all = descriptor.hooks.iter().chain(&descriptor.mcp);
        let mut paths: Vec<PathBuf> = all
            .map(|path| match path.strip_prefix("{project}/") {
                Some(path) => project.join(path),
                None => self.home.join(path),
            })
            .collect();
        paths.sort();
        paths.dedup();
        paths
    }

    fn base_url(&self) -> String {
        let base = self
            .through
            .as_ref()
            .map(|through| through.model.base.as_str());
        format!("http://127.0.0.1:{PORT}{}", base.unwrap_or_default())
    }

    fn words(&self, args: &AgentRunArgs) -> Result<Vec<OsString>, Failure> {
        let Some(descriptor) = &self.descriptor else {
            if args.goal.is_some() {
                let text =
                    "-p needs an agent that is described; a command has its own words for it";
                return Err(Failure::Usage(text.to_owned()));
            }
            return Ok(args.words.clone());
        };
        let mut words: Vec<OsString> = descriptor.command.iter().map(OsString::from).collect();
        if words[0] == "substrate" {
            // Ours, wherever it is installed.
            words[0] = std::env::current_exe()?.into();
        }
        words.extend(descriptor.always.iter().map(OsString::from));
        let model = self
            .through
            .iter()
            .flat_map(|through| &through.model.arguments);
        let url = self.base_url();
        words.extend(model.map(|word| OsString::from(word.replace("{base_url}", &url))));
        match &args.goal {
            Some(goal) => words.extend(self.headless(descriptor, goal, args.max_turns)?),
            None => words.extend(descriptor.interactive.iter().map(OsString::from)),
        }
        words.extend(args.words[1..].iter().cloned());
        Ok(words)
    }

    fn headless(
        &self,
        descriptor: &Descriptor,
        goal: &str,
        turns: Option<u64>,
    ) -> Result<Vec<OsString>, Failure> {
        let Some(words) = &descriptor.headless else {
            let text = format!(
                "{} does not say how it works without a terminal",
                descriptor.file
            );
            return Err(Failure::Usage(text));
        };
        let filled = words
            .iter()
            .map(|word| OsString::from(word.replace("{goal}", goal)));
        let mut all: Vec<OsString> = filled.collect();
        match (turns, &descriptor.turns) {
            (Some(turns), Some(words)) => {
                let turns = turns.to_string();
                all.extend(
                    words
                        .iter()
                        .map(|word| OsString::from(word.replace("{turns}", &turns))),
                );
            }
            (Some(_), None) if self.through.is_none() => {
                let text = "--max-turns: this client has no word for it, and without the model gate \
                            nobody counts them";
                return Err(Failure::Usage(text.to_owned()));
            }
            _ => {}
        }
        Ok(all)
    }

    /// Whether the gate counts turns, because the client does not.
    pub fn gate_counts_turns(&self) -> bool {
        self.descriptor
            .as_ref()
            .is_some_and(|descriptor| descriptor.turns.is_none())
    }

    /// The environment without keys, and with what points the client to the gate.
    fn variables(&self, env: Vec<CString>, set: &[OsString]) -> Result<Vec<CString>, Failure> {
        let kept: &[String] = match &self.login {
            Login::Inside(keys) => keys,
            _ => &[],
        };
        let mut env: Vec<CString> = env
            .into_iter()
            .filter(|entry| {
                let mut halves = entry.as_bytes().splitn(2, |byte| *byte == b'=');
                let name = String::from_utf8_lossy(halves.next().unwrap_or_default());
                let value = String::from_utf8_lossy(halves.next().unwrap_or_default());
                kept.iter().any(|kept| *kept == name) || !keys::may_be_key(&name, &value)
            })
            .collect();
        if let Some(descriptor) = &self.descriptor {
            for (name, value) in &descriptor.env {
                environment::set(&mut env, name, value.as_bytes());
            }
        }
        if let Some(through) = &self.through {
            self.point(&through.model, &mut env);
        }
        environment::set(&mut env, "SUBSTRATE_AGENT_ID", self.name.as_bytes());
        crate::commands::run::set_variables(set, &mut env)?;
        Ok(env)
    }

    fn point(&self, model: &Model, env: &mut Vec<CString>) {
        let url = self.base_url();
        if let Some(name) = &model.base_url {
            environment::set(env, name, url.as_bytes());
        }
        let named = model.inside.as_ref();
        if let Some(name) = named.or(model.keys.first().map(|key| &key.env)) {
            environment::set(env, name, NO_KEY.as_bytes());
        }
        for (name, value) in &model.env {
            environment::set(env, name, value.replace("{base_url}", &url).as_bytes());
        }
    }
}

fn make_directory(path: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

fn make_file(path: &Path) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    match path
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        true => file.write_all(b"{}\n"),
        false => Ok(()),
    }
}

/// `500k`, `2M` or a plain number of tokens.
pub fn tokens(text: &str) -> Result<u64, Failure> {
    let units = [
        ("k", 1_000),
        ("K", 1_000),
        ("m", 1_000_000),
        ("M", 1_000_000),
    ];
    let unit = units
        .iter()
        .find_map(|(end, unit)| Some((text.strip_suffix(end)?, *unit)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let tokens = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    tokens.filter(|tokens| *tokens > 0).ok_or_else(|| {
        Failure::Usage(format!(
            "--budget {text}: tokens are expected, as in 500k or 2M"
        ))
    })
}

/// `90s`, `10m`, `2h`.
pub fn seconds(text: &str) -> Result<u32, Failure> {
    let units = [("s", 1), ("m", 60), ("h", 3600)];
    let unit = units
        .iter()
        .find_map(|(end, unit)| Some((text.strip_suffix(end)?, *unit)));
    let seconds = unit.and_then(|(number, unit)| number.parse::<u32>().ok()?.checked_mul(unit));
    seconds.filter(|seconds| *seconds > 0).ok_or_else(|| {
        Failure::Usage(format!(
            "--timeout {text}: a time is expected, as in 90s, 10m or 2h"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_and_times_are_read() {
        assert_eq!(tokens("500k").unwrap(), 500_000);
        assert_eq!(tokens("2M").unwrap(), 2_000_000);
        assert_eq!(tokens("17").unwrap(), 17);
        for wrong in ["", "0", "k", "2G", "-1", "1.5M", "99999999999999999999"] {
            assert!(tokens(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds("90s").unwrap(), 90);
        assert_eq!(seconds("2h").unwrap(), 7200);
        for wrong in ["", "0s", "90", "1d", "99999999h"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
