//! What may help whoever named a path that leads nowhere: names that look like it, and the same path inside.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Dir, OFlags};

use super::{PathError, SessionPath, Workspace};

/// More names of a directory than this are not compared.
const MAX_COMPARED: usize = 2000;
/// More steps of a path are not tried.
const MAX_STEPS: usize = 32;

impl Workspace {
    /// The refusal of a path outside, with the same path inside if there is one.
    pub(super) fn outside(&self, written: &str, path: &Path) -> PathError {
        PathError::Outside {
            path: written.to_owned(),
            workspace: self.described(),
            inside: self.same_path_inside(path),
        }
    }

    /// `/elsewhere/project/src/main.rs` is `src/main.rs`, if the workspace has that.
    fn same_path_inside(&self, path: &Path) -> Option<String> {
        let steps: Vec<_> = path.components().filter(|step| matches!(step, Component::Normal(_))).collect();
        (0..steps.len().min(MAX_STEPS))
            .map(|skipped| steps[skipped..].iter().collect::<PathBuf>())
            .find(|below| {
                let found = self.resolve(0, below, OFlags::PATH).ok();
                found.is_some_and(|found| !self.is_blocked(found.as_fd(), None))
            })
            .map(|below| below.to_string_lossy().into_owned())
    }

    /// Names beside a missing one that look like it.
    pub(super) fn nearest_names(&self, path: &SessionPath) -> Vec<String> {
        let Some((parent, wanted)) = self.first_missing(path) else { return Vec::new() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Ok(directory) = self.resolve(path.root, &parent, flags) else { return Vec::new() };
        let Ok(entries) = Dir::read_from(&directory) else { return Vec::new() };
        let names: Vec<String> = entries
            .take(MAX_COMPARED)
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name != "." && name != ".." && !self.is_blocked(directory.as_fd(), Some(name)))
            .collect();
        let candidates: Vec<&str> = names.iter().map(String::as_str).collect();
        let shown = |name: &str| self.show(&SessionPath::found(path.root, parent.join(name)));
        similar::get_close_matches(wanted.as_str(), &candidates, 3, 0.6).into_iter().map(shown).collect()
    }

    /// What the operator blocks is not named either.
    fn is_blocked(&self, open: BorrowedFd<'_>, name: Option<&str>) -> bool {
        let Some(rules) = self.path_rules() else { return false };
        let Some(below) = self.real_below(open) else { return true };
        rules.against_directory(&name.map_or_else(|| below.clone(), |name| below.join(name))).is_some()
    }

    /// The deepest directory on the way that is there, and the name that is missing in it.
    fn first_missing(&self, path: &SessionPath) -> Option<(PathBuf, String)> {
        let mut reached = PathBuf::from(".");
        for step in path.below.components().take(MAX_STEPS) {
            let next = reached.join(step);
            if self.resolve(path.root, &next, OFlags::PATH).is_err() {
                return Some((reached, step.as_os_str().to_string_lossy().into_owned()));
            }
            reached = next;
        }
        None
    }
}
