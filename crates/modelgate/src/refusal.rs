//! Answers that the gate gives itself, in the words of the client's own provider, so that the client
//! shows them as it shows any other error. None of those that will not change is worth a second try.

use serde_json::{Value, json};

use crate::wire::Wire;

/// Why a request did not leave, or has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The tokens do not suffice.
    Budget,
    /// The policy says no to what the provider is asked to do.
    Policy,
    /// The path or the method is not among those that pass.
    Route,
    /// The request cannot be read.
    Unreadable,
    /// Its head is too long.
    LongHead,
    /// Its body is too long.
    LongBody,
    /// The host was not reached, or what came from it is no answer.
    Unreachable,
}

impl Why {
    fn status(self) -> (u16, &'static str) {
        match self {
            Why::Budget | Why::Policy | Why::Unreadable => (400, "Bad Request"),
            Why::Route => (403, "Forbidden"),
            Why::LongBody => (413, "Content Too Large"),
            Why::LongHead => (431, "Request Header Fields Too Large"),
            Why::Unreachable => (502, "Bad Gateway"),
        }
    }

    fn code(self) -> &'static str {
        match self {
            Why::Budget => "token_budget_exceeded",
            Why::Policy | Why::Route => "refused_by_policy",
            Why::Unreadable | Why::LongBody | Why::LongHead => "unreadable_request",
            Why::Unreachable => "model_unreachable",
        }
    }
}

/// A whole answer.
pub(crate) fn answer(wire: Wire, why: Why, message: &str, keep: bool) -> Vec<u8> {
    let (status, reason) = why.status();
    let body = body(wire, why, status, message).to_string();
    let connection = if keep { "keep-alive" } else { "close" };
    let retry = match why {
        Why::Unreachable => "",
        _ => "x-should-retry: false\r\n",
    };
    let mut answer = format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: {connection}\r\n{retry}\r\n",
        body.len()
    );
    answer.push_str(&body);
    answer.into_bytes()
}

fn body(wire: Wire, why: Why, status: u16, message: &str) -> Value {
    let message = format!("substrate: {message}");
    let lasting = why != Why::Unreachable;
    match wire {
        Wire::Anthropic => {
            let kind = if lasting {
                "invalid_request_error"
            } else {
                "api_error"
            };
            json!({"type": "error", "error": {"type": kind, "message": message}})
        }
        Wire::Openai => {
            let kind = if lasting {
                "invalid_request_error"
            } else {
                "server_error"
            };
            json!({"error": {"message": message, "type": kind, "param": null, "code": why.code()}})
        }
        Wire::Gemini => {
            let kind = if lasting {
                "FAILED_PRECONDITION"
            } else {
                "UNAVAILABLE"
            };
            json!({"error": {"code": status, "message": message, "status": kind}})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_gets_its_own_kind_of_error() {
        for (wire, pointer) in [
            (Wire::Anthropic, "/error/type"),
            (Wire::Openai, "/error/code"),
            (Wire::Gemini, "/error/status"),
        ] {
            let answer = answer(wire, Why::Budget, "no tokens are left", true);
            let text = String::from_utf8(answer).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
            assert!(head.contains(&format!("content-length: {}\r\n", body.len())));
            assert!(head.contains("x-should-retry: false"));
            let body: Value = serde_json::from_str(body).unwrap();
            assert!(body.pointer(pointer).is_some(), "{body}");
            let message = body.pointer("/error/message").unwrap();
            assert_eq!(message, "substrate: no tokens are left");
        }
    }
}
