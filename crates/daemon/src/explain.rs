//! What would become of a command.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use serde_json::{Map, Value};
use substrate_api::errors::{Code, Problem};
use substrate_api::explain::ExplainRequest;
use substrate_broker::{Around, Broker, Caller, Input, Moment, Origin, Request, explained};
use substrate_sys::environment;

use crate::execute::{agent_of, bad, directory, options, profile_of, same_version};
use crate::service::Service;

/// Judges a command as it would be judged for this client, and answers the document of `policy explain --json`.
pub(crate) fn explain(
    service: &Service,
    caller: Caller,
    request: &ExplainRequest,
) -> Result<Value, Problem> {
    same_version(request.v)?;
    agent_of(request.agent_id.as_deref())?;
    let profile = profile_of(request.profile.as_deref())?;
    let cwd = directory(service, request.cwd.as_ref())?;
    let argv: Vec<OsString> = request
        .argv
        .iter()
        .flatten()
        .cloned()
        .map(OsString::from)
        .collect();
    let input = match (&request.cmd, argv.is_empty()) {
        (Some(line), true) if !line.as_slice().is_empty() => Input::Line(line.as_slice()),
        (None, false) => Input::Argv(&argv),
        _ => return Err(bad("either `cmd`, a line, or `argv`, a list, is expected")),
    };
    let options = options(service, caller, profile.as_deref(), cwd.clone());
    let failed = |error: &dyn std::fmt::Display| Problem::new(Code::Failed, error.to_string());
    let broker = Broker::open(service.home.clone(), options).map_err(|error| failed(&error))?;
    let env = service.environment();
    let path = environment::get(&env, "PATH").unwrap_or_default();
    let asked = Request {
        input,
        origin: Origin::OneShot,
        cwd: &cwd,
        search_path: OsStr::from_bytes(path),
        variables: &[],
        aliases: &[],
        isolate: false,
        around: Around::Nothing,
    };
    let explanation = broker.explain(&asked, &Moment::default());
    let mut document = Vec::new();
    explained::write(&Map::new(), &explanation, &mut document).map_err(|error| failed(&error))?;
    serde_json::from_slice(&document).map_err(|error| failed(&error))
}
