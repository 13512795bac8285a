//! An HTTP body: one message, or a batch, which only revision 2025-03-26 allows.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::limits::MAX_BATCH;
use crate::{Message, MessageError};

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly every body holds a single message")]
pub enum Body {
    Single(Message),
    /// Never empty. Each element is valid on its own.
    Batch(Vec<Message>),
}

impl Body {
    pub fn parse(text: Bytes) -> Result<Self, MessageError> {
        let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
        if first == Some(&b'[') {
            parse_batch(&text).map(Self::Batch)
        } else {
            Message::parse(text).map(Self::Single)
        }
    }
}

fn parse_batch(text: &Bytes) -> Result<Vec<Message>, MessageError> {
    let elements: Vec<&RawValue> = serde_json::from_slice(text)
        .map_err(|error| MessageError::not_json(format!("not a valid JSON array: {error}")))?;
    if elements.is_empty() {
        return Err(MessageError::invalid("a batch must not be empty"));
    }
    if elements.len() > MAX_BATCH {
        return Err(MessageError::invalid(format!("a batch holds at most {MAX_BATCH} messages")));
    }
    elements.into_iter().map(|element| Message::parse(text.slice_ref(element.get().as_bytes()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_its_messages() {
        let text = br#" [{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"}]"#;
        let Ok(Body::Batch(messages)) = Body::parse(Bytes::from_static(text)) else { panic!() };
        assert_eq!(messages.iter().filter_map(Message::method).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn bad_batches_are_refused_whole() {
        let long = format!("[{}{{}}]", "{},".repeat(MAX_BATCH));
        for bad in ["[]", "[1]", r#"[{"jsonrpc":"2.0","id":1,"method":"a"},{}]"#, "[", &long] {
            assert!(Body::parse(Bytes::copy_from_slice(bad.as_bytes())).is_err(), "{bad}");
        }
    }
}
