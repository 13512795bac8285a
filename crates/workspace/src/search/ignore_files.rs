//! Decides which names a walk skips, by `.gitignore`, `.ignore`, `.rgignore` and git's own exclusions. Inner
//! directories take precedence over outer ones.

use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags, openat};

/// Longer ignore files are read up to here.
const MAX_BYTES: u64 = 1024 * 1024;

/// The rules of one directory and of those above it.
#[derive(Debug, Default)]
pub(super) struct IgnoreFiles {
    above: Option<Arc<IgnoreFiles>>,
    /// `.rgignore` and `.ignore`, which take precedence over git's files.
    for_searches: Vec<Gitignore>,
    for_git: Vec<Gitignore>,
}

/// Names of ignore files, highest precedence first.
const FOR_SEARCHES: &[&str] = &[".rgignore", ".ignore"];
const FOR_GIT: &[&str] = &[".gitignore", ".git/info/exclude"];

impl IgnoreFiles {
    /// Reads the rules of a directory, which is open as `directory`. `has` tells whether it contains a name.
    pub(super) fn of(
        above: &Arc<Self>,
        path: &Path,
        directory: BorrowedFd<'_>,
        has: impl Fn(&str) -> bool,
    ) -> Arc<Self> {
        let read_all = |names: &[&str]| -> Vec<Gitignore> {
            let is_there = |name: &&&str| has(name.split('/').next().unwrap_or(name));
            names.iter().filter(is_there).filter_map(|name| read(path, directory, name)).collect()
        };
        let (for_searches, for_git) = (read_all(FOR_SEARCHES), read_all(FOR_GIT));
        if for_searches.is_empty() && for_git.is_empty() {
            return Arc::clone(above);
        }
        Arc::new(Self { above: Some(Arc::clone(above)), for_searches, for_git })
    }

    /// Whether a walk skips this absolute path.
    pub(super) fn skips(&self, path: &Path, is_directory: bool) -> bool {
        let decide = |rules: fn(&Self) -> &[Gitignore]| {
            let chain = std::iter::successors(Some(self), |files| files.above.as_deref());
            chain
                .flat_map(rules)
                .map(|rules| rules.matched(path, is_directory))
                .find(|found| !found.is_none())
        };
        let decision = decide(|files| &files.for_searches).or_else(|| decide(|files| &files.for_git));
        matches!(decision, Some(Match::Ignore(_)))
    }
}

/// Reads an ignore file of this directory. Does not follow links.
fn read(path: &Path, directory: BorrowedFd<'_>, name: &str) -> Option<Gitignore> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = rustix::fs::ResolveFlags::BENEATH | rustix::fs::ResolveFlags::NO_SYMLINKS;
    let file = if name.contains('/') {
        rustix::fs::openat2(directory, name, flags, Mode::empty(), resolve).ok()?
    } else {
        openat(directory, name, flags, Mode::empty()).ok()?
    };
    let mut text = Vec::new();
    File::from(file).take(MAX_BYTES).read_to_end(&mut text).ok()?;
    let mut builder = GitignoreBuilder::new(path);
    for line in String::from_utf8_lossy(&text).lines() {
        // Skips lines that are not patterns, as git does.
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}
