//! The process that holds an overlay. It mounts the layers in namespaces of its own, where no other process finds the
//! mount, and hands out copies of the mount until its parent closes the channel or ends.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{CWD, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
};
use rustix::net::{RecvFlags, SendFlags};

use super::{InStep, StepError, namespaces, sys};
use crate::fd_passing;
use crate::overlay::{Layers, MAX_LAYERS, OVERLAY_FD};
use crate::paths::VettedDirectory;

/// Where the overlay is attached in the holder's own namespace.
const ATTACHED_AT: &str = "/tmp";

/// Serves requests until the parent closes the channel or ends.
pub(super) fn hold() -> ! {
    // Leave the parent's process group, so that the terminal's signals reach the parent only.
    let _ = rustix::process::setsid();
    let _ = sys::close_range(OVERLAY_FD.unsigned_abs() + 1, u32::MAX, false);
    // SAFETY: the descriptor was given to this process for its whole life.
    let channel = unsafe { BorrowedFd::borrow_raw(OVERLAY_FD) };
    match mount_layers(channel) {
        Ok(mount) => while give(channel, &mount) && wait_for_request(channel) {},
        Err(error) => {
            let reason: String = format!("{}: {}", error.step, error.reason).chars().take(250).collect();
            let _ = rustix::net::send(channel, reason.as_bytes(), SendFlags::NOSIGNAL);
        }
    }
    sys::exit(0)
}

fn mount_layers(channel: BorrowedFd<'_>) -> Result<OwnedFd, StepError> {
    let mut bytes = vec![0; MAX_LAYERS];
    let (length, _) = rustix::net::recv(channel, &mut bytes, RecvFlags::empty()).step("overlay")?;
    let layers: Layers = serde_json::from_slice(&bytes[..length]).step("overlay")?;
    namespaces::unshare_mounts().step("unshare")?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private).step("private mounts")?;
    let mount = mount_overlay(&layers)?;
    // Only a mount that is attached can be copied.
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(&mount, c"", CWD, ATTACHED_AT, flags).step("overlay")?;
    Ok(mount)
}

fn mount_overlay(layers: &Layers) -> Result<OwnedFd, StepError> {
    let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).step("overlay")?;
    let mut opened = Vec::new();
    for (key, layer) in [("lowerdir", &layers.lower), ("upperdir", &layers.upper), ("workdir", &layers.work)]
    {
        let directory = open(layer)?;
        // The descriptor's own name: a path would need escapes, and could lead elsewhere by now.
        let name = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        rustix::mount::fsconfig_set_string(&context, key, name).step("overlay")?;
        opened.push(directory);
    }
    rustix::mount::fsconfig_set_flag(&context, "userxattr").step("overlay")?;
    rustix::mount::fsconfig_create(&context).step("overlay")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step("overlay")
}

fn open(layer: &VettedDirectory) -> Result<OwnedFd, StepError> {
    let failed = |error| StepError::new("overlay", format!("{}: {error}", layer.path().display()));
    layer.open(OFlags::PATH).map_err(failed)
}

/// Sends a copy of the mount. Returns whether the parent is still there.
fn give(channel: BorrowedFd<'_>, mount: &OwnedFd) -> bool {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    match rustix::mount::open_tree(mount, c"", flags) {
        Ok(copy) => fd_passing::send(channel, b"+", &[copy.as_fd()]).is_ok(),
        Err(error) => rustix::net::send(channel, error.to_string().as_bytes(), SendFlags::NOSIGNAL).is_ok(),
    }
}

fn wait_for_request(channel: BorrowedFd<'_>) -> bool {
    let mut request = [0; 1];
    let received = rustix::io::retry_on_intr(|| rustix::net::recv(channel, &mut request, RecvFlags::empty()));
    received.is_ok_and(|(length, _)| length > 0)
}
