//! Directory entries, paths and sizes as answers show them.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, readlinkat, statat};
use serde::Serialize;

use crate::files::kind_name;
use crate::search::{LISTING_BYTES, list_entries};

/// One entry. A name that is not UTF-8 is shown with replacement characters; the URI names it exactly.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<String>,
}

impl Entry {
    /// Reads an entry of a directory; `place` is the path of the directory.
    pub(super) fn read(directory: BorrowedFd<'_>, name: &OsStr, place: &Path) -> Self {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let kind = stat.as_ref().map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode));
        let is_file = kind == FileType::RegularFile;
        let link = || readlinkat(directory, name, Vec::new()).ok();
        Self {
            name: name.to_string_lossy().into_owned(),
            kind: kind_name(kind),
            size: stat.filter(|_| is_file).map(|stat| u64::try_from(stat.st_size).unwrap_or(0)),
            target: (kind == FileType::Symlink)
                .then(link)
                .flatten()
                .map(|link| link.to_string_lossy().into_owned()),
            uri: name.to_str().is_none().then(|| uri(&place.join(name))),
        }
    }

    pub(super) fn is(&self, kind: FileType) -> bool {
        self.kind == kind_name(kind)
    }

    /// Writes the entry as a line, without the line break.
    pub(super) fn write_to(&self, text: &mut String) {
        text.push_str(&self.name);
        let _ = match self.size {
            Some(size) => write!(text, " ({})", size_in_words(size)),
            None if self.is(FileType::Directory) => text.write_char('/'),
            None if self.is(FileType::Symlink) => {
                write!(text, " -> {}", self.target.as_deref().unwrap_or("?"))
            }
            None => write!(text, " ({})", self.kind),
        };
        if let Some(uri) = &self.uri {
            let _ = write!(text, " [{uri}]");
        }
    }
}

/// The URI of an absolute path.
pub(crate) fn uri(path: &Path) -> String {
    wire::file_uri(path.as_os_str().as_encoded_bytes())
}

/// A size as directory listings show it.
pub fn size_in_words(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown to one digit")]
    let in_units = |unit: u64| bytes as f64 / unit as f64;
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", in_units(1024)),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", in_units(1_048_576)),
        _ => format!("{:.1} GiB", in_units(1_073_741_824)),
    }
}

/// Whether an empty directory only keeps commands from making a file that programs outside obey.
pub(super) fn is_placeholder(directory: BorrowedFd<'_>, name: &OsStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let is_empty = |opened: &OwnedFd| {
        list_entries(opened.as_fd(), &mut Vec::with_capacity(LISTING_BYTES))
            .is_ok_and(|entries| entries.is_empty())
    };
    fence::is_placeholder_name(name)
        && rustix::fs::openat(directory, name, flags, Mode::empty()).is_ok_and(|opened| is_empty(&opened))
}
