//! The fixture as a child process, spoken to over its pipes.

use std::ffi::OsStr;
use std::process::ExitStatus;

use serde_json::{Value, json};
use testkit::{PipedProcess, fixture_binary, within_deadline};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

pub(crate) struct StdioServer {
    process: PipedProcess,
    last_id: u64,
}

impl StdioServer {
    pub(crate) fn start(flags: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        Self { process: PipedProcess::start(Command::new(fixture_binary()).args(flags)), last_id: 0 }
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.process.child
    }

    /// A server with the handshake done and every client capability declared.
    pub(crate) async fn initialized() -> Self {
        let mut server = Self::start([] as [&str; 0]);
        server.initialize("2025-11-25").await;
        server.notify("notifications/initialized", json!({})).await;
        server
    }

    pub(crate) async fn initialize(&mut self, version: &str) -> Value {
        let capabilities = json!({"sampling": {}, "elicitation": {}, "roots": {}});
        let client = json!({"name": "test", "version": "0"});
        let params = json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": client});
        self.request("initialize", params).await["result"].clone()
    }

    pub(crate) async fn write_line(&mut self, line: &str) {
        self.process.write_line(line).await;
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.process.send(&message).await;
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.send(json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// The next line as it came; `None` at the end.
    pub(crate) async fn read_line(&mut self) -> Option<String> {
        self.process.read_line().await
    }

    pub(crate) async fn read(&mut self) -> Value {
        self.process.read().await
    }

    pub(crate) async fn start_request(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        self.send(json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params})).await;
        self.last_id
    }

    /// Sends a request and expects its response to be the very next line.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.start_request(method, params).await;
        let response = self.read().await;
        assert_eq!(response["id"], id, "{response}");
        response
    }

    pub(crate) async fn start_call(&mut self, tool: &str, arguments: Value) -> u64 {
        self.start_request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).await["result"].clone()
    }

    pub(crate) async fn call_for_text(&mut self, tool: &str, arguments: Value) -> String {
        text_of(&self.call(tool, arguments).await)
    }

    pub(crate) fn close_stdin(&mut self) {
        self.process.close_stdin();
    }

    pub(crate) async fn exit_status(&mut self) -> ExitStatus {
        self.process.exit_status().await
    }

    pub(crate) async fn read_stderr_piece(&mut self) -> String {
        let mut piece = vec![0; 64 * 1024];
        let count =
            within_deadline("standard error has more", self.process.stderr.read(&mut piece)).await.unwrap();
        assert_ne!(count, 0, "standard error ended");
        String::from_utf8(piece[..count].to_vec()).unwrap()
    }

    pub(crate) async fn read_stderr_to_end(&mut self) -> String {
        let mut text = String::new();
        let read = self.process.stderr.read_to_string(&mut text);
        within_deadline("standard error ends", read).await.unwrap();
        text
    }
}

pub(crate) fn text_of(result: &Value) -> String {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {result}")).to_owned()
}
