//! The load client: MCP sessions over HTTP and over pipes, with as little work per call as possible.

pub(crate) mod http_connection;
mod http_response_head;
pub(crate) mod http_session;
pub(crate) mod messages;
pub(crate) mod one_call;
mod receive_buffer;
pub(crate) mod session;
pub(crate) mod stdio_session;
