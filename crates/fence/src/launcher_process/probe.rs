//! Finds out whether this host allows namespaces, by entering some in a throw-away process.

use std::io::Write;

use rustix::process::WaitOptions;

use super::{mounts, namespaces, sys};
use crate::kernel::Namespaces;
use crate::launch_request::PROBE_ARGUMENT;

/// Asks a throw-away process of this binary.
pub(crate) fn probe_namespaces(executable: &std::path::Path) -> Namespaces {
    let output = std::process::Command::new(executable).arg(PROBE_ARGUMENT).env_clear().output();
    let failed = |reason: String| Namespaces::Missing { step: "probe".to_owned(), reason };
    match output {
        Ok(output) => serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| failed(format!("the probe ended with {}", output.status))),
        Err(error) => failed(error.to_string()),
    }
}

/// In that process: takes the first steps of a launch, and reports how far it got.
pub(super) fn answer() -> ! {
    let found = attempt().err().map_or(Namespaces::Available, |(step, reason)| Namespaces::Missing {
        step: step.to_owned(),
        reason,
    });
    let text = serde_json::to_vec(&found).unwrap_or_default();
    let mut output = std::io::stdout();
    let _ = output.write_all(&text).and_then(|()| output.flush());
    sys::exit(0)
}

fn attempt() -> Result<(), (&'static str, String)> {
    namespaces::unshare(true).map_err(|error| ("creating namespaces", error.to_string()))?;
    let child = sys::fork().map_err(|error| ("fork", error.to_string()))?;
    if child == 0 {
        sys::exit(match prepare_mounts() {
            Ok(()) => 0,
            Err(errno) => errno,
        });
    }
    match rustix::process::waitpid(rustix::process::Pid::from_raw(child), WaitOptions::empty()) {
        Ok(Some((_, status))) if status.exit_status() == Some(0) => Ok(()),
        Ok(Some((_, status))) => {
            let errno = status.exit_status().unwrap_or(libc::EIO);
            Err(("mounting in a namespace", std::io::Error::from_raw_os_error(errno).to_string()))
        }
        _ => Err(("wait", "the probe's child was lost".to_owned())),
    }
}

fn prepare_mounts() -> Result<(), i32> {
    use rustix::mount::MountPropagationFlags as Propagation;
    rustix::mount::mount_change("/", Propagation::REC | Propagation::PRIVATE)
        .map_err(rustix::io::Errno::raw_os_error)?;
    sys::mount_setattr(None, c"/", libc::MOUNT_ATTR_RDONLY, true)
        .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
    mounts::fresh("proc", "/proc").map_err(rustix::io::Errno::raw_os_error)
}
