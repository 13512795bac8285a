//! Adds to a failed answer what can be done about it. Everything that the server wrote stays.

use bytes::Bytes;
use serde_json::{Value, json};
use wire::Text;

/// The answer with a remedy: one more text in the content of a result, or the end of an error's message. An answer that
/// has neither passes as it is.
pub(super) fn with_remedy(answer: Text, remedy: &str) -> Text {
    let bytes = answer.into_bytes();
    let added = serde_json::from_slice(&bytes).ok().and_then(|answer| add(answer, remedy));
    added.map_or(bytes, |answer| Bytes::from(answer.to_string())).into()
}

fn add(mut answer: Value, remedy: &str) -> Option<Value> {
    let remedy = format!("[ringfence: {remedy}]");
    if let Some(content) = answer.pointer_mut("/result/content") {
        content.as_array_mut()?.push(json!({"type": "text", "text": remedy}));
        return Some(answer);
    }
    let message = answer.pointer_mut("/error/message")?;
    *message = format!("{} {remedy}", message.as_str()?).into();
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(answer: &str) -> Value {
        let answer = with_remedy(Bytes::copy_from_slice(answer.as_bytes()).into(), "use --storage");
        serde_json::from_slice(&answer.into_bytes()).unwrap()
    }

    #[test]
    fn a_result_gets_one_more_text_and_an_error_a_longer_message() {
        let result = with(
            r#"{"jsonrpc":"2.0","id":"7","result":{"content":[{"type":"text","text":"EROFS"}],"isError":true,"_meta":{"a":1}}}"#,
        );
        let added = json!([{"type": "text", "text": "EROFS"}, {"type": "text", "text": "[ringfence: use --storage]"}]);
        assert_eq!(
            result,
            json!({"jsonrpc": "2.0", "id": "7", "result": {"content": added, "isError": true, "_meta": {"a": 1}}})
        );
        let error = with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"EROFS","data":{"b":2}}}"#);
        assert_eq!(
            error["error"],
            json!({"code": 1, "message": "EROFS [ringfence: use --storage]", "data": {"b": 2}})
        );
    }

    #[test]
    fn what_has_no_place_for_it_stays() {
        for answer in
            [r#"{"id":7,"result":{"isError":true}}"#, r#"{"id":7,"result":{"content":"x"}}"#, "no JSON"]
        {
            let kept = with_remedy(Bytes::copy_from_slice(answer.as_bytes()).into(), "use --storage");
            assert_eq!(kept.into_bytes(), answer.as_bytes());
        }
    }
}
