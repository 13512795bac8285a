//! Tier B: gives the command a root of its own. It is a tmpfs in which the system's programs, what may be read, and
//! the scope are mounted at the paths that they have on the host; the host's root is detached. What the policy does
//! not show is not there: it cannot be named, and what appears on the host later is not seen.

mod kernel_files;
mod mirrors;
#[cfg(any(test, fuzzing))]
pub mod oracle;
mod root;
mod shown;

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::mount::{MountPropagationFlags, OpenTreeFlags};

use self::root::Root;
use self::shown::{Shown, Survey, Tree, outermost};
use super::{InStep, StepError, sys};
use crate::paths::DeniedKind;
use crate::plan::{NamespacePlan, NetworkNamespace, Steps};

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const NO_SETUID: u64 = libc::MOUNT_ATTR_NOSUID;
const NO_DEVICES: u64 = libc::MOUNT_ATTR_NODEV;
const NO_EXECUTION: u64 = libc::MOUNT_ATTR_NOEXEC;

/// Directories that exist in every root, because programs take them for granted.
const ALWAYS: &[&str] = &["/etc", "/run", "/tmp", "/var/tmp", "/dev", "/proc", "/sys"];
/// The private temporary directories.
const TEMPORARY: &[&str] = &["/tmp", "/var/tmp", "/dev/shm"];
const RESOLVER_FILE: &str = "/etc/resolv.conf";
/// What is mounted over denied paths inside the scope.
const DENIED_DIRECTORY: &str = "/.denied";
const DENIED_FILE: &str = "/.denied-file";

/// Puts this process into the root of the plan.
pub(super) fn enter_own_root(steps: &Steps) -> Result<(), StepError> {
    let plan = steps.namespaces.as_ref().ok_or_else(|| StepError::new("namespaces", "none are planned"))?;
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .step("private mounts")?;
    // Places are made for the command to see; the umask of a launcher would hide them.
    let strict = rustix::process::umask(Mode::from_raw_mode(0o022));
    let built = build(steps, plan);
    rustix::process::umask(strict);
    built?.enter()
}

/// Takes the steps that a host may refuse, to find out whether it does.
pub(super) fn try_own_root() -> Result<(), StepError> {
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .step("private mounts")?;
    let mut root = Root::attach(None)?;
    root.make_directory(Path::new("/proc"))?;
    root.make_read_only()?;
    kernel_files::mount_proc(false, &root)?;
    root.enter()
}

fn build(steps: &Steps, plan: &NamespacePlan) -> Result<Root, StepError> {
    let (writable, read_only) = (&steps.landlock.read_write, &steps.landlock.read_only);
    // What the root will cover is opened before.
    let shown = survey(plan, steps)?;
    let writable = outermost(writable)?;
    let read_only = outermost(read_only)?;
    let mirrors = mirrors::open(&plan.mirrored)?;
    let devices = kernel_files::open_devices();
    let mut root = Root::attach(plan.temp_bytes)?;
    for path in ALWAYS {
        root.make_directory(Path::new(path))?;
    }
    let temporary = make_temporary(plan, &mut root)?;
    let (in_temporary, elsewhere): (Vec<_>, Vec<_>) =
        shown.readable.iter().partition(|(path, _)| TEMPORARY.iter().any(|temp| path.starts_with(temp)));
    for (path, tree) in &elsewhere {
        root.make_place(path, tree.is_directory)?;
        if let Some(copy) = tree.copy(path)? {
            root.mount(&copy, path)?;
        }
    }
    make_links(&shown, &mut root)?;
    give_resolver(plan, &mut root)?;
    kernel_files::mount_sys(plan, &root)?;
    kernel_files::make_device_places(&devices, plan, &mut root)?;
    let places = writable.keys().chain(read_only.keys()).chain(in_temporary.iter().map(|(path, _)| *path));
    let places = places.chain(plan.mirrored.iter().map(|mirror| &mirror.at));
    make_places(places, &shown, &mut root)?;
    make_masks(plan, &mut root)?;
    root.make_read_only()?;
    kernel_files::mount_proc(plan.writable_proc, &root)?;
    kernel_files::mount_devices(&devices, plan, &root)?;
    for (path, tree) in &temporary {
        root.mount(tree, path)?;
    }
    for (path, tree) in in_temporary {
        mount_with(&root, tree, path, READ_ONLY | NO_SETUID | NO_DEVICES)?;
    }
    for (path, tree) in &writable {
        mount_with(&root, tree, path, NO_SETUID | NO_DEVICES)?;
    }
    mirrors::mount(&mirrors, &root)?;
    for (path, tree) in &read_only {
        mount_with(&root, tree, path, READ_ONLY | NO_SETUID | NO_DEVICES)?;
    }
    mask_inside_scope(plan, &root)?;
    // Those above others come first: what is mounted later lies on top.
    let kept = plan.protected.iter().map(|path| (path, READ_ONLY));
    let kept: BTreeMap<&PathBuf, u64> = plan.pinned.iter().map(|path| (path, 0)).chain(kept).collect();
    for (path, attributes) in kept {
        mount_on_itself(&root, path, attributes)?;
    }
    Ok(root)
}

/// Finds what the root shows read-only.
fn survey(plan: &NamespacePlan, steps: &Steps) -> Result<Shown, StepError> {
    let landlock = &steps.landlock;
    let visible = landlock.read_write.iter().chain(&landlock.read_only);
    let own_resolver = has_own_resolver(plan).then_some(Path::new(RESOLVER_FILE));
    let denied = plan.denied.iter().map(|denied| denied.path.as_path());
    let absent = plan.absent.iter().map(PathBuf::as_path);
    let mut survey = Survey::new(denied.chain(absent).chain(own_resolver), visible);
    for path in &plan.shown {
        survey.show(path)?;
    }
    Ok(survey.finish())
}

fn make_temporary(plan: &NamespacePlan, root: &mut Root) -> Result<Vec<(&'static Path, OwnedFd)>, StepError> {
    let mut mounts = Vec::new();
    for path in TEMPORARY.iter().map(Path::new).filter(|_| plan.temp_bytes.is_some()) {
        mounts.push((path, root.make_temporary(path)?));
    }
    Ok(mounts)
}

fn make_links(shown: &Shown, root: &mut Root) -> Result<(), StepError> {
    for (path, target) in &shown.links {
        root.make_link(path, target)?;
    }
    Ok(())
}

/// Makes places for mounts, where they lie in no tree of the host: there the place is the directory itself.
fn make_places<'p>(
    paths: impl Iterator<Item = &'p PathBuf>,
    shown: &Shown,
    root: &mut Root,
) -> Result<(), StepError> {
    for path in paths {
        let is_in_tree = path.ancestors().any(|ancestor| shown.readable.contains_key(ancestor));
        let is_file = shown.readable.get(path).is_some_and(|tree| !tree.is_directory);
        if !is_in_tree || is_file || TEMPORARY.iter().any(|temp| path.starts_with(temp)) {
            root.make_place(path, !is_file)?;
        }
    }
    Ok(())
}

fn mount_with(root: &Root, tree: &Tree, path: &Path, attributes: u64) -> Result<(), StepError> {
    let gone = || StepError::new("mount", format!("{}: is gone", path.display()));
    let copy = tree.copy(path)?.ok_or_else(gone)?;
    sys::mount_setattr(Some(copy.as_fd()), c"", attributes, true).step("mount attributes")?;
    root.mount(&copy, path)
}

fn copy_of(directory: impl AsFd, path: &CStr) -> rustix::io::Result<OwnedFd> {
    let mut flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    if path.is_empty() {
        flags |= OpenTreeFlags::AT_EMPTY_PATH;
    }
    rustix::mount::open_tree(directory, path, flags)
}

/// Paths of the scope that are denied with the user's consent that this holds only until the file is replaced.
fn denied_in_scope(plan: &NamespacePlan) -> impl Iterator<Item = (&Path, &'static Path)> {
    plan.masked.iter().filter_map(|denied| match denied.kind {
        DeniedKind::Directory => Some((denied.path.as_path(), Path::new(DENIED_DIRECTORY))),
        DeniedKind::File => Some((denied.path.as_path(), Path::new(DENIED_FILE))),
        DeniedKind::Missing => None,
    })
}

fn make_masks(plan: &NamespacePlan, root: &mut Root) -> Result<(), StepError> {
    if !plan.masked.is_empty() {
        root.make_directory(Path::new(DENIED_DIRECTORY))?;
        root.write_file(Path::new(DENIED_FILE), b"", 0)?;
    }
    Ok(())
}

fn mask_inside_scope(plan: &NamespacePlan, root: &Root) -> Result<(), StepError> {
    for (path, mask) in denied_in_scope(plan) {
        // A path that no longer exists needs no mask.
        if root.open(path).is_ok() {
            root.mount(&root.own_tree(mask)?, path)?;
        }
    }
    Ok(())
}

/// Keeps a path of the scope from being renamed and removed, and with `READ_ONLY` from being changed.
fn mount_on_itself(root: &Root, path: &Path, attributes: u64) -> Result<(), StepError> {
    let failed = |error| StepError::new("protected path", format!("{}: {error}", path.display()));
    let tree = root.open(path).and_then(|place| copy_of(place, c"")).map_err(failed)?;
    sys::mount_setattr(Some(tree.as_fd()), c"", attributes, true).step("protected path")?;
    root.mount(&tree, path)
}

fn has_own_resolver(plan: &NamespacePlan) -> bool {
    matches!(plan.network, NetworkNamespace::Loopback { proxy: true, .. })
}

/// Where there is a proxy, makes its name server the only one.
fn give_resolver(plan: &NamespacePlan, root: &mut Root) -> Result<(), StepError> {
    if !has_own_resolver(plan) {
        return Ok(());
    }
    let server = format!("nameserver {}\n", crate::network::DNS_ADDRESS.ip());
    root.write_file(Path::new(RESOLVER_FILE), server.as_bytes(), 0o444)
}
