//! What is kept of a git repository, so that commits, branches, rebases, stashes and worktrees go on working inside the
//! fence, and nothing that a command writes there is executed by git outside.
//!
//! Objects, references, the index and logs stay writable. Read-only are hooks and configuration, also those of the
//! submodules, files that the configuration includes, scripts that hooks are links to, and attributes; so is
//! `commondir`, with which a directory tells git to take hooks and configuration from elsewhere.

use std::path::{Component, Path, PathBuf};

use super::KeptPathsFinder;
use super::scope_tree::ScopeTree;
use crate::placeholders::PlaceholderKind;
use crate::scope_scan::lexical;

/// Submodules have modules of their own, and their names can contain slashes.
const MAX_DEPTH: usize = 8;
/// The most modules and worktrees that are kept.
const MAX_DIRECTORIES: usize = 256;

/// What every repository has. `HEAD` comes last, because a file of that name makes git's users write `HEAD --`.
pub(super) const OF_EVERY_REPOSITORY: &[&str] = &["refs", "objects", "HEAD"];
/// The file with which a repository names another place for all but its `HEAD`.
pub(super) const COMMON_DIRECTORY: &str = "commondir";

/// Whether a directory is one that git keeps a repository in.
pub(super) fn is_repository(tree: &ScopeTree, directory: &Path) -> bool {
    tree.kind(&directory.join("HEAD")).is_some() && tree.is_directory(&directory.join("objects"))
}

impl KeptPathsFinder<'_> {
    pub(super) fn keep_repository(&mut self, directory: &Path) {
        if !self.repositories.insert(directory.to_owned()) {
            return;
        }
        if !is_repository(self.tree, directory) {
            // Not one yet: it must not become one.
            self.keep_read_only(directory);
            return;
        }
        self.keep_git_directory(directory);
        self.keep_modules(&directory.join("modules"), MAX_DEPTH);
        for worktree in self.directories_in(&directory.join("worktrees")) {
            self.keep(&worktree.join("commondir"), PlaceholderKind::CommonDirectory);
            self.keep(&worktree.join("config.worktree"), PlaceholderKind::EmptyFile);
        }
        let tree = directory.parent().unwrap_or(directory);
        self.keep_submodule_links(tree);
        self.keep_configured(&directory.join("config"), tree, MAX_DEPTH);
    }

    /// Keeps what a file of git's configuration names, and what the files that it includes name.
    fn keep_configured(&mut self, file: &Path, tree: &Path, depth: usize) {
        for named in named_in(&self.tree.read(file), file.parent().unwrap_or(tree), tree) {
            // A directory above the file cannot be read-only.
            if !file.starts_with(&named.path) {
                self.keep_one_named(&named, tree, depth);
            }
        }
    }

    fn keep_one_named(&mut self, named: &Named, tree: &Path, depth: usize) {
        if !self.is_inside(&named.path) {
            return;
        }
        match named.purpose {
            Purpose::Hooks => self.keep_hooks(&named.path),
            Purpose::Attributes => self.keep(&named.path, PlaceholderKind::EmptyFile),
            Purpose::Included => {
                self.keep(&named.path, PlaceholderKind::EmptyFile);
                if depth > 0 {
                    self.keep_configured(&named.path, tree, depth - 1);
                }
            }
        }
    }

    /// Keeps what the configuration of a repository elsewhere names in this tree.
    pub(super) fn keep_named(&mut self, named: &[Named], worktree: &Path) {
        for named in named {
            self.keep_one_named(named, worktree, MAX_DEPTH);
        }
    }

    /// Keeps what git obeys in a git directory that is the top of this tree. The worktrees that it has stay its own: a
    /// session of one has no need to lead the others elsewhere.
    pub(super) fn keep_taken_in(&mut self) {
        let directory = self.tree.top();
        self.keep_git_files(directory);
        self.keep_modules(&directory.join("modules"), MAX_DEPTH);
        for worktree in self.directories_in(&directory.join("worktrees")) {
            self.keep(&worktree.join("commondir"), PlaceholderKind::CommonDirectory);
            self.keep(&worktree.join("config.worktree"), PlaceholderKind::EmptyFile);
            self.keep(&worktree.join("gitdir"), PlaceholderKind::EmptyFile);
        }
        self.keep_configured(&directory.join("config"), directory, MAX_DEPTH);
    }

    /// Keeps a directory of hooks, and the scripts that hooks are links to.
    fn keep_hooks(&mut self, directory: &Path) {
        self.keep(directory, PlaceholderKind::Directory);
        for link in self.tree.links_in(directory).into_iter().take(MAX_DIRECTORIES) {
            self.keep(&link, PlaceholderKind::EmptyFile);
        }
    }

    /// Keeps the top of the scope itself from becoming a repository, which git takes where `.git` is none. No
    /// repository is without these names, but for one that has another place for them in `commondir`.
    ///
    /// A placeholder counts as missing: another session of the scope needs the same names and no more.
    pub(super) fn keep_from_being_repository(&mut self, is_placeholder: &dyn Fn(&Path) -> bool) {
        let top = self.tree.top();
        if is_repository(self.tree, top) {
            self.keep_git_files(top);
            return;
        }
        let is_missing = |name: &&&str| {
            let path = top.join(name);
            self.tree.kind(&path).is_none() || is_placeholder(&path)
        };
        let missing = OF_EVERY_REPOSITORY.iter().find(is_missing);
        for name in missing.into_iter().chain([&COMMON_DIRECTORY]) {
            self.keep(&top.join(name), PlaceholderKind::Directory);
        }
    }

    fn keep_git_directory(&mut self, directory: &Path) {
        self.pin(directory);
        self.keep_git_files(directory);
    }

    /// Keeps the files in a repository's directory that git obeys.
    fn keep_git_files(&mut self, directory: &Path) {
        self.keep_hooks(&directory.join("hooks"));
        self.keep(&directory.join("config"), PlaceholderKind::EmptyFile);
        self.keep(&directory.join("config.worktree"), PlaceholderKind::EmptyFile);
        self.keep(&directory.join("commondir"), PlaceholderKind::CommonDirectory);
        self.keep(&directory.join("info/attributes"), PlaceholderKind::EmptyFile);
    }

    /// Keeps the repositories of submodules, which lie below `.git/modules`.
    fn keep_modules(&mut self, directory: &Path, depth: usize) {
        for module in self.directories_in(directory) {
            if is_repository(self.tree, &module) {
                self.keep_git_directory(&module);
                if depth > 0 {
                    self.keep_modules(&module.join("modules"), depth - 1);
                }
            } else if depth > 0 {
                self.keep_modules(&module, depth - 1);
            }
        }
    }

    fn directories_in(&self, directory: &Path) -> Vec<PathBuf> {
        let mut found = self.tree.directories_in(directory);
        found.truncate(MAX_DIRECTORIES);
        found
    }

    /// Keeps the files that lead from the submodules' directories to their repositories.
    fn keep_submodule_links(&mut self, tree: &Path) {
        let text = self.tree.read(&tree.join(".gitmodules"));
        let settings = settings_in(&text).filter(|setting| setting.section == "submodule");
        let paths = settings.filter(|setting| setting.name == "path").map(|setting| setting.value);
        for path in paths.take(MAX_DIRECTORIES) {
            let link = tree.join(&path).join(".git");
            let is_plain = Path::new(&path).components().all(|part| matches!(part, Component::Normal(_)));
            if is_plain && self.tree.kind(&link).is_some() {
                self.keep(&link, PlaceholderKind::Directory);
            }
        }
    }
}

/// What the configuration of a repository names. Its paths begin at the top of its tree of files.
pub(super) fn named_by_repository(repository: &ScopeTree, worktree: &Path) -> Vec<Named> {
    let directory = repository.top();
    named_in(&repository.read(&directory.join("config")), directory, worktree)
}

/// A path in git's configuration, and what git does with it.
pub(super) struct Named {
    path: PathBuf,
    purpose: Purpose,
}

enum Purpose {
    Hooks,
    Attributes,
    Included,
}

/// What a file of git's configuration makes git execute or include. Included paths are relative to the file's own
/// `directory`.
fn named_in(text: &str, directory: &Path, tree: &Path) -> Vec<Named> {
    let named = |setting: Setting| {
        let (base, purpose) = match (setting.section.as_str(), setting.name.as_str()) {
            ("core", "hookspath") => (tree, Purpose::Hooks),
            ("core", "attributesfile") => (tree, Purpose::Attributes),
            ("include" | "includeif", "path") => (directory, Purpose::Included),
            _ => return None,
        };
        Some(Named { path: lexical(&base.join(setting.value)), purpose })
    };
    settings_in(text).filter_map(named).take(MAX_DIRECTORIES).collect()
}

/// One line of a file in git's configuration format, with section and name in lower case.
pub(crate) struct Setting {
    pub(crate) section: String,
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Reads what plain lines set. Continued lines and escapes are rare in paths, and are not understood.
pub(crate) fn settings_in(text: &str) -> impl Iterator<Item = Setting> + '_ {
    let mut section = String::new();
    text.lines().filter_map(move |line| {
        let line = line.trim();
        let line = match line.strip_prefix('[') {
            Some(header) => {
                let (header, rest) = header.split_once(']')?;
                section = header.split([' ', '"']).next().unwrap_or_default().to_ascii_lowercase();
                rest.trim()
            }
            None => line,
        };
        let (name, value) = line.split_once('=')?;
        Some(Setting {
            section: section.clone(),
            name: name.trim().to_ascii_lowercase(),
            value: value.trim().trim_matches('"').to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::super::{KeptPaths, find};
    use super::*;
    use crate::paths::VettedDirectory;
    use crate::policy::MetadataChoice;
    use crate::test_directory;

    fn make(top: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = top.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    fn kept(top: &Path) -> KeptPaths {
        find(
            &[VettedDirectory::own(top).unwrap()],
            &MetadataChoice::Kept { except: BTreeSet::new() },
            &|_| false,
        )
    }

    fn repository(top: &Path, directory: &str) {
        fs::create_dir_all(top.join(directory).join("objects")).unwrap();
        make(top, &[(&format!("{directory}/HEAD"), "ref: refs/heads/main\n")]);
    }

    #[test]
    fn a_repository_is_writable_but_for_what_git_executes() {
        let top = test_directory::directory("metadata-git");
        repository(&top, ".git");
        fs::create_dir(top.join(".git/info")).unwrap();
        make(&top, &[(".git/config", "[core]\n")]);
        let kept = kept(&top);
        let read_only: Vec<&str> = kept
            .read_only
            .iter()
            .filter_map(|path| path.strip_prefix(top.join(".git")).ok()?.to_str())
            .collect();
        assert_eq!(read_only, ["commondir", "config", "config.worktree", "hooks", "info/attributes"]);
        assert_eq!(kept.pinned, [".git", ".git/info"].map(|path| top.join(path)).into());
    }

    #[test]
    fn repositories_of_submodules_are_kept_and_so_is_the_way_to_them() {
        let top = test_directory::directory("metadata-submodules");
        for directory in
            [".git", ".git/modules/lib", ".git/modules/group/deep", ".git/modules/lib/modules/inner"]
        {
            repository(&top, directory);
        }
        make(
            &top,
            &[
                (
                    ".gitmodules",
                    "[submodule \"lib\"]\n\tpath = lib\n[submodule \"x\"]\n\tpath = ../outside\n",
                ),
                ("lib/.git", "gitdir: ../.git/modules/lib\n"),
            ],
        );
        let kept = kept(&top);
        for path in ["lib/.git", ".git/modules/lib/hooks", ".git/modules/group/deep/config"] {
            assert!(kept.read_only.contains(&top.join(path)), "{path}");
        }
        assert!(kept.read_only.contains(&top.join(".git/modules/lib/modules/inner/hooks")));
        for path in ["lib", ".git/modules", ".git/modules/group", ".git/modules/group/deep"] {
            assert!(kept.pinned.contains(&top.join(path)), "{path}");
        }
        assert!(kept.read_only.iter().chain(&kept.pinned).all(|path| path.starts_with(&top)));
    }

    #[test]
    fn what_the_configuration_names_in_the_scope_is_kept() {
        let top = test_directory::directory("metadata-configured");
        repository(&top, ".git");
        let config = "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../shared.gitconfig\n\
                      [includeIf \"gitdir:x\"]\n path = /etc/other\n[core] attributesFile = ../../outside\n";
        make(&top, &[(".git/config", config), ("tools/hooks/pre-commit", "")]);
        let kept = kept(&top);
        assert!(
            kept.read_only.contains(&top.join("tools/hooks")) && kept.pinned.contains(&top.join("tools"))
        );
        let missing = |path: &str| kept.missing.iter().any(|missing| missing.path == top.join(path));
        assert!(missing("shared.gitconfig") && !missing("tools/hooks"));
        assert!(kept.read_only.iter().all(|path| path.starts_with(&top)));
    }

    #[test]
    fn a_git_directory_that_is_no_repository_cannot_become_one() {
        let top = test_directory::directory("metadata-not-yet");
        fs::create_dir(top.join(".git")).unwrap();
        let kept = kept(&top);
        assert!(kept.read_only.contains(&top.join(".git")) && !kept.pinned.contains(&top.join(".git")));
        let top = test_directory::directory("metadata-git-file");
        make(&top, &[(".git", "gitdir: /elsewhere\n")]);
        assert!(self::kept(&top).read_only.contains(&top.join(".git")), "of a worktree or submodule");
    }

    #[test]
    fn what_included_files_include_and_scripts_that_hooks_lead_to_are_kept() {
        let top = test_directory::directory("metadata-included");
        repository(&top, ".git");
        let config = "[include]\n\tpath = ../team\n\tpath = extra\n[core]\n\thooksPath = tools/hooks\n";
        make(&top, &[(".git/config", config), ("team", "[include]\n\tpath = more\n"), ("scripts/hook", "")]);
        fs::create_dir(top.join(".git/hooks")).unwrap();
        std::os::unix::fs::symlink("../../scripts/hook", top.join(".git/hooks/pre-push")).unwrap();
        let kept = kept(&top);
        for path in ["team", "more", ".git/extra", "tools", "scripts/hook"] {
            assert!(kept.read_only.contains(&top.join(path)), "{path}");
        }
        assert!(kept.pinned.contains(&top.join("scripts")));
    }

    #[test]
    fn a_scope_cannot_become_a_repository_and_one_that_is_keeps_its_hooks() {
        let top = test_directory::directory("metadata-bare");
        fs::create_dir(top.join("refs")).unwrap();
        let kept_paths = kept(&top);
        let reserved = |path: &str| kept_paths.missing.iter().any(|missing| missing.path == top.join(path));
        assert!(reserved("objects") && reserved("commondir") && !reserved("HEAD"));
        assert!(!kept_paths.read_only.contains(&top.join("refs")), "a directory of the project's own");
        repository(&top, ".");
        let kept_paths = kept(&top);
        for path in ["hooks", "config", "commondir"] {
            assert!(kept_paths.read_only.contains(&top.join(path)), "{path}");
        }
        assert!(!kept_paths.read_only.contains(&top.join("objects")));
    }
}
