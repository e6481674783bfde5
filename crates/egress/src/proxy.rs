//! The user's own HTTP proxy, used for dialling on the host where the environment names one.

use std::net::IpAddr;
use substrate_text::base64;

use super::rules::Target;
use substrate_init::routes::contains;

/// Variables that name proxies. A world must not see them: the gate itself goes through them.
pub const VARIABLES: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];

/// One proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Value of `Proxy-Authorization`.
    pub authorization: Option<String>,
}

impl Proxy {
    /// The request for a tunnel.
    pub fn connect_request(&self, target: &Target, port: u16) -> Vec<u8> {
        let authority = match target {
            Target::Address(IpAddr::V6(v6)) => format!("[{v6}]:{port}"),
            other => format!("{other}:{port}"),
        };
        let mut text = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
        if let Some(authorization) = &self.authorization {
            text.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
        }
        text.push_str("\r\n");
        text.into_bytes()
    }
}

/// The proxies of an environment and what goes around them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    around: Vec<Around>,
    /// Settings that are not understood and therefore not used.
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Around {
    Everything,
    Name(String),
    Network(IpAddr, u8),
}

impl Proxies {
    /// Reads the variables; upper-case `HTTP_PROXY` is ignored, as CGI servers let clients set it.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Proxies {
        let mut found = Proxies::default();
        let first = |names: &[&str]| {
            names.iter().find_map(|n| {
                get(n)
                    .filter(|v| !v.trim().is_empty())
                    .map(|v| (n.to_string(), v))
            })
        };
        for (names, secure) in [
            (&["http_proxy", "all_proxy", "ALL_PROXY"][..], false),
            (
                &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"][..],
                true,
            ),
        ] {
            let Some((name, value)) = first(names) else {
                continue;
            };
            match parse(value.trim()) {
                Some(proxy) if secure => found.https = Some(proxy),
                Some(proxy) => found.http = Some(proxy),
                None => found.problems.push(format!(
                    "{name} is not used: only http:// proxies are supported by the gate"
                )),
            }
        }
        let list = first(&["no_proxy", "NO_PROXY"])
            .map(|(_, v)| v)
            .unwrap_or_default();
        for word in list
            .split([',', ' '])
            .map(str::trim)
            .filter(|w| !w.is_empty())
        {
            found.around.push(around(word));
        }
        found
    }

    /// The proxies that are used, without secrets.
    pub fn shown(&self) -> Vec<String> {
        let proxies = [("http", &self.http), ("https", &self.https)];
        let named = |(kind, proxy): (&str, &Option<Proxy>)| {
            let proxy = proxy.as_ref()?;
            Some(format!("{}:{} for {kind}", proxy.host, proxy.port))
        };
        proxies.into_iter().filter_map(named).collect()
    }

    /// The proxy for a connection, if it goes through one.
    pub fn choose(&self, target: &Target, port: u16) -> Option<&Proxy> {
        let proxy = if port == 80 {
            self.http.as_ref()
        } else {
            self.https.as_ref()
        }?;
        let local = match target {
            Target::Name(name) => &**name == "localhost",
            Target::Address(address) => super::special::kind(*address).is_some(),
        };
        let around = self.around.iter().any(|rule| match (rule, target) {
            (Around::Everything, _) => true,
            (Around::Name(suffix), Target::Name(name)) => name
                .strip_suffix(suffix.as_str())
                .is_some_and(|head| head.is_empty() || head.ends_with('.')),
            (Around::Network(net, bits), Target::Address(a)) => contains(*net, *bits, *a),
            _ => false,
        });
        (!local && !around).then_some(proxy)
    }
}

fn around(word: &str) -> Around {
    if word == "*" {
        return Around::Everything;
    }
    let (address, bits) = match word.split_once('/') {
        Some((address, bits)) => (address, bits.parse().ok()),
        None => (word, None),
    };
    match address.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(ip) => {
            let full = if ip.is_ipv4() { 32 } else { 128 };
            Around::Network(ip, bits.unwrap_or(full))
        }
        Err(_) => Around::Name(
            word.trim_start_matches("*.")
                .trim_matches('.')
                .to_lowercase(),
        ),
    }
}

/// `[http://][user[:password]@]host[:port][/]`
fn parse(text: &str) -> Option<Proxy> {
    let rest = match text.split_once("://") {
        Some(("http", rest)) => rest,
        Some(_) => return None,
        None => text,
    };
    let rest = rest.split('/').next()?;
    let (user, place) = match rest.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, rest),
    };
    let authority = super::http::parse_authority(place.as_bytes())?;
    let host = std::str::from_utf8(authority.host).ok()?.to_lowercase();
    let authorization = user.map(|u| format!("Basic {}", base64::encode(&unescape(u))));
    Some(Proxy {
        host,
        port: authority.port.unwrap_or(80),
        authorization,
    })
}

fn unescape(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let pair = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match pair.and_then(|p| u8::from_str_radix(p, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Proxies {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        Proxies::from_variables(|name| {
            pairs
                .iter()
                .find(|(k, _)| k == name)
                .map(|(_, v)| v.clone())
        })
    }

    fn name(text: &str) -> Target {
        Target::Name(text.into())
    }

    #[test]
    fn variables_are_read_as_curl_reads_them() {
        let p = from(&[
            ("https_proxy", "http://u:p%40ss@proxy.test:3128/"),
            ("HTTP_PROXY", "http://evil.test"),
            ("no_proxy", "internal.test,.dot.test,10.0.0.0/8,[fd00::1]"),
        ]);
        let https = p.choose(&name("a.test"), 443).unwrap();
        assert_eq!((https.host.as_str(), https.port), ("proxy.test", 3128));
        assert_eq!(https.authorization.as_deref(), Some("Basic dTpwQHNz"));
        assert_eq!(p.choose(&name("a.test"), 80), None);
        for around in [
            "internal.test",
            "x.internal.test",
            "dot.test",
            "y.dot.test",
            "localhost",
        ] {
            assert_eq!(p.choose(&name(around), 443), None, "{around}");
        }
        assert!(p.choose(&name("notinternal.test"), 443).is_some());
        let text = String::from_utf8(https.connect_request(&name("a.test"), 443)).unwrap();
        assert_eq!(
            text,
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\
             Proxy-Authorization: Basic dTpwQHNz\r\n\r\n"
        );
    }

    #[test]
    fn other_kinds_of_proxies_are_named_not_used() {
        let p = from(&[("all_proxy", "socks5://127.0.0.1:1080")]);
        assert_eq!(p.choose(&name("a.test"), 443), None);
        assert_eq!(p.problems.len(), 2);
        assert_eq!(
            from(&[("https_proxy", "http://p.test"), ("no_proxy", "*")])
                .choose(&name("a.test"), 443),
            None
        );
    }
}
