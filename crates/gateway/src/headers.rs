//! The headers of MCP over HTTP, read into types.

use axum::http::{HeaderMap, HeaderName, header};
use identity::{Instance, SessionId};
use session::WorkspaceChoice;
use wire::Version;
use wire::sse::EventId;

use crate::status::RequestError;

pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const WORKSPACE: HeaderName = HeaderName::from_static("ringfence-workspace");
const INSTANCE: HeaderName = HeaderName::from_static("ringfence-instance");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Another spelling of [`SESSION_ID`].
const OTHER_SESSION_ID: &str = "x-session-id";

/// Precedes the name of a directory on the client's own machine.
const ELSEWHERE: &str = "client:";

/// Checks that the client accepts both forms in which a POST may be answered.
pub(crate) fn accepts_post_answers(headers: &HeaderMap) -> Result<(), RequestError> {
    if accepts(headers, "application", "json") && accepts(headers, "text", "event-stream") {
        return Ok(());
    }
    Err(RequestError::NotAcceptable { needed: "both application/json and text/event-stream" })
}

pub(crate) fn accepts_events(headers: &HeaderMap) -> Result<(), RequestError> {
    if accepts(headers, "text", "event-stream") {
        return Ok(());
    }
    Err(RequestError::NotAcceptable { needed: "text/event-stream" })
}

fn accepts(headers: &HeaderMap, kind: &str, subtype: &str) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|range| range.split(';').next()?.trim().split_once('/'))
        .any(|(a, b)| {
            (a == "*" && b == "*")
                || (a.eq_ignore_ascii_case(kind) && (b == "*" || b.eq_ignore_ascii_case(subtype)))
        })
}

pub(crate) fn is_json(headers: &HeaderMap) -> Result<(), RequestError> {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = media_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") { Ok(()) } else { Err(RequestError::NotJson) }
}

/// The text of the version header, if it was sent.
pub(crate) fn version_text(headers: &HeaderMap) -> Option<&str> {
    headers.get(PROTOCOL_VERSION).map(|value| value.to_str().unwrap_or("unreadable"))
}

/// Accepts no version header, or one that names a revision that the gateway serves.
pub(crate) fn check_version(headers: &HeaderMap) -> Result<(), RequestError> {
    match version_text(headers) {
        Some(text) if Version::parse(text).is_none() => {
            Err(RequestError::UnsupportedVersion(text.to_owned()))
        }
        _ => Ok(()),
    }
}

/// The session that a request names. Returns `None` for an id that the gateway cannot have issued.
pub(crate) fn session_id(headers: &HeaderMap) -> Result<Option<SessionId>, RequestError> {
    let value = match (headers.get(SESSION_ID), headers.get(OTHER_SESSION_ID)) {
        (None, None) => return Err(RequestError::MissingSessionId),
        (Some(one), Some(other)) if one != other => return Err(RequestError::TwoSessions),
        (Some(value), _) | (None, Some(value)) => value,
    };
    Ok(value.to_str().ok().and_then(SessionId::parse))
}

/// The client window that a request names, if it names one.
pub(crate) fn instance(headers: &HeaderMap) -> Option<Instance> {
    headers.get(INSTANCE).and_then(|value| value.to_str().ok()).and_then(Instance::named)
}

/// The workspace that the header or the URL names. Both may name it if they agree.
pub(crate) fn workspace(
    headers: &HeaderMap,
    in_url: Option<&str>,
) -> Result<Option<WorkspaceChoice>, RequestError> {
    let mut values = headers.get_all(WORKSPACE).iter();
    let in_header = match (values.next(), values.next()) {
        (None, _) => None,
        (Some(value), None) => {
            let text = std::str::from_utf8(value.as_bytes()).map_err(|_| RequestError::BadWorkspace)?.trim();
            if text.is_empty() || (text.contains("${") && !text.starts_with(ELSEWHERE)) {
                return Err(RequestError::BadWorkspace);
            }
            Some(text)
        }
        (Some(_), Some(_)) => return Err(RequestError::BadWorkspace),
    };
    match (in_header, in_url) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some(text.strip_prefix(ELSEWHERE).map_or_else(
            || WorkspaceChoice::NamedOrPath(text.to_owned()),
            |label| WorkspaceChoice::Elsewhere(label.to_owned()),
        ))),
        (None, Some(name)) => Ok(Some(WorkspaceChoice::Named(name.to_owned()))),
        (Some(text), Some(name)) if text == name => Ok(Some(WorkspaceChoice::Named(name.to_owned()))),
        (Some(_), Some(_)) => Err(RequestError::TwoWorkspaces),
    }
}

pub(crate) fn last_event_id(headers: &HeaderMap) -> Result<Option<EventId>, RequestError> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(EventId::parse);
    parsed.map(Some).ok_or(RequestError::Refused(session::Refusal::UnknownEvent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn accept_is_read_as_media_ranges() {
        for good in [
            "application/json, text/event-stream",
            "text/event-stream;q=0.5,Application/JSON",
            "*/*",
            "application/*, text/*",
        ] {
            assert!(accepts_post_answers(&headers(header::ACCEPT, good)).is_ok(), "{good}");
        }
        for bad in ["application/json", "text/event-stream", "", "application/jsonx, text/event-streams"] {
            assert!(accepts_post_answers(&headers(header::ACCEPT, bad)).is_err(), "{bad}");
        }
        assert!(accepts_post_answers(&HeaderMap::new()).is_err());
    }

    #[test]
    fn content_type_is_compared_as_a_media_type() {
        assert!(is_json(&headers(header::CONTENT_TYPE, "application/json; charset=utf-8")).is_ok());
        for bad in ["application/jsonp", "text/plain; application/json", ""] {
            assert!(is_json(&headers(header::CONTENT_TYPE, bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn two_session_headers_must_agree() {
        let id = "0b0a86bd-6f18-4a0f-8f3b-3f1f0f6f0a11";
        let mut both = headers(SESSION_ID, id);
        both.insert(OTHER_SESSION_ID, HeaderValue::from_static(id));
        assert_eq!(session_id(&both).unwrap(), SessionId::parse(id));
        both.insert(OTHER_SESSION_ID, HeaderValue::from_static("0b0a86bd-6f18-4a0f-8f3b-3f1f0f6f0a12"));
        assert!(matches!(session_id(&both), Err(RequestError::TwoSessions)));
        assert!(matches!(session_id(&HeaderMap::new()), Err(RequestError::MissingSessionId)));
        assert_eq!(session_id(&headers(SESSION_ID, "not-a-uuid")).unwrap(), None);
    }

    #[test]
    fn a_workspace_is_named_by_the_header_or_the_url() {
        let named = |name: &str| Some(WorkspaceChoice::Named(name.to_owned()));
        let header =
            |value: &'static str, in_url: Option<&str>| workspace(&headers(WORKSPACE, value), in_url);
        assert_eq!(workspace(&HeaderMap::new(), None).unwrap(), None);
        assert_eq!(workspace(&HeaderMap::new(), Some("shop")).unwrap(), named("shop"));
        assert_eq!(header("shop", Some("shop")).unwrap(), named("shop"));
        let path = WorkspaceChoice::NamedOrPath("/srv/shop".to_owned());
        assert_eq!(header("/srv/shop", None).unwrap(), Some(path));
        let elsewhere = WorkspaceChoice::Elsewhere("${workspaceFolder}".to_owned());
        assert_eq!(header("client:${workspaceFolder}", None).unwrap(), Some(elsewhere));
        assert!(matches!(header("shop", Some("other")), Err(RequestError::TwoWorkspaces)));
        for bad in ["", "  ", "${workspaceFolder}"] {
            assert!(matches!(header(bad, None), Err(RequestError::BadWorkspace)), "{bad:?}");
        }
    }

    #[test]
    fn only_served_versions_pass() {
        assert!(check_version(&HeaderMap::new()).is_ok());
        assert!(check_version(&headers(PROTOCOL_VERSION, "2025-06-18")).is_ok());
        for bad in ["2026-07-28", "", "latest"] {
            let checked = check_version(&headers(PROTOCOL_VERSION, bad));
            assert!(matches!(checked, Err(RequestError::UnsupportedVersion(_))), "{bad:?}");
        }
    }
}
