//! Where a gate leads to.

use std::fmt;
use std::net::IpAddr;

/// `https://host[:port][/base]`, or `http://` to this machine's own loopback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Spoken over TLS.
    pub tls: bool,
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// What every path begins with: empty, or a slash and words.
    pub base: String,
}

/// Why a text leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Neither `https://` nor `http://`.
    #[error("{0}: a model is reached by https://HOST[:PORT][/PATH]")]
    Scheme(String),
    /// Keys would travel in the clear.
    #[error("{0}: without TLS only this machine's own loopback is reached; use https://")]
    Clear(String),
    /// A name, a port or a path that no address has.
    #[error("{0}: this is no address of a host")]
    Malformed(String),
}

impl Url {
    /// Understands a base URL as clients take them.
    pub fn parse(text: &str) -> Result<Url, UrlError> {
        let malformed = || UrlError::Malformed(text.to_owned());
        let (tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(UrlError::Scheme(text.to_owned())),
        };
        let (authority, base) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (host, port) = split(authority).ok_or_else(malformed)?;
        let port = match port {
            Some(port) => port.parse().ok().filter(|port| *port != 0),
            None => Some(if tls { 443 } else { 80 }),
        };
        let url = Url {
            tls,
            host: host.to_ascii_lowercase(),
            port: port.ok_or_else(malformed)?,
            base: base.trim_end_matches('/').to_owned(),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/~".contains(&byte);
        if !is_host(&url.host) || !url.base.bytes().all(plain) || url.base.contains("..") {
            return Err(malformed());
        }
        if !tls && !url.is_loopback() {
            return Err(UrlError::Clear(text.to_owned()));
        }
        Ok(url)
    }

    fn is_loopback(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }

    /// As a `Host` header has it.
    pub fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

/// Name and port of an authority without a user.
fn split(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => rest.is_empty().then_some((host, None)),
        };
    }
    match authority.split_once(':') {
        Some((host, port)) => Some((host, Some(port))),
        None => Some((authority, None)),
    }
}

fn is_host(host: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    !host.is_empty() && host.len() <= 253 && host.bytes().all(plain)
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_taken_apart() {
        let url = Url::parse("https://api.example.com").unwrap();
        assert_eq!(
            (url.tls, &*url.host, url.port, &*url.base),
            (true, "api.example.com", 443, "")
        );
        let url = Url::parse("https://GW.example:8443/openai/v1/").unwrap();
        assert_eq!(url.to_string(), "https://gw.example:8443/openai/v1");
        let url = Url::parse("http://[::1]:80/v1").unwrap();
        assert_eq!((&*url.host, url.port), ("::1", 80));
        assert_eq!(url.to_string(), "http://[::1]/v1");
    }

    #[test]
    fn what_leads_elsewhere_or_nowhere_is_refused() {
        for text in [
            "api.example.com",
            "ftp://example.com",
            "https://",
            "https://user:pw@example.com",
            "https://user@example.com",
            "https://example.com:0",
            "https://example.com:99999",
            "https://example.com/a/../b",
            "https://example.com/?key=1",
            "https://example.com#x",
            "https://exa mple.com",
            "https://[::1]x",
            "http://example.com",
            "http://127.0.0.1.example.com",
            "http://10.0.0.1:80",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
