//! What ringfence's tests drive it with: the shipped binary as a child process, a raw MCP client over HTTP
//! that hides nothing, and small pieces for waiting and for looking at processes.
//!
//! The crate also holds `ringfence-fixture`, the stdio MCP server behind the gateway under test.

#![allow(clippy::needless_pass_by_value, reason = "tests write `json!({…})` in the place of an argument")]

mod binaries;
mod client_exchange;
mod collected_output;
mod event_parser;
mod event_stream;
mod gateway;
mod processes;
mod raw_client;
mod raw_request;
mod reply;
mod waiting;
mod workspace_dir;

pub use binaries::{fixture_binary, ringfence_binary};
pub use client_exchange::Exchange;
pub use collected_output::CollectedOutput;
pub use event_parser::SseEvent;
pub use event_stream::EventStream;
pub use gateway::{FailedStart, Gateway, GatewayBuilder};
pub use processes::{descendants, process_exists};
pub use raw_client::{InitializeResult, RawClient};
pub use raw_request::RawRequest;
pub use reply::{Reply, ReplyBody};
pub use waiting::{DEADLINE, wait_until, within_deadline};
pub use workspace_dir::{WorkspaceDir, workspace_dir};

pub use hyper::StatusCode;
