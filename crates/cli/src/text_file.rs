//! Files that users write and ringfence changes. Writes are atomic.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::config_file_error::ConfigFileError;

/// More than any client's file, even one that holds a history.
const LONGEST: u64 = 64 << 20;
/// The files may hold keys.
const FOR_THE_OWNER: u32 = 0o600;

/// Reads a file. Returns `None` if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<String>, ConfigFileError> {
    let failed = |error| ConfigFileError::Unreadable { path: path.to_owned(), error };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if !metadata.is_file() => return Err(failed(io::Error::other("it is not a file"))),
        Ok(metadata) if metadata.len() > LONGEST => return Err(failed(io::ErrorKind::FileTooLarge.into())),
        Ok(_) => {}
    }
    fs::read_to_string(path).map(Some).map_err(failed)
}

/// Replaces a file, or creates one that only its owner can read. Follows links, and replaces their target.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), ConfigFileError> {
    write_whole(path, text, None).map_err(|error| ConfigFileError::Write { path: path.to_owned(), error })
}

/// Creates a file with the permissions of `model`.
pub(crate) fn write_like(path: &Path, text: &str, model: &Path) -> Result<(), ConfigFileError> {
    let write = || write_whole(path, text, Some(fs::metadata(model)?.permissions()));
    write().map_err(|error| ConfigFileError::Write { path: path.to_owned(), error })
}

/// Replaces or creates a file, and makes it readable for its owner only.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    write_whole(path, text, Some(Permissions::from_mode(FOR_THE_OWNER)))
}

fn write_whole(path: &Path, text: &str, permissions: Option<Permissions>) -> io::Result<()> {
    let path = destination(path)?;
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let permissions = match (permissions, fs::metadata(&path)) {
        (Some(permissions), _) => permissions,
        (None, Ok(metadata)) => metadata.permissions(),
        (None, Err(_)) => Permissions::from_mode(FOR_THE_OWNER),
    };
    let temporary = directory.join(format!(".ringfence-{}", uuid::Uuid::new_v4().simple()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FOR_THE_OWNER).open(&temporary)?;
    let written = fill(&mut file, text, permissions).and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        drop(fs::remove_file(&temporary));
    }
    written
}

fn fill(file: &mut File, text: &str, permissions: Permissions) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.set_permissions(permissions)?;
    file.sync_all()
}

/// Resolves links. The file need not exist yet.
fn destination(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        result => result,
    }
}

/// Formats the change as a unified diff.
pub(crate) fn diff(path: &Path, before: &str, after: &str) -> String {
    let name = path.display().to_string();
    similar::TextDiff::from_lines(before, after).unified_diff().header(&name, &name).to_string()
}
