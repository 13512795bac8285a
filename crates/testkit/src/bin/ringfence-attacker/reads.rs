//! R01–R09: reading, and learning about, the caller's files in `~/.ssh`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use testkit::AttackStage;

use crate::files::below;
use crate::ring;
use crate::row::Row;
use crate::system::{Attempt, c_path, call, open, read};

pub(crate) const ROWS: &[Row] = &[
    ("R01", |stage| contents(stage.private_key())),
    ("R02", |stage| names(&stage.home.join(".ssh"))),
    ("R03", |stage| identity(&stage.private_key())),
    ("R04", watch),
    ("R05", |stage| contents(below("/proc/self/root", &stage.private_key()))),
    ("R06", |stage| contents(stage.in_scope("r06-link"))),
    ("R07", open_as_path),
    ("R08", attribute),
    ("R09", |stage| read(ring::open(&stage.private_key(), libc::O_RDONLY, 0)?)),
];

pub(crate) fn contents(path: impl AsRef<Path>) -> Attempt {
    read(open(path, libc::O_RDONLY, 0)?)
}

pub(crate) fn names(directory: &Path) -> Attempt {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names.join(" "))
}

/// Device and inode, which the test compares with the file's own from outside.
fn identity(path: &Path) -> Attempt {
    let metadata = std::fs::metadata(path)?;
    Ok(format!("{}:{}", metadata.dev(), metadata.ino()))
}

fn watch(stage: &AttackStage) -> Attempt {
    let directory = stage.home.join(".ssh");
    let watcher = call!(libc::SYS_inotify_init1, 0)? as i32;
    call!(libc::SYS_inotify_add_watch, watcher, c_path(&directory), libc::IN_ALL_EVENTS)?;
    identity(&directory)
}

fn open_as_path(stage: &AttackStage) -> Attempt {
    let file = open(stage.private_key(), libc::O_PATH, 0)?;
    identity(Path::new(&format!("/proc/self/fd/{file}")))
}

fn attribute(stage: &AttackStage) -> Attempt {
    let mut value = [0_u8; 100];
    let path = c_path(stage.private_key());
    let length = call!(libc::SYS_getxattr, path, c"user.secret", value.as_mut_ptr(), value.len())?;
    Ok(String::from_utf8_lossy(&value[..length as usize]).into_owned())
}
