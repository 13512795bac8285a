//! The files of one log: `FILE` is being written, `FILE.1` was filled before it, `FILE.2` before that, and so on.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

/// Only the user that runs the gateway may read the log.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// How often the files are opened again because the gateway was rotating them, and the pause before.
pub(super) const ATTEMPTS: usize = 5;
pub(super) const ATTEMPT_PAUSE: Duration = Duration::from_millis(20);

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

/// Opens all files of the log that exist, the oldest first. Tries again while they are being rotated.
pub(super) fn open_all(path: &Path) -> io::Result<Vec<File>> {
    let mut last_error = io::Error::other("its files keep changing");
    for _ in 0..ATTEMPTS {
        match try_open_all(path) {
            Ok(Some(files)) => return Ok(files),
            Ok(None) => {}
            Err(error) => last_error = error,
        }
        std::thread::sleep(ATTEMPT_PAUSE);
    }
    Err(last_error)
}

/// Returns `None` if a file was renamed meanwhile.
fn try_open_all(path: &Path) -> io::Result<Option<Vec<File>>> {
    let paths = numbers(path)?.into_iter().rev().map(|number| numbered(path, number));
    let mut opened = Vec::new();
    for path in paths.chain([path.to_owned()]) {
        let file = open(&path, OFlags::RDONLY)?;
        opened.push((path, file));
    }
    for (path, file) in &opened {
        if !is_named(path, file)? {
            return Ok(None);
        }
    }
    Ok(Some(opened.into_iter().map(|(_, file)| file).collect()))
}

/// Returns true if the open file still has this name.
pub(super) fn is_named(path: &Path, file: &File) -> io::Result<bool> {
    let held = file.metadata()?;
    match path.symlink_metadata() {
        Ok(named) => Ok((named.dev(), named.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns true if both are the same file.
pub(super) fn is_same(one: &File, other: &File) -> io::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
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
