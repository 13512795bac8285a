//! A call that a gateway took and did not see the end of, as its client is told of it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wire::{ErrorReply, Id, Text, code};

/// Why the outcome is not known.
pub(crate) const RESTARTED: &str = "gateway_restarted";

/// A call whose outcome is not known, as the client knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LostCall {
    /// The client's id, as JSON.
    pub(crate) id: Value,
    pub(crate) method: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    /// The call was answered, with so many bytes, and only the answer is lost: there was no room to keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer_bytes: Option<usize>,
}

impl LostCall {
    /// What the client finds where it looks for the answer.
    pub(crate) fn answer(&self) -> Text {
        let id = serde_json::value::to_raw_value(&self.id).ok().and_then(|id| Id::from_raw(&id).ok());
        let error = self.answer_bytes.map_or_else(outcome_unknown, answer_not_kept);
        error.to_message(id.as_ref()).into()
    }
}

/// The error for a call that was answered before the gateway ended, where the answer itself was not kept.
fn answer_not_kept(bytes: usize) -> ErrorReply {
    let message = format!(
        "The call completed before the gateway was restarted, but its result of {bytes} bytes was too large to keep; \
         whatever it did is done"
    );
    let data =
        json!({ "reason": RESTARTED, "outcome": "completed", "result": "too_large_to_keep", "bytes": bytes });
    ErrorReply::new(code::SERVER_ERROR, message).with_data(data)
}

/// The error for a call that a gateway took and did not see the end of.
pub(crate) fn outcome_unknown() -> ErrorReply {
    unknown_because("restarted")
}

/// The same for a gateway that goes on with another program.
pub(crate) fn outcome_unknown_in_upgrade() -> ErrorReply {
    unknown_because("upgraded")
}

fn unknown_because(what: &str) -> ErrorReply {
    ErrorReply::new(
        code::SERVER_ERROR,
        format!(
            "The gateway was {what} while this call was running; whether the call took effect is unknown"
        ),
    )
    .with_data(json!({ "reason": RESTARTED, "outcome": "unknown" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_call_is_answered_under_its_own_id() {
        let mut lost =
            LostCall { id: json!("a"), method: "tools/call".to_owned(), tool: None, answer_bytes: None };
        let answer =
            |lost: &LostCall| -> Value { serde_json::from_slice(&lost.answer().into_bytes()).unwrap() };
        let unknown = answer(&lost);
        assert_eq!(unknown["id"], "a");
        assert_eq!(unknown["error"]["data"], json!({ "reason": "gateway_restarted", "outcome": "unknown" }));
        lost.answer_bytes = Some(300_000);
        let completed = answer(&lost);
        assert_eq!(
            (&completed["id"], &completed["error"]["data"]["outcome"]),
            (&json!("a"), &json!("completed"))
        );
        assert!(completed["error"]["message"].as_str().unwrap().contains("300000 bytes"), "{completed}");
    }

    #[test]
    fn a_call_that_an_earlier_program_stored_can_be_read() {
        let lost: LostCall = serde_json::from_value(json!({ "id": 1, "method": "ping" })).unwrap();
        assert_eq!(lost.answer_bytes, None);
    }
}
