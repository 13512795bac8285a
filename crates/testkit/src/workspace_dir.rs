//! Directories for tests below `target/tmp`: outside `/tmp`, which a sandbox may replace.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::binaries::profile_directory;

/// A directory that is removed when this is dropped.
#[derive(Debug)]
pub struct WorkspaceDir {
    path: PathBuf,
}

/// A fresh, empty directory; `name` only makes it recognisable.
pub fn workspace_dir(name: &str) -> WorkspaceDir {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let target = profile_directory();
    let target = target.parent().expect("a profile directory lies in a target directory");
    let path = target.join("tmp").join(format!("{name}-{}-{number}", std::process::id()));
    // A process that had this pid before may have left one behind.
    drop(std::fs::remove_dir_all(&path));
    std::fs::create_dir_all(&path).expect("the target directory is writable");
    WorkspaceDir { path }
}

impl WorkspaceDir {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.path.join(relative)
    }
}

impl AsRef<Path> for WorkspaceDir {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkspaceDir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.path));
    }
}
