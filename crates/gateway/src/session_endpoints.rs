//! The session endpoints beside MCP: open, show and end a session. A request may name a directory and choose among
//! what the operator allows; it cannot name a command, a variable or a server that is not configured.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use config::ExecutionContext;
use identity::{Principal, SessionId, SessionKey};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use session::{
    Author, Caller, ContextReport, ContextUpdate, Contexts, EndReason, Refusal, Session, WorkspaceChoice,
    update_session_context,
};
use wire::Version;

use crate::Gateway;
use crate::headers;
use crate::mcp::{self, no_content, read_body};
use crate::status::RequestError;

/// Longest body of `POST /session/init`, and of a change of what is said about a session.
const MAX_BODY: usize = 64 * 1024;

/// The body of `POST /session/init`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Introduction {
    #[serde(default)]
    client_info: ClientInfo,
    working_directory: Option<String>,
    #[serde(default)]
    capabilities: Capabilities,
    #[serde(default)]
    preferences: Preferences,
    protocol_version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct ClientInfo {
    #[serde(default)]
    name: String,
    #[serde(default)]
    version: String,
}

/// The capabilities that matter here; clients may declare others.
#[derive(Debug, Default, Deserialize)]
struct Capabilities {
    filesystem: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Preferences {
    #[serde(default)]
    execution_context: BTreeMap<String, WantedContext>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WantedContext {
    Local,
    Remote,
}

pub(crate) async fn init(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let opened = async {
        headers::is_json(&parts.headers)?;
        let body = read_body(body, MAX_BODY).await?;
        let introduction: Introduction = serde_json::from_slice(&body)
            .map_err(|error| RequestError::BadIntroduction(error.to_string()))?;
        open(&gateway, principal, &parts.headers, introduction).await
    };
    opened.await.unwrap_or_else(|error: RequestError| error.into())
}

async fn open(
    gateway: &Gateway,
    principal: Principal,
    headers: &HeaderMap,
    introduction: Introduction,
) -> Result<Response, RequestError> {
    let wanted = introduction.preferences.execution_contexts();
    let wanted_servers: Vec<String> = wanted.keys().cloned().collect();
    let workspace = introduction.working_directory.map(|directory| {
        if gateway.sessions.local_is_here() {
            WorkspaceChoice::NamedOrPath(directory)
        } else {
            WorkspaceChoice::Elsewhere(directory)
        }
    });
    let caller = Caller {
        principal,
        instance: headers::instance(headers),
        workspace,
        contexts: Contexts { wanted, takes_local: introduction.capabilities.filesystem.unwrap_or(true) },
    };
    let client =
        json!({ "name": introduction.client_info.name, "version": introduction.client_info.version });
    let version =
        introduction.protocol_version.as_deref().and_then(Version::parse).unwrap_or(Version::NEWEST);
    let (session, answer) = gateway.sessions.begin(caller, &client, version).await?;
    let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
    let mut report = describe(&session).await;
    report["sessionId"] = session.id().expose().into();
    report["protocolVersion"] = answer["protocolVersion"].clone();
    report["capabilities"] = answer["capabilities"].clone();
    report["capabilities"]["session"] = json!({
        "local_execution": true,
        "remote_execution": true,
    });
    // Servers that the principal does not get are unknown to it.
    let unknown = wanted_servers.iter().filter(|name| report["servers"][name.as_str()].is_null());
    let warnings: Vec<String> = unknown.map(|name| format!("no server is called `{name}`")).collect();
    if !warnings.is_empty() {
        report["warnings"] = warnings.into();
    }
    Ok(answer_json(&report))
}

impl Preferences {
    fn execution_contexts(self) -> BTreeMap<String, ExecutionContext> {
        let context = |wanted: WantedContext| match wanted {
            WantedContext::Local => ExecutionContext::Local,
            WantedContext::Remote => ExecutionContext::Remote,
        };
        self.execution_context.into_iter().map(|(server, wanted)| (server, context(wanted))).collect()
    }
}

/// The servers and tools of a session.
async fn describe(session: &Session) -> Value {
    let tools = session.tools().await;
    let servers: Map<String, Value> =
        session.servers().into_iter().map(|server| (server.name.clone(), json!(server))).collect();
    json!({ "servers": servers, "tools": tools })
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Response {
    let session = match find(&gateway, principal, &id) {
        Ok(session) => session,
        Err(error) => return error.into(),
    };
    let mut report = describe(&session).await;
    let overview = session.overview();
    report["sessionId"] = session.id().expose().into();
    report["state"] = overview.state.into();
    report["client"] = overview.client.into();
    report["workingDirectory"] = overview.scope.first().map(|path| path.to_string_lossy()).into();
    report["calls"] = overview.calls.into();
    report["ageSeconds"] = overview.age_seconds.into();
    report["idleSeconds"] = overview.idle_seconds.into();
    report["attached"] = session.is_attached().into();
    report["workspace"] = session.scope().as_ref().and_then(|scope| scope.copy_name()).into();
    answer_json(&report)
}

pub(crate) async fn destroy(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Response {
    let ended = async {
        let session = find(&gateway, principal, &id)?;
        Ok::<(), RequestError>(gateway.sessions.end(session.key(), EndReason::Deleted).await?)
    };
    match ended.await {
        Ok(()) => no_content(),
        Err(error) => error.into(),
    }
}

pub(crate) async fn context(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Response {
    match find(&gateway, principal, &id) {
        Ok(session) => answer_json(&json!(ContextReport::of_session(&session))),
        Err(error) => error.into(),
    }
}

pub(crate) async fn change_context(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let changed = async {
        let update = read_context_update(request).await?;
        let session = find(&gateway, principal, &id)?;
        Ok::<_, RequestError>(update_session_context(&session, &update, Author::Client).await?)
    };
    match changed.await {
        Ok(report) => answer_json(&json!(report)),
        Err(error) => error.into(),
    }
}

/// Reads a change of what is said about a session.
pub(crate) async fn read_context_update(request: Request) -> Result<ContextUpdate, RequestError> {
    let (parts, body) = request.into_parts();
    headers::is_json(&parts.headers)?;
    let body = read_body(body, MAX_BODY).await?;
    serde_json::from_slice(&body).map_err(|error| RequestError::BadContext(error.to_string()))
}

/// Finds a session of this principal. One of another principal is reported like an unknown one.
pub(crate) fn find(gateway: &Gateway, principal: Principal, id: &str) -> Result<Arc<Session>, RequestError> {
    let id = SessionId::parse(id).ok_or(Refusal::SessionNotFound)?;
    Ok(gateway.sessions.find(&SessionKey { principal, id })?)
}

pub(crate) fn answer_json(report: &Value) -> Response {
    let mut response = Response::new(Body::from(report.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(crate) async fn wrong_method() -> Response {
    mcp::wrong_method().await
}
