//! What a connection delivers to its caller.

use bytes::Bytes;

#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// One JSON-RPC message, on one line. A request that could not be delivered is answered here as well, by a
    /// JSON-RPC error under its id.
    Message(Bytes),
    /// The server had forgotten the session and was initialized again: subscriptions and the log level are gone.
    Renewed,
    /// The server cannot be reached, refuses us for good, or does not speak MCP. Nothing follows.
    Lost(String),
}
