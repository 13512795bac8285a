//! An MCP client over the stdin and stdout of a process.

use std::ops::{Deref, DerefMut};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::piped_process::PipedProcess;
use crate::protocol::{NEWEST, initialize_params, text_of};

#[derive(Debug)]
pub struct StdioClient {
    process: PipedProcess,
    last_id: u64,
}

impl StdioClient {
    /// Starts the server without the handshake.
    pub fn start(command: &mut Command) -> Self {
        Self { process: PipedProcess::start(command), last_id: 0 }
    }

    /// Starts the server and performs the handshake; also returns the response to `initialize`.
    pub async fn open(command: &mut Command, capabilities: Value) -> (Self, Value) {
        let mut client = Self::start(command);
        let opened = client.initialize(capabilities, NEWEST).await;
        client.notify("notifications/initialized").await;
        (client, opened)
    }

    /// Sends `initialize` and returns the whole response, which must be the next line.
    pub async fn initialize(&mut self, capabilities: Value, version: &str) -> Value {
        let params = initialize_params(capabilities, version);
        self.process
            .send(&json!({"jsonrpc": "2.0", "id": "initialize", "method": "initialize", "params": params}))
            .await;
        let response = self.process.read().await;
        assert_eq!(response["id"], "initialize", "{response}");
        response
    }

    pub async fn notify(&mut self, method: &str) {
        self.process.send(&json!({"jsonrpc": "2.0", "method": method})).await;
    }

    /// Sends a request and returns its id.
    pub async fn send_request(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        self.process.send(&message).await;
        self.last_id
    }

    /// Sends a `tools/call` and returns its id.
    pub async fn send_call(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.send_request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// Sends a `tools/call` with the caller's own id.
    pub async fn send_call_with_id(&mut self, id: &Value, tool: &str, arguments: &Value) {
        let params = json!({"name": tool, "arguments": arguments});
        self.process
            .send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
            .await;
    }

    pub async fn respond(&mut self, id: &Value, result: Value) {
        self.process.send(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
    }

    /// The next response; skips requests and notifications from the server.
    pub async fn next_response(&mut self) -> Value {
        loop {
            let message = self.process.read().await;
            if message.get("method").is_none() {
                return message;
            }
        }
    }

    /// Sends a request and returns its response, which must be the next line.
    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params).await;
        let response = self.process.read().await;
        assert_eq!(response["id"], id, "{response}");
        response
    }

    /// Sends a request and returns its response, which must be the next one; skips requests and notifications before
    /// it.
    pub async fn request_amid_others(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params).await;
        let response = self.next_response().await;
        assert_eq!(response["id"], id, "{response}");
        response
    }

    /// Calls a tool and returns the whole response, which must be the next line.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// Calls a tool and returns its text; panics if the call failed.
    pub async fn call_for_text(&mut self, tool: &str, arguments: Value) -> String {
        text_of(&self.call(tool, arguments).await)
    }
}

impl Deref for StdioClient {
    type Target = PipedProcess;

    fn deref(&self) -> &PipedProcess {
        &self.process
    }
}

impl DerefMut for StdioClient {
    fn deref_mut(&mut self) -> &mut PipedProcess {
        &mut self.process
    }
}
