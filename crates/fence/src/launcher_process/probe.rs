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

/// The exit code of a child that has told the answer itself.
const ANSWERED: i32 = 1;

/// In that process: takes the first steps of a launch, and reports how far it got.
pub(super) fn answer() -> ! {
    let missing = |step: &str, reason: String| Namespaces::Missing { step: step.to_owned(), reason };
    if let Err(error) = namespaces::unshare(true) {
        tell(&missing("creating namespaces", error.to_string()));
        sys::exit(0);
    }
    // Only a child is in the new pid namespace, which the mounts need.
    match sys::fork() {
        Err(error) => tell(&missing("fork", error.to_string())),
        Ok(0) => {
            if let Err(error) = mounts::try_own_root() {
                let reason = format!("{}: {}", error.step, error.reason);
                tell(&missing("mounting in a namespace", reason));
                sys::exit(ANSWERED);
            }
            sys::exit(0)
        }
        Ok(child) => {
            let waited =
                rustix::process::waitpid(rustix::process::Pid::from_raw(child), WaitOptions::empty());
            match waited.ok().flatten().and_then(|(_, status)| status.exit_status()) {
                Some(0) => tell(&Namespaces::Available),
                Some(ANSWERED) => {}
                _ => tell(&missing("wait", "the probe's child was lost".to_owned())),
            }
        }
    }
    sys::exit(0)
}

fn tell(found: &Namespaces) {
    let text = serde_json::to_vec(found).unwrap_or_default();
    let mut output = std::io::stdout();
    let _ = output.write_all(&text).and_then(|()| output.flush());
}
