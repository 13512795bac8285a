//! Names of session workspaces, unique for a user.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longer names do not fit into a line of a table, nor into the names of directories with what is added to them.
const MAX_BYTES: usize = 64;
/// The part of a base's name that an automatic name begins with.
const MAX_STEM_BYTES: usize = 40;
const SUFFIX_DIGITS: usize = 4;
/// Used when a base's name has no usable character.
const DEFAULT_STEM: &str = "workspace";

#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{name}` is no name for a session workspace")]
pub struct NameError {
    pub name: String,
}

/// A name such as `fix-login`: `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkspaceName(String);

impl WorkspaceName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Makes a name from that of the base and a few characters of a random id.
    pub(crate) fn automatic(base: &Path, random: &str) -> Self {
        let name = base.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let kept: String = name.chars().map(|letter| if is_allowed(letter) { letter } else { '-' }).collect();
        let stem = kept.trim_start_matches(|letter: char| !letter.is_ascii_alphanumeric());
        let stem =
            stem.get(..stem.len().min(MAX_STEM_BYTES)).unwrap_or_default().trim_end_matches(['-', '.']);
        let stem = if stem.is_empty() { DEFAULT_STEM } else { stem };
        let suffix: String = random.chars().filter(char::is_ascii_alphanumeric).take(SUFFIX_DIGITS).collect();
        Self(format!("{stem}-{suffix}"))
    }
}

fn is_allowed(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-')
}

impl FromStr for WorkspaceName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let begins_well = text.starts_with(|letter: char| letter.is_ascii_alphanumeric());
        if begins_well && text.len() <= MAX_BYTES && text.chars().all(is_allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError { name: text.to_owned() })
        }
    }
}

impl TryFrom<String> for WorkspaceName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<WorkspaceName> for String {
    fn from(name: WorkspaceName) -> Self {
        name.0
    }
}

impl fmt::Display for WorkspaceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words() {
        for name in ["a", "fix-login", "1.2_x", &"x".repeat(64)] {
            assert_eq!(name.parse::<WorkspaceName>().unwrap().as_str(), name);
        }
        for name in ["", ".", "..", "-x", ".git", "a/b", "a b", "ä", "a\n", &"x".repeat(65)] {
            assert!(name.parse::<WorkspaceName>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn automatic_names_are_names() {
        let long = "ü".repeat(100);
        for base in ["/home/ada/shop", "/", "/a/.config", "/a/Ünï cödé", &long, "/a/--..--", "/a/x.-"] {
            let name = WorkspaceName::automatic(Path::new(base), "0f3a-99");
            assert_eq!(name.as_str().parse::<WorkspaceName>().unwrap(), name, "{base}");
        }
        assert_eq!(WorkspaceName::automatic(Path::new("/home/ada/shop"), "0f3a99").as_str(), "shop-0f3a");
        assert_eq!(WorkspaceName::automatic(Path::new("/"), "0f3a99").as_str(), "workspace-0f3a");
    }
}
