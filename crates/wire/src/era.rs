//! Classifies a POST by protocol era: `legacy` (a session with an `initialize` handshake) or `modern` (2026-07-28,
//! every request on its own). The rules are those of the official server.

use crate::{ErrorReply, Message, Notification, Request, code, method};

/// The first revision of the modern era. Revisions are dates, so text order is time order.
pub(crate) const MODERN_FLOOR: &str = "2026-07-28";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    Legacy,
    Modern,
}

/// The headers that tell the era.
#[derive(Clone, Copy, Debug, Default)]
pub struct EraHeaders<'a> {
    /// `MCP-Protocol-Version`.
    pub protocol_version: Option<&'a str>,
}

/// Returns true if a version header names a revision of the modern era, served or not.
pub fn names_modern_version(header: &str) -> bool {
    header >= MODERN_FLOOR
}

impl Era {
    /// Classifies one message. Returns an error if header and body contradict each other.
    pub fn of(message: &Message, headers: EraHeaders<'_>) -> Result<Self, ErrorReply> {
        let modern_header = headers.protocol_version.is_some_and(names_modern_version);
        match message {
            Message::Response(_) => Ok(Self::Legacy),
            Message::Request(request) => Self::of_request(request, modern_header),
            Message::Notification(notification) => Ok(Self::of_notification(notification, modern_header)),
        }
    }

    /// Classifies a batch: always legacy, and an error if one of its elements claims the modern era.
    pub fn of_batch(messages: &[Message]) -> Result<Self, ErrorReply> {
        let claims = |message: &Message| match message {
            Message::Request(request) => request.peek().modern_claim.is_some(),
            Message::Notification(notification) => notification.peek().modern_claim.is_some(),
            Message::Response(_) => false,
        };
        if messages.iter().any(claims) {
            return Err(ErrorReply::new(code::INVALID_REQUEST, "a batch cannot hold requests of 2026-07-28"));
        }
        Ok(Self::Legacy)
    }

    fn of_request(request: &Request, modern_header: bool) -> Result<Self, ErrorReply> {
        let claims = request.peek().modern_claim.is_some();
        if request.method == method::INITIALIZE && !has_valid_envelope(request) {
            return if modern_header {
                Err(ErrorReply::new(
                    code::HEADER_MISMATCH,
                    "initialize does not exist in the revision that MCP-Protocol-Version names",
                ))
            } else {
                Ok(Self::Legacy)
            };
        }
        match (claims, modern_header) {
            (true, _) => Ok(Self::Modern),
            (false, true) => Err(ErrorReply::new(
                code::INVALID_PARAMS,
                "MCP-Protocol-Version names a revision whose requests carry it in params._meta too",
            )),
            (false, false) => Ok(Self::Legacy),
        }
    }

    fn of_notification(notification: &Notification, modern_header: bool) -> Self {
        if modern_header || notification.peek().modern_claim.is_some() { Self::Modern } else { Self::Legacy }
    }
}

/// Returns true if a request carries what every modern request must: a version of that era, and capabilities.
fn has_valid_envelope(request: &Request) -> bool {
    let peek = request.peek();
    let version =
        peek.modern_claim.and_then(|span| serde_json::from_slice::<String>(request.text_at(span)).ok());
    version.is_some_and(|version| names_modern_version(&version))
        && peek.modern_capabilities.is_some_and(|span| request.text_at(span).starts_with(b"{"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

    fn classify(body: &str, header: Option<&str>) -> Result<Era, i32> {
        let message = Message::parse(bytes::Bytes::copy_from_slice(body.as_bytes())).unwrap();
        Era::of(&message, EraHeaders { protocol_version: header }).map_err(|error| error.code)
    }

    #[test]
    fn the_classifier_follows_the_official_table() {
        let modern = Some("2026-07-28");
        let unknown = Some("v999.0.0");
        let claimed =
            |method: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{CLAIM}}}}}"#);
        let plain = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}}}}"#);
        let notice = r#"{"jsonrpc":"2.0","method":"n"}"#;
        let claimed_notice = format!(r#"{{"jsonrpc":"2.0","method":"n","params":{{{CLAIM}}}}}"#);
        let odd_claim = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}}"#;

        assert_eq!(classify(&plain("tools/list"), None), Ok(Era::Legacy));
        assert_eq!(classify(&plain("tools/list"), Some("2025-06-18")), Ok(Era::Legacy));
        assert_eq!(classify(&plain("tools/list"), modern), Err(code::INVALID_PARAMS));
        assert_eq!(classify(&claimed("tools/list"), modern), Ok(Era::Modern));
        assert_eq!(classify(&claimed("tools/list"), None), Ok(Era::Modern));
        assert_eq!(classify(&claimed("tools/list"), unknown), Ok(Era::Modern));
        assert_eq!(classify(odd_claim, None), Ok(Era::Modern));
        assert_eq!(classify(&plain("initialize"), None), Ok(Era::Legacy));
        assert_eq!(classify(&plain("initialize"), modern), Err(code::HEADER_MISMATCH));
        assert_eq!(classify(&claimed("initialize"), modern), Ok(Era::Modern));
        assert_eq!(classify(notice, None), Ok(Era::Legacy));
        assert_eq!(classify(notice, modern), Ok(Era::Modern));
        assert_eq!(classify(&claimed_notice, None), Ok(Era::Modern));
        assert_eq!(classify(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, modern), Ok(Era::Legacy));
    }

    #[test]
    fn a_batch_may_not_claim_the_modern_era() {
        let claimed = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{{CLAIM}}}}}"#);
        let message = Message::parse(claimed.into()).unwrap();
        assert!(Era::of_batch(&[message]).is_err());
    }
}
