//! The part of a root that does not depend on the command: what is shown of the host, `/proc`, `/dev` and the temporary
//! directories. It takes most of the time of a launch, so a zygote has it built ahead.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::super::StepError;
use super::root::Root;
use super::shown::{Shown, Tree};
use super::{RESOLVER_FILE, TEMPORARY, kernel_files};
use crate::plan::{NamespacePlan, NetworkNamespace};

/// Directories that exist in every root, because programs take them for granted.
const ALWAYS: &[&str] = &["/etc", "/run", "/tmp", "/var/tmp", "/dev", "/proc", "/sys"];

/// A root that lacks only what belongs to one command.
pub(in super::super) struct SystemRoot {
    pub(super) root: Root,
    /// What is mounted.
    pub(super) shown: Shown,
    /// What is shown inside the temporary directories, which is mounted after them.
    pub(super) in_temporary: BTreeMap<PathBuf, Tree>,
    kinds: Kinds,
}

/// What of a plan decides about the rest of the root.
#[derive(PartialEq, Eq)]
struct Kinds {
    network: NetworkNamespace,
    temp_bytes: Option<u64>,
    terminals: bool,
    writable_proc: bool,
    whole_sys: bool,
}

impl Kinds {
    fn of(plan: &NamespacePlan) -> Self {
        Self {
            network: plan.network.clone(),
            temp_bytes: plan.temp_bytes,
            terminals: plan.terminals,
            writable_proc: plan.writable_proc,
            whole_sys: plan.whole_sys,
        }
    }
}

impl SystemRoot {
    pub(super) fn build(mut shown: Shown, plan: &NamespacePlan) -> Result<Self, StepError> {
        let is_in_temporary = |path: &Path| TEMPORARY.iter().any(|temp| path.starts_with(temp));
        let (in_temporary, elsewhere) =
            shown.readable.into_iter().partition(|(path, _): &(PathBuf, Tree)| is_in_temporary(path));
        shown.readable = elsewhere;
        let devices = kernel_files::open_devices();
        let mut root = Root::attach(plan.temp_bytes)?;
        if let Err(error) = fill(&mut root, &shown, &devices, plan) {
            root.detach()?;
            return Err(error);
        }
        Ok(Self { root, shown, in_temporary, kinds: Kinds::of(plan) })
    }

    /// Whether building it now would come to the same.
    pub(super) fn is_as(&self, shown: &Shown, plan: &NamespacePlan) -> bool {
        self.in_temporary.is_empty() && self.kinds == Kinds::of(plan) && self.shown == *shown
    }

    /// Gives its descriptors numbers above this one.
    pub(super) fn above(self, number: i32) -> Result<Self, StepError> {
        Ok(Self { root: self.root.above(number)?, ..self })
    }

    /// Uncovers what of the host it is attached over.
    pub(super) fn take_away(self) -> Result<(), StepError> {
        self.root.detach()
    }
}

fn fill(
    root: &mut Root,
    shown: &Shown,
    devices: &[(&'static Path, OwnedFd)],
    plan: &NamespacePlan,
) -> Result<(), StepError> {
    for path in ALWAYS {
        root.make_directory(Path::new(path))?;
    }
    let temporary = make_temporary(plan, root)?;
    for (path, tree) in &shown.readable {
        root.make_place(path, tree.is_directory)?;
        if let Some(copy) = tree.copy(path)? {
            root.mount(&copy, path)?;
        }
    }
    for (path, target) in &shown.links {
        root.make_link(path, target)?;
    }
    give_resolver(plan, root)?;
    kernel_files::mount_sys(plan, root)?;
    kernel_files::make_device_places(devices, plan, root)?;
    root.make_mounts_read_only()?;
    kernel_files::mount_proc(plan.writable_proc, root)?;
    kernel_files::mount_devices(devices, plan, root)?;
    for (path, tree) in &temporary {
        root.mount(tree, path)?;
    }
    Ok(())
}

fn make_temporary(plan: &NamespacePlan, root: &mut Root) -> Result<Vec<(&'static Path, OwnedFd)>, StepError> {
    let mut mounts = Vec::new();
    for path in TEMPORARY.iter().map(Path::new).filter(|_| plan.temp_bytes.is_some()) {
        mounts.push((path, root.make_temporary(path)?));
    }
    Ok(mounts)
}

pub(super) fn has_own_resolver(network: &NetworkNamespace) -> bool {
    matches!(network, NetworkNamespace::Loopback { proxy: true, .. })
}

/// Where there is a proxy, makes its name server the only one.
fn give_resolver(plan: &NamespacePlan, root: &mut Root) -> Result<(), StepError> {
    if !has_own_resolver(&plan.network) {
        return Ok(());
    }
    let server = format!("nameserver {}\n", crate::network::DNS_ADDRESS.ip());
    root.write_file(Path::new(RESOLVER_FILE), server.as_bytes(), 0o444)
}
