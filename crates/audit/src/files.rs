//! The files of one log: `FILE` is being written, `FILE.1` was filled before it, `FILE.2` before that, and so on.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Only the user that runs the gateway may read the log.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// `FILE` with a suffix.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// The file that was rotated `number` times.
pub(super) fn numbered(path: &Path, number: u32) -> PathBuf {
    beside(path, &format!(".{number}"))
}

/// The numbers of all rotated files, the newest first.
pub(super) fn numbers(path: &Path) -> io::Result<Vec<u32>> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Ok(Vec::new()) };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let mut numbers = Vec::new();
    for entry in directory.read_dir()? {
        let found = entry?.file_name();
        let suffix = found.as_bytes().strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"."));
        let digits = suffix.and_then(|digits| std::str::from_utf8(digits).ok());
        // Only in the spelling that rotation writes: no `+1`, no `01`.
        numbers.extend(digits.and_then(|digits| {
            digits.parse::<u32>().ok().filter(|number| *number > 0 && number.to_string() == digits)
        }));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Opens a file of the log. It must be a regular file and not a link.
pub(super) fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    // Without NONBLOCK, opening a pipe would wait for its writer.
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, PRIVATE)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file"));
    }
    Ok(file)
}

/// Removes the permissions of other users, in case the file was created by another program.
pub(super) fn make_private(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fchmod(file, PRIVATE)?)
}

/// Writes the directory of `path` to disk, so that renames survive a crash.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}
