//! MCP servers at a URL: a Streamable HTTP client that looks to its user like a pair of pipes.
//!
//! The principal type is [`Connection`]. Lines go in with [`Connection::send`], without waiting; what the server
//! says arrives at the receiver that [`Connection::open`] returned. The connection keeps the MCP session of the
//! server alive: it takes up lost event streams where they broke off, and greets the server again when that has
//! forgotten the session. A server that speaks only revision 2026-07-28 is spoken to in that revision; our user does
//! not notice.
//!
//! ```no_run
//! # async fn example() {
//! use upstream::http::{Connection, Endpoint, Incoming};
//!
//! let (connection, mut incoming) = Connection::open(Endpoint {
//!     url: "https://mcp.example.com/mcp".to_owned(),
//!     headers: vec![("Authorization".to_owned(), "Bearer secret".to_owned())],
//!     max_message: 4 * 1024 * 1024,
//!     connect_timeout: std::time::Duration::from_secs(10),
//! });
//! connection.send(br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#);
//! while let Some(Incoming::Message(line)) = incoming.recv().await {
//!     println!("{}", String::from_utf8_lossy(&line));
//! }
//! # }
//! ```

mod answer;
mod backoff;
mod call;
mod client;
mod conversation;
mod error_answers;
mod event_reader;
mod greeting;
mod line;
mod modern;
mod refusal;
mod standalone_stream;

pub use client::tls;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

use client::Session;
use conversation::Conversation;

/// How long the server has to take note of the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// What is at the other end, and how to be let in.
#[derive(Clone)]
pub struct Endpoint {
    pub url: String,
    /// Sent with every request. Values are secrets: they are never printed.
    pub headers: Vec<(String, String)>,
    /// Longest message.
    pub max_message: usize,
    pub connect_timeout: Duration,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Endpoint")
            .field("url", &printable(&self.url))
            .field("headers", &names)
            .finish_non_exhaustive()
    }
}

/// A URL without what may be a key: the name and password, and everything after the path.
fn printable(url: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(url) else { return "(not a URL)".to_owned() };
    // It fails for URLs that cannot have them.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

/// What the server's side has to say.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// One JSON-RPC message, on one line. A request that could not be delivered is answered here, too, with a
    /// JSON-RPC error under its id.
    Message(Bytes),
    /// The server had forgotten the session and was greeted again: subscriptions and the log level are gone.
    Renewed,
    /// The server cannot be reached, refuses us for good, or speaks something else. Nothing follows.
    Lost(String),
}

/// A conversation with one server. It ends, and tells the server so, with [`Connection::close`] or when dropped.
pub struct Connection {
    conversation: Arc<Conversation>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects to nothing yet: the first line, which must be `initialize`, does. An endpoint that cannot be used
    /// is `Lost` then.
    pub fn open(endpoint: Endpoint) -> (Arc<Self>, mpsc::Receiver<Incoming>) {
        let (conversation, incoming) = Conversation::new(endpoint);
        (Arc::new(Self { conversation }), incoming)
    }

    /// Sends one message, within a Tokio runtime. False: too much waits already, or the conversation is over.
    ///
    /// Requests and notifications are posted in this order, each as soon as the POST before it has begun. Nothing
    /// overtakes `initialize` and `notifications/initialized`. A request that is cancelled is not answered by this
    /// side: it may stay without any answer.
    pub fn send(&self, line: &[u8]) -> bool {
        self.conversation.send(line)
    }

    /// The session id that the server gave, if it gave one.
    pub fn session_id(&self) -> Option<String> {
        let session = self.conversation.session();
        session.id.as_ref().and_then(|id| id.to_str().ok()).map(str::to_owned)
    }

    /// Ends the server's session (DELETE, for at most a few seconds) and all requests under way.
    pub async fn close(&self) {
        if let Some(session) = self.conversation.close() {
            say_goodbye(Arc::clone(&self.conversation), session).await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let session = self.conversation.close();
        // Without a runtime there is nobody left to say it.
        if let Some((session, runtime)) = session.zip(Handle::try_current().ok()) {
            runtime.spawn(say_goodbye(Arc::clone(&self.conversation), session));
        }
    }
}

async fn say_goodbye(conversation: Arc<Conversation>, session: Arc<Session>) {
    if let Ok(http) = &conversation.http {
        // Servers need not support it, and forget us sooner or later.
        let _ = timeout(FAREWELL, http.execute(http.delete(&session))).await;
    }
}
