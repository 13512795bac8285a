//! What a client hears after its session was restored: once, in the `_meta` of its next result.

use std::time::Instant;

use bytes::Bytes;
use serde_json::{Value, json};
use wire::Text;

use super::Client;
use crate::lost_call::{LostCall, RESTARTED};

/// Where in `_meta` it stands.
const KEY: &str = "io.ringfence/restored";

/// A result that is longer is not rewritten for the note; the next one has it.
const LONGEST_RESULT: usize = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) epoch: u32,
    /// Calls that were running when the earlier gateway ended.
    pub(crate) lost: Vec<LostCall>,
}

impl Restored {
    /// The result with the note in its `_meta`. `None` if it cannot have one.
    pub(super) fn note_in(&self, answer: &Text) -> Option<Text> {
        if answer.len() > LONGEST_RESULT {
            return None;
        }
        let mut answer: Value = serde_json::from_slice(&answer.clone().into_bytes()).ok()?;
        let meta = answer.get_mut("result")?.as_object_mut()?.entry("_meta").or_insert_with(|| json!({}));
        meta.as_object_mut()?
            .insert(KEY.to_owned(), json!({ "reason": RESTARTED, "epoch": self.epoch, "lost": self.lost }));
        Some(Bytes::from(answer.to_string()).into())
    }
}

/// Gives a client what an earlier gateway left of it: streams of calls, each with what is to be read there, and what the
/// client is to hear with its next result.
pub(crate) fn take_over(client: &Client, streams: Vec<(u64, Text)>, restored: Restored) {
    let (epoch, now) = (restored.epoch, Instant::now());
    let mut state = client.state.lock();
    state.is_initialized = true;
    for (number, answer) in streams {
        state.streams.take_over(epoch, number, answer, now);
    }
    state.restored = Some(restored);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        Bytes::copy_from_slice(text.as_bytes()).into()
    }

    fn lost() -> LostCall {
        LostCall {
            id: json!("a"),
            method: "tools/call".to_owned(),
            tool: Some("build".to_owned()),
            answer_bytes: None,
        }
    }

    #[test]
    fn a_result_says_that_the_session_was_restored_and_what_was_lost() {
        let restored = Restored { epoch: 3, lost: vec![lost()] };
        for result in [r#"{"x":1}"#, r#"{"x":1,"_meta":{"other":2}}"#] {
            let answer = text(&format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#));
            let noted: Value =
                serde_json::from_slice(&restored.note_in(&answer).unwrap().into_bytes()).unwrap();
            let note = &noted["result"]["_meta"][KEY];
            assert_eq!((&noted["id"], &noted["result"]["x"]), (&json!(7), &json!(1)));
            assert_eq!((&note["reason"], &note["epoch"]), (&json!("gateway_restarted"), &json!(3)));
            assert_eq!(note["lost"], json!([{ "id": "a", "method": "tools/call", "tool": "build" }]));
        }
    }

    #[test]
    fn what_cannot_hold_the_note_stays_as_it_is() {
        let restored = Restored { epoch: 1, lost: Vec::new() };
        let long = format!(r#"{{"id":1,"result":{{"x":"{}"}}}}"#, "x".repeat(LONGEST_RESULT));
        for answer in
            [r#"{"id":1,"error":{}}"#, r#"{"id":1,"result":7}"#, r#"{"id":1,"result":{"_meta":7}}"#, &long]
        {
            assert!(restored.note_in(&text(answer)).is_none());
        }
    }
}
