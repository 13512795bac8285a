//! Where the gateway is, and what it asks for.

use std::fmt;

/// The gateway's URL, and the token that it asks for.
#[derive(Clone)]
pub struct GatewayAddress {
    /// Without a path.
    base: String,
    token: Option<String>,
}

/// A text that is not the URL of a gateway.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not the URL of a gateway")]
pub struct GatewayUrlError(String);

impl GatewayUrlError {
    pub fn hint(&self) -> &'static str {
        "write it as https://host or http://127.0.0.1:3000"
    }
}

impl GatewayAddress {
    /// Takes the URL with or without the path `/mcp`.
    pub fn new(url: &str, token: Option<String>) -> Result<Self, GatewayUrlError> {
        let is_http = url.starts_with("http://") || url.starts_with("https://");
        if !is_http {
            return Err(GatewayUrlError(url.to_owned()));
        }
        let base = url.trim_end_matches('/');
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
        for url in ["host", "ws://host", ""] {
            assert!(GatewayAddress::new(url, None).is_err(), "{url}");
        }
    }

    #[test]
    fn the_token_is_sent_and_never_printed() {
        let address = GatewayAddress::new("https://host", Some("secret".to_owned())).unwrap();
        assert_eq!(address.authorization().as_deref(), Some("Bearer secret"));
        assert!(!format!("{address:?}").contains("secret"));
    }
}
