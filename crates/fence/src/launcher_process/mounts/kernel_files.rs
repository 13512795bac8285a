//! The kernel's own file systems in the command's root: `/proc`, `/sys` and `/dev`.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use super::super::{InStep, StepError, sys};
use super::root::Root;
use super::{NO_EXECUTION, NO_SETUID, READ_ONLY, copy_of};
use crate::plan::{NamespacePlan, NetworkNamespace};

/// Devices that programs take for granted.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Links that programs take for granted.
const DEVICE_LINKS: &[(&str, &str)] = &[
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

const TERMINALS: &str = "/dev/pts";

/// The parts of `/proc` that are about the whole host. Root could change them without capabilities.
const HOST_IN_PROC: &[&str] = &["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];

/// Mounts the `/proc` of the new pid namespace. It is read-only, unless programs inside make user namespaces, for
/// which they write their own maps there.
pub(super) fn mount_proc(is_writable: bool, root: &Root) -> Result<(), StepError> {
    let proc = new("proc", &[]).step("proc")?;
    if !is_writable {
        sys::mount_setattr(Some(proc.as_fd()), c"", READ_ONLY, false).step("proc")?;
        return root.mount(&proc, Path::new("/proc"));
    }
    root.mount(&proc, Path::new("/proc"))?;
    for path in HOST_IN_PROC {
        make_read_only(root, Path::new(path))?;
    }
    Ok(())
}

/// A new instance of one of the kernel's file systems, which shows only what these namespaces hold.
fn new(kind: &str, options: &[(&str, &str)]) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(&context, *key, *value)?;
    }
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let attributes =
        if kind == "devpts" { attributes } else { attributes | MountAttrFlags::MOUNT_ATTR_NODEV };
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Makes a fresh `/sys` where all of it is to be seen. The host's would show its network interfaces.
pub(super) fn mount_sys(plan: &NamespacePlan, root: &Root) -> Result<(), StepError> {
    if !plan.whole_sys {
        return Ok(());
    }
    let fresh = match plan.network {
        // A fresh one needs a network namespace of its own.
        NetworkNamespace::Shared => copy_of(CWD, c"/sys"),
        _ => new("sysfs", &[]).or_else(|_| copy_of(CWD, c"/sys")),
    };
    root.mount(&fresh.step("sys")?, Path::new("/sys"))
}

/// Opens the devices of the host that the command gets.
pub(super) fn open_devices() -> Vec<(&'static Path, OwnedFd)> {
    let open = |path: &'static Path| {
        let device = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        device.ok().map(|device| (path, device))
    };
    DEVICES.iter().filter_map(|path| open(Path::new(path))).collect()
}

pub(super) fn make_device_places(
    devices: &[(&'static Path, OwnedFd)],
    plan: &NamespacePlan,
    root: &mut Root,
) -> Result<(), StepError> {
    for (path, _) in devices {
        root.make_place(path, false)?;
    }
    for (path, target) in DEVICE_LINKS {
        root.make_link(Path::new(path), OsStr::new(target))?;
    }
    root.make_directory(Path::new("/dev/shm"))?;
    if plan.terminals {
        root.make_directory(Path::new(TERMINALS))?;
        root.make_link(Path::new("/dev/ptmx"), OsStr::new("pts/ptmx"))?;
    }
    Ok(())
}

/// Mounts the devices, after the root was made read-only and its other mounts without devices.
pub(super) fn mount_devices(
    devices: &[(&'static Path, OwnedFd)],
    plan: &NamespacePlan,
    root: &Root,
) -> Result<(), StepError> {
    for (path, device) in devices {
        let copy = copy_of(device, c"").step("device")?;
        sys::mount_setattr(Some(copy.as_fd()), c"", NO_SETUID | NO_EXECUTION, false).step("device")?;
        root.mount(&copy, path)?;
    }
    if plan.terminals {
        // Terminals of its own: those of the host belong to other programs of this user.
        let terminals = new("devpts", &[("ptmxmode", "0666"), ("mode", "0620")]).step("terminals")?;
        root.mount(&terminals, Path::new(TERMINALS))?;
    }
    Ok(())
}

fn make_read_only(root: &Root, path: &Path) -> Result<(), StepError> {
    // Not every kernel has every one of them.
    let Ok(place) = root.open(path) else { return Ok(()) };
    let copy = copy_of(place, c"").step("proc")?;
    sys::mount_setattr(Some(copy.as_fd()), c"", READ_ONLY, false).step("proc")?;
    root.mount(&copy, path)
}
