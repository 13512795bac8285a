//! The fixture as a child process, driven over its pipes.

use std::ffi::OsStr;
use std::ops::{Deref, DerefMut};

use serde_json::{Value, json};
use testkit::{NEWEST, StdioClient, fixture_binary, within_deadline};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

pub(crate) struct StdioServer {
    client: StdioClient,
}

impl StdioServer {
    pub(crate) fn start(flags: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        Self { client: StdioClient::start(Command::new(fixture_binary()).args(flags)) }
    }

    /// A server with the handshake done and every client capability declared.
    pub(crate) async fn initialized() -> Self {
        let mut server = Self::start([] as [&str; 0]);
        server.initialize(NEWEST).await;
        server.notify("notifications/initialized", json!({})).await;
        server
    }

    pub(crate) async fn initialize(&mut self, version: &str) -> Value {
        let capabilities = json!({"sampling": {}, "elicitation": {}, "roots": {}});
        self.client.initialize(capabilities, version).await["result"].take()
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// The result of a call, which must be the next line.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.client.call(tool, arguments).await["result"].take()
    }

    pub(crate) async fn read_stderr_piece(&mut self) -> String {
        let mut piece = vec![0; 64 * 1024];
        let count = within_deadline("standard error has more", self.stderr.read(&mut piece)).await.unwrap();
        assert_ne!(count, 0, "standard error ended");
        String::from_utf8(piece[..count].to_vec()).unwrap()
    }

    pub(crate) async fn read_stderr_to_end(&mut self) -> String {
        let mut text = String::new();
        within_deadline("standard error ends", self.stderr.read_to_string(&mut text)).await.unwrap();
        text
    }
}

impl Deref for StdioServer {
    type Target = StdioClient;

    fn deref(&self) -> &StdioClient {
        &self.client
    }
}

impl DerefMut for StdioServer {
    fn deref_mut(&mut self) -> &mut StdioClient {
        &mut self.client
    }
}

/// The text of a result, even of a failed call.
pub(crate) fn text_of(result: &Value) -> String {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {result}")).to_owned()
}
