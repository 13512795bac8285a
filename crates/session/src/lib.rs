//! Sessions, upstreams and workers: who talks to which process, and how it ends. No HTTP in here.
//!
//! The principal type is [`Sessions`], the registry. It opens a [`Session`] for a client, which talks to a
//! worker: one running upstream for one lifecycle key. What a client is to receive lies in [`Stream`]s; a
//! connection reads one through a [`StreamReader`].
//!
//! ```text
//! client ─► Session::call ─► Worker ─► Process (stdin)
//! client ◄─ StreamReader ◄─ Stream ◄─ Worker (routing) ◄─ Process (stdout)
//! ```

mod aggregate;
mod attachment;
pub mod audit;
mod call;
mod call_record;
mod capability_cache;
mod catalogue;
mod connection;
mod counters;
mod deployment;
mod error;
mod fence_host;
mod foresight;
mod gate;
mod handshake;
mod ids;
mod inbound;
mod instance;
mod overview;
mod plan;
mod process;
mod pulse;
mod quota;
mod roots_change;
mod roster;
mod scope;
mod server;
mod session;
mod sessions;
mod settings;
mod shared_view;
mod stream;
mod tombstones;
mod tree;
mod upstream;
mod verbose_meta;
mod view;
mod worker;
mod worker_variables;
mod workspace_root;

pub use aggregate::MemberReport;
pub use attachment::{ATTACH_PROTOCOL, Attachment, Frame, MAX_OFFERS};
pub use connection::End;
pub use counters::Counters;
pub use error::{Refusal, StartFailure};
pub use fence_host::FenceHost;
pub use ids::{Handle, Principal, SessionId, SessionKey};
pub use instance::Instance;
pub use overview::{SessionOverview, WorkerOverview};
pub use plan::{Fill, Offer, ServerPlan, Terms};
pub use process::Exit;
pub use scope::{OnRootsChange, RootsChoice, Scope, ScopeRefusal, ScopeRules, ScopeSource, WorkspaceChoice};
pub use session::{Contexts, EndReason, Session, ToolReport};
pub use sessions::{Caller, Sessions};
pub use settings::Settings;
pub use stream::{Delivery, First, Next, StreamReader};
pub use tree::{adopt_orphans, end_all_children, sweep_orphans};
pub use upstream::{Address, Lifecycle, Preparation, Program, Timeouts, Transport, Upstream};
pub use workspace_root::{RootError, parse_root};
