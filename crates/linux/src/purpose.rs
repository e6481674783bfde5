//! What a new world is for.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use substrate_changes::pending::{NewPending, Pending};
use substrate_policy::terms::WorldSpec;
use substrate_starts::ExecJudge;
use substrate_trace::WorldId;
use substrate_world::backend::ExecJob;
use substrate_world::error::WorldError;

use crate::layout::{Placement, What};

/// What a new world is for.
pub struct Purpose<'a> {
    /// The terms.
    pub spec: &'a WorldSpec,
    /// Whether writes are held back.
    pub placement: Placement,
    /// The span, for pending results.
    pub span: String,
    /// The command line, for pending results.
    pub line: OsString,
    /// Where the command starts, for pending results.
    pub cwd: PathBuf,
    /// Files of the host that the first command has as streams.
    pub streams: Vec<PathBuf>,
    /// The command that it is made for.
    pub first: Option<ExecJob<'a>>,
    /// Judges every program start inside.
    pub judge: Option<Arc<dyn ExecJudge>>,
    /// What an earlier world left, to be worked on.
    pub again: Option<&'a Pending>,
    /// What the caller does before a command starts, at the latest; false when none must. Called for
    /// every attempt at the world.
    pub begin: RefCell<&'a mut dyn FnMut() -> bool>,
}

impl Purpose<'_> {
    /// Where writes to these places are held back; nothing where none are.
    pub(crate) fn pending<'a>(
        &self,
        id: WorldId,
        mut places: impl Iterator<Item = &'a What>,
    ) -> Result<Option<Pending>, WorldError> {
        if let Some(earlier) = self.again {
            return Ok(Some(earlier.clone()));
        }
        if !places.any(|what| matches!(what, What::Held { .. })) {
            return Ok(None);
        }
        let new = NewPending {
            world_id: id.to_string(),
            span_id: self.span.clone(),
            policy_id: self.spec.policy_id.clone(),
            cwd: self.cwd.clone(),
            cmd: self.line.clone(),
        };
        Ok(Some(Pending::create(&self.spec.substrate_home, new)?))
    }
}
