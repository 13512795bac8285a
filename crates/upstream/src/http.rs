//! MCP servers at a URL: a Streamable HTTP client that looks to its caller like a pair of pipes.
//!
//! The principal type is [`Connection`]. [`Connection::send`] takes lines without waiting; the server's messages arrive
//! at the receiver that [`Connection::open`] returned. The connection keeps the server's MCP session alive: it resumes
//! event streams that broke, and initializes again when the server has forgotten the session. It translates for a
//! server that speaks only revision 2026-07-28; the caller does not notice.
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
//!
//! [`Connection`] owns a `Conversation`, the state machine. It starts `Task`s, which `tasks` runs:
//!
//! ```text
//! Task::Greet, Settle, Renew → handshake           initialize and notifications/initialized
//! Task::Exchange             → exchange            one message: its POST and the stream of its answer
//! Task::Listen               → standalone_stream   messages that belong to no call
//! Task::ModernCall, ModernListen → modern          the same for a server of revision 2026-07-28
//! ```

mod certificates;
mod client;
mod connection;
mod conversation;
mod endpoint;
mod error_replies;
mod error_response;
mod exchange;
mod handshake;
mod incoming;
mod modern;
mod outgoing_line;
mod reconnect_pause;
mod response_body;
mod standalone_stream;
mod tasks;

pub use certificates::{CertificateFileError, tls, trust};
pub use client::is_loopback;
pub use connection::Connection;
pub use endpoint::Endpoint;
pub use incoming::Incoming;
