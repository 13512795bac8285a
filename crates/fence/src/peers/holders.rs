//! Which sockets the processes of this user hold, and their ancestors, as `/proc` shows them.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::Pid;

use crate::process_table::ProcessStat;

/// A longer chain of ancestors is made on purpose.
const MAX_ANCESTORS: usize = 1000;

/// How often a chain that changes while it is read is read again.
const ATTEMPTS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process(i32);

/// A process and when it started, which together name it for good: pids are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) process: Process,
    pub(super) start: u64,
}

impl Identity {
    pub(super) fn number(self) -> i32 {
        self.process.number()
    }
}

/// Whether a process holds a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Holds,
    HoldsNot,
    /// Its descriptors cannot be seen.
    Hidden,
}

/// All processes that run as this user.
pub(super) fn processes_of_this_user() -> io::Result<Vec<Process>> {
    let user = rustix::process::geteuid().as_raw();
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that hides its descriptors still shows its user here.
        if entry.metadata().is_ok_and(|metadata| metadata.uid() == user) {
            processes.push(Process(number));
        }
    }
    Ok(processes)
}

impl Process {
    pub(super) fn number(self) -> i32 {
        self.0
    }

    pub(super) fn from_number(number: i32) -> Self {
        Self(number)
    }

    pub(super) fn this() -> Self {
        Self(rustix::process::getpid().as_raw_nonzero().get())
    }

    pub(super) fn is_this(self) -> bool {
        self == Self::this()
    }

    /// Whether the process has the socket open.
    pub(super) fn look_for(self, inode: u32) -> Look {
        look_at(Path::new(&format!("/proc/{}", self.0)), inode)
    }

    /// Checks every thread by itself, because threads can have descriptors of their own.
    pub(super) fn look_for_in_threads(self, inode: u32) -> Look {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.0)) else { return Look::HoldsNot };
        let mut all = Look::HoldsNot;
        for thread in threads.flatten() {
            match look_at(&thread.path(), inode) {
                Look::Holds => return Look::Holds,
                Look::Hidden => all = Look::Hidden,
                Look::HoldsNot => {}
            }
        }
        all
    }

    /// `None` if it has ended.
    pub(super) fn identity(self) -> Option<Identity> {
        self.stat().map(|stat| Identity { process: self, start: stat.start_time })
    }

    /// The process, its parent, grandparent and so on; `None` if it has ended or they keep changing.
    pub(super) fn lineage(self) -> Option<Vec<Identity>> {
        (0..ATTEMPTS).find_map(|_| self.try_lineage())
    }

    fn try_lineage(self) -> Option<Vec<Identity>> {
        let mut lineage = Vec::new();
        let (mut process, mut stat) = (self, self.stat()?);
        while lineage.len() < MAX_ANCESTORS {
            lineage.push(Identity { process, start: stat.start_time });
            // The first process has none, nor has one whose parent is outside this pid namespace.
            let Some(parent) = stat.parent else { return Some(lineage) };
            let parent = Self(parent.as_raw_nonzero().get());
            let parents = parent.stat()?;
            // If it is the parent still, its number was not reused before it was read.
            let again = process.stat()?;
            if (again.parent, again.start_time) != (stat.parent, stat.start_time) {
                return None;
            }
            (process, stat) = (parent, parents);
        }
        None
    }

    fn stat(self) -> Option<ProcessStat> {
        ProcessStat::of(Pid::from_raw(self.0)?)
    }
}

/// Processes that have ended and kernel threads have no descriptors to hide.
fn can_hold(stat: ProcessStat) -> bool {
    !stat.has_ended && !stat.is_kernel_thread
}

/// Looks at the descriptors of a process or a thread, by its directory.
fn look_at(directory: &Path, inode: u32) -> Look {
    match look_in(&directory.join("fd"), inode) {
        // The kernel also refuses to show the descriptors of a process that is just ending.
        Look::Hidden if !ProcessStat::in_directory(directory).is_some_and(can_hold) => Look::HoldsNot,
        look => look,
    }
}

fn look_in(descriptors: &Path, inode: u32) -> Look {
    let wanted = format!("socket:[{inode}]");
    let entries = match fs::read_dir(descriptors) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Look::Hidden,
        // It has ended.
        Err(_) => return Look::HoldsNot,
    };
    for entry in entries {
        let target = entry.and_then(|entry| fs::read_link(entry.path()));
        match target {
            Ok(target) if target.as_os_str().as_bytes() == wanted.as_bytes() => return Look::Holds,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Look::Hidden,
            // Another descriptor, or closed meanwhile.
            _ => {}
        }
    }
    Look::HoldsNot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lineage_leads_to_the_first_process() {
        let this = Process::this();
        let lineage = this.lineage().unwrap();
        let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
        assert_eq!((lineage[0].process, lineage[1].number()), (this, parent));
        assert_eq!(Some(lineage[0]), this.identity());
        assert!(processes_of_this_user().unwrap().contains(&this));
    }
}
