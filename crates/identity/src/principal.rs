//! The authenticated caller of the gateway.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// An authenticated caller. Without authentication every caller is `anonymous`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    const ANONYMOUS: &str = "anonymous";
    const MAX_NAME: usize = 64;

    pub fn anonymous() -> Self {
        Self(Self::ANONYMOUS.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A caller with a token. Returns `None` unless the name is letters, digits, `.`, `_` and `-`; `anonymous` is
    /// reserved.
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_named_caller_is_never_the_anonymous_one() {
        assert_eq!(Principal::anonymous().to_string(), "anonymous");
        assert_ne!(Principal::named("Anonymous"), Some(Principal::anonymous()));
    }
}
