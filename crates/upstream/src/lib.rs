//! One connection to one MCP server, wherever it runs.
//!
//! An [`Upstream`] defines a server: a program, a URL, or a name on the client's machine. [`Connection`] is one
//! running conversation with it: lines out, lines in, an end. Everything above this crate treats the three kinds
//! alike.
//!
//! ```text
//! Transport::Process  → Process   a child in a WorkerFence, its pipes, its process tree
//! Transport::Http     → http      a Streamable HTTP client that looks like a pair of pipes
//! Transport::Attached → Channel   frames to `ringfence connect` on the client's machine
//! ```

mod attachment;
mod backoff;
mod connection;
mod definition;
mod directories;
mod end;
mod fence_host;
pub mod http;
mod last_words;
#[cfg(any(test, fuzzing))]
pub mod oracle;
mod outbox;
mod process;
mod process_tree;
mod redaction;
mod start_error;
mod state_files;
mod stderr;
mod worker_fence;
mod worker_variables;

pub use attachment::{ATTACH_PROTOCOL, Attachment, Frame, MAX_AVAILABLE};
pub use backoff::Backoff;
pub use connection::{Connection, Inbox, Opening, Received};
pub use definition::{Address, Lifecycle, Preparation, Program, Timeouts, Transport, Upstream};
pub use directories::Directories;
pub use end::{End, Exit};
pub use fence::with_descendants;
pub use fence_host::{FenceHost, Restriction};
pub use last_words::{hint_on_refused_write, telling_line};
pub use outbox::{MAX_OUTBOX_BYTES, Urgency};
pub use process_tree::{adopt_orphans, cpu_ticks, end_all_children, reap_orphans, sweep_orphans};
pub use redaction::Redaction;
pub use start_error::StartError;
pub use worker_fence::FenceSlot;
pub use worker_variables::Owner;
