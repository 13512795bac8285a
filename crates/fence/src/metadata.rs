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
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

pub(crate) use self::git::settings_in;
pub(crate) use self::scope_tree::ScopeTree;
use crate::link_walk::{Destination, follow};
use crate::paths::VettedDirectory;
use crate::placeholders::{Missing, PlaceholderKind};
use crate::policy::{GitDirectory, MetadataChoice};

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

/// Whether an empty directory of this name at the top of a scope may be a placeholder.
pub fn is_placeholder_name(name: &OsStr) -> bool {
    METADATA.iter().chain(git::OF_EVERY_REPOSITORY).chain([&git::COMMON_DIRECTORY]).any(|kept| name == *kept)
}

/// What is kept of a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptPaths {
    pub(crate) read_only: BTreeSet<PathBuf>,
    /// Writable, but neither renamed nor removed.
    pub(crate) pinned: BTreeSet<PathBuf>,
    /// Kept too, once it is made.
    pub(crate) missing: Vec<Missing>,
}

/// Finds what is to be kept in the directories of a scope. `is_placeholder` tells what a session before has left.
pub(crate) fn find(
    scope: &[VettedDirectory],
    choice: &MetadataChoice,
    is_placeholder: &dyn Fn(&Path) -> bool,
) -> KeptPaths {
    let MetadataChoice::Kept { except } = choice else { return KeptPaths::default() };
    let mut kept = KeptPaths::default();
    for tree in scope.iter().filter_map(ScopeTree::open) {
        let mut finder = KeptPathsFinder { tree: &tree, kept: &mut kept, repositories: BTreeSet::new() };
        for name in METADATA.iter().filter(|name| !except.contains(**name)) {
            finder.keep(&tree.top().join(name), PlaceholderKind::Directory);
        }
        if !except.contains(".git") {
            finder.keep_from_being_repository(is_placeholder);
        }
    }
    kept
}

/// Finds what is to be kept in git directories outside the scope, and what their configuration names in the scope.
pub(crate) fn find_in_git_directories(directories: &[GitDirectory], scope: &[VettedDirectory]) -> KeptPaths {
    let mut kept = KeptPaths::default();
    for directory in directories {
        let Some(tree) = ScopeTree::open(&directory.directory) else { continue };
        let mut finder = KeptPathsFinder { tree: &tree, kept: &mut kept, repositories: BTreeSet::new() };
        finder.keep_taken_in();
        let Some(worktree) = &directory.worktree else { continue };
        let named = git::named_by_repository(&tree, worktree);
        for scope in scope.iter().filter_map(ScopeTree::open) {
            let mut finder = KeptPathsFinder { tree: &scope, kept: &mut kept, repositories: BTreeSet::new() };
            finder.keep_named(&named, worktree);
        }
    }
    kept
}

/// What programs outside execute or obey in a directory, relative to it: [`METADATA`], where links of these names lead,
/// and the hooks and files that the configuration of its repository names, also of one that lies in `git_directories`.
pub fn executed_in(directory: &VettedDirectory, git_directories: &[GitDirectory]) -> BTreeSet<PathBuf> {
    let scope = std::slice::from_ref(directory);
    let inside = find(scope, &MetadataChoice::Kept { except: BTreeSet::new() }, &|_| false);
    let named = find_in_git_directories(git_directories, scope);
    let all = inside.read_only.into_iter().chain(named.read_only);
    all.filter_map(|path| path.strip_prefix(directory.path()).ok().map(Path::to_owned)).collect()
}

/// Finds what is kept below the top of a scope.
struct KeptPathsFinder<'a> {
    tree: &'a ScopeTree,
    kept: &'a mut KeptPaths,
    /// Those that were looked at. They may lead to one another.
    repositories: BTreeSet<PathBuf>,
}

impl KeptPathsFinder<'_> {
    /// Keeps a path of the scope: the links on the way, what they lead to, or the name if nothing is there yet.
    fn keep(&mut self, path: &Path, placeholder: PlaceholderKind) {
        let mut links = Vec::new();
        let destination = follow(path, &mut |place, _| {
            links.push(place.to_owned());
            true
        });
        for link in &links {
            if self.is_inside(link) && !self.is_in_kept_directory(link) {
                self.keep_read_only(link);
            }
        }
        match destination {
            Destination::Found(place) | Destination::Missing(place) if self.is_in_kept_directory(&place) => {}
            Destination::Found(place) if self.is_inside(&place) => self.keep_existing(&place),
            Destination::Missing(place) if self.is_inside(&place) => self.reserve(&place, placeholder),
            _ => {}
        }
    }

    fn keep_existing(&mut self, path: &Path) {
        let is_repository = path.ends_with(".git") || git::is_repository(self.tree, path);
        if is_repository && self.tree.is_directory(path) {
            self.keep_repository(path);
        } else {
            self.keep_read_only(path);
        }
    }

    /// Reserves the outermost name of a path that is missing, with a placeholder.
    fn reserve(&mut self, path: &Path, placeholder: PlaceholderKind) {
        let is_missing = |path: &&Path| self.is_inside(path) && self.tree.kind(path).is_none();
        let Some(outermost) = path.ancestors().take_while(is_missing).last() else { return };
        let Some(parent) = outermost.parent() else { return };
        if !self.tree.is_directory(parent) {
            // A file, which must not become a directory.
            self.keep_read_only(parent);
            return;
        }
        let kind = if outermost == path { placeholder } else { PlaceholderKind::Directory };
        self.kept.missing.push(Missing { path: outermost.to_owned(), kind });
        self.keep_read_only(outermost);
    }

    fn keep_read_only(&mut self, path: &Path) {
        self.pin_above(path);
        self.kept.read_only.insert(path.to_owned());
    }

    /// Whether a directory above the path is read-only already.
    fn is_in_kept_directory(&self, path: &Path) -> bool {
        path.ancestors().skip(1).any(|above| self.kept.read_only.contains(above))
    }

    fn is_inside(&self, path: &Path) -> bool {
        path.starts_with(self.tree.top()) && path != self.tree.top()
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

    /// Names that keep the top of a scope from becoming a repository.
    const NOT_A_REPOSITORY: [&str; 2] = ["commondir", "refs"];

    fn kept(top: &Path) -> KeptPaths {
        let choice = MetadataChoice::Kept { except: BTreeSet::new() };
        find(&[VettedDirectory::own(top).unwrap()], &choice, &|_| false)
    }

    #[test]
    fn every_name_is_kept_whether_it_exists_or_not() {
        let top = test_directory::directory("metadata-names");
        fs::create_dir(top.join(".vscode")).unwrap();
        fs::write(top.join(".mcp.json"), "{}").unwrap();
        let kept = kept(&top);
        assert!(METADATA.iter().all(|name| kept.read_only.contains(&top.join(name))));
        let missing: Vec<&Path> = kept.missing.iter().map(|missing| missing.path.as_path()).collect();
        assert_eq!(missing.len(), METADATA.len() - 2 + NOT_A_REPOSITORY.len());
        assert!(NOT_A_REPOSITORY.iter().all(|name| missing.contains(&&*top.join(name))));
        assert!(!missing.contains(&&*top.join(".vscode")) && !missing.contains(&&*top.join(".mcp.json")));
        assert!(kept.pinned.is_empty(), "all lie at the top, which is a mount of its own");
    }

    #[test]
    fn what_an_earlier_session_has_left_asks_for_no_more_names() {
        let top = test_directory::directory("metadata-again");
        let first = kept(&top);
        let placeholders: Vec<&Path> = first.missing.iter().map(|missing| missing.path.as_path()).collect();
        for path in &placeholders {
            fs::create_dir(path).unwrap();
        }
        let choice = MetadataChoice::Kept { except: BTreeSet::new() };
        let scope = [VettedDirectory::own(&top).unwrap()];
        let again = find(&scope, &choice, &|path| placeholders.contains(&path));
        assert_eq!((again.read_only, again.missing.len()), (first.read_only.clone(), 0));
        // The control: directories of the user's make a repository more likely.
        assert_ne!(find(&scope, &choice, &|_| false).read_only, first.read_only);
    }

    #[test]
    fn a_name_that_is_allowed_is_left_alone() {
        let top = test_directory::directory("metadata-allowed");
        let except = BTreeSet::from([".claude".to_owned()]);
        let found = |choice| find(&[VettedDirectory::own(&top).unwrap()], &choice, &|_| false);
        let kept = found(MetadataChoice::Kept { except });
        assert_eq!(kept.read_only.len(), METADATA.len() - 1 + NOT_A_REPOSITORY.len());
        assert!(!kept.read_only.contains(&top.join(".claude")));
        assert_eq!(found(MetadataChoice::Writable), KeptPaths::default());
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

    #[test]
    fn every_link_on_the_way_is_kept_and_so_is_what_is_missing_at_its_end() {
        let top = test_directory::directory("metadata-link-chains");
        fs::create_dir(top.join("v1")).unwrap();
        symlink("current", top.join(".claude")).unwrap();
        symlink("v1", top.join("current")).unwrap();
        symlink("later/deep/idea", top.join(".idea")).unwrap();
        let kept = kept(&top);
        for path in [".claude", "current", "v1", ".idea", "later"] {
            assert!(kept.read_only.contains(&top.join(path)), "{path}");
        }
        let later = Missing { path: top.join("later"), kind: PlaceholderKind::Directory };
        assert!(kept.missing.contains(&later), "the outermost name is reserved");
    }
}
