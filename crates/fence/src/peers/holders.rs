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

    pub(super) fn is_this_one(self) -> bool {
        u32::try_from(self.0).is_ok_and(|number| number == std::process::id())
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

    /// When it started. Together with its number this names it for good.
    pub(super) fn start(self) -> Option<u64> {
        self.stat().map(|stat| stat.start_time)
    }

    /// Parent, grandparent and so on; `None` if it has ended or they keep changing.
    pub(super) fn ancestors(self) -> Option<Vec<Self>> {
        (0..ATTEMPTS).find_map(|_| self.try_ancestors())
    }

    fn try_ancestors(self) -> Option<Vec<Self>> {
        let mut ancestors = Vec::new();
        let (mut child, mut parent) = (self, self.parent()?);
        while parent.0 != 0 {
            if ancestors.len() == MAX_ANCESTORS {
                return None;
            }
            let grandparent = parent.parent()?;
            // If it is the parent still, its number was not reused while its own parent was read.
            if child.parent()? != parent {
                return None;
            }
            ancestors.push(parent);
            (child, parent) = (parent, grandparent);
        }
        Some(ancestors)
    }

    /// 0 for the first process, and for one whose parent is outside this pid namespace.
    fn parent(self) -> Option<Self> {
        self.stat().map(|stat| Self(stat.parent.map_or(0, |pid| pid.as_raw_nonzero().get())))
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
    fn ancestors_lead_to_the_first_process() {
        let this = Process(i32::try_from(std::process::id()).unwrap());
        let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
        let ancestors = this.ancestors().unwrap();
        assert_eq!(ancestors.first().map(|process| process.number()), Some(parent));
        assert!(this.is_this_one() && !ancestors.iter().any(|process| process.is_this_one()));
        assert!(processes_of_this_user().unwrap().contains(&this));
    }
}
