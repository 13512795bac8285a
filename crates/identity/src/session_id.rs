//! Session ids, and the handles that name a session in logs. A session id is a credential: only
//! [`SessionId::expose`] reveals it.

use std::fmt;

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::Principal;

/// The `Mcp-Session-Id` of a session: 122 random bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(Uuid);

impl SessionId {
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// Accepts only the spelling of [`SessionId::expose`].
    pub fn parse(text: &str) -> Option<Self> {
        let is_our_spelling = text.len() == 36 && !text.bytes().any(|byte| byte.is_ascii_uppercase());
        is_our_spelling.then(|| Uuid::try_parse(text).ok()).flatten().map(Self)
    }

    /// The id as the client must send it.
    pub fn expose(self) -> String {
        self.0.hyphenated().to_string()
    }

    pub fn handle(self) -> Handle {
        let digest = Sha256::digest(self.0.as_bytes());
        Handle(u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.handle(), f)
    }
}

/// Names a session in logs and listings without revealing its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(u32);

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s-{:08x}", self.0)
    }
}

impl Serialize for Handle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Names a session where its id must not be written: a hash of its key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordKey([u8; 32]);

impl RecordKey {
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r-{:02x}{:02x}{:02x}{:02x}", self.0[0], self.0[1], self.0[2], self.0[3])
    }
}

/// The key of a session: the id counts only together with its principal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey {
    pub principal: Principal,
    pub id: SessionId,
}

impl SessionKey {
    /// The name of the session's record. Only who has the id can find it, and only as this principal.
    pub fn record_key(&self) -> RecordKey {
        let mut hash = Sha256::new();
        hash.update(self.principal.as_str());
        // No name of a principal has this byte.
        hash.update([0]);
        hash.update(self.id.0.as_bytes());
        RecordKey(hash.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_not_shown_by_accident() {
        let id = SessionId::random();
        assert!(!format!("{id:?} {}", id.handle()).contains(&id.expose()[..8]));
        assert_eq!(SessionId::parse(&id.expose()), Some(id));
        assert!(id.expose().bytes().all(|byte| byte.is_ascii_graphic()));
    }

    #[test]
    fn a_handle_is_stable_and_short() {
        let id = SessionId::parse("0b0a86bd-6f18-4a0f-8f3b-3f1f0f6f0a11").unwrap();
        let handle = id.handle().to_string();
        assert_eq!(SessionId::parse(&id.expose()).unwrap().handle().to_string(), handle);
        assert!(handle.starts_with("s-") && handle.len() == 10, "{handle}");
        assert_ne!(SessionId::random().handle(), id.handle());
    }

    #[test]
    fn a_session_belongs_to_one_principal() {
        let id = SessionId::random();
        let key = |name: &str| SessionKey { principal: Principal::named(name).unwrap(), id };
        assert_eq!(key("alice"), key("alice"));
        assert_ne!(key("alice"), key("bob"));
    }

    #[test]
    fn a_record_is_found_by_id_and_principal_together() {
        let id = SessionId::random();
        let key = |name: &str, id| SessionKey { principal: Principal::named(name).unwrap(), id }.record_key();
        assert_eq!(key("alice", id), key("alice", id));
        assert_ne!(key("alice", id), key("bob", id));
        assert_ne!(key("alice", id), key("alice", SessionId::random()));
        assert!(!id.expose().contains(&format!("{:?}", key("alice", id))[2..]));
    }

    #[test]
    fn other_spellings_are_no_ids() {
        for bad in [
            "",
            "x",
            "00000000000000000000000000000000",
            "{00000000-0000-0000-0000-000000000000}",
            "ABCDEFAB-0000-4000-8000-000000000000",
        ] {
            assert_eq!(SessionId::parse(bad), None, "{bad}");
        }
    }
}
