//! P01–P16: looking into, disturbing and limiting a process outside. L01–L03: leaving a process behind.

use std::path::Path;

use testkit::{AttackStage, MEMORY_SECRET};

use crate::files::done;
use crate::reads::{contents, names};
use crate::row::Row;
use crate::system::{Attempt, Errno, call, leave, open, pause_for_ever, read, wait_for, write};

pub(crate) const ROWS: &[Row] = &[
    ("P01", |stage| contents(of_victim(stage, "environ"))),
    ("P02", |stage| contents(of_victim(stage, "cmdline"))),
    ("P03", read_memory_file),
    ("P04", |stage| names(Path::new(&of_victim(stage, "fd")))),
    ("P05", trace),
    ("P06", read_memory),
    ("P07", take_descriptor),
    ("P08", |stage| done(call!(libc::SYS_kill, stage.victim.pid, 0))),
    ("P09", |stage| done(call!(libc::SYS_kill, stage.victim.pid, libc::SIGUSR1))),
    ("P10", signal_by_descriptor),
    ("P11", lower_limit),
    ("P13", pin),
    ("P14", |stage| write_to(&of_victim(stage, "oom_score_adj"), "500")),
    ("P15", compare),
    ("P16", |stage| contents(of_victim(stage, "stat"))),
    ("L01", |stage| leave_behind(stage, "l01", Orphan::Waiting)),
    ("L02", |stage| leave_behind(stage, "l02", Orphan::Sibling)),
    ("L03", |stage| leave_behind(stage, "l03", Orphan::Stopped)),
];

const COMPARE_MEMORY: i32 = 1;

fn of_victim(stage: &AttackStage, file: &str) -> String {
    format!("/proc/{}/{file}", stage.victim.pid)
}

fn read_memory_file(stage: &AttackStage) -> Attempt {
    let memory = open(of_victim(stage, "mem"), libc::O_RDONLY, 0)?;
    call!(libc::SYS_lseek, memory, stage.victim.secret_address, libc::SEEK_SET)?;
    let mut secret = [0_u8; MEMORY_SECRET.len()];
    call!(libc::SYS_read, memory, secret.as_mut_ptr(), secret.len())?;
    Ok(String::from_utf8_lossy(&secret).into_owned())
}

fn trace(stage: &AttackStage) -> Attempt {
    let victim = stage.victim.pid;
    call!(libc::SYS_ptrace, libc::PTRACE_ATTACH, victim, 0, 0)?;
    wait_for(victim)?;
    done(call!(libc::SYS_ptrace, libc::PTRACE_DETACH, victim, 0, 0))
}

fn read_memory(stage: &AttackStage) -> Attempt {
    let mut secret = [0_u8; MEMORY_SECRET.len()];
    let local = [secret.as_mut_ptr().addr(), secret.len()];
    let remote = [stage.victim.secret_address, secret.len()];
    let victim = stage.victim.pid;
    call!(libc::SYS_process_vm_readv, victim, local.as_ptr(), 1, remote.as_ptr(), 1, 0)?;
    Ok(String::from_utf8_lossy(&secret).into_owned())
}

fn take_descriptor(stage: &AttackStage) -> Attempt {
    let victim = call!(libc::SYS_pidfd_open, stage.victim.pid, 0)?;
    done(call!(libc::SYS_pidfd_getfd, victim, 0, 0))
}

fn signal_by_descriptor(stage: &AttackStage) -> Attempt {
    let victim = call!(libc::SYS_pidfd_open, stage.victim.pid, 0)?;
    done(call!(libc::SYS_pidfd_send_signal, victim, libc::SIGUSR2, 0, 0))
}

fn lower_limit(stage: &AttackStage) -> Attempt {
    let limit = [77_u64, 77];
    done(call!(libc::SYS_prlimit64, stage.victim.pid, libc::RLIMIT_NOFILE, limit.as_ptr(), 0))
}

/// Pins the victim to the first core that this process may use.
fn pin(stage: &AttackStage) -> Attempt {
    let mut cores = [0_u64; 16];
    call!(libc::SYS_sched_getaffinity, 0, size_of_val(&cores), cores.as_mut_ptr())?;
    let word = cores.iter().position(|word| *word != 0).ok_or(Errno::NOTHING_GAINED)?;
    let first = 1 << cores[word].trailing_zeros();
    cores = [0; 16];
    cores[word] = first;
    done(call!(libc::SYS_sched_setaffinity, stage.victim.pid, size_of_val(&cores), cores.as_ptr()))
}

fn compare(stage: &AttackStage) -> Attempt {
    done(call!(libc::SYS_kcmp, std::process::id(), stage.victim.pid, COMPARE_MEMORY, 0, 0))
}

pub(crate) fn write_to(path: &str, text: &str) -> Attempt {
    write(open(path, libc::O_WRONLY, 0)?, text)?;
    Ok(String::new())
}

/// A process that is left behind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Orphan {
    Waiting,
    /// A child of its maker's parent.
    Sibling,
    /// Stopped, so that it notices no signal but the one that kills.
    Stopped,
}

/// Leaves a process behind, in its own session and without a parent. It holds a lock for as long as it lives, so that
/// the test can see whether it does.
fn leave_behind(stage: &AttackStage, lock: &str, kind: Orphan) -> Attempt {
    let lock = stage.in_scope(lock);
    let mut ends = [0_i32; 2];
    call!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC)?;
    let [pids, pid] = ends;
    let parent = if kind == Orphan::Sibling { libc::CLONE_PARENT } else { 0 };
    let child = call!(libc::SYS_clone, parent | libc::SIGCHLD, 0, 0, 0, 0)?;
    if child > 0 {
        return read(pids);
    }
    let left = call!(libc::SYS_setsid).and_then(|_| take_lock(&lock));
    // The C library knows the number of the parent only.
    let number = call!(libc::SYS_getpid)?;
    let text = left.as_ref().map_or_else(Errno::to_string, |_| number.to_string());
    drop(write(pid, &text));
    let Ok(lock) = left else { leave(1) };
    close_all_but(lock);
    if kind == Orphan::Stopped {
        drop(call!(libc::SYS_kill, number, libc::SIGSTOP));
    }
    pause_for_ever()
}

/// Locks a file and returns its descriptor; the lock lasts until the descriptor is closed.
pub(crate) fn take_lock(path: &Path) -> Result<i32, Errno> {
    let lock = open(path, libc::O_RDWR | libc::O_CREAT, 0o666)?;
    call!(libc::SYS_flock, lock, libc::LOCK_EX | libc::LOCK_NB)?;
    Ok(lock)
}

pub(crate) fn close_all_but(kept: i32) {
    if kept > 0 {
        drop(call!(libc::SYS_close_range, 0, kept - 1, 0));
    }
    drop(call!(libc::SYS_close_range, kept + 1, u32::MAX, 0));
}
