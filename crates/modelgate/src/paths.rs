//! Which requests may pass: methods and paths, as a descriptor lists them.

use std::fmt;

/// `POST /v1/messages`; a `*` stands for one component, or the part of one up to what follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    method: String,
    path: String,
}

/// Why a line is no route.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: a route is a method and a path, as in `POST /v1/messages`")]
pub struct RouteError(String);

/// The methods that a gate passes on.
const METHODS: [&str; 5] = ["GET", "HEAD", "POST", "DELETE", "OPTIONS"];

impl Route {
    /// Understands one.
    pub fn parse(line: &str) -> Result<Route, RouteError> {
        let wrong = || RouteError(line.to_owned());
        let (method, path) = line.split_once(' ').ok_or_else(wrong)?;
        if !METHODS.contains(&method) || !is_plain(&path.replace('*', "x")) {
            return Err(wrong());
        }
        Ok(Route {
            method: method.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Whether a request is one of these. A path that could be read in two ways is none of them.
    pub fn matches(&self, method: &str, path: &str) -> bool {
        if method != self.method || !is_plain(path) {
            return false;
        }
        let (mut own, mut asked) = (self.path.split('/'), path.split('/'));
        loop {
            match (own.next(), asked.next()) {
                (None, None) => return true,
                (Some(own), Some(asked)) if component(own, asked) => {}
                _ => return false,
            }
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

fn component(own: &str, asked: &str) -> bool {
    match own.split_once('*') {
        None => own == asked,
        Some((before, after)) => asked
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .is_some_and(|middle| !middle.is_empty()),
    }
}

/// Whether a path means the same to everybody: no escapes, no empty and no dotted components.
fn is_plain(path: &str) -> bool {
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@/".contains(&byte);
    let odd = |part: &str| part.is_empty() || part == "." || part == "..";
    let Some(rest) = path.strip_prefix('/') else {
        return false;
    };
    path.bytes().all(fit) && (rest.is_empty() || !rest.split('/').any(odd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_lets_through_what_it_names() {
        let route = Route::parse("POST /v1/messages").unwrap();
        assert!(route.matches("POST", "/v1/messages"));
        for (method, path) in [
            ("GET", "/v1/messages"),
            ("post", "/v1/messages"),
            ("POST", "/v1/messages/"),
            ("POST", "/v1//messages"),
            ("POST", "/v1/./messages"),
            ("POST", "/v1/files/../messages"),
            ("POST", "/v1/%6dessages"),
            ("POST", "/v1/messages\\x"),
            ("POST", "//v1/messages"),
            ("POST", "http://elsewhere/v1/messages"),
        ] {
            assert!(!route.matches(method, path), "{method} {path}");
        }
    }

    #[test]
    fn a_star_stays_within_a_component() {
        let route = Route::parse("POST /v1beta/models/*:generateContent").unwrap();
        assert!(route.matches("POST", "/v1beta/models/gemini-x.1:generateContent"));
        assert!(!route.matches("POST", "/v1beta/models/:generateContent"));
        assert!(!route.matches("POST", "/v1beta/models/a/b:generateContent"));
        assert!(Route::parse("GET /").unwrap().matches("GET", "/"));
    }

    #[test]
    fn what_is_no_route_is_said() {
        for line in [
            "/v1",
            "FETCH /v1",
            "POST v1",
            "POST /a//b",
            "POST /a b",
            "CONNECT /",
        ] {
            assert!(Route::parse(line).is_err(), "{line}");
        }
    }
}
