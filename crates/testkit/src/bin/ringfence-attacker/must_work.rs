//! F40, F41, N19, K14, K15: operations that must work, and properties that must hold, inside every fence.

use testkit::AttackStage;

use crate::files::{create, rename};
use crate::row::Row;
use crate::system::{Attempt, Errno, call, read, write};

pub(crate) const ROWS: &[Row] = &[
    ("F40", |stage| create(stage.in_scope("f40"))),
    ("F41", rename_directories),
    ("N19", |_| pair_of_sockets()),
    ("K14", |_| no_new_privileges()),
    ("K15", |_| no_capabilities(&["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"])),
    ("K15b", |_| no_capabilities(&["CapBnd:"])),
];

fn rename_directories(stage: &AttackStage) -> Attempt {
    for directory in ["f41-a", "f41-a/moved", "f41-b"] {
        std::fs::create_dir(stage.in_scope(directory))?;
    }
    create(stage.in_scope("f41-a/moved/file"))?;
    rename(stage.in_scope("f41-a/moved"), stage.in_scope("f41-b/moved"))
}

fn pair_of_sockets() -> Attempt {
    let mut ends = [0_i32; 2];
    call!(libc::SYS_socketpair, libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr())?;
    write(ends[0], "N19")?;
    read(ends[1])
}

fn no_new_privileges() -> Attempt {
    match status_field("NoNewPrivs:")?.as_str() {
        "1" => Ok(String::new()),
        _ => Err(Errno::NOTHING_GAINED),
    }
}

fn no_capabilities(sets: &[&str]) -> Attempt {
    for set in sets {
        if status_field(set)?.bytes().any(|digit| digit != b'0') {
            return Err(Errno::NOTHING_GAINED);
        }
    }
    Ok(String::new())
}

pub(crate) fn effective_capabilities() -> Result<String, Errno> {
    status_field("CapEff:")
}

fn status_field(name: &str) -> Result<String, Errno> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let value = status.lines().find_map(|line| line.strip_prefix(name)).ok_or(Errno(libc::ENODATA))?;
    Ok(value.trim().to_owned())
}
