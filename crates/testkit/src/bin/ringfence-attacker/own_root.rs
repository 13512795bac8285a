//! S01–S10: getting from the root that a fence made back to the host's, by changing mounts, by paths above the root, and
//! by what the kernel tells about mounts.

use std::ffi::CString;

use testkit::AttackStage;

use crate::files::{below, create, done};
use crate::row::Row;
use crate::supervisor::supervisor;
use crate::system::{Attempt, Errno, c_path, call};

pub(crate) const ROWS: &[Row] = &[
    ("S01", |stage| done(call!(libc::SYS_umount2, own_mount(stage), libc::MNT_DETACH))),
    ("S02", |stage| {
        done(call!(libc::SYS_mount, 0, own_mount(stage), 0, libc::MS_REMOUNT | libc::MS_BIND, 0))
    }),
    ("S03", make_writable),
    ("S04", move_copy),
    ("S05", |stage| {
        call!(libc::SYS_chdir, own_mount(stage))?;
        done(call!(libc::SYS_pivot_root, c".", c"."))
    }),
    ("S06", |stage| done(call!(libc::SYS_fspick, libc::AT_FDCWD, own_mount(stage), 0))),
    ("S07", above_root),
    ("S08", |stage| create(below(&format!("/proc/{}/root", supervisor()?), &stage.outside("s08")))),
    ("S09", |_| id_of_root_mount()),
    ("S10", describe_root_of_host),
];

/// Enters namespaces of its own and mounts something on the scope, so that a process without a fence may do what
/// follows without harm. A fence refuses that, and the attempt goes on with the mounts that the fence made.
fn own_mount(stage: &AttackStage) -> CString {
    let scope = c_path(&stage.scope);
    drop(call!(libc::SYS_unshare, libc::CLONE_NEWUSER | libc::CLONE_NEWNS));
    drop(call!(libc::SYS_mount, c"none", c"/", 0, libc::MS_REC | libc::MS_PRIVATE, 0));
    drop(call!(libc::SYS_mount, c"tmpfs", scope, c"tmpfs", 0, 0));
    scope
}

fn make_writable(stage: &AttackStage) -> Attempt {
    let scope = own_mount(stage);
    // `struct mount_attr`: attributes to set, to clear, propagation, user namespace.
    let attributes = [0, libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV, 0, 0];
    let size = size_of_val(&attributes);
    done(call!(libc::SYS_mount_setattr, libc::AT_FDCWD, scope, 0, attributes.as_ptr(), size))
}

/// Mounts a copy of the scope on itself; without a copy, tries to move the mount that is there.
fn move_copy(stage: &AttackStage) -> Attempt {
    const FROM_DESCRIPTOR: u32 = 4; // MOVE_MOUNT_F_EMPTY_PATH
    let scope = own_mount(stage);
    match call!(libc::SYS_open_tree, libc::AT_FDCWD, scope, libc::OPEN_TREE_CLONE) {
        Ok(copy) => done(call!(libc::SYS_move_mount, copy, c"", libc::AT_FDCWD, scope, FROM_DESCRIPTOR)),
        Err(_) => done(call!(libc::SYS_move_mount, libc::AT_FDCWD, scope, libc::AT_FDCWD, c"/tmp", 0)),
    }
}

fn above_root(stage: &AttackStage) -> Attempt {
    let up = "/..".repeat(40);
    create(below(&up, &stage.outside("s07")))
}

/// The number of the mount at `/`, which the test compares with that of the host.
fn id_of_root_mount() -> Attempt {
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    let is_root = |line: &&str| line.split(' ').nth(4) == Some("/");
    let line = table.lines().find(is_root).ok_or(Errno(libc::ENODATA))?;
    line.split(' ').next().map(str::to_owned).ok_or(Errno(libc::ENODATA))
}

/// Asks the kernel about the mount of the host's root, by its number.
fn describe_root_of_host(stage: &AttackStage) -> Attempt {
    const STATMOUNT: libc::c_long = 457;
    const BASIC: u64 = 2;
    // `struct mnt_id_req`: its size, the mount, what is asked for.
    let request = [24, stage.root_mount, BASIC];
    let mut answer = [0_u64; 128];
    done(call!(STATMOUNT, request.as_ptr(), answer.as_mut_ptr(), size_of_val(&answer), 0))
}
