//! Changes what the command would inherit from this process: terminal, signals, descriptors, keys, capabilities, limits
//! and control groups.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::Access;
use rustix::process::{Gid, Resource, Rlimit, Signal, Uid};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use super::{InStep, StepError, sys};
use crate::ProtectionName;
use crate::launch_request::{CGROUP_FD, LaunchRequest};
use crate::plan::{LimitPlan, Steps};

/// Capabilities exist up to this number, with room for new ones.
const LAST_CAPABILITY: u32 = 63;

const LAST_SIGNAL: i32 = 64;

/// Closes descriptors that the parent leaked.
pub(super) fn close_surplus(request: &LaunchRequest) -> Result<(), StepError> {
    sys::close_range(request.passed_files().end.unsigned_abs(), u32::MAX, false).step("close_range")
}

/// Starts a session without a terminal, with default signals and a strict umask.
pub(super) fn leave_terminal_and_signals() -> Result<(), StepError> {
    rustix::process::setsid().step("setsid")?;
    // Inherited from a parent that ignores it, this would hide the end of the command.
    sys::reset_signals([libc::SIGCHLD]);
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    Ok(())
}

/// Fails if the parent that sent the request has ended.
pub(super) fn check_parent(request: &LaunchRequest) -> Result<(), StepError> {
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if parent == request.parent {
        Ok(())
    } else {
        Err(StepError::new("parent", "it ended before the command began"))
    }
}

/// Joins the control groups before anything uses resources, so there is no moment without limits. Returns the limits that
/// hold since, by what the kernel says about this process.
pub(super) fn join_cgroups(request: &LaunchRequest) -> Result<Vec<ProtectionName>, StepError> {
    for number in 0..request.cgroups {
        let fd = CGROUP_FD + i32::try_from(number).step("cgroup")?;
        // SAFETY: the descriptor was given to this process for this purpose and is closed here.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        rustix::io::write(&file, b"0").step("cgroup")?;
    }
    let Some(group) = &request.group else { return Ok(Vec::new()) };
    let memberships = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let is_member = is_member_of(&memberships, &group.name, request.cgroups);
    Ok(if is_member { group.limits.clone() } else { Vec::new() })
}

/// Whether a process is in that many groups of this name.
fn is_member_of(memberships: &str, name: &str, groups: usize) -> bool {
    let is_group = |line: &&str| line.rsplit('/').next() == Some(name);
    groups > 0 && memberships.lines().filter(is_group).count() == groups
}

pub(super) fn set_limits(limits: &LimitPlan) -> Result<(), StepError> {
    lower(Resource::Core, 0)?;
    lower(Resource::Memlock, 8 * 1024 * 1024)?;
    lower(Resource::Msgqueue, 0)?;
    if let Some(bytes) = limits.file_size {
        lower(Resource::Fsize, bytes)?;
    }
    Ok(())
}

/// Limits the descriptors of the command. A launcher needs some more for its mounts.
pub(super) fn limit_open_files(limits: &LimitPlan) -> Result<(), StepError> {
    limits.open_files.map_or(Ok(()), |files| lower(Resource::Nofile, files))
}

pub(super) fn limit_processes(limits: &LimitPlan) -> Result<(), StepError> {
    limits.processes.map_or(Ok(()), |processes| lower(Resource::Nproc, processes))
}

/// Lowers a limit, never above the inherited one.
fn lower(resource: Resource, wanted: u64) -> Result<(), StepError> {
    let inherited = rustix::process::getrlimit(resource);
    let value = Some(inherited.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
    rustix::process::setrlimit(resource, Rlimit { current: value, maximum: value }).step("setrlimit")
}

/// For the child of a supervisor: the kernel kills it when the supervisor ends.
pub(super) fn die_with_parent() -> Result<(), StepError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("death signal")
}

/// The inherited keyring would let the command reach the keys of the session that ringfence runs in.
pub(super) fn new_keyring() -> Result<(), StepError> {
    sys::join_new_keyring().map(|_| ()).step("keyring")
}

/// Lets the command inherit standard input, output and error, and the files that are meant for it.
pub(super) fn close_on_exec(request: &LaunchRequest) -> Result<(), StepError> {
    for fd in 0..3 {
        // SAFETY: only asks what the descriptor is; a closed one is an error that is handled.
        let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) });
        if stat.is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_socket()) {
            return Err(StepError::new(
                "descriptors",
                format!("descriptor {fd} is a socket, which would pass the fence"),
            ));
        }
    }
    sys::close_range(3, u32::MAX, true).step("close_range")?;
    for fd in request.passed_files() {
        // SAFETY: the descriptor was given to this process for the command, and nothing else closes it.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        let stat = rustix::fs::fstat(file).step("descriptors")?;
        if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(StepError::new("descriptors", format!("descriptor {fd} is no regular file")));
        }
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).step("descriptors")?;
    }
    Ok(())
}

/// Lets go of the files that are the command's, in a process that only waits for it.
pub(super) fn close_passed_files(request: &LaunchRequest) {
    let files = request.passed_files();
    if !files.is_empty() {
        let last = (files.end - 1).unsigned_abs();
        let _ = sys::close_range(files.start.unsigned_abs(), last, false);
    }
}

/// Drops every capability, now and for any program that is executed. Becomes `user` on the way, which takes one.
pub(super) fn drop_capabilities(user: Option<u32>) -> Result<(), StepError> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    let held = rustix::thread::capabilities(None).step("capget")?;
    if held.permitted.is_empty() && held.inheritable.is_empty() {
        return Ok(());
    }
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for number in 0..=LAST_CAPABILITY {
            match drop_from_bounding_set(number) {
                Ok(()) => {}
                // The first number that the kernel does not know.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
                Err(error) => return Err(StepError::new("bounding set", error)),
            }
        }
        let locked = CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED;
        rustix::thread::set_capabilities_secure_bits(locked).step("securebits")?;
    }
    if let Some(user) = user {
        become_user(user)?;
    }
    rustix::thread::clear_ambient_capability_set().step("ambient set")?;
    rustix::thread::set_capabilities(None, none).step("capset")?;
    let left = rustix::thread::capabilities(None).step("capget")?;
    if left == none { Ok(()) } else { Err(StepError::new("capset", "capabilities are left")) }
}

/// Takes a user and the group of the same number, for good. The groups of root went before.
fn become_user(user: u32) -> Result<(), StepError> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    rustix::thread::set_thread_res_gid(gid, gid, gid).step("group")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).step("user")
}

/// Where the command runs as a user of its own, tells before it starts that this user cannot use the scope.
pub(super) fn check_access(steps: &Steps) -> Result<(), StepError> {
    let Some(user) = steps.user else { return Ok(()) };
    let landlock = &steps.landlock;
    let writable = landlock.read_write.iter().map(|root| (root, Access::WRITE_OK, "writable"));
    let readable = landlock.read_only.iter().map(|root| (root, Access::READ_OK, "readable"));
    for (root, access, word) in writable.chain(readable) {
        rustix::fs::access(root.path(), access | Access::EXEC_OK).map_err(|error| {
            let path = root.path().display();
            let hint = format!("give it to that user (chown -R {user} {path}) or add an ACL");
            StepError::new("user", format!("{path} is not {word} for uid {user}: {error}; {hint}"))
        })?;
    }
    Ok(())
}

fn drop_from_bounding_set(number: u32) -> io::Result<()> {
    // SAFETY: plain numbers.
    let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(super) fn forbid_new_privileges() -> Result<(), StepError> {
    rustix::thread::set_no_new_privs(true).step("no_new_privs")
}

/// What a program expects at its start: no signal blocked, the caller's umask.
pub(super) fn restore_for_command(umask: u32) {
    sys::reset_signals(1..=LAST_SIGNAL);
    set_umask(umask);
}

pub(super) fn set_umask(umask: u32) {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_where_this_process_is_in_every_group_that_was_made() {
        let joined = "8:pids:/ringfence-7-0\n4:memory:/slice/ringfence-7-0\n1:cpu:/\n0::/\n";
        assert!(is_member_of(joined, "ringfence-7-0", 2));
        assert!(!is_member_of(joined, "ringfence-7-0", 3), "not in one of them");
        assert!(!is_member_of(joined, "ringfence-7", 2), "another one");
        assert!(is_member_of("0::/user.slice/ringfence-7-1\n", "ringfence-7-1", 1));
        assert!(!is_member_of("0::/user.slice\n", "ringfence-7-1", 0));
    }
}
