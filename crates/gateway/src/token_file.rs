//! The token file: one line for each caller.
//!
//! ```text
//! # comment
//! alice:0123456789abcdef-a-token
//! bob:sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//! ```
//!
//! Only hashes of tokens are kept in memory, and an error about a line never shows its text.

use std::collections::HashMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use config::PrivateFileError;
use identity::Principal;
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::reloaded::Source;

/// More callers than a gateway has sessions for.
const MAX_LINES: usize = 10_000;

/// Enough for that many long lines.
const MAX_BYTES: u64 = 2 * 1024 * 1024;

/// Shorter tokens can be guessed.
const MIN_TOKEN: usize = 16;

const HASH_MARK: &str = "sha256:";

/// The SHA-256 of a token.
pub(crate) type TokenHash = [u8; 32];

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error(transparent)]
    NotPrivate(#[from] PrivateFileError),
    #[error("{}: it is longer than {MAX_LINES} lines or {MAX_BYTES} bytes", path.display())]
    TooLong { path: PathBuf },
    #[error("{}, line {line}: {error}", path.display())]
    Line { path: PathBuf, line: usize, error: TokenLineError },
    #[error("`{name}` cannot be a name")]
    BadName { name: String },
    #[error("{}: `{name}` has a token already", path.display())]
    NameTaken { path: PathBuf, name: String },
}

impl TokenFileError {
    /// What the operator can do.
    pub fn hint(&self) -> String {
        const NAMES: &str =
            "names have at most 64 letters, digits, `.`, `_` and `-`; `anonymous` is reserved";
        match self {
            Self::Unreadable { path, .. } => {
                format!("`ringfence token NAME --file {}` makes a token and the file", path.display())
            }
            Self::NotPrivate(error) => error.hint(),
            Self::TooLong { .. } => "remove the lines of callers that are gone".to_owned(),
            Self::Line { error: TokenLineError::Name, .. } | Self::BadName { .. } => NAMES.to_owned(),
            Self::Line {
                error: TokenLineError::NameTwice { .. } | TokenLineError::TokenTwice { .. },
                ..
            } => "every caller has one name and one token; remove one of the lines".to_owned(),
            Self::Line { .. } => format!(
                "a line is `name:token`, `name:{HASH_MARK}HEX` or a `#` comment; `ringfence token NAME` makes one"
            ),
            Self::NameTaken { .. } => "remove its line first; the old token then stops working".to_owned(),
        }
    }
}

/// What is wrong with a line. The error does not quote the line, which may hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenLineError {
    #[error("it is not UTF-8")]
    NotText,
    #[error("there is no `:` between a name and a token")]
    NoColon,
    #[error("the text before the `:` cannot be a name")]
    Name,
    #[error("the token is shorter than {MIN_TOKEN} characters")]
    ShortToken,
    #[error("the token has spaces, or characters that are not ASCII")]
    TokenCharacters,
    #[error("`{HASH_MARK}` is not followed by 64 hexadecimal digits")]
    Hash,
    #[error("line {first} has the same name")]
    NameTwice { first: usize },
    #[error("line {first} has the same token")]
    TokenTwice { first: usize },
}

#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Adds a line with the hash of a caller's token. Creates the file if needed, readable by this user alone.
    pub fn add(&self, name: &str, token: &str) -> Result<(), TokenFileError> {
        let line = hashed_line(name, token)?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        options.custom_flags(open_flags());
        let mut file = options.open(&self.path).map_err(|error| self.unreadable(error))?;
        // Two processes that add at the same time must each see the other's line.
        file.lock().map_err(|error| self.unreadable(error))?;
        let text = self.read_checked(&file)?;
        let table = self.parse(&text)?;
        if table.principals.values().any(|principal| principal.to_string() == name) {
            return Err(TokenFileError::NameTaken { path: self.path.clone(), name: name.to_owned() });
        }
        let begin = if text.is_empty() || text.ends_with(b"\n") { "" } else { "\n" };
        file.write_all(format!("{begin}{line}\n").as_bytes()).map_err(|error| self.unreadable(error))
    }

    fn read_checked(&self, file: &File) -> Result<Vec<u8>, TokenFileError> {
        config::check_private(&self.path, file)?;
        let mut text = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(|error| self.unreadable(error))?;
        let is_too_long =
            text.len() as u64 > MAX_BYTES || text.split(|byte| *byte == b'\n').count() > MAX_LINES + 1;
        if is_too_long { Err(TokenFileError::TooLong { path: self.path.clone() }) } else { Ok(text) }
    }

    fn unreadable(&self, error: io::Error) -> TokenFileError {
        TokenFileError::Unreadable { path: self.path.clone(), error }
    }

    fn parse(&self, text: &[u8]) -> Result<TokenTable, TokenFileError> {
        TokenTable::parse(text).map_err(|(line, error)| TokenFileError::Line {
            path: self.path.clone(),
            line,
            error,
        })
    }
}

impl Source for TokenFile {
    type Value = TokenTable;
    type Error = TokenFileError;

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    fn load(&self) -> Result<TokenTable, TokenFileError> {
        let opened = OpenOptions::new().read(true).custom_flags(open_flags()).open(&self.path);
        let text = self.read_checked(&opened.map_err(|error| self.unreadable(error))?)?;
        let table = self.parse(&text)?;
        if table.principals.is_empty() {
            tracing::warn!("{} names no caller: every request is refused", self.path.display());
        }
        Ok(table)
    }
}

/// Opens without blocking: a pipe in place of the file would wait for a writer.
#[allow(clippy::cast_possible_wrap, reason = "flags are bits")]
fn open_flags() -> i32 {
    OFlags::NONBLOCK.bits() as i32
}

/// The line of a token file, with the hash in place of the token.
pub fn hashed_line(name: &str, token: &str) -> Result<String, TokenFileError> {
    let principal =
        Principal::named(name).ok_or_else(|| TokenFileError::BadName { name: name.to_owned() })?;
    Ok(format!("{principal}:{HASH_MARK}{}", wire::hex(&hash(token))))
}

/// The callers by the hash of their token.
///
/// The lookup does not take constant time and need not: its timing reveals something about the hash of a valid token,
/// and using that would take tokens whose hashes an attacker can choose.
pub(crate) struct TokenTable {
    principals: HashMap<TokenHash, Principal>,
}

impl TokenTable {
    pub(crate) fn find(&self, token: &[u8]) -> Option<Principal> {
        self.principals.get(&hash(token)).cloned()
    }

    pub(crate) fn token_of(&self, principal: &Principal) -> Option<TokenHash> {
        self.principals.iter().find(|(_, known)| *known == principal).map(|(hash, _)| *hash)
    }

    /// Parses the whole file. The error comes with the number of its line.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, (usize, TokenLineError)> {
        let mut principals = HashMap::new();
        let mut lines_of_names: HashMap<Principal, usize> = HashMap::new();
        let mut lines_of_tokens: HashMap<TokenHash, usize> = HashMap::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = std::str::from_utf8(line).map_err(|_| (number, TokenLineError::NotText))?.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (principal, token) = read_line(line).map_err(|error| (number, error))?;
            if let Some(&first) = lines_of_names.get(&principal) {
                return Err((number, TokenLineError::NameTwice { first }));
            }
            if let Some(&first) = lines_of_tokens.get(&token) {
                return Err((number, TokenLineError::TokenTwice { first }));
            }
            lines_of_names.insert(principal.clone(), number);
            lines_of_tokens.insert(token, number);
            principals.insert(token, principal);
        }
        Ok(Self { principals })
    }
}

/// Shows only the number of callers.
impl fmt::Debug for TokenTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenTable").field("principals", &self.principals.len()).finish()
    }
}

fn read_line(line: &str) -> Result<(Principal, TokenHash), TokenLineError> {
    let (name, token) = line.split_once(':').ok_or(TokenLineError::NoColon)?;
    let principal = Principal::named(name.trim()).ok_or(TokenLineError::Name)?;
    let token = token.trim();
    let hash = match token.strip_prefix(HASH_MARK) {
        Some(digits) => wire::from_hex(digits).ok_or(TokenLineError::Hash)?,
        None if token.len() < MIN_TOKEN => return Err(TokenLineError::ShortToken),
        None if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            return Err(TokenLineError::TokenCharacters);
        }
        None => hash(token),
    };
    Ok((principal, hash))
}

fn hash(token: impl AsRef<[u8]>) -> TokenHash {
    Sha256::digest(token.as_ref()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn line_error(text: &str) -> (usize, TokenLineError) {
        TokenTable::parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn callers_are_found_by_their_tokens() {
        let hashed = hashed_line("carol", "carols-own-token-is-here").unwrap();
        let spaced = hashed.replacen("carol:", "dave: ", 1).replace("carols", "daves");
        let text = format!("# who calls\n\n alice:{TOKEN}\r\nbob: with:colons:and~signs+/=\n{hashed}");
        let table = TokenTable::parse(text.as_bytes()).unwrap();
        let find = |token: &str| table.find(token.as_bytes()).map(|principal| principal.to_string());
        assert_eq!(find(TOKEN).as_deref(), Some("alice"));
        assert_eq!(find("with:colons:and~signs+/=").as_deref(), Some("bob"));
        assert_eq!(find("carols-own-token-is-here").as_deref(), Some("carol"));
        for nobody in ["", "0123456789abcde", "0123456789abcdef0", hashed.split_once(':').unwrap().1] {
            assert_eq!(find(nobody), None, "{nobody}");
        }
        let table = TokenTable::parse(spaced.to_uppercase().replace("SHA256", "sha256").as_bytes()).unwrap();
        assert_eq!(table.find(b"carols-own-token-is-here").unwrap().to_string(), "DAVE");
        assert!(!format!("{table:?}").to_lowercase().contains(&hashed[20..30]), "{table:?}");
    }

    #[test]
    fn a_file_without_callers_is_one() {
        assert!(TokenTable::parse(b"\n# nobody\n").unwrap().principals.is_empty());
    }

    #[test]
    fn a_bad_line_is_reported_by_its_number_and_without_its_text() {
        assert_eq!(line_error("just-a-secret-token"), (1, TokenLineError::NoColon));
        assert_eq!(line_error(&format!("\n\na b:{TOKEN}")), (3, TokenLineError::Name));
        assert_eq!(line_error(&format!("anonymous:{TOKEN}")), (1, TokenLineError::Name));
        assert_eq!(line_error(&format!("{}:{TOKEN}", "x".repeat(65))), (1, TokenLineError::Name));
        assert_eq!(line_error("a:short-token-12"[..16].trim_end()), (1, TokenLineError::ShortToken));
        assert_eq!(line_error("a:a token with spaces"), (1, TokenLineError::TokenCharacters));
        assert_eq!(line_error("a:ünïcödé-ünïcödé-ünïcödé"), (1, TokenLineError::TokenCharacters));
        assert_eq!(line_error("a:sha256:0123456789abcdef"), (1, TokenLineError::Hash));
        assert_eq!(line_error(&format!("a:sha256:{}", "ä".repeat(32))), (1, TokenLineError::Hash));
        assert_eq!(TokenTable::parse(b"a:\xff").unwrap_err(), (1, TokenLineError::NotText));
        let other = "another-token-for-it";
        assert_eq!(
            line_error(&format!("#\na:{TOKEN}\na:{other}")),
            (3, TokenLineError::NameTwice { first: 2 })
        );
        assert_eq!(
            line_error(&format!("a:{TOKEN}\n\nb:{TOKEN}")),
            (3, TokenLineError::TokenTwice { first: 1 })
        );
        let hashed = hashed_line("b", TOKEN).unwrap();
        assert_eq!(line_error(&format!("a:{TOKEN}\n{hashed}")), (2, TokenLineError::TokenTwice { first: 1 }));
    }
}
