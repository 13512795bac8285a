//! D01–D10: settings of the kernel in `/proc` and `/sys`, devices and terminals, and descriptors that `/proc` opens
//! again. Settings are opened and never written.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use testkit::AttackStage;

use crate::files::{done, overwrite};
use crate::row::Row;
use crate::system::{Attempt, Errno, c_path, call, open, write};

pub(crate) const ROWS: &[Row] = &[
    ("D01", |_| opened_for_writing(&["/proc/sys/kernel/core_pattern"])),
    ("D02", |_| opened_for_writing(&["/proc/sys/net/ipv4/ip_unprivileged_port_start"])),
    ("D03", |_| opened_for_writing(&["/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/proc/mtrr"])),
    ("D04", |_| opened_for_writing(&["/dev/kmsg"])),
    ("D05", |_| opened_for_writing(SYSTEM_SETTINGS)),
    ("D06", |_| read_disk()),
    ("D07", make_disk),
    ("D08", write_to_terminal),
    ("D09", open_again),
    ("D10", truncate_by_descriptor),
];

const SYSTEM_SETTINGS: &[&str] =
    &["/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/uevent_seqnum", "/sys/power/state"];

/// Opens the first of these files that exists.
fn opened_for_writing(paths: &[&str]) -> Attempt {
    let exists = |path: &&&str| Path::new(path).symlink_metadata().is_ok();
    let path = paths.iter().find(exists).or(paths.last()).ok_or(Errno(libc::ENOENT))?;
    open(path, libc::O_WRONLY, 0).map(|_| String::new())
}

/// Opens the first block device for reading, which shows files beneath every rule about paths.
fn read_disk() -> Attempt {
    let is_disk =
        |path: &PathBuf| path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device());
    let mut devices = std::fs::read_dir("/dev")?.flatten().map(|entry| entry.path());
    let disk = devices.find(is_disk).ok_or(Errno(libc::ENOENT))?;
    open(disk, libc::O_RDONLY, 0).map(|_| String::new())
}

/// Makes the device of the disk with the scope.
fn make_disk(stage: &AttackStage) -> Attempt {
    let device = stage.scope.metadata()?.dev();
    done(call!(libc::SYS_mknod, c_path(stage.in_scope("d07")), libc::S_IFBLK | 0o600, device))
}

fn write_to_terminal(stage: &AttackStage) -> Attempt {
    write(open(&stage.victim.terminal, libc::O_WRONLY | libc::O_NOCTTY, 0)?, "D08")?;
    Ok(String::new())
}

/// Opens a file for reading, and then the descriptor for writing.
fn open_again(stage: &AttackStage) -> Attempt {
    let file = open(stage.outside("d09"), libc::O_RDONLY, 0)?;
    overwrite(format!("/proc/self/fd/{file}"))
}

/// Truncates what a descriptor without any rights stands for.
fn truncate_by_descriptor(stage: &AttackStage) -> Attempt {
    let file = open(stage.outside("d10"), libc::O_PATH, 0)?;
    done(call!(libc::SYS_truncate, c_path(format!("/proc/self/fd/{file}")), 0))
}
