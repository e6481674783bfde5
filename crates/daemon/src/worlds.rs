//! Worlds as clients see them.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use substrate_api::errors::{Code, Problem};
use substrate_api::service::{Ended, World, WorldRequest};
use substrate_api::{Bytes, VERSION};
use substrate_broker::facts::Machine;
use substrate_broker::{Broker, Caller};
use substrate_warm::keep::Kept;
use substrate_warm::terms::Terms;

use crate::execute;
use crate::service::Service;
use crate::who;

/// Every world that is kept, the oldest first.
pub(crate) fn list(service: &Service) -> Vec<World> {
    let mut all = service.keeper.list();
    all.sort_by_key(|kept| kept.made());
    all.iter().map(tell).collect()
}

fn tell(kept: &Arc<Kept>) -> World {
    let terms = kept.terms();
    let (running, served) = kept.uses();
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let path = |path: &std::path::PathBuf| Bytes::from(path.clone().into_os_string());
    let limits = &terms.spec.limits;
    World {
        id: kept.world().id.to_string(),
        agent_id: terms.agent.clone(),
        project: terms.spec.project.as_ref().map(path),
        policy: terms.spec.policy_id.clone(),
        level: kept.enforced().level.as_str().to_owned(),
        write: terms.spec.write.iter().map(path).collect(),
        limits: limits.words(),
        running: running as u64,
        served,
        age_ms: SystemTime::now()
            .duration_since(kept.made())
            .map_or(0, millis),
        idle_ms: kept
            .idle_since()
            .map(|since| millis(Instant::now().saturating_duration_since(since))),
    }
}

/// Makes the world of a session before it is needed.
pub(crate) fn warm(
    service: &Service,
    caller: Caller,
    request: &WorldRequest,
) -> Result<World, Problem> {
    execute::same_version(request.v)?;
    who::outside(&caller, "no world is kept for whoever a session encloses")?;
    let agent = match request.agent_id.as_deref() {
        None => execute::HUMAN.to_owned(),
        named => execute::agent_of(named)?,
    };
    let profile = execute::profile_of(request.profile.as_deref())?;
    let cwd = execute::directory(service, request.cwd.as_ref())?;
    let options = execute::options(service, caller, profile.as_deref(), cwd.clone());
    let failed = |error: String| Problem::new(Code::Failed, error);
    let broker =
        Broker::open(service.home.clone(), options).map_err(|error| failed(error.to_string()))?;
    if !broker.reuses_worlds() {
        let text = "the policy in use runs commands in no world that is kept";
        return Err(Problem::new(Code::Conflict, text)
            .hint("world.enabled and world.reuse_session decide, see docs/service.md"));
    }
    let facts = Machine::new(&cwd, &cwd, &service.home, std::ffi::OsStr::new(""));
    let spec = broker.world_spec(&facts);
    let terms = Terms::of(&broker, &spec, &agent)
        .ok_or_else(|| failed("no world can be kept on such terms".to_owned()))?;
    let used = service.keeper.world(&terms);
    let used = used.map_err(|error| Problem::new(Code::Busy, error.to_string()))?;
    Ok(tell(used.kept()))
}

/// Ends worlds in which nothing runs: those of a project, or all.
pub(crate) fn restart(
    service: &Service,
    caller: &Caller,
    request: &WorldRequest,
) -> Result<Ended, Problem> {
    execute::same_version(request.v)?;
    who::outside(caller, "worlds cannot be ended from here")?;
    let agent = request.agent_id.as_deref();
    let mut ended = Vec::new();
    for kept in service.keeper.list() {
        let terms = kept.terms();
        let of_agent = agent.is_none_or(|agent| agent == terms.agent);
        let there = request.cwd.as_ref().is_none_or(|cwd| {
            let cwd = std::path::PathBuf::from(std::ffi::OsString::from(cwd.clone()));
            terms
                .spec
                .project
                .as_ref()
                .is_some_and(|project| cwd.starts_with(project))
        });
        if of_agent && there && kept.idle_since().is_some() {
            service.keeper.end(&kept);
            ended.push(kept.world().id.to_string());
        }
    }
    Ok(Ended { v: VERSION, ended })
}
