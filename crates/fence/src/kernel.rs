//! What this host offers. A throw-away process finds it out by trying, never from a version number.

use serde::{Deserialize, Serialize};

/// What a plan may count on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// The version of Landlock's interface; 0 is none.
    pub landlock: u32,
    pub seccomp: bool,
    pub namespaces: Namespaces,
    pub limits: LimitSupport,
    pub is_root: bool,
}

impl Kernel {
    /// What its user can do to get more protection on this host.
    pub fn remedies(&self) -> Vec<String> {
        let mut remedies = Vec::new();
        if matches!(self.namespaces, Namespaces::Missing { .. }) {
            remedies.push(crate::refusal::namespace_remedy().to_owned());
        }
        if self.landlock < 6 {
            remedies.push(
                "Linux 6.12 or later, with Landlock on: fences without namespaces protect more there"
                    .to_owned(),
            );
        }
        if !self.limits.memory || !self.limits.processes {
            remedies.push(crate::refusal::cgroup_remedy().to_owned());
        }
        remedies
    }
}

/// Whether a fence can have namespaces of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Namespaces {
    Available,
    Missing {
        /// What was tried, such as `unshare`.
        step: String,
        reason: String,
    },
}

/// What can be limited through control groups, and by which kind of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitSupport {
    pub version: Option<CgroupVersion>,
    pub memory: bool,
    pub processes: bool,
    pub cpu: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupVersion {
    V1,
    V2,
}

impl CgroupVersion {
    pub fn mechanism(self) -> &'static str {
        match self {
            Self::V1 => "cgroup_v1",
            Self::V2 => "cgroup_v2",
        }
    }
}
