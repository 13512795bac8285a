//! Directories for this crate's own tests, beside the test program and so outside shared temporary directories.

use std::path::PathBuf;

/// An empty directory of that name.
pub(crate) fn directory(name: &str) -> PathBuf {
    let directory = std::env::current_exe().unwrap().with_file_name("fence-unit-tests").join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory.canonicalize().unwrap()
}
