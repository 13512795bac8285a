//! What each principal may do: where it may work, which servers and tools it gets, how much it may use.
//!
//! The one place that decides it. A [`RightsBook`] knows what the configuration and the command line say;
//! [`RightsBook::of`] makes the [`Rights`] of one principal from it. Both are plain data; a file is looked at only for
//! the user of a principal that is new.
//!
//! A directory is a principal's *own* if an entry or a group of the configuration lists it for that principal. A
//! *common* one is listed for all principals. A common directory that overlaps one of another principal's own is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{PrincipalRights, Principals, Standing, ToolRules};
use identity::Principal;
use jiff::Timestamp;
use upstream::Restriction;

use crate::principal_users::{PrincipalUsers, PrincipalUsersError};

/// Sessions and calls per second of one principal, unless the operator says otherwise.
const DEFAULT_SESSIONS: usize = 50;
const DEFAULT_CALLS_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(49);

/// The rights of all principals.
#[derive(Clone, Debug, Default)]
pub struct RightsBook {
    /// `None`: callers need no token, and all of them are one principal.
    grants: Option<Grants>,
}

/// What the operator grants to callers with tokens.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// From the configuration, with real paths.
    pub principals: Principals,
    /// Of the command line, for principals whose entries name no directories.
    pub scopes: Vec<PathBuf>,
    /// The operator's workspaces by name.
    pub workspaces: BTreeMap<String, PathBuf>,
    /// Of the command line, for principals whose entries set no limit.
    pub sessions: Option<usize>,
    pub calls_per_second: Option<NonZeroU32>,
    /// Where principals have users of their own on this host.
    pub users: Option<Arc<PrincipalUsers>>,
}

/// Why a principal gets no rights.
#[derive(Debug)]
pub(crate) enum RightsError {
    Expired,
    NoUser(PrincipalUsersError),
}

/// The rights of one principal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    /// `None`: the rules for scopes decide alone.
    places: Option<Places>,
    /// `None` for all.
    servers: Option<BTreeSet<String>>,
    /// Over the names that clients see.
    pub(crate) tools: ToolRules,
    pub(crate) restriction: Restriction,
    /// `None`: as the settings say.
    pub(crate) sessions: Option<usize>,
    pub(crate) calls_per_second: Option<NonZeroU32>,
}

/// Where a session works.
#[derive(Clone, Debug)]
pub(crate) struct Working {
    pub(crate) directories: Vec<PathBuf>,
    /// The operator chose them, because the client named none.
    pub(crate) is_default: bool,
}

/// The directories that a principal may work in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Places {
    own: Vec<PathBuf>,
    common: Vec<PathBuf>,
    /// Common names of workspaces.
    names: BTreeMap<String, PathBuf>,
    /// Directories of other principals' own.
    of_others: Vec<PathBuf>,
    /// The configuration says which directories it may have, so it gets no other by default.
    is_limited: bool,
}

impl RightsBook {
    /// For callers that need tokens.
    pub fn of_grants(grants: Grants) -> Self {
        Self { grants: Some(grants) }
    }

    /// Whether the access of a principal has expired at a time.
    pub(crate) fn has_expired(&self, principal: &Principal, now: Timestamp) -> bool {
        let Some(grants) = self.grants.as_ref().filter(|grants| !grants.principals.is_empty()) else {
            return false;
        };
        grants.principals.standing(principal.as_str(), now) == Standing::Expired
    }

    /// The rights of a principal at a time.
    pub(crate) fn of(&self, principal: &Principal, now: Timestamp) -> Result<Rights, RightsError> {
        let Some(grants) = &self.grants else { return Ok(Rights::default()) };
        let name = principal.as_str();
        let (written, is_named) = match grants.principals.standing(name, now) {
            Standing::Named(rights) => (rights, true),
            Standing::Default(rights) => (rights, false),
            Standing::Unmentioned => (PrincipalRights::default(), false),
            Standing::Expired => return Err(RightsError::Expired),
        };
        let user = grants.users.as_ref().map(|users| users.user_of(principal)).transpose();
        let places = grants.places(name, &written, is_named);
        let limits = written.limits;
        let calls = limits.calls_per_second.map(|calls| u32::try_from(calls).unwrap_or(u32::MAX));
        let sessions = limits.sessions.map(|sessions| usize::try_from(sessions).unwrap_or(usize::MAX));
        // Where the operator lists directories, what lies around them is nothing that a principal may have.
        let is_limited = places.is_limited || !grants.scopes.is_empty();
        Ok(Rights {
            places: Some(places),
            servers: written.servers.map(BTreeSet::from_iter),
            tools: written.tools,
            restriction: Restriction {
                read_only: written.read_only,
                memory_bytes: limits.memory_bytes,
                processes: limits.processes,
                is_limited,
                user: user.map_err(RightsError::NoUser)?,
            },
            sessions: sessions.or(grants.sessions).or(Some(DEFAULT_SESSIONS)),
            calls_per_second: calls
                .and_then(NonZeroU32::new)
                .or(grants.calls_per_second)
                .or(Some(DEFAULT_CALLS_PER_SECOND)),
        })
    }
}

impl Grants {
    fn places(&self, name: &str, written: &PrincipalRights, is_named: bool) -> Places {
        let listed = written.scopes.iter().flatten().cloned();
        let named = self.directories_of(written);
        let of_others = self.principals.of_others(name);
        let of_others = of_others
            .flat_map(|other| other.scopes.iter().flatten().cloned().chain(self.directories_of(other)));
        let (own, mut common): (Vec<_>, Vec<_>) = if is_named {
            (listed.chain(named).collect(), Vec::new())
        } else {
            (Vec::new(), listed.collect())
        };
        if written.scopes.is_none() || !is_named {
            common.extend(self.scopes.iter().cloned());
        }
        let is_common = |workspace: &str| match &written.workspaces {
            None => true,
            Some(listed) => !is_named && listed.iter().any(|listed| listed == workspace),
        };
        let common_workspaces = self.workspaces.iter().filter(|(workspace, _)| is_common(workspace));
        Places {
            own,
            common,
            names: common_workspaces
                .map(|(workspace, directory)| (workspace.clone(), directory.clone()))
                .collect(),
            of_others: of_others.collect(),
            is_limited: written.scopes.is_some(),
        }
    }

    /// The directories of the workspaces that an entry lists by name.
    fn directories_of<'a>(&'a self, written: &'a PrincipalRights) -> impl Iterator<Item = PathBuf> + 'a {
        let names = written.workspaces.iter().flatten();
        names.filter_map(|name| self.workspaces.get(name)).cloned()
    }
}

impl Rights {
    /// The granted directories that hold this one; `None` if the rules for scopes decide alone. An empty list refuses.
    pub(crate) fn holding(&self, directory: &Path) -> Option<Vec<&Path>> {
        self.places.as_ref().map(|places| places.holding(directory))
    }

    /// Whether the directory is the principal's own: a session that another principal has there does not keep it out.
    pub(crate) fn owns(&self, directory: &Path) -> bool {
        self.places.as_ref().is_some_and(|places| is_within(directory, &places.own))
    }

    /// Whether a workspace of the operator may be opened by its name.
    pub(crate) fn opens(&self, name: &str, directory: &Path) -> bool {
        let Some(places) = &self.places else { return true };
        let is_common = places.names.contains_key(name) && !places.is_of_others(directory);
        is_common || !places.holding(directory).is_empty()
    }

    /// The directories of a session whose client names none. `operators`: what the operator set for that. `None`: it
    /// gets none.
    pub(crate) fn default_scope(&self, operators: &[PathBuf]) -> Option<Vec<PathBuf>> {
        let Some(places) = &self.places else { return Some(operators.to_vec()) };
        if operators.iter().all(|directory| places.takes_by_default(directory)) {
            return Some(operators.to_vec());
        }
        places.own.first().map(|own| vec![own.clone()])
    }

    /// Whether secrets of a workspace are for this principal.
    pub(crate) fn knows_secrets_of(&self, workspace: &Path) -> bool {
        self.places.as_ref().is_none_or(|places| !places.holding(workspace).is_empty())
    }

    pub(crate) fn has_server(&self, name: &str) -> bool {
        self.servers.as_ref().is_none_or(|servers| servers.contains(name))
    }

    /// Whether a session that was opened with other rights may go on with these. Its servers were chosen and their
    /// fences put up by the former, so a difference in those ends it.
    pub(crate) fn suit(&self, former: &Self, working: Option<&Working>) -> bool {
        let has_same_servers = self.servers == former.servers
            && self.tools == former.tools
            && self.restriction == former.restriction;
        let has_place = match working {
            // Its client may yet name any directory that the former rights allow.
            None => self.places == former.places,
            Some(Working { directories, is_default }) => {
                directories.iter().all(|directory| self.takes(directory, *is_default))
            }
        };
        has_same_servers && has_place
    }

    fn takes(&self, directory: &Path, is_default: bool) -> bool {
        let Some(places) = &self.places else { return true };
        let is_named = places.names.values().any(|named| named == directory);
        !places.holding(directory).is_empty()
            || (is_named && !places.is_of_others(directory))
            || (is_default && places.takes_by_default(directory))
    }
}

impl Places {
    fn holding(&self, directory: &Path) -> Vec<&Path> {
        let holds = |granted: &&PathBuf| directory.starts_with(granted);
        let own: Vec<&Path> = self.own.iter().filter(holds).map(PathBuf::as_path).collect();
        if !own.is_empty() || self.is_of_others(directory) {
            return own;
        }
        self.common.iter().filter(holds).map(PathBuf::as_path).collect()
    }

    fn takes_by_default(&self, directory: &Path) -> bool {
        if self.is_limited {
            return !self.holding(directory).is_empty();
        }
        is_within(directory, &self.own) || !self.is_of_others(directory)
    }

    /// Whether a session there could reach a directory of another principal's own.
    fn is_of_others(&self, directory: &Path) -> bool {
        let overlaps = |other: &PathBuf| directory.starts_with(other) || other.starts_with(directory);
        self.of_others.iter().any(overlaps)
    }
}

fn is_within(directory: &Path, granted: &[PathBuf]) -> bool {
    granted.iter().any(|granted| directory.starts_with(granted))
}

#[cfg(test)]
mod tests;
