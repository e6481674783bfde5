//! Results of isolated worlds by the names that people give them.

use substrate_broker::Home;
use substrate_changes::pending::Pending;

use crate::failure::Failure;

/// The result that was named.
pub fn find(home: &Home, result: &str) -> Result<Pending, Failure> {
    if result == "-" {
        let newest = Pending::list(&home.path).map_err(missing)?.pop();
        return newest
            .ok_or_else(|| Failure::Missing("no isolated command has left anything".to_owned()));
    }
    Pending::find(&home.path, result).map_err(missing)
}

/// That a result, or something of it, is not there.
pub fn missing(error: impl std::fmt::Display) -> Failure {
    Failure::Missing(error.to_string())
}
