//! Whether a process is inside a fence of ringfence, whichever ringfence process of this host made it.
//!
//! Each of these signs is enough:
//! 1. **Registered.** It descends from a supervisor that this process has launched, or that another ringfence process
//!    of this user has registered in ringfence's own directory, by pid and start time.
//! 2. **Launcher.** It descends from a process with the command line of our launcher. Supervisors keep it for life,
//!    and no process inside a fence can change that of another. This needs no file and no common directory, so it
//!    also finds fences of processes with another `XDG_CACHE_HOME`.
//! 3. **Marks.** It has `no_new_privs`, a seccomp filter, and hard limits of 0 for core files and message queues. The
//!    launcher sets all four, children inherit them, and no process can undo them without privileges. This finds
//!    orphans: in Tier A the descendants of a supervisor that was killed leave its tree.
//!
//! A namespace, a seccomp filter or `no_new_privs` is no sign by itself: clients in Flatpak and Snap packages, helper
//! processes of Chromium and Electron, containers and hardened system services have those. None of them also limits
//! message queues to 0, and none descends from our launcher.
//!
//! A sign that this process bears itself does not count: a gateway inside a fence serves the clients in that fence.
//!
//! Not found: a process outside that a fenced one talks through (a port mirrored with `--host-port`, a unix socket
//! that its policy allows). Processes of other pid namespaces that `/proc` does not show are unknown, not outside.

use std::fs;
use std::path::{Path, PathBuf};

use super::Standing;
use super::holders::{Identity, Process};
use crate::launch_request::{LAUNCH_ARGUMENT, PROBE_ARGUMENT, ZYGOTE_ARGUMENT};
use crate::supervisor_files;
use crate::supervisor_registry::Snapshot;

/// What does not change while this process runs.
#[derive(Debug)]
pub(super) struct Fences {
    /// Where the ringfence processes of this user register their supervisors.
    registry: PathBuf,
    /// This process and its ancestors.
    own_lineage: Vec<Identity>,
    is_marked: bool,
}

impl Fences {
    /// `own` is ringfence's own directory.
    pub(super) fn new(own: &Path) -> Self {
        let this = Process::this();
        Self {
            registry: supervisor_files::directory_in(own),
            own_lineage: this.lineage().unwrap_or_default(),
            is_marked: this.is_marked().unwrap_or(false),
        }
    }

    /// Where a process stands. `supervisors` are those of this process.
    pub(super) fn judge(&self, process: Process, supervisors: &Snapshot) -> Standing {
        // Only for a fence does this process connect to its own host, and a supervisor for none.
        if process.is_this() {
            return Standing::Fenced;
        }
        let (Some(lineage), Some(is_marked)) = (process.lineage(), process.is_marked()) else {
            return Standing::Unknown;
        };
        if lineage.iter().any(|process| self.is_supervisor(*process, supervisors)) {
            return Standing::Fenced;
        }
        // Its supervisor may be one that has not been entered yet.
        if supervisors.is_launching && lineage.iter().any(|ancestor| ancestor.process.is_this()) {
            return Standing::Unknown;
        }
        if is_marked && !self.is_marked { Standing::Fenced } else { Standing::Outside }
    }

    /// Whether everything below a process is inside a fence that this process is not in.
    pub(super) fn is_supervisor(&self, process: Identity, supervisors: &Snapshot) -> bool {
        if supervisors.has(process.number()) {
            return true;
        }
        let is_found = supervisor_files::is_registered(&self.registry, process.number(), process.start)
            || process.process.is_launcher();
        is_found && !self.own_lineage.contains(&process)
    }
}

impl Process {
    /// Whether it has the command line of a launcher, which it gets from [`crate::spawn::spawn_self`].
    fn is_launcher(self) -> bool {
        let line = fs::read(format!("/proc/{}/cmdline", self.number())).unwrap_or_default();
        is_launcher_line(&line)
    }

    /// Whether it bears all marks of a fenced process. `None` if it has ended.
    fn is_marked(self) -> Option<bool> {
        let read = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", self.number())).ok();
        let status = read("status")?;
        // Most processes have no filter, and are spared the second file.
        Some(has_filter_for_good(&status) && has_closed_limits(&read("limits")?))
    }
}

fn is_launcher_line(line: &[u8]) -> bool {
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    // The last word ends with a zero byte, too.
    let [b"ringfence", role, b""] = words.as_slice() else { return false };
    [LAUNCH_ARGUMENT, ZYGOTE_ARGUMENT, PROBE_ARGUMENT].iter().any(|argument| argument.as_bytes() == *role)
}

/// From `/proc/PID/status`.
fn has_filter_for_good(status: &str) -> bool {
    let is = |name: &str, value: &str| {
        status.lines().any(|line| line.strip_prefix(name).is_some_and(|found| found.trim() == value))
    };
    is("NoNewPrivs:", "1") && is("Seccomp:", "2")
}

/// From `/proc/PID/limits`: name, soft limit, hard limit, unit.
fn has_closed_limits(limits: &str) -> bool {
    let is_zero = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_ascii_whitespace().nth(1)) == Some("0")
    };
    is_zero("Max core file size") && is_zero("Max msgqueue size")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_command_line_is_a_launchers() {
        for line in [&b"ringfence\0fence-launch\0"[..], b"ringfence\0fence-zygote\0"] {
            assert!(is_launcher_line(line));
        }
        for line in [
            &b""[..],
            b"ringfence\0serve\0",
            b"ringfence\0run\0--\0fence-launch\0",
            b"/usr/bin/ringfence\0fence-launch\0",
            b"vim\0fence-launch\0",
            b"ringfence\0fence-launch\0more\0",
            b"ringfence\0fence-launch",
        ] {
            assert!(!is_launcher_line(line), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn sandboxes_of_others_do_not_bear_our_marks() {
        let status = |privileges: u8, seccomp: u8| {
            format!("Name:\tx\nNoNewPrivs:\t{privileges}\nSeccomp:\t{seccomp}\nSeccomp_filters:\t1\n")
        };
        let limits = |core: &str, queues: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max core file size        0                    {core}                    bytes     \n\
                 Max msgqueue size         0                    {queues}               bytes     \n"
            )
        };
        assert!(has_filter_for_good(&status(1, 2)) && has_closed_limits(&limits("0", "0")), "ours");
        assert!(!has_filter_for_good(&status(0, 2)), "Snap, a container");
        assert!(!has_filter_for_good(&status(1, 0)), "a service with NoNewPrivileges alone");
        // Flatpak, Chromium's helpers, and services with filters have both.
        assert!(!has_closed_limits(&limits("unlimited", "819200")));
        assert!(!has_closed_limits(&limits("0", "819200")), "and no core files");
        assert!(!has_closed_limits(""));
    }
}
