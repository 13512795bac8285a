//! Tier B: gives the command a root of its own. It is a tmpfs in which the system's programs, what may be read, and
//! the scope are mounted at the paths that they have on the host; the host's root is detached. What the policy does
//! not show is not there: it cannot be named, and what appears on the host later is not seen.

mod kernel_files;
mod mirrors;
#[cfg(any(test, fuzzing))]
pub mod oracle;
mod root;
mod shown;
mod staged;
mod system_root;

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::mount::{MountPropagationFlags, OpenTreeFlags};

use self::root::{ATTACHED_AT, Root, mount_at};
use self::shown::{Shown, Survey, Tree, outermost};
pub(super) use self::system_root::SystemRoot;
use self::system_root::has_own_resolver;
use super::{InStep, StepError, sys};
use crate::launch_request::LaunchRequest;
use crate::paths::{DeniedKind, VettedDirectory};
use crate::plan::{NamespacePlan, Steps};

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const NO_SETUID: u64 = libc::MOUNT_ATTR_NOSUID;
const NO_DEVICES: u64 = libc::MOUNT_ATTR_NODEV;
const NO_EXECUTION: u64 = libc::MOUNT_ATTR_NOEXEC;

/// The private temporary directories.
const TEMPORARY: &[&str] = &["/tmp", "/var/tmp", "/dev/shm"];
const RESOLVER_FILE: &str = "/etc/resolv.conf";
/// What is mounted over denied paths inside the scope.
const DENIED_DIRECTORY: &str = "/.denied";
const DENIED_FILE: &str = "/.denied-file";

/// Puts this process into the root of the plan: the one that was built ahead, if it shows what a new one would.
pub(super) fn enter_own_root(request: &LaunchRequest, ahead: Option<SystemRoot>) -> Result<(), StepError> {
    let steps = &request.steps;
    let plan = steps.namespaces.as_ref().ok_or_else(|| StepError::new("namespaces", "none are planned"))?;
    if ahead.is_none() {
        make_private()?;
    }
    with_open_umask(|| build(request, plan, ahead))?.enter()
}

/// Builds what does not depend on the command, for one that may come. Its descriptors get numbers above `descriptors`.
pub(super) fn build_ahead(steps: &Steps, descriptors: i32) -> Result<SystemRoot, StepError> {
    let plan = steps.namespaces.as_ref().ok_or_else(|| StepError::new("namespaces", "none are planned"))?;
    if covers_something(steps, plan) {
        return Err(StepError::new("root", "it would cover what the command gets"));
    }
    make_private()?;
    let built = with_open_umask(|| SystemRoot::build(survey(plan, steps)?, plan))?;
    built.above(descriptors)
}

/// Keeps what happens to mounts here from reaching the host, and the other way round.
fn make_private() -> Result<(), StepError> {
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .step("private mounts")
}

/// Places are made for the command to see; the umask of a launcher would hide them.
fn with_open_umask<T>(make: impl FnOnce() -> Result<T, StepError>) -> Result<T, StepError> {
    let strict = rustix::process::umask(Mode::from_raw_mode(0o022));
    let result = make();
    rustix::process::umask(strict);
    result
}

/// Takes the steps that a host may refuse, to find out whether it does.
pub(super) fn try_own_root() -> Result<(), StepError> {
    make_private()?;
    let mut root = Root::attach(None)?;
    root.make_directory(Path::new("/proc"))?;
    root.make_read_only()?;
    kernel_files::mount_proc(false, &root)?;
    root.enter()
}

fn build(
    request: &LaunchRequest,
    plan: &NamespacePlan,
    ahead: Option<SystemRoot>,
) -> Result<Root, StepError> {
    let steps = &request.steps;
    // What the root covers is opened before it is there.
    let ahead = match ahead {
        Some(ahead) if covers_something(steps, plan) => {
            ahead.take_away()?;
            None
        }
        ahead => ahead,
    };
    let shown = survey(plan, steps)?;
    let mut staged = staged::open(&plan.staged, request.first_mount())?;
    let writable = outermost(&steps.landlock.read_write, &mut staged)?;
    let read_only = outermost(&steps.landlock.read_only, &mut staged)?;
    if let Some(path) = staged.keys().next() {
        return Err(StepError::new(
            "staged scope",
            format!("{} lies in a directory that is not", path.display()),
        ));
    }
    let mirrors = mirrors::open(&plan.mirrored)?;
    let SystemRoot { mut root, shown, in_temporary, .. } = match ahead {
        Some(ahead) if ahead.is_as(&shown, plan) => ahead,
        Some(ahead) => {
            ahead.take_away()?;
            SystemRoot::build(shown, plan)?
        }
        None => SystemRoot::build(shown, plan)?,
    };
    let places = writable.keys().chain(read_only.keys());
    let places = places.chain(plan.mirrored.iter().map(|mirror| &mirror.at));
    make_places(places, &shown, &mut root)?;
    for (path, tree) in &in_temporary {
        root.make_place(path, tree.is_directory)?;
    }
    make_masks(plan, &mut root)?;
    root.make_read_only()?;
    for (path, tree) in &in_temporary {
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

/// Whether something of the host that the command gets lies where a root is attached.
fn covers_something(steps: &Steps, plan: &NamespacePlan) -> bool {
    let landlock = &steps.landlock;
    let own = landlock.read_write.iter().chain(&landlock.read_only).map(VettedDirectory::path);
    let mirrors = plan.mirrored.iter().flat_map(|mirror| [mirror.source.path(), &mirror.at]);
    let shown = plan.shown.iter().map(PathBuf::as_path);
    own.chain(mirrors).chain(shown).any(|path| path.starts_with(ATTACHED_AT))
}

/// Finds what the root shows read-only.
fn survey(plan: &NamespacePlan, steps: &Steps) -> Result<Shown, StepError> {
    let landlock = &steps.landlock;
    let visible = landlock.read_write.iter().chain(&landlock.read_only);
    let own_resolver = has_own_resolver(&plan.network).then_some(Path::new(RESOLVER_FILE));
    let denied = plan.denied.iter().map(|denied| denied.path.as_path());
    let absent = plan.absent.iter().map(PathBuf::as_path);
    let mut survey = Survey::new(denied.chain(absent).chain(own_resolver), visible);
    for path in &plan.shown {
        survey.show(path)?;
    }
    Ok(survey.finish())
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
    // The same file is copied and covered, whatever its name leads to a moment later.
    let place = root.open(path).map_err(failed)?;
    let tree = copy_of(&place, c"").map_err(failed)?;
    sys::mount_setattr(Some(tree.as_fd()), c"", attributes, true).step("protected path")?;
    mount_at(&tree, &place).map_err(failed)
}
