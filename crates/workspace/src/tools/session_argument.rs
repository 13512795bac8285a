//! The optional argument `session`, which every tool accepts.

use serde_json::Value;

use super::answer::ToolError;
use super::parameters::{Field, Kind};
use crate::identity::Identity;

/// Listed only for tools that are about the session.
pub(super) const SESSION: Field =
    Field::optional("session", Kind::Text, "Handle or id of this session.").or(&["sessionId", "session_id"]);

/// Removes it from the arguments. Refuses a session that is not the caller's.
pub(crate) fn take_session(identity: &Identity, arguments: &mut Value) -> Result<(), ToolError> {
    let Some(arguments) = arguments.as_object_mut() else { return Ok(()) };
    for name in std::iter::once(&SESSION.name).chain(SESSION.aliases) {
        let Some(named) = arguments.remove(*name).filter(|named| !named.is_null()) else { continue };
        let Some(named) = named.as_str() else {
            return Err(ToolError::new("bad_arguments", format!("`{name}` must be a text")));
        };
        if identity.session.is_none() {
            let message = format!(
                "this server cannot tell whether `{named}` is the caller's session: sessions may share it"
            );
            return Err(ToolError::new("wrong_session", message).with_hint("leave `session` out"));
        }
        if !identity.is_session(named) {
            return Err(ToolError::new("wrong_session", format!("`{named}` is not this session"))
                .with_hint(
                    "leave `session` out: a call is always about its own session; another session workspace has an \
                     endpoint of its own, /mcp/w/NAME",
                ));
        }
    }
    Ok(())
}
