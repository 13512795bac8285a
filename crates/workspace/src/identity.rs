//! The session that this server works for, as the gateway passes it in the environment.

use serde_json::Value;
use sha2::{Digest, Sha256};
use wire::worker_variable;

#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// `None`: several sessions share this worker, or it was started by hand.
    pub(crate) session: Option<String>,
    pub(crate) instance: Option<String>,
    pub(crate) confinement: Option<Value>,
    /// Who named the directories; `default` if the client named none.
    pub(crate) scope_source: Option<String>,
    /// The session workspace, if this is a copy of the project.
    pub(crate) copy: Option<String>,
}

impl Identity {
    /// Whether `named` is the handle or the id of this session, or the copy that it works in.
    pub(crate) fn is_session(&self, named: &str) -> bool {
        let own = self.session.as_deref();
        let is_handle = own.is_some() && (own == Some(named) || own == handle_of(named).as_deref());
        is_handle || self.copy.as_deref() == Some(named)
    }

    pub(crate) fn of_this_process() -> Self {
        let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            session: read(worker_variable::SESSION),
            instance: read(worker_variable::INSTANCE),
            scope_source: read(worker_variable::SCOPE_SOURCE),
            copy: read(worker_variable::COPY),
            confinement: read(worker_variable::CONFINEMENT).and_then(|text| serde_json::from_str(&text).ok()),
        }
    }
}

/// The handle that gateways derive from a session id, which is a UUID.
fn handle_of(id: &str) -> Option<String> {
    let digits: String = id.chars().filter(|digit| *digit != '-').collect();
    let bytes = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?.to_be_bytes();
    let digest = Sha256::digest(bytes);
    Some(format!("s-{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3]))
}
