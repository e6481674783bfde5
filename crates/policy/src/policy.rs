//! A compiled policy, opened.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use substrate_command::codec::decode_part;
use substrate_command::packed::Packed;
use substrate_command::{Models, Tool};
use substrate_compiled::codec::Decoder;
use substrate_compiled::rules::RuleTable;
use substrate_compiled::{Compiled, Reject, Section};

use crate::settings::{Coded, Details, EffectRules, Settings};

/// The bytes of a compiled policy: read into memory or mapped.
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// The lists that command rules stand in, by their number in the compiled form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// `commands.denied`
    Denied,
    /// `commands.ask`
    Ask,
    /// `commands.isolated`
    Isolated,
    /// `commands.allowed`
    Allowed,
    /// `approval.auto_approve`
    AutoApprove,
    /// `commands.direct`
    Direct,
}

impl List {
    /// All lists.
    pub const ALL: [List; 6] = [
        List::Denied,
        List::Ask,
        List::Isolated,
        List::Allowed,
        List::AutoApprove,
        List::Direct,
    ];

    /// Its name in rule references.
    pub fn name(self) -> &'static str {
        match self {
            List::Denied => "commands.denied",
            List::Ask => "commands.ask",
            List::Isolated => "commands.isolated",
            List::Allowed => "commands.allowed",
            List::AutoApprove => "approval.auto_approve",
            List::Direct => "commands.direct",
        }
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// A policy that can judge.
#[derive(Clone)]
pub struct Policy {
    file: Compiled<Shared>,
    settings: Arc<Settings>,
    effects: OnceLock<Arc<EffectRules>>,
    details: OnceLock<Arc<Details>>,
    damaged: Arc<AtomicBool>,
}

#[derive(Clone)]
struct Shared(Bytes);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy")
            .field("id", &self.settings.id)
            .finish_non_exhaustive()
    }
}

impl Policy {
    /// Opens a compiled policy; whatever is wrong with the bytes, the answer is a refusal.
    pub fn open(bytes: Bytes) -> Result<Self, Reject> {
        let file = Compiled::open(Shared(bytes))?;
        let settings = Settings::get(&mut Decoder::new(file.section(Section::Settings)?))
            .ok_or(Reject::Damaged)?;
        RuleTable::open(file.section(Section::Rules)?).ok_or(Reject::Damaged)?;
        Ok(Self {
            file,
            settings: Arc::new(settings),
            effects: OnceLock::new(),
            details: OnceLock::new(),
            damaged: Arc::default(),
        })
    }

    /// What every use of it needs.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What effects are judged by.
    pub fn effects(&self) -> Result<Arc<EffectRules>, Reject> {
        self.lazily(&self.effects, Section::Effects)
    }

    /// What worlds, approvals and the trace need.
    pub fn details(&self) -> Result<Arc<Details>, Reject> {
        self.lazily(&self.details, Section::Full)
    }

    /// Reads a section when it is first asked for.
    fn lazily<T: Coded>(
        &self,
        known: &OnceLock<Arc<T>>,
        section: Section,
    ) -> Result<Arc<T>, Reject> {
        if let Some(value) = known.get() {
            return Ok(value.clone());
        }
        let bytes = self.file.section(section)?;
        let value = Arc::new(T::get(&mut Decoder::new(bytes)).ok_or(Reject::Damaged)?);
        Ok(known.get_or_init(|| value).clone())
    }

    /// The files that it was made from, as they were then.
    pub fn stamp(&self) -> Result<&[u8], Reject> {
        self.file.section(Section::Stamp)
    }

    /// Whether a tool model could not be read, so that what was judged since may be too mild.
    pub fn damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Whether rules or a model are about programs of this name.
    pub fn speaks_of(&self, name: &[u8]) -> bool {
        self.rules().is_none_or(|rules| rules.names(name))
            || !matches!(self.file.tool(name), Ok(None))
    }

    /// The command rules. `open` has checked the section.
    pub(crate) fn rules(&self) -> Option<RuleTable<'_>> {
        self.file
            .checked_before(Section::Rules)
            .ok()
            .and_then(RuleTable::open)
    }
}

impl Models for Policy {
    fn tool(&self, name: &[u8]) -> Option<Tool> {
        let found = match self.file.tool(name) {
            Ok(None) => return None,
            Ok(Some(blob)) => decode_part(&Packed::part(&self.file.bytes().0, blob)),
            Err(_) => None,
        };
        if found.is_none() {
            self.damaged.store(true, Ordering::Relaxed);
        }
        found
    }
}
