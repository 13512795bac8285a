//! Which changes programs outside would execute or obey: known names, hooks, repositories in disguise, and links that lead
//! outside the project.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::overlay::is_hidden;
use super::{Change, EntryFacts, EntryKind, Sides};
use crate::held_tree::HeldTree;

/// Directories of hooks, beside what the caller knows of `core.hooksPath`.
const HOOKS: &[&str] = &[".githooks", ".hooks", ".husky"];
/// What editors, agents, shells, debuggers and package managers read where they are started, at any level, beside
/// [`fence::METADATA`] and what [`fence::is_executed_later`] knows.
const READ_WHERE_STARTED: &[&str] = &[
    ".aider.conf.yml",
    ".bash_profile",
    ".bashrc",
    ".bazelrc",
    ".cargo",
    ".clinerules",
    ".continue",
    ".dir-locals-2.el",
    ".dir-locals.el",
    ".exrc",
    ".fleet",
    ".gdbinit",
    ".gitconfig",
    ".kiro",
    ".lefthook.yml",
    ".lldbinit",
    ".mise.toml",
    ".npmrc",
    ".nvim.lua",
    ".nvimrc",
    ".opencode",
    ".pnpmfile.cjs",
    ".pre-commit-hooks.yaml",
    ".profile",
    ".roo",
    ".tool-versions",
    ".vimrc",
    ".vs",
    ".windsurf",
    ".windsurfrules",
    ".worktreeinclude",
    ".yarn",
    ".yarnrc",
    ".yarnrc.yml",
    ".zed",
    ".zshenv",
    ".zshrc",
    "bunfig.toml",
    "lefthook.yml",
    "mise.toml",
    "opencode.json",
    "rust-toolchain",
    "rust-toolchain.toml",
    "sitecustomize.py",
    "usercustomize.py",
];
/// Endings of such files.
const READ_ENDINGS: &[&str] = &[".code-workspace", ".pth"];
/// What git is called by file systems that shorten names.
const SHORT_NAME_OF_GIT: &str = "git~1";
/// Links of links that are followed.
const MAX_LINKS: usize = 8;
/// A change of one of these in a directory may make a git directory of it, which git enters and obeys.
const OF_GIT_DIRECTORIES: &[&str] =
    &["HEAD", "config", "config.worktree", "commondir", "hooks", "objects", "refs"];

pub(crate) struct ExecutedNames {
    /// Paths with all that is below them.
    prefixes: BTreeSet<PathBuf>,
}

impl ExecutedNames {
    pub(crate) fn of(sides: &Sides, told: &[PathBuf], entries: &[Change]) -> Self {
        let mut prefixes: BTreeSet<PathBuf> = told.iter().cloned().collect();
        for name in fence::METADATA {
            // A known name may be a link to a directory of the project.
            for tree in [&sides.base, &sides.copy] {
                add_targets(tree, Path::new(name), &mut prefixes);
            }
        }
        prefixes.extend(disguised_repositories(sides, entries));
        prefixes.remove(Path::new(""));
        Self { prefixes }
    }

    pub(crate) fn has(&self, change: &Change) -> bool {
        let path = change.path.as_path();
        is_executed_outside(path)
            || path.ancestors().any(|above| self.prefixes.contains(above))
            || change.after.as_ref().is_some_and(|after| leads_outside(path, after))
    }
}

/// Adds where a link leads, and where that leads.
fn add_targets(tree: &HeldTree, link: &Path, prefixes: &mut BTreeSet<PathBuf>) {
    let mut place = link.to_owned();
    for _ in 0..MAX_LINKS {
        let directory = place.parent().unwrap_or(Path::new(""));
        let target = tree.target(&place).ok().and_then(|target| plain(directory, &target));
        let Some(target) = target else { return };
        prefixes.insert(target.clone());
        place = target;
    }
}

/// Whether a path of a project has one of the names whose files programs outside execute or obey.
pub fn is_executed_outside(path: &Path) -> bool {
    // Some file systems do not tell upper case from lower case.
    let is_known = |name: &OsStr| {
        let all = fence::METADATA.iter().chain(HOOKS).chain(READ_WHERE_STARTED).chain([&SHORT_NAME_OF_GIT]);
        let has_ending = |ending: &&str| name.as_bytes().ends_with(ending.as_bytes());
        all.into_iter().any(|known| name.eq_ignore_ascii_case(known)) || READ_ENDINGS.iter().any(has_ending)
    };
    path.iter().any(is_known) || fence::is_executed_later(path)
}

/// Whether a link leads out of the project, or into a git directory: programs that write through it would not know.
fn leads_outside(path: &Path, facts: &EntryFacts) -> bool {
    let Some(target) = &facts.target else { return false };
    let directory = path.parent().unwrap_or(Path::new(""));
    // Behind the name of a link, `..` leads elsewhere than the spelling says.
    let mut names = target.components().skip_while(|part| !matches!(part, Component::Normal(_)));
    names.any(|part| part == Component::ParentDir)
        || plain(directory, target)
            .is_none_or(|place| place.iter().any(|name| name.eq_ignore_ascii_case(".git")))
}

/// Where a relative target leads, by its spelling. `None`: outside.
fn plain(directory: &Path, target: &Path) -> Option<PathBuf> {
    let mut place = directory.to_owned();
    for part in target.components() {
        match part {
            Component::Normal(name) => place.push(name),
            Component::ParentDir if place.pop() => {}
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(place)
}

/// Directories that git would take for git directories after the change.
fn disguised_repositories(sides: &Sides, entries: &[Change]) -> BTreeSet<PathBuf> {
    let mut suspects = BTreeSet::new();
    for change in entries.iter().filter(|change| change.after.is_some()) {
        for above in change.path.ancestors() {
            let is_of_git =
                above.file_name().is_some_and(|name| OF_GIT_DIRECTORIES.iter().any(|known| name == *known));
            if let Some(directory) = above.parent().filter(|_| is_of_git) {
                suspects.insert(directory.to_owned());
            }
        }
    }
    suspects.retain(|directory| {
        let has = |name: &str| is_in_copy(sides, &directory.join(name));
        has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
    });
    suspects
        .iter()
        .flat_map(|directory| {
            // The top itself would mark everything, so there only the names that make it one count.
            let is_top = directory.as_os_str().is_empty();
            let names = OF_GIT_DIRECTORIES.iter().map(|name| directory.join(name));
            if is_top { names.collect() } else { vec![directory.clone()] }
        })
        .collect()
}

/// Whether the copy shows something at a path.
fn is_in_copy(sides: &Sides, path: &Path) -> bool {
    let has = |tree: &HeldTree| {
        tree.look(path).is_ok_and(|seen| seen.is_some_and(|seen| seen.kind != EntryKind::Device))
    };
    has(&sides.copy) || (has(&sides.base) && !is_hidden(sides, path))
}
