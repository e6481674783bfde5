//! What can go wrong before a verdict.

use std::path::PathBuf;

use substrate_policy::diagnostic::LoadError;

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// No home directory can be found for the user.
    #[error(
        "no home directory for user {0}; set HOME to a directory that is there, or SUBSTRATE_HOME"
    )]
    NoHome(u32),
    /// A policy of that name does not exist.
    #[error("there is no policy `{0}`; `substrate policy list` shows those that exist")]
    NoPolicy(String),
    /// A policy file cannot be read.
    #[error("cannot read {path}: {error}{}", below(error))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A policy file is not text.
    #[error("{0} is not UTF-8 text")]
    NotText(PathBuf),
    /// A policy file is too large to be one.
    #[error("{0} is too large for a policy (over 4 MiB)")]
    TooLarge(PathBuf),
    /// A policy file has mistakes.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// The working directory cannot be told.
    #[error("cannot tell the working directory: {0}")]
    Cwd(std::io::Error),
    /// A compiled policy cannot be used although it was just made.
    #[error("the compiled policy cannot be read back ({0:?}); please report this")]
    Compiled(substrate_compiled::Reject),
}

impl From<crate::home::NoHome> for BrokerError {
    fn from(crate::home::NoHome(uid): crate::home::NoHome) -> Self {
        BrokerError::NoHome(uid)
    }
}

/// Why a file that is there cannot be read: a world keeps Substrate's own files from what runs in it.
fn below(error: &std::io::Error) -> &'static str {
    let kept = error.kind() == std::io::ErrorKind::PermissionDenied
        && crate::Caller::own().enclosure().is_some();
    match kept {
        true => {
            ". A world shows nothing of Substrate's home: inside, only shipped policies can be named, and Substrate's \
             own commands work as a whole line at the session's prompt: not in a pipe, a script or after `;`"
        }
        false => "",
    }
}
