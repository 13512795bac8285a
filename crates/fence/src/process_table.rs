//! The kernel's process table, as `/proc` shows it: which processes descend from which, and what one process is.

use std::fs;
use std::path::Path;

use rustix::process::Pid;

/// The children of all threads of a process. Empty where the kernel does not list them.
pub fn children_of(process: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())) else {
        return Vec::new();
    };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|children| {
            children
                .split_ascii_whitespace()
                .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// A process and everything that descends from it.
pub fn with_descendants(process: Pid) -> Vec<Pid> {
    all_with_descendants([process])
}

/// These processes and everything that descends from them, each once.
pub fn all_with_descendants(processes: impl IntoIterator<Item = Pid>) -> Vec<Pid> {
    let mut found: Vec<Pid> = processes.into_iter().collect();
    let mut visited = 0;
    while let Some(&parent) = found.get(visited) {
        visited += 1;
        for child in children_of(parent) {
            if !found.contains(&child) {
                found.push(child);
            }
        }
    }
    found
}

/// One process's line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// It is a zombie, or has been reaped.
    pub has_ended: bool,
    /// `None` for a parent outside of this process's pid namespace.
    pub parent: Option<Pid>,
    pub membership: Membership,
    /// The user and system time that it has used, in clock ticks.
    pub cpu_ticks: u64,
    /// When it started, in clock ticks since the system did. Together with its pid this names it for good.
    pub start_time: u64,
    /// It belongs to the kernel, and has no descriptors.
    pub(crate) is_kernel_thread: bool,
}

/// The session and process group of a process.
///
/// `getsid` and `getpgid` answer 0 for a leader outside of this process's pid namespace, as in a container that was
/// entered from outside, and their wrappers take every answer for a pid. So the process table is read instead,
/// and such a leader is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    pub session: Option<Pid>,
    pub group: Option<Pid>,
}

impl ProcessStat {
    /// Returns `None` if there is no such process.
    pub fn of(process: Pid) -> Option<Self> {
        Self::in_directory(Path::new(&format!("/proc/{}", process.as_raw_nonzero())))
    }

    /// Reads the `stat` file in the directory of a process or a thread.
    pub(crate) fn in_directory(directory: &Path) -> Option<Self> {
        Self::parse(&fs::read(directory.join("stat")).ok()?)
    }

    /// Parses `pid (name) state parent …`. The places of the fields are those of proc(5) less 3.
    fn parse(line: &[u8]) -> Option<Self> {
        const KERNEL_THREAD: u64 = 0x0020_0000;
        // The name of the program may hold any bytes, and ends with the last parenthesis.
        let name_end = line.iter().rposition(|byte| *byte == b')')?;
        let fields = std::str::from_utf8(&line[name_end + 1..]).ok()?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let pid = |place: usize| Some(Pid::from_raw(fields.get(place)?.parse().ok()?));
        let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
        Some(Self {
            has_ended: matches!(*fields.first()?, "Z" | "X"),
            parent: pid(1)?,
            membership: Membership { group: pid(2)?, session: pid(3)? },
            cpu_ticks: number(11)? + number(12)?,
            start_time: number(19)?,
            is_kernel_thread: number(6)? & KERNEL_THREAD != 0,
        })
    }
}

/// Returns `None` if there is no such process.
pub fn membership_of(process: Pid) -> Option<Membership> {
    Some(ProcessStat::of(process)?.membership)
}

/// The value of a variable in the environment that a process was started with. `None` if it has no such variable,
/// or hides its environment from this one.
pub fn variable_of(process: Pid, name: &str) -> Option<Vec<u8>> {
    let environment = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())).ok()?;
    environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
        .map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    #[test]
    fn a_name_does_not_pose_as_a_parent() {
        let rest = "7 7 0 -1 64 1 2 3 4 5 6 7 8 20 0 1 0 4711 100";
        let parent = |text: &[u8]| {
            let stat = ProcessStat::parse(&[text, rest.as_bytes()].concat());
            stat.and_then(|stat| stat.parent).map(|pid| pid.as_raw_nonzero().get())
        };
        assert_eq!(parent(b"7 (sleep) S 3 "), Some(3));
        assert_eq!(parent(b"7 (a) S 1 7 7 0 -1 64 1 (b) R 3 "), Some(3));
        assert_eq!(parent(b"7 (\xff) \n) S 3 "), Some(3));
        assert_eq!(parent(b"7"), None);
    }

    #[test]
    fn ended_processes_and_kernel_threads_are_known() {
        let stat = |state: &str, flags: &str| {
            let text = format!("7 (a) {state} 3 7 7 0 -1 {flags} 1 2 3 4 5 6 7 8 20 0 1 0 4711 100");
            let stat = ProcessStat::parse(text.as_bytes()).unwrap();
            assert_eq!(stat.start_time, 4711);
            (stat.has_ended, stat.is_kernel_thread)
        };
        assert_eq!(stat("S", "4194560"), (false, false));
        assert_eq!(stat("Z", "4194560"), (true, false));
        assert_eq!(stat("I", "69238880"), (false, true));
    }

    #[test]
    fn a_process_that_begins_a_session_leads_it() {
        let mut child = std::process::Command::new("setsid")
            .arg("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let leads = || membership_of(pid) == Some(Membership { session: Some(pid), group: Some(pid) });
        while !leads() {
            assert!(std::time::Instant::now() < end);
        }
        assert_ne!(membership_of(getpid()), membership_of(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(membership_of(pid), None);
    }

    #[test]
    fn a_child_is_listed_with_its_parent_and_environment() {
        let mut child = std::process::Command::new("cat")
            .env("RINGFENCE_TEST_MARK", "here")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let stat = ProcessStat::of(pid).unwrap();
        assert_eq!((stat.parent, stat.has_ended), (Some(getpid()), false));
        assert!(stat.start_time > 0);
        assert!(with_descendants(getpid()).contains(&pid));
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        // The parent goes on before the kernel has laid out the new program's environment.
        while variable_of(pid, "RINGFENCE_TEST_MARK").is_none() {
            assert!(std::time::Instant::now() < end);
        }
        assert_eq!(variable_of(pid, "RINGFENCE_TEST_MARK").as_deref(), Some(&b"here"[..]));
        assert_eq!(variable_of(pid, "RINGFENCE_TEST"), None);
        drop(child.stdin.take());
        while !ProcessStat::of(pid).unwrap().has_ended {
            assert!(std::time::Instant::now() < end);
        }
        child.wait().unwrap();
        assert_eq!(ProcessStat::of(pid), None);
    }
}
