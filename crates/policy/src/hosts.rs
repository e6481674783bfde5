//! Host entries: their syntax and what they match.

use std::net::{IpAddr, Ipv4Addr};

use crate::terms::{HostPattern, HostRule};

/// What somebody wants to reach, in the form that entries are compared with. Line and gate both
/// ask by it, so that they cannot disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A name: lower case, IDNA, no trailing dot.
    Name(String),
    /// An address, also where it was written in one of the old numeric forms.
    Address(IpAddr),
}

impl Host {
    /// Reads a host as it stands in a URL or on a command line; `None` for what cannot be one.
    pub fn parse(text: &str) -> Option<Host> {
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        if let Ok(address) = inner.unwrap_or(text).parse::<IpAddr>() {
            return Some(Host::Address(address.to_canonical()));
        }
        let name = parse_name(text).ok()?;
        let last = name.rsplit('.').next().unwrap_or(&name);
        // inet_aton reads `127.1`, `0x7f.1` and `2130706433` as addresses, and so do programs.
        if last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") {
            return numeric(&name).map(|v4| Host::Address(v4.into()));
        }
        Some(Host::Name(name))
    }
}

/// The address that inet_aton makes of one to four numbers.
fn numeric(text: &str) -> Option<Ipv4Addr> {
    let number = |part: &str| match part.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(if digits.is_empty() { "0" } else { digits }, 16).ok(),
        None if part.len() > 1 && part.starts_with('0') => u32::from_str_radix(part, 8).ok(),
        None => part.parse().ok(),
    };
    let parts: Vec<u32> = text.split('.').map(number).collect::<Option<_>>()?;
    let (last, head) = parts.split_last()?;
    if head.len() > 3 || head.iter().any(|part| *part > 255) {
        return None;
    }
    let free = 32 - 8 * head.len() as u32;
    if u64::from(*last) >= 1 << free {
        return None;
    }
    let high = (0u32..)
        .zip(head)
        .fold(0, |bits, (at, part)| bits | part << (24 - 8 * at));
    Some(Ipv4Addr::from_bits(high | last))
}

/// The entry for the loopback of the machine that worlds run on.
pub const HOST_LOOPBACK: &str = "host-loopback";

impl HostRule {
    /// Reads `host`, `*.host`, `*`, `host:port`, `host:from-to`, an address or a network, with
    /// `[…]` around an IPv6 address that has a port; `host-loopback:port` for the machine's own.
    pub fn parse(written: &str) -> Result<HostRule, String> {
        let text = written.trim();
        if text.contains("://") || text.contains('@') {
            return Err(format!(
                "`{written}` is not a host; write the name alone, as in `example.com:443`"
            ));
        }
        let (host, ports) = split_port(text)?;
        let ports = ports.map(parse_ports).transpose()?;
        let host = if host == HOST_LOOPBACK {
            if ports.is_none() {
                let example = format!("`{HOST_LOOPBACK}:5432`");
                return Err(format!("`{written}` needs its ports, as in {example}"));
            }
            HostPattern::HostLoopback
        } else if host == "*" {
            HostPattern::Any
        } else if let Some((address, bits)) = parse_network(host) {
            HostPattern::Network(address, bits)
        } else if let Some(below) = host.strip_prefix("*.") {
            HostPattern::Below(parse_name(below)?)
        } else {
            HostPattern::Name(parse_name(host)?)
        };
        Ok(HostRule {
            written: written.to_owned(),
            host,
            ports,
            internal: false,
        })
    }

    /// Whether the entry names the loopback of wherever a command runs.
    pub fn is_own_loopback(&self) -> bool {
        match &self.host {
            HostPattern::Name(name) => name == "localhost",
            HostPattern::Network(address, bits) => {
                let one = *bits == if address.is_ipv4() { 32 } else { 128 };
                is_loopback(*address) && (one || !address.is_unspecified())
            }
            _ => false,
        }
    }

    /// Whether the entry opens the host at that port; an unknown port is no obstacle.
    pub fn allows(&self, host: &Host, port: Option<u16>) -> bool {
        self.host.allows(host)
            && port.is_none_or(|port| match self.ports {
                Some((from, to)) => (from..=to).contains(&port),
                None => matches!(port, 80 | 443),
            })
    }

    /// Whether the entry closes the host at that port; without ports it means every port.
    pub fn denies(&self, host: &Host, port: Option<u16>) -> bool {
        self.host.denies(host)
            && match (self.ports, port) {
                (Some((from, to)), Some(port)) => (from..=to).contains(&port),
                _ => true,
            }
    }
}

impl HostPattern {
    /// Whether the pattern opens this host.
    pub fn allows(&self, host: &Host) -> bool {
        match host {
            Host::Name(name) => self.allows_name(name),
            // Programs take the name and the address for the same.
            Host::Address(address) => {
                self.allows_address(*address)
                    || (address.is_loopback() && self.allows_name("localhost"))
            }
        }
    }

    /// Whether the pattern closes this host. `*` closes everything.
    pub fn denies(&self, host: &Host) -> bool {
        matches!(self, HostPattern::Any) || self.allows(host)
    }

    /// Whether the pattern opens a name. `*` stands for names of others; this machine's own
    /// loopback must be listed as such.
    pub fn allows_name(&self, name: &str) -> bool {
        match self {
            HostPattern::Any => name != "localhost",
            HostPattern::Name(wanted) => wanted == name,
            HostPattern::Below(parent) => name
                .strip_suffix(parent.as_str())
                .and_then(|head| head.strip_suffix('.'))
                .is_some_and(|head| !head.is_empty()),
            HostPattern::Network(..) => false,
            HostPattern::HostLoopback => name == "localhost",
        }
    }

    /// Whether the pattern opens an address; only networks do.
    pub fn allows_address(&self, address: IpAddr) -> bool {
        match self {
            HostPattern::Network(network, bits) => in_network(address, *network, *bits),
            _ => false,
        }
    }
}

/// Whether an address leads to the machine that it is used on. The one that stands for none does.
pub fn is_loopback(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || address.is_unspecified()
}

/// Whether an address lies in a network.
pub fn in_network(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let (address, network, width) = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => (
            u128::from(address.to_bits()),
            u128::from(network.to_bits()),
            32,
        ),
        (IpAddr::V6(address), IpAddr::V6(network)) => (address.to_bits(), network.to_bits(), 128),
        _ => return false,
    };
    let shift = width - u32::from(bits.min(u8::try_from(width).unwrap_or(u8::MAX)));
    address.checked_shr(shift).unwrap_or(0) == network.checked_shr(shift).unwrap_or(0)
}

fn split_port(text: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest
            .split_once(']')
            .ok_or_else(|| format!("`{text}` lacks a closing bracket"))?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((address, Some(port))),
            None if rest.is_empty() => Ok((address, None)),
            None => Err(format!("`{text}`: only `:port` may follow the bracket")),
        };
    }
    if text.matches(':').count() > 1 {
        return Ok((text, None));
    }
    match text.split_once(':') {
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

fn parse_ports(text: &str) -> Result<(u16, u16), String> {
    let port = |text: &str| {
        text.parse::<u16>()
            .map_err(|_| format!("`{text}` is not a port (1-65535)"))
    };
    match text {
        "*" => Ok((1, u16::MAX)),
        _ => match text.split_once('-') {
            Some((from, to)) => {
                let (from, to) = (port(from)?, port(to)?);
                if from <= to {
                    Ok((from, to))
                } else {
                    Err(format!("the ports `{text}` run backwards"))
                }
            }
            None => port(text).map(|port| (port, port)),
        },
    }
}

fn parse_network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(width);
    (bits <= width).then_some((address, bits))
}

/// A host name in the form that is compared: lower case, IDNA, no trailing dot.
pub fn parse_name(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let labels: Vec<String> = name
        .split('.')
        .map(label)
        .collect::<Result<_, _>>()
        .map_err(|problem| format!("`{text}`: {problem}"))?;
    let name = labels.join(".");
    if name.len() > 253 {
        Err(format!("`{text}` is too long for a host name"))
    } else {
        Ok(name)
    }
}

fn label(text: &str) -> Result<String, &'static str> {
    // Letter by letter, as IDNA maps them: a sigma at the end of a word is a sigma.
    let lower: String = text.chars().flat_map(char::to_lowercase).collect();
    if lower.is_empty() {
        return Err("a label of the name is empty");
    }
    if lower.is_ascii() {
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        return if lower.bytes().all(fine) && lower.len() <= 63 {
            Ok(lower)
        } else {
            Err("only letters, digits and `-` may stand in a host name")
        };
    }
    let encoded = format!(
        "xn--{}",
        punycode(&lower).ok_or("the name cannot be encoded")?
    );
    if encoded.len() <= 63 {
        Ok(encoded)
    } else {
        Err("a label of the name is too long")
    }
}

/// RFC 3492, encoding only.
fn punycode(text: &str) -> Option<String> {
    let input: Vec<u32> = text.chars().map(u32::from).collect();
    let mut output: String = text.chars().filter(char::is_ascii).collect();
    let basic = u32::try_from(output.len()).ok()?;
    if basic > 0 {
        output.push('-');
    }
    let (mut n, mut delta, mut bias, mut handled) = (128u32, 0u32, 72u32, basic);
    while usize::try_from(handled).ok()? < input.len() {
        let next = input.iter().copied().filter(|code| *code >= n).min()?;
        delta = delta.checked_add((next - n).checked_mul(handled + 1)?)?;
        n = next;
        for &code in &input {
            if code < n {
                delta = delta.checked_add(1)?;
            }
            if code != n {
                continue;
            }
            let (mut rest, mut k) = (delta, 36u32);
            loop {
                let threshold = if k <= bias {
                    1
                } else if k >= bias + 26 {
                    26
                } else {
                    k - bias
                };
                if rest < threshold {
                    break;
                }
                output.push(digit(threshold + (rest - threshold) % (36 - threshold)));
                rest = (rest - threshold) / (36 - threshold);
                k += 36;
            }
            output.push(digit(rest));
            bias = adapt(delta, handled + 1, handled == basic);
            delta = 0;
            handled += 1;
        }
        delta = delta.checked_add(1)?;
        n += 1;
    }
    Some(output)
}

fn digit(value: u32) -> char {
    char::from(u8::try_from(if value < 26 { value + 97 } else { value + 22 }).unwrap_or(b'-'))
}

fn adapt(delta: u32, points: u32, first: bool) -> u32 {
    let mut delta = if first { delta / 700 } else { delta / 2 };
    delta += delta / points;
    let mut k = 0;
    while delta > 455 {
        delta /= 35;
        k += 36;
    }
    k + 36 * delta / (delta + 38)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries() {
        for (entry, host, port, expected) in [
            ("example.com", "example.com", Some(443), true),
            ("example.com", "EXAMPLE.com.", Some(80), true),
            ("example.com", "example.com", Some(22), false),
            ("example.com", "example.com", None, true),
            ("example.com", "a.example.com", Some(443), false),
            ("*.example.com", "a.b.example.com", Some(443), true),
            ("*.example.com", "example.com", Some(443), false),
            ("*.example.com", "evilexample.com", Some(443), false),
            ("db.test:5432", "db.test", Some(5432), true),
            ("db.test:5432", "db.test", Some(443), false),
            ("localhost:1-65535", "localhost", Some(8080), true),
            ("10.0.0.0/8", "10.1.2.3", Some(443), true),
            ("10.0.0.0/8", "11.1.2.3", Some(443), false),
            ("[::1]:80", "::1", Some(80), true),
            ("fe80::/10", "fe80::1", Some(443), true),
            ("*", "anything.test", Some(443), true),
            ("*", "10.0.0.1", Some(443), false),
            ("*", "localhost", Some(443), false),
            ("*:1-65535", "127.0.0.1", Some(5432), false),
            ("localhost:5432", "127.0.0.1", Some(5432), true),
            ("localhost:5432", "[::1]", Some(5432), true),
            ("host-loopback:5432", "localhost", Some(5432), true),
            ("host-loopback:5432", "127.0.0.1", Some(5432), true),
            ("host-loopback:5432", "localhost", Some(5433), false),
            ("host-loopback:*", "a.test", Some(443), false),
            ("10.0.0.0/8", "[::ffff:10.1.2.3]", Some(443), true),
            ("127.0.0.1:80", "2130706433", Some(80), true),
            ("127.0.0.1:80", "0x7f.1", Some(80), true),
            ("10.0.0.7:80", "012.7", Some(80), true),
            ("bücher.example", "xn--bcher-kva.example", Some(443), true),
            ("xn--bcher-kva.example", "Bücher.example", Some(443), true),
            ("ΟΔΟΣ.example", "οδοσ.example", Some(443), true),
        ] {
            let rule = HostRule::parse(entry).unwrap();
            assert_eq!(
                rule.allows(&Host::parse(host).unwrap(), port),
                expected,
                "{entry} on {host}:{port:?}"
            );
        }
    }

    #[test]
    fn bad_entries_are_refused() {
        for entry in [
            "",
            "https://example.com",
            "a..b",
            "a b",
            "x:99999",
            "x:9-1",
            "[::1",
            "u@h",
            "*.*.x",
            "host-loopback",
        ] {
            assert!(HostRule::parse(entry).is_err(), "{entry} was accepted");
        }
    }

    #[test]
    fn what_is_no_host_is_nobody() {
        for text in [
            "",
            "a..b",
            "a b",
            "1.2.3.4.5",
            "256.1.1.1",
            "0x1ffffffff",
            "fe80::1%lo",
            "a/b",
        ] {
            assert_eq!(Host::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_denied_star_closes_everything() {
        let rule = HostRule::parse("*").unwrap();
        for host in ["a.test", "localhost", "10.0.0.1", "::1"] {
            assert!(rule.denies(&Host::parse(host).unwrap(), Some(22)), "{host}");
        }
        let some = HostRule::parse("gist.test").unwrap();
        assert!(some.denies(&Host::parse("GIST.test.").unwrap(), Some(22)));
        let one = HostRule::parse("gist.test:80").unwrap();
        assert!(!one.denies(&Host::parse("gist.test").unwrap(), Some(22)));
        assert!(one.denies(&Host::parse("gist.test").unwrap(), None));
    }
}
