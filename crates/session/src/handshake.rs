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

    #[test]
    fn answers_depend_on_the_version_and_not_on_the_name_of_the_client() {
        let said = |version, client| {
            fingerprint(&initialize(&json!({
                "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": client },
            })))
        };
        assert_eq!(said("2025-06-18", "one"), said("2025-06-18", "other"));
        assert_ne!(said("2025-06-18", "one"), said("2025-11-25", "one"));
    }

    #[test]
    fn capabilities_that_are_none_become_our_roots() {
        for said in [Value::Null, json!("all"), json!([])] {
            let sent = params(&with_our_roots(&client(&said)));
            assert_eq!(sent["capabilities"], json!({"roots": {}}), "{said}");
        }
    }

    #[test]
    fn an_initialize_without_parameters_gets_our_roots() {
        let bare = crate::testing::message(r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#);
        let Message::Request(bare) = bare else { panic!() };
        assert_eq!(params(&with_our_roots(&bare)), json!({"capabilities": {"roots": {}}}));
    }

    #[test]
    fn a_shared_upstream_hears_all_that_some_client_may_be_able_to_do() {
        let sent = params(&own());
        assert_eq!(sent["protocolVersion"], Version::NEWEST.as_str());
        for capability in ["roots", "sampling", "elicitation"] {
            assert!(sent["capabilities"][capability].is_object(), "{capability}");
        }
        assert_eq!(sent["clientInfo"]["name"], "ringfence");
    }

    #[test]
    fn a_client_that_says_no_initialize_is_greeted_in_its_own_name_and_version() {
        let sent = params(&on_behalf_of(&json!({"name": "editor"}), Version::V2025_03_26));
        assert_eq!(
            (&sent["protocolVersion"], &sent["clientInfo"]["name"]),
            (&json!("2025-03-26"), &json!("editor"))
        );
        assert!(sent["capabilities"]["sampling"].is_object());
    }

    #[test]
    fn the_expected_client_is_known_by_what_it_will_say() {
        let said = initialize(&json!({
            "protocolVersion": Version::NEWEST.as_str(),
            "capabilities": {"elicitation": {}, "roots": {"listChanged": true}},
            "clientInfo": {"name": "editor"},
        }));
        assert_eq!(fingerprint(&with_our_roots(&expected())), fingerprint(&with_our_roots(&said)));
    }
}
