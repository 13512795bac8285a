//! How entries of directories are shown.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, readlinkat, statat};
use serde_json::{Value, json};

use crate::files::kind_name;

/// One entry, as data. What is no text in a name is shown as well as it can be, and the URI names it exactly.
pub(super) fn entry_data(directory: BorrowedFd<'_>, name: &OsStr, absolute: &Path) -> Value {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    let kind = stat.as_ref().map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode));
    let mut data = json!({ "name": name.to_string_lossy(), "type": kind_name(kind) });
    if kind == FileType::RegularFile
        && let Some(stat) = &stat
    {
        data["size"] = stat.st_size.into();
    }
    if kind == FileType::Symlink
        && let Ok(link) = readlinkat(directory, name, Vec::new())
    {
        data["target"] = link.to_string_lossy().into();
    }
    if name.to_str().is_none() {
        data["uri"] = uri(absolute).into();
    }
    data
}

/// The URI of an absolute path.
pub(crate) fn uri(path: &Path) -> String {
    wire::file_uri(path.as_os_str().as_encoded_bytes())
}

/// One entry, as a line.
pub(super) fn entry_line(data: &Value) -> String {
    let name = data["name"].as_str().unwrap_or_default();
    let line = match data["type"].as_str() {
        Some("directory") => format!("{name}/"),
        Some("file") => format!("{name} ({})", size_in_words(data["size"].as_u64().unwrap_or(0))),
        Some("symlink") => format!("{name} -> {}", data["target"].as_str().unwrap_or("?")),
        other => format!("{name} ({})", other.unwrap_or("unknown")),
    };
    match data["uri"].as_str() {
        Some(uri) => format!("{line} [{uri}]"),
        None => line,
    }
}

pub(super) fn size_in_words(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown to one digit")]
    let in_units = |unit: u64| bytes as f64 / unit as f64;
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", in_units(1024)),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", in_units(1_048_576)),
        _ => format!("{:.1} GiB", in_units(1_073_741_824)),
    }
}
