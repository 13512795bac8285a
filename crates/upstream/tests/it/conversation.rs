//! The client's side of a test: a connection, and helpers to send and receive its messages.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::within_deadline;
use tokio::sync::mpsc;
use upstream::http::{Connection, Endpoint, Incoming};

pub(crate) const MAX_MESSAGE: usize = 64 * 1024;

/// The text in the answer to a tool call.
pub(crate) fn tool_text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

pub(crate) struct Conversation {
    pub(crate) connection: Arc<Connection>,
    pub(crate) incoming: mpsc::Receiver<Incoming>,
}

impl Conversation {
    pub(crate) fn open(url: &str) -> Self {
        Self::open_with(url, &[])
    }

    pub(crate) fn open_with(url: &str, headers: &[(&str, &str)]) -> Self {
        let (connection, incoming) = Connection::open(Endpoint {
            url: url.to_owned(),
            headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            max_message: MAX_MESSAGE,
            connect_timeout: Duration::from_secs(60),
        });
        Self { connection, incoming }
    }

    /// Opens a connection and performs the handshake.
    pub(crate) async fn greeted(url: &str) -> Self {
        let mut conversation = Self::open(url);
        conversation.greet().await;
        conversation
    }

    pub(crate) async fn greet(&mut self) {
        self.initialize();
        let answer = self.message().await;
        assert!(answer["result"]["protocolVersion"].is_string(), "{answer}");
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }

    pub(crate) fn initialize(&self) {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "test", "version": "1" },
        });
        self.send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }));
    }

    pub(crate) fn send(&self, message: &Value) {
        assert!(self.connection.send(message.to_string().as_bytes()), "too much waits for {message}");
    }

    pub(crate) fn request(&self, id: u64, method: &str) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method }));
    }

    pub(crate) fn request_with(&self, id: u64, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    pub(crate) fn call_tool(&self, id: u64, name: &str, arguments: Value) {
        let params = json!({ "name": name, "arguments": arguments, "_meta": { "progressToken": id } });
        self.request_with(id, "tools/call", params);
    }

    /// Sends fifty `add` calls at once, and checks that each is answered once with its sum.
    pub(crate) async fn add_fifty_times(&mut self) {
        for id in 1..=50 {
            self.call_tool(id, "add", json!({ "a": id, "b": 1 }));
        }
        let mut open: BTreeSet<u64> = (1..=50).collect();
        while !open.is_empty() {
            let answer = self.message().await;
            let id = answer["id"].as_u64().unwrap();
            assert!(open.remove(&id), "{id} was answered twice");
            assert_eq!(tool_text(&answer), (id + 1).to_string());
        }
    }

    /// The next incoming item; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Incoming> {
        within_deadline("the server's side says something", self.incoming.recv()).await
    }

    pub(crate) async fn message(&mut self) -> Value {
        match self.next().await {
            Some(Incoming::Message(line)) => {
                assert!(!line.contains(&b'\n'), "{line:?}");
                serde_json::from_slice(&line).unwrap()
            }
            other => panic!("{other:?} in place of a message"),
        }
    }

    /// The answer to this request; skips everything else.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.message().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    /// Checks that the next message answers one of the `open` requests, and that `left` of them remain.
    pub(crate) async fn answer_any(&mut self, open: &mut Vec<u64>, left: usize) {
        let message = self.message().await;
        assert!(message["result"].is_object(), "{message}");
        let id = message["id"].as_u64().unwrap();
        let index = open.iter().position(|open| *open == id);
        open.remove(index.unwrap_or_else(|| panic!("{id} was answered twice")));
        assert_eq!(open.len(), left);
    }

    pub(crate) async fn lost(&mut self) -> String {
        match self.next().await {
            Some(Incoming::Lost(reason)) => {
                assert_eq!(self.next().await, None, "something follows the end");
                reason
            }
            other => panic!("{other:?} in place of the end"),
        }
    }

    /// The reason and the message of the error that answers this request.
    pub(crate) async fn failure(&mut self, id: u64) -> (String, String) {
        let answer = self.answer(id).await;
        let error = &answer["error"];
        assert_eq!(error["code"], -32000, "{answer}");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&error["data"]["reason"]), text(&error["message"]))
    }
}
