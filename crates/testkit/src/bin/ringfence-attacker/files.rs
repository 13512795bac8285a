//! F01–F39: writing outside the scope.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::AttackStage;

use crate::row::Row;
use crate::system::{Attempt, Errno, c_path, call, close, open, write};
use crate::{network, ring};

pub(crate) const ROWS: &[Row] = &[
    ("F01", |stage| create(stage.outside("f01"))),
    ("F02", |stage| opened(stage.outside("f02"), libc::O_WRONLY | libc::O_TRUNC)),
    ("F03", |stage| opened(stage.outside("f03"), libc::O_RDONLY | libc::O_TRUNC)),
    ("F04", |stage| done(call!(libc::SYS_truncate, c_path(stage.outside("f04")), 0))),
    ("F05", |stage| overwrite(stage.outside("f05"))),
    ("F06", |stage| done(call!(libc::SYS_unlink, c_path(stage.outside("f06"))))),
    ("F07", |stage| rename(stage.in_scope("f07"), stage.outside("f07"))),
    ("F08", |stage| rename(stage.outside("f08"), stage.in_scope("f08"))),
    ("F10", |stage| done(call!(libc::SYS_link, c_path(stage.outside("f10")), c_path(stage.in_scope("f10"))))),
    ("F11", |stage| overwrite(stage.in_scope("f11"))),
    ("F12", |stage| overwrite(stage.in_scope("f12-link"))),
    ("F13", |stage| create(stage.in_scope("outside-link/f13"))),
    ("F14", |stage| create(stage.in_scope("../outside/f14"))),
    ("F15", |stage| create(below("/proc/self/root", &stage.outside("f15")))),
    ("F16", through_working_directory),
    ("F17", |stage| create(below(&format!("/proc/{}/root", stage.victim.pid), &stage.outside("f17")))),
    ("F18", |stage| create(format!("/proc/{}/cwd/f18", stage.victim.pid))),
    ("F20", |stage| written(stage.inherited.file)),
    ("F21", |stage| done(call!(libc::SYS_mkdir, c_path(stage.outside("f21")), 0o700))),
    ("F22", |stage| done(call!(libc::SYS_rmdir, c_path(stage.outside("f22"))))),
    ("F23", |stage| make_node(&stage.outside("f23"), libc::S_IFIFO | 0o600, 0)),
    ("F24", |stage| done(call!(libc::SYS_symlink, c"/etc/passwd", c_path(stage.outside("f24"))))),
    ("F25", |stage| network::bind_unix(&stage.outside("f25"))),
    ("F26", |stage| done(call!(libc::SYS_chmod, c_path(stage.outside("f26")), 0o777))),
    ("F27", set_times),
    ("F28", set_attribute),
    ("F29", change_owner),
    ("F30", lock),
    ("F31", unnamed_file),
    ("F32", |stage| make_node(&stage.in_scope("f32"), libc::S_IFCHR | 0o600, libc::makedev(1, 3))),
    ("F33", |stage| openat2(&stage.outside("f33"), libc::O_WRONLY | libc::O_CREAT, 0o600).map(nothing)),
    ("F34", |stage| ring::open(&stage.outside("f34"), libc::O_WRONLY | libc::O_CREAT, 0o600).map(nothing)),
    ("F36", |stage| create(Path::new("/dev/shm").join(&stage.unique_name))),
    ("F37", |stage| create(Path::new("/tmp").join(&stage.unique_name))),
    ("F38", |stage| create(Path::new("/var/tmp").join(&stage.unique_name))),
    ("F39", execute_from_memory),
];

const TEXT: &str = "written by the attacker\n";

pub(crate) fn create(path: impl AsRef<Path>) -> Attempt {
    written(open(path, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o600)?)
}

pub(crate) fn overwrite(path: impl AsRef<Path>) -> Attempt {
    written(open(path, libc::O_WRONLY | libc::O_APPEND, 0)?)
}

pub(crate) fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Attempt {
    done(call!(libc::SYS_rename, c_path(from), c_path(to)))
}

pub(crate) fn openat2(path: &Path, flags: i32, mode: u64) -> Result<i32, Errno> {
    let how = [flags as u64, mode, 0];
    let size = size_of_val(&how);
    Ok(call!(libc::SYS_openat2, libc::AT_FDCWD, c_path(path), how.as_ptr(), size)? as i32)
}

/// Turns any success into one without detail.
pub(crate) fn done(answer: Result<i64, Errno>) -> Attempt {
    answer.map(|_| String::new())
}

fn nothing(_descriptor: i32) -> String {
    String::new()
}

fn written(descriptor: i32) -> Attempt {
    write(descriptor, TEXT)?;
    close(descriptor);
    Ok(String::new())
}

fn opened(path: impl AsRef<Path>, flags: i32) -> Attempt {
    open(path, flags, 0).map(nothing)
}

/// An absolute path, moved below another root.
pub(crate) fn below(root: &str, path: &Path) -> PathBuf {
    Path::new(root).join(path.strip_prefix("/").expect("paths of the stage are absolute"))
}

fn through_working_directory(stage: &AttackStage) -> Attempt {
    call!(libc::SYS_chdir, c_path(&stage.scope))?;
    create("/proc/self/cwd/../outside/f16")
}

fn make_node(path: &Path, mode: u32, device: u64) -> Attempt {
    done(call!(libc::SYS_mknod, c_path(path), mode, device))
}

fn set_times(stage: &AttackStage) -> Attempt {
    // Access and modification time: one second after the epoch.
    let times = [1_i64, 0, 1, 0];
    done(call!(libc::SYS_utimensat, libc::AT_FDCWD, c_path(stage.outside("f27")), times.as_ptr(), 0))
}

fn set_attribute(stage: &AttackStage) -> Attempt {
    let path = c_path(stage.outside("f28"));
    done(call!(libc::SYS_setxattr, path, c"user.attacker", c"was here", 8, 0))
}

fn change_owner(stage: &AttackStage) -> Attempt {
    let (user, group) = (call!(libc::SYS_getuid)?, call!(libc::SYS_getgid)?);
    done(call!(libc::SYS_chown, c_path(stage.outside("f29")), user, group))
}

fn lock(stage: &AttackStage) -> Attempt {
    let file = open(stage.outside("f30"), libc::O_RDONLY, 0)?;
    done(call!(libc::SYS_flock, file, libc::LOCK_EX | libc::LOCK_NB))
}

/// Creates a file without a name, and then links it to one.
fn unnamed_file(stage: &AttackStage) -> Attempt {
    let file = open(&stage.outside, libc::O_TMPFILE | libc::O_WRONLY, 0o600)?;
    let (from, to) = (c_path(format!("/proc/self/fd/{file}")), c_path(stage.outside("f31")));
    done(call!(libc::SYS_linkat, libc::AT_FDCWD, from, libc::AT_FDCWD, to, libc::AT_SYMLINK_FOLLOW))
}

/// Runs this program from memory, which then tries to create a file outside. Running it is the success; the test
/// checks whether the file exists.
fn execute_from_memory(stage: &AttackStage) -> Attempt {
    let memory = call!(libc::SYS_memfd_create, c"attacker", 0)? as i32;
    let path = format!("/proc/self/fd/{memory}");
    std::fs::copy("/proc/self/exe", &path)?;
    let status = Command::new(&path).arg("touch").arg(stage.outside("f39")).status()?;
    status.code().map(|code| Errno(code).to_string()).ok_or(Errno(libc::EIO))
}
