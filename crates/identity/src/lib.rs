//! The identities of a request: the principal (the authenticated caller), the session, and the instance (the client
//! window). No crate passes these around as bare strings.

mod instance;
mod principal;
mod session_id;

pub use instance::Instance;
pub use principal::Principal;
pub use session_id::{Handle, RecordKey, SessionId, SessionKey};
