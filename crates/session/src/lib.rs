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
mod call;
mod call_record;
mod capability_cache;
mod catalogue;
mod catalogue_probes;
mod counters;
mod error;
mod gate;
mod gateway_context;
mod handshake;
mod inbound;
mod overview;
mod plan;
mod quota;
mod roots_change;
mod roster;
mod scope;
mod server;
mod session;
mod sessions;
mod settings;
mod shared_state;
mod stream;
mod ticker;
mod tombstones;
mod verbose_meta;
mod view;
mod worker;
mod workspace_root;

pub use aggregate::MemberReport;
pub use counters::Counters;
pub use error::Refusal;
pub use overview::{SessionOverview, WorkerOverview};
pub use plan::{Fill, ServerPlan, ServerSet, Terms};
pub use scope::{OnRootsChange, RootsChoice, Scope, ScopeRefusal, ScopeRules, ScopeSource, WorkspaceChoice};
pub use session::{Contexts, EndReason, Session, ToolReport};
pub use sessions::{Caller, Sessions};
pub use settings::Settings;
pub use stream::{Delivery, First, Next, StreamReader};
pub use workspace_root::{RootError, parse_root};

pub use identity::{Handle, Instance, Principal, SessionId, SessionKey};
pub use upstream::{
    ATTACH_PROTOCOL, Address, Attachment, End, Exit, FenceHost, Frame, Lifecycle, MAX_AVAILABLE, Preparation,
    Program, StartError, Timeouts, Transport, Upstream, adopt_orphans, end_all_children, sweep_orphans,
};
