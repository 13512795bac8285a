//! The report on a fence: each protection by name, whether it is enforced, by what, and how that is known.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::policy::Tier;

macro_rules! protection_names {
    ($($name:ident = $text:literal: $meaning:literal,)*) => {
        /// The protections that a report speaks of.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ProtectionName { $(#[doc = $meaning] $name,)* }

        impl ProtectionName {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What holds when it is enforced.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }
        }
    };
}

protection_names! {
    FsWriteScope = "fs_write_scope": "writes only inside the scope",
    FsReadScope = "fs_read_scope": "reads only the system and the scope",
    DenyRead = "deny_read": "listed secrets cannot be read",
    FsMetadataWrites = "fs_metadata_writes": "no change of modes, owners, times outside",
    FsMetadataReads = "fs_metadata_reads": "denied paths cannot even be seen",
    Tcp = "tcp": "TCP as the network mode says",
    Udp = "udp": "UDP as the network mode says",
    UnixPathname = "unix_pathname": "no sockets of other programs by path",
    UnixAbstract = "unix_abstract": "no sockets of other programs by name",
    OtherFamilies = "other_families": "no other kinds of socket",
    Signals = "signals": "no signals to processes outside",
    Ptrace = "ptrace": "no look into other processes' memory",
    ProcVisibility = "proc_visibility": "processes outside cannot be seen",
    SchedControl = "sched_control": "no change of others' priority and limits",
    SysvIpc = "sysv_ipc": "no shared memory and queues with others",
    Keyring = "keyring": "no access to kernel keys",
    NestedUserns = "nested_userns": "no user namespaces inside",
    IoUring = "io_uring": "no system calls that pass the filter by",
    DeviceIoctl = "device_ioctl": "devices cannot be controlled",
    NoNewPrivs = "no_new_privs": "set-id programs gain nothing",
    Capabilities = "capabilities": "no capabilities, as root neither",
    InheritedFds = "inherited_fds": "no open files of the parent",
    Environment = "environment": "only listed environment variables",
    TempIsolation = "temp_isolation": "temporary files are private",
    MemoryLimit = "memory_limit": "memory is bounded",
    PidLimit = "pid_limit": "the number of processes is bounded",
    TreeKill = "tree_kill": "no process outlives the command",
    ScopeMetadata = "scope_metadata": "what git, editors and agents obey stays as it is",
    Hardlinks = "hardlinks": "no file of the scope has a name outside",
}

impl fmt::Display for ProtectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ProtectionName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|name| name.as_str() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|name| name.as_str()).collect();
            format!("no protection has that name; there are: {}", names.join(", "))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// A canary tried it in this launch, and it held. Only [`Confinement::confirm`] says so.
    Enforced,
    /// All of it is set up, and was not tried in this launch.
    Configured,
    /// Some of it holds; the note says what does not.
    Partial,
    Unenforced,
    NotRequested,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Configured => "configured",
            Self::Partial => "partial",
            Self::Unenforced => "unenforced",
            Self::NotRequested => "not_requested",
        }
    }
}

/// How a status is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verified {
    /// It was tried inside the fence, and held.
    Canary,
    /// The kernel took the configuration without an error.
    Config,
}

impl Verified {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Canary => "canary",
            Self::Config => "config",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    pub name: ProtectionName,
    pub status: Status,
    /// What enforces it, such as `landlock:7` or `mount_ns`.
    pub mechanism: String,
    pub verified: Verified,
    /// What the status alone does not say.
    pub note: Option<String>,
}

/// What holds for one fenced command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    pub tier: Tier,
    /// The network mode, and the sentence that may be said of it.
    pub network: String,
    pub protections: Vec<Protection>,
}

impl Confinement {
    /// One line for logs and listings.
    pub fn summary(&self) -> String {
        let tier = match self.tier {
            Tier::A => "A",
            Tier::B => "B",
        };
        let asked = self.protections.iter().filter(|protection| protection.status != Status::NotRequested);
        let (held, lacking): (Vec<_>, Vec<_>) =
            asked.partition(|protection| protection.status == Status::Enforced);
        let mut text = format!("tier {tier}, network {}, {} protections enforced", self.network, held.len());
        for protection in lacking {
            let _ = write!(text, ", {} {}", protection.name.as_str(), protection.status.as_str());
        }
        text
    }

    /// Everything, with the summary, for programs that want to know what they run in.
    pub fn to_json(&self) -> serde_json::Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        value["summary"] = self.summary().into();
        value
    }

    pub fn protection(&self, name: ProtectionName) -> Option<&Protection> {
        self.protections.iter().find(|protection| protection.name == name)
    }

    /// Calls what a canary has shown enforced.
    pub(crate) fn confirm(&mut self, shown: &[ProtectionName]) {
        for protection in &mut self.protections {
            if protection.status == Status::Configured && shown.contains(&protection.name) {
                protection.status = Status::Enforced;
                protection.verified = Verified::Canary;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_written_as_it_is_read() {
        assert_eq!(ProtectionName::ALL.len(), 29);
        for name in ProtectionName::ALL {
            assert_eq!(name.as_str().parse::<ProtectionName>().as_ref(), Ok(name));
            assert_eq!(serde_json::to_value(name).unwrap(), name.as_str());
        }
        assert!("sandboxed".parse::<ProtectionName>().unwrap_err().contains("fs_write_scope"));
    }
}
