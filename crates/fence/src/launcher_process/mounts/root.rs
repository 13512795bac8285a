//! The command's root: a tmpfs with nothing in it but mount points, links and the private temporary directories.

use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};

use super::super::{InStep, StepError, sys};
use super::{NO_DEVICES, NO_SETUID, READ_ONLY};

/// Where the root is attached until it becomes the root. Everything below this path is opened before.
pub(super) const ATTACHED_AT: &str = "/tmp";
/// The size of a root without temporary files.
const PLACES_BYTES: u64 = 4 * 1024 * 1024;
/// Limits the number of files to what would fit if each had this size.
const BYTES_PER_FILE: u64 = 2048;

pub(super) struct Root {
    directory: OwnedFd,
    made: HashSet<PathBuf>,
}

impl Root {
    /// Mounts the tmpfs. `temp_bytes` is the most that the temporary directories may hold.
    pub(super) fn attach(temp_bytes: Option<u64>) -> Result<Self, StepError> {
        let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).step("tmpfs")?;
        let bytes = temp_bytes.unwrap_or(PLACES_BYTES);
        // Empty files take memory too.
        let (size, files) = (bytes.to_string(), (bytes / BYTES_PER_FILE + 4096).to_string());
        for (key, value) in [("size", size.as_str()), ("nr_inodes", files.as_str()), ("mode", "0755")] {
            rustix::mount::fsconfig_set_string(&context, key, value).step("tmpfs")?;
        }
        rustix::mount::fsconfig_create(&context).step("tmpfs")?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let mount =
            rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step("tmpfs")?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&mount, c"", CWD, ATTACHED_AT, flags).step("tmpfs")?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(ATTACHED_AT, flags, Mode::empty()).step("tmpfs")?;
        Ok(Self { directory, made: HashSet::new() })
    }

    /// Makes a directory with those above it. Those that exist stay.
    pub(super) fn make_directory(&mut self, path: &Path) -> Result<(), StepError> {
        let path = relative(path);
        if path.as_os_str().is_empty() || self.made.contains(path) {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.make_directory(parent)?;
        }
        match rustix::fs::mkdirat(&self.directory, path, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(failed("mount point", path, error)),
        }
        self.made.insert(path.to_owned());
        Ok(())
    }

    /// Makes an empty place for a mount.
    pub(super) fn make_place(&mut self, path: &Path, is_directory: bool) -> Result<(), StepError> {
        if is_directory {
            return self.make_directory(path);
        }
        self.write_file(path, b"", 0o444)
    }

    pub(super) fn write_file(&mut self, path: &Path, content: &[u8], mode: u32) -> Result<(), StepError> {
        let path = relative(path);
        if let Some(parent) = path.parent() {
            self.make_directory(parent)?;
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, path, flags, Mode::from_raw_mode(mode))
            .map_err(|error| failed("mount point", path, error))?;
        if !content.is_empty() {
            rustix::io::write(&file, content).map_err(|error| failed("mount point", path, error))?;
        }
        Ok(())
    }

    pub(super) fn make_link(&mut self, path: &Path, target: &std::ffi::OsStr) -> Result<(), StepError> {
        let path = relative(path);
        if let Some(parent) = path.parent() {
            self.make_directory(parent)?;
        }
        match rustix::fs::symlinkat(target, &self.directory, path) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(failed("link", path, error)),
        }
    }

    /// Mounts a tree at a place that exists. No link is followed on the way, since the place may lie in a directory
    /// that other fences write.
    pub(super) fn mount(&self, tree: &OwnedFd, path: &Path) -> Result<(), StepError> {
        let place = self.open(path).map_err(|error| failed("mount", path, error))?;
        mount_at(tree, &place).map_err(|error| failed("mount", path, error))
    }

    pub(super) fn open(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.directory, relative(path), flags, Mode::empty(), resolve)
    }

    /// Makes a directory for temporary files of any program. Returns a writable mount of it.
    pub(super) fn make_temporary(&mut self, path: &Path) -> Result<OwnedFd, StepError> {
        self.make_directory(path)?;
        let mode = Mode::from_raw_mode(0o1777);
        rustix::fs::chmodat(&self.directory, relative(path), mode, AtFlags::empty()).step("tmpfs")?;
        self.own_tree(path)
    }

    /// A copy of an own file or directory, to be mounted elsewhere.
    pub(super) fn own_tree(&self, path: &Path) -> Result<OwnedFd, StepError> {
        let name = CString::new(relative(path).as_os_str().as_encoded_bytes()).step("tmpfs")?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        rustix::mount::open_tree(&self.directory, &name, flags).step("copy of a mount")
    }

    /// Makes everything that is mounted in the root so far read-only. Mounts that follow are not affected.
    pub(super) fn make_mounts_read_only(&self) -> Result<(), StepError> {
        let root = Some(self.directory.as_fd());
        sys::mount_setattr(root, c"", READ_ONLY | NO_SETUID | NO_DEVICES, true).step("read-only mounts")?;
        // More places are made in the root itself.
        sys::mount_clear_attributes(root, c"", READ_ONLY).step("read-only mounts")
    }

    /// Makes the root itself read-only, when it has all its places.
    pub(super) fn make_read_only(&self) -> Result<(), StepError> {
        sys::mount_setattr(Some(self.directory.as_fd()), c"", READ_ONLY, false).step("read-only root")
    }

    /// Gives its descriptors numbers above this one.
    pub(super) fn above(self, number: i32) -> Result<Self, StepError> {
        let directory = rustix::io::fcntl_dupfd_cloexec(&self.directory, number).step("tmpfs")?;
        Ok(Self { directory, ..self })
    }

    /// Takes it away again.
    pub(super) fn detach(self) -> Result<(), StepError> {
        drop(self.directory);
        rustix::mount::unmount(ATTACHED_AT, UnmountFlags::DETACH).step("tmpfs")
    }

    /// Makes it the root of this process, and detaches the host's.
    pub(super) fn enter(self) -> Result<(), StepError> {
        rustix::process::fchdir(&self.directory).step("root")?;
        rustix::process::pivot_root(c".", c".").step("pivot_root")?;
        // The host's root now lies on top of the new one.
        rustix::mount::unmount(c".", UnmountFlags::DETACH).step("host's root")?;
        rustix::process::chdir(c"/").step("root")
    }
}

/// Mounts a tree at a place that is open.
pub(super) fn mount_at(tree: &OwnedFd, place: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, c"", place, c"", flags)
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn failed(step: &'static str, path: &Path, error: rustix::io::Errno) -> StepError {
    StepError::new(step, format!("{}: {error}", path.display()))
}
