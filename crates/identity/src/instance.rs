//! Which client window a session belongs to. A label, never a credential: it is bound to the principal.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

/// The longest name that a client may give itself.
const MAX_NAME: usize = 128;

/// One client window or process, named by itself or by 128 random bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Instance(Arc<str>);

impl Instance {
    /// One that nobody named.
    pub fn random() -> Self {
        // A UUID fixes six of its bits, which lie elsewhere in one that was turned round.
        let [all, more] = [Uuid::new_v4(), Uuid::new_v4()].map(|id| id.as_u128());
        Self(format!("{:032x}", all ^ more.rotate_left(64)).into())
    }

    /// The name that a client gave. A variable that was not filled in, and what is no name, count as none.
    pub fn named(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_name = !text.is_empty()
            && text.len() <= MAX_NAME
            && text.bytes().all(|byte| byte.is_ascii_graphic())
            && !text.contains("${");
        is_name.then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfilled_variable_is_no_name() {
        assert_eq!(Instance::named("window-1").unwrap().as_str(), "window-1");
        for bad in ["", "  ", "${CLAUDE_INSTANCE_ID}", "a b", &"x".repeat(129)] {
            assert_eq!(Instance::named(bad), None, "{bad:?}");
        }
        assert_ne!(Instance::random(), Instance::random());
        assert_eq!(Instance::random().as_str().len(), 32);
    }
}
