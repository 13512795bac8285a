//! Which paths `.gitignore` files ignore: those of the copy where it has its own, else those of the base. What git tracks
//! is never ignored.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::Sides;
use super::overlay::is_hidden;
use crate::tracked::Tracked;

const MAX_FILE_BYTES: u64 = 1024 * 1024;

pub(super) struct IgnoreRules<'a> {
    sides: &'a Sides,
    read_tracked: &'a dyn Fn() -> Tracked,
    tracked: OnceCell<Tracked>,
    /// The directories that were asked about.
    known: HashMap<PathBuf, Directory>,
}

/// What holds for the entries of a directory.
#[derive(Clone, Default)]
struct Directory {
    /// The topmost ignored directory at or above it.
    root: Option<PathBuf>,
    /// The rules of it and of the directories above, from the top, each with where they are.
    rules: Rc<Vec<(PathBuf, Rc<Gitignore>)>>,
}

impl<'a> IgnoreRules<'a> {
    pub(super) fn new(sides: &'a Sides, read_tracked: &'a dyn Fn() -> Tracked) -> Self {
        Self { sides, read_tracked, tracked: OnceCell::new(), known: HashMap::new() }
    }

    /// The topmost ignored directory above a path, or the path itself if it is ignored.
    pub(super) fn ignored_root(&mut self, path: &Path, is_directory: bool) -> Option<PathBuf> {
        let above = self.directory(path.parent().unwrap_or(Path::new("")));
        if above.root.is_some() {
            return above.root.filter(|_| !self.is_tracked(path, is_directory));
        }
        self.is_ignored(&above, path, is_directory).then(|| path.to_owned())
    }

    fn directory(&mut self, path: &Path) -> Directory {
        // Usually the one above is known.
        let mut unknown: Vec<&Path> =
            path.ancestors().take_while(|above| !self.known.contains_key(*above)).collect();
        let nearest = unknown.last().map_or(Some(path), |topmost| topmost.parent());
        let mut directory = nearest.and_then(|nearest| self.known.get(nearest)).cloned().unwrap_or_default();
        while let Some(next) = unknown.pop() {
            let is_top = next.as_os_str().is_empty();
            if directory.root.is_none() && !is_top && self.is_ignored(&directory, next, true) {
                directory.root = Some(next.to_owned());
            }
            if let Some(own) = self.read_rules(next) {
                let mut rules = directory.rules.to_vec();
                rules.push((next.to_owned(), Rc::new(own)));
                directory.rules = Rc::new(rules);
            }
            self.known.insert(next.to_owned(), directory.clone());
        }
        directory
    }

    /// Whether a rule names the path itself. The nearest rules count first.
    fn is_ignored(&self, above: &Directory, path: &Path, is_directory: bool) -> bool {
        for (place, rules) in above.rules.iter().rev() {
            let below = path.strip_prefix(place).unwrap_or(path);
            match rules.matched(below, is_directory) {
                Match::Ignore(_) => return !self.is_tracked(path, is_directory),
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }

    fn is_tracked(&self, path: &Path, is_directory: bool) -> bool {
        let tracked = self.tracked.get_or_init(self.read_tracked);
        tracked.has(path) || (is_directory && tracked.has_below(path))
    }

    fn read_rules(&self, directory: &Path) -> Option<Gitignore> {
        let file = directory.join(".gitignore");
        let own = self.sides.copy.read(&file, MAX_FILE_BYTES).ok();
        let bases = || self.sides.base.read(&file, MAX_FILE_BYTES).ok();
        let mut text =
            if is_hidden(self.sides, &file) { None } else { own.or_else(bases) }.unwrap_or_default();
        if directory.as_os_str().is_empty() {
            // The rules of one clone come before those of its files, so those count more.
            let exclude =
                self.sides.base.read(Path::new(".git/info/exclude"), MAX_FILE_BYTES).unwrap_or_default();
            text = [exclude, vec![b'\n'], text].concat();
        }
        let mut builder = GitignoreBuilder::new("");
        for line in String::from_utf8_lossy(&text).lines() {
            // git passes over what is no pattern.
            let _ = builder.add_line(None, line);
        }
        builder.build().ok().filter(|rules| !rules.is_empty())
    }
}
