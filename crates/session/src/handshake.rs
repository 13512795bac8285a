//! `initialize` toward an upstream: the client's own with the gateway's roots, or the gateway's own.

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use wire::{Message, Request, Version};

/// Follows the answer to the gateway's own `initialize`.
pub(crate) const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The client's `initialize` as its upstream gets it: the gateway answers for roots, and they do not change.
pub(crate) fn with_our_roots(request: &Request) -> Request {
    let mut params: Value =
        request.params_text().and_then(|params| serde_json::from_str(params).ok()).unwrap_or_default();
    if !params["capabilities"].is_object() {
        params["capabilities"] = json!({});
    }
    params["capabilities"]["roots"] = json!({});
    initialize(&params)
}

/// Greets an upstream that several clients share. It declares all that some client may be able to do; a client that
/// cannot is not asked.
pub(crate) fn own() -> Request {
    initialize(&json!({
        "protocolVersion": Version::NEWEST.as_str(),
        "capabilities": {"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}},
        "clientInfo": {"name": "ringfence", "version": env!("CARGO_PKG_VERSION")},
    }))
}

/// Stands in for a client that may never say `initialize` itself. It is not asked for what it turns out not to support.
pub(crate) fn on_behalf_of(client: &Value, version: Version) -> Request {
    initialize(&json!({
        "protocolVersion": version.as_str(),
        "capabilities": {"sampling": {}, "elicitation": {"form": {}, "url": {}}},
        "clientInfo": client,
    }))
}

/// What the next client most probably says, to have its answer ready.
pub(crate) fn expected() -> Request {
    initialize(&json!({
        "protocolVersion": Version::NEWEST.as_str(),
        "capabilities": {"roots": {}, "elicitation": {}},
        "clientInfo": {"name": "ringfence", "version": env!("CARGO_PKG_VERSION")},
    }))
}

fn initialize(params: &Value) -> Request {
    let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    match Message::parse(Bytes::from(message.to_string())) {
        Ok(Message::Request(request)) => request,
        other => unreachable!("our own initialize is a request: {other:?}"),
    }
}

/// Hashes the parts of `initialize` that an upstream's answer depends on.
pub(crate) fn fingerprint(handshake: &Request) -> [u8; 32] {
    let params: Value =
        handshake.params_text().and_then(|params| serde_json::from_str(params).ok()).unwrap_or_default();
    Sha256::digest(json!([params["protocolVersion"], params["capabilities"]]).to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(capabilities: &Value) -> Request {
        initialize(&json!({"protocolVersion": "2025-06-18", "capabilities": capabilities, "x": [1.5]}))
    }

    fn params(request: &Request) -> Value {
        serde_json::from_str(request.params().unwrap().get()).unwrap()
    }

    #[test]
    fn the_clients_words_stay_but_for_roots() {
        for said in [json!({"roots": {"listChanged": true}, "sampling": {}}), json!({"sampling": {}})] {
            let sent = params(&with_our_roots(&client(&said)));
            assert_eq!(sent["capabilities"], json!({"roots": {}, "sampling": {}}));
            assert_eq!((&sent["protocolVersion"], &sent["x"]), (&json!("2025-06-18"), &json!([1.5])));
        }
    }

    #[test]
    fn answers_are_known_by_version_and_capabilities() {
        let with = |capabilities| fingerprint(&with_our_roots(&client(&capabilities)));
        assert_eq!(with(json!({"roots": {}})), with(json!({})));
        assert_ne!(with(json!({"sampling": {}})), with(json!({})));
    }
}
