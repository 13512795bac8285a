//! Tries what must fail, in the process that becomes the command. A surprise in either direction ends the launch, so a
//! fence is known to hold and not only to be configured. Only what a canary tried is called enforced.

mod calls;
mod files;
mod processes;
mod sockets;
#[cfg(test)]
mod tests;

use rustix::io::Errno;

use super::StepError;
use crate::ProtectionName as Name;
use crate::launch_request::LaunchRequest;

/// Tries one thing. Returns the protections that it has shown: none where the plan has nothing to try.
type Canary = fn(&LaunchRequest) -> Result<&'static [Name], StepError>;

/// What is tried before the filter is installed.
const BEFORE_FILTER: &[Canary] = &[
    files::write_outside,
    files::read_outside,
    files::see_outside,
    files::read_denied,
    files::change_metadata,
    files::change_kept,
    files::use_temporary,
    files::control_device,
    processes::see_others,
    processes::signal_parent,
    processes::ask_priority_of_parent,
    processes::open_memory_of_parent,
    processes::share_ipc,
    processes::share_abstract_sockets,
    processes::pass_descriptors_on,
    processes::hold_capabilities,
    processes::gain_privileges,
    processes::pass_environment_on,
    processes::exceed_processes,
];

/// What is tried with the filter.
const BEHIND_FILTER: &[Canary] = &[
    calls::use_kernel_interfaces,
    calls::reach_others_objects,
    calls::nest_namespaces,
    calls::debug,
    sockets::use_other_families,
    sockets::use_unix,
    sockets::send_datagrams,
    sockets::connect,
];

/// Tries files and processes, before the filter is installed.
pub(super) fn after_landlock(request: &LaunchRequest) -> Result<Vec<Name>, StepError> {
    files::write_inside(request)?;
    try_all(BEFORE_FILTER, request)
}

/// Tries system calls, with the filter installed.
pub(super) fn after_seccomp(request: &LaunchRequest) -> Result<Vec<Name>, StepError> {
    let shown = try_all(BEHIND_FILTER, request)?;
    if request.canaries.foreign_calls {
        calls::foreign_calls_are_fatal()?;
    }
    Ok(shown)
}

fn try_all(canaries: &[Canary], request: &LaunchRequest) -> Result<Vec<Name>, StepError> {
    let mut shown = Vec::new();
    for canary in canaries {
        shown.extend_from_slice(canary(request)?);
    }
    Ok(shown)
}

fn surprise(what: &str, reason: &str) -> StepError {
    StepError::new("canary", format!("{what}: {reason}"))
}

/// Requires that a call failed with one of these errors.
fn expect(what: &str, got: Option<i32>, expected: &[i32]) -> Result<(), StepError> {
    match got {
        Some(errno) if expected.contains(&errno) => Ok(()),
        Some(errno) => {
            Err(surprise(what, &format!("unexpected {}", std::io::Error::from_raw_os_error(errno))))
        }
        None => Err(surprise(what, "was not refused")),
    }
}

fn must_fail<T>(what: &str, got: &rustix::io::Result<T>, expected: &[Errno]) -> Result<(), StepError> {
    match got {
        Err(errno) if expected.contains(errno) => Ok(()),
        Err(errno) => Err(surprise(what, &format!("unexpected {errno}"))),
        Ok(_) => Err(surprise(what, "was not refused")),
    }
}
