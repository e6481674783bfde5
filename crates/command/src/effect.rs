//! What a command does to the world around it.

use crate::word::Word;

/// The resource that stands for whatever a program without a model does.
pub const UNKNOWN: &str = "unknown";

/// The kinds of effect that policies speak of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Reads a file.
    Read,
    /// Creates or changes a file.
    Write,
    /// Removes a file, a directory or a named resource.
    Delete,
    /// Changes mode, owner or attributes.
    Chmod,
    /// Opens a connection to a host.
    Connect,
    /// Accepts connections.
    Listen,
    /// Starts a program that is not judged as an invocation of its own.
    Exec,
    /// Runs code that the command line does not show.
    RunCode,
    /// Gains rights that the caller did not have.
    Privilege,
    /// Looks at names, sizes and dates, not at what is in a file.
    List,
}

impl Action {
    /// All actions, in the order of their names in policies.
    pub const ALL: [Action; 10] = [
        Action::Read,
        Action::Write,
        Action::Delete,
        Action::Chmod,
        Action::Connect,
        Action::Listen,
        Action::Exec,
        Action::RunCode,
        Action::Privilege,
        Action::List,
    ];

    /// The name used in policies, tool models and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Action::Read => "read",
            Action::Write => "write",
            Action::Delete => "delete",
            Action::Chmod => "chmod",
            Action::Connect => "connect",
            Action::Listen => "listen",
            Action::Exec => "exec",
            Action::RunCode => "run_code",
            Action::Privilege => "privilege",
            Action::List => "list",
        }
    }

    /// The action of that name.
    pub fn from_name(name: &str) -> Option<Action> {
        Action::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// Where code that runs comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Written in the command line itself, in a language we do not read (`python -c`).
    Inline,
    /// A file that the command names.
    File,
    /// Standard input whose producer is unknown or a local file.
    Stdin,
    /// Downloaded in the same line (`curl … | sh`).
    Network,
    /// An environment variable that makes a program run something.
    Environment,
    /// A package's own install scripts.
    Package,
    /// Decoded or decrypted in the same line (`base64 -d | sh`).
    Decoded,
    /// Text that only exists at run time (`eval "$x"`).
    Dynamic,
}

impl Source {
    /// All sources, in the order of their names in policies.
    pub const ALL: [Source; 8] = [
        Source::Inline,
        Source::File,
        Source::Stdin,
        Source::Network,
        Source::Environment,
        Source::Package,
        Source::Decoded,
        Source::Dynamic,
    ];

    /// The name used in policies and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Source::Inline => "inline",
            Source::File => "file",
            Source::Stdin => "stdin",
            Source::Network => "network",
            Source::Environment => "environment",
            Source::Package => "package",
            Source::Decoded => "decoded",
            Source::Dynamic => "dynamic",
        }
    }

    /// The source of that name.
    pub fn from_name(name: &str) -> Option<Source> {
        Source::ALL.into_iter().find(|source| source.name() == name)
    }
}

/// What an effect is done to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A path as written; relative ones are meant from the invocation's directory.
    Path(Word),
    /// A host; the port is known when the scheme, option or operand gives it.
    Host {
        /// Host name or address, without brackets, as written.
        host: Word,
        /// Port, when the command line fixes it.
        port: Option<u16>,
    },
    /// A port that is listened on.
    Port(Option<u16>),
    /// Code, by where it comes from; the word names the file or text where there is one.
    Code(Source, Word),
    /// Something that is neither file nor host, by the class that tool models name:
    /// `git-history`, `git-worktree`, `remote`, `cloud`, `cluster`, `container`, `database`,
    /// `package-registry`, `service`, `schedule`, `disk`, `process`, `user`, `firewall`, `system`.
    Resource(String),
    /// Nothing in particular (`sudo` raising privilege).
    Unspecified,
}

/// One effect of an invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// What is done.
    pub action: Action,
    /// To what.
    pub object: Object,
    /// Whether a whole tree is meant.
    pub recursive: bool,
}

impl Effect {
    /// A plain effect.
    pub fn new(action: Action, object: Object) -> Self {
        Self {
            action,
            object,
            recursive: false,
        }
    }

    /// Whatever a program does that has no model.
    pub fn unknown_program() -> Self {
        Self::new(Action::Exec, Object::Resource(UNKNOWN.to_owned()))
    }

    /// Whether it only says that nobody has described the program.
    pub fn is_unknown_program(&self) -> bool {
        self.action == Action::Exec
            && matches!(&self.object, Object::Resource(name) if name == UNKNOWN)
    }

    /// An effect on a path.
    pub fn path(action: Action, path: Word) -> Self {
        Self::new(action, Object::Path(path))
    }
}
