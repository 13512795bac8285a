//! The secrets of workspaces and principals. Values are looked up when a session needs them, and never printed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where a secret's value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// A variable of the gateway's own environment.
    Environment(String),
    /// A file that holds the value. It is read each time, so that a key can be replaced.
    File(PathBuf),
}

/// Where the secrets are. A name that no entry has is looked up in the gateway's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// For all sessions.
    pub everybody: BTreeMap<String, SecretSource>,
    pub principals: BTreeMap<String, BTreeMap<String, SecretSource>>,
    /// By canonical directory; valid for the directories below it, too.
    pub workspaces: BTreeMap<PathBuf, BTreeMap<String, SecretSource>>,
}

impl Secrets {
    /// The files that hold secrets.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let holders = self.principals.values().chain(self.workspaces.values()).chain([&self.everybody]);
        holders.flat_map(BTreeMap::values).filter_map(|source| match source {
            SecretSource::File(path) => Some(path.clone()),
            SecretSource::Environment(_) => None,
        })
    }

    /// The value for a session: that of its nearest workspace, else of its principal, else of all principals, else of the
    /// gateway's environment. `may_know` tells whether the secrets of a directory are for the principal.
    pub fn find(
        &self,
        name: &str,
        principal: &str,
        workspace: Option<&Path>,
        may_know: impl Fn(&Path) -> bool,
    ) -> Option<String> {
        let of_workspace = workspace.and_then(|workspace| {
            let known = workspace.ancestors().filter(|directory| may_know(directory));
            known.into_iter().find_map(|directory| self.workspaces.get(directory)?.get(name))
        });
        let of_principal = || self.principals.get(principal)?.get(name);
        match of_workspace.or_else(of_principal).or_else(|| self.everybody.get(name)) {
            Some(source) => source.read(),
            None => std::env::var(name).ok().filter(|value| !value.is_empty()),
        }
    }
}

impl SecretSource {
    fn read(&self) -> Option<String> {
        let value = match self {
            Self::Environment(name) => std::env::var(name).ok()?,
            Self::File(path) => std::fs::read_to_string(path).ok()?.trim_end_matches(['\r', '\n']).to_owned(),
        };
        Some(value).filter(|value| !value.is_empty())
    }
}
