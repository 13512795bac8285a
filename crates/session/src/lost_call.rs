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
}

impl LostCall {
    /// What the client finds where it looks for the answer.
    pub(crate) fn answer(&self) -> Text {
        let id = serde_json::value::to_raw_value(&self.id).ok().and_then(|id| Id::from_raw(&id).ok());
        outcome_unknown().to_message(id.as_ref()).into()
    }
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
        let lost = LostCall { id: json!("a"), method: "tools/call".to_owned(), tool: None };
        let answer: Value = serde_json::from_slice(&lost.answer().into_bytes()).unwrap();
        assert_eq!(answer["id"], "a");
        assert_eq!(answer["error"]["data"], json!({ "reason": "gateway_restarted", "outcome": "unknown" }));
    }
}
