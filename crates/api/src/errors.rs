//! The one shape of everything that goes wrong.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{VERSION, version};

/// Kinds of error: programs decide by these, people read the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The request makes no sense.
    BadRequest,
    /// A document of a version that the service does not speak.
    Version,
    /// Whoever asks may not have this.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// Not by this method.
    MethodNotAllowed,
    /// It is too long.
    TooLarge,
    /// The sender took too long.
    Timeout,
    /// Something is in the way of it: the policy is another one, the key was used for something else.
    Conflict,
    /// A budget is used up.
    Budget,
    /// As much runs as may run at once.
    Busy,
    /// The service is about to end.
    Ending,
    /// The service failed.
    Failed,
}

impl Code {
    /// The status of HTTP.
    pub fn status(self) -> u16 {
        match self {
            Code::BadRequest | Code::Version => 400,
            Code::Forbidden => 403,
            Code::NotFound => 404,
            Code::MethodNotAllowed => 405,
            Code::Timeout => 408,
            Code::Conflict => 409,
            Code::TooLarge => 413,
            Code::Budget => 429,
            Code::Failed => 500,
            Code::Busy | Code::Ending => 503,
        }
    }
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Its kind.
    pub code: Code,
    /// What happened, in a sentence.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The span that tells more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_id: Option<String>,
}

/// The body of every answer that is an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// The version of this document.
    #[serde(default = "version")]
    pub v: u32,
    /// What went wrong.
    pub error: Problem,
}

impl Problem {
    /// With a sentence.
    pub fn new(code: Code, message: impl Into<String>) -> Problem {
        Problem {
            code,
            message: message.into(),
            hint: None,
            span_id: None,
        }
    }

    /// And what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl From<Problem> for ErrorBody {
    fn from(error: Problem) -> ErrorBody {
        ErrorBody { v: VERSION, error }
    }
}
