//! The file of this program. It is looked at once, at the start: later it may have been replaced, and then
//! `/proc/self/exe` names a file that is gone.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::program;

#[derive(Clone, Debug)]
pub(crate) struct OwnProgram {
    /// Without links.
    pub(crate) file: PathBuf,
    /// The absolute path by which it was started. A link here may lead to another version one day.
    pub(crate) started_as: PathBuf,
}

static OWN: OnceLock<OwnProgram> = OnceLock::new();

/// Looks at it when called for the first time.
pub(crate) fn own_program() -> io::Result<&'static OwnProgram> {
    if let Some(own) = OWN.get() {
        return Ok(own);
    }
    let file = std::env::current_exe()?;
    let started_as = started_as().filter(|path| is_same_file(path, &file)).unwrap_or_else(|| file.clone());
    Ok(OWN.get_or_init(|| OwnProgram { file, started_as }))
}

/// The path that the first word of the command line means. Its caller may have put anything there.
fn started_as() -> Option<PathBuf> {
    let word = std::env::args_os().next()?;
    program::find(&word, &std::env::var_os("PATH").unwrap_or_default()).ok().filter(|path| path.is_absolute())
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|data| (data.dev(), data.ino()));
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}
