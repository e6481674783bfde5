//! A policy in memory: everything that its file says, resolved so far as it can be without knowing
//! the directory, and its byte form.

use std::net::IpAddr;

use substrate_command::{Action, Source};
use substrate_compiled::codec::{Decoder, Encoder};
use substrate_trace::{Mode, RuleRef, Verdict};

use crate::terms::{HomeMode, HostPattern, HostRule, Limits, OnFinish};

/// What every use of a policy needs, beside its command rules; a shim reads it in front of every tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// Its id.
    pub id: String,
    /// Whether refusals are carried out.
    pub mode: Mode,
    /// What holds for commands that no rule names.
    pub commands: CommandSettings,
    /// `approval.required`: what is not auto-approved is asked.
    pub require_approval: bool,
    /// `shims.allow_bypass`.
    pub allow_bypass: bool,
    /// `trace.redact`: further texts that are kept out of the trace.
    pub redact: Vec<String>,
}

/// What the effects of commands are judged by; not read for a command that has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EffectRules {
    /// Path rules.
    pub fs: FsRules,
    /// Host rules.
    pub net: NetRules,
    /// Rules over effects, in the order of their lists.
    pub effects: Vec<EffectRule>,
    /// Named path classes, without the `@`.
    pub classes: Vec<(String, Vec<String>)>,
    /// Rules over calls of tools.
    pub tools: ToolRules,
}

/// `tools`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolRules {
    /// Rules over names, in the order of their lists.
    pub rules: Vec<ToolRule>,
    /// The verdict on a tool that no rule allows and of which nobody says what it does.
    pub default: Miss,
    /// Where that stands.
    pub default_at: Option<PathEntry>,
}

/// A rule over the names of tools; its pattern is `rule.pattern`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRule {
    /// What it decides.
    pub verdict: Verdict,
    /// The rule as written, and where.
    pub rule: RuleRef,
}

/// The rest of a policy: what worlds, approvals and the trace need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Details {
    /// Its name for people.
    pub name: String,
    /// The files it was made of, the policy's own first.
    pub files: Vec<String>,
    /// SHA-256 over the files' contents, in hexadecimal.
    pub sha256: String,
    /// `world`.
    pub world: WorldSettings,
    /// `net.resolve`.
    pub resolve: Vec<(String, IpAddr)>,
    /// `net.egress_budget.bytes_per_sec`.
    pub bytes_per_sec: Option<u64>,
    /// `net.egress_budget.total_bytes`.
    pub total_bytes: Option<u64>,
    /// `net.dns.refresh_secs`.
    pub refresh_secs: u64,
    /// `approval.interactive`: a person may be asked.
    pub interactive: bool,
    /// `trace`.
    pub trace: TraceSettings,
    /// `privacy`.
    pub privacy: PrivacySettings,
    /// The merged document as JSON, for showing it.
    pub document: String,
}

/// A path pattern of a policy, with variables unresolved, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathEntry {
    /// The pattern as written.
    pub pattern: String,
    /// The file it stands in.
    pub file: String,
    /// The line.
    pub line: u32,
}

/// `fs`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FsRules {
    /// May be read.
    pub read: Vec<PathEntry>,
    /// May be written.
    pub write: Vec<PathEntry>,
    /// Taken away from both.
    pub hide: Vec<PathEntry>,
    /// Read-only inside what is writable.
    pub protect: Vec<PathEntry>,
    /// Put into worlds as they are.
    pub share: Vec<PathEntry>,
    /// What a read or write outside the lists is.
    pub outside: Miss,
}

/// `net`, as far as judgements need it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetRules {
    /// Hosts that may be reached.
    pub allowed: Vec<HostEntry>,
    /// Hosts that may not; beats `allowed`.
    pub denied: Vec<HostEntry>,
    /// What a host on neither list is.
    pub unlisted: Miss,
    /// The policy speaks of hosts at all.
    pub given: bool,
}

/// A host entry and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEntry {
    /// The rule, or `None` for a client set.
    pub rule: Option<HostRule>,
    /// The entry as written; a client set is `@npm`.
    pub written: String,
    /// The hosts that a client set stood for when the policy was compiled.
    pub members: Vec<HostRule>,
    /// The file it stands in.
    pub file: String,
    /// The line.
    pub line: u32,
}

/// The verdict on what a list does not mention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Miss {
    /// Refused.
    #[default]
    Deny,
    /// A person is asked.
    Ask,
    /// It runs in a fresh world.
    Isolate,
    /// It runs.
    Allow,
}

impl Miss {
    /// The verdict.
    pub fn verdict(self) -> Verdict {
        match self {
            Miss::Deny => Verdict::Deny,
            Miss::Ask => Verdict::Ask,
            Miss::Isolate => Verdict::Isolate,
            Miss::Allow => Verdict::Allow,
        }
    }

    /// The word used in policies.
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "deny" => Miss::Deny,
            "ask" => Miss::Ask,
            "isolate" => Miss::Isolate,
            "allow" => Miss::Allow,
            _ => return None,
        })
    }
}

/// `commands`, apart from the rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandSettings {
    /// What no rule matches.
    pub default: Miss,
    /// Where `default` (or, failing that, `allowed`) stands.
    pub default_at: Option<PathEntry>,
    /// `allowed` has entries, so a command must be on it.
    pub has_allowed: bool,
    /// Pipes, lists, redirections and substitutions may be used.
    pub allow_shell_operators: bool,
    /// A line that cannot be understood.
    pub on_unparsed: OnUnparsed,
    /// What a line starts that would be isolated on a line of its own.
    pub nested: Nested,
}

/// What becomes of a start below a line that would be isolated as a line of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nested {
    /// The world that the line runs in satisfies it.
    #[default]
    World,
    /// It is refused.
    Deny,
}

/// What to do with a line that cannot be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnUnparsed {
    /// Run it where the exec guard judges every start; elsewhere ask.
    #[default]
    Guard,
    /// Run it in a world.
    Isolate,
    /// Ask.
    Ask,
    /// Refuse.
    Deny,
}

/// A rule over effects; several steps are a flow through one pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRule {
    /// What it decides.
    pub verdict: Verdict,
    /// The rule as written, and where.
    pub rule: RuleRef,
    /// The effects, in the order of the flow.
    pub steps: Vec<EffectPattern>,
}

/// A pattern for one effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectPattern {
    /// What is done.
    pub action: Action,
    /// Only whole trees.
    pub recursive: bool,
    /// To what.
    pub object: ObjectPattern,
}

/// What an effect pattern means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectPattern {
    /// Anything.
    Any,
    /// A path, wildcards and variables allowed.
    Path(String),
    /// A named class of paths.
    Class(String),
    /// A path that `fs.write` (for reads: `fs.read`) does not cover.
    Outside,
    /// A host that `net.allowed` does not name.
    Unlisted,
    /// Something that only the run will tell.
    Dynamic,
    /// A named resource, wildcards allowed.
    Resource(String),
    /// Code from this source.
    Source(Source),
    /// A host.
    Host(HostRule),
}

/// `world`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorldSettings {
    /// When worlds are used.
    pub enabled: WorldSwitch,
    /// One world for the session.
    pub reuse_session: bool,
    /// Worlds have their own network.
    pub isolate_network: bool,
    /// Where isolated lines run in a session that has a world.
    pub isolated: IsolatedIn,
    /// What to do with isolated results.
    pub on_finish: OnFinish,
    /// `$HOME` outside `fs.write`.
    pub home: HomeMode,
    /// Unix sockets let in.
    pub sockets: Vec<String>,
    /// Ports reachable from the host's loopback.
    pub publish: Vec<u16>,
    /// Debuggers may run inside.
    pub allow_ptrace: bool,
    /// Further user namespaces may be made inside.
    pub allow_userns: bool,
    /// Resource limits.
    pub limits: Limits,
}

/// Where isolated lines run in a session that has a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IsolatedIn {
    /// In a fresh one, whose writes are held back.
    #[default]
    Fresh,
    /// In the session's, which satisfies them.
    Session,
}

/// When worlds are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorldSwitch {
    /// On in `enforce`.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never: line and shim layers only.
    Off,
}

/// `trace`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceSettings {
    /// Record which files a command changed.
    pub files: bool,
    /// Record output.
    pub output: OutputRecord,
    /// Take snapshots for replay.
    pub snapshot: Snapshots,
    /// Which judged program starts leave a span.
    pub execs: ExecRecord,
}

/// Which snapshots of a project are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Snapshots {
    /// Those that nobody feels.
    #[default]
    Auto,
    /// Also those that take a while.
    Full,
    /// None.
    Off,
}

/// What is recorded of a command's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputRecord {
    /// Nothing.
    #[default]
    Off,
    /// Length and keyed digest.
    Digest,
    /// A digest and a bounded copy.
    Bounded,
}

/// Which program starts inside a session leave a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExecRecord {
    /// Those that were denied.
    #[default]
    Denied,
    /// All of them.
    All,
    /// None.
    Off,
}

/// `privacy`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrivacySettings {
    /// Paths that are never indexed.
    pub ignore_paths: Vec<String>,
    /// Only code is hashed.
    pub hash_code_only: bool,
    /// Documents are indexed too.
    pub index_user_docs: bool,
}

/// A value with a byte form.
pub trait Coded: Sized {
    /// Writes it.
    fn put(&self, to: &mut Encoder);
    /// Reads it back.
    fn get(from: &mut Decoder<'_>) -> Option<Self>;
}

impl Coded for bool {
    fn put(&self, to: &mut Encoder) {
        to.bool(*self);
    }
    fn get(from: &mut Decoder<'_>) -> Option<Self> {
        from.bool()
    }
}

impl Coded for u32 {
    fn put(&self, to: &mut Encoder) {
        to.u32(*self);
    }
    fn get(from: &mut Decoder<'_>) -> Option<Self> {
        from.u32()
    }
}

impl Coded for u16 {
    fn put(&self, to: &mut Encoder) {
        to.u32(u32::from(*self));
    }
    fn get(from: &mut Decoder<'_>) -> Option<Self> {
        from.u32()?.try_into().ok()
    }
}

impl Coded for u64 {
    fn put(&self, to: &mut Encoder) {
        to.u64(*self);
    }
    fn get(from: &mut Decoder<'_>) -> Option<Self> {
        from.u64()
    }
}

impl Coded for String {
    fn put(&self, to: &mut Encoder) {
        to.text(self);
    }
    fn get(from: &mut Decoder<'_>) -> Option<Self> {
        from.text().map(str::to_owned)
    }
}

impl Coded for std::path::PathBuf {
    fn put(&self, to: &mut Encoder) {
        use std::os::unix::ffi::OsStrExt;
        to.bytes(self.as_os_str().as_bytes());
    }
    fn get(from: &mut Decoder<'_>) -> Option<Self> {
        use std::os::unix::ffi::OsStringExt;
        Some(std::ffi::OsString::from_vec(from.bytes()?.to_vec()).into())
    }
}

impl<T: Coded> Coded for Vec<T> {
    fn put(&self, to: &mut Encoder) {
        to.list(self, |to, item| item.put(to));
    }
    fn get(from: &mut Decoder<'_>) -> Option<Self> {
        from.list(T::get)
    }
}

impl<T: Coded> Coded for Option<T> {
    fn put(&self, to: &mut Encoder) {
        to.option(self.as_ref(), |to, value| value.put(to));
    }
    fn get(from: &mut Decoder<'_>) -> Option<Self> {
        from.option(T::get)
    }
}

impl<A: Coded, B: Coded> Coded for (A, B) {
    fn put(&self, to: &mut Encoder) {
        self.0.put(to);
        self.1.put(to);
    }
    fn get(from: &mut Decoder<'_>) -> Option<Self> {
        Some((A::get(from)?, B::get(from)?))
    }
}

impl Coded for IpAddr {
    fn put(&self, to: &mut Encoder) {
        to.text(&self.to_string());
    }
    fn get(from: &mut Decoder<'_>) -> Option<Self> {
        from.text()?.parse().ok()
    }
}

/// Gives a structure its byte form: the fields, in this order.
macro_rules! coded_struct {
    ($name:ident { $($field:ident),+ $(,)? } $(without $left:ident)?) => {
        impl Coded for $name {
            fn put(&self, to: &mut Encoder) {
                $(self.$field.put(to);)+
            }
            fn get(from: &mut Decoder<'_>) -> Option<Self> {
                Some(Self { $($field: Coded::get(from)?,)+ $($left: Default::default())? })
            }
        }
    };
}

/// Gives a plain enumeration its byte form: one byte, counted in this order.
macro_rules! coded_enum {
    ($name:ident [ $($variant:expr),+ $(,)? ]) => {
        impl Coded for $name {
            fn put(&self, to: &mut Encoder) {
                let all = [$($variant),+];
                let at = all.iter().position(|variant| variant == self).unwrap_or(usize::from(u8::MAX));
                to.u8(u8::try_from(at).unwrap_or(u8::MAX));
            }
            fn get(from: &mut Decoder<'_>) -> Option<Self> {
                [$($variant),+].get(usize::from(from.u8()?)).copied()
            }
        }
    };
}

coded_struct!(Settings {
    id,
    mode,
    commands,
    require_approval,
    allow_bypass,
    redact
});
coded_struct!(EffectRules {
    fs,
    net,
    effects,
    classes,
    tools
});
coded_struct!(ToolRules {
    rules,
    default,
    default_at
});
coded_struct!(ToolRule { verdict, rule });
coded_struct!(Details {
    name,
    files,
    sha256,
    world,
    resolve,
    bytes_per_sec,
    total_bytes,
    refresh_secs,
    interactive,
    trace,
    privacy,
    document,
});
coded_struct!(PathEntry {
    pattern,
    file,
    line
});
coded_struct!(FsRules {
    read,
    write,
    hide,
    protect,
    share,
    outside
});
coded_struct!(NetRules {
    allowed,
    denied,
    unlisted,
    given
});
coded_struct!(HostEntry {
    rule,
    written,
    members,
    file,
    line
});
coded_struct!(HostRule {
    written,
    host,
    ports,
    internal
});
coded_struct!(CommandSettings {
    default,
    default_at,
    has_allowed,
    allow_shell_operators,
    on_unparsed,
    nested
});
coded_struct!(EffectRule {
    verdict,
    rule,
    steps
});
coded_struct!(RuleRef {
    list,
    pattern,
    file,
    line,
    reason
} without policy);
coded_struct!(EffectPattern {
    action,
    recursive,
    object
});
coded_struct!(WorldSettings {
    enabled,
    reuse_session,
    isolate_network,
    isolated,
    on_finish,
    home,
    sockets,
    publish,
    allow_ptrace,
    allow_userns,
    limits,
});
coded_struct!(Limits {
    cpu_milli,
    memory,
    pids,
    seconds,
    tokens
});
coded_struct!(TraceSettings {
    files,
    output,
    snapshot,
    execs
});
coded_struct!(PrivacySettings {
    ignore_paths,
    hash_code_only,
    index_user_docs
});
coded_enum!(Mode [Mode::Observe, Mode::Enforce]);
coded_enum!(Verdict [Verdict::Allow, Verdict::Isolate, Verdict::Ask, Verdict::Deny]);
coded_enum!(Miss [Miss::Deny, Miss::Ask, Miss::Isolate, Miss::Allow]);
coded_enum!(OnUnparsed [OnUnparsed::Guard, OnUnparsed::Isolate, OnUnparsed::Ask, OnUnparsed::Deny]);
coded_enum!(Nested [Nested::World, Nested::Deny]);
coded_enum!(IsolatedIn [IsolatedIn::Fresh, IsolatedIn::Session]);
coded_enum!(WorldSwitch [WorldSwitch::Auto, WorldSwitch::On, WorldSwitch::Off]);
coded_enum!(OutputRecord [OutputRecord::Off, OutputRecord::Digest, OutputRecord::Bounded]);
coded_enum!(Snapshots [Snapshots::Auto, Snapshots::Full, Snapshots::Off]);
coded_enum!(ExecRecord [ExecRecord::Denied, ExecRecord::All, ExecRecord::Off]);
coded_enum!(HomeMode [HomeMode::Overlay, HomeMode::ReadOnly]);
coded_enum!(OnFinish [OnFinish::Ask, OnFinish::Keep, OnFinish::Apply, OnFinish::Discard]);

impl Coded for Action {
    fn put(&self, to: &mut Encoder) {
        to.text(self.name());
    }
    fn get(from: &mut Decoder<'_>) -> Option<Self> {
        Action::from_name(from.text()?)
    }
}

impl Coded for Source {
    fn put(&self, to: &mut Encoder) {
        to.text(self.name());
    }
    fn get(from: &mut Decoder<'_>) -> Option<Self> {
        Source::from_name(from.text()?)
    }
}

impl Coded for HostPattern {
    fn put(&self, to: &mut Encoder) {
        match self {
            HostPattern::Any => to.u8(0),
            HostPattern::Name(name) => {
                to.u8(1);
                to.text(name);
            }
            HostPattern::Below(name) => {
                to.u8(2);
                to.text(name);
            }
            HostPattern::Network(address, bits) => {
                to.u8(3);
                address.put(to);
                to.u8(*bits);
            }
            HostPattern::HostLoopback => to.u8(4),
        }
    }
    fn get(from: &mut Decoder<'_>) -> Option<Self> {
        Some(match from.u8()? {
            0 => HostPattern::Any,
            1 => HostPattern::Name(Coded::get(from)?),
            2 => HostPattern::Below(Coded::get(from)?),
            3 => HostPattern::Network(Coded::get(from)?, from.u8()?),
            4 => HostPattern::HostLoopback,
            _ => return None,
        })
    }
}

impl Coded for ObjectPattern {
    fn put(&self, to: &mut Encoder) {
        let (tag, text) = match self {
            ObjectPattern::Any => (0, None),
            ObjectPattern::Path(path) => (1, Some(path)),
            ObjectPattern::Class(name) => (2, Some(name)),
            ObjectPattern::Outside => (3, None),
            ObjectPattern::Unlisted => (4, None),
            ObjectPattern::Dynamic => (5, None),
            ObjectPattern::Resource(name) => (6, Some(name)),
            ObjectPattern::Source(source) => {
                to.u8(7);
                return source.put(to);
            }
            ObjectPattern::Host(rule) => {
                to.u8(8);
                return rule.put(to);
            }
        };
        to.u8(tag);
        if let Some(text) = text {
            to.text(text);
        }
    }
    fn get(from: &mut Decoder<'_>) -> Option<Self> {
        Some(match from.u8()? {
            0 => ObjectPattern::Any,
            1 => ObjectPattern::Path(Coded::get(from)?),
            2 => ObjectPattern::Class(Coded::get(from)?),
            3 => ObjectPattern::Outside,
            4 => ObjectPattern::Unlisted,
            5 => ObjectPattern::Dynamic,
            6 => ObjectPattern::Resource(Coded::get(from)?),
            7 => ObjectPattern::Source(Coded::get(from)?),
            8 => ObjectPattern::Host(Coded::get(from)?),
            _ => return None,
        })
    }
}
