//! The authenticated caller of the gateway.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// Who calls. Without authentication everybody on loopback is the same principal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    const ANONYMOUS: &str = "anonymous";
    const MAX_NAME: usize = 64;

    pub fn anonymous() -> Self {
        Self(Self::ANONYMOUS.into())
    }

    /// A caller who has shown who it is. Names are letters, digits, `.`, `_` and `-`; nobody is called
    /// `anonymous`.
    pub fn named(name: &str) -> Option<Self> {
        let is_ours = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let is_name = (1..=Self::MAX_NAME).contains(&name.len()) && name.bytes().all(is_ours);
        (is_name && name != Self::ANONYMOUS).then(|| Self(name.into()))
    }
}

impl Serialize for Principal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
