//! Hints for paths that lead nowhere: similar names, and the same path inside the workspace.

use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Dir, OFlags};

use super::path_error::PathError;
use super::session_path::SessionPath;
use super::workspace::Workspace;
use crate::rules::PathRules;

/// Names of a directory that are compared at most.
const MAX_COMPARED: usize = 2000;
/// Steps of a path that are tried at most.
const MAX_STEPS: usize = 32;

impl Workspace {
    /// The error for a path outside the workspace, with the same path inside if there is one.
    pub(super) fn outside(&self, written: &str, path: &Path) -> PathError {
        PathError::Outside {
            path: written.to_owned(),
            workspace: self.described(),
            inside: self.same_path_inside(path),
        }
    }

    /// Finds `src/main.rs` for `/elsewhere/project/src/main.rs`, if the workspace has it.
    fn same_path_inside(&self, path: &Path) -> Option<String> {
        let steps: Vec<_> = path.components().filter(|step| matches!(step, Component::Normal(_))).collect();
        (0..steps.len().min(MAX_STEPS))
            .map(|skipped| steps[skipped..].iter().collect::<PathBuf>())
            .find(|below| {
                let found = self.resolve(0, below, OFlags::PATH).ok();
                found.is_some_and(|found| {
                    let below = || self.real_below(found.as_fd());
                    let is_open = |rules: &PathRules| {
                        below().is_some_and(|below| rules.against_directory(&below).is_none())
                    };
                    self.path_rules().is_none_or(is_open)
                })
            })
            .map(|below| below.to_string_lossy().into_owned())
    }

    /// Existing names that resemble a missing one.
    pub(super) fn nearest_names(&self, path: &SessionPath) -> Vec<String> {
        let Some((parent, wanted)) = self.first_missing(path) else { return Vec::new() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Ok(directory) = self.resolve(path.root, &parent, flags) else { return Vec::new() };
        let Ok(entries) = Dir::read_from(&directory) else { return Vec::new() };
        let rules = self.rules_in(directory.as_fd());
        let names: Vec<String> = entries
            .take(MAX_COMPARED)
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name != "." && name != ".." && !rules.block(name, true))
            .collect();
        let candidates: Vec<&str> = names.iter().map(String::as_str).collect();
        let shown = |name: &str| self.show(&SessionPath::found(path.root, parent.join(name)));
        similar::get_close_matches(wanted.as_str(), &candidates, 3, 0.6).into_iter().map(shown).collect()
    }

    /// The deepest existing directory of a path, and the name that is missing in it.
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
