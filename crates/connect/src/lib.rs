//! The client's end: one MCP client on stdin and stdout, in front of servers here and on a gateway elsewhere.
//!
//! [`serve_stdio`] puts the client in front of any [`session::Sessions`]. [`serve_connected`] takes a
//! [`Connection`]: the servers of this machine run here, each in its fence, and the gateway is one more server at a
//! URL. While the gateway is away, the servers here go on working.
//!
//! The gateway reaches the servers here, too, so that other clients of the same session can use them:
//!
//! ```text
//! stdin ─► Client ─► Sessions ─┬─► servers here
//!                              └─► gateway (HTTP)
//! gateway ─► attachment (WebSocket) ─► Channels ─► Client ─► Sessions of one server here
//! ```

mod attachment;
mod channels;
mod client;
mod connection;
mod gateway_address;
mod gateway_server;
mod serve;
mod stdio;

#[cfg(any(test, fuzzing))]
pub use channels::oracle;
pub use connection::{Connection, GatewaySession};
pub use gateway_address::{GatewayAddress, GatewayUrlError};
pub use serve::{serve_connected, serve_stdio};
