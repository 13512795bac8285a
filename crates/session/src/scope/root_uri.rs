//! Roots as clients spell them: from a URI, or the bare absolute path that some send, to a path. Only the
//! spelling is judged here; what lies at the path is looked at when the scope is locked.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use thiserror::Error;
use wire::{FileUriError, file_uri_path};

/// The longest path that the kernel takes.
const MAX_PATH: usize = 4096;

/// Why a root is not one.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RootError {
    #[error(transparent)]
    Uri(#[from] FileUriError),
    #[error("it holds a NUL character")]
    Nul,
    #[error("it is not an absolute path in its plain form")]
    NotPlain,
    #[error("it holds a backslash")]
    Backslash,
    #[error("it is longer than {MAX_PATH} bytes")]
    TooLong,
    #[error("it is a variable that was not filled in")]
    Unfilled,
}

/// Reads `file:///path`, `file://localhost/path` or `/path`.
pub fn parse_root(text: &str) -> Result<PathBuf, RootError> {
    if text.contains("${") {
        return Err(RootError::Unfilled);
    }
    if text.len() > MAX_PATH * 3 {
        return Err(RootError::TooLong);
    }
    let bytes = if text.starts_with('/') { text.as_bytes().to_vec() } else { file_uri_path(text)? };
    check_plain(&bytes)?;
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

/// An absolute path without empty, `.` or `..` steps, and without what other systems take for separators.
fn check_plain(path: &[u8]) -> Result<(), RootError> {
    if path.len() > MAX_PATH {
        return Err(RootError::TooLong);
    }
    if path.contains(&0) {
        return Err(RootError::Nul);
    }
    if path.contains(&b'\\') {
        return Err(RootError::Backslash);
    }
    // An encoding that is left after decoding was meant for a second decoder.
    let is_encoded = |bytes: &[u8]| {
        [&b"%2e"[..], b"%2f", b"%5c", b"%00"].iter().any(|code| bytes.eq_ignore_ascii_case(code))
    };
    if path.windows(3).any(is_encoded) {
        return Err(FileUriError::BadEncoding.into());
    }
    let Some(rest) = path.strip_prefix(b"/") else { return Err(RootError::NotPlain) };
    // One trailing slash names the same directory.
    let rest = rest.strip_suffix(b"/").unwrap_or(rest);
    let mut steps = rest.split(|byte| *byte == b'/').peekable();
    let is_root = rest.is_empty();
    let is_plain = |step: &[u8]| !step.is_empty() && step != b"." && step != b"..";
    let ends_oddly = |step: &[u8]| step.ends_with(b" ") || (step.ends_with(b".") && step.len() > 1);
    if !is_root && steps.any(|step| !is_plain(step) || ends_oddly(step)) {
        return Err(RootError::NotPlain);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_spellings_of_real_clients_are_read() {
        for (text, path) in [
            ("file:///home/u/project", "/home/u/project"),
            ("file://localhost/home/u/project", "/home/u/project"),
            ("file:///home/u/my%20project/", "/home/u/my project/"),
            ("file:///home/u/%C3%A9t%C3%A9", "/home/u/été"),
            ("/home/u/project", "/home/u/project"),
            ("/home/u/..foo/.config", "/home/u/..foo/.config"),
            ("file:///ws/．．／etc", "/ws/．．／etc"),
        ] {
            assert_eq!(parse_root(text), Ok(PathBuf::from(path)), "{text}");
        }
    }

    #[test]
    fn every_other_spelling_has_its_reason() {
        use FileUriError as Spelling;
        use RootError::{self as Wrong, Uri};
        let long = format!("/{}", "a".repeat(5000));
        for (text, reason) in [
            ("file:///ws/../etc", Wrong::NotPlain),
            ("file:///ws/%2e%2e/etc", Wrong::NotPlain),
            ("..%2f..%2fetc", Uri(Spelling::NotAFile)),
            ("file:///ws%2f..%2fetc", Uri(Spelling::BadEncoding)),
            ("file:///ws/a%00.txt", Wrong::Nul),
            ("file:///ws/%", Uri(Spelling::BadEncoding)),
            ("file:///ws/%zz", Uri(Spelling::BadEncoding)),
            ("file:///ws//x", Wrong::NotPlain),
            ("file:///ws/./x", Wrong::NotPlain),
            ("file:///ws/x.", Wrong::NotPlain),
            ("file:///ws/x%20", Wrong::NotPlain),
            ("file:///ws\\x", Wrong::Backslash),
            ("C:\\ws", Uri(Spelling::NotAFile)),
            ("file://evil.host/ws", Uri(Spelling::ForeignHost)),
            ("file://LOCALHOST/ws", Uri(Spelling::ForeignHost)),
            ("file://127.0.0.1/ws", Uri(Spelling::ForeignHost)),
            ("file://localhost.evil/ws", Uri(Spelling::ForeignHost)),
            ("file://user@/ws", Uri(Spelling::ForeignHost)),
            ("file:///ws?x", Uri(Spelling::QueryOrFragment)),
            ("file:///ws#x", Uri(Spelling::QueryOrFragment)),
            ("file:ws", Uri(Spelling::NotAFile)),
            ("file:/ws", Uri(Spelling::NotAFile)),
            ("FILE:///ws", Uri(Spelling::NotAFile)),
            ("https://example.org/ws", Uri(Spelling::NotAFile)),
            ("", Uri(Spelling::NotAFile)),
            ("relative/path", Uri(Spelling::NotAFile)),
            ("${workspaceFolder}", Wrong::Unfilled),
            (long.as_str(), Wrong::TooLong),
        ] {
            assert_eq!(parse_root(text), Err(reason), "{text}");
        }
    }

    #[test]
    fn double_encoding_is_refused_and_decoded_once() {
        assert_eq!(parse_root("file:///ws/%252e%252e%252fetc"), Err(FileUriError::BadEncoding.into()));
        assert_eq!(parse_root("file:///ws/100%25"), Ok("/ws/100%".into()));
    }

    #[test]
    fn bytes_that_are_no_text_survive() {
        use std::os::unix::ffi::OsStrExt;
        assert_eq!(parse_root("file:///ws/%FF").unwrap().as_os_str().as_bytes(), b"/ws/\xff");
    }

    #[test]
    fn a_path_survives_its_uri() {
        proptest!(ProptestConfig::with_cases(256), |(steps in proptest::collection::vec("[a-zA-Z0-9@:+, _é-]{0,8}[a-z]", 1..5))| {
            let path = format!("/{}", steps.join("/"));
            assert_eq!(parse_root(&wire::file_uri(path.as_bytes())), Ok(path.into()));
        });
    }

    #[test]
    fn whatever_is_read_is_absolute_and_leads_nowhere_else() {
        let piece = proptest::sample::select(vec![
            "/",
            ".",
            "..",
            "a",
            "%2e",
            "%2F",
            "%252e",
            "%00",
            "\\",
            "?",
            "#",
            " ",
            "%20",
            "file://",
            "localhost",
            "%C3%A9",
            "$",
            "{",
        ]);
        proptest!(ProptestConfig::with_cases(512), |(pieces in proptest::collection::vec(piece, 0..10), is_uri: bool)| {
            let text = format!("{}{}", if is_uri { "file:///" } else { "/" }, pieces.concat());
            let Ok(path) = parse_root(&text) else { return Ok(()) };
            let text = path.to_str().unwrap();
            assert!(text.starts_with('/') && !text.contains(['\0', '\\']), "{text:?}");
            let steps = text[1..].strip_suffix('/').unwrap_or(&text[1..]);
            assert!(steps.is_empty() || steps.split('/').all(|step| !["", ".", ".."].contains(&step)), "{text:?}");
        });
    }
}
