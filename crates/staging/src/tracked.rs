//! Which files of a base git tracks, read from the indexes of its repositories.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::held_tree::HeldTree;

/// An index of more is not read; its files count as untracked.
const MAX_INDEX_BYTES: u64 = 512 * 1024 * 1024;
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;

/// Names of tracked files, relative to the base.
#[derive(Debug, Default)]
pub(crate) struct Tracked {
    files: BTreeSet<PathBuf>,
}

impl Tracked {
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.files.contains(path)
    }

    /// Whether a file is tracked somewhere below a directory.
    pub(crate) fn has_below(&self, directory: &Path) -> bool {
        self.files.range(directory.to_owned()..).next().is_some_and(|file| file.starts_with(directory))
    }

    /// Reads the index of a repository whose tree is `folder` of the base. Its git directory is `.git` there, or where
    /// the `.git` file of a submodule leads below the base.
    pub(crate) fn add_repository(&mut self, base: &HeldTree, folder: &Path) {
        let Some(directory) = git_directory(base, folder) else { return };
        if let Ok(index) = base.read(&directory.join("index"), MAX_INDEX_BYTES) {
            // A submodule's settings are its own.
            let config = base.read(&directory.join("config"), MAX_CONFIG_BYTES).unwrap_or_default();
            self.add(&index, &config, |name| Some(folder.join(name)));
        }
    }

    /// Reads the index of a git directory outside the base.
    pub(crate) fn add_outside(
        &mut self,
        git_directory: &Path,
        worktree: &Path,
        base: &Path,
    ) -> io::Result<()> {
        let directory = HeldTree::open(git_directory)?;
        let index = directory.read(Path::new("index"), MAX_INDEX_BYTES)?;
        let config = directory.read(Path::new("config"), MAX_CONFIG_BYTES).unwrap_or_default();
        self.add(&index, &config, |name| Some(worktree.join(name).strip_prefix(base).ok()?.to_owned()));
        Ok(())
    }

    fn add(&mut self, index: &[u8], config: &[u8], place: impl Fn(&Path) -> Option<PathBuf>) {
        let is_sha256 = String::from_utf8_lossy(config)
            .lines()
            .map(|line| line.to_ascii_lowercase().replace([' ', '\t'], ""))
            .any(|line| line == "objectformat=sha256");
        // What a damaged index does not tell counts as untracked.
        let _ = fence::each_tracked_file(index, is_sha256, &mut |name| self.files.extend(place(name)));
    }
}

fn git_directory(base: &HeldTree, folder: &Path) -> Option<PathBuf> {
    let dot_git = folder.join(".git");
    if base.look(&dot_git).ok()??.is_directory() {
        return Some(dot_git);
    }
    let text = String::from_utf8(base.read(&dot_git, MAX_CONFIG_BYTES).ok()?).ok()?;
    let named = folder.join(text.strip_prefix("gitdir:")?.trim());
    let mut plain = PathBuf::new();
    for part in named.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir if plain.pop() => {}
            Component::CurDir => {}
            // Outside the base.
            _ => return None,
        }
    }
    Some(plain)
}
