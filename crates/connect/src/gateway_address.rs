//! Where the gateway is, and what it asks for.

use std::fmt;

use upstream::http::is_loopback;
use url::Url;

/// The gateway's URL, and the token that it asks for.
///
/// Everything is sent to this address and no other: the HTTP client follows no redirect to another origin, the
/// WebSocket follows none.
#[derive(Clone)]
pub struct GatewayAddress {
    /// Without the path of an endpoint, and without a slash at the end. Written by the parser that checked it, so that
    /// every client reads the same host from it.
    base: String,
    token: Option<String>,
}

/// Why a text cannot be used as the URL of a gateway.
#[derive(Debug, thiserror::Error)]
pub enum GatewayUrlError {
    #[error("{0:?} is not the URL of a gateway")]
    NotAUrl(String),
    /// The message leaves out the URL, which may hold a password.
    #[error("the URL of a gateway holds no user name, password, query or fragment")]
    Surplus,
    #[error(
        "refusing to connect to {host} by plain HTTP: everybody on the way could read and change what is sent"
    )]
    Unprotected { host: String },
}

impl GatewayUrlError {
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotAUrl(_) => "write it as https://host or http://127.0.0.1:3000",
            Self::Surplus => "leave it out; --token-file names the file with the token",
            Self::Unprotected { .. } => {
                "use https://, or a tunnel to an address of this machine, as with \
                 ssh -L 3000:127.0.0.1:3000 HOST and http://127.0.0.1:3000; nothing was sent"
            }
        }
    }
}

impl GatewayAddress {
    /// Takes the URL with or without the path `/mcp`. Plain HTTP is accepted only to this machine itself.
    pub fn new(url: &str, token: Option<String>) -> Result<Self, GatewayUrlError> {
        let not_a_url = || GatewayUrlError::NotAUrl(url.to_owned());
        let parsed = Url::parse(url).map_err(|_| not_a_url())?;
        let host = match parsed.scheme() {
            "http" | "https" => parsed.host_str().ok_or_else(not_a_url)?.to_owned(),
            _ => return Err(not_a_url()),
        };
        let has_credentials = !parsed.username().is_empty() || parsed.password().is_some();
        if has_credentials || parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(GatewayUrlError::Surplus);
        }
        if parsed.scheme() == "http" && !is_loopback(&parsed) {
            return Err(GatewayUrlError::Unprotected { host });
        }
        let base = parsed.as_str().trim_end_matches('/');
        Ok(Self { base: base.strip_suffix("/mcp").unwrap_or(base).to_owned(), token })
    }

    pub(crate) fn mcp_url(&self) -> String {
        format!("{}/mcp", self.base)
    }

    /// The WebSocket to attach the session with this id.
    pub(crate) fn attach_url(&self, id: &str) -> String {
        format!("{}/session/{id}/attach", self.base.replacen("http", "ws", 1))
    }

    pub(crate) fn authorization(&self) -> Option<String> {
        self.token.as_ref().map(|token| format!("Bearer {token}"))
    }
}

impl fmt::Debug for GatewayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayAddress").field("base", &self.base).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_named_with_or_without_the_path_of_its_endpoint() {
        for url in ["https://host", "https://host/", "https://host/mcp", "https://host/mcp/"] {
            let address = GatewayAddress::new(url, None).unwrap();
            assert_eq!(address.mcp_url(), "https://host/mcp", "{url}");
            assert_eq!(address.attach_url("s"), "wss://host/session/s/attach", "{url}");
        }
        let plain = GatewayAddress::new("http://127.0.0.1:3000", None).unwrap();
        assert_eq!(plain.attach_url("s"), "ws://127.0.0.1:3000/session/s/attach");
        for url in ["host", "ws://host", "", "http://", "file:///mcp"] {
            assert!(matches!(GatewayAddress::new(url, None), Err(GatewayUrlError::NotAUrl(_))), "{url}");
        }
    }

    #[test]
    fn plain_http_is_for_this_machine_alone() {
        for here in [
            "http://127.0.0.1:3000",
            "http://127.9.9.9",
            "http://[::1]:3000/mcp",
            "http://localhost:3000",
            "HTTP://LocalHost/mcp/",
        ] {
            GatewayAddress::new(here, None).unwrap_or_else(|error| panic!("{here}: {error}"));
        }
        for elsewhere in [
            "http://gateway.example",
            "HTTP://10.0.0.1:3000",
            "http://0.0.0.0",
            "http://[::2]",
            "http://[::ffff:10.0.0.1]",
            "http://localhost.example",
            "http://127.0.0.1.example",
            "http://128.0.0.1",
            r"http:\\10.0.0.1\@127.0.0.1",
        ] {
            for token in [None, Some("secret".to_owned())] {
                let refused = GatewayAddress::new(elsewhere, token);
                assert!(
                    matches!(refused, Err(GatewayUrlError::Unprotected { .. })),
                    "{elsewhere}: {refused:?}"
                );
            }
        }
    }

    #[test]
    fn all_clients_read_the_same_host_from_the_address() {
        let address = GatewayAddress::new(r"http:\\127.0.0.1\x", None).unwrap();
        assert_eq!(address.mcp_url(), "http://127.0.0.1/x/mcp");
        let address = GatewayAddress::new("http://0x7f.1:80/mcp", None).unwrap();
        assert_eq!(address.attach_url("s"), "ws://127.0.0.1/session/s/attach");
        for surplus in
            ["https://a:secret@host", "https://secret@host", "https://host/?secret", "https://host#s"]
        {
            let refused = GatewayAddress::new(surplus, None).unwrap_err();
            assert!(matches!(refused, GatewayUrlError::Surplus), "{surplus}: {refused}");
            assert!(!refused.to_string().contains("secret"), "{refused}");
        }
    }

    #[test]
    fn the_token_is_sent_and_never_printed() {
        let address = GatewayAddress::new("https://host", Some("secret".to_owned())).unwrap();
        assert_eq!(address.authorization().as_deref(), Some("Bearer secret"));
        assert!(!format!("{address:?}").contains("secret"));
    }
}
