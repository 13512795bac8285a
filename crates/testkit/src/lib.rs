//! Test support: the shipped binary as a child process, raw MCP clients over HTTP and stdio that show every message,
//! and helpers that wait for conditions and inspect processes.
//!
//! The crate also holds `ringfence-fixture`, the stdio MCP server behind the gateway under test.

#![allow(clippy::needless_pass_by_value, reason = "tests write `json!({…})` in the place of an argument")]

mod attack;
mod binaries;
mod client_exchange;
mod collected_output;
mod event_parser;
mod event_stream;
mod gateway;
mod gateway_report;
mod malformed_requests;
mod message_log;
mod part_run;
mod parts;
mod path_watch;
mod piped_process;
mod process_figures;
mod processes;
mod project;
mod protocol;
mod raw_client;
mod raw_request;
mod remote_server;
mod reply;
mod stdio_client;
mod waiting;
mod workspace_dir;

pub use attack::{
    ARGUMENT_SECRET, AttackOutcome, AttackResult, AttackStage, ENVIRONMENT_SECRET, InheritedDescriptors,
    KEY_SECRET, KernelOffer, MEMORY_SECRET, SEGMENT_SECRET, VictimAddress, VictimQueues, VictimReport,
};
pub use binaries::{attacker_binary, fixture_binary, ringfence_binary};
pub use client_exchange::Exchange;
pub use collected_output::CollectedOutput;
pub use event_parser::SseEvent;
pub use event_stream::EventStream;
pub use gateway::{FailedStart, Gateway, GatewayBuilder};
pub use malformed_requests::MalformedRequests;
pub use message_log::MessageLog;
pub use part_run::{PartRun, count_tokens, run_part};
pub use parts::{failing_system_call, node_binary, parts_dir, python_binary, rsyslog, sshd, strace};
pub use path_watch::{PathWatch, WatchReport, WritableDirectories};
pub use piped_process::PipedProcess;
pub use process_figures::{open_descriptors, peak_resident_bytes, resident_bytes};
pub use processes::{descendants, process_exists};
pub use project::Project;
pub use protocol::{NEWEST, file_uri, roots, text_of};
pub use raw_client::{InitializeResult, RawClient};
pub use raw_request::RawRequest;
pub use remote_server::RemoteServer;
pub use reply::{Reply, ReplyBody};
pub use stdio_client::StdioClient;
pub use waiting::{DEADLINE, wait_until, within_deadline};
pub use workspace_dir::{WorkspaceDir, workspace_dir};

pub use hyper::StatusCode;
