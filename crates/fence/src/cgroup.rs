//! Control groups: limits for a whole tree of processes. Uses version 2 where a subtree is delegated to us, and version
//! 1 where its directories are writable.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};

use crate::confinement::ProtectionName;
use crate::kernel::{CgroupVersion, LimitSupport};
use crate::launch_request::RequestedGroup;
use crate::plan::CgroupPlan;

/// Where groups can be made.
#[derive(Clone, Debug)]
pub(crate) enum CgroupHost {
    V2 { base: PathBuf, controllers: Vec<String> },
    V1 { memory: Option<PathBuf>, pids: Option<PathBuf>, cpu: Option<PathBuf> },
}

/// One leaf of our own begins with this.
const PREFIX: &str = "ringfence-";
/// The period over which shares of processors are counted, in microseconds.
const CPU_PERIOD: f64 = 100_000.0;

impl CgroupHost {
    /// Finds the control groups that this process may use.
    pub(crate) fn find() -> Option<Self> {
        let memberships = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let host = Self::find_v2(&memberships, Path::new("/sys/fs/cgroup"))
            .or_else(|| Self::find_v1(&memberships, Path::new("/sys/fs/cgroup")))?;
        host.sweep();
        Some(host)
    }

    /// A group whose children may be limited and whose members we may move: our own, or the one above it.
    fn find_v2(memberships: &str, mount: &Path) -> Option<Self> {
        let own = memberships.lines().find_map(|line| line.strip_prefix("0::"))?;
        let own = mount.join(own.trim_start_matches('/'));
        for base in [own.as_path(), own.parent().filter(|parent| parent.starts_with(mount))?] {
            let enabled = std::fs::read_to_string(base.join("cgroup.subtree_control")).unwrap_or_default();
            let controllers: Vec<String> = enabled.split_ascii_whitespace().map(str::to_owned).collect();
            let has = |name: &str| controllers.iter().any(|controller| controller == name);
            if has("memory") && has("pids") && is_writable(&base.join("cgroup.procs")) && can_make_group(base)
            {
                return Some(Self::V2 { base: base.to_owned(), controllers });
            }
        }
        delegate_own(&own)
    }

    fn find_v1(memberships: &str, mount: &Path) -> Option<Self> {
        let base = |controller: &str| {
            let (_, path) = memberships.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (names, path) = rest.split_once(':')?;
                names.split(',').any(|name| name == controller).then_some((names, path))
            })?;
            let directory = mount.join(controller).join(path.trim_start_matches('/'));
            // In a container the mount may begin where the path ends.
            let directory = if directory.is_dir() { directory } else { mount.join(controller) };
            can_make_group(&directory).then_some(directory)
        };
        let (memory, pids, cpu) = (base("memory"), base("pids"), base("cpu"));
        (memory.is_some() || pids.is_some()).then_some(Self::V1 { memory, pids, cpu })
    }

    pub(crate) fn support(&self) -> LimitSupport {
        match self {
            Self::V2 { controllers, .. } => LimitSupport {
                version: Some(CgroupVersion::V2),
                memory: true,
                processes: true,
                cpu: controllers.iter().any(|controller| controller == "cpu"),
            },
            Self::V1 { memory, pids, cpu } => LimitSupport {
                version: Some(CgroupVersion::V1),
                memory: memory.is_some(),
                processes: pids.is_some(),
                cpu: cpu.is_some(),
            },
        }
    }

    /// Removes the groups of processes that have ended.
    fn sweep(&self) {
        for base in self.bases() {
            for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let owner = name
                    .to_str()
                    .and_then(|name| name.strip_prefix(PREFIX))
                    .and_then(|rest| rest.split('-').next());
                if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                    let _ = std::fs::remove_dir(entry.path());
                }
            }
        }
    }

    fn bases(&self) -> Vec<&Path> {
        match self {
            Self::V2 { base, .. } => vec![base],
            Self::V1 { memory, pids, cpu } => {
                [memory, pids, cpu].into_iter().flatten().map(PathBuf::as_path).collect()
            }
        }
    }

    /// Makes a group with these limits; `None` if there are none.
    pub(crate) fn leaf(&self, plan: &CgroupPlan) -> io::Result<Option<CgroupLeaf>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        if *plan == CgroupPlan::default() {
            return Ok(None);
        }
        let name = format!("{PREFIX}{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut leaf = CgroupLeaf::new(&name, plan);
        match self {
            Self::V2 { base, .. } => {
                let directory = leaf.make(base, &name)?;
                leaf.limit_v2(&directory)?;
                (leaf.memory, leaf.pids) = (Some(directory.clone()), Some(directory));
            }
            Self::V1 { memory, pids, cpu } => {
                if let (Some(base), Some(bytes)) = (memory, plan.memory) {
                    let directory = leaf.make(base, &name)?;
                    leaf.limit(&directory.join("memory.limit_in_bytes"), bytes, ProtectionName::MemoryLimit)?;
                    // Absent where the kernel does not count swap.
                    let _ = std::fs::write(directory.join("memory.memsw.limit_in_bytes"), bytes.to_string());
                    leaf.memory = Some(directory);
                }
                if let (Some(base), Some(processes)) = (pids, plan.processes) {
                    let directory = leaf.make(base, &name)?;
                    leaf.limit(&directory.join("pids.max"), processes, ProtectionName::PidLimit)?;
                    leaf.pids = Some(directory);
                }
                if let (Some(base), Some(cpus)) = (cpu, plan.cpus) {
                    let directory = leaf.make(base, &name)?;
                    std::fs::write(directory.join("cpu.cfs_period_us"), format!("{CPU_PERIOD:.0}"))?;
                    std::fs::write(directory.join("cpu.cfs_quota_us"), format!("{:.0}", cpus * CPU_PERIOD))?;
                }
            }
        }
        Ok(Some(leaf))
    }
}

/// A group given to this process alone: it moves into a child, so that other children can be limited.
fn delegate_own(own: &Path) -> Option<CgroupHost> {
    let available = std::fs::read_to_string(own.join("cgroup.controllers")).ok()?;
    let has = |name: &str| available.split_ascii_whitespace().any(|controller| controller == name);
    let members = std::fs::read_to_string(own.join("cgroup.procs")).ok()?;
    let is_alone = members.split_ascii_whitespace().eq([std::process::id().to_string()]);
    if !has("memory") || !has("pids") || !is_alone {
        return None;
    }
    let main = own.join("ringfence.main");
    std::fs::create_dir_all(&main).ok()?;
    std::fs::write(main.join("cgroup.procs"), "0").ok()?;
    let mut controllers = vec!["memory".to_owned(), "pids".to_owned()];
    std::fs::write(own.join("cgroup.subtree_control"), "+memory +pids").ok()?;
    if has("cpu") && std::fs::write(own.join("cgroup.subtree_control"), "+cpu").is_ok() {
        controllers.push("cpu".to_owned());
    }
    Some(CgroupHost::V2 { base: own.to_owned(), controllers })
}

fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Tries it, because the mode bits do not tell.
fn can_make_group(base: &Path) -> bool {
    let trial = base.join(format!("{PREFIX}{}-trial", std::process::id()));
    std::fs::create_dir(&trial).is_ok() && std::fs::remove_dir(&trial).is_ok()
}

/// The group of one fence.
#[derive(Debug)]
pub(crate) struct CgroupLeaf {
    directories: Vec<PathBuf>,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    plan: CgroupPlan,
    name: String,
    /// The limits that the kernel gave back as they were set.
    read_back: Vec<ProtectionName>,
}

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitHit {
    Memory { bytes: u64 },
    Processes { count: u64 },
}

impl CgroupLeaf {
    fn new(name: &str, plan: &CgroupPlan) -> Self {
        Self {
            directories: Vec::new(),
            memory: None,
            pids: None,
            plan: plan.clone(),
            name: name.to_owned(),
            read_back: Vec::new(),
        }
    }

    /// What its launcher has to know to tell whether the limits hold.
    pub(crate) fn as_requested(&self) -> RequestedGroup {
        RequestedGroup { name: self.name.clone(), limits: self.read_back.clone() }
    }

    /// Sets a limit, and reads it back. The kernel may round it down to whole pages.
    fn limit(&mut self, file: &Path, limit: u64, protection: ProtectionName) -> io::Result<()> {
        let mut text = [0; 32];
        let file =
            rustix::fs::open(file, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
        rustix::io::write(&file, limit.to_string().as_bytes())?;
        let length = rustix::io::pread(&file, &mut text, 0).unwrap_or(0);
        let set = std::str::from_utf8(&text[..length]).ok().and_then(|text| text.trim().parse::<u64>().ok());
        if set.is_some_and(|set| set <= limit) {
            self.read_back.push(protection);
        }
        Ok(())
    }

    fn make(&mut self, base: &Path, name: &str) -> io::Result<PathBuf> {
        let directory = base.join(name);
        std::fs::create_dir(&directory)?;
        self.directories.push(directory.clone());
        Ok(directory)
    }

    fn limit_v2(&mut self, directory: &Path) -> io::Result<()> {
        if let Some(bytes) = self.plan.memory {
            self.limit(&directory.join("memory.max"), bytes, ProtectionName::MemoryLimit)?;
            // Absent where the kernel does not count swap, or cannot kill a group as one.
            let _ = std::fs::write(directory.join("memory.swap.max"), "0");
            let _ = std::fs::write(directory.join("memory.oom.group"), "1");
        }
        if let Some(processes) = self.plan.processes {
            self.limit(&directory.join("pids.max"), processes, ProtectionName::PidLimit)?;
        }
        if let Some(cpus) = self.plan.cpus {
            std::fs::write(directory.join("cpu.max"), format!("{:.0} {CPU_PERIOD:.0}", cpus * CPU_PERIOD))?;
        }
        Ok(())
    }

    /// The files through which a process joins the group.
    pub(crate) fn member_files(&self) -> io::Result<Vec<OwnedFd>> {
        self.directories
            .iter()
            .map(|directory| {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                // In version 1 a thread that moves only itself spares the kernel a wait of milliseconds.
                let tasks = rustix::fs::open(directory.join("tasks"), flags, Mode::empty());
                Ok(tasks
                    .or_else(|_| rustix::fs::open(directory.join("cgroup.procs"), flags, Mode::empty()))?)
            })
            .collect()
    }

    /// The limit that was hit, if any.
    pub(crate) fn limit_hit(&self) -> Option<LimitHit> {
        let count = |directory: &Option<PathBuf>, file: &str, key: &str| {
            let text = std::fs::read_to_string(directory.as_ref()?.join(file)).ok()?;
            text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok())
        };
        let kills = count(&self.memory, "memory.events", "oom_kill ")
            .or_else(|| count(&self.memory, "memory.oom_control", "oom_kill "));
        if let (Some(1..), Some(bytes)) = (kills, self.plan.memory) {
            return Some(LimitHit::Memory { bytes });
        }
        match (count(&self.pids, "pids.events", "max "), self.plan.processes) {
            (Some(1..), Some(count)) => Some(LimitHit::Processes { count }),
            _ => None,
        }
    }

    /// Possible once every process in it is gone.
    pub(crate) fn remove(self) {
        for directory in &self.directories {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory;

    #[test]
    fn the_group_above_is_used_where_it_may_limit_its_children() {
        let mount = test_directory::directory("cgroup-above");
        let slice = mount.join("user.slice");
        std::fs::create_dir_all(slice.join("terminal.scope")).unwrap();
        std::fs::write(slice.join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        std::fs::write(slice.join("cgroup.procs"), "").unwrap();
        let found = CgroupHost::find_v2("0::/user.slice/terminal.scope\n", &mount).unwrap();
        assert_eq!(found.bases(), [slice]);
        let support = found.support();
        assert!(support.memory && support.processes && support.cpu);
    }

    #[test]
    fn a_group_of_its_own_is_divided() {
        let mount = test_directory::directory("cgroup-own");
        let own = mount.join("run.scope");
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join("cgroup.controllers"), "cpu memory pids").unwrap();
        std::fs::write(own.join("cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
        let found = CgroupHost::find_v2("0::/run.scope\n", &mount).unwrap();
        assert!(own.join("ringfence.main").is_dir());
        assert!(found.support().cpu);
        let plan = CgroupPlan { memory: Some(64), processes: Some(7), cpus: Some(1.5) };
        let leaf = found.leaf(&plan).unwrap().unwrap();
        let directory = leaf.directories[0].clone();
        let requested = leaf.as_requested();
        assert_eq!(requested.limits, [ProtectionName::MemoryLimit, ProtectionName::PidLimit]);
        assert!(directory.ends_with(&requested.name));
        assert_eq!(std::fs::read_to_string(directory.join("memory.max")).unwrap(), "64");
        assert_eq!(std::fs::read_to_string(directory.join("cpu.max")).unwrap(), "150000 100000");
        std::fs::write(directory.join("memory.events"), "low 0\noom 1\noom_kill 1\n").unwrap();
        assert_eq!(leaf.limit_hit(), Some(LimitHit::Memory { bytes: 64 }));
    }

    #[test]
    fn without_a_group_there_is_no_limit() {
        let mount = test_directory::directory("cgroup-none");
        assert!(CgroupHost::find_v2("0::/\n", &mount).is_none());
        assert!(CgroupHost::find_v1("4:memory:/nowhere\n", &mount.join("absent")).is_none());
    }
}
