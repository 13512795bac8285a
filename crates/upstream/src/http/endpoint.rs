//! The address of a server, with the headers that authorize us there.

use std::fmt;
use std::time::Duration;

#[derive(Clone)]
pub struct Endpoint {
    pub url: String,
    /// Sent with every request. Values are secrets: they are never printed.
    pub headers: Vec<(String, String)>,
    /// Longest message.
    pub max_message: usize,
    pub connect_timeout: Duration,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Endpoint")
            .field("url", &without_secrets(&self.url))
            .field("headers", &names)
            .finish_non_exhaustive()
    }
}

/// A URL without the parts that may hold a key: user name, password, query and fragment.
fn without_secrets(url: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(url) else { return "(not a URL)".to_owned() };
    // Both fail for URLs that cannot have them.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_printed_without_its_secrets() {
        let endpoint = Endpoint {
            url: "https://user:secret@mcp.example.com/mcp?key=secret#secret".to_owned(),
            headers: vec![("X-Key".to_owned(), "secret".to_owned())],
            max_message: 1,
            connect_timeout: Duration::from_secs(1),
        };
        let printed = format!("{endpoint:?}");
        assert!(printed.contains("https://mcp.example.com/mcp") && printed.contains("X-Key"), "{printed}");
        assert!(!printed.contains("secret"), "{printed}");
        assert_eq!(without_secrets("secret"), "(not a URL)");
    }
}
