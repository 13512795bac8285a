//! Tier B: the file system as the command sees it. Everything is read-only; the scope is mounted read-write on top;
//! empty mounts cover secrets, other programs' temporary files and run-time sockets.
//!
//! One private tmpfs provides everything that is not a directory of the host: the writable temporary directories, and
//! the empty directories and the empty file that cover.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
};

use super::ruleset::open_vetted;
use super::{InStep, StepError, sys};
use crate::paths::{DeniedKind, VettedDirectory};
use crate::plan::{NamespacePlan, NetworkNamespace, Steps};

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const NO_SETUID: u64 = libc::MOUNT_ATTR_NOSUID;
const NO_DEVICES: u64 = libc::MOUNT_ATTR_NODEV;
const NO_EXECUTION: u64 = libc::MOUNT_ATTR_NOEXEC;

/// Where the tmpfs is attached, and later covered by one of its own directories.
const TEMP: &str = "/tmp";
/// Names in the tmpfs: the covers of files and directories, its own read-only view, and the private `resolv.conf`.
const EMPTY_FILE: &str = "empty-file";
const EMPTY_DIRECTORY: &str = "empty";
const VIEW: &str = "read-only";
const RESOLVER_FILE: &str = "resolv.conf";

/// The size of a tmpfs that holds covers only.
const MASKS_BYTES: u64 = 1024 * 1024;
/// Limits the number of files to what would fit if each had this size.
const BYTES_PER_FILE: u64 = 2048;

/// Makes the mounts of the plan.
pub(super) fn mount_all(steps: &Steps) -> Result<(), StepError> {
    let none = || StepError::new("namespaces", "none are planned");
    let plan = steps.namespaces.as_ref().ok_or_else(none)?;
    let (writable, read_only) = (&steps.landlock.read_write, &steps.landlock.read_only);
    let visible = &[writable.as_slice(), read_only].concat();
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .step("private mounts")?;
    // Taken before the root is read-only, because copies of a read-only mount are read-only too.
    let kept = keep(plan, writable, read_only)?;
    sys::mount_setattr(None, c"/", READ_ONLY | NO_SETUID, true).step("read-only root")?;
    // Checked before the tmpfs covers `/tmp` and hidden directories below it.
    let hidden: Vec<&Path> =
        plan.hidden.iter().map(PathBuf::as_path).filter(|path| is_own_directory(path)).collect();
    let memory = Memory::attach(plan.temp_bytes)?;
    for cover in covers(plan, &hidden, visible, &memory, &kept)? {
        hide(&cover.source, &cover.target)?;
    }
    for tree in kept {
        tree.attach()?;
    }
    cover_inside_scope(plan, visible, &memory)?;
    for path in &plan.protected {
        make_read_only(path)?;
    }
    give_resolver(plan, &memory)?;
    fresh("proc", "/proc").step("proc")?;
    if plan.network != NetworkNamespace::Shared {
        // The host's `/sys` shows its interfaces. If a fresh one cannot be mounted, the host's stays, read-only.
        let _ = fresh("sysfs", "/sys");
    }
    Ok(())
}

/// A directory or file of the host that stays visible at its path.
struct KeptTree {
    path: PathBuf,
    is_directory: bool,
    tree: OwnedFd,
    is_writable: bool,
}

impl KeptTree {
    fn attach(&self) -> Result<(), StepError> {
        let attributes =
            if self.is_writable { NO_SETUID | NO_DEVICES } else { READ_ONLY | NO_SETUID | NO_DEVICES };
        sys::mount_setattr(Some(self.tree.as_fd()), c"", attributes, true).step("scope mount")?;
        attach(&self.tree, &self.path)
    }
}

fn keep(
    plan: &NamespacePlan,
    writable: &[VettedDirectory],
    read_only: &[VettedDirectory],
) -> Result<Vec<KeptTree>, StepError> {
    let mut kept = Vec::new();
    for (roots, is_writable) in [(writable, true), (read_only, false)] {
        for root in outermost(roots) {
            let tree = copy_of(open_vetted(root)?, c"").step("scope mount")?;
            kept.push(KeptTree { path: root.path().to_owned(), is_directory: true, tree, is_writable });
        }
    }
    let resolver = std::fs::canonicalize("/etc/resolv.conf").ok().filter(|path| is_hidden(plan, path));
    for path in plan.exposed.iter().chain(resolver.as_ref()) {
        let Ok(file) = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
            continue;
        };
        let is_directory =
            rustix::fs::fstat(&file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
        let tree = copy_of(&file, c"").step("readable mount")?;
        kept.push(KeptTree { path: path.clone(), is_directory, tree, is_writable: false });
    }
    // A tree inside another one comes after it.
    kept.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(kept)
}

/// Directories that lie in none of the others.
fn outermost(roots: &[VettedDirectory]) -> impl Iterator<Item = &VettedDirectory> {
    roots.iter().enumerate().filter_map(move |(place, root)| {
        let is_covered = roots.iter().enumerate().any(|(other_place, other)| {
            let is_same = other.path() == root.path();
            (is_same && other_place < place) || (!is_same && root.path().starts_with(other.path()))
        });
        (!is_covered).then_some(root)
    })
}

fn is_hidden(plan: &NamespacePlan, path: &Path) -> bool {
    plan.hidden.iter().any(|hidden| path.starts_with(hidden))
}

fn copy_of(directory: impl AsFd, path: &std::ffi::CStr) -> rustix::io::Result<OwnedFd> {
    let mut flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    if path.is_empty() {
        flags |= OpenTreeFlags::AT_EMPTY_PATH;
    }
    rustix::mount::open_tree(directory, path, flags)
}

fn attach(tree: &OwnedFd, target: &Path) -> Result<(), StepError> {
    attach_at(tree, target).map_err(|error| failed(target, error))
}

/// Covers a path that must not be seen. A path that no longer exists needs no cover.
fn hide(cover: &OwnedFd, target: &Path) -> Result<(), StepError> {
    match attach_at(cover, target) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        attached => attached.map_err(|error| failed(target, error)),
    }
}

fn failed(target: &Path, error: rustix::io::Errno) -> StepError {
    StepError::new("mount", format!("{}: {error}", target.display()))
}

fn attach_at(tree: &OwnedFd, target: &Path) -> rustix::io::Result<()> {
    rustix::mount::move_mount(tree, c"", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// The private tmpfs.
struct Memory {
    root: OwnedFd,
    /// The same files, read-only, to be mounted as covers.
    masks: OwnedFd,
    has_temp: bool,
}

impl Memory {
    /// Mounts it, with the files and directories that covers are made of.
    fn attach(temp_bytes: Option<u64>) -> Result<Self, StepError> {
        let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).step("tmpfs")?;
        let bytes = temp_bytes.unwrap_or(MASKS_BYTES);
        // Empty files take memory too.
        let (size, files) = (bytes.to_string(), (bytes / BYTES_PER_FILE + 1024).to_string());
        for (key, value) in [("size", size.as_str()), ("nr_inodes", files.as_str()), ("mode", "0755")] {
            rustix::mount::fsconfig_set_string(&context, key, value).step("tmpfs")?;
        }
        rustix::mount::fsconfig_create(&context).step("tmpfs")?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let mount =
            rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step("tmpfs")?;
        attach(&mount, Path::new(TEMP))?;
        let root = rustix::fs::open(TEMP, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .step("tmpfs")?;
        let masks = attach_read_only_view(&root)?;
        let memory = Self { root, masks, has_temp: temp_bytes.is_some() };
        memory.directory(EMPTY_DIRECTORY, 0o755)?;
        memory.write_file(EMPTY_FILE, b"")?;
        rustix::fs::chmodat(&memory.root, EMPTY_FILE, Mode::empty(), AtFlags::empty()).step("tmpfs")?;
        Ok(memory)
    }

    fn write_file(&self, name: &str, content: &[u8]) -> Result<(), StepError> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.root, name, flags, Mode::from_raw_mode(0o600)).step("tmpfs")?;
        rustix::io::write(&file, content).step("tmpfs")?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o444)).step("tmpfs")
    }

    /// Makes a directory in it, to be mounted elsewhere.
    fn directory(&self, name: &str, mode: u32) -> Result<OwnedFd, StepError> {
        match rustix::fs::mkdirat(&self.root, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => rustix::fs::chmodat(&self.root, name, Mode::from_raw_mode(mode), AtFlags::empty())
                .step("tmpfs")?,
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(StepError::new("tmpfs", error)),
        }
        rustix::fs::openat(
            &self.root,
            name,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .step("tmpfs")
    }

    fn mount_of(&self, name: &str, is_writable: bool) -> Result<OwnedFd, StepError> {
        let name = CString::new(name).step("tmpfs")?;
        let source = if is_writable { &self.root } else { &self.masks };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        rustix::mount::open_tree(source, &name, flags).step("tmpfs copy")
    }
}

fn attach_read_only_view(root: &OwnedFd) -> Result<OwnedFd, StepError> {
    rustix::fs::mkdirat(root, VIEW, Mode::from_raw_mode(0o700)).step("tmpfs")?;
    let view = copy_of(root, c"").step("tmpfs copy")?;
    let attributes = READ_ONLY | NO_SETUID | NO_DEVICES | NO_EXECUTION;
    sys::mount_setattr(Some(view.as_fd()), c"", attributes, false).step("mask")?;
    rustix::mount::move_mount(&view, c"", root, VIEW, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .step("mask")?;
    Ok(view)
}

/// A mount that hides what lies below it.
struct Cover {
    source: OwnedFd,
    target: PathBuf,
}

/// Whether a directory is at this path, and not a link to one.
fn is_own_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
}

/// The covers of everything outside the scope, with mount points in them for what is kept below. A cover in another
/// one, such as that of ringfence's own directory below `/tmp`, comes after it.
fn covers(
    plan: &NamespacePlan,
    hidden: &[&Path],
    roots: &[VettedDirectory],
    memory: &Memory,
    kept: &[KeptTree],
) -> Result<Vec<Cover>, StepError> {
    let mut covers = Vec::new();
    let denied =
        plan.denied.iter().filter(|denied| !is_hidden(plan, &denied.path) && !is_inside(roots, &denied.path));
    for denied in denied {
        match denied.kind {
            DeniedKind::Directory => covers.push(cover_directory(&denied.path, memory, kept, covers.len())?),
            DeniedKind::File => covers
                .push(Cover { source: memory.mount_of(EMPTY_FILE, false)?, target: denied.path.clone() }),
            DeniedKind::Missing => {}
        }
    }
    for path in hidden {
        covers.push(cover_directory(path, memory, kept, covers.len())?);
    }
    covers.sort_by(|a, b| a.target.cmp(&b.target));
    Ok(covers)
}

fn cover_directory(
    path: &Path,
    memory: &Memory,
    kept: &[KeptTree],
    number: usize,
) -> Result<Cover, StepError> {
    let is_temp =
        memory.has_temp && ["/tmp", "/var/tmp", "/dev/shm"].iter().any(|temp| path == Path::new(temp));
    if !is_temp && !kept.iter().any(|tree| tree.path.starts_with(path)) {
        return Ok(Cover { source: memory.mount_of(EMPTY_DIRECTORY, false)?, target: path.to_owned() });
    }
    let name = format!("cover-{number}");
    let directory = memory.directory(&name, if is_temp { 0o1777 } else { 0o755 })?;
    for tree in kept {
        if let Ok(place) = tree.path.strip_prefix(path) {
            make_place(&directory, place, tree.is_directory)?;
        }
    }
    Ok(Cover { source: memory.mount_of(&name, is_temp)?, target: path.to_owned() })
}

/// Makes a mount point, with the directories above it.
fn make_place(directory: &OwnedFd, place: &Path, is_directory: bool) -> Result<(), StepError> {
    let mut made = PathBuf::new();
    let components: Vec<&OsStr> = place.iter().collect();
    for (number, component) in components.iter().enumerate() {
        made.push(component);
        let is_last = number + 1 == components.len();
        let result = if is_last && !is_directory {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat(directory, &made, flags, Mode::from_raw_mode(0o444)).map(drop)
        } else {
            rustix::fs::mkdirat(directory, &made, Mode::from_raw_mode(0o755)).and_then(|()| {
                // The umask is strict, and the command runs as this user without capabilities.
                rustix::fs::chmodat(directory, &made, Mode::from_raw_mode(0o755), AtFlags::empty())
            })
        };
        match result {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(StepError::new("mount point", error)),
        }
    }
    Ok(())
}

fn is_inside(roots: &[VettedDirectory], path: &Path) -> bool {
    roots.iter().any(|root| path.starts_with(root.path()))
}

/// Covers denied paths inside the scope, which is mounted by now.
fn cover_inside_scope(
    plan: &NamespacePlan,
    roots: &[VettedDirectory],
    memory: &Memory,
) -> Result<(), StepError> {
    for denied in plan.denied.iter().filter(|denied| is_inside(roots, &denied.path)) {
        let source = match denied.kind {
            DeniedKind::Directory => memory.mount_of(EMPTY_DIRECTORY, false)?,
            DeniedKind::File => memory.mount_of(EMPTY_FILE, false)?,
            DeniedKind::Missing => continue,
        };
        hide(&source, &denied.path)?;
    }
    Ok(())
}

fn make_read_only(path: &Path) -> Result<(), StepError> {
    let name = CString::new(path.as_os_str().as_bytes()).step("protected path")?;
    let tree = copy_of(CWD, &name)
        .map_err(|error| StepError::new("protected path", format!("{}: {error}", path.display())))?;
    sys::mount_setattr(Some(tree.as_fd()), c"", READ_ONLY, true).step("protected path")?;
    attach(&tree, path)
}

/// Where there is a proxy, makes its name server the only one.
fn give_resolver(plan: &NamespacePlan, memory: &Memory) -> Result<(), StepError> {
    if !matches!(plan.network, NetworkNamespace::Loopback { proxy: true, .. }) {
        return Ok(());
    }
    let Ok(place) = std::fs::canonicalize("/etc/resolv.conf") else { return Ok(()) };
    let server = format!("nameserver {}\n", crate::network::DNS_ADDRESS.ip());
    memory.write_file(RESOLVER_FILE, server.as_bytes())?;
    attach(&memory.mount_of(RESOLVER_FILE, false)?, &place)
}

/// A new instance of one of the kernel's own file systems, which shows only what these namespaces hold.
pub(super) fn fresh(kind: &str, target: &str) -> rustix::io::Result<()> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let attributes =
        if kind == "sysfs" { attributes | MountAttrFlags::MOUNT_ATTR_RDONLY } else { attributes };
    let mount = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    rustix::mount::move_mount(&mount, c"", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}
