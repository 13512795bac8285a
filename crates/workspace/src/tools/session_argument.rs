//! The argument that every tool takes and none needs: which session is meant.

use serde_json::Value;

use super::answer::ToolError;
use super::parameters::{Field, Kind};
use crate::identity::Identity;

/// Shown with the tools that are about the session.
pub(super) const SESSION: Field = Field::optional(
    "session",
    Kind::Text,
    "The session that is meant, by its handle or id; it must be the caller's own. Not needed, and taken by every tool.",
)
.or(&["sessionId", "session_id"]);

/// Takes it out of the arguments, and refuses a session that is not the caller's.
pub(crate) fn take_session(identity: &Identity, arguments: &mut Value) -> Result<(), ToolError> {
    let Some(arguments) = arguments.as_object_mut() else { return Ok(()) };
    for name in std::iter::once(&SESSION.name).chain(SESSION.aliases) {
        let Some(named) = arguments.remove(*name).filter(|named| !named.is_null()) else { continue };
        let Some(named) = named.as_str() else {
            return Err(ToolError::new("bad_arguments", format!("`{name}` must be a text")));
        };
        if identity.session.is_none() {
            let message = format!(
                "whether `{named}` is the caller's session is not known here: the server may be shared"
            );
            return Err(ToolError::new("wrong_session", message).with_hint("leave `session` out"));
        }
        if !identity.is_session(named) {
            return Err(ToolError::new("wrong_session", format!("`{named}` is not this session"))
                .with_hint("leave `session` out: a call is always about its own session"));
        }
    }
    Ok(())
}
