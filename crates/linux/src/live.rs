//! A world that lives.

use std::path::PathBuf;

use substrate_changes::pending::Pending;
use substrate_egress::network::Network;
use substrate_init::launch::{Command, Init};
use substrate_policy::terms::WorldSpec;
use substrate_trace::{Enforced, WorldId};
use substrate_world::backend::{ExecJob, PutAside};
use substrate_world::error::WorldError;

use crate::guard::Guard;
use crate::host_file::Stream;
use crate::inside::Inside;
use crate::kept_out::KeptOut;
use crate::layout::Layout;
use crate::limits::Group;
use crate::start::{Asked, Prepared};
use crate::streams::Carried;

/// A world that lives, and all that belongs to it. The order of the fields is the order in
/// which they go: processes first, then what they used.
pub struct Live {
    /// Its id.
    pub id: WorldId,
    /// Its first process.
    pub init: Init,
    /// Who judges what is started in it.
    pub guard: Option<Guard>,
    /// What it serves.
    pub network: Option<Box<dyn Network>>,
    /// Its limits.
    pub group: Option<Group>,
    /// Its held writes.
    pub pending: Option<Pending>,
    /// What really holds it.
    pub enforced: Enforced,
    /// The terms it was made from.
    pub spec: WorldSpec,
    /// Where a directory of the host is found inside, when that is elsewhere.
    pub moved: Vec<(PathBuf, PathBuf)>,
    /// Directories that belong to nothing else and go with it.
    pub scratch: Option<PathBuf>,
    /// Its places.
    pub layout: Layout,
    /// Files of the host that its first command has as streams.
    pub streams: Vec<Stream>,
    /// The command that it was made for, when that was asked for already.
    pub first: Option<Result<Asked, WorldError>>,
    /// What is to be done about streams when it has ended.
    pub carried: Carried,
    /// Protected names that nothing has yet.
    pub kept_out: Option<KeptOut>,
}

impl Live {
    /// Starts a command in it.
    pub(crate) fn start(&self, job: ExecJob<'_>) -> Result<(Command, Carried), WorldError> {
        let prepared = Prepared::new(&self.inside(), job)?;
        let asked = prepared.ask(&|parts, fds| self.init.ask(parts, fds))?;
        asked.started()
    }

    /// What was put aside since it was made.
    pub(crate) fn put_aside(&self) -> Vec<PutAside> {
        self.kept_out.as_ref().map_or_else(Vec::new, KeptOut::sweep)
    }

    fn inside(&self) -> Inside<'_> {
        Inside {
            world: self.id,
            level: self.enforced.level,
            layout: &self.layout,
            streams: &self.streams,
            moved: &self.moved,
            scratch: self.scratch.as_deref(),
            gated: self.network.is_some(),
            substrate_home: &self.spec.substrate_home,
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // What was written reaches its file before the owner goes on or ends.
        let _ = self.init.kill();
        self.carried.finish();
        if let Some(scratch) = &self.scratch {
            let _ = substrate_changes::remove::remove_path(scratch);
        }
    }
}
