//! Finds the git directory of a scope that is not the top of its repository: a linked worktree, a submodule, a folder of
//! a larger repository. The scope then takes that directory in, so that git works inside the fence.
//!
//! The way there leads through files of the scope, which a session may have written before the fence kept them. So a
//! directory counts only if it leads back: a worktree's directory names the `.git` file of the worktree, the
//! configuration of a submodule names its tree, and the index of a repository lists files of the folder. All of them lie
//! where the session could not write. A directory without a way back (`git init --separate-git-dir`) is taken in only if
//! the operator names it.

mod index;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::host_environment::HostEnvironment;
use crate::link_walk::{Walk, walk};
use crate::metadata::{ScopeTree, settings_in};
use crate::paths::{DeniedPath, VettedDirectory, check_place};
use crate::policy::{GitChoice, GitDirectory, SurroundingTree};
use crate::scope_scan::lexical;

/// The index of a repository with half a million files is shorter.
const MAX_INDEX_BYTES: u64 = 64 * 1024 * 1024;

/// A git directory that the scope leads to, and why it stays outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitLeftOut {
    pub directory: PathBuf,
    pub reason: &'static str,
}

impl GitLeftOut {
    /// One line for the operator.
    pub fn warning(&self) -> String {
        format!(
            "the git directory {} is outside the scope and stays outside: {}; to take it in: --git-directory {}",
            self.directory.display(),
            self.reason,
            self.directory.display()
        )
    }
}

/// What was found for the directories of a scope.
#[derive(Debug, Default)]
pub(crate) struct GitSurvey {
    pub(crate) taken: Vec<GitDirectory>,
    pub(crate) left_out: Vec<GitLeftOut>,
}

impl GitSurvey {
    /// Leaves out those that a staged scope has no copy of: they would be changed themselves.
    pub(crate) fn leave_out_unless(&mut self, is_copied: impl Fn(&VettedDirectory) -> bool) {
        let taken = std::mem::take(&mut self.taken);
        let (copied, others): (Vec<_>, Vec<_>) = taken.into_iter().partition(|git| is_copied(&git.directory));
        self.taken = copied;
        let reason = "the session works on a copy, which has none of this directory";
        let left_out = |git: GitDirectory| GitLeftOut { directory: git.directory.path().to_owned(), reason };
        self.left_out.extend(others.into_iter().map(left_out));
    }
}

/// The git directories outside a directory that a session there would take in.
pub fn git_directories_beside(directory: &VettedDirectory, host: &HostEnvironment) -> Vec<GitDirectory> {
    let choice = GitChoice { leading_back: true, named: Vec::new() };
    find(std::slice::from_ref(directory), &choice, None, &host.denied_by_default(), host).taken
}

/// Looks for the git directories of a scope.
pub(crate) fn find(
    scope: &[VettedDirectory],
    choice: &GitChoice,
    user: Option<u32>,
    denied: &[DeniedPath],
    host: &HostEnvironment,
) -> GitSurvey {
    let owner = user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let search = Search { scope, owner, denied, host };
    let mut survey = GitSurvey::default();
    for directory in &choice.named {
        match search.named(directory) {
            Ok(found) => survey.add(found),
            Err(reason) => survey.left_out.push(GitLeftOut { directory: directory.clone(), reason }),
        }
    }
    for root in scope.iter().filter(|_| choice.leading_back) {
        match search.around(root) {
            Ok(found) => found.into_iter().for_each(|found| survey.add(found)),
            Err(left)
                if survey.taken.iter().any(|taken| left.directory.starts_with(taken.directory.path())) => {}
            Err(left) => survey.left_out.push(left),
        }
    }
    survey
}

impl GitSurvey {
    fn add(&mut self, found: GitDirectory) {
        if !self.taken.contains(&found) {
            self.taken.push(found);
        }
    }
}

struct Search<'a> {
    scope: &'a [VettedDirectory],
    owner: u32,
    denied: &'a [DeniedPath],
    host: &'a HostEnvironment,
}

/// The part of a repository that belongs to one tree of files: its own index, and what all trees share.
struct Repository {
    /// Where objects, references and the configuration are.
    common: VettedDirectory,
    /// Where the index is.
    own: PathBuf,
}

impl Search<'_> {
    /// The git directory of a root, if it lies outside the scope.
    fn around(&self, root: &VettedDirectory) -> Result<Option<GitDirectory>, GitLeftOut> {
        let Some(worktree) = self.worktree_of(root) else { return Ok(None) };
        let repository = match self.repository_of(&worktree)? {
            Some(repository) if !self.is_in_scope(repository.common.path()) => repository,
            _ => return Ok(None),
        };
        let left_out = |reason| GitLeftOut { directory: repository.common.path().to_owned(), reason };
        self.check(&repository.common).map_err(left_out)?;
        let around = if worktree.path() == root.path() {
            None
        } else {
            let (around, has_files) =
                surrounding_tree(root, worktree.path(), &repository).unwrap_or_else(|| bare(worktree.path()));
            if !has_files {
                return Err(left_out(
                    "the repository has no files in this folder, so it may be no part of it",
                ));
            }
            Some(around)
        };
        let worktree = Some(worktree.path().to_owned());
        Ok(Some(GitDirectory { directory: repository.common, worktree, around }))
    }

    /// The directory itself or the nearest one above it that has a `.git`, as git looks for it: on the same file system,
    /// and of this user. Directories that could be no scope are not looked at.
    fn worktree_of(&self, root: &VettedDirectory) -> Option<VettedDirectory> {
        for path in root.path().ancestors() {
            let directory = hold(path)?;
            if directory.device != root.device {
                return None;
            }
            let tree = ScopeTree::open(&directory)?;
            let dot_git = path.join(".git");
            // An empty directory may be a placeholder. git goes on to look above it too.
            let is_repository = tree.is_file(&dot_git) || is_repository(&tree, &dot_git);
            if is_repository {
                let is_scope = path == root.path()
                    || check_place(path, self.host.home.as_deref(), Some(self.host.outside())).is_ok();
                let is_own = [path, &dot_git].iter().all(|path| tree.owner(path) == Some(self.owner));
                return (is_scope && is_own).then_some(directory);
            }
        }
        None
    }

    /// The repository that a `.git` is or leads to. `None`: one that lies in the scope.
    fn repository_of(&self, worktree: &VettedDirectory) -> Result<Option<Repository>, GitLeftOut> {
        let dot_git = worktree.path().join(".git");
        let Some(tree) = ScopeTree::open(worktree) else { return Ok(None) };
        let is_plain = tree.is_directory(&dot_git);
        let named = if is_plain {
            dot_git
        } else {
            let text = tree.read(&dot_git);
            let Some(named) = text.strip_prefix("gitdir:").map(str::trim) else { return Ok(None) };
            lexical(&worktree.path().join(named))
        };
        if self.is_in_scope(&named) {
            return Ok(None);
        }
        let left_out = |reason| GitLeftOut { directory: named.clone(), reason };
        let own = self.hold_outside(&named).ok_or_else(|| left_out("it does not exist"))?;
        let own_tree = ScopeTree::open(&own).ok_or_else(|| left_out("it cannot be read"))?;
        let common = common_directory(&own, &own_tree)
            .ok_or_else(|| left_out("its `commondir` leads elsewhere than to the repository around it"))?;
        let leads_back = if common.path() == own.path() {
            configured_worktree(&own, &own_tree).map_or(is_plain, |configured| configured == worktree.path())
        } else {
            leads_back_to_worktree(&own, &own_tree, worktree.path())
        };
        if leads_back {
            return Ok(Some(Repository { common, own: own.path().to_owned() }));
        }
        Err(left_out("nothing in it leads back to this directory, so a session could have chosen it"))
    }

    /// A directory that the operator names: a git directory, or one that has it as `.git`.
    fn named(&self, path: &Path) -> Result<GitDirectory, &'static str> {
        let path = std::path::absolute(path).map_err(|_| "its path is not valid")?;
        let path = lexical(&path);
        let candidate = |path: &Path| {
            let directory = self.hold_outside(path)?;
            let tree = ScopeTree::open(&directory)?;
            is_repository(&tree, directory.path()).then_some(directory)
        };
        let own = candidate(&path.join(".git")).or_else(|| candidate(&path));
        let directory = own.ok_or("it is no git directory")?;
        self.check(&directory)?;
        let is_led_there = |root: &&VettedDirectory| {
            let text = ScopeTree::open(root).map(|tree| tree.read(&root.path().join(".git")));
            let text = text.unwrap_or_default();
            let named = text.strip_prefix("gitdir:").map(|named| lexical(&root.path().join(named.trim())));
            named.is_some_and(|named| named == directory.path())
        };
        if let Some(root) = self.scope.iter().find(is_led_there) {
            let worktree = Some(root.path().to_owned());
            return Ok(GitDirectory { directory, worktree, around: None });
        }
        let above = directory.path().parent().filter(|_| directory.path().ends_with(".git"));
        let folder = above.and_then(|above| {
            let is_folder = |root: &&VettedDirectory| root.path() != above && root.path().starts_with(above);
            Some((above.to_owned(), self.scope.iter().find(is_folder)?))
        });
        let Some((top, folder)) = folder else {
            return Ok(GitDirectory { directory, worktree: None, around: None });
        };
        let repository = Repository { own: directory.path().to_owned(), common: directory };
        let (around, _) = surrounding_tree(folder, &top, &repository).unwrap_or_else(|| bare(&top));
        Ok(GitDirectory { directory: repository.common, worktree: Some(top), around: Some(around) })
    }

    /// Refuses a directory that no scope may reach, or that holds what must not be read.
    fn check(&self, directory: &VettedDirectory) -> Result<(), &'static str> {
        let path = directory.path();
        if self.host.check_held(directory).is_err() {
            return Err("a scope may not contain it");
        }
        let tree = ScopeTree::open(directory).ok_or("it cannot be read")?;
        if !is_repository(&tree, path) {
            return Err("it is no git directory");
        }
        if tree.owner(path) != Some(self.owner) {
            return Err("it belongs to another user");
        }
        let meets = |denied: &DeniedPath| denied.path.starts_with(path) || path.starts_with(&denied.path);
        if self.denied.iter().any(meets) {
            return Err("it holds or lies in what must not be read");
        }
        if self.scope.iter().any(|root| root.path().starts_with(path)) {
            return Err("the scope lies in it");
        }
        Ok(())
    }

    fn is_in_scope(&self, path: &Path) -> bool {
        self.scope.iter().any(|root| path.starts_with(root.path()))
    }

    /// Holds a directory outside the scope. Follows no link that lies in the scope.
    fn hold_outside(&self, path: &Path) -> Option<VettedDirectory> {
        match walk(path, &mut |place, _| !self.is_in_scope(place)) {
            Walk::Found(held) if !self.is_in_scope(held.path()) => VettedDirectory::held(&held),
            _ => None,
        }
    }
}

/// Holds a directory whose path has no links.
fn hold(path: &Path) -> Option<VettedDirectory> {
    match walk(path, &mut |_, _| false) {
        Walk::Found(held) => VettedDirectory::held(&held),
        Walk::Missing(_) | Walk::Refused => None,
    }
}

fn is_repository(tree: &ScopeTree, directory: &Path) -> bool {
    tree.is_file(&directory.join("HEAD")) && tree.is_directory(&directory.join("objects"))
}

/// Where the objects of a git directory are: in itself, or for a linked worktree two levels above.
fn common_directory(own: &VettedDirectory, tree: &ScopeTree) -> Option<VettedDirectory> {
    let named = tree.read(&own.path().join("commondir"));
    let named = named.trim();
    let is_itself = named.is_empty() || lexical(&own.path().join(named)) == own.path();
    if is_itself {
        return Some(own.clone());
    }
    let worktrees = own.path().parent().filter(|parent| parent.ends_with("worktrees"))?;
    let above = worktrees.parent()?;
    (lexical(&own.path().join(named)) == above).then(|| hold(above))?
}

/// Whether the directory of a linked worktree names the worktree's `.git`.
fn leads_back_to_worktree(own: &VettedDirectory, tree: &ScopeTree, worktree: &Path) -> bool {
    let named = tree.read(&own.path().join("gitdir"));
    let dot_git = lexical(&own.path().join(named.trim()));
    dot_git.file_name().is_some_and(|name| name == ".git")
        && dot_git.parent().and_then(hold).is_some_and(|directory| directory.path() == worktree)
}

/// The tree that the configuration of a git directory names.
fn configured_worktree(own: &VettedDirectory, tree: &ScopeTree) -> Option<PathBuf> {
    let texts = ["config", "config.worktree"].map(|name| tree.read(&own.path().join(name)));
    let is_worktree = |section: &str, name: &str| section == "core" && name == "worktree";
    let named = texts.iter().rev().find_map(|text| {
        let setting = settings_in(text).find(|setting| is_worktree(&setting.section, &setting.name))?;
        Some(lexical(&own.path().join(setting.value)))
    })?;
    // A tree that is gone is not the one that is asked about.
    Some(hold(&named).map_or(named, |held| held.path().to_owned()))
}

/// A tree of which nothing is known.
fn bare(top: &Path) -> (SurroundingTree, bool) {
    (SurroundingTree { top: top.to_owned(), readable: Vec::new() }, false)
}

/// Calls `each` with every file that an index of git lists, relative to the top of its tree. `None`: the index cannot be
/// read to its end.
pub fn each_tracked_file(index: &[u8], is_sha256: bool, each: &mut dyn FnMut(&Path)) -> Option<()> {
    let index = index::Index { bytes: index, hash_bytes: hash_bytes(is_sha256), written: 0 };
    index::each_name(index, &mut |name, _| each(Path::new(OsStr::from_bytes(name))))
}

/// The length of the names of objects.
fn hash_bytes(is_sha256: bool) -> usize {
    if is_sha256 { 32 } else { 20 }
}

/// The files around a folder, and whether the index lists files in the folder.
fn surrounding_tree(
    folder: &VettedDirectory,
    top: &Path,
    repository: &Repository,
) -> Option<(SurroundingTree, bool)> {
    let tree = ScopeTree::open(&repository.common)?;
    let config = tree.read(&repository.common.path().join("config"));
    let is_sha256 = settings_in(&config)
        .any(|setting| setting.name == "objectformat" && setting.value.eq_ignore_ascii_case("sha256"));
    let file = repository.own.join("index");
    let bytes = tree.read_bytes(&file, MAX_INDEX_BYTES);
    let written = u64::try_from(tree.stat(&file)?.st_mtime).ok()?;
    let below = folder.path().strip_prefix(top).ok()?;
    let index = index::Index { bytes: &bytes, hash_bytes: hash_bytes(is_sha256), written };
    let listed = index::look_for(index, below)?;
    let readable = listed.read_by_git.into_iter().map(|path| top.join(path));
    let readable = readable.chain([top.join(".git")]).collect();
    Some((SurroundingTree { top: top.to_owned(), readable }, listed.has_files))
}

impl VettedDirectory {
    /// A directory that was found and is held.
    fn held(held: &crate::link_walk::Held) -> Option<Self> {
        let directory = Self::own_held(held)?;
        directory.open(OFlags::RDONLY).is_ok().then_some(directory)
    }
}
