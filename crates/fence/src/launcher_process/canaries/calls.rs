//! Canaries for system calls that the filter refuses. Each is called so that the kernel would do nothing where it is not
//! refused.

use super::super::{StepError, sys};
use super::{expect, surprise};
use crate::ProtectionName as Name;
use crate::launch_request::LaunchRequest;
use crate::policy::Tier;

// What the kernel knows no meaning of, so that it does nothing.
const NO_CLASS: libc::c_long = 7 << 13;
const NO_KIND: libc::c_long = 9;
const IO_USER: libc::c_long = 3;

pub(super) fn use_kernel_interfaces(_: &LaunchRequest) -> Result<&'static [Name], StepError> {
    expect("io_uring_setup", sys::attempt(libc::SYS_io_uring_setup, [0, 0, 0, 0]), &[libc::ENOSYS])?;
    expect("keyctl", sys::attempt(libc::SYS_keyctl, [0, 0, 0, 0]), &[libc::EPERM])?;
    Ok(&[Name::IoUring, Name::Keyring])
}

/// Tier A: objects and priorities of other processes, which have no namespace there.
pub(super) fn reach_others_objects(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    if request.steps.tier == Tier::B {
        return Ok(&[]);
    }
    for (what, call) in [
        ("shmget", libc::SYS_shmget),
        ("shmat", libc::SYS_shmat),
        ("shmctl", libc::SYS_shmctl),
        ("semget", libc::SYS_semget),
        ("semop", libc::SYS_semop),
        ("semtimedop", libc::SYS_semtimedop),
        ("semctl", libc::SYS_semctl),
        ("msgget", libc::SYS_msgget),
        ("msgsnd", libc::SYS_msgsnd),
        ("msgrcv", libc::SYS_msgrcv),
        ("msgctl", libc::SYS_msgctl),
        ("mq_open", libc::SYS_mq_open),
        ("mq_unlink", libc::SYS_mq_unlink),
    ] {
        expect(what, sys::attempt(call, [-1, 0, 0, 0]), &[libc::EPERM])?;
    }
    let parent = request.parent.into();
    for (what, call, arguments) in [
        ("setpriority", libc::SYS_setpriority, [NO_KIND, parent, 0, 0]),
        ("ioprio_set", libc::SYS_ioprio_set, [IO_USER, 0, NO_CLASS, 0]),
        ("sched_setaffinity", libc::SYS_sched_setaffinity, [parent, 0, 0, 0]),
        ("sched_setscheduler", libc::SYS_sched_setscheduler, [parent, -1, 0, 0]),
    ] {
        expect(what, sys::attempt(call, arguments), &[libc::EPERM])?;
    }
    Ok(&[Name::SysvIpc, Name::SchedControl])
}

pub(super) fn nest_namespaces(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    if request.steps.seccomp.nested_userns {
        return Ok(&[]);
    }
    let user = libc::c_long::from(libc::CLONE_NEWUSER);
    expect("unshare", sys::attempt(libc::SYS_unshare, [user, 0, 0, 0]), &[libc::EPERM])?;
    Ok(&[Name::NestedUserns])
}

/// Memory of others was tried before the filter.
pub(super) fn debug(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    if !request.steps.seccomp.debug {
        expect("kcmp", sys::attempt(libc::SYS_kcmp, [0, 0, 0, 0]), &[libc::EPERM])?;
    }
    Ok(&[])
}

/// The 32-bit interface has other call numbers, so the filter kills a process that uses it.
#[cfg(target_arch = "x86_64")]
pub(super) fn foreign_calls_are_fatal() -> Result<(), StepError> {
    use rustix::process::WaitOptions;
    let child = sys::fork().map_err(|error| StepError::new("canary", error))?;
    if child == 0 {
        let result = sys::call_foreign_interface();
        // A kernel without that interface ends the process too, or says that it has no such call.
        sys::exit(i32::from(result > 0));
    }
    let status = rustix::process::waitpid(rustix::process::Pid::from_raw(child), WaitOptions::empty());
    match status {
        Ok(Some((_, status))) if status.terminating_signal().is_some() || status.exit_status() == Some(0) => {
            Ok(())
        }
        _ => Err(surprise("32-bit system call", "was not refused")),
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn foreign_calls_are_fatal() -> Result<(), StepError> {
    Ok(())
}
