//! F42–F51: changing files outside the scope by system calls that are easily forgotten.

use std::os::unix::fs::symlink;
use std::path::Path;

use testkit::AttackStage;

use crate::files::{create, done, overwrite};
use crate::row::Row;
use crate::system::{Attempt, Errno, c_path, call, open};

pub(crate) const ROWS: &[Row] = &[
    ("F42", |stage| rename_with(EXCHANGE, stage.in_scope("f42"), stage.outside("f42"))),
    ("F43", |stage| rename_with(WHITEOUT, stage.outside("f43"), stage.outside("f43-moved"))),
    ("F44", link_descriptor),
    ("F45", set_attribute_by_descriptor),
    ("F46", set_times_by_descriptor),
    ("F47", change_mode_by_descriptor),
    ("F48", set_flags),
    ("F49", open_mapped_file),
    ("F50", |stage| {
        symlink(stage.outside("f50"), stage.in_scope("f50-link"))?;
        done(open(stage.in_scope("f50-link"), libc::O_WRONLY | libc::O_CREAT, 0o600).map(i64::from))
    }),
    ("F51", take_lease),
];

const EXCHANGE: u32 = 2;
const WHITEOUT: u32 = 4;

fn rename_with(flags: u32, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Attempt {
    let (from, to) = (c_path(from), c_path(to));
    done(call!(libc::SYS_renameat2, libc::AT_FDCWD, from, libc::AT_FDCWD, to, flags))
}

/// Exchanges two files of one directory or of two.
pub(crate) fn exchange(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Attempt {
    rename_with(EXCHANGE, from, to)
}

fn link_descriptor(stage: &AttackStage) -> Attempt {
    create(stage.in_scope("f44"))?;
    let file = open(stage.in_scope("f44"), libc::O_RDONLY, 0)?;
    let to = c_path(stage.outside("f44"));
    done(call!(libc::SYS_linkat, file, c"", libc::AT_FDCWD, to, libc::AT_EMPTY_PATH))
}

/// Tries the newest call for attributes, and an old one where the kernel does not have it.
fn set_attribute_by_descriptor(stage: &AttackStage) -> Attempt {
    const SETXATTRAT: libc::c_long = 463;
    let file = open(stage.outside("f45"), libc::O_RDONLY, 0)?;
    let value = c"was here";
    // `struct xattr_args`: the value, its length, flags.
    let arguments = [value.as_ptr().addr() as u64, 8];
    let size = size_of_val(&arguments);
    let name = c"user.attacker";
    match call!(SETXATTRAT, file, c"", libc::AT_EMPTY_PATH, name, arguments.as_ptr(), size) {
        Err(Errno(libc::ENOSYS)) => done(call!(libc::SYS_fsetxattr, file, name, value, 8, 0)),
        answer => done(answer),
    }
}

fn set_times_by_descriptor(stage: &AttackStage) -> Attempt {
    let file = open(stage.outside("f46"), libc::O_RDONLY, 0)?;
    // Access and modification time: one second after the epoch.
    let times = [1_i64, 0, 1, 0];
    done(call!(libc::SYS_utimensat, file, 0, times.as_ptr(), 0))
}

fn change_mode_by_descriptor(stage: &AttackStage) -> Attempt {
    const FCHMODAT2: libc::c_long = 452;
    let file = open(stage.outside("f47"), libc::O_PATH, 0)?;
    done(call!(FCHMODAT2, file, c"", 0o777, libc::AT_EMPTY_PATH))
}

/// Marks a file as one that backups leave out.
fn set_flags(stage: &AttackStage) -> Attempt {
    const NO_DUMP: libc::c_int = 0x40;
    let file = open(stage.outside("f48"), libc::O_RDONLY, 0)?;
    let mut flags: libc::c_int = 0;
    call!(libc::SYS_ioctl, file, libc::FS_IOC_GETFLAGS, &raw mut flags)?;
    flags |= NO_DUMP;
    done(call!(libc::SYS_ioctl, file, libc::FS_IOC_SETFLAGS, &raw const flags))
}

/// Maps a file for reading, and opens the mapping's file for writing.
fn open_mapped_file(stage: &AttackStage) -> Attempt {
    const PAGE: i64 = 4096;
    let file = open(stage.outside("f49"), libc::O_RDONLY, 0)?;
    let start = call!(libc::SYS_mmap, 0, PAGE, libc::PROT_READ, libc::MAP_PRIVATE, file, 0)?;
    overwrite(format!("/proc/self/map_files/{start:x}-{:x}", start + PAGE))
}

/// Takes a lease, for which every other process that opens the file has to wait.
fn take_lease(stage: &AttackStage) -> Attempt {
    let file = open(stage.outside("f51"), libc::O_RDONLY, 0)?;
    done(call!(libc::SYS_fcntl, file, libc::F_SETLEASE, libc::F_WRLCK))
}
