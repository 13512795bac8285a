//! I01–I13: shared memory, message queues, semaphores and keys that belong to others.

use std::path::Path;

use testkit::AttackStage;

use crate::administration::answered;
use crate::files::done;
use crate::reads::contents;
use crate::row::Row;
use crate::system::{Attempt, Errno, call};

pub(crate) const ROWS: &[Row] = &[
    ("I01", attach_segment),
    ("I02", send_to_queue),
    ("I03", |_| done(call!(libc::SYS_keyctl, GET_KEYRING_ID, SESSION_KEYRING, 0))),
    ("I04", |_| done(call!(libc::SYS_add_key, c"user", c"attacker", c"secret".as_ptr(), 6, PROCESS_KEYRING))),
    ("I05", |stage| done(call!(libc::SYS_msgsnd, stage.victim.queues.written, MESSAGE.as_ptr(), 1, 0))),
    ("I06", receive_message),
    ("I07", |stage| done(call!(libc::SYS_semop, stage.victim.semaphore, TAKE.as_ptr(), 1))),
    ("I08", |stage| done(call!(libc::SYS_msgctl, stage.victim.queues.removed, libc::IPC_RMID, 0))),
    ("I09", remove_queue_by_name),
    ("I10", find_segment),
    ("I11", |stage| done(call!(libc::SYS_semctl, stage.victim.semaphore, 0, libc::GETVAL, 0))),
    ("I12", |stage| contents(Path::new("/dev/shm").join(&stage.victim.shared_object))),
    ("I13", |_| answered(call!(libc::SYS_request_key, c"user", c"attacker", 0, PROCESS_KEYRING))),
];

/// A `struct msgbuf` of type 1 with one character.
const MESSAGE: &[i64] = &[1, 0];
/// A `struct sembuf` that takes 1 from the first semaphore and does not wait.
const TAKE: &[i16] = &[0, -1, 0o4000];

const GET_KEYRING_ID: i32 = 0;
const PROCESS_KEYRING: i32 = -2;
const SESSION_KEYRING: i32 = -3;

/// Reads the segment of the victim, and writes into it.
fn attach_segment(stage: &AttackStage) -> Attempt {
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of Rust's.
    let segment = unsafe { libc::shmat(stage.victim.shared_memory, std::ptr::null(), 0) };
    if segment.addr() == usize::MAX {
        return Err(Errno::last());
    }
    // SAFETY: the victim made the segment one page long, and ends its text with a zero.
    let text = unsafe { std::ffi::CStr::from_ptr(segment.cast()) }.to_string_lossy().into_owned();
    // SAFETY: as above; nothing borrows from the segment any more.
    unsafe { segment.cast::<u8>().write_volatile(b'!') };
    Ok(text)
}

fn send_to_queue(stage: &AttackStage) -> Attempt {
    let name = std::ffi::CString::new(stage.victim.queue.as_str()).map_err(|_| Errno(libc::EINVAL))?;
    // Unlike the function of libc, the system call takes the name without its slash.
    let queue = call!(libc::SYS_mq_open, name, libc::O_RDWR, 0, 0)?;
    done(call!(libc::SYS_mq_timedsend, queue, c"I02".as_ptr(), 3, 0, 0))
}

fn receive_message(stage: &AttackStage) -> Attempt {
    let mut message = [0_i64; 2];
    let queue = stage.victim.queues.read;
    done(call!(libc::SYS_msgrcv, queue, message.as_mut_ptr(), 1, 0, libc::IPC_NOWAIT))
}

fn remove_queue_by_name(stage: &AttackStage) -> Attempt {
    let name =
        std::ffi::CString::new(stage.victim.removed_queue.as_str()).map_err(|_| Errno(libc::EINVAL))?;
    done(call!(libc::SYS_mq_unlink, name))
}

/// Looks for the victim's segment among all that the kernel lists.
fn find_segment(stage: &AttackStage) -> Attempt {
    let table = std::fs::read_to_string("/proc/sysvipc/shm")?;
    let id = stage.victim.shared_memory.to_string();
    let is_listed = table.lines().any(|line| line.split_whitespace().nth(1) == Some(&id));
    if is_listed { Ok(String::new()) } else { Err(Errno::NOTHING_GAINED) }
}
