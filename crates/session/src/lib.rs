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

pub mod audit;
mod call;
mod counters;
mod error;
mod ids;
mod inbound;
mod process;
mod pulse;
mod session;
mod sessions;
mod settings;
mod shared_view;
mod stream;
mod tree;
mod upstream;
mod worker;
mod workspace_root;

pub use counters::Counters;
pub use error::{Refusal, StartFailure};
pub use ids::{Handle, Principal, SessionId, SessionKey};
pub use session::{EndReason, Session};
pub use sessions::Sessions;
pub use settings::Settings;
pub use stream::{Delivery, First, Next, StreamReader};
pub use tree::{adopt_orphans, end_all_children};
pub use upstream::{Lifecycle, Upstream};
pub use workspace_root::{RootError, parse_root};
