//! Errors and warnings about a configuration file: where they are, and what to do about them.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Origin;
use crate::document::Place;

/// Further errors are dropped: a hostile file can consist of nothing else.
const MAX_ERRORS: usize = 200;
/// Longer names get no suggestion.
const LONGEST_MISSPELLING: usize = 64;

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub origin: Origin,
    /// Counted from 1, in characters.
    pub column: usize,
    /// Never quotes a value that could be a secret.
    pub message: String,
    pub hint: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Origin { file, line } = &self.origin;
        write!(f, "{}:{line}:{}: {}", file.display(), self.column, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Why a configuration could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// All errors of the file, in its order.
    #[error("{}", in_lines(.0))]
    Invalid(Vec<Diagnostic>),
}

impl ConfigError {
    /// The errors of the file; empty if it could not be opened.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        match self {
            Self::Io { .. } => &[],
            Self::Invalid(diagnostics) => diagnostics,
        }
    }
}

fn in_lines(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(Diagnostic::to_string).collect::<Vec<_>>().join("\n")
}

/// Collects the errors and warnings of one file, so that its author sees all of them at once.
pub(crate) struct Findings<'a> {
    file: &'a Path,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

impl<'a> Findings<'a> {
    pub(crate) fn new(file: &'a Path) -> Self {
        Self { file, errors: Vec::new(), warnings: Vec::new() }
    }

    pub(crate) fn file(&self) -> &'a Path {
        self.file
    }

    pub(crate) fn error(&mut self, place: Place, message: impl Into<String>) {
        let error = self.diagnostic(place, message.into(), None);
        self.keep_error(error);
    }

    pub(crate) fn error_with_hint(
        &mut self,
        place: Place,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let error = self.diagnostic(place, message.into(), Some(hint.into()));
        self.keep_error(error);
    }

    pub(crate) fn warning(&mut self, place: Place, message: impl Into<String>, hint: impl Into<String>) {
        self.warnings.push(self.diagnostic(place, message.into(), Some(hint.into())));
    }

    pub(crate) fn origin(&self, place: Place) -> Origin {
        Origin { file: self.file.to_owned(), line: place.line }
    }

    pub(crate) fn into_error(self) -> ConfigError {
        ConfigError::Invalid(self.errors)
    }

    /// Returns the warnings if there are no errors.
    pub(crate) fn finish(mut self) -> Result<Vec<Diagnostic>, ConfigError> {
        let place = |diagnostic: &Diagnostic| (diagnostic.origin.line, diagnostic.column);
        self.errors.sort_by_key(place);
        self.warnings.sort_by_key(place);
        if self.errors.is_empty() { Ok(self.warnings) } else { Err(ConfigError::Invalid(self.errors)) }
    }

    fn keep_error(&mut self, error: Diagnostic) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    fn diagnostic(&self, place: Place, message: String, hint: Option<String>) -> Diagnostic {
        Diagnostic { origin: self.origin(place), column: place.column, message, hint }
    }
}

/// Finds the known name that was probably meant.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST_MISSPELLING {
        return None;
    }
    let folded = |name: &str| name.replace(['_', '-'], "").to_lowercase();
    let name = folded(name);
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&name, &folded(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 5)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_near() {
        let known = ["command", "args", "executionContext", "url"];
        assert_eq!(nearest("comand", known), Some("command"));
        assert_eq!(nearest("execution_context", known), Some("executionContext"));
        assert_eq!(nearest("arguments", known), None);
        assert_eq!(nearest("uri", known), Some("url"));
    }
}
