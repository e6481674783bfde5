//! Who asks for a subcommand: this process, started by whoever started it, or a person at a prompt of
//! ours, whose line the front end carries out for him. Where he is, what his shell's variables are and
//! what he may change are questions about him.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::working_directory::working_directory;
use substrate_broker::enclosure::{Ancestor, OwnHome, Trace};
use substrate_broker::env::{SUBSTRATE_HOME, SUBSTRATE_WORLD};
use substrate_broker::{Broker, BrokerError, Caller, Choice, Home, Options, person};
use substrate_sys::environment;

use crate::args;
use crate::ask;
use crate::clients;
use crate::failure::Failure;

/// Who asks.
pub struct Asker {
    /// As the kernel knows him.
    caller: Caller,
    /// Our environment.
    env: Vec<CString>,
    /// He typed the line at a prompt of ours.
    typed: Option<Typed>,
}

/// A whole line that was typed at a prompt of ours.
struct Typed {
    /// Where the shell behind the prompt is.
    cwd: PathBuf,
    /// The variables of that shell that are taken over.
    shell: Vec<(OsString, OsString)>,
}

/// What a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// A person at a terminal: approvals and trust.
    Person,
    /// No session around us, and a person unless `--yes` was given: setting up.
    Outside {
        /// `--yes`.
        yes: bool,
    },
}

impl Asker {
    /// Whoever started this process.
    pub fn own() -> Asker {
        Asker::with(environment::raw())
    }

    /// The same with this environment in place of ours.
    pub fn with(env: Vec<CString>) -> Asker {
        Asker {
            caller: Caller::own(),
            env,
            typed: None,
        }
    }

    /// A person at a prompt of ours, in this directory of the shell behind it, with these of its variables.
    pub fn at_a_prompt(cwd: &Path, shell: Vec<(OsString, OsString)>) -> Asker {
        let typed = Typed {
            cwd: cwd.to_owned(),
            shell,
        };
        Asker {
            typed: Some(typed),
            ..Asker::own()
        }
    }

    /// Refuses with a sentence when the command may not be carried out for him.
    pub fn require(&self, needs: Needs) -> Result<(), Failure> {
        if self.typed.is_some() {
            // A line at the prompt is a person's word, unless a program could have typed it.
            return match ask::typed_by_a_person()? {
                true => Ok(()),
                false => Err(Failure::Refused("nothing was changed".to_owned())),
            };
        }
        let barrier = match needs {
            Needs::Person => person::barrier(&self.caller),
            Needs::Outside { yes } => self
                .caller
                .enclosure()
                .map(person::Barrier::Enclosed)
                .or_else(|| if yes { None } else { person::no_terminal() }),
        };
        let Some(barrier) = barrier else {
            return Ok(());
        };
        let hint = match (needs, barrier) {
            (Needs::Outside { .. }, person::Barrier::NoTerminal) => "; `--yes` goes on without one",
            _ => "",
        };
        Err(Failure::Refused(format!(
            "nothing was changed: {barrier}{hint}"
        )))
    }

    /// The session around him.
    pub fn enclosure(&self) -> Option<Trace> {
        self.caller.enclosure()
    }

    /// Whether programs of his choice, such as a pager or a browser, may be started: what runs below a
    /// session would start them past the policy.
    pub fn free(&self) -> bool {
        self.typed.is_some() || self.caller.enclosure().is_none()
    }

    /// Whether he typed the line at a prompt of ours.
    pub fn is_at_a_prompt(&self) -> bool {
        self.typed.is_some()
    }

    /// Variables of the shell that he typed at, for programs that are started on his behalf.
    pub fn shell_variables(&self) -> Vec<(OsString, OsString)> {
        let typed = self.typed.as_ref();
        typed.map_or_else(Vec::new, |typed| typed.shell.clone())
    }

    /// A variable, as his shell has it, else as we have it.
    pub fn variable(&self, name: &str) -> Option<OsString> {
        let mut shell = self.typed.iter().flat_map(|typed| &typed.shell);
        let told = shell.find(|(known, _)| known == name);
        let told = told.map(|(_, value)| value.clone());
        told.or_else(|| self.own_variable(name).map(ToOwned::to_owned))
    }

    fn own_variable(&self, name: &str) -> Option<&OsStr> {
        environment::get(&self.env, name).map(OsStr::from_bytes)
    }

    /// Where he is.
    pub fn cwd(&self) -> Result<PathBuf, Failure> {
        match &self.typed {
            Some(typed) => Ok(typed.cwd.clone()),
            None => Ok(working_directory(&self.env).map_err(BrokerError::Cwd)?),
        }
    }

    /// A path that he wrote, seen from where we are.
    pub fn path(&self, written: &Path) -> PathBuf {
        match &self.typed {
            Some(typed) => typed.cwd.join(written),
            None => written.to_owned(),
        }
    }

    /// The same, absolute.
    pub fn absolute(&self, written: &Path) -> Result<PathBuf, Failure> {
        Ok(std::path::absolute(self.path(written))?)
    }

    /// The policy that he named.
    pub fn choice(&self, written: &OsStr) -> Choice {
        match Choice::parse(written) {
            Choice::File(path) => Choice::File(self.path(&path)),
            choice => choice,
        }
    }

    /// Whether what he sees on standard output takes colours.
    pub fn colours(&self) -> bool {
        use std::io::IsTerminal;
        let set = |name: &str| self.variable(name).is_some_and(|value| !value.is_empty());
        let dumb = self.variable("TERM").is_none_or(|term| term == "dumb");
        std::io::stdout().is_terminal() && !set("NO_COLOR") && !dumb
    }

    /// The broker for a policy, or for the one in use.
    pub fn broker(&self, policy: Option<OsString>) -> Result<Broker, Failure> {
        self.broker_at(policy, false, &self.cwd()?)
    }

    /// The same for a session that starts in this directory, where everything may need an approval.
    pub fn broker_at(
        &self,
        policy: Option<OsString>,
        require_approval: bool,
        start: &Path,
    ) -> Result<Broker, Failure> {
        let around = self.caller.ancestors();
        let home = self.home_below(&around)?;
        let choice = policy.map_or(Choice::Active, |policy| self.choice(&policy));
        let options = self.options(choice, ceilings(&around), require_approval, start);
        let broker = Broker::open(home, options.clone())?;
        self.with_clients(broker, |home| Broker::open(home, options))
    }

    /// The same broker, or one that knows the hosts of package clients that its policy names and nobody
    /// has asked yet. What a session encloses asks nobody: programs of its choice would be started.
    fn with_clients(
        &self,
        broker: Broker,
        again: impl FnOnce(Home) -> Result<Broker, BrokerError>,
    ) -> Result<Broker, Failure> {
        let wanted = clients::unknown(&broker);
        if !wanted || self.caller.enclosure().is_some() || clients::learn(broker.home()).is_err() {
            return Ok(broker);
        }
        Ok(again(broker.home().clone())?)
    }

    /// The broker for somebody who must get a prompt, whatever state his home and policy are in. What is
    /// wrong with them is told.
    pub fn broker_for_a_prompt(
        &self,
        require_approval: bool,
        cwd: &Path,
        tell: &dyn Fn(&str),
    ) -> Result<Broker, Failure> {
        let home = Home::find(
            self.own_variable(SUBSTRATE_HOME),
            self.own_variable("HOME"),
            || false,
        )
        .unwrap_or_else(|none| {
            tell(&BrokerError::from(none).to_string());
            // A directory that by convention never exists.
            Home {
                path: PathBuf::from("/nonexistent/.substrate"),
                user: PathBuf::from("/"),
            }
        });
        let options = self.options(Choice::Active, Vec::new(), require_approval, cwd);
        let broker = Broker::open_for_a_person(home, options.clone())?;
        self.with_clients(broker, |home| Broker::open_for_a_person(home, options))
    }

    fn options(
        &self,
        choice: Choice,
        ceilings: Vec<Choice>,
        require_approval: bool,
        cwd: &Path,
    ) -> Options {
        Options {
            choice,
            ceilings,
            require_approval,
            world: self.own_variable(SUBSTRATE_WORLD).map(ToOwned::to_owned),
            home_variable: self.own_variable("HOME").map(ToOwned::to_owned),
            unattended: self.is_unattended(),
            session_start: cwd.to_owned(),
            caller: self.caller.clone(),
        }
    }

    /// Whether a service for logins (ssh, cron) has started us for somebody who sees nothing but a status and, at
    /// best, what a protocol passes on.
    fn is_unattended(&self) -> bool {
        let shell = self.own_variable("SHELL").map(Path::new);
        let own = std::env::current_exe().ok();
        let name = own.as_deref().and_then(Path::file_name);
        let login_shell = name.is_some() && shell.and_then(Path::file_name) == name;
        login_shell && self.typed.is_none() && std::fs::File::open("/dev/tty").is_err()
    }

    /// Whether a world is around whoever asks.
    pub fn is_in_world(&self) -> bool {
        self.caller.is_in_world()
    }

    /// Substrate's home, found without a policy: a broken one must not keep anybody from it.
    pub fn home(&self) -> Result<Home, Failure> {
        self.home_below(&self.caller.ancestors())
    }

    fn home_below(&self, around: &[Ancestor]) -> Result<Home, Failure> {
        let own = OwnHome {
            substrate: self.own_variable(SUBSTRATE_HOME),
            user: self.own_variable("HOME"),
        };
        let home = self.caller.home(around, own);
        Ok(home.map_err(BrokerError::from)?)
    }
}

/// The policies of the sessions around somebody.
pub fn ceilings(around: &[Ancestor]) -> Vec<Choice> {
    let mut ceilings: Vec<Choice> = Vec::new();
    for ancestor in around {
        let policy = args::policy_of(&ancestor.arguments);
        let around = match policy.map(|policy| Choice::parse(&policy)) {
            Some(Choice::File(path)) => Choice::File(ancestor.cwd.join(path)),
            Some(choice) => choice,
            None => Choice::Active,
        };
        if !ceilings.contains(&around) {
            ceilings.push(around);
        }
    }
    ceilings
}
