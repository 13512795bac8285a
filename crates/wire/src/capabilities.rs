//! The capabilities that a client declares in `initialize`.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::method;

/// The capabilities that decide whether an upstream's request may reach the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCapabilities {
    pub roots: bool,
    pub sampling: bool,
    pub elicitation: bool,
}

impl ClientCapabilities {
    /// Returns true if a request of this method may be sent to the client. Methods without a capability always may.
    pub fn allow(self, method: &str) -> bool {
        match method {
            method::ROOTS_LIST => self.roots,
            method::SAMPLING => self.sampling,
            method::ELICITATION => self.elicitation,
            _ => true,
        }
    }
}

impl<'de> Deserialize<'de> for ClientCapabilities {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Declared {
            roots: Option<IgnoredAny>,
            sampling: Option<IgnoredAny>,
            elicitation: Option<IgnoredAny>,
        }
        let declared = Declared::deserialize(deserializer)?;
        Ok(Self {
            roots: declared.roots.is_some(),
            sampling: declared.sampling.is_some(),
            elicitation: declared.elicitation.is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_declared_may_be_asked() {
        let declared: ClientCapabilities =
            serde_json::from_str(r#"{"sampling":{},"tasks":{"x":1}}"#).unwrap();
        assert!(declared.allow(method::SAMPLING) && declared.allow(method::PING));
        assert!(!declared.allow(method::ROOTS_LIST) && !declared.allow(method::ELICITATION));
    }
}
