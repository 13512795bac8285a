//! How a copy is made.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ioctl_ficlone};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The kernel shows the base and keeps what changes in a directory of the copy. Mounted by the fence.
    Overlay,
    /// Files of the copy's own, which share their blocks with those of the base until one of them changes.
    Reflink,
    /// Files of the copy's own.
    Copy,
}

impl Method {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Overlay => "overlay",
            Self::Reflink => "reflink",
            Self::Copy => "copy",
        }
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl std::str::FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Overlay, Self::Reflink, Self::Copy]
            .into_iter()
            .find(|method| method.as_str() == text)
            .ok_or_else(|| format!("`{text}` is none of overlay, reflink, copy"))
    }
}

/// Whether files of `base` can be cloned into `state`, found out by cloning one. Two directories of one file system
/// that can do it are enough; a base without a readable file counts as one that cannot.
pub fn can_reflink(base: &Path, state: &Path) -> bool {
    let Some(source) = first_file(base) else { return false };
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let Ok(target) = rustix::fs::open(state, flags, Mode::RUSR | Mode::WUSR) else { return false };
    ioctl_ficlone(&target, &source).is_ok()
}

/// A regular file at the top of a directory that is not empty.
fn first_file(directory: &Path) -> Option<File> {
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).find_map(|entry| {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(entry.path(), flags, Mode::empty()).ok()?);
        file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0).then_some(file)
    })
}
