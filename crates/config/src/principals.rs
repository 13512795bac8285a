//! The rights of principals as the operator wrote them, and whose entry counts for a principal.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;

use crate::ToolRules;

/// The entry of `principals` that counts for all who have no other.
const DEFAULT: &str = "default";

/// Rights of principals and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Principals {
    /// By name; without those that only have secrets.
    pub entries: BTreeMap<String, PrincipalRights>,
    pub groups: BTreeMap<String, Group>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub members: Vec<String>,
    pub rights: PrincipalRights,
}

/// The rights that one entry gives. `None` leaves the choice to the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrincipalRights {
    pub scopes: Option<Vec<PathBuf>>,
    /// Names of the operator's workspaces.
    pub workspaces: Option<Vec<String>>,
    /// `None` for all.
    pub servers: Option<Vec<String>>,
    /// Over the names that clients see; without aliases.
    pub tools: ToolRules,
    pub read_only: bool,
    pub limits: PrincipalLimits,
    /// From then on the entry gives nothing.
    pub expires: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrincipalLimits {
    pub sessions: Option<u64>,
    pub calls_per_second: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
}

/// Where the rights of a principal come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its own entry or its groups.
    Named(PrincipalRights),
    /// The entry for all who have no other.
    Default(PrincipalRights),
    /// No entry counts for it.
    Unmentioned,
    /// Its entry, or all of its groups, have expired.
    Expired,
}

impl Principals {
    /// What a principal may do at a time: by its own entry, else by its groups, else by the default.
    pub fn standing(&self, name: &str, now: Timestamp) -> Standing {
        self.standing_if(name, |rights| rights.expires.is_none_or(|expires| now < expires))
    }

    /// The rights of a principal whatever the time is; those of an unmentioned one if no entry counts for it.
    pub(crate) fn written_for(&self, name: &str) -> PrincipalRights {
        match self.standing_if(name, |_| true) {
            Standing::Named(rights) | Standing::Default(rights) => rights,
            Standing::Unmentioned | Standing::Expired => PrincipalRights::default(),
        }
    }

    /// Every name that the file mentions, and the one that stands for all others.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let members = self.groups.values().flat_map(|group| &group.members);
        self.entries.keys().chain(members).map(String::as_str).chain([DEFAULT])
    }

    /// The entries of others than this principal, groups among them. A group of its own counts, too: it is also its
    /// other members'.
    pub fn of_others<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a PrincipalRights> {
        let entries = self.entries.iter().filter(move |(other, _)| *other != name && *other != DEFAULT);
        entries.map(|(_, rights)| rights).chain(self.groups.values().map(|group| &group.rights))
    }

    /// Every list of directories, to resolve the links in them.
    pub fn scopes_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let groups = self.groups.values_mut().map(|group| &mut group.rights);
        self.entries.values_mut().chain(groups).filter_map(|rights| rights.scopes.as_mut()).flatten()
    }

    /// Whether an entry names the tools that it gives or takes.
    pub(crate) fn has_tool_rules(&self) -> bool {
        let groups = self.groups.values().map(|group| &group.rights);
        self.entries.values().chain(groups).any(|rights| rights.tools != ToolRules::default())
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.groups.is_empty()
    }

    fn standing_if(&self, name: &str, is_valid: impl Fn(&PrincipalRights) -> bool) -> Standing {
        if let Some(own) = self.entries.get(name).filter(|_| name != DEFAULT) {
            return if is_valid(own) { Standing::Named(own.clone()) } else { Standing::Expired };
        }
        let is_member = |group: &&Group| group.members.iter().any(|member| member == name);
        let mut groups = self.groups.values().filter(is_member).map(|group| &group.rights).peekable();
        if groups.peek().is_some() {
            let joined = groups.filter(|rights| is_valid(rights)).cloned().reduce(PrincipalRights::joined);
            return joined.map_or(Standing::Expired, Standing::Named);
        }
        match self.entries.get(DEFAULT) {
            Some(rights) if is_valid(rights) => Standing::Default(rights.clone()),
            Some(_) => Standing::Expired,
            None => Standing::Unmentioned,
        }
    }
}

impl PrincipalRights {
    /// The rights of a member of two groups: what either gives, without what either denies.
    fn joined(self, other: Self) -> Self {
        Self {
            // A group without directories says nothing about them.
            scopes: match (self.scopes, other.scopes) {
                (Some(one), Some(two)) => Some(united(one, two)),
                (one, two) => one.or(two),
            },
            workspaces: match (self.workspaces, other.workspaces) {
                (Some(one), Some(two)) => Some(united(one, two)),
                (one, two) => one.or(two),
            },
            servers: self.servers.zip(other.servers).map(|(one, two)| united(one, two)),
            tools: ToolRules {
                // An empty list allows all.
                allow: if self.tools.allow.is_empty() || other.tools.allow.is_empty() {
                    Vec::new()
                } else {
                    united(self.tools.allow, other.tools.allow)
                },
                deny: united(self.tools.deny, other.tools.deny),
                aliases: BTreeMap::new(),
            },
            read_only: self.read_only || other.read_only,
            limits: self.limits.joined(other.limits),
            expires: self.expires.zip(other.expires).map(|(one, two)| one.max(two)),
        }
    }
}

impl PrincipalLimits {
    /// The higher one of each. A group without a limit says nothing about it.
    fn joined(self, other: Self) -> Self {
        Self {
            sessions: self.sessions.max(other.sessions),
            calls_per_second: self.calls_per_second.max(other.calls_per_second),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            processes: self.processes.max(other.processes),
        }
    }
}

fn united<T: PartialEq>(mut one: Vec<T>, two: Vec<T>) -> Vec<T> {
    for item in two {
        if !one.contains(&item) {
            one.push(item);
        }
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;
    use std::path::Path;

    fn principals(text: &str) -> Principals {
        Configuration::parse(text, Path::new("/etc/c.yaml")).unwrap().configuration.principals
    }

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    fn scopes(principals: &Principals, name: &str) -> Vec<String> {
        let rights = match principals.standing(name, at("2026-01-01T00:00:00Z")) {
            Standing::Named(rights) | Standing::Default(rights) => rights,
            other => panic!("{name}: {other:?}"),
        };
        rights.scopes.unwrap_or_default().iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn an_entry_counts_before_groups_and_groups_before_the_default() {
        let principals = principals(
            "principals: {alice: {scopes: [/a]}, default: {scopes: [/all]}}\n\
             groups: {one: {members: [alice, bob], scopes: [/one]}, two: {members: [bob], scopes: [/two, /one]}}\n",
        );
        assert_eq!(scopes(&principals, "alice"), ["/a"]);
        assert_eq!(scopes(&principals, "bob"), ["/one", "/two"]);
        assert_eq!(scopes(&principals, "carol"), ["/all"]);
        assert!(matches!(principals.standing("carol", Timestamp::MIN), Standing::Default(_)));
    }

    #[test]
    fn an_entry_with_nothing_but_secrets_gives_no_rights_and_takes_none() {
        let principals = principals(
            "principals: {alice: {secrets: {KEY: {env: KEY}}}}\ngroups: {one: {members: [alice], scopes: [/one]}}\n",
        );
        assert_eq!(scopes(&principals, "alice"), ["/one"]);
        assert_eq!(principals.standing("bob", Timestamp::MIN), Standing::Unmentioned);
    }

    #[test]
    fn several_groups_give_what_each_gives_and_deny_what_one_denies() {
        let principals = principals(
            "groups:\n\
             \x20 one: {members: [bob], servers: [a], tools: {allow: [x], deny: [y]}, limits: {sessions: 2}}\n\
             \x20 two: {members: [bob], servers: [b], tools: {allow: [z]}, readOnly: true, limits: {sessions: 3, memory: 1K}}\n",
        );
        let rights = principals.written_for("bob");
        assert_eq!(rights.servers.unwrap(), ["a", "b"]);
        assert_eq!((rights.tools.allow, rights.tools.deny), (vec!["x".into(), "z".into()], vec!["y".into()]));
        assert!(rights.read_only);
        assert_eq!((rights.limits.sessions, rights.limits.memory_bytes), (Some(3), Some(1024)));
    }

    #[test]
    fn what_has_expired_gives_nothing_and_does_not_fall_back() {
        let principals = principals(
            "principals: {alice: {expires: 2026-06-30}, default: {}}\n\
             groups: {old: {members: [bob, carol], scopes: [/old], expires: 2025-12-31}, new: {members: [bob], scopes: [/new]}}\n",
        );
        let standing = |name: &str, time: &str| principals.standing(name, at(time));
        assert!(matches!(standing("alice", "2026-06-30T23:59:59Z"), Standing::Named(_)), "the last second");
        assert_eq!(standing("alice", "2026-07-01T00:00:00Z"), Standing::Expired);
        assert_eq!(standing("carol", "2026-01-01T00:00:00Z"), Standing::Expired);
        assert_eq!(scopes(&principals, "bob"), ["/new"], "the other group is left");
    }
}
