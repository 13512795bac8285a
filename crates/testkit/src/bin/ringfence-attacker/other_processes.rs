//! P17–P23, P29–P32: signals, priorities, memory and namespaces of the victim, by the less usual calls.

use testkit::AttackStage;

use crate::administration::answered;
use crate::files::done;
use crate::row::Row;
use crate::system::{Attempt, Errno, call, write};

pub(crate) const ROWS: &[Row] = &[
    ("P17", |stage| done(call!(libc::SYS_tgkill, stage.victim.pid, stage.victim.pid, FIRST_SIGNAL))),
    ("P18", queue_signal),
    ("P19", signal_by_file),
    ("P20", |stage| done(call!(libc::SYS_setpriority, libc::PRIO_PROCESS, stage.victim.pid, 7))),
    ("P21", |stage| done(call!(libc::SYS_ioprio_set, OF_PROCESS, stage.victim.pid, LOWEST_PRIORITY))),
    ("P22", |stage| {
        let priority = 0_i32;
        done(call!(libc::SYS_sched_setscheduler, stage.victim.pid, libc::SCHED_BATCH, &raw const priority))
    }),
    ("P23", advise),
    ("P29", |stage| answered(call!(libc::SYS_move_pages, stage.victim.pid, 0, 0, 0, 0, 0))),
    ("P30", find_locks),
    ("P31", write_memory),
    ("P32", |stage| {
        let victim = call!(libc::SYS_pidfd_open, stage.victim.pid, 0)?;
        done(call!(libc::SYS_setns, victim, libc::CLONE_NEWUTS))
    }),
];

/// The victim counts this signal and the next two.
const FIRST_SIGNAL: i32 = 34;
/// `IOPRIO_WHO_PROCESS`, and the lowest priority of the best-effort class.
const OF_PROCESS: i32 = 1;
const LOWEST_PRIORITY: i32 = (2 << 13) | 7;

fn queue_signal(stage: &AttackStage) -> Attempt {
    // `siginfo_t`: signal, error, and the code of a signal that was queued by a process.
    let mut information = [0_i32; 32];
    information[0] = FIRST_SIGNAL + 1;
    information[2] = libc::SI_QUEUE;
    done(call!(libc::SYS_rt_sigqueueinfo, stage.victim.pid, FIRST_SIGNAL + 1, information.as_ptr()))
}

/// Makes the victim the owner of a pipe, whose owner the kernel signals when there is something to read.
fn signal_by_file(stage: &AttackStage) -> Attempt {
    let mut ends = [0_i32; 2];
    call!(libc::SYS_pipe2, ends.as_mut_ptr(), 0)?;
    call!(libc::SYS_fcntl, ends[0], libc::F_SETOWN, stage.victim.pid)?;
    call!(libc::SYS_fcntl, ends[0], SET_SIGNAL, FIRST_SIGNAL + 2)?;
    call!(libc::SYS_fcntl, ends[0], libc::F_SETFL, libc::O_ASYNC)?;
    write(ends[1], "P19")?;
    Ok(String::new())
}

const SET_SIGNAL: i32 = 10;

/// Has the kernel move the victim's memory out of its working set.
fn advise(stage: &AttackStage) -> Attempt {
    const PAGE: usize = 4096;
    let victim = call!(libc::SYS_pidfd_open, stage.victim.pid, 0)?;
    let range = [stage.victim.secret_address / PAGE * PAGE, PAGE];
    done(call!(libc::SYS_process_madvise, victim, range.as_ptr(), 1, libc::MADV_COLD, 0))
}

/// Learns an address in the victim's memory.
fn find_locks(stage: &AttackStage) -> Attempt {
    let (mut head, mut length) = (0_usize, 0_usize);
    done(call!(libc::SYS_get_robust_list, stage.victim.pid, &raw mut head, &raw mut length))
}

/// Writes what is there already, so that other rows find it.
fn write_memory(stage: &AttackStage) -> Attempt {
    let secret = testkit::MEMORY_SECRET;
    let local = [secret.as_ptr().addr(), secret.len()];
    let remote = [stage.victim.secret_address, secret.len()];
    match call!(libc::SYS_process_vm_writev, stage.victim.pid, local.as_ptr(), 1, remote.as_ptr(), 1, 0)? {
        0 => Err(Errno::NOTHING_GAINED),
        _ => Ok(String::new()),
    }
}
