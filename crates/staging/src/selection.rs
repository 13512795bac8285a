//! Which paths a user names: paths with all that is below them, and globs.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

use crate::error::StagingError;

/// Characters that make a glob of a path.
const SPECIAL: [char; 4] = ['*', '?', '[', '{'];

#[derive(Debug)]
struct Pattern {
    written: PathBuf,
    /// As a plain path, relative to the base.
    path: PathBuf,
    glob: Option<GlobMatcher>,
    /// A glob without a slash, which names files in every directory.
    is_name: bool,
    was_used: Cell<bool>,
}

/// An empty selection has everything.
#[derive(Debug)]
pub(crate) struct Selection {
    patterns: Vec<Pattern>,
}

impl Selection {
    pub(crate) fn new(only: &[PathBuf]) -> Result<Self, StagingError> {
        Ok(Self { patterns: only.iter().map(|written| Pattern::new(written)).collect::<Result<_, _>>()? })
    }

    pub(crate) fn has(&self, path: &Path) -> bool {
        // Every pattern is asked, to know which ones name nothing.
        let named = self.patterns.iter().filter(|pattern| pattern.matches(path)).count();
        self.patterns.is_empty() || named > 0
    }

    /// The first pattern that named nothing.
    pub(crate) fn unused(&self) -> Option<&Path> {
        self.patterns.iter().find(|pattern| !pattern.was_used.get()).map(|pattern| pattern.written.as_path())
    }
}

impl Pattern {
    fn new(written: &Path) -> Result<Self, StagingError> {
        let path: PathBuf =
            written.components().filter(|part| matches!(part, std::path::Component::Normal(_))).collect();
        let text = written.to_str().filter(|text| text.contains(SPECIAL));
        let glob = text.map(|text| {
            let text = text.trim_start_matches("./").trim_start_matches('/').trim_end_matches('/');
            GlobBuilder::new(text).literal_separator(true).build().map(|glob| glob.compile_matcher())
        });
        let refused = |error: globset::Error| StagingError::Pattern {
            pattern: written.display().to_string(),
            place: "the selection",
            reason: error.kind().to_string(),
        };
        let is_name = text.is_some_and(|text| !text.trim_end_matches('/').contains('/'));
        let glob = glob.transpose().map_err(refused)?;
        Ok(Self { written: written.to_owned(), path, glob, is_name, was_used: Cell::new(false) })
    }

    fn matches(&self, path: &Path) -> bool {
        let is_named = path.starts_with(&self.path)
            || self.glob.as_ref().is_some_and(|glob| {
                path.ancestors().filter(|above| !above.as_os_str().is_empty()).any(|above| {
                    glob.is_match(above)
                        || (self.is_name
                            && above.file_name().is_some_and(|name| glob.is_match(Path::new(name))))
                })
            });
        if is_named {
            self.was_used.set(true);
        }
        is_named
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    fn has(only: &str, path: &str) -> bool {
        Selection::new(&[only.into()]).unwrap().has(Path::new(path))
    }

    #[test]
    fn paths_and_globs_select() {
        for (only, path) in [
            ("src/", "src/a/b.rs"),
            ("./src", "src/a"),
            ("src/a.rs", "src/a.rs"),
            ("*.rs", "src/deep/a.rs"),
            ("src/*.rs", "src/a.rs"),
            ("src/**", "src/x/y"),
            ("s*/", "src/x"),
            ("a[1]", "a[1]"),
            (".", "x"),
        ] {
            assert!(has(only, path), "{only} {path}");
        }
        for (only, path) in [("src", "srcs/a"), ("src/*.rs", "src/a/b.rs"), ("*.rs", "a.rsx"), ("a", "b/a")] {
            assert!(!has(only, path), "{only} {path}");
        }
        let odd = Path::new(OsStr::from_bytes(b"\xff/x"));
        assert!(Selection::new(&[OsStr::from_bytes(b"\xff").into()]).unwrap().has(odd));
        assert!(Selection::new(&[]).unwrap().has(odd));
    }

    #[test]
    fn a_pattern_that_names_nothing_is_known() {
        let selection = Selection::new(&["a".into(), "*.x".into()]).unwrap();
        assert!(selection.has(Path::new("a/b")));
        assert_eq!(selection.unused(), Some(Path::new("*.x")));
    }
}
