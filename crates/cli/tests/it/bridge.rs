//! The bridge between HTTP or stdio and one server: messages, streams and processes, also with real clients and the
//! official conformance suite.

mod browsers;
mod chaos;
pub(crate) mod clients_and_servers;
pub(crate) mod conformance;
mod http_rules;
mod isolation;
mod processes;
mod server_requests;
mod shared;
mod stdio_mode;
mod storage;
mod streams;
mod timeouts;
