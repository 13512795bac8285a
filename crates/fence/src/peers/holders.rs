//! Processes as `/proc` shows them: what sockets they hold, and whom they descend from.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// No chain of ancestors is longer, unless somebody makes it so.
const MAX_ANCESTORS: usize = 1000;

/// How often a chain that changes while it is read is read again.
const ATTEMPTS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process(i32);

/// What a look at somebody's descriptors shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Holds,
    HoldsNot,
    /// We may not see them.
    Hidden,
}

/// All processes that run as this user.
pub(super) fn processes_of_this_user() -> io::Result<Vec<Process>> {
    let user = rustix::process::geteuid().as_raw();
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Of a process that hides, this one directory still tells the user.
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

    /// The same for every thread by itself.
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

    /// When it started: with its number, that names it for good.
    pub(super) fn start(self) -> Option<u64> {
        self.stat().map(|stat| stat.start)
    }

    /// Parent, grandparent and so on; None if it has ended or cannot be told.
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
            // If it is still the parent, it was when it was asked: its number was nobody else's.
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
        self.stat().map(|stat| Self(stat.parent))
    }

    fn stat(self) -> Option<Stat> {
        Stat::of(Path::new(&format!("/proc/{}", self.0)))
    }
}

/// What the kernel tells everybody about a process or a thread.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: String,
    parent: i32,
    flags: u32,
    /// Since the host started, in hundredths of a second.
    start: u64,
}

impl Stat {
    fn of(directory: &Path) -> Option<Self> {
        Self::parse(&fs::read(directory.join("stat")).ok()?)
    }

    /// `number (name) state parent …`, where the name can hold anything. The places are those of proc(5) less 3.
    fn parse(text: &[u8]) -> Option<Self> {
        let name_end = text.iter().rposition(|byte| *byte == b')')?;
        let fields = std::str::from_utf8(&text[name_end + 1..]).ok()?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        Some(Self {
            state: (*fields.first()?).to_owned(),
            parent: fields.get(1)?.parse().ok()?,
            flags: fields.get(6)?.parse().ok()?,
            start: fields.get(19)?.parse().ok()?,
        })
    }

    /// What has ended and the kernel's own threads have no descriptors to hide.
    fn can_hold(&self) -> bool {
        const KERNEL_THREAD: u32 = 0x0020_0000;
        !matches!(self.state.as_str(), "Z" | "X") && self.flags & KERNEL_THREAD == 0
    }
}

/// Looks at the descriptors of a process or a thread, by its directory.
fn look_at(directory: &Path, inode: u32) -> Look {
    match look_in(&directory.join("fd"), inode) {
        // The kernel also refuses to show those of one that is just ending.
        Look::Hidden if !Stat::of(directory).is_some_and(|stat| stat.can_hold()) => Look::HoldsNot,
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
            // Another one, or closed meanwhile.
            _ => {}
        }
    }
    Look::HoldsNot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_not_pose_as_a_parent() {
        let rest = "7 7 0 -1 64 1 2 3 4 5 6 7 8 20 0 1 0 4711 100";
        let parent = |text: &[u8]| Stat::parse(&[text, rest.as_bytes()].concat()).map(|stat| stat.parent);
        assert_eq!(parent(b"7 (sleep) S 3 "), Some(3));
        assert_eq!(parent(b"7 (a) S 1 7 7 0 -1 64 1 (b) R 3 "), Some(3));
        assert_eq!(parent(b"7 (\xff) \n) S 3 "), Some(3));
        assert_eq!(parent(b"7"), None);
    }

    #[test]
    fn what_has_ended_and_the_kernel_hide_nothing() {
        let stat = |state: &str, flags: &str| {
            let text = format!("7 (a) {state} 3 7 7 0 -1 {flags} 1 2 3 4 5 6 7 8 20 0 1 0 4711 100");
            Stat::parse(text.as_bytes()).unwrap()
        };
        assert!(stat("S", "4194560").can_hold());
        assert!(!stat("Z", "4194560").can_hold());
        assert!(!stat("I", "69238880").can_hold());
        assert_eq!(stat("S", "0").start, 4711);
    }

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
