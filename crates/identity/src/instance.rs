//! The client window that a session belongs to. A label and not a credential: it is always used with the principal.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

/// Longest name of a client window.
const MAX_NAME: usize = 128;

/// One client window or process, under its own name or 128 random bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Instance(Arc<str>);

impl Instance {
    /// An instance for a client that named none.
    pub fn random() -> Self {
        // Six bits of a UUID are fixed. Rotating the second one covers them with random bits.
        let [all, more] = [Uuid::new_v4(), Uuid::new_v4()].map(|id| id.as_u128());
        Self(format!("{:032x}", all ^ more.rotate_left(64)).into())
    }

    /// The name that a client sent. Returns `None` if it is not a name, or a variable that was not filled in.
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

    #[test]
    fn a_name_is_trimmed_and_shown_as_it_is() {
        let longest = "x".repeat(MAX_NAME);
        for (sent, kept) in [(" a/b:c ", "a/b:c"), ("$x", "$x"), (longest.as_str(), longest.as_str())] {
            assert_eq!(Instance::named(sent).unwrap().to_string(), kept);
        }
        for bad in ["ä", "a\tb", "a\0b"] {
            assert_eq!(Instance::named(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn every_bit_of_a_random_instance_varies() {
        let bits = |instance: Instance| u128::from_str_radix(instance.as_str(), 16).unwrap();
        let all: Vec<u128> = (0..200).map(|_| bits(Instance::random())).collect();
        let (ones, zeros) = all.iter().fold((0, 0), |(ones, zeros), bits| (ones | bits, zeros | !bits));
        assert_eq!((ones, zeros), (u128::MAX, u128::MAX));
    }
}
