//! Takes the secrets of a server out of what it says beside results: errors, log messages and progress. Results pass as
//! the server wrote them.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use upstream::Redaction;
use wire::Text;

/// Where a message has words of the server, as a member of the message and members of that one. Ids, tokens and codes
/// stay as they are.
#[derive(Clone, Copy)]
pub(super) enum Words {
    Error,
    Log,
    Progress,
}

impl Words {
    fn place(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Error => ("error", &["message", "data"]),
            Self::Log => ("params", &["data", "logger"]),
            Self::Progress => ("params", &["message"]),
        }
    }
}

/// Members as they were written, so that numbers which are not looked at keep their form.
type Members = BTreeMap<String, Box<RawValue>>;

pub(super) fn without_secrets(redaction: &Redaction, text: Text, words: Words) -> Text {
    if redaction.is_empty() {
        return text;
    }
    let bytes = text.into_bytes();
    match redacted(redaction, &bytes, words) {
        Some(redacted) => Bytes::from(redacted).into(),
        None => bytes.into(),
    }
}

/// The message without secrets, if it has some.
fn redacted(redaction: &Redaction, message: &[u8], words: Words) -> Option<Vec<u8>> {
    let (member, names) = words.place();
    let mut message: Members = serde_json::from_slice(message).ok()?;
    let raw = message.get_mut(member)?;
    match serde_json::from_str::<Members>(raw.get()) {
        Ok(mut members) => {
            let found = names.iter().filter(|name| {
                members.get_mut(**name).is_some_and(|value| redact_value(redaction, value).is_some())
            });
            (found.count() > 0).then_some(())?;
            *raw = to_raw_value(&members).ok()?;
        }
        // An error is an object, but not every server knows.
        Err(_) => redact_value(redaction, raw)?,
    }
    serde_json::to_vec(&message).ok()
}

/// Returns `Some` if there were secrets.
fn redact_value(redaction: &Redaction, raw: &mut Box<RawValue>) -> Option<()> {
    let mut value: Value = serde_json::from_str(raw.get()).ok()?;
    redaction.value(&mut value).then_some(())?;
    *raw = to_raw_value(&value).ok()?;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redact(message: &str, words: Words) -> String {
        let text = Text::from(Bytes::from(message.to_owned()));
        let redacted = without_secrets(&Redaction::of(["hunter-2", "2601"]), text, words).into_bytes();
        String::from_utf8(redacted.to_vec()).unwrap()
    }

    #[test]
    fn words_are_redacted_and_ids_tokens_and_codes_are_not() {
        for (words, message, expected) in [
            (
                Words::Error,
                r#"{"id":260112345678901234567890,"error":{"code":-2601,"message":"h\u0075nter-2","data":[2601]}}"#,
                r#"{"error":{"code":-2601,"data":["[redacted]"],"message":"[redacted]"},"id":260112345678901234567890}"#,
            ),
            (Words::Error, r#"{"id":1,"error":"hunter-2"}"#, r#"{"error":"[redacted]","id":1}"#),
            (
                Words::Log,
                r#"{"method":"m","params":{"level":"info","data":{"key":"x hunter-2"}}}"#,
                r#"{"method":"m","params":{"data":{"key":"x [redacted]"},"level":"info"}}"#,
            ),
            (
                Words::Progress,
                r#"{"params":{"progressToken":2601,"progress":1.50,"message":"hunter-2"}}"#,
                r#"{"params":{"message":"[redacted]","progress":1.50,"progressToken":2601}}"#,
            ),
        ] {
            assert_eq!(redact(message, words), expected);
        }
        let plain = r#"{ "params":{"progressToken":2601, "message":"\u0061"} }"#;
        assert_eq!(redact(plain, Words::Progress), plain, "byte for byte");
    }
}
