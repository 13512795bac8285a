//! Session ids, and the handles that name a session in logs. A session id is a credential: only
//! [`SessionId::expose`] shows it.

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

    /// Reads the spelling that [`SessionId::expose`] gives; anything else is no id of ours.
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

/// Names a session in logs and listings without giving its id away.
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

/// What a session is found by: never the id alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey {
    pub principal: Principal,
    pub id: SessionId,
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
    fn a_principal_has_a_plain_name_of_its_own() {
        let longest = "x".repeat(64);
        for good in ["alice", "build-7.example_org", "A", longest.as_str()] {
            assert_eq!(Principal::named(good).unwrap().to_string(), good);
        }
        let too_long = "x".repeat(65);
        for bad in ["", "anonymous", "a b", "ä", "a:b", "a\n", too_long.as_str()] {
            assert_eq!(Principal::named(bad), None, "{bad:?}");
        }
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
