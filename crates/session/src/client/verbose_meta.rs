//! Results that say which client window and project they belong to, for operators who look for a mix-up.

use audit::Timestamp;
use bytes::Bytes;
use serde_json::{Value, json};
use wire::{Id, Outcome, Response, Text};

use super::Client;

/// Where in `_meta` it stands.
const KEY: &str = "io.ringfence/instance";

/// The answer with the instance in the `_meta` of its result. Errors stay as they are.
pub(crate) fn with_instance(client: &Client, response: &Response, id: &Id) -> Text {
    let Outcome::Result(result) = response.outcome() else { return response.with_id(id) };
    let Ok(Value::Object(mut result)) = serde_json::from_str(result) else { return response.with_id(id) };
    let meta = result.entry("_meta").or_insert_with(|| json!({}));
    if !meta.is_object() {
        return response.with_id(id);
    }
    meta[KEY] = json!({
        "instance_id": client.instance().as_str(),
        "project": client.scope().and_then(|scope| Some(scope.primary()?.to_string_lossy().into_owned())),
        "timestamp": Timestamp::now(),
        "session": client.handle().to_string(),
    });
    let text = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{}}}"#, id.as_json(), Value::Object(result));
    Bytes::from(text).into()
}

#[cfg(test)]
mod tests;
