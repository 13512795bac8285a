//! Tells one state of a file from another.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Differs after a file was written, replaced, or given other permissions. Editors replace files, so the file's
/// identity counts, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// Returns `None` if the file is not there or cannot be reached.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_differs_after_a_change_and_only_then() {
        let directory = std::env::current_exe().unwrap().with_extension("file-stamp");
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        let path = directory.join("file");
        assert_eq!(FileStamp::of(&path), None);
        fs::write(&path, "one").unwrap();
        let first = FileStamp::of(&path);
        assert!(first.is_some() && first == FileStamp::of(&path));
        fs::write(&path, "longer").unwrap();
        let second = FileStamp::of(&path);
        assert_ne!(first, second);
        let replacement = directory.join("replacement");
        fs::write(&replacement, "longer").unwrap();
        fs::rename(&replacement, &path).unwrap();
        assert_ne!(second, FileStamp::of(&path), "same contents, another file");
        fs::remove_file(&path).unwrap();
        fs::remove_dir(&directory).unwrap();
    }
}
