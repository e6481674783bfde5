//! `substrate shim`: puts guards in front of tools, on PATH.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use substrate_broker::choice::FLOOR;
use substrate_broker::{Choice, Home, cache};
use substrate_shim::installed::{BINARY, FileId, SUBSTRATE, USER_HOME, id};
use substrate_shim::tool::{self, is_shim};

use crate::args::{Preset, ShimCommand, ShimShell};
use crate::asker::{Asker, Needs};
use crate::failure::Failure;
use crate::out;

/// The shim itself, built by the build script.
const SHIM: &[u8] = include_bytes!(env!("SUBSTRATE_SHIM"));

/// What the shim was built for; anything but musl starts more slowly.
pub const SHIM_TARGET: &str = env!("SUBSTRATE_SHIM_TARGET");

/// Tools that fetch, publish, build or reach other machines.
const DEV: &[&str] = &[
    "aws",
    "bun",
    "cargo",
    "curl",
    "deno",
    "docker",
    "gcloud",
    "gem",
    "gh",
    "git",
    "go",
    "helm",
    "kubectl",
    "make",
    "node",
    "npm",
    "npx",
    "pip",
    "pip3",
    "pnpm",
    "podman",
    "psql",
    "python",
    "python3",
    "rsync",
    "scp",
    "ssh",
    "terraform",
    "uv",
    "wget",
    "yarn",
];

/// What an agent should not do unseen either: removing, overwriting, changing rights and processes.
const AGENT: &[&str] = &[
    "chgrp",
    "chmod",
    "chown",
    "cp",
    "crontab",
    "dd",
    "doas",
    "find",
    "kill",
    "killall",
    "ln",
    "mv",
    "nc",
    "perl",
    "pkill",
    "rm",
    "rmdir",
    "sed",
    "shred",
    "su",
    "sudo",
    "systemctl",
    "tar",
    "tee",
    "truncate",
    "xargs",
];

/// Does what was asked.
pub fn run(asker: &Asker, command: ShimCommand) -> Result<(), Failure> {
    let farm = Farm::find(asker)?;
    match command {
        ShimCommand::Install { tools, preset } => farm.install(asker, &tools, preset),
        ShimCommand::Remove { tools, all } => farm.remove(asker, &tools, all),
        ShimCommand::List { json } => farm.list(json),
        ShimCommand::Status { json } => farm.status(json),
        ShimCommand::Init { shell } => farm.init(shell),
    }
}

/// What `doctor` should say about shims; `None` when there are none, else what is wrong with them.
pub fn problems(asker: &Asker) -> Option<Vec<String>> {
    let farm = Farm::find(asker).ok()?;
    let shims = farm.shims().ok().filter(|shims| !shims.is_empty())?;
    let mut problems = Vec::new();
    if !SHIM_TARGET.ends_with("musl") {
        problems.push(format!(
            "built for {SHIM_TARGET} instead of musl, so they start more slowly"
        ));
    }
    problems.extend(farm.path_problem());
    problems.extend(
        shims
            .iter()
            .filter_map(|tool| farm.state(tool).problem(tool)),
    );
    Some(problems)
}

/// The directory of shims, and the PATH it is seen on.
struct Farm {
    home: Home,
    directory: PathBuf,
    search_path: OsString,
    cwd: PathBuf,
}

/// How one shim stands.
struct State {
    /// The tool that it runs.
    target: Option<PathBuf>,
    /// What the shell finds for the name; anything but the shim defeats it.
    first: Option<PathBuf>,
    /// It is a link to the binary that is installed now.
    current: bool,
}

impl State {
    fn word(&self, shim: &Path) -> &'static str {
        match self {
            State { target: None, .. } => "dead",
            State { current: false, .. } => "outdated",
            State { first, .. } if first.as_deref() != Some(shim) => "defeated",
            _ => "active",
        }
    }

    /// What is wrong with it and what to do.
    fn problem(&self, tool: &OsStr) -> Option<String> {
        let tool = tool.display();
        match self {
            State { target: None, .. } => Some(format!(
                "{tool}: nothing is behind this shim any more; `substrate shim remove {tool}`"
            )),
            State { current: false, .. } => Some(format!(
                "{tool}: made by another version; `substrate shim install` renews it"
            )),
            _ => None,
        }
    }
}

impl Farm {
    fn find(asker: &Asker) -> Result<Self, Failure> {
        let home = asker.home()?;
        Ok(Self {
            directory: home.shims(),
            home,
            search_path: std::env::var_os("PATH").unwrap_or_default(),
            cwd: std::env::current_dir().unwrap_or_else(|_| "/".into()),
        })
    }

    fn binary(&self) -> PathBuf {
        self.directory.join(BINARY)
    }

    /// The shims there are, in order. Files that are no shims are somebody else's.
    fn shims(&self) -> Result<Vec<OsString>, Failure> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed("cannot read", &self.directory)(error)),
        };
        let mut names: Vec<OsString> = entries
            .filter_map(|entry| Some(entry.ok()?.file_name()))
            .filter(|name| !name.as_bytes().starts_with(b".") && self.is_ours(name))
            .collect();
        names.sort();
        Ok(names)
    }

    fn is_ours(&self, name: &OsStr) -> bool {
        let path = self.directory.join(name);
        fs::metadata(&path).is_ok_and(|meta| is_shim(&path, &meta))
            || fs::read_link(&path).is_ok_and(|link| link == Path::new(BINARY))
    }

    fn target(&self, name: &OsStr) -> Result<PathBuf, tool::Missing> {
        let own: FileId = id(&self.binary()).unwrap_or_default();
        tool::find(name, Some(&self.search_path), &self.cwd, own, 0)
    }

    fn state(&self, name: &OsStr) -> State {
        let shim = self.directory.join(name);
        State {
            target: self.target(name).ok(),
            first: substrate_broker::facts::find_program(name, &self.search_path, &self.cwd),
            current: id(&shim).is_some() && id(&shim) == id(&self.binary()),
        }
    }

    fn install(
        &self,
        asker: &Asker,
        tools: &[OsString],
        preset: Option<Preset>,
    ) -> Result<(), Failure> {
        // Shims guard whoever works below a session; from there they are not changed.
        asker.require(Needs::Outside { yes: true })?;
        let existing = self.shims()?;
        let mut wanted: Vec<OsString> = match preset {
            Some(Preset::Dev) => names(DEV).collect(),
            Some(Preset::Agent) => names(DEV).chain(names(AGENT)).collect(),
            None if tools.is_empty() && existing.is_empty() => names(DEV).collect(),
            None => Vec::new(),
        };
        // A preset takes what is there; a tool that was named must be.
        wanted.retain(|name| self.target(name).is_ok());
        for name in tools {
            check_name(name)?;
            if self.target(name).is_err() {
                let name = name.display();
                return Err(Failure::Missing(format!(
                    "{name}: there is no such tool on PATH, and a shim would make programs believe that there is"
                )));
            }
            wanted.push(name.clone());
        }
        self.home
            .ensure(&self.directory)
            .map_err(failed("cannot make", &self.directory))?;
        self.write_binary()?;
        self.write_pointers()?;
        let mut made = 0;
        for name in existing.iter().chain(&wanted) {
            made += usize::from(self.link(name)?);
        }
        self.compile()?;

        let all = self.shims()?;
        let mut text = format!(
            "{} shims in {}, {made} of them new\n",
            all.len(),
            self.directory.display()
        );
        if let Some(problem) = self.path_problem() {
            text.push_str(&format!("{problem}\n"));
        }
        Ok(out::print(&text)?)
    }

    /// Writes the binary if it is not there as it should be. Shims that link to an older one stay as
    /// they are until they are linked anew, one by one.
    fn write_binary(&self) -> Result<(), Failure> {
        let path = self.binary();
        let content = tool::marked(SHIM);
        if fs::read(&path).is_ok_and(|found| found == content) {
            return Ok(());
        }
        replace(&path, 0o755, &content).map_err(failed("cannot write", &path))
    }

    /// Notes where this binary and the user's home are.
    fn write_pointers(&self) -> Result<(), Failure> {
        let binary =
            std::env::current_exe().map_err(failed("cannot find", Path::new("substrate")))?;
        for (name, target) in [(SUBSTRATE, binary), (USER_HOME, self.home.user.clone())] {
            let path = self.directory.join(name);
            if fs::read_link(&path).is_ok_and(|found| found == target) {
                continue;
            }
            let aside = self.aside();
            symlink(&target, &aside)
                .and_then(|()| fs::rename(&aside, &path))
                .map_err(failed("cannot write", &path))?;
        }
        Ok(())
    }

    fn aside(&self) -> PathBuf {
        self.directory.join(format!(".new.{}", std::process::id()))
    }

    /// Links a shim to the binary, unless it is; whether there was none before. Nothing that is not
    /// ours is replaced.
    fn link(&self, name: &OsStr) -> Result<bool, Failure> {
        let path = self.directory.join(name);
        let new = fs::symlink_metadata(&path).is_err();
        if id(&path).is_some() && id(&path) == id(&self.binary()) {
            return Ok(false);
        }
        if !new && !self.is_ours(name) {
            return Err(Failure::Missing(format!(
                "{} is no shim of Substrate, and it is left alone; move it away first",
                path.display()
            )));
        }
        let aside = self.aside();
        // Where a filesystem knows no hard links, a symbolic one serves.
        let linked = fs::hard_link(self.binary(), &aside).or_else(|_| symlink(BINARY, &aside));
        linked
            .and_then(|()| fs::rename(&aside, &path))
            .map_err(failed("cannot make", &path))?;
        Ok(new)
    }

    /// Makes sure that shims find compiled policies.
    fn compile(&self) -> Result<(), Failure> {
        cache::load(&Choice::Active, &self.home)?;
        if Path::new(FLOOR).exists() {
            cache::load(&Choice::File(FLOOR.into()), &self.home)?;
        }
        Ok(())
    }

    fn remove(&self, asker: &Asker, tools: &[OsString], all: bool) -> Result<(), Failure> {
        // Shims guard whoever works below a session; from there they are not changed.
        asker.require(Needs::Outside { yes: true })?;
        let existing = self.shims()?;
        let named = if all { &existing } else { tools };
        for name in named {
            check_name(name)?;
            let path = self.directory.join(name);
            if fs::symlink_metadata(&path).is_err() {
                continue;
            }
            if !self.is_ours(name) {
                return Err(Failure::Missing(format!(
                    "{} is no shim of Substrate, and it is left alone",
                    path.display()
                )));
            }
            fs::remove_file(&path).map_err(failed("cannot remove", &path))?;
        }
        if self.shims()?.is_empty() {
            for name in [BINARY, SUBSTRATE, USER_HOME] {
                let path = self.directory.join(name);
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(failed("cannot remove", &path)(error));
                    }
                    _ => {}
                }
            }
            // Somebody else's files keep the directory.
            let _ = fs::remove_dir(&self.directory);
        }
        Ok(())
    }

    fn list(&self, as_json: bool) -> Result<(), Failure> {
        let shims = self.shims()?;
        if as_json {
            let names: Vec<String> = shims
                .iter()
                .map(|name| name.display().to_string())
                .collect();
            return Ok(out::print(&format!("{}\n", json!(names)))?);
        }
        let lines: Vec<u8> = shims
            .iter()
            .flat_map(|name| [name.as_bytes(), b"\n"].concat())
            .collect();
        Ok(out::write(&lines)?)
    }

    fn status(&self, as_json: bool) -> Result<(), Failure> {
        let shims = self.shims()?;
        let states: Vec<(&OsString, PathBuf, State)> = shims
            .iter()
            .map(|name| (name, self.directory.join(name), self.state(name)))
            .collect();
        let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        if as_json {
            let rows: Vec<Value> = states
                .iter()
                .map(|(name, shim, state)| {
                    json!({
                        "tool": name.display().to_string(),
                        "state": state.word(shim),
                        "target": shown(&state.target),
                        "first": shown(&state.first),
                    })
                })
                .collect();
            let report = json!({
                "directory": self.directory.display().to_string(),
                "on_path": self.position(),
                "target": SHIM_TARGET,
                "shims": rows,
            });
            return Ok(out::print(&format!("{report}\n"))?);
        }
        let mut text = match self.position() {
            Some(position) => format!(
                "{} is number {} on PATH\n",
                self.directory.display(),
                position + 1
            ),
            None => String::new(),
        };
        text.extend(self.path_problem().map(|problem| format!("{problem}\n")));
        for (name, shim, state) in &states {
            let behind = match state.word(shim) {
                "dead" => "nothing of that name is behind it".to_owned(),
                "defeated" => match shown(&state.first) {
                    Some(first) => format!("{first} comes first on PATH"),
                    None => "not on PATH".to_owned(),
                },
                "outdated" => {
                    "made by another version; `substrate shim install` renews it".to_owned()
                }
                _ => shown(&state.target).unwrap_or_default(),
            };
            text.push_str(&format!(
                "{:<9} {:<12} {behind}\n",
                state.word(shim),
                name.display()
            ));
        }
        if shims.is_empty() {
            text.push_str("there are no shims; `substrate shim install --preset dev` makes some\n");
        }
        Ok(out::print(&text)?)
    }

    /// Where the directory stands on PATH, counted from 0.
    fn position(&self) -> Option<usize> {
        let entries = || {
            self.search_path
                .as_bytes()
                .split(|byte| *byte == b':')
                .map(|entry| Path::new(OsStr::from_bytes(entry)))
        };
        let own = id(&self.directory);
        entries().position(|entry| {
            entry == self.directory || (own.is_some() && entry.is_absolute() && id(entry) == own)
        })
    }

    /// What keeps the shims from being found.
    fn path_problem(&self) -> Option<String> {
        let directory = self.directory.display();
        if self.position().is_none() {
            return Some(format!(
                "{directory} is not on PATH; `substrate shim init bash` prints what to put into your rc file"
            ));
        }
        let defeated: Vec<String> = self
            .shims()
            .unwrap_or_default()
            .iter()
            .filter(|name| self.state(name).word(&self.directory.join(name)) == "defeated")
            .map(|name| name.display().to_string())
            .collect();
        (!defeated.is_empty()).then(|| {
            format!(
                "PATH has other directories before {directory}, which defeats the shims of {}",
                defeated.join(", ")
            )
        })
    }

    fn init(&self, shell: Option<ShimShell>) -> Result<(), Failure> {
        let shell = shell.or_else(login_shell).unwrap_or(ShimShell::Sh);
        let text = self
            .directory
            .to_str()
            .filter(|path| !path.contains(['\'', ':', '\n']))
            .ok_or_else(|| {
                Failure::Missing(format!(
                    "{}: a path like this cannot be put on PATH",
                    self.directory.display()
                ))
            })?;
        let (file, call, line) = match shell {
            ShimShell::Bash => (
                "~/.bashrc",
                "eval \"$(substrate shim init bash)\"",
                format!("{}{}", posix_line(text), BASH_HOOK.replace("@DIR@", text)),
            ),
            ShimShell::Zsh => (
                "~/.zshrc",
                "eval \"$(substrate shim init zsh)\"",
                format!("{}{}", posix_line(text), ZSH_HOOK.replace("@DIR@", text)),
            ),
            ShimShell::Sh => (
                "~/.profile",
                "eval \"$(substrate shim init sh)\"",
                format!("{}{NO_HOOK}", posix_line(text)),
            ),
            ShimShell::Fish => (
                "~/.config/fish/config.fish",
                "substrate shim init fish | source",
                FISH_HOOK.replace("@DIR@", text),
            ),
        };
        Ok(out::print(&format!(
            "{}{line}",
            AGENTS
                .replace("@FILE@", file)
                .replace("@CALL@", call)
                .replace("@DIR@", text)
        ))?)
    }
}

/// Comments, so that the output can be evaluated as it is.
const AGENTS: &str = "\
# Put this at the end of @FILE@, so that nothing comes before the shims:
#   @CALL@
# Agents run their commands with the PATH that they were started with, so a shell with that line in
# its rc file is enough for most. Where an agent does not read it:
#   Claude Code  start it as  PATH=\"@DIR@:$PATH\" claude
#                or in ~/.claude/settings.json  {\"env\": {\"PATH\": \"@DIR@:...\"}}
#                with the rest of your PATH written out: nothing is expanded there
#   Codex        in ~/.codex/config.toml
#                [shell_environment_policy]
#                set = { PATH = \"@DIR@:...\" }, the rest written out as well
#   Gemini CLI   start it as  PATH=\"@DIR@:$PATH\" gemini
#   Cursor       in settings.json
#                \"terminal.integrated.env.linux\": {\"PATH\": \"@DIR@:${env:PATH}\"}
";

/// Before each prompt the shims come first again: `activate`, direnv and nvm put themselves before them. What they
/// have changed stays behind, so that a shim finds the tool of then. The status is nobody's to change.
const BASH_HOOK: &str = r#"__substrate_shims() {
  local status=$?
  case $PATH in '@DIR@':*) return "$status" ;; esac
  local rest=:$PATH:
  rest=${rest//':@DIR@:'/:}
  rest=${rest#:}
  PATH='@DIR@':${rest%:}
  hash -r
  return "$status"
}
case $- in
*i*)
  if [[ ${PROMPT_COMMAND@a} == *r* ]]; then
    printf '%s\n' 'substrate: PROMPT_COMMAND is read-only, so what comes before the shims on PATH later stays there' >&2
  elif [[ " ${PROMPT_COMMAND[*]-} " != *__substrate_shims* ]]; then
    if [[ ${PROMPT_COMMAND@a} == *a* ]]; then
      PROMPT_COMMAND+=(__substrate_shims)
    else
      PROMPT_COMMAND=${PROMPT_COMMAND:+$PROMPT_COMMAND$'\n'}__substrate_shims
    fi
  fi
  ;;
esac
"#;

/// The same for zsh.
const ZSH_HOOK: &str = r#"__substrate_shims() {
  [[ ${path[1]} == '@DIR@' ]] && return
  path=('@DIR@' ${path:#'@DIR@'})
  rehash
}
typeset -ga precmd_functions
if [[ -o interactive && -z ${(M)precmd_functions:#__substrate_shims} ]]; then
  precmd_functions+=(__substrate_shims)
fi
"#;

/// The same for fish.
const FISH_HOOK: &str = r#"function __substrate_shims --on-event fish_prompt
  if test "$PATH[1]" != '@DIR@'
    set -gx PATH '@DIR@' (string match --invert -- '@DIR@' $PATH)
  end
end
__substrate_shims
"#;

/// A plain shell has no place for it.
const NO_HOOK: &str = "\
# sh asks nobody before a prompt: what changes PATH later comes before the shims. Evaluate this again then;
# `substrate shim status` says so.
";

fn posix_line(directory: &str) -> String {
    format!(
        "case \"$PATH\" in '{directory}':*) ;; *) PATH='{directory}'\":$PATH\"; export PATH ;; esac\n"
    )
}

fn login_shell() -> Option<ShimShell> {
    let shell = PathBuf::from(std::env::var_os("SHELL")?);
    match shell.file_name()?.to_str()? {
        "bash" => Some(ShimShell::Bash),
        "zsh" => Some(ShimShell::Zsh),
        "fish" => Some(ShimShell::Fish),
        _ => None,
    }
}

fn names(list: &[&str]) -> impl Iterator<Item = OsString> {
    list.iter().map(OsString::from)
}

fn check_name(name: &OsStr) -> Result<(), Failure> {
    let bytes = name.as_bytes();
    let bad = bytes.is_empty()
        || bytes.starts_with(b".")
        || bytes.contains(&b'/')
        || bytes.contains(&b'\n');
    if bad {
        return Err(Failure::Usage(format!(
            "'{}' is no name of a tool",
            name.display()
        )));
    }
    if bytes == b"substrate" {
        return Err(Failure::Usage(
            "substrate needs no shim in front of itself".to_owned(),
        ));
    }
    Ok(())
}

/// Replaces a file at once, so that nobody runs half of it.
fn replace(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let aside = path.with_file_name(format!(".new.{}", std::process::id()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&aside)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written
}

fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    let what = format!("{what} {}", path.display());
    move |error| Failure::File { what, error }
}
