//! The key of a log. With a key, the hashes of the chain are HMACs: a line can be checked, and a new one made, only with
//! the key.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// As many as a hash has. A key of random characters is longer.
const MIN_KEY_BYTES: usize = 32;

/// Four bytes say which key it was, and nothing about it.
const ID_BYTES: usize = 4;

/// A key, ready to hash lines. It is never printed.
#[derive(Clone)]
pub struct AuditKey {
    mac: Hmac<Sha256>,
    id: String,
}

/// A key that can be guessed.
#[derive(Debug, Error)]
#[error("the key has {found} bytes, and needs at least {MIN_KEY_BYTES}")]
pub struct KeyTooShort {
    found: usize,
}

impl AuditKey {
    pub fn new(secret: &[u8]) -> Result<Self, KeyTooShort> {
        let too_short = || KeyTooShort { found: secret.len() };
        if secret.len() < MIN_KEY_BYTES {
            return Err(too_short());
        }
        let mac = Hmac::new_from_slice(secret).map_err(|_| too_short())?;
        Ok(Self { mac, id: wire::hex(&Sha256::digest(secret)[..ID_BYTES]) })
    }

    /// The first eight digits of the SHA-256 of the key.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn hash(&self, bytes: &[u8]) -> [u8; 32] {
        self.mac.clone().chain_update(bytes).finalize().into_bytes().into()
    }
}

impl fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AuditKey").field(&self.id).finish()
    }
}

/// Why a log and a key do not belong together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyMismatch {
    #[error("its lines are hashed with a key (id {id}), and none was given")]
    KeyNeeded { id: String },
    #[error("its lines are not hashed with a key: it was never keyed, or was written anew without the key")]
    NotKeyed,
    #[error("its lines are hashed with the key {found}, not with {given}")]
    OtherKey { found: String, given: String },
}

impl KeyMismatch {
    /// `found`: the id of the key that the first line of a file names.
    pub(super) fn check(found: Option<&str>, key: Option<&AuditKey>) -> Result<(), Self> {
        match (found, key.map(AuditKey::id)) {
            (Some(id), None) => Err(Self::KeyNeeded { id: id.to_owned() }),
            (None, Some(_)) => Err(Self::NotKeyed),
            (Some(found), Some(given)) if found != given => {
                Err(Self::OtherKey { found: found.to_owned(), given: given.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_hashed_as_rfc_4231_says() {
        // Test case 6: a key longer than a block.
        let key = AuditKey::new(&[0xaa; 131]).unwrap();
        let hash = key.hash(b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(wire::hex(&hash), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    #[test]
    fn a_key_has_an_id_is_long_enough_and_is_not_printed() {
        let key = AuditKey::new(b"0123456789abcdef0123456789abcdef").unwrap();
        assert_eq!(key.id(), &wire::hex(&Sha256::digest(b"0123456789abcdef0123456789abcdef"))[..8]);
        assert_eq!(format!("{key:?}"), format!("AuditKey({:?})", key.id()));
        let error = AuditKey::new(b"0123456789abcdef0123456789abcde").unwrap_err();
        assert!(error.to_string().contains("31 bytes"), "{error}");
    }
}
