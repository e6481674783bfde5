//! `substrate world warm` and `restart`: worlds that the service keeps.

use substrate_api::service::{Ended, World, WorldRequest};
use substrate_api::{Bytes, VERSION, client};
use substrate_broker::Home;

use crate::asker::Asker;
use crate::failure::Failure;
use crate::out;
use crate::service;

fn request(asker: &Asker, agent: Option<&str>, here: bool) -> Result<WorldRequest, Failure> {
    let cwd = asker.cwd()?.into_os_string();
    Ok(WorldRequest {
        v: VERSION,
        agent_id: agent.map(ToOwned::to_owned),
        cwd: here.then(|| Bytes::from(cwd)),
        profile: None,
    })
}

/// Makes the world of this project before it is needed.
pub fn warm(asker: &Asker, home: &Home, agent: Option<&str>) -> Result<(), Failure> {
    let stream = service::connect(&home.path)?;
    let request = request(asker, agent, true)?;
    let world: World = client::post(stream, "/v1/worlds/warm", &request)?;
    Ok(out::print(&format!("{} is there\n", world.id))?)
}

/// Ends those of this project, or all.
pub fn restart(asker: &Asker, home: &Home, all: bool) -> Result<(), Failure> {
    let Some(stream) = service::find(&home.path)? else {
        return Ok(out::print(
            "the service does not run, so no world is kept\n",
        )?);
    };
    let request = request(asker, None, !all)?;
    let ended: Ended = client::post(stream, "/v1/worlds/restart", &request)?;
    let count = ended.ended.len();
    Ok(out::print(&format!(
        "{count} worlds were ended; the next command makes a new one\n"
    ))?)
}
