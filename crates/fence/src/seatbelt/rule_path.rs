//! A path as rules name it: checked, without empty steps, and in every spelling that reaches the same file.

use std::path::Path;

use super::PathError;

/// Links at the top of the system volume that lead into `/private`.
const ALIASES: [&str; 3] = ["/tmp", "/var", "/etc"];

/// Where the volume of all that is not the system itself is mounted. Its directories show at the root.
const DATA_VOLUME: &str = "/System/Volumes/Data";

/// A path of a request, through `/private` where it leads there: that is how the kernel spells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RulePath(String);

impl RulePath {
    pub(super) fn parse(path: &Path) -> Result<Self, PathError> {
        let path = path.to_str().ok_or(PathError::NotUtf8)?;
        if path.contains(char::is_control) {
            return Err(PathError::ControlCharacter);
        }
        if !path.starts_with('/') {
            return Err(PathError::NotAbsolute);
        }
        let steps: Vec<&str> = path.split('/').filter(|step| !matches!(*step, "" | ".")).collect();
        if steps.contains(&"..") {
            return Err(PathError::ParentStep);
        }
        let path = format!("/{}", steps.join("/"));
        let is_alias = ALIASES.iter().any(|alias| is_within(&path, alias));
        Ok(Self(if is_alias { format!("/private{path}") } else { path }))
    }

    pub(super) fn is_root(&self) -> bool {
        self.0 == "/"
    }

    /// Whether the other path is this one or below it.
    pub(super) fn contains(&self, other: &Self) -> bool {
        is_within(&other.0, &self.0)
    }

    /// Whether one of the two paths contains the other.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.contains(other) || other.contains(self)
    }

    /// The kernel's spelling, and the one that users know.
    pub(super) fn spellings(&self) -> Vec<String> {
        let mut spellings = vec![self.0.clone()];
        spellings.extend(self.alias());
        spellings
    }

    /// The spellings, and the one by way of the data volume. For denials: should a release of macOS take
    /// a look at a path before it has folded that prefix away, the denial still matches.
    pub(super) fn spellings_to_deny(&self) -> Vec<String> {
        let mut spellings = self.spellings();
        match self.0.strip_prefix(DATA_VOLUME) {
            Some(shown) if shown.starts_with('/') => spellings.push(shown.to_owned()),
            _ => spellings.push(format!("{DATA_VOLUME}{}", self.0)),
        }
        spellings
    }

    fn alias(&self) -> Option<String> {
        let short = self.0.strip_prefix("/private")?;
        ALIASES.iter().any(|alias| is_within(short, alias)).then(|| short.to_owned())
    }
}

/// Whether the path is one of the links that every macOS has at its root.
pub(super) fn is_system_alias(path: &Path) -> bool {
    ALIASES.iter().any(|alias| path == Path::new(alias))
}

/// The directories above a spelling, nearest first, without the root.
pub(super) fn directories_above(spelling: &str) -> impl Iterator<Item = String> + '_ {
    spelling.rmatch_indices('/').filter(|(end, _)| *end > 0).map(|(end, _)| spelling[..end].to_owned())
}

/// Whether a path is the directory or below it.
pub(super) fn is_within(path: &str, directory: &str) -> bool {
    match path.strip_prefix(directory) {
        Some(rest) => rest.is_empty() || rest.starts_with('/') || directory == "/",
        None => false,
    }
}
