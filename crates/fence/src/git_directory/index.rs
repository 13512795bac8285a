//! Reads the names in git's index: whether a folder has files of the repository in it, and which files git itself reads
//! to compare the others with it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Files that git reads in every directory.
const READ_BY_GIT: &[&[u8]] = &[b".gitignore", b".gitattributes"];
/// The most files that are listed.
const MAX_READ_BY_GIT: usize = 4096;

/// What the index of a repository says about a folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// It has files of the repository in it.
    pub(super) has_files: bool,
    /// Files outside the folder that git reads, from the top of the tree.
    pub(super) read_by_git: Vec<PathBuf>,
}

/// The bytes of an index, and how to read them.
#[derive(Clone, Copy)]
pub(super) struct Index<'a> {
    pub(super) bytes: &'a [u8],
    /// The length of the names of objects.
    pub(super) hash_bytes: usize,
    /// When it was written, in seconds since the epoch.
    pub(super) written: u64,
}

/// Looks for files of a folder. `None`: the index cannot be read.
pub(super) fn look_for(index: Index<'_>, folder: &Path) -> Option<Listed> {
    let mut prefix = folder.as_os_str().as_bytes().to_vec();
    prefix.push(b'/');
    let (mut has_files, mut read_by_git) = (false, Vec::new());
    each_name(index, &mut |name, modified| {
        // A sparse index lists a whole directory as one name with a slash at its end.
        if name.starts_with(&prefix) || (name.ends_with(b"/") && prefix.starts_with(name)) {
            has_files = true;
            return;
        }
        let is_read_always =
            READ_BY_GIT.contains(&name.rsplit(|byte| *byte == b'/').next().unwrap_or_default());
        // A file that was changed in the second of the index may have changed after it, so git compares contents.
        if (is_read_always || modified >= index.written) && read_by_git.len() < MAX_READ_BY_GIT {
            read_by_git.push(PathBuf::from(OsStr::from_bytes(name)));
        }
    })?;
    Some(Listed { has_files, read_by_git })
}

/// Calls `each` with every name and the second in which its file was changed. The formats are those of git's `gitformat-index`, versions 2 to 4.
pub(super) fn each_name(index: Index<'_>, each: &mut dyn FnMut(&[u8], u64)) -> Option<()> {
    let Index { bytes: index, hash_bytes, .. } = index;
    let number = |place: usize| Some(u32::from_be_bytes(index.get(place..place + 4)?.try_into().ok()?));
    let version = number(4)?;
    if index.get(..4)? != b"DIRC" || !(2..=4).contains(&version) {
        return None;
    }
    // Times, device, inode, mode, owner and size take 40 bytes.
    let before_flags = 40 + hash_bytes;
    let (mut place, mut name) = (12, Vec::new());
    for _ in 0..number(8)? {
        let start = place;
        // After the time at which the inode was changed.
        let modified = number(start + 8)?;
        let flags =
            u16::from_be_bytes(index.get(place + before_flags..place + before_flags + 2)?.try_into().ok()?);
        let is_extended = version >= 3 && flags & 0x4000 != 0;
        place += before_flags + if is_extended { 4 } else { 2 };
        if version == 4 {
            let (removed, length) = variable_length(index.get(place..)?)?;
            place += length;
            name.truncate(name.len().checked_sub(removed)?);
        } else {
            name.clear();
        }
        let rest = index.get(place..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        name.extend_from_slice(&rest[..end]);
        each(&name, modified.into());
        place += end + 1;
        if version < 4 {
            // An entry ends with one to eight zeros, at a multiple of eight bytes.
            place = start + (place - start).next_multiple_of(8);
        }
    }
    Some(())
}

/// A number of variable length, and the bytes that it takes.
fn variable_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = usize::from(bytes.first()? & 0x7f);
    let mut length = 1;
    while bytes[length - 1] & 0x80 != 0 {
        let next = *bytes.get(length)?;
        value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(next & 0x7f))?;
        length += 1;
    }
    Some((value, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn git(directory: &Path, arguments: &[&str]) {
        let run = Command::new("git").args(arguments).current_dir(directory).output().unwrap();
        assert!(run.status.success(), "{run:?}");
    }

    #[test]
    fn every_version_of_the_index_is_read() {
        for (format, hash_bytes) in [("sha1", 20), ("sha256", 32)] {
            let top = crate::test_directory::directory(&format!("git-index-{format}"));
            git(&top, &["init", "--quiet", "--object-format", format]);
            for name in [".gitignore", "a/deep/file", "a/.gitattributes", "b/new", "b/.gitignore", "c/x"] {
                std::fs::create_dir_all(top.join(name).parent().unwrap()).unwrap();
                std::fs::write(top.join(name), "x").unwrap();
            }
            git(&top, &["add", ".gitignore", "a", "b/.gitignore"]);
            git(&top, &["add", "--intent-to-add", "b/new"]);
            for version in ["2", "3", "4"] {
                git(&top, &["update-index", "--index-version", version]);
                let index = std::fs::read(top.join(".git/index")).unwrap();
                let read = |bytes, folder: &str, written| {
                    look_for(Index { bytes, hash_bytes, written }, Path::new(folder))
                };
                let names = |folder: &str| {
                    let listed = read(&index, folder, u64::MAX).unwrap();
                    if !listed.has_files {
                        return None;
                    }
                    let names = listed.read_by_git.iter().map(|path| path.to_str().unwrap().to_owned());
                    Some(names.collect::<Vec<_>>())
                };
                assert_eq!(names("a/deep").unwrap(), [".gitignore", "a/.gitattributes", "b/.gitignore"]);
                assert_eq!(names("b").unwrap(), [".gitignore", "a/.gitattributes"], "version {version}");
                assert_eq!(names("c"), None, "it is not tracked");
                assert_eq!(names("a/de"), None, "no folder");
                for cut in 0..index.len() {
                    read(&index[..cut], "a", 0);
                }
                let racy = read(&index, "b", 0).unwrap().read_by_git;
                assert!(racy.contains(&"a/deep/file".into()), "git compares contents");
            }
        }
    }
}
