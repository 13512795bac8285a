//! Canaries for processes: what this one can do to those outside, what it shares with them, and what it was given.

use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Resource;
use rustix::thread::CapabilitySet;

use super::super::{StepError, sys};
use super::{expect, must_fail, surprise};
use crate::ProtectionName as Name;
use crate::launch_request::{LaunchRequest, namespace_of_this_process};
use crate::plan::NetworkNamespace;
use crate::policy::{Tier, UnixSockets};

/// Tier B: this process is the first of a namespace.
pub(super) fn see_others(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    if request.steps.tier == Tier::A {
        return Ok(&[]);
    }
    match std::fs::read_link("/proc/self") {
        Ok(link) if link == Path::new("1") => Ok(&[Name::ProcVisibility]),
        _ => Err(surprise("pid namespace", "/proc shows another one")),
    }
}

/// ringfence, as it is called outside. In a new namespace only number 1 is taken yet.
fn parent(request: &LaunchRequest) -> libc::c_long {
    let parent = request.parent;
    if request.steps.tier == Tier::B { parent.max(2) } else { parent }.into()
}

pub(super) fn signal_parent(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    let expected = match (request.steps.tier, request.steps.landlock.version) {
        (Tier::B, _) => libc::ESRCH,
        (Tier::A, 6..) => libc::EPERM,
        (Tier::A, _) => return Ok(&[]),
    };
    let sent = sys::attempt(libc::SYS_kill, [parent(request), 0, 0, 0]);
    expect("signal to the parent", sent, &[expected])?;
    Ok(&[Name::Signals])
}

/// Tier B: looks a process up as a call that changes its priority does. Tier A has a filter for those.
pub(super) fn ask_priority_of_parent(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    if request.steps.tier == Tier::A {
        return Ok(&[]);
    }
    let process = libc::c_long::from(libc::PRIO_PROCESS);
    let asked = sys::attempt(libc::SYS_getpriority, [process, parent(request), 0, 0]);
    expect("priority of the parent", asked, &[libc::ESRCH])?;
    Ok(&[Name::SchedControl])
}

/// The way to memory that no filter sees.
pub(super) fn open_memory_of_parent(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    if request.steps.tier == Tier::A && request.steps.landlock.version == 0 {
        return Ok(&[]);
    }
    let memory = format!("/proc/{}/mem", parent(request));
    let opened = rustix::fs::open(memory, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    must_fail("memory of the parent", &opened, &[Errno::ACCESS, Errno::PERM, Errno::NOENT])?;
    Ok(&[Name::Ptrace])
}

/// Tier B: shared memory, semaphores and queues belong to a namespace.
pub(super) fn share_ipc(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    if request.steps.tier == Tier::A {
        return Ok(&[]);
    }
    let is_own = is_own_namespace("ipc", request.canaries.host.ipc_namespace)?;
    Ok(if is_own { &[Name::SysvIpc] } else { &[] })
}

/// Sockets by name belong to a network namespace, where the policy allows them.
pub(super) fn share_abstract_sockets(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    if request.steps.seccomp.unix_sockets == UnixSockets::Deny || !has_own_network(request) {
        return Ok(&[]);
    }
    let is_own = is_own_namespace("net", request.canaries.host.network_namespace)?;
    Ok(if is_own { &[Name::UnixAbstract] } else { &[] })
}

pub(super) fn has_own_network(request: &LaunchRequest) -> bool {
    request.steps.namespaces.as_ref().is_some_and(|plan| plan.network != NetworkNamespace::Shared)
}

/// Fails where a namespace is that of ringfence. Returns false where it cannot be told.
pub(super) fn is_own_namespace(kind: &str, of_ringfence: Option<u64>) -> Result<bool, StepError> {
    match (namespace_of_this_process(kind), of_ringfence) {
        (Some(own), Some(other)) if own == other => Err(surprise(kind, "the namespace is shared")),
        (own, other) => Ok(own.is_some() && other.is_some()),
    }
}

pub(super) fn pass_descriptors_on(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return Ok(&[]) };
    for entry in open.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // SAFETY: asks for a flag of a descriptor; one that is closed by now is an error that is handled.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        let is_meant = request.passed_files().contains(&number);
        if number > 2 && !is_meant && flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            return Err(surprise("descriptors", &format!("{number} would stay open")));
        }
    }
    Ok(&[Name::InheritedFds])
}

pub(super) fn hold_capabilities(_: &LaunchRequest) -> Result<&'static [Name], StepError> {
    let held = rustix::thread::capabilities(None);
    match held {
        Ok(held) if (held.permitted | held.effective | held.inheritable) == CapabilitySet::empty() => {
            Ok(&[Name::Capabilities])
        }
        _ => Err(surprise("capabilities", "some are left")),
    }
}

pub(super) fn gain_privileges(_: &LaunchRequest) -> Result<&'static [Name], StepError> {
    if rustix::thread::no_new_privs().unwrap_or(false) {
        Ok(&[Name::NoNewPrivs])
    } else {
        Err(surprise("no_new_privs", "is not set"))
    }
}

/// This process was started without variables, so it has none to pass on but those that the request lists.
pub(super) fn pass_environment_on(_: &LaunchRequest) -> Result<&'static [Name], StepError> {
    match std::env::vars_os().next() {
        None => Ok(&[Name::Environment]),
        Some(_) => Err(surprise("environment", "variables of ringfence could be passed on")),
    }
}

/// Reads the limit back, where the kernel counts the processes of this fence alone. A control group is read when it is
/// joined.
pub(super) fn exceed_processes(request: &LaunchRequest) -> Result<&'static [Name], StepError> {
    match (request.steps.tier, request.steps.limits.processes) {
        (Tier::B, Some(most)) => match rustix::process::getrlimit(Resource::Nproc).maximum {
            Some(maximum) if maximum <= most => Ok(&[Name::PidLimit]),
            _ => Err(surprise("limit of processes", "is not set")),
        },
        _ => Ok(&[]),
    }
}
