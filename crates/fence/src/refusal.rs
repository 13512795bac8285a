//! What cannot be had, why, and what to do about it.

use std::fmt;

/// Why a policy cannot be had on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub missing: Vec<Missing>,
}

/// One thing that was asked for and cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// A protection by name, or the part of the policy.
    pub what: String,
    pub reason: String,
    pub remedy: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.missing.iter().map(|missing| format!("{}: {}", missing.what, missing.reason)).collect();
        f.write_str(&parts.join("; "))
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    pub(crate) fn of(what: &str, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            missing: vec![Missing { what: what.to_owned(), reason: reason.into(), remedy: remedy.into() }],
        }
    }

    pub fn hint(&self) -> String {
        let mut remedies: Vec<&str> = self.missing.iter().map(|missing| missing.remedy.as_str()).collect();
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
