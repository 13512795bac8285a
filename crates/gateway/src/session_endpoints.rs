//! Sessions by their own endpoints: opened, looked at and ended beside MCP. A request may name a directory and choose
//! among what the operator allows; it can name no command, no variable and no server that is not configured.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use config::ExecutionContext;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use session::{
    Caller, Contexts, EndReason, Principal, Refusal, Session, SessionId, SessionKey, WorkspaceChoice,
};
use wire::Version;

use crate::Gateway;
use crate::headers;
use crate::mcp::{self, no_content, read_body};
use crate::status::Problem;

/// More than this is no introduction.
const MAX_BODY: usize = 64 * 1024;

/// `POST /session/init`, as clients write it.
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

/// What is not known here is for others.
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
        let introduction: Introduction =
            serde_json::from_slice(&body).map_err(|error| Problem::BadIntroduction(error.to_string()))?;
        open(&gateway, principal, &parts.headers, introduction).await
    };
    opened.await.unwrap_or_else(|problem: Problem| problem.about(None).into())
}

async fn open(
    gateway: &Gateway,
    principal: Principal,
    headers: &HeaderMap,
    introduction: Introduction,
) -> Result<Response, Problem> {
    let wanted: BTreeMap<String, ExecutionContext> = introduction
        .preferences
        .execution_context
        .into_iter()
        .map(|(server, context)| {
            let context = match context {
                WantedContext::Local => ExecutionContext::Local,
                WantedContext::Remote => ExecutionContext::Remote,
            };
            (server, context)
        })
        .collect();
    let known = gateway.sessions.servers();
    let strangers: Vec<String> = wanted.keys().filter(|name| !known.contains(name)).cloned().collect();
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
    let begun = gateway.sessions.begin(caller, &client, version).await;
    let (session, answer) = begun.map_err(Problem::Refused)?;
    let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
    let mut report = describe(&session).await;
    report["sessionId"] = session.id().expose().into();
    report["protocolVersion"] = answer["protocolVersion"].clone();
    report["capabilities"] = answer["capabilities"].clone();
    report["capabilities"]["session"] = json!({
        "local_execution": true,
        "remote_execution": true,
    });
    if !strangers.is_empty() {
        let list: Vec<String> =
            strangers.iter().map(|name| format!("no server is called `{name}`")).collect();
        report["warnings"] = list.into();
    }
    Ok(answer_json(&report))
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
        Err(problem) => return problem.about(None).into(),
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
    answer_json(&report)
}

pub(crate) async fn destroy(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Response {
    let ended = async {
        let session = find(&gateway, principal, &id)?;
        gateway.sessions.end(session.key(), EndReason::Deleted).await.map_err(Problem::Refused)
    };
    match ended.await {
        Ok(()) => no_content(),
        Err(problem) => problem.about(None).into(),
    }
}

/// The session of this principal with this id; one of another principal looks like an unknown one.
pub(crate) fn find(gateway: &Gateway, principal: Principal, id: &str) -> Result<Arc<Session>, Problem> {
    let id = SessionId::parse(id).ok_or(Problem::Refused(Refusal::SessionNotFound))?;
    gateway.sessions.find(&SessionKey { principal, id }).map_err(Problem::Refused)
}

fn answer_json(report: &Value) -> Response {
    let mut response = Response::new(Body::from(report.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(crate) async fn wrong_method() -> Response {
    mcp::wrong_method().await
}
