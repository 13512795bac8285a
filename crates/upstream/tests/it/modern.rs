//! Servers that speak only revision 2026-07-28: what they receive, and what the client sees of them.

mod greeting;
mod hostile;
mod listening;
mod questions;
mod real_server;
mod requests;

use std::future::Future;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use testkit::within_deadline;
use tokio::sync::mpsc;

use crate::conversation::Conversation;
use crate::scripted_server::{Events, ScriptedServer, Seen, document};

const MODERN: &str = "2026-07-28";
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_KEY: &str = "io.modelcontextprotocol/clientInfo";
const LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// A server of the newer revision. Requests that its script does not answer get the answer of a plain server.
struct ModernServer {
    server: ScriptedServer,
    /// The streams that were requested, in order.
    listens: mpsc::UnboundedReceiver<Listen>,
}

/// A `subscriptions/listen` stream that the test writes to.
struct Listen {
    seen: Arc<Seen>,
    events: Events,
}

impl ModernServer {
    async fn start<Answer>(
        capabilities: Value,
        script: impl Fn(Arc<Seen>) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Answer: Future<Output = Option<Response>> + Send + 'static,
    {
        let (asked, listens) = mpsc::unbounded_channel();
        let script = Arc::new(script);
        let server = ScriptedServer::start(move |seen| {
            let (script, asked, capabilities) = (Arc::clone(&script), asked.clone(), capabilities.clone());
            async move {
                if let Some(response) = script(Arc::clone(&seen)).await {
                    return Some(response);
                }
                match seen.method() {
                    "initialize" => Some(unsupported(&seen, &[MODERN])),
                    "server/discover" => Some(document(&seen.result(discovered(&[MODERN], capabilities)))),
                    "subscriptions/listen" => {
                        let (events, response) = Events::open();
                        let _ = asked.send(Listen { seen, events });
                        Some(response)
                    }
                    _ => None,
                }
            }
        })
        .await;
        Self { server, listens }
    }

    async fn plain(capabilities: Value) -> Self {
        Self::start(capabilities, |_| async { None }).await
    }

    async fn greeted(&self) -> Conversation {
        Conversation::greeted(&self.server.url).await
    }

    async fn next_listen(&mut self) -> Listen {
        within_deadline("a stream is asked for", self.listens.recv()).await.unwrap()
    }

    /// All requests with this method, in order.
    fn requests(&self, method: &str) -> Vec<Arc<Seen>> {
        self.server.seen().into_iter().filter(|seen| seen.method() == method).collect()
    }
}

impl Listen {
    fn filter(&self) -> &Value {
        &self.seen.message["params"]["notifications"]
    }

    async fn notify(&mut self, method: &str, mut params: Value) {
        params["_meta"] = json!({ SUBSCRIPTION_KEY: self.seen.message["id"] });
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.events.message(None, &message).await;
    }

    async fn acknowledge(&mut self, honoured: Value) {
        self.notify("notifications/subscriptions/acknowledged", json!({ "notifications": honoured })).await;
    }

    async fn acknowledge_all(&mut self) {
        self.acknowledge(self.filter().clone()).await;
    }
}

fn discovered(versions: &[&str], capabilities: Value) -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": versions,
        "capabilities": capabilities,
        "instructions": "be nice",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "scripted", "version": "2" } },
    })
}

fn failure(seen: &Seen, status: u16, error: Value) -> Response {
    let mut response = document(&json!({ "jsonrpc": "2.0", "id": seen.message["id"], "error": error }));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

fn unsupported(seen: &Seen, versions: &[&str]) -> Response {
    let data = json!({ "supported": versions, "requested": "2025-11-25" });
    failure(seen, 400, json!({ "code": -32022, "message": "Unsupported protocol version", "data": data }))
}

/// The answer of a server that needs input first.
fn input_required(seen: &Seen, requests: Value, state: Option<&str>) -> Response {
    let mut result = json!({ "resultType": "input_required" });
    if !requests.is_null() {
        result["inputRequests"] = requests;
    }
    if let Some(state) = state {
        result["requestState"] = json!(state);
    }
    document(&seen.result(result))
}

fn elicitation(message: &str) -> Value {
    json!({ "method": "elicitation/create", "params": { "message": message, "requestedSchema": {} } })
}
