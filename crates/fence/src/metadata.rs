//! Files of a workspace that programs outside execute or obey: what git, editors, agents and shells read from a
//! project. A command inside a fence cannot change them, replace them, or make the missing ones.
//!
//! Tier B mounts each of them on itself, read-only. A mount point cannot be renamed or removed, so the directories above
//! one are mounted on themselves too, writable: that pins them. A name that is missing gets a placeholder
//! ([`crate::placeholders`]) for as long as a session works on the scope.
//!
//! Not covered: repositories that a command makes itself below the top of the scope. git on the host enters one when a
//! user goes there, or when the index of the repository above lists it. The end of a session names them.

mod git;
mod scope_tree;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use self::scope_tree::ScopeTree;
use crate::link_walk::Held;
use crate::paths::VettedDirectory;
use crate::placeholders::{Missing, PlaceholderKind};
use crate::policy::MetadataChoice;

/// The names at the top of a scope that are kept. Files that agents are asked to change every day are not among them:
/// see [`crate::is_executed_later`].
pub const METADATA: &[&str] = &[
    ".git",
    ".vscode",
    ".cursor",
    ".idea",
    ".claude",
    ".codex",
    ".gemini",
    ".mcp.json",
    ".devcontainer",
    ".devcontainer.json",
    ".husky",
    ".envrc",
    ".ringfence.yaml",
];

/// What is kept of a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptPaths {
    pub(crate) read_only: BTreeSet<PathBuf>,
    /// Writable, but neither renamed nor removed.
    pub(crate) pinned: BTreeSet<PathBuf>,
    /// Kept too, once it is made.
    pub(crate) missing: Vec<Missing>,
}

/// Finds what is to be kept in the directories of a scope.
pub(crate) fn find(scope: &[VettedDirectory], choice: &MetadataChoice) -> KeptPaths {
    let MetadataChoice::Kept { except } = choice else { return KeptPaths::default() };
    let mut kept = KeptPaths::default();
    for tree in scope.iter().filter_map(ScopeTree::open) {
        for name in METADATA.iter().filter(|name| !except.contains(**name)) {
            Keeper { tree: &tree, kept: &mut kept }.keep(&tree.top().join(name), PlaceholderKind::Directory);
        }
    }
    kept
}

/// Collects what is kept below the top of a scope.
struct Keeper<'a> {
    tree: &'a ScopeTree,
    kept: &'a mut KeptPaths,
}

impl Keeper<'_> {
    /// Keeps a path of the scope, or reserves its name with a placeholder.
    fn keep(&mut self, path: &Path, placeholder: PlaceholderKind) {
        match self.tree.kind(path) {
            Some(FileType::Symlink) => self.keep_link(path),
            Some(FileType::Directory) if path.ends_with(".git") => self.keep_repository(path),
            Some(_) => self.keep_read_only(path),
            None => {
                // Without its directory there is no place for it yet.
                if path.parent().is_some_and(|parent| self.tree.is_directory(parent)) {
                    self.kept.missing.push(Missing { path: path.to_owned(), kind: placeholder });
                    self.keep_read_only(path);
                }
            }
        }
    }

    fn keep_read_only(&mut self, path: &Path) {
        self.pin_above(path);
        self.kept.read_only.insert(path.to_owned());
    }

    /// Keeps a link from being replaced, and what it leads to if that lies in the scope.
    fn keep_link(&mut self, link: &Path) {
        self.keep_read_only(link);
        let Some(held) = Held::find(link) else { return };
        let target = held.path().to_owned();
        if target.starts_with(self.tree.top()) && target != self.tree.top() {
            if git::is_repository(self.tree, &target) {
                self.keep_repository(&target);
            } else {
                self.keep_read_only(&target);
            }
        }
    }

    fn pin(&mut self, path: &Path) {
        self.pin_above(path);
        self.kept.pinned.insert(path.to_owned());
    }

    fn pin_above(&mut self, path: &Path) {
        let top = self.tree.top();
        let below_top = |ancestor: &&Path| ancestor.starts_with(top) && *ancestor != top;
        let above: Vec<PathBuf> =
            path.ancestors().skip(1).take_while(below_top).map(Path::to_owned).collect();
        self.kept.pinned.extend(above);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn kept(top: &Path) -> KeptPaths {
        find(&[VettedDirectory::own(top).unwrap()], &MetadataChoice::Kept { except: BTreeSet::new() })
    }

    #[test]
    fn every_name_is_kept_whether_it_exists_or_not() {
        let top = test_directory::directory("metadata-names");
        fs::create_dir(top.join(".vscode")).unwrap();
        fs::write(top.join(".mcp.json"), "{}").unwrap();
        let kept = kept(&top);
        assert!(METADATA.iter().all(|name| kept.read_only.contains(&top.join(name))));
        let missing: Vec<&Path> = kept.missing.iter().map(|missing| missing.path.as_path()).collect();
        assert_eq!(missing.len(), METADATA.len() - 2);
        assert!(!missing.contains(&&*top.join(".vscode")) && !missing.contains(&&*top.join(".mcp.json")));
        assert!(kept.pinned.is_empty(), "all lie at the top, which is a mount of its own");
    }

    #[test]
    fn a_name_that_is_allowed_is_left_alone() {
        let top = test_directory::directory("metadata-allowed");
        let except = BTreeSet::from([".claude".to_owned()]);
        let kept = find(&[VettedDirectory::own(&top).unwrap()], &MetadataChoice::Kept { except });
        assert_eq!(kept.read_only.len(), METADATA.len() - 1);
        assert!(!kept.read_only.contains(&top.join(".claude")));
        assert_eq!(
            find(&[VettedDirectory::own(&top).unwrap()], &MetadataChoice::Writable),
            KeptPaths::default()
        );
    }

    #[test]
    fn a_link_is_kept_with_what_it_leads_to() {
        let top = test_directory::directory("metadata-links");
        fs::create_dir_all(top.join("shared/editor")).unwrap();
        symlink("shared/editor", top.join(".vscode")).unwrap();
        symlink("/etc", top.join(".idea")).unwrap();
        let kept = kept(&top);
        for path in [".vscode", ".idea", "shared/editor"] {
            assert!(kept.read_only.contains(&top.join(path)), "{path}");
        }
        assert_eq!(kept.pinned, BTreeSet::from([top.join("shared")]));
        assert!(!kept.read_only.contains(Path::new("/etc")));
    }
}
