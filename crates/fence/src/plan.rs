//! Plans what each layer does for a policy on a host, or refuses and names what is missing and what to do about it.
//! Pure: nothing here touches the system.

mod system_paths;
#[cfg(test)]
pub(crate) mod tests;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use self::system_paths::{ETC_READABLE, KERNEL_READABLE, SYSTEM_READABLE};
use crate::confinement::Confinement;
use crate::kernel::{Kernel, Namespaces};
use crate::paths::{DeniedKind, DeniedPath, VettedDirectory};
use crate::policy::{
    Allowance, GitDirectory, Limit, LimitOrigin, Mirror, Network, Policy, ReadMode, Temp, Tier, TierChoice,
    UnixSockets,
};
use crate::refusal::{Refusal, namespace_remedy};
use crate::staged::{StagedPlace, StagedScope};
use crate::{assessment, consistency, raw_path};

/// Directories with files and sockets of other programs: absent in Tier B, not granted in Tier A.
pub(crate) const HIDDEN: &[&str] = &["/tmp", "/var/tmp", "/run", "/dev/shm", "/dev/mqueue"];

/// What the parent and the launcher do for one policy on one host.
#[derive(Clone, Debug)]
pub struct Plan {
    pub tier: Tier,
    /// What is configured if every step succeeds. A launch adds what was tried.
    pub confinement: Confinement,
    pub(crate) steps: Steps,
    /// The limits that a control group enforces.
    pub(crate) cgroup: CgroupPlan,
    /// The denied paths that exist, for the canaries.
    pub(crate) denied: Vec<PathBuf>,
    /// What stands at the place of the scope.
    pub(crate) staged: Option<StagedScope>,
}

/// What each layer does: the part of the plan that the launcher gets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Steps {
    pub(crate) tier: Tier,
    pub(crate) landlock: LandlockPlan,
    pub(crate) seccomp: SeccompPlan,
    /// Tier B only.
    pub(crate) namespaces: Option<NamespacePlan>,
    pub(crate) limits: LimitPlan,
    /// The user to become.
    pub(crate) user: Option<u32>,
}

impl Steps {
    /// The paths inside read-write directories that must stay as they are.
    #[cfg(target_os = "linux")]
    pub(crate) fn kept(&self) -> &[PathBuf] {
        self.namespaces.as_ref().map_or(&[], |plan| &plan.protected)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LandlockPlan {
    /// The version that the report relies on. The launcher refuses a kernel that has less.
    pub(crate) version: u32,
    pub(crate) read_write: Vec<VettedDirectory>,
    /// Vetted directories that can only be read.
    pub(crate) read_only: Vec<VettedDirectory>,
    pub(crate) read: ReadPlan,
    /// Trees whose names can be listed, while nothing in them can be read but what other fields allow.
    pub(crate) listed: Vec<ListedTree>,
    /// Readable in addition to `read`.
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
    /// Everything: the root shows nothing else. Contents of listed trees are left out.
    OwnRoot,
    /// All of the file system except these paths, and except files that appear beside them later.
    AllExcept(#[serde(with = "raw_path::list")] Vec<PathBuf>),
    Only(#[serde(with = "raw_path::list")] Vec<PathBuf>),
}

/// The tree around a folder of a repository.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ListedTree {
    #[serde(with = "raw_path")]
    pub(crate) top: PathBuf,
    /// Plain files in it that can be read. No link is followed on the way.
    #[serde(with = "raw_path::list")]
    pub(crate) readable: Vec<PathBuf>,
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

/// The namespaces, and the root that the command has in them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NamespacePlan {
    pub(crate) network: NetworkNamespace,
    /// Paths of the host that the root shows read-only, without what is denied below them.
    #[serde(with = "raw_path::list")]
    pub(crate) shown: Vec<PathBuf>,
    pub(crate) denied: Vec<DeniedPath>,
    /// Not shown with a directory above them, like denied paths, but for what is listed below them.
    #[serde(with = "raw_path::list")]
    pub(crate) absent: Vec<PathBuf>,
    /// Denied paths inside the scope, which can only be covered.
    pub(crate) masked: Vec<DeniedPath>,
    /// Read-only paths inside read-write directories.
    #[serde(with = "raw_path::list")]
    pub(crate) protected: Vec<PathBuf>,
    /// Directories inside read-write directories that can neither be renamed nor removed.
    #[serde(with = "raw_path::list")]
    pub(crate) pinned: Vec<PathBuf>,
    /// Read-write directories that appear at other paths too.
    pub(crate) mirrored: Vec<Mirror>,
    /// What stands at the places of directories of the scope.
    pub(crate) staged: Vec<StagedPlace>,
    /// The size of the private temporary directories.
    pub(crate) temp_bytes: Option<u64>,
    /// Terminals of its own.
    pub(crate) terminals: bool,
    /// Processes inside can write their files in `/proc`.
    pub(crate) writable_proc: bool,
    /// All of `/sys`, and not only the parts that the root shows.
    pub(crate) whole_sys: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NetworkNamespace {
    /// The network of the host.
    Shared,
    /// A private one without interfaces.
    Empty,
    /// A private loopback with these listeners on it.
    Loopback { proxy: bool, mirrored: Vec<u16> },
}

/// The limits that the parent sets on a control group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CgroupPlan {
    pub(crate) memory: Option<u64>,
    pub(crate) processes: Option<u64>,
    pub(crate) cpus: Option<f64>,
}

/// The resource limits (`setrlimit`) to set.
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
        namespaces: (tier == Tier::B).then(|| namespace_plan(policy, kernel)),
        limits: limit_plan(policy, kernel, tier),
        user: policy.user,
    };
    Ok(Plan {
        tier,
        confinement,
        steps,
        cgroup: cgroup_plan(policy, kernel),
        denied: existing(&policy.deny_read),
        staged: policy.staged.clone(),
    })
}

fn existing(denied: &[DeniedPath]) -> Vec<PathBuf> {
    let exists = |denied: &&DeniedPath| denied.kind != DeniedKind::Missing;
    denied.iter().filter(exists).map(|denied| denied.path.clone()).collect()
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
    if policy.user.is_some() && (tier == Tier::A || !kernel.is_root) {
        let reason = "only root can run a command as another user, and only in a root of its own";
        return Err(Refusal::of("user", reason, "run ringfence as root, on a host that allows --tier b"));
    }
    Ok(tier)
}

/// Where temporary files and shared memory objects may be made.
pub(crate) fn writable_temp(policy: &Policy, tier: Tier) -> Vec<PathBuf> {
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
    let listed = listed(policy, kernel);
    let (read, also_readable) = match tier {
        Tier::A => read_plan(policy),
        // The rest is readable with the root.
        Tier::B => (ReadPlan::OwnRoot, readable_in(policy, &listed)),
    };
    let git = in_their_places(policy, git_directories(policy, kernel));
    let scope = in_their_places(policy, policy.scope.clone());
    let (mut read_write, read_only) = match tier {
        _ if policy.read_only => (policy.read_write.clone(), [scope, git].concat()),
        Tier::A => ([scope, policy.read_write.clone()].concat(), git),
        Tier::B => ([scope, policy.read_write.clone(), git].concat(), Vec::new()),
    };
    // A rule for a directory above does not count where a mirror is mounted elsewhere.
    read_write.extend(policy.mirrored.iter().map(|mirror| mirror.source.clone()));
    LandlockPlan {
        version: kernel.landlock,
        read_write,
        read_only,
        read,
        listed,
        also_readable,
        pty: policy.allows(Allowance::Terminals),
        writable_temp: writable_temp(policy, tier),
        tcp_connect: match &policy.network {
            Network::Ports { ports } => Some(ports.clone()),
            _ => None,
        },
    }
}

/// What the command finds at the places of these directories.
fn in_their_places(policy: &Policy, directories: Vec<VettedDirectory>) -> Vec<VettedDirectory> {
    match &policy.staged {
        Some(staged) => directories.iter().map(|directory| staged.in_place_of(directory)).collect(),
        None => directories,
    }
}

/// The git directories that are taken in. Only mounts can keep the hooks and the configuration in one, so it can only be
/// read in Tier A.
fn git_directories(policy: &Policy, kernel: &Kernel) -> Vec<VettedDirectory> {
    // Without Landlock a tree around the scope could be read.
    let is_possible = |git: &&GitDirectory| git.around.is_none() || kernel.landlock > 0;
    policy.git.iter().filter(is_possible).map(|git| git.directory.clone()).collect()
}

/// The trees around the scope, unless their contents are readable anyway.
fn listed(policy: &Policy, kernel: &Kernel) -> Vec<ListedTree> {
    if matches!(policy.read, ReadMode::Open { .. }) || kernel.landlock == 0 {
        return Vec::new();
    }
    let around = policy.git.iter().filter_map(|git| git.around.as_ref());
    around
        .filter(|around| !system_paths().any(|system| around.top.starts_with(system)))
        .map(|around| ListedTree { top: around.top.clone(), readable: around.readable.clone() })
        .collect()
}

/// What the policy makes readable inside listed trees.
fn readable_in(policy: &Policy, listed: &[ListedTree]) -> Vec<PathBuf> {
    let (ReadMode::Open { also: readable } | ReadMode::Strict { readable }) = &policy.read;
    let is_inside = |path: &&PathBuf| listed.iter().any(|tree| path.starts_with(&tree.top));
    readable.iter().filter(is_inside).cloned().collect()
}

/// What Landlock lets a command of Tier A read.
pub(crate) fn read_plan(policy: &Policy) -> (ReadPlan, Vec<PathBuf>) {
    match &policy.read {
        ReadMode::Open { also } => {
            let hidden = hidden(policy).chain(["/dev".into()]);
            let denied = policy.deny_read.iter().map(|denied| denied.path.clone()).chain(hidden).collect();
            (ReadPlan::AllExcept(denied), also.clone())
        }
        ReadMode::Strict { readable } => {
            let proc = PathBuf::from("/proc");
            (ReadPlan::Only(system_paths().chain([proc]).collect()), readable.clone())
        }
    }
}

/// What every program may need to read.
fn system_paths() -> impl Iterator<Item = PathBuf> {
    let etc = ETC_READABLE.iter().map(|name| Path::new("/etc").join(name));
    SYSTEM_READABLE.iter().chain(KERNEL_READABLE).map(PathBuf::from).chain(etc)
}

fn hidden(policy: &Policy) -> impl Iterator<Item = PathBuf> {
    HIDDEN.iter().map(PathBuf::from).chain(policy.hidden.iter().cloned())
}

fn namespace_plan(policy: &Policy, kernel: &Kernel) -> NamespacePlan {
    let network = match &policy.network {
        Network::All | Network::Ports { .. } => NetworkNamespace::Shared,
        Network::None => NetworkNamespace::Empty,
        Network::Localhost { ports } => NetworkNamespace::Loopback { proxy: false, mirrored: ports.clone() },
        Network::Http { .. } => NetworkNamespace::Loopback { proxy: true, mirrored: Vec::new() },
    };
    let (shown, absent) = match &policy.read {
        ReadMode::Strict { readable } => {
            let around = listed(policy, kernel).into_iter().map(|tree| tree.top);
            let shown = system_paths().chain(readable.iter().cloned()).chain(around);
            (shown.collect(), hidden(policy).collect())
        }
        ReadMode::Open { also } => {
            let kernels = ["/dev", "/proc", "/sys"].map(PathBuf::from);
            let everything = std::iter::once(PathBuf::from("/"));
            (everything.chain(also.iter().cloned()).collect(), hidden(policy).chain(kernels).collect())
        }
    };
    let (masked, denied) =
        policy.deny_read.iter().cloned().partition(|denied| is_visible(policy, &denied.path));
    NamespacePlan {
        network,
        shown,
        denied,
        absent,
        masked,
        protected: policy.protected.clone(),
        pinned: Vec::new(),
        mirrored: policy.mirrored.clone(),
        staged: policy.staged.as_ref().map(StagedScope::places).unwrap_or_default(),
        temp_bytes: match policy.temp {
            Temp::Private { bytes, .. } => Some(bytes),
            Temp::None => None,
        },
        terminals: policy.allows(Allowance::Terminals),
        writable_proc: policy.allows(Allowance::NestedUserns),
        whole_sys: matches!(policy.read, ReadMode::Open { .. }),
    }
}

/// Whether a path lies in the scope or in what may be written.
pub(crate) fn is_visible(policy: &Policy, path: &Path) -> bool {
    policy.scope.iter().chain(&policy.read_write).any(|root| path.starts_with(root.path()))
}
