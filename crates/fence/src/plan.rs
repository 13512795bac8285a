//! From a policy and a host to the list of what each layer does, or to a refusal that names what is missing
//! and what to do about it. Pure: nothing here touches the system.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::confinement::Confinement;
use crate::kernel::{Kernel, Namespaces};
use crate::paths::{DeniedKind, DeniedPath, VettedDirectory};
use crate::policy::{
    Allowance, Limit, LimitOrigin, Network, Policy, ReadMode, Temp, Tier, TierChoice, UnixSockets,
};
use crate::refusal::{Refusal, namespace_remedy};
use crate::{assessment, consistency, raw_path};

/// Where programs and libraries live; readable in every mode.
const SYSTEM_READABLE: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/opt",
    "/run/current-system",
];

/// What programs need of `/etc`: certificates, names, linking, languages; no secrets and no settings of others.
const ETC_READABLE: &[&str] = &[
    "alternatives",
    "ca-certificates",
    "gai.conf",
    "group",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki",
    "protocols",
    "resolv.conf",
    "services",
    "ssl",
    "terminfo",
    "timezone",
    "java-17-openjdk",
    "python3",
    "gitconfig",
    "npmrc",
];

/// What strict reading needs of the kernel's own file systems.
const KERNEL_READABLE: &[&str] = &["/proc", "/sys/devices/system/cpu", "/sys/fs/cgroup", "/sys/kernel/mm"];

/// Files and sockets of other programs: hidden in Tier B, not granted in Tier A.
pub(crate) const HIDDEN: &[&str] = &["/tmp", "/var/tmp", "/run", "/dev/shm", "/dev/mqueue"];

/// What is done for one policy on one host, by the parent and by the launcher.
#[derive(Clone, Debug)]
pub struct Plan {
    pub tier: Tier,
    /// What holds if every step succeeds.
    pub confinement: Confinement,
    pub(crate) steps: Steps,
    /// What is bounded by a control group.
    pub(crate) cgroup: CgroupPlan,
    /// A denied path that is there, to try.
    pub(crate) denied: Option<DeniedPath>,
}

/// What each layer does: the launcher's part, and all that it is told of the plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Steps {
    pub(crate) tier: Tier,
    pub(crate) landlock: LandlockPlan,
    pub(crate) seccomp: SeccompPlan,
    /// Tier B only.
    pub(crate) namespaces: Option<NamespacePlan>,
    pub(crate) limits: LimitPlan,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LandlockPlan {
    /// The version that the report speaks of; a kernel that has less is not the one that was planned for.
    pub(crate) version: u32,
    pub(crate) read_write: Vec<VettedDirectory>,
    /// Directories that must be the ones that were looked at too, and are only read.
    pub(crate) read_only: Vec<VettedDirectory>,
    pub(crate) read: ReadPlan,
    /// Readable whatever the rest says.
    #[serde(with = "raw_path::list")]
    pub(crate) also_readable: Vec<PathBuf>,
    pub(crate) pty: bool,
    /// `/dev/shm` and, in Tier B, the private temporary directories.
    #[serde(with = "raw_path::list")]
    pub(crate) writable_temp: Vec<PathBuf>,
    pub(crate) tcp_connect: Option<Vec<u16>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ReadPlan {
    /// All of the file system, but for these paths and what comes into their directories later.
    AllExcept {
        #[serde(with = "raw_path::list")]
        denied: Vec<PathBuf>,
        /// Directories can be listed everywhere, because masks hide what must not be seen.
        list_everywhere: bool,
    },
    Only(#[serde(with = "raw_path::list")] Vec<PathBuf>),
}

/// Which system calls are refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct SeccompPlan {
    pub(crate) tier: Tier,
    pub(crate) network: Network,
    pub(crate) unix_sockets: UnixSockets,
    pub(crate) debug: bool,
    pub(crate) nested_userns: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NamespacePlan {
    pub(crate) network: NetworkNamespace,
    /// Hidden behind empty directories.
    #[serde(with = "raw_path::list")]
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) denied: Vec<DeniedPath>,
    /// Read-only inside what is read-write.
    #[serde(with = "raw_path::list")]
    pub(crate) protected: Vec<PathBuf>,
    /// Readable though what they lie in is hidden.
    #[serde(with = "raw_path::list")]
    pub(crate) exposed: Vec<PathBuf>,
    /// The size of the private temporary directory.
    pub(crate) temp_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NetworkNamespace {
    /// The host's.
    Shared,
    /// Its own, with nothing in it.
    Empty,
    /// A loopback that nobody else is on, with these listeners on it.
    Loopback { proxy: bool, mirrored: Vec<u16> },
}

/// What the parent sets on a control group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CgroupPlan {
    pub(crate) memory: Option<u64>,
    pub(crate) processes: Option<u64>,
    pub(crate) cpus: Option<f64>,
}

/// What is set as resource limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitPlan {
    pub(crate) processes: Option<u64>,
    pub(crate) open_files: Option<u64>,
    pub(crate) file_size: Option<u64>,
}

/// Decides what each layer does, or refuses.
pub fn plan(policy: &Policy, kernel: &Kernel) -> Result<Plan, Refusal> {
    let tier = choose_tier(policy, kernel)?;
    consistency::check(policy, tier)?;
    let confinement = assessment::assess(policy, kernel, tier)?;
    let steps = Steps {
        tier,
        landlock: landlock_plan(policy, kernel, tier),
        seccomp: SeccompPlan {
            tier,
            network: policy.network.clone(),
            unix_sockets: policy.unix_sockets,
            debug: policy.allows(Allowance::Debugging),
            nested_userns: policy.allows(Allowance::NestedUserns),
        },
        namespaces: (tier == Tier::B).then(|| namespace_plan(policy)),
        limits: limit_plan(policy, kernel, tier),
    };
    Ok(Plan {
        tier,
        confinement,
        steps,
        cgroup: cgroup_plan(policy, kernel),
        denied: policy.deny_read.iter().find(|denied| denied.kind != DeniedKind::Missing).cloned(),
    })
}

fn limit_plan(policy: &Policy, kernel: &Kernel, tier: Tier) -> LimitPlan {
    let limits = &policy.limits;
    // A resource limit is for where no control group counts. Without a user namespace it counts everything
    // that this user runs, so a default would hit others' processes.
    let is_counted_here = |limit: &Limit<u64>| {
        !kernel.limits.processes && (tier == Tier::B || limit.origin == LimitOrigin::Asked)
    };
    LimitPlan {
        processes: limits.processes.filter(is_counted_here).map(|limit| limit.value),
        open_files: limits.open_files,
        file_size: limits.file_size,
    }
}

fn cgroup_plan(policy: &Policy, kernel: &Kernel) -> CgroupPlan {
    let (limits, support) = (&policy.limits, &kernel.limits);
    CgroupPlan {
        memory: limits.memory.filter(|_| support.memory).map(|limit| limit.value),
        processes: limits.processes.filter(|_| support.processes).map(|limit| limit.value),
        cpus: limits.cpus.filter(|_| support.cpu),
    }
}

fn choose_tier(policy: &Policy, kernel: &Kernel) -> Result<Tier, Refusal> {
    if !kernel.seccomp {
        return Err(Refusal::of(
            "seccomp",
            "this kernel has no seccomp filters",
            "use a kernel with CONFIG_SECCOMP_FILTER",
        ));
    }
    let tier = match (policy.tier, &kernel.namespaces) {
        (TierChoice::A, _) | (TierChoice::Auto, Namespaces::Missing { .. }) => Tier::A,
        (TierChoice::B | TierChoice::Auto, Namespaces::Available) => Tier::B,
        (TierChoice::B, Namespaces::Missing { step, reason }) => {
            return Err(Refusal::of("tier b", format!("{step}: {reason}"), namespace_remedy()));
        }
    };
    if tier == Tier::A && kernel.is_root && !policy.allows(Allowance::Root) {
        let reason = "without namespaces, root could change the modes of every file that root owns";
        let remedy =
            "run as a plain user, use --tier b where the host allows it, or accept it with --allow-root";
        return Err(Refusal::of("root", reason, remedy));
    }
    Ok(tier)
}

/// Where temporary files and shared memory objects may be made.
fn writable_temp(policy: &Policy, tier: Tier) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = match (&policy.temp, tier) {
        (Temp::Private { .. }, Tier::B) => return ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from).into(),
        (Temp::Private { directory, .. }, Tier::A) => vec![directory.clone()],
        (Temp::None, _) => Vec::new(),
    };
    if policy.allows(Allowance::SharedMemory) {
        paths.push("/dev/shm".into());
    }
    paths
}

fn landlock_plan(policy: &Policy, kernel: &Kernel, tier: Tier) -> LandlockPlan {
    let (read, also_readable) = read_plan(policy, tier);
    let (read_write, read_only) = if policy.read_only {
        (policy.read_write.clone(), policy.scope.clone())
    } else {
        ([policy.scope.clone(), policy.read_write.clone()].concat(), Vec::new())
    };
    LandlockPlan {
        version: kernel.landlock,
        read_write,
        read_only,
        read,
        also_readable,
        pty: policy.allows(Allowance::Terminals),
        writable_temp: writable_temp(policy, tier),
        tcp_connect: match &policy.network {
            Network::Ports { ports } => Some(ports.clone()),
            _ => None,
        },
    }
}

pub(crate) fn read_plan(policy: &Policy, tier: Tier) -> (ReadPlan, Vec<PathBuf>) {
    match &policy.read {
        ReadMode::Open { also } => {
            let hidden = hidden(policy).chain(["/dev".into()]);
            let denied = policy.deny_read.iter().map(|denied| denied.path.clone()).chain(hidden).collect();
            (ReadPlan::AllExcept { denied, list_everywhere: tier == Tier::B }, also.clone())
        }
        ReadMode::Strict { readable } => {
            let etc = ETC_READABLE.iter().map(|name| Path::new("/etc").join(name));
            let system = SYSTEM_READABLE.iter().chain(KERNEL_READABLE).map(PathBuf::from);
            (ReadPlan::Only(system.chain(etc).collect()), readable.clone())
        }
    }
}

fn hidden(policy: &Policy) -> impl Iterator<Item = PathBuf> {
    HIDDEN.iter().map(PathBuf::from).chain(policy.hidden.iter().cloned())
}

fn namespace_plan(policy: &Policy) -> NamespacePlan {
    let network = match &policy.network {
        Network::All | Network::Ports { .. } => NetworkNamespace::Shared,
        Network::None => NetworkNamespace::Empty,
        Network::Localhost { ports } => NetworkNamespace::Loopback { proxy: false, mirrored: ports.clone() },
        Network::Http { .. } => NetworkNamespace::Loopback { proxy: true, mirrored: Vec::new() },
    };
    let readable = match &policy.read {
        ReadMode::Open { also } => also,
        ReadMode::Strict { readable } => readable,
    };
    let is_hidden = |path: &Path| {
        hidden(policy).any(|hidden| path.starts_with(hidden))
            || policy.deny_read.iter().any(|denied| path.starts_with(&denied.path))
    };
    NamespacePlan {
        network,
        hidden: hidden(policy).collect(),
        denied: policy.deny_read.clone(),
        protected: policy.protected.clone(),
        exposed: readable.iter().filter(|path| is_hidden(path)).cloned().collect(),
        temp_bytes: match policy.temp {
            Temp::Private { bytes, .. } => Some(bytes),
            Temp::None => None,
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::confinement::{ProtectionName, Status};
    use crate::kernel::{CgroupVersion, LimitSupport};
    use crate::policy::Limits;

    fn vetted(path: &str) -> VettedDirectory {
        serde_json::from_value(serde_json::json!({"path": path, "device": 1, "inode": 2})).unwrap()
    }

    pub(crate) fn policy() -> Policy {
        Policy {
            scope: vec![vetted("/srv/project")],
            read_only: false,
            read_write: vec![vetted("/home/u/.cache/ringfence/sessions/1/home")],
            read: ReadMode::Open { also: Vec::new() },
            deny_read: vec![DeniedPath { path: "/home/u/.ssh".into(), kind: DeniedKind::Directory }],
            hidden: vec!["/home/u/.cache/ringfence".into()],
            protected: Vec::new(),
            temp: Temp::Private {
                directory: "/home/u/.cache/ringfence/sessions/1/temp".into(),
                bytes: 1 << 20,
            },
            network: Network::All,
            unix_sockets: UnixSockets::Deny,
            allowances: std::collections::BTreeSet::new(),
            limits: Limits::default(),
            tier: TierChoice::Auto,
            allow_degraded: std::collections::BTreeSet::new(),
            require: std::collections::BTreeSet::new(),
            shared_hardlinks: None,
        }
    }

    fn kernel(landlock: u32, has_namespaces: bool) -> Kernel {
        let missing = || Namespaces::Missing { step: "unshare".to_owned(), reason: "refused".to_owned() };
        Kernel {
            landlock,
            seccomp: true,
            namespaces: if has_namespaces { Namespaces::Available } else { missing() },
            limits: LimitSupport::default(),
            is_root: false,
        }
    }

    pub(crate) fn tier_b() -> Plan {
        plan(&policy(), &kernel(7, true)).unwrap()
    }

    fn missing(policy: &Policy, kernel: &Kernel) -> Vec<String> {
        plan(policy, kernel).unwrap_err().missing.into_iter().map(|missing| missing.what).collect()
    }

    #[test]
    fn the_best_tier_is_taken() {
        assert_eq!(plan(&policy(), &kernel(7, true)).unwrap().tier, Tier::B);
        let without = plan(&policy(), &kernel(7, false)).unwrap();
        assert_eq!(without.tier, Tier::A);
        assert!(without.steps.namespaces.is_none());
        let visibility = without.confinement.protection(ProtectionName::ProcVisibility).unwrap();
        assert_eq!(visibility.status, Status::Unenforced);
    }

    #[test]
    fn old_kernels_are_refused_where_the_scope_would_not_hold() {
        // Debian 12 and Ubuntu 22.04 without namespaces.
        for landlock in 0..3 {
            assert!(missing(&policy(), &kernel(landlock, false)).contains(&"fs_write_scope".to_owned()));
            assert!(plan(&policy(), &kernel(landlock, true)).is_ok() || landlock == 0);
        }
        // Ubuntu 24.04: the scope holds, signals do not, and the user must say so.
        let ubuntu = kernel(4, false);
        assert_eq!(missing(&policy(), &ubuntu), ["signals", "tree_kill"]);
        let accepted =
            Policy { allow_degraded: [ProtectionName::Signals, ProtectionName::TreeKill].into(), ..policy() };
        let planned = plan(&accepted, &ubuntu).unwrap();
        assert_eq!(
            planned.confinement.protection(ProtectionName::Signals).unwrap().status,
            Status::Unenforced
        );
    }

    #[test]
    fn what_needs_a_network_namespace_is_refused_without() {
        for network in [Network::Localhost { ports: vec![80] }, Network::Http { hosts: None }] {
            let policy = Policy { network, ..policy() };
            assert_eq!(missing(&policy, &kernel(9, false)), ["tcp"]);
            assert!(plan(&policy, &kernel(9, true)).is_ok());
        }
        let ports = Policy { network: Network::Ports { ports: vec![443] }, ..policy() };
        assert!(plan(&ports, &kernel(7, false)).is_ok());
        let old =
            Policy { allow_degraded: [ProtectionName::Signals, ProtectionName::TreeKill].into(), ..ports };
        assert_eq!(missing(&old, &kernel(3, false)), ["tcp"]);
    }

    #[test]
    fn root_needs_namespaces_or_its_own_word() {
        let root = Kernel { is_root: true, ..kernel(7, false) };
        assert_eq!(missing(&policy(), &root), ["root"]);
        assert!(plan(&Policy { allowances: [Allowance::Root].into(), ..policy() }, &root).is_ok());
        assert!(plan(&policy(), &Kernel { is_root: true, ..kernel(7, true) }).is_ok());
    }

    #[test]
    fn a_scope_that_is_only_read_is_not_among_what_may_be_written() {
        let read_only = Policy { read_only: true, ..policy() };
        for has_namespaces in [true, false] {
            let plan = plan(&read_only, &kernel(7, has_namespaces)).unwrap();
            assert_eq!(plan.steps.landlock.read_only, policy().scope);
            assert_eq!(plan.steps.landlock.read_write, policy().read_write);
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let deny = |path: &str| vec![DeniedPath { path: path.into(), kind: DeniedKind::Directory }];
        let around = Policy { deny_read: deny("/srv"), ..policy() };
        assert_eq!(missing(&around, &kernel(7, true)), ["deny_read"]);
        let inside = Policy { deny_read: deny("/srv/project/secrets"), ..policy() };
        assert_eq!(missing(&inside, &kernel(7, false)), ["deny_read"]);
        assert!(plan(&inside, &kernel(7, true)).is_ok(), "a mask can hide a part of the scope");
        let in_readable = Policy {
            read: ReadMode::Strict { readable: vec!["/home/u".into()] },
            tier: TierChoice::A,
            ..policy()
        };
        assert_eq!(missing(&in_readable, &kernel(7, true)), ["deny_read"]);
        let protected = Policy { protected: vec!["/srv/project/.git/hooks".into()], ..policy() };
        assert_eq!(missing(&protected, &kernel(7, false)), ["protected paths"]);
        assert_eq!(missing(&Policy { scope: Vec::new(), ..policy() }, &kernel(7, true)), ["scope"]);
    }

    #[test]
    fn a_limit_that_was_asked_for_is_not_optional() {
        let limit = |origin| Limits { memory: Some(Limit { value: 1 << 30, origin }), ..Limits::default() };
        let asked = Policy { limits: limit(LimitOrigin::Asked), ..policy() };
        assert_eq!(missing(&asked, &kernel(7, true)), ["memory_limit"]);
        let default = Policy { limits: limit(LimitOrigin::Default), ..policy() };
        assert!(plan(&default, &kernel(7, true)).is_ok());
        let required = Policy { require: [ProtectionName::MemoryLimit].into(), ..default };
        assert_eq!(missing(&required, &kernel(7, true)), ["memory_limit"]);
        let grouped =
            LimitSupport { version: Some(CgroupVersion::V2), memory: true, processes: true, cpu: false };
        let host = Kernel { limits: grouped, ..kernel(7, true) };
        assert_eq!(plan(&asked, &host).unwrap().cgroup.memory, Some(1 << 30));
        let cpus = Policy { limits: Limits { cpus: Some(1.0), ..Limits::default() }, ..policy() };
        assert_eq!(missing(&cpus, &host), ["cpu limit"]);
    }

    #[test]
    fn one_directory_of_a_hidden_one_can_be_shown() {
        let package = PathBuf::from("/home/u/.cache/ringfence/packages/x/1/tree");
        let readable = vec![package.clone()];
        for read in [ReadMode::Open { also: readable.clone() }, ReadMode::Strict { readable }] {
            let shown = Policy { read, ..policy() };
            for has_namespaces in [false, true] {
                let planned = plan(&shown, &kernel(7, has_namespaces)).unwrap();
                assert_eq!(planned.steps.landlock.also_readable, std::slice::from_ref(&package));
                if let ReadPlan::AllExcept { denied, .. } = &planned.steps.landlock.read {
                    assert!(denied.contains(&shown.hidden[0]));
                }
                if let Some(namespaces) = &planned.steps.namespaces {
                    assert_eq!(namespaces.exposed, std::slice::from_ref(&package));
                    assert!(namespaces.hidden.contains(&shown.hidden[0]));
                }
            }
        }
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let refusal = plan(&policy(), &kernel(4, false)).unwrap_err();
        assert!(refusal.hint().contains("--allow-degraded signals"), "{}", refusal.hint());
        assert!(!refusal.hint().contains("sysctl"));
    }

    #[test]
    fn unix_sockets_are_open_only_where_something_else_holds() {
        let open = Policy { unix_sockets: UnixSockets::Allow, ..policy() };
        assert_eq!(missing(&open, &kernel(7, true)), ["unix_pathname"]);
        assert!(plan(&open, &kernel(9, true)).is_ok());
        assert!(plan(&Policy { network: Network::None, ..open }, &kernel(7, true)).is_ok());
    }
}
