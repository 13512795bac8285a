//! A hand-written MCP client over Streamable HTTP, for tests that check every status, header and event.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::{HeaderMap, Method};
use serde_json::{Value, json};

use crate::client_exchange::Exchange;
use crate::event_stream::EventStream;
use crate::protocol::{initialize_params, text_of};
use crate::raw_request::RawRequest;
use crate::reply::Reply;

/// Clones share the counter of request ids, but not later changes to the session or headers.
#[derive(Debug, Clone)]
pub struct RawClient {
    url: String,
    session_id: Option<String>,
    protocol_version: Option<String>,
    headers: HeaderMap,
    last_id: Arc<AtomicU64>,
}

/// The server's answer to `initialize`.
#[derive(Debug)]
pub struct InitializeResult {
    pub protocol_version: String,
    pub session_id: Option<String>,
    /// The whole result.
    pub result: Value,
}

impl RawClient {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            session_id: None,
            protocol_version: None,
            headers: HeaderMap::new(),
            last_id: Arc::default(),
        }
    }

    /// Sends this header with every request from now on.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().expect("the value is one that HTTP allows"));
        self
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    pub fn protocol_version(&self) -> Option<&str> {
        self.protocol_version.as_deref()
    }

    /// Uses a session that another client opened.
    pub fn set_session(&mut self, session_id: Option<&str>, protocol_version: Option<&str>) {
        self.session_id = session_id.map(str::to_owned);
        self.protocol_version = protocol_version.map(str::to_owned);
    }

    /// A POST with the headers of a well-behaved client; the caller may change any of them before sending.
    pub fn post(&self, body: impl Into<Vec<u8>>) -> RawRequest {
        self.request_with_verb(Method::POST, body.into())
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
    }

    /// A GET that opens a stream, or resumes the stream of that event.
    pub fn get_stream(&self, last_event_id: Option<&str>) -> RawRequest {
        let get = self.request_with_verb(Method::GET, Vec::new()).header("accept", "text/event-stream");
        match last_event_id {
            Some(id) => get.header("last-event-id", id),
            None => get,
        }
    }

    /// Opens the standalone stream of the session.
    pub async fn listen(&self) -> EventStream {
        self.get_stream(None).await.into_events()
    }

    /// The session's report from `GET /session/{id}`.
    pub async fn session_report(&self) -> Value {
        let id = self.session_id.as_deref().expect("the client has a session");
        let reply = self.get_stream(None).path(&format!("/session/{id}")).await;
        assert_eq!(reply.status, 200, "{:?}", reply.body);
        reply.json().clone()
    }

    /// A DELETE that ends the session.
    pub fn delete(&self) -> RawRequest {
        self.request_with_verb(Method::DELETE, Vec::new())
    }

    fn request_with_verb(&self, verb: Method, body: Vec<u8>) -> RawRequest {
        let mut request = RawRequest::new(verb, &self.url, body);
        if let Some(id) = &self.session_id {
            request = request.header("mcp-session-id", id);
        }
        if let Some(version) = &self.protocol_version {
            request = request.header("mcp-protocol-version", version);
        }
        for (name, value) in &self.headers {
            request = request.header(name.as_str(), value);
        }
        request
    }

    /// Sends `initialize` and `notifications/initialized`. Later requests carry the session and the version.
    pub async fn open(&mut self, client_capabilities: Value, version: &str) -> InitializeResult {
        let id = self.next_id();
        let reply = self.post_initialize(&id, client_capabilities, version).await;
        assert_eq!(reply.status, 200, "initialize was refused: {:?}", reply.body);
        let session_id = reply.session_id().map(str::to_owned);
        let exchange = self.finish_exchange(&id, reply, refuse).await;
        let result = exchange.response["result"].clone();
        let Some(protocol_version) = result["protocolVersion"].as_str().map(str::to_owned) else {
            panic!("initialize failed: {}", exchange.response);
        };
        self.set_session(session_id.as_deref(), Some(&protocol_version));
        let reply = self.notify("notifications/initialized", None).await;
        assert_eq!(reply.status, 202, "initialized was refused: {:?}", reply.body);
        InitializeResult { protocol_version, session_id, result }
    }

    /// The `initialize` request alone, as a POST that is not sent yet.
    pub fn post_initialize(&self, id: &Value, client_capabilities: Value, version: &str) -> RawRequest {
        self.post_request(id, "initialize", Some(initialize_params(client_capabilities, version)))
    }

    /// A fresh request id, unique among this client and its clones.
    pub fn next_id(&self) -> Value {
        Value::from(self.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// A JSON-RPC request as a POST that is not sent yet; its response may come as JSON or on a stream.
    pub fn post_request(&self, id: &Value, method: &str, params: Option<Value>) -> RawRequest {
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method});
        if let Some(params) = params {
            message["params"] = params;
        }
        self.post(message.to_string())
    }

    /// A `tools/call` as a POST that is not sent yet.
    pub fn post_tool_call(&self, id: &Value, tool: &str, arguments: Value) -> RawRequest {
        self.post_request(id, "tools/call", Some(json!({"name": tool, "arguments": arguments})))
    }

    /// Sends a request and returns the whole JSON-RPC response, whether it came as JSON or on a stream. Refuses
    /// requests that the server sends meanwhile.
    pub async fn request(&self, method: &str, params: Option<Value>) -> Value {
        self.request_with_id(&self.next_id(), method, params).await
    }

    /// Like `request`, with the caller's own id.
    pub async fn request_with_id(&self, id: &Value, method: &str, params: Option<Value>) -> Value {
        let reply = self.post_request(id, method, params).await;
        self.finish_exchange(id, reply, refuse).await.response
    }

    /// Calls a tool and returns the whole response.
    pub async fn call_tool(&self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", Some(json!({"name": tool, "arguments": arguments}))).await
    }

    /// Calls a tool and returns the text of its first content; panics if the call failed.
    pub async fn call_tool_for_text(&self, tool: &str, arguments: Value) -> String {
        text_of(&self.call_tool(tool, arguments).await)
    }

    /// Sends a request, and lets `answer` answer the server's requests on its stream: `Ok` is posted as a result,
    /// `Err` as an error.
    pub async fn request_answering(
        &self,
        method: &str,
        params: Option<Value>,
        answer: impl FnMut(&Value) -> Result<Value, Value>,
    ) -> Exchange {
        let id = self.next_id();
        let reply = self.post_request(&id, method, params).await;
        self.finish_exchange(&id, reply, answer).await
    }

    /// Like `request_answering`, for a `tools/call`.
    pub async fn call_tool_answering(
        &self,
        tool: &str,
        arguments: Value,
        answer: impl FnMut(&Value) -> Result<Value, Value>,
    ) -> Exchange {
        let params = json!({"name": tool, "arguments": arguments});
        self.request_answering("tools/call", Some(params), answer).await
    }

    pub async fn notify(&self, method: &str, params: Option<Value>) -> Reply {
        let mut message = json!({"jsonrpc": "2.0", "method": method});
        if let Some(params) = params {
            message["params"] = params;
        }
        self.post(message.to_string()).await
    }

    /// Posts the result of a request that the server sent.
    pub async fn respond(&self, id: &Value, result: Value) -> Reply {
        self.post(json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()).await
    }

    /// Posts an error as the answer to a request that the server sent.
    pub async fn respond_error(&self, id: &Value, error: Value) -> Reply {
        self.post(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()).await
    }
}

fn refuse(request: &Value) -> Result<Value, Value> {
    Err(json!({"code": -32601, "message": format!("{} is not answered by this test", request["method"])}))
}
