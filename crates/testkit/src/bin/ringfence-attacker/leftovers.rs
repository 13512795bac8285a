//! Q11–Q13, Z4, Z5: leaving the limits of a fence, and leaving something behind: a control group, a core dump, a
//! set-id file, a file in another command's temporary directory.

use std::path::{Path, PathBuf};

use testkit::AttackStage;

use crate::files::{create, done, openat2};
use crate::row::Row;
use crate::system::{Attempt, Errno, Fork, c_path, call, fork, open, wait_for};

pub(crate) const ROWS: &[Row] = &[
    ("Q11", make_control_group),
    ("Q12", dump_core),
    ("Q13", |_| open(control_groups()?.join("cgroup.procs"), libc::O_WRONLY, 0).map(|_| String::new())),
    ("Z4", leave_set_id_files),
    ("Z5", write_into_other_temp),
];

/// Directories in which control groups can be made: version 2, or a hierarchy of version 1.
const CONTROL_GROUPS: [&str; 3] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup"];

fn make_control_group(stage: &AttackStage) -> Attempt {
    done(call!(libc::SYS_mkdir, c_path(control_groups()?.join(&stage.unique_name)), 0o700))
}

fn control_groups() -> Result<&'static Path, Errno> {
    CONTROL_GROUPS.into_iter().map(Path::new).find(|group| group.is_dir()).ok_or(Errno(libc::ENOENT))
}

fn dump_core(stage: &AttackStage) -> Attempt {
    call!(libc::SYS_chdir, c_path(&stage.scope))?;
    match fork()? {
        Fork::Child => {
            let mut limit = [0_u64; 2];
            drop(call!(libc::SYS_prlimit64, 0, libc::RLIMIT_CORE, 0, limit.as_mut_ptr()));
            let limit = [limit[1], limit[1]];
            drop(call!(libc::SYS_prlimit64, 0, libc::RLIMIT_CORE, limit.as_ptr(), 0));
            std::process::abort()
        }
        Fork::Parent { child } => {
            let status = wait_for(child)?;
            if libc::WCOREDUMP(status) { Ok(String::new()) } else { Err(Errno::NOTHING_GAINED) }
        }
    }
}

/// Sets the set-user-id bit in three ways: with `chmod`, when creating a file, and with `openat2`, whose mode a
/// filter does not see.
fn leave_set_id_files(stage: &AttackStage) -> Attempt {
    const MODE: u32 = 0o4755;
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
    call!(libc::SYS_umask, 0)?;
    let changed = call!(libc::SYS_chmod, c_path(stage.in_scope("z4-chmod")), MODE).map(drop);
    let created = open(stage.in_scope("z4-open"), flags, MODE).map(drop);
    let unseen = openat2(&stage.in_scope("z4-openat2"), flags, MODE.into()).map(drop);
    let answers = [("chmod", changed), ("open", created), ("openat2", unseen)];
    let succeeded: Vec<&str> =
        answers.iter().filter(|(_, answer)| answer.is_ok()).map(|(name, _)| *name).collect();
    match answers {
        [(_, Err(errno)), ..] if succeeded.is_empty() => Err(errno),
        _ => Ok(succeeded.join(" ")),
    }
}

/// Goes up through a chain of links, each one directory above the previous, and down again.
fn write_into_other_temp(stage: &AttackStage) -> Attempt {
    let depth = stage.scope.components().count();
    let mut path = PathBuf::from(&stage.scope);
    for step in 0..depth {
        let link = stage.in_scope(format!("z5-up-{step}"));
        let target = if step == 0 { "..".to_owned() } else { format!("z5-up-{}/..", step - 1) };
        call!(libc::SYS_symlink, c_path(target), c_path(&link))?;
        path = link;
    }
    let below_root = stage.other_temp.strip_prefix("/").map_err(|_| Errno(libc::EINVAL))?;
    create(path.join(below_root).join("z5"))
}
