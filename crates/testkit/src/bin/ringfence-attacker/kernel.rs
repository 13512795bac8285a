//! K01–K13, K17, K18: kernel interfaces that lead out of a sandbox or expose the kernel itself.

use testkit::AttackStage;

use crate::files::done;
use crate::ring;
use crate::row::Row;
use crate::system::{Attempt, Errno, c_path, call, in_child, leave, open, wait_for};

pub(crate) const ROWS: &[Row] = &[
    ("K01", |_| done(call!(libc::SYS_unshare, libc::CLONE_NEWUSER))),
    ("K02", mount_in_namespace),
    ("K03", pivot_in_namespace),
    ("K04", open_mounts),
    ("K05", |stage| done(call!(libc::SYS_chroot, c_path(&stage.scope)))),
    ("K06", enter_mount_namespace),
    ("K07", create_map),
    ("K08", count_events),
    ("K09", |_| done(call!(libc::SYS_userfaultfd, FAULTS_OF_USER_MODE))),
    ("K10", |_| ring::setup(&mut [0; 30]).map(|_| String::new())),
    ("K11", |_| done(call!(libc::SYS_personality, libc::ADDR_NO_RANDOMIZE))),
    ("K13", type_into_terminal),
    ("K17", open_by_handle),
    ("K18", |_| clone_with_structure()),
];

const FAULTS_OF_USER_MODE: i32 = 1;
const CREATE_MAP: i32 = 0;
const ARRAY_MAP: u32 = 2;

fn mount_in_namespace(stage: &AttackStage) -> Attempt {
    call!(libc::SYS_unshare, libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
    done(call!(libc::SYS_mount, c"tmpfs", c_path(&stage.scope), c"tmpfs", 0, 0))
}

/// Makes the scope the root of a namespace, which leaves behind every mount above it.
fn pivot_in_namespace(stage: &AttackStage) -> Attempt {
    call!(libc::SYS_unshare, libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
    let scope = c_path(&stage.scope);
    call!(libc::SYS_mount, c"none", c"/", 0, libc::MS_REC | libc::MS_PRIVATE, 0)?;
    call!(libc::SYS_mount, scope, scope, 0, libc::MS_BIND, 0)?;
    call!(libc::SYS_chdir, scope)?;
    done(call!(libc::SYS_pivot_root, c".", c"."))
}

/// Succeeds if either of two calls of the new mount interface does.
fn open_mounts(stage: &AttackStage) -> Attempt {
    let opened = call!(libc::SYS_fsopen, c"tmpfs", 0);
    let scope = c_path(&stage.scope);
    done(opened.or_else(|_| call!(libc::SYS_open_tree, libc::AT_FDCWD, scope, libc::OPEN_TREE_CLONE)))
}

fn enter_mount_namespace(_: &AttackStage) -> Attempt {
    let namespace = open("/proc/self/ns/mnt", libc::O_RDONLY, 0)?;
    done(call!(libc::SYS_setns, namespace, libc::CLONE_NEWNS))
}

fn create_map(_: &AttackStage) -> Attempt {
    // An array of one element: type, size of a key, size of a value, length.
    let mut attributes = [0_u32; 32];
    attributes[..4].copy_from_slice(&[ARRAY_MAP, 4, 4, 1]);
    done(call!(libc::SYS_bpf, CREATE_MAP, attributes.as_ptr(), size_of_val(&attributes)))
}

fn count_events(_: &AttackStage) -> Attempt {
    // A software clock, in user mode only: type, size, event, …, flags.
    let mut attributes = [0_u32; 32];
    attributes[0] = 1;
    attributes[1] = size_of_val(&attributes) as u32;
    attributes[10] = (1 << 5) | (1 << 6);
    done(call!(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0))
}

/// Tries a pipe first, where anything but `ENOTTY` comes from a filter, then a terminal of its own.
fn type_into_terminal(_: &AttackStage) -> Attempt {
    let mut ends = [0_i32; 2];
    call!(libc::SYS_pipe2, ends.as_mut_ptr(), 0)?;
    let byte = b'x';
    call!(libc::SYS_ioctl, ends[0], libc::TIOCSTI, &raw const byte).or_else(|errno| match errno {
        Errno(libc::ENOTTY) => Ok(0),
        errno => Err(errno),
    })?;
    let terminal = controlling_terminal()?;
    done(call!(libc::SYS_ioctl, terminal, libc::TIOCSTI, &raw const byte))
}

pub(crate) fn controlling_terminal() -> Result<i32, Errno> {
    let controller = open("/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY, 0)?;
    let (locked, mut number) = (0_i32, 0_u32);
    call!(libc::SYS_ioctl, controller, libc::TIOCSPTLCK, &raw const locked)?;
    call!(libc::SYS_ioctl, controller, libc::TIOCGPTN, &raw mut number)?;
    call!(libc::SYS_setsid)?;
    open(format!("/dev/pts/{number}"), libc::O_RDWR, 0)
}

fn open_by_handle(stage: &AttackStage) -> Attempt {
    // `struct file_handle`: the maximum length of the handle, its type, the handle.
    let mut handle = [0_u32; 34];
    handle[0] = 128;
    let mut mount = 0_i32;
    let path = c_path(stage.outside("k17"));
    let handle = handle.as_mut_ptr();
    call!(libc::SYS_name_to_handle_at, libc::AT_FDCWD, path, handle, &raw mut mount, 0)?;
    let directory = open(&stage.outside, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let file = call!(libc::SYS_open_by_handle_at, directory, handle, libc::O_RDONLY)?;
    crate::system::read(file as i32)
}

/// Forks with `clone3`, whose flags a filter cannot see.
pub(crate) fn clone_with_structure() -> Attempt {
    let mut arguments = [0_u64; 11];
    arguments[4] = libc::SIGCHLD as u64;
    let child = call!(libc::SYS_clone3, arguments.as_ptr(), size_of_val(&arguments))? as i32;
    if child == 0 {
        leave(0);
    }
    wait_for(child)?;
    Ok(String::new())
}

/// The Landlock ABI version, or 0 without Landlock.
pub(crate) fn landlock_abi() -> i64 {
    const VERSION: i32 = 1;
    call!(libc::SYS_landlock_create_ruleset, 0, 0, VERSION).unwrap_or(0)
}

/// Returns true if a user namespace can be created and something can be mounted in it.
pub(crate) fn has_user_namespaces() -> bool {
    let made = in_child(|| {
        call!(libc::SYS_unshare, libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWNET)?;
        call!(libc::SYS_mount, c"tmpfs", c"/proc", c"tmpfs", 0, 0).map(drop)
    });
    made.is_ok()
}
