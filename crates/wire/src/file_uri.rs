//! `file:` URIs, read strictly: an unusual spelling may be an attempt to get past a check.

use std::fmt::Write as _;

use thiserror::Error;

/// Why a text is not the URI of a local file.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum FileUriError {
    #[error("it is not a file URI")]
    NotAFile,
    #[error("it names another host")]
    ForeignHost,
    #[error("it has a query or a fragment")]
    QueryOrFragment,
    #[error("its percent-encoding is broken")]
    BadEncoding,
    #[error("it has no absolute path")]
    NoPath,
}

/// The path of `file:///path` or `file://localhost/path`, as bytes: names on disk need not be text.
pub fn file_uri_path(uri: &str) -> Result<Vec<u8>, FileUriError> {
    let rest = uri.strip_prefix("file://").ok_or(FileUriError::NotAFile)?;
    if rest.contains(['?', '#']) {
        return Err(FileUriError::QueryOrFragment);
    }
    let slash = rest.find('/').ok_or(FileUriError::NoPath)?;
    match &rest[..slash] {
        "" | "localhost" => decode(&rest[slash..]),
        _ => Err(FileUriError::ForeignHost),
    }
}

/// Decodes exactly once: a second pass would decode what the client meant literally.
fn decode(text: &str) -> Result<Vec<u8>, FileUriError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else { return Err(FileUriError::BadEncoding) };
        let decoded = u8::try_from(high * 16 + low).map_err(|_| FileUriError::BadEncoding)?;
        // An encoded slash would change the path after it was split.
        if decoded == b'/' {
            return Err(FileUriError::BadEncoding);
        }
        bytes.push(decoded);
    }
    Ok(bytes)
}

/// The URI of an absolute path.
pub fn file_uri(path: &[u8]) -> String {
    let mut uri = String::from("file://");
    for &byte in path {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_survives_the_way_there_and_back() {
        let all: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
        let path = [b"/srv/", &all[..]].concat();
        assert_eq!(file_uri_path(&file_uri(&path)), Ok(path));
        assert_eq!(file_uri("/a b/\u{e9}?#%".as_bytes()), "file:///a%20b/%C3%A9%3F%23%25");
    }
}
