//! Results that say which client window and project they belong to, for operators who look for a mix-up.

use bytes::Bytes;
use serde_json::{Value, json};
use wire::{Id, Outcome, Response, Text};

use crate::Session;
use audit::Timestamp;

/// Where in `_meta` it stands.
const KEY: &str = "io.ringfence/instance";

/// The answer with the instance in the `_meta` of its result. Errors stay as they are.
pub(crate) fn with_instance(session: &Session, response: &Response, id: &Id) -> Text {
    let Outcome::Result(result) = response.outcome() else { return response.with_id(id) };
    let Ok(Value::Object(mut result)) = serde_json::from_str(result) else { return response.with_id(id) };
    let meta = result.entry("_meta").or_insert_with(|| json!({}));
    if !meta.is_object() {
        return response.with_id(id);
    }
    meta[KEY] = json!({
        "instance_id": session.instance().as_str(),
        "project": session.scope().and_then(|scope| scope.primary().map(|path| path.to_string_lossy().into_owned())),
        "timestamp": Timestamp::now(),
        "session": session.handle().to_string(),
    });
    let text = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{}}}"#, id.as_json(), Value::Object(result));
    Bytes::from(text).into()
}
