//! Sessions: who talks to which server, from `initialize` to the end. No HTTP in here.
//!
//! The principal type is [`Sessions`], the registry. It opens a [`Session`] for a client. Messages for the client lie in
//! streams; a connection reads one through a [`StreamReader`].
//!
//! ```text
//! client ─► Session::call ─► Gate ─► Route::call ─► Worker::call ─► upstream::Connection
//! client ◄─ StreamReader ◄─ Stream ◄─ Client::answer ◄─ WorkerMachine::receive ◄─ upstream::Connection
//! ```
//!
//! One direction: `registry → session → {gate, route} → worker → client → stream`. The machines (`gate`, `worker`,
//! `route::merge`, `stream::buffer`, `probe`) are pure: events and the time go in, actions come out.

mod catalogue;
mod client;
mod counters;
mod durable;
mod error;
mod failure_log;
mod gate;
mod gateway_context;
mod handshake;
mod list;
mod lost_call;
mod messages;
mod plan;
mod principal_users;
mod probe;
mod record;
mod registry;
mod rights;
mod roster;
mod route;
mod scope;
mod server;
mod session;
mod session_context;
mod settings;
mod stored;
mod stream;
#[cfg(test)]
mod testing;
mod ticker;
mod view;
mod worker;
mod worker_id;
mod workers;

pub use client::ContextReport;
pub use counters::{Count, Counters};
pub use error::Refusal;
/// The oracle of `connect` needs it, and that crate does not know `fence` otherwise.
#[cfg(fuzzing)]
pub use fence::HostEnvironment;
pub use plan::{Fill, ServerPlan, ServerSet, Terms};
pub use principal_users::{PrincipalUsers, PrincipalUsersError, UserRange, UserRangeError};
pub use record::{Contexts, EndReason};
pub use registry::{Caller, Sessions, ShutDownCause, context_of, prune_store, update_context_of};
pub use rights::{Grants, RightsBook};
pub use route::MemberReport;
pub use scope::{
    Copies, CopyMethod, CopyWishes, OnRootsChange, RootError, RootsChoice, Scope, ScopeRefusal, ScopeRules,
    ScopeSource, WorkspaceChoice, parse_root,
};
pub use session::{
    CopyError, Session, SessionCopy, SessionOverview, ToolReport, WorkerOverview, update_session_context,
};
pub use session_context::{Author, ContextError, ContextUpdate, SessionContext, SessionQuery};
pub use settings::Settings;
/// The gateway reports it, and does not know the store otherwise.
pub use staging::ApplyRequest;
pub use store::Condition;
pub use stream::{Delivery, First, Next, StreamReader};
