//! How well each protection can be had for one policy on one host, and whether that is enough. Nothing is tried here, so
//! the most that is said of one is that it is configured.

use crate::confinement::{Confinement, Protection, ProtectionName, Status, Verified};
use crate::kernel::Kernel;
use crate::network::network_sentence;
use crate::plan::is_visible;
use crate::policy::{
    Allowance, HardlinkCount, Limit, LimitOrigin, MetadataChoice, Network, Policy, ReadMode, Temp, Tier,
    UnixSockets,
};
use crate::refusal::{Refusal, UnmetRequirement, cgroup_remedy, namespace_remedy};

/// How much a policy wants a protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// Without it nothing runs.
    Strict,
    /// Without it the report says so.
    Preferred,
    No,
}

struct Assessed {
    request: Request,
    status: Status,
    mechanism: String,
    note: Option<String>,
    remedy: String,
}

impl Assessed {
    fn new(request: Request, status: Status, mechanism: impl Into<String>) -> Self {
        Self { request, status, mechanism: mechanism.into(), note: None, remedy: String::new() }
    }

    fn configured(mechanism: impl Into<String>) -> Self {
        Self::new(Request::Strict, Status::Configured, mechanism)
    }

    fn partial(mechanism: impl Into<String>, note: impl Into<String>) -> Self {
        Self::new(Request::Strict, Status::Partial, mechanism).note(note)
    }

    fn unenforced(note: impl Into<String>) -> Self {
        Self::new(Request::Strict, Status::Unenforced, "none").note(note)
    }

    fn not_requested(note: impl Into<String>) -> Self {
        Self::new(Request::No, Status::NotRequested, "none").note(note)
    }

    fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    fn preferred(mut self) -> Self {
        if self.request == Request::Strict {
            self.request = Request::Preferred;
        }
        self
    }
}

/// Reports how each protection is enforced, or refuses if a required one is not.
pub(crate) fn assess(policy: &Policy, kernel: &Kernel, tier: Tier) -> Result<Confinement, Refusal> {
    let host = Host { policy, kernel, tier };
    let mut unmet = Vec::new();
    let mut protections = Vec::new();
    for &name in ProtectionName::ALL {
        let assessed = host.assess(name);
        let is_short = matches!(assessed.status, Status::Partial | Status::Unenforced);
        let is_strict = assessed.request == Request::Strict || policy.require.contains(&name);
        if is_short && is_strict && !policy.allow_degraded.contains(&name) {
            unmet.push(unmet_protection(name, &assessed));
        }
        protections.push(Protection {
            name,
            status: assessed.status,
            mechanism: assessed.mechanism,
            verified: Verified::Config,
            note: assessed.note,
        });
    }
    if policy.limits.cpus.is_some() && !kernel.limits.cpu {
        unmet.push(UnmetRequirement {
            what: "cpu limit".to_owned(),
            reason: "no control group with the cpu controller can be had".to_owned(),
            remedy: format!("{}, or drop --cpus", cgroup_remedy()),
        });
    }
    if unmet.is_empty() {
        Ok(Confinement { tier, network: network_sentence(&policy.network), protections })
    } else {
        Err(Refusal { unmet })
    }
}

fn unmet_protection(name: ProtectionName, assessed: &Assessed) -> UnmetRequirement {
    let reason = assessed.note.clone().unwrap_or_else(|| "cannot be enforced on this host".to_owned());
    let accept = format!("or run without it: --allow-degraded {name}");
    let remedy = if assessed.remedy.is_empty() { accept } else { format!("{}, {accept}", assessed.remedy) };
    UnmetRequirement { what: name.to_string(), reason, remedy }
}

struct Host<'a> {
    policy: &'a Policy,
    kernel: &'a Kernel,
    tier: Tier,
}

impl Host<'_> {
    fn assess(&self, name: ProtectionName) -> Assessed {
        use ProtectionName as Name;
        match name {
            Name::FsWriteScope => self.write_scope(),
            Name::FsReadScope => self.read_scope(),
            Name::DenyRead => self.deny_read(),
            Name::FsMetadataWrites => self.with_tier_b(
                "mount_ns",
                "modes, owners and times of files that this user owns can be changed outside the scope",
            ),
            Name::FsMetadataReads => self.metadata_reads(),
            Name::Tcp => self.tcp(),
            Name::Udp => self.udp(),
            Name::UnixPathname => self.unix_pathname(),
            Name::UnixAbstract => self.unix_abstract(),
            Name::OtherFamilies | Name::IoUring => Assessed::configured("seccomp"),
            Name::Signals => self.signals(),
            Name::Ptrace => self.ptrace(),
            Name::ProcVisibility => {
                self.with_tier_b("pid_ns", "command lines of other processes can be seen")
            }
            Name::SchedControl => Assessed::configured(self.by_tier("seccomp", "pid_ns")),
            Name::SysvIpc => Assessed::configured(self.by_tier("seccomp", "ipc_ns")),
            Name::Keyring => Assessed::configured("seccomp + new keyring"),
            Name::NestedUserns => self.nested_userns(),
            Name::DeviceIoctl => self.device_ioctl(),
            Name::NoNewPrivs => Assessed::configured("prctl"),
            Name::Capabilities => Assessed::configured("capset"),
            Name::InheritedFds => Assessed::configured("close_range"),
            Name::Environment => Assessed::configured("allow-list"),
            Name::TempIsolation => self.temp(),
            Name::MemoryLimit => self.memory_limit(),
            Name::PidLimit => self.pid_limit(),
            Name::TreeKill => self.tree_kill(),
            Name::ScopeMetadata => self.scope_metadata(),
            Name::Hardlinks => self.hardlinks(),
        }
    }

    fn by_tier(&self, a: &'static str, b: &'static str) -> &'static str {
        if self.tier == Tier::B { b } else { a }
    }

    fn landlock(&self) -> String {
        format!("landlock:{}", self.kernel.landlock)
    }

    /// What only namespaces give; wanted, but its absence alone does not keep a command from running.
    fn with_tier_b(&self, mechanism: &str, residual: &str) -> Assessed {
        if self.tier == Tier::B {
            Assessed::configured(mechanism).preferred()
        } else {
            Assessed::unenforced(residual).remedy(namespace_remedy()).preferred()
        }
    }

    fn metadata_reads(&self) -> Assessed {
        if self.tier == Tier::B && self.denies_in_scope() {
            return Assessed::partial("own root", "denied files inside the scope can be seen, not read")
                .preferred();
        }
        self.with_tier_b("own root", "names, sizes and times of denied files can be seen, their content not")
    }

    fn write_scope(&self) -> Assessed {
        match (self.tier, self.kernel.landlock) {
            (Tier::B, 0) => Assessed::configured("mount_ns"),
            (Tier::B, _) => Assessed::configured(format!("mount_ns + {}", self.landlock())),
            (Tier::A, 3..) => Assessed::configured(self.landlock()),
            (Tier::A, 1..3) => Assessed::partial(
                self.landlock(),
                "this kernel's Landlock (before 6.2) does not stop truncation of files outside",
            )
            .remedy(namespace_remedy()),
            (Tier::A, 0) => Assessed::unenforced("this kernel has no Landlock")
                .remedy("use Linux 6.2 or later with Landlock on"),
        }
    }

    fn read_scope(&self) -> Assessed {
        match self.policy.read {
            ReadMode::Open { .. } => {
                Assessed::not_requested("read mode open: all but the deny list can be read")
            }
            ReadMode::Strict { .. } if self.tier == Tier::B => Assessed::configured("own root"),
            ReadMode::Strict { .. } if self.kernel.landlock > 0 => Assessed::configured(self.landlock()),
            ReadMode::Strict { .. } => Assessed::unenforced("this kernel has no Landlock"),
        }
    }

    fn deny_read(&self) -> Assessed {
        if self.policy.deny_read.is_empty() {
            return Assessed::not_requested("the deny list is empty");
        }
        match (self.tier, self.kernel.landlock) {
            (Tier::A, 0) => Assessed::unenforced("this kernel has no Landlock"),
            (Tier::A, _) => Assessed::configured("expansion")
                .note("directories above denied paths cannot be listed; files that appear in them later cannot be read"),
            (Tier::B, _) if self.denies_in_scope() => Assessed::partial(
                "own root + masks",
                "denied files inside the scope can be read once a program outside replaces them",
            ),
            (Tier::B, _) => Assessed::configured("own root"),
        }
    }

    fn denies_in_scope(&self) -> bool {
        self.policy.deny_read.iter().any(|denied| is_visible(self.policy, &denied.path))
    }

    fn tcp(&self) -> Assessed {
        match &self.policy.network {
            Network::All => Assessed::not_requested("not restricted"),
            Network::Ports { .. } if self.kernel.landlock >= 4 => {
                Assessed::configured(format!("{} + seccomp", self.landlock()))
                    .note("by port alone, whatever the address")
            }
            Network::Ports { .. } => Assessed::unenforced("needs Landlock of Linux 6.7 or later"),
            _ => Assessed::configured(self.by_tier("seccomp", "net_ns + seccomp")),
        }
    }

    fn udp(&self) -> Assessed {
        match &self.policy.network {
            Network::All => Assessed::not_requested("not restricted"),
            Network::Ports { .. } => Assessed::configured("seccomp"),
            _ => Assessed::configured(self.by_tier("seccomp", "net_ns + seccomp")),
        }
    }

    fn has_network_namespace(&self) -> bool {
        self.tier == Tier::B && !matches!(self.policy.network, Network::All | Network::Ports { .. })
    }

    fn unix_pathname(&self) -> Assessed {
        match self.policy.unix_sockets {
            UnixSockets::Deny => Assessed::configured("seccomp"),
            UnixSockets::Allow if self.kernel.landlock >= 9 => Assessed::configured(self.landlock()),
            UnixSockets::Allow if self.has_network_namespace() => {
                Assessed::partial("own root", "sockets in what can be read or written can be reached by path")
                    .preferred()
            }
            UnixSockets::Allow => Assessed::unenforced("sockets of other programs can be reached by path")
                .remedy(
                    "drop --unix-sockets, or use it in Tier B with a network mode other than all and ports",
                ),
        }
    }

    fn unix_abstract(&self) -> Assessed {
        match self.policy.unix_sockets {
            UnixSockets::Deny => Assessed::configured("seccomp"),
            UnixSockets::Allow if self.has_network_namespace() => Assessed::configured("net_ns"),
            UnixSockets::Allow if self.kernel.landlock >= 6 => Assessed::configured(self.landlock()),
            UnixSockets::Allow => {
                Assessed::unenforced("needs Landlock of Linux 6.12 or later").remedy("drop --unix-sockets")
            }
        }
    }

    fn signals(&self) -> Assessed {
        match (self.tier, self.kernel.landlock) {
            (Tier::B, _) => Assessed::configured("pid_ns"),
            (Tier::A, 6..) => Assessed::configured(self.landlock()),
            (Tier::A, _) => {
                Assessed::unenforced("processes of this user can be signalled; needs Linux 6.12 or later")
                    .remedy(namespace_remedy())
            }
        }
    }

    fn ptrace(&self) -> Assessed {
        let others = self.by_tier("landlock", "landlock + pid_ns");
        match (self.policy.allows(Allowance::Debugging), self.kernel.landlock) {
            (false, 0) if self.tier == Tier::A => Assessed::partial(
                "seccomp",
                "memory of this user's processes can be opened in /proc; this kernel has no Landlock",
            )
            .preferred(),
            (false, 0) => Assessed::configured("seccomp + pid_ns"),
            (false, _) => Assessed::configured(format!("seccomp + {others}")),
            (true, 1..) => Assessed::configured(others).note("debugging inside the fence is allowed"),
            (true, 0) if self.tier == Tier::B => {
                Assessed::configured("pid_ns").note("debugging inside the fence is allowed")
            }
            (true, 0) => {
                Assessed::unenforced("processes of this user can be debugged; this kernel has no Landlock")
                    .remedy(namespace_remedy())
            }
        }
    }

    fn nested_userns(&self) -> Assessed {
        if self.policy.allows(Allowance::NestedUserns) {
            Assessed::not_requested("allowed for programs that bring their own sandbox")
        } else {
            Assessed::configured("seccomp")
        }
    }

    fn device_ioctl(&self) -> Assessed {
        if self.kernel.landlock >= 5 {
            Assessed::configured(self.landlock())
        } else {
            Assessed::partial(
                "narrow /dev",
                "devices that can be opened can be controlled; needs Linux 6.10 or later",
            )
            .preferred()
        }
    }

    fn temp(&self) -> Assessed {
        match (&self.policy.temp, self.tier) {
            (_, Tier::A) if self.kernel.landlock == 0 => {
                Assessed::unenforced("temporary files of other programs can be read and written")
                    .remedy(namespace_remedy())
            }
            (Temp::None, Tier::A) => Assessed::configured(self.landlock()).note("no temporary files at all"),
            (Temp::None, Tier::B) => Assessed::configured("own root").note("no temporary files at all"),
            (Temp::Private { .. }, Tier::B) => Assessed::configured("private tmpfs"),
            (Temp::Private { .. }, Tier::A) => {
                Assessed::configured(format!("{}, session directory", self.landlock()))
                    .note("its size is not bounded")
            }
        }
    }

    fn memory_limit(&self) -> Assessed {
        let assessed = match self.kernel.limits.version {
            Some(version) if self.kernel.limits.memory => Assessed::configured(version.mechanism()),
            _ => Assessed::unenforced("no control group with the memory controller can be had")
                .remedy(cgroup_remedy()),
        };
        limit(self.policy.limits.memory, assessed)
    }

    fn pid_limit(&self) -> Assessed {
        let assessed = match self.kernel.limits.version {
            Some(version) if self.kernel.limits.processes => Assessed::configured(version.mechanism()),
            _ if self.tier == Tier::B && !self.kernel.is_root => Assessed::configured("rlimit in user_ns"),
            _ if self.kernel.is_root => {
                Assessed::unenforced("no control group can be had, and other limits do not bind root")
                    .remedy(cgroup_remedy())
            }
            // A default would hit the user's other processes, so it is not set.
            _ if self.policy.limits.processes.is_some_and(|limit| limit.origin == LimitOrigin::Default) => {
                Assessed::unenforced(
                    "no control group can be had, and another limit would count all processes of this user",
                )
                .remedy(cgroup_remedy())
            }
            _ => Assessed::partial("rlimit", "counts all processes of this user").remedy(cgroup_remedy()),
        };
        limit(self.policy.limits.processes, assessed)
    }

    fn tree_kill(&self) -> Assessed {
        match (self.tier, self.kernel.landlock) {
            (Tier::B, _) => Assessed::configured("pid_ns").note("shows when the command ends"),
            (Tier::A, 6..) => Assessed::configured("supervisor").note("shows when the command ends"),
            (Tier::A, _) => Assessed::partial(
                "supervisor",
                "the command can kill its supervisor; needs Linux 6.12 or later",
            )
            .remedy(namespace_remedy()),
        }
    }

    fn scope_metadata(&self) -> Assessed {
        match (&self.policy.metadata, self.tier) {
            _ if self.policy.read_only && (self.tier == Tier::B || self.kernel.landlock > 0) => {
                Assessed::configured("read-only scope")
            }
            _ if self.policy.read_only => Assessed::unenforced("this kernel has no Landlock").preferred(),
            (MetadataChoice::Writable, _) => {
                Assessed::not_requested("git hooks, editor tasks and agents' settings can be changed")
            }
            (MetadataChoice::Kept { except }, Tier::B) if except.is_empty() => {
                Assessed::configured("read-only mounts").preferred()
            }
            (MetadataChoice::Kept { except }, Tier::B) => {
                let names: Vec<&str> = except.iter().map(String::as_str).collect();
                Assessed::partial("read-only mounts", format!("{} can be changed", names.join(", ")))
                    .preferred()
            }
            (MetadataChoice::Kept { .. }, Tier::A) => Assessed::unenforced(
                "git hooks, editor tasks and agents' settings can be changed without a mount namespace",
            )
            .remedy(namespace_remedy())
            .preferred(),
        }
    }

    fn hardlinks(&self) -> Assessed {
        let residual = "a file with another name outside the scope can be changed through its name inside";
        match self.policy.shared_hardlinks {
            None => Assessed::unenforced(format!("looked for when a command runs; {residual}")).preferred(),
            Some(HardlinkCount { shared: 0, is_partial: false }) => {
                Assessed::configured("scan").note("none when it was looked")
            }
            Some(HardlinkCount { shared: 0, is_partial: true }) => {
                Assessed::partial("scan", "none found, but the scope was too large to see all of it")
                    .preferred()
            }
            Some(HardlinkCount { shared, .. }) if !self.policy.protected.is_empty() => Assessed::partial(
                "read-only mount",
                format!("{shared} files shared outside the scope are read-only"),
            )
            .preferred(),
            Some(HardlinkCount { shared, .. }) => {
                Assessed::partial("scan", format!("{shared} files shared outside the scope: {residual}"))
                    .preferred()
            }
        }
    }
}

fn limit(limit: Option<Limit<u64>>, assessed: Assessed) -> Assessed {
    match limit.map(|limit| limit.origin) {
        None => Assessed::not_requested("no limit was asked for"),
        Some(LimitOrigin::Asked) => assessed,
        Some(LimitOrigin::Default) => assessed.preferred(),
    }
}
