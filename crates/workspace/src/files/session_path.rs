//! A path as a client spells it: a root of the session, and the path below it.
//!
//! Only the spelling is checked here. The kernel decides where the path leads, at the moment of the operation:
//! `a/../b` and links are legal as long as they stay inside.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use super::path_error::{PathError, SpellingError};

/// The longest path that the kernel takes.
const MAX_PATH: usize = 4096;

/// A root of the session, and a path below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionPath {
    pub(super) root: usize,
    /// Relative and never empty; `.` is the root itself.
    pub(super) below: PathBuf,
    /// As the client wrote it.
    pub(super) written: String,
}

impl SessionPath {
    /// What a client wrote as `written`, below a root.
    pub(super) fn new(root: usize, below: PathBuf, written: &str) -> Self {
        let below = if below.as_os_str().is_empty() { PathBuf::from(".") } else { below };
        Self { root, below, written: written.to_owned() }
    }

    /// A path that was found below a root.
    pub(crate) fn found(root: usize, below: PathBuf) -> Self {
        let written = below.to_string_lossy().into_owned();
        Self { root, below, written }
    }

    /// A path below this one; the path itself if `rest` is empty.
    pub(crate) fn beneath(&self, rest: &Path) -> Self {
        if rest.as_os_str().is_empty() { self.clone() } else { self.at(self.below.join(rest)) }
    }

    /// As the client wrote it.
    pub(crate) fn written(&self) -> &str {
        &self.written
    }

    pub(crate) fn below(&self) -> &Path {
        &self.below
    }

    /// The path below the root, without `.` steps; empty for the root itself.
    pub(crate) fn plain_below(&self) -> PathBuf {
        self.below.components().filter(|step| *step != Component::CurDir).collect()
    }

    pub(crate) fn root(&self) -> usize {
        self.root
    }

    /// Another path below the same root, for the same client spelling.
    pub(super) fn at(&self, below: PathBuf) -> Self {
        Self { root: self.root, below, written: self.written.clone() }
    }

    /// Splits off the name, for operations on the name itself. The last step must be a name.
    pub(super) fn split(&self) -> Result<(PathBuf, OsString), PathError> {
        let bytes = self.below.as_os_str().as_bytes();
        let bytes = bytes.strip_suffix(b"/").unwrap_or(bytes);
        let (parent, name) = match bytes.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&bytes[..slash], &bytes[slash + 1..]),
            None => (&b"."[..], bytes),
        };
        if name.is_empty() || name == b"." || name == b".." {
            return Err(PathError::Spelling { path: self.written.clone(), reason: SpellingError::NoName });
        }
        let parent = if parent.is_empty() { &b"."[..] } else { parent };
        Ok((PathBuf::from(OsStr::from_bytes(parent)), OsStr::from_bytes(name).to_owned()))
    }
}

/// The path that a client spells as a plain path or as a `file:` URI.
pub(super) fn parse(text: &str) -> Result<PathBuf, PathError> {
    match bytes_of(text) {
        Ok(bytes) => Ok(PathBuf::from(OsString::from_vec(bytes))),
        Err(reason) => Err(PathError::Spelling { path: text.to_owned(), reason }),
    }
}

fn bytes_of(text: &str) -> Result<Vec<u8>, SpellingError> {
    if text.is_empty() {
        return Err(SpellingError::Empty);
    }
    let bytes = if has_scheme(text) { bytes_of_uri(text)? } else { plain_bytes(text)? };
    if bytes.contains(&0) {
        return Err(SpellingError::Nul);
    }
    if bytes.len() >= MAX_PATH {
        return Err(SpellingError::TooLong);
    }
    Ok(bytes)
}

/// Whether the text is meant as a `file:` URI. Odd spellings count too, so that they are refused as URIs.
fn has_scheme(text: &str) -> bool {
    text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("file:"))
}

/// A URI can name any file, even one whose name is not UTF-8 or contains a backslash.
fn bytes_of_uri(text: &str) -> Result<Vec<u8>, SpellingError> {
    let bytes = wire::file_uri_path(text)?;
    let is_encoded =
        |bytes: &[u8]| [&b"%2e"[..], b"%2f", b"%00"].iter().any(|code| bytes.eq_ignore_ascii_case(code));
    // What is still encoded was encoded twice, to trick a program that decodes twice.
    if bytes.windows(3).any(is_encoded) {
        return Err(SpellingError::DoubleEncoding);
    }
    // Programs resolve such steps before they write a URI, so a URI with them is suspicious.
    let has_dots = bytes.split(|byte| *byte == b'/').any(|step| step == b"." || step == b"..");
    if has_dots { Err(SpellingError::DoubleEncoding) } else { Ok(bytes) }
}

fn plain_bytes(text: &str) -> Result<Vec<u8>, SpellingError> {
    let is_drive = |bytes: &[u8]| {
        bytes.len() > 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':' && bytes[2] == b'/'
    };
    if text.contains('\\') || is_drive(text.as_bytes()) {
        return Err(SpellingError::Backslash);
    }
    Ok(text.as_bytes().to_vec())
}
