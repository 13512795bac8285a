//! Names of hosts: as a request spells them, as an allow-list names them, and which of them the list allows.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Which hosts may be reached through the proxy.
///
/// Addresses of the host itself and of cloud metadata services are never dialled, even if the list names them.
/// Private addresses (10/8, 172.16/12, 192.168/16, 100.64/10, `fc00::/7` and other ranges that are not
/// public) are dialled only for a host that the list names exactly: a wildcard, or [`AllowedHosts::Any`], covers
/// public addresses only. `localhost`, names below it and names without a dot must be listed too.
#[derive(Clone, Debug)]
pub(crate) enum AllowedHosts {
    /// Every public host.
    Any,
    /// The hosts that match a pattern; none if there is no pattern.
    Only(Vec<HostPattern>),
}

impl AllowedHosts {
    /// The hosts that a policy's network allows. Invalid patterns match no host.
    pub(crate) fn of(network: &crate::Network) -> Self {
        match network {
            crate::Network::Http { hosts: Some(hosts) } => {
                Self::Only(hosts.iter().filter_map(|host| host.parse().ok()).collect())
            }
            _ => Self::Any,
        }
    }
}

/// One entry of an allow-list: a name (`example.org`), every name below one (`*.example.org`, which is not
/// `example.org` itself), or an address (`192.0.2.7`, `2001:db8::7`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern(Pattern);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Exactly(Host),
    /// The suffix, without the asterisk and its dot.
    Below(String),
}

/// Why a text is no [`HostPattern`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum HostPatternError {
    #[error("`{0}` is more than a host: leave out scheme, port and path")]
    NotOnlyAHost(String),
    #[error("`*` alone is no host pattern: give no list to allow every public host")]
    EveryHost,
    #[error("`{0}` is no host pattern: an asterisk can only be the whole first label, as in `*.example.org`")]
    MisplacedAsterisk(String),
    #[error("`{text}` is no host pattern")]
    NoHost { text: String, source: HostError },
}

/// How an allow-list lets a host pass, which decides what its addresses may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grant {
    /// The list names exactly this host: its addresses may be private.
    ByName,
    /// A wildcard or [`AllowedHosts::Any`] covers it: its addresses must be public.
    InGeneral,
}

/// Why an allow-list does not let a host pass.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum HostRefusal {
    #[error("the allow-list does not name it")]
    NotListed,
    #[error("a local name must be named in the allow-list")]
    LocalName,
}

impl AllowedHosts {
    pub(super) fn grant(&self, host: &Host) -> Result<Grant, HostRefusal> {
        match self {
            Self::Any if host.is_local_name() => Err(HostRefusal::LocalName),
            Self::Any => Ok(Grant::InGeneral),
            Self::Only(patterns) => {
                if patterns.iter().any(|pattern| pattern.names_exactly(host)) {
                    Ok(Grant::ByName)
                } else if patterns.iter().any(|pattern| pattern.covers(host)) {
                    Ok(Grant::InGeneral)
                } else {
                    Err(HostRefusal::NotListed)
                }
            }
        }
    }
}

impl HostPattern {
    fn names_exactly(&self, host: &Host) -> bool {
        matches!(&self.0, Pattern::Exactly(exact) if exact == host)
    }

    fn covers(&self, host: &Host) -> bool {
        let (Pattern::Below(suffix), Host::Name(name)) = (&self.0, host) else { return false };
        name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'))
    }
}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Err(HostPatternError::EveryHost);
        }
        let no_host = |source| HostPatternError::NoHost { text: text.to_owned(), source };
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Self(Pattern::Exactly(Host::from_address(address.into()))));
        }
        let (suffix, wildcard) = match text.strip_prefix("*.") {
            Some(suffix) => (suffix, true),
            None => (text, false),
        };
        if suffix.contains('*') {
            return Err(HostPatternError::MisplacedAsterisk(text.to_owned()));
        }
        if suffix.contains(['/', '@', '?', '#']) || (suffix.contains(':') && !suffix.starts_with('[')) {
            return Err(HostPatternError::NotOnlyAHost(text.to_owned()));
        }
        match (suffix.parse().map_err(no_host)?, wildcard) {
            (Host::Name(suffix), true) => Ok(Self(Pattern::Below(suffix))),
            (Host::Address(_), true) => Err(HostPatternError::MisplacedAsterisk(text.to_owned())),
            (host, false) => Ok(Self(Pattern::Exactly(host))),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Pattern::Exactly(host) => host.fmt(formatter),
            Pattern::Below(suffix) => write!(formatter, "*.{suffix}"),
        }
    }
}

/// A host in its one normal spelling: lower case, no closing dot, addresses parsed.
///
/// Spellings that resolvers read as an address though they do not look like one (`2130706433`, `0x7f.1`,
/// `0177.0.0.1`) are refused, so that what is checked is what is dialled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Host {
    Name(String),
    Address(IpAddr),
}

/// Why a text names no host.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum HostError {
    #[error("the host is empty")]
    Empty,
    #[error("the host is longer than 253 characters, or a part of it is empty or longer than 63")]
    BadLength,
    #[error("a host consists of the letters a to z, digits, `-`, `_` and `.`")]
    BadCharacter,
    #[error("an address must be written as four plain decimal numbers, or as IPv6 in brackets")]
    OddAddress,
}

impl Host {
    fn from_address(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }

    /// Whether the name is resolved by this machine or its local network rather than by the public DNS.
    fn is_local_name(&self) -> bool {
        match self {
            Self::Name(name) => !name.contains('.') || name.ends_with(".localhost"),
            Self::Address(_) => false,
        }
    }
}

impl FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(bracketed) = text.strip_prefix('[') {
            let address = bracketed.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
            return address.map(|address| Self::from_address(address.into())).ok_or(HostError::OddAddress);
        }
        let text = text.strip_suffix('.').unwrap_or(text);
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        check_name(text)?;
        Ok(Self::Name(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(formatter),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

fn check_name(name: &str) -> Result<(), HostError> {
    if name.is_empty() {
        return Err(HostError::Empty);
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
        return Err(HostError::BadCharacter);
    }
    if name.len() > 253 || name.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return Err(HostError::BadLength);
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    if is_number(last) { Err(HostError::OddAddress) } else { Ok(()) }
}

/// Whether resolvers may take the label for a number, and so the whole name for an address. No top-level
/// domain is one.
fn is_number(label: &str) -> bool {
    match label.strip_prefix("0x").or_else(|| label.strip_prefix("0X")) {
        Some(hexadecimal) => hexadecimal.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    fn only(patterns: &[&str]) -> AllowedHosts {
        AllowedHosts::Only(patterns.iter().map(|pattern| pattern.parse().unwrap()).collect())
    }

    #[test]
    fn a_host_has_one_spelling() {
        assert_eq!(host("Example.ORG."), Host::Name("example.org".into()));
        assert_eq!(host("93.184.216.34."), Host::Address([93, 184, 216, 34].into()));
        assert_eq!(host("[::ffff:10.0.0.1]"), Host::Address([10, 0, 0, 1].into()));
        assert_eq!(host("[2606:2800::0001]").to_string(), "[2606:2800::1]");
    }

    #[test]
    fn odd_spellings_of_addresses_are_no_hosts() {
        let odd = [
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "127.1",
            "0x7f000001",
            "127.0.0.0x1",
            "1.2.3.4.5",
            "0x",
            "256.1.1.1",
            "[127.0.0.1]",
            "[::1",
            "[::1%eth0]",
            "a.0X7F",
        ];
        for text in odd {
            assert_eq!(text.parse::<Host>(), Err(HostError::OddAddress), "{text}");
        }
    }

    #[test]
    fn texts_that_resolvers_read_differently_are_no_hosts() {
        let long = format!("{}.org", "a".repeat(64));
        for text in
            ["", ".", "a..b", ".a", "a b", "a%2eb", "ⅼocalhost", "１２７.0.0.1", "a\0b", "a:b", long.as_str()]
        {
            assert!(text.parse::<Host>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn patterns_match_exactly_or_below() {
        let hosts = only(&["Example.org", "*.example.com", "10.0.0.5", "::ffff:10.0.0.6", "[fd12::1]"]);
        for named in ["example.org", "EXAMPLE.ORG.", "10.0.0.5", "10.0.0.6", "[fd12::1]"] {
            assert_eq!(hosts.grant(&host(named)), Ok(Grant::ByName), "{named}");
        }
        for covered in ["a.example.com", "a.b.example.com"] {
            assert_eq!(hosts.grant(&host(covered)), Ok(Grant::InGeneral), "{covered}");
        }
        for other in ["example.com", "badexample.com", "www.example.org", "example.org.evil.net", "10.0.0.7"]
        {
            assert_eq!(hosts.grant(&host(other)), Err(HostRefusal::NotListed), "{other}");
        }
    }

    #[test]
    fn an_empty_list_allows_nothing() {
        assert_eq!(only(&[]).grant(&host("example.org")), Err(HostRefusal::NotListed));
    }

    #[test]
    fn local_names_must_be_listed() {
        for local in ["localhost", "LOCALHOST.", "a.localhost", "printer"] {
            assert_eq!(AllowedHosts::Any.grant(&host(local)), Err(HostRefusal::LocalName), "{local}");
        }
        assert_eq!(AllowedHosts::Any.grant(&host("example.org")), Ok(Grant::InGeneral));
        assert_eq!(only(&["printer"]).grant(&host("printer")), Ok(Grant::ByName));
    }

    #[test]
    fn what_is_no_pattern_is_said_clearly() {
        let problem = |text: &str| text.parse::<HostPattern>().unwrap_err();
        assert_eq!(problem("*"), HostPatternError::EveryHost);
        for text in ["https://example.org", "example.org:443", "example.org/path", "user@example.org"] {
            assert_eq!(problem(text), HostPatternError::NotOnlyAHost(text.into()));
        }
        for text in ["a.*.org", "*a.org", "*.*.org", "*.10.0.0.1"] {
            assert_eq!(problem(text), HostPatternError::MisplacedAsterisk(text.into()));
        }
        for text in ["", "*.", "a b", "0x7f.1"] {
            assert!(matches!(problem(text), HostPatternError::NoHost { .. }), "{text}");
        }
    }

    #[test]
    fn patterns_are_shown_as_they_are_read() {
        for text in ["example.org", "*.example.org", "10.0.0.5", "[fd12::1]"] {
            assert_eq!(text.parse::<HostPattern>().unwrap().to_string(), text);
        }
    }
}
