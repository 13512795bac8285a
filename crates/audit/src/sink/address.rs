//! Where a log is sent to, as the user writes it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use reqwest::Url;
use thiserror::Error;

/// The address of a sink: `syslog+tcp://HOST:PORT`, `syslog+tls://HOST:PORT`, `https://HOST/PATH`, or `http://` to this
/// machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkAddress {
    Syslog(SyslogAddress),
    Http(Url),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyslogAddress {
    /// A name, or an IP address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) has_tls: bool,
}

/// Why a text is not the address of a sink. The message does not quote the text, which may hold a password.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum SinkAddressError {
    #[error("write it as syslog+tls://HOST:PORT, syslog+tcp://127.0.0.1:PORT or https://HOST/PATH")]
    NotASink,
    #[error("a URL holds no user name and no password: --audit-sink-token names a file with a token")]
    Credentials,
    #[error(
        "{host} is another machine, and everybody on the way could read and change the records: use syslog+tls:// or \
         https://"
    )]
    Unprotected { host: String },
}

impl FromStr for SinkAddress {
    type Err = SinkAddressError;

    fn from_str(text: &str) -> Result<Self, SinkAddressError> {
        let (scheme, rest) = text.split_once("://").ok_or(SinkAddressError::NotASink)?;
        let (address, is_protected) = match scheme {
            "syslog+tls" => (Self::Syslog(syslog_address(rest, true)?), true),
            "syslog+tcp" => (Self::Syslog(syslog_address(rest, false)?), false),
            "https" => (Self::Http(url(text)?), true),
            "http" => (Self::Http(url(text)?), false),
            _ => return Err(SinkAddressError::NotASink),
        };
        if is_protected || address.is_here() {
            return Ok(address);
        }
        Err(SinkAddressError::Unprotected { host: address.host().to_owned() })
    }
}

fn syslog_address(text: &str, has_tls: bool) -> Result<SyslogAddress, SinkAddressError> {
    let (host, port) = text.trim_end_matches('/').rsplit_once(':').ok_or(SinkAddressError::NotASink)?;
    let port = port.parse().map_err(|_| SinkAddressError::NotASink)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_name = |name: &str| !name.is_empty() && !name.contains([':', '/', '@', '?', '#', '[', ']']);
    match bare {
        Some(address) if address.parse::<IpAddr>().is_ok() => {
            Ok(SyslogAddress { host: address.to_owned(), port, has_tls })
        }
        None if is_name(host) => Ok(SyslogAddress { host: host.to_owned(), port, has_tls }),
        _ => Err(SinkAddressError::NotASink),
    }
}

fn url(text: &str) -> Result<Url, SinkAddressError> {
    let url = Url::parse(text).map_err(|_| SinkAddressError::NotASink)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(SinkAddressError::Credentials);
    }
    Ok(url)
}

impl SinkAddress {
    fn host(&self) -> &str {
        match self {
            Self::Syslog(syslog) => &syslog.host,
            Self::Http(url) => url.host_str().unwrap_or_default().trim_matches(['[', ']']),
        }
    }

    /// Whether it is this machine itself: an address of 127.0.0.0/8, `::1` or `localhost`.
    pub(super) fn is_here(&self) -> bool {
        let host = self.host();
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

/// Leaves out the query of a URL, which may hold a key.
impl fmt::Display for SinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syslog(SyslogAddress { host, port, has_tls }) => {
                let scheme = if *has_tls { "syslog+tls" } else { "syslog+tcp" };
                write!(f, "{scheme}://{host}:{port}")
            }
            Self::Http(url) => write!(f, "{}{}", url.origin().ascii_serialization(), url.path()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> SinkAddressError {
        text.parse::<SinkAddress>().unwrap_err()
    }

    #[test]
    fn records_leave_this_machine_only_through_tls() {
        for good in [
            "syslog+tls://log.example:6514",
            "syslog+tls://[2001:db8::1]:6514",
            "syslog+tcp://127.0.0.1:514",
            "syslog+tcp://[::1]:514/",
            "syslog+tcp://localhost:514",
            "https://log.example/in?key=secret",
            "http://localhost:8088/in",
            "http://[::1]:8088",
        ] {
            let address: SinkAddress = good.parse().unwrap_or_else(|error| panic!("{good}: {error}"));
            assert!(!address.to_string().contains("secret"), "{address}");
        }
        for unprotected in [
            "syslog+tcp://log.example:514",
            "syslog+tcp://10.0.0.1:514",
            "syslog+tcp://localhost.example:514",
            "syslog+tcp://[2001:db8::1]:514",
            "http://log.example/in",
            "http://127.0.0.1.example/in",
        ] {
            assert!(matches!(error(unprotected), SinkAddressError::Unprotected { .. }), "{unprotected}");
        }
    }

    #[test]
    fn what_is_no_sink_is_refused() {
        for bad in [
            "",
            "log.example:514",
            "syslog://log.example:514",
            "syslog+udp://127.0.0.1:514",
            "syslog+tls://log.example",
            "syslog+tls://:6514",
            "syslog+tls://log.example:0x1",
            "syslog+tls://a@b:6514",
            "syslog+tls://::1:6514",
            "syslog+tls://[log.example]:6514",
            "https://",
            "ftp://log.example/in",
        ] {
            assert_eq!(error(bad), SinkAddressError::NotASink, "{bad}");
        }
        assert_eq!(error("https://user:secret@log.example/in"), SinkAddressError::Credentials);
    }
}
