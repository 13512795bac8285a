//! An MCP server that follows a test's script: every request is recorded and offered to the script; those that it
//! does not answer get the answer of a plain server.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::channel::{Channel, Sender};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The session id of a plain server.
pub(crate) const SESSION: &str = "session-1";
pub(crate) const VERSION: &str = "2025-11-25";

/// A request as it arrived.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) verb: String,
    /// The headers of the request, plus its path as `x-path`.
    pub(crate) headers: HeaderMap,
    /// Null if the request had no body.
    pub(crate) message: Value,
}

impl Seen {
    pub(crate) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// A JSON-RPC answer to this request.
    pub(crate) fn result(&self, result: Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.message["id"], "result": result })
    }

    /// Answers this request with the name of its method.
    pub(crate) fn echo(&self) -> Response {
        document(&self.result(json!({ "echo": self.method() })))
    }

    pub(crate) fn greeting(&self, session: &str) -> Response {
        let result = json!({ "protocolVersion": VERSION, "capabilities": {}, "serverInfo": { "name": "scripted", "version": "1" } });
        let mut response = document(&self.result(result));
        response.headers_mut().insert("mcp-session-id", session.parse().unwrap());
        response
    }

    fn plain_answer(&self) -> Response {
        match (self.verb.as_str(), self.method()) {
            ("POST", "initialize") => self.greeting(SESSION),
            ("POST", _) if self.message.get("id").is_none() || self.message.get("method").is_none() => {
                StatusCode::ACCEPTED.into_response()
            }
            ("POST", _) => self.echo(),
            ("DELETE", _) => StatusCode::OK.into_response(),
            _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        }
    }
}

type Script = dyn Fn(Arc<Seen>) -> Pin<Box<dyn Future<Output = Option<Response>> + Send>> + Send + Sync;

pub(crate) struct ScriptedServer {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Arc<Seen>>>>,
    task: JoinHandle<()>,
}

impl ScriptedServer {
    pub(crate) async fn start<Answer>(script: impl Fn(Arc<Seen>) -> Answer + Send + Sync + 'static) -> Self
    where
        Answer: Future<Output = Option<Response>> + Send + 'static,
    {
        let script: Arc<Script> = Arc::new(move |seen| Box::pin(script(seen)));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        let app = Router::new().fallback(move |request: Request| {
            let (script, record) = (Arc::clone(&script), Arc::clone(&record));
            async move {
                let (parts, body) = request.into_parts();
                let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
                let message = serde_json::from_slice(&body).unwrap_or_default();
                let mut headers = parts.headers;
                headers.insert("x-path", parts.uri.path().parse().unwrap());
                let seen = Seen { verb: parts.method.to_string(), headers, message };
                let seen = Arc::new(seen);
                record.lock().unwrap().push(Arc::clone(&seen));
                script(Arc::clone(&seen)).await.unwrap_or_else(|| seen.plain_answer())
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, seen, task }
    }

    /// A server without a script.
    pub(crate) async fn plain() -> Self {
        Self::start(|_| async { None }).await
    }

    pub(crate) fn seen(&self) -> Vec<Arc<Seen>> {
        self.seen.lock().unwrap().clone()
    }

    /// How many requests with this verb and JSON-RPC method have arrived.
    pub(crate) fn count(&self, verb: &str, method: &str) -> usize {
        self.seen().iter().filter(|seen| seen.verb == verb && seen.method() == method).count()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn document(message: &Value) -> Response {
    ([("content-type", "application/json; charset=utf-8")], message.to_string()).into_response()
}

pub(crate) fn status(status: u16) -> Response {
    StatusCode::from_u16(status).unwrap().into_response()
}

/// The server's end of a stream of events.
pub(crate) struct Events(Sender<Bytes, std::io::Error>);

impl Events {
    pub(crate) fn open() -> (Self, Response) {
        let (sender, body) = Channel::new(16);
        let response = ([("content-type", "text/event-stream")], Body::new(body)).into_response();
        (Self(sender), response)
    }

    /// Returns false if the client has stopped reading.
    pub(crate) async fn raw(&mut self, text: &str) -> bool {
        self.0.send_data(Bytes::copy_from_slice(text.as_bytes())).await.is_ok()
    }

    pub(crate) async fn message(&mut self, id: Option<&str>, message: &Value) {
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        self.raw(&format!("event: message\n{id}data: {message}\n\n")).await;
    }

    /// Breaks the stream off in the middle, like a lost connection. Waits for `heard` first: data sent just before
    /// could be lost too.
    pub(crate) async fn break_off(self, heard: &Notify) {
        heard.notified().await;
        self.0.abort(std::io::Error::other("broken on purpose"));
    }
}
