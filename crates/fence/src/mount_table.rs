//! Where paths lie on their file systems, beneath bind mounts: two paths can be names of the same directory.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The mounts of this process, in the order in which they were made.
#[derive(Debug, Default)]
pub(crate) struct MountTable(Vec<Mount>);

#[derive(Debug)]
struct Mount {
    device: String,
    /// The part of the file system that is mounted.
    root: PathBuf,
    at: PathBuf,
}

/// A place on a file system, whatever it is mounted as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    device: String,
    path: PathBuf,
}

impl Location {
    /// Whether a place is in this one, or is this one.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        self.device == other.device && other.path.starts_with(&self.path)
    }
}

impl MountTable {
    /// Reads the table. It is empty where the system has none to read, and paths are then compared by name alone.
    pub(crate) fn read() -> Self {
        std::fs::read("/proc/self/mountinfo").map(|text| Self::parse(&text)).unwrap_or_default()
    }

    pub(crate) fn parse(text: &[u8]) -> Self {
        let mount = |line: &[u8]| {
            let mut fields = line.split(|byte| *byte == b' ').skip(2);
            let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
            Some(Mount { device, root: unescaped(fields.next()?), at: unescaped(fields.next()?) })
        };
        Self(text.split(|byte| *byte == b'\n').filter_map(mount).collect())
    }

    /// Whether something is mounted at a path.
    #[cfg(target_os = "linux")]
    pub(crate) fn has_mount_at(&self, path: &Path) -> bool {
        self.0.iter().any(|mount| mount.at == path)
    }

    /// Where a path without links lies, and what is mounted below it.
    pub(crate) fn locations(&self, path: &Path) -> Vec<Location> {
        let own = self.holder(path).map(|mount| {
            let below = path.strip_prefix(&mount.at).unwrap_or(Path::new(""));
            Location { device: mount.device.clone(), path: mount.root.join(below) }
        });
        let inside = self.0.iter().filter(|mount| mount.at != path && mount.at.starts_with(path));
        let inside = inside.map(|mount| Location { device: mount.device.clone(), path: mount.root.clone() });
        own.into_iter().chain(inside).collect()
    }

    /// The mount that a path lies on: the deepest one, and of several at one place the last.
    fn holder(&self, path: &Path) -> Option<&Mount> {
        let mounts = self.0.iter().filter(|mount| path.starts_with(&mount.at));
        mounts.max_by_key(|mount| mount.at.components().count())
    }
}

/// Spaces and line breaks are written as `\040`.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, more)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| more.get(..3)).flatten();
        let code = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            bytes.push(byte);
            rest = &more[3..];
        } else {
            bytes.push(*first);
            rest = more;
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 8:1 / / rw - ext4 /dev/sda rw\n\
        23 22 8:2 / /srv rw - ext4 /dev/sdb rw\n\
        24 22 8:1 /etc/ringfence /mnt/a\\040b rw - ext4 /dev/sda rw\n\
        25 23 0:5 / /srv/x rw - tmpfs tmpfs rw\n\
        26 25 8:1 /home/u /srv/x/bound rw - ext4 /dev/sda rw\n";

    fn overlap(one: &str, other: &str) -> bool {
        let table = MountTable::parse(TABLE);
        let (one, other) = (table.locations(Path::new(one)), table.locations(Path::new(other)));
        one.iter().any(|one| other.iter().any(|other| one.contains(other) || other.contains(one)))
    }

    #[test]
    fn a_bind_mount_is_the_directory_that_it_shows() {
        assert!(overlap("/mnt/a b", "/etc/ringfence/servers.yaml"));
        assert!(overlap("/mnt/a b/deep", "/etc/ringfence"));
        assert!(overlap("/srv/x", "/home/u/project"), "a mount below the directory");
        assert!(overlap("/srv/x/bound/project", "/home/u/project"));
        assert!(!overlap("/srv/project", "/home/u/project"));
        assert!(!overlap("/srv", "/etc"));
        assert!(!overlap("/etc/other", "/etc/ringfence"));
    }
}
