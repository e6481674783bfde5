//! Everything that can go wrong in a command, and the one place that turns it into text and an
//! exit code.

use substrate_broker::BrokerError;
use substrate_executor::exit_status::FAILED;

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The arguments make no sense; the text says which and what would.
    #[error("{0}")]
    Usage(String),
    /// The answer is no, and it has been printed.
    #[error("")]
    No,
    /// There is no verdict to be had.
    #[error("{0}")]
    Broker(#[from] BrokerError),
    /// A file cannot be read or written.
    #[error("{what}: {error}")]
    File {
        /// Which, and what was being done.
        what: String,
        /// Why.
        error: std::io::Error,
    },
    /// Something that was asked for does not exist.
    #[error("{0}")]
    Missing(String),
    /// This may not be done from here, or a person said no.
    #[error("{0}")]
    Refused(String),
    /// Approvals or trust cannot be read or written.
    #[error("{0}")]
    State(#[from] substrate_broker::state_file::StateError),
    /// Output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] std::io::Error),
    /// The service does not answer, or says no.
    #[error("{0}")]
    Service(#[from] substrate_api::client::Error),
    /// The trace cannot be used.
    #[error("{0}")]
    Trace(#[from] substrate_trace::Error),
}

impl Failure {
    /// The exit code of a management command.
    pub fn code(&self) -> i32 {
        match self {
            Failure::Usage(_) => 2,
            _ => 1,
        }
    }

    /// The exit code when something was to be run.
    pub fn run_code(&self) -> i32 {
        match self {
            Failure::Usage(_) => 2,
            _ => FAILED,
        }
    }

    /// What to do next, when there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Failure::Broker(BrokerError::Load(_)) => Some(
                "`substrate help policy` describes policy files; `substrate policy validate FILE` checks one",
            ),
            Failure::Usage(_) => Some("`substrate --help` lists what there is"),
            _ => None,
        }
    }
}
