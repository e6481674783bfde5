//! Who a client is, as the kernel says. Nothing that he sends changes it.

use substrate_api::approvals::By;
use substrate_api::errors::{Code, Problem};
use substrate_broker::{Caller, Choice, person};
use substrate_sys::identity;

/// Refuses a client of another user, and one that has ended.
pub(crate) fn admit(caller: &Caller) -> Result<(), Problem> {
    if caller.uid() != identity::effective_user_id() {
        let text = "this service belongs to another user";
        return Err(
            Problem::new(Code::Forbidden, text).hint("`substrate daemon start` starts one for you")
        );
    }
    if !caller.is_alive() {
        return Err(Problem::new(Code::Forbidden, "whoever asked has ended"));
    }
    Ok(())
}

/// Whose answer this is, if he may give one at all.
pub(crate) fn answers_as(caller: &Caller) -> Result<By, Problem> {
    if let Some(trace) = caller.enclosure() {
        let text = person::Barrier::Enclosed(trace).to_string();
        return Err(Problem::new(Code::Forbidden, text));
    }
    Ok(By::Client)
}

/// Refuses whoever a session encloses.
pub(crate) fn outside(caller: &Caller, what: &str) -> Result<(), Problem> {
    match caller.enclosure() {
        None => Ok(()),
        Some(trace) => {
            let barrier = person::Barrier::Enclosed(trace);
            Err(Problem::new(Code::Forbidden, format!("{what}: {barrier}")))
        }
    }
}

/// The policies that must not be loosened for a client: those of the sessions around him. Where a session
/// encloses him that cannot be seen, the policy in use is its stand-in.
pub(crate) fn ceilings(caller: &Caller, of: fn(&Caller) -> Vec<Choice>) -> Vec<Choice> {
    let seen = of(caller);
    match seen.is_empty() && caller.enclosure().is_some() {
        true => vec![Choice::Active],
        false => seen,
    }
}

/// Whose account pays. A process below a session pays for the agent of that session; for any other name it pays
/// from an account apart, so that it can neither use up nor narrow what belongs to somebody else.
pub(crate) fn account(caller: &Caller, agent: &str) -> String {
    match caller.enclosure() {
        Some(_) if caller.agent().is_none_or(|own| own != agent) => format!("{agent}@session"),
        _ => agent.to_owned(),
    }
}
