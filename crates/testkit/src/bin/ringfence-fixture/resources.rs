//! The resources that the conformance suite reads and subscribes to.

use serde_json::{Value, json};

use crate::outgoing::{INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, to_json};
use crate::server::Server;

/// One red pixel.
pub(crate) const PNG_BASE64: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const STATIC_TEXT: &str = "test://static-text";
const STATIC_BINARY: &str = "test://static-binary";
const WATCHED: &str = "test://watched-resource";

pub(crate) fn list_result() -> String {
    let resource = |uri: &str, name: &str, description: &str, mime_type: &str| json!({"uri": uri, "name": name, "description": description, "mimeType": mime_type});
    to_json(&json!({"resources": [
        resource(STATIC_TEXT, "static-text", "A text that never changes", "text/plain"),
        resource(STATIC_BINARY, "static-binary", "An image that never changes", "image/png"),
        resource(WATCHED, "watched-resource", "A text to subscribe to", "text/plain"),
    ]}))
}

pub(crate) fn templates_list_result() -> String {
    to_json(&json!({"resourceTemplates": [{
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "description": "Data that repeats the id",
        "mimeType": "application/json",
    }]}))
}

pub(crate) fn read_result(params: &Value) -> Result<String, RpcError> {
    let uri = required_uri(params)?;
    let content = match uri {
        STATIC_TEXT => text(uri, "text/plain", "This is the content of the static text resource."),
        STATIC_BINARY => json!({"uri": uri, "mimeType": "image/png", "blob": PNG_BASE64}),
        WATCHED => text(uri, "text/plain", "Watched resource content"),
        _ => templated(uri).ok_or_else(|| not_found(uri))?,
    };
    Ok(to_json(&json!({ "contents": [content] })))
}

fn text(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({"uri": uri, "mimeType": mime_type, "text": text})
}

fn templated(uri: &str) -> Option<Value> {
    let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
    let data = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
    Some(text(uri, "application/json", &to_json(&data)))
}

fn not_found(uri: &str) -> RpcError {
    RpcError {
        code: RESOURCE_NOT_FOUND,
        message: "Resource not found".to_owned(),
        data: Some(json!({ "uri": uri })),
    }
}

fn required_uri(params: &Value) -> Result<&str, RpcError> {
    params["uri"].as_str().ok_or_else(|| RpcError::new(INVALID_PARAMS, "uri is missing"))
}

pub(crate) fn subscribe(server: &Server, params: &Value) -> Result<(), RpcError> {
    let uri = required_uri(params)?.to_owned();
    server.subscriptions.lock().insert(uri);
    Ok(())
}

pub(crate) fn unsubscribe(server: &Server, params: &Value) -> Result<(), RpcError> {
    let uri = required_uri(params)?;
    server.subscriptions.lock().remove(uri);
    Ok(())
}
