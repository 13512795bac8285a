//! The contents of a file as a whole: read within a limit, hashed, and refused where they are not text.

use std::io::Read;

use sha2::{Digest, Sha256};

use super::answer::ToolError;
use super::listing::size_in_words;
use crate::files::{FoundFile, PathError, SessionPath};
use crate::text::FileKind;

/// The longest file that is read or edited as a whole.
pub(super) const MAX_TEXT_BYTES: u64 = 16 * 1024 * 1024;

/// Reads a file to its end.
pub(super) fn read_all(path: &SessionPath, found: &mut FoundFile) -> Result<Vec<u8>, PathError> {
    let size = usize::try_from(found.stat.st_size).unwrap_or(0);
    let mut bytes = Vec::with_capacity(size.min(1 << 24) + 1);
    // A file may grow while it is read.
    let limit = MAX_TEXT_BYTES + 1;
    (&mut found.file)
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| PathError::io(path.written(), error))?;
    if bytes.len() as u64 == limit {
        return Err(PathError::TooLarge {
            path: path.written().to_owned(),
            size: limit,
            limit: MAX_TEXT_BYTES,
        });
    }
    Ok(bytes)
}

/// SHA-256 of the contents of a file, as `expected_hash` takes it.
pub fn hash_of(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or_default();
    Sha256::digest(bytes).iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The error for a file that is not text.
pub(super) fn not_text(path: &str, kind: FileKind, size: u64) -> ToolError {
    let hint = match kind {
        FileKind::Pdf => "run_terminal_cmd can extract the text: `pdftotext FILE -`, if that is installed",
        FileKind::Archive(_) => "run_terminal_cmd can list it: `tar tf`, `unzip -l`",
        FileKind::Image(_) => "images are shown up to 4 MiB; run_terminal_cmd can make it smaller",
        _ => "run_terminal_cmd can look at it: `file`, `xxd | head`, `strings`",
    };
    let message = format!("`{path}` is {}, {}: it is not text", kind.describe(), size_in_words(size));
    ToolError::new("binary", message).with_hint(hint).at(path)
}
