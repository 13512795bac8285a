//! The files of the tree: the names of all, and the text of those that a rule reads.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// Directories without sources of ours.
const SKIPPED: [&str; 4] = ["target", "node_modules", "coverage", "__pycache__"];

/// All paths are relative to the root of the tree, with `/` between their parts.
#[derive(Debug, Default)]
pub(crate) struct Files {
    names: BTreeSet<String>,
    texts: BTreeMap<String, String>,
}

impl Files {
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut files = Self::default();
        files.read_directory(root, "")?;
        Ok(files)
    }

    /// A tree that exists only in a test.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let texts: BTreeMap<_, _> =
            files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Self { names: texts.keys().cloned().collect(), texts }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub(crate) fn is_directory(&self, name: &str) -> bool {
        let inside = format!("{name}/");
        self.names.range(inside.clone()..).next().is_some_and(|next| next.starts_with(&inside))
    }

    fn read_directory(&mut self, directory: &Path, prefix: &str) -> io::Result<()> {
        for entry in directory.read_dir()? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let is_hidden = name.starts_with('.') && name != ".ci" && name != ".config";
            if is_hidden || SKIPPED.contains(&name.as_str()) {
                continue;
            }
            let path = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                self.read_directory(&entry.path(), &format!("{path}/"))?;
                continue;
            }
            if Path::new(&name).extension().is_some_and(|is| is == "rs" || is == "toml" || is == "md") {
                self.texts.insert(path.clone(), std::fs::read_to_string(entry.path())?);
            }
            self.names.insert(path);
        }
        Ok(())
    }
}
