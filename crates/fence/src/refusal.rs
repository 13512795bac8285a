//! Why a policy cannot be enforced on this host, and what to do about it.

use std::fmt;

/// Why a policy cannot be enforced on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub unmet: Vec<UnmetRequirement>,
}

/// One part of a policy that cannot be enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmetRequirement {
    /// A protection by name, or the part of the policy.
    pub what: String,
    pub reason: String,
    pub remedy: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.unmet.iter().map(|unmet| format!("{}: {}", unmet.what, unmet.reason)).collect();
        f.write_str(&parts.join("; "))
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    pub(crate) fn of(what: &str, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            unmet: vec![UnmetRequirement {
                what: what.to_owned(),
                reason: reason.into(),
                remedy: remedy.into(),
            }],
        }
    }

    pub fn hint(&self) -> String {
        let mut remedies: Vec<&str> = self.unmet.iter().map(|unmet| unmet.remedy.as_str()).collect();
        remedies.dedup();
        remedies.join("; ")
    }
}

/// What a user can do about missing namespaces. Never a switch that opens them for every program.
pub(crate) fn namespace_remedy() -> &'static str {
    "let this program create user namespaces: on Ubuntu 23.10 and later install deploy/apparmor/ringfence \
     (see docs/fence.md), in a container allow them in its seccomp profile"
}

/// What a user can do about missing control groups.
pub(crate) fn cgroup_remedy() -> &'static str {
    "start ringfence where it may make control groups, for example with \
     `systemd-run --user --scope -p Delegate=yes ringfence …`"
}
