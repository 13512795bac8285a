//! The file of tokens: who may call, a line for each.
//!
//! ```text
//! # comment
//! alice:0123456789abcdef-a-token
//! bob:sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//! ```
//!
//! Only hashes of tokens are kept in memory, and a message about a line never shows what is in it.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::OFlags;
use session::Principal;
use sha2::{Digest, Sha256};

use crate::reloaded::Source;

/// More callers than a gateway has sessions for.
const MAX_LINES: usize = 10_000;

/// That many of the longest lines that anybody would write.
const MAX_BYTES: u64 = 2 * 1024 * 1024;

/// Shorter ones can be guessed.
const MIN_TOKEN: usize = 16;

const HASH_MARK: &str = "sha256:";

/// What a token is known by.
type TokenHash = [u8; 32];

/// Why a file of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{}: it is not a regular file", path.display())]
    NotAFile { path: PathBuf },
    #[error("{}: it belongs to another user", path.display())]
    NotOwned { path: PathBuf },
    #[error("{}: other users may read or write it (mode {mode:03o})", path.display())]
    TooOpen { path: PathBuf, mode: u32 },
    #[error("{}: it is longer than {MAX_LINES} lines or {MAX_BYTES} bytes", path.display())]
    TooLong { path: PathBuf },
    #[error("{}, line {line}: {flaw}", path.display())]
    Line { path: PathBuf, line: usize, flaw: LineFlaw },
    #[error("`{name}` cannot be a name")]
    BadName { name: String },
    #[error("{}: `{name}` has a token already", path.display())]
    NameTaken { path: PathBuf, name: String },
}

impl TokenFileError {
    /// What the operator can do.
    pub fn hint(&self) -> String {
        const NAMES: &str =
            "names have at most 64 letters, digits, `.`, `_` and `-`; `anonymous` is nobody's";
        match self {
            Self::Unreadable { path, .. } => {
                format!("`ringfence token NAME --file {}` makes a token and the file", path.display())
            }
            Self::NotAFile { .. } => "name a file".to_owned(),
            Self::NotOwned { path } => format!("make it yours: chown $(id -u) {}", path.display()),
            Self::TooOpen { path, .. } => format!("chmod 600 {}", path.display()),
            Self::TooLong { .. } => "leave out who no longer calls".to_owned(),
            Self::Line { flaw: LineFlaw::Name, .. } | Self::BadName { .. } => NAMES.to_owned(),
            Self::Line { flaw: LineFlaw::NameTwice { .. } | LineFlaw::TokenTwice { .. }, .. } => {
                "every caller has one name and one token; remove one of the lines".to_owned()
            }
            Self::Line { .. } => format!(
                "a line is `name:token`, `name:{HASH_MARK}HEX` or a `#` comment; `ringfence token NAME` makes one"
            ),
            Self::NameTaken { .. } => "remove its line first; the old token then stops working".to_owned(),
        }
    }
}

/// What is wrong with a line. The line itself may be a secret and is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFlaw {
    #[error("it is not text")]
    NotText,
    #[error("there is no `:` between a name and a token")]
    NoColon,
    #[error("what stands before the `:` cannot be a name")]
    Name,
    #[error("the token is shorter than {MIN_TOKEN} characters")]
    ShortToken,
    #[error("the token has spaces, or characters that are not ASCII")]
    TokenCharacters,
    #[error("`{HASH_MARK}` is not followed by 64 hexadecimal digits")]
    Hash,
    #[error("the name is that of line {first}")]
    NameTwice { first: usize },
    #[error("the token is that of line {first}")]
    TokenTwice { first: usize },
}

/// Where the tokens are.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Gives a caller a token. The file is made if it is not there, for this user alone; it holds the hash.
    pub fn add(&self, name: &str, token: &str) -> Result<(), TokenFileError> {
        let line = hashed_line(name, token)?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        options.custom_flags(open_flags());
        let mut file = options.open(&self.path).map_err(|error| self.unreadable(error))?;
        // Two that add at once must each see the other's line.
        file.lock().map_err(|error| self.unreadable(error))?;
        let text = self.read_checked(&file)?;
        let table = TokenTable::parse(&text).map_err(|(line, flaw)| self.flawed(line, flaw))?;
        if table.principals.values().any(|principal| principal.to_string() == name) {
            return Err(TokenFileError::NameTaken { path: self.path.clone(), name: name.to_owned() });
        }
        let begin = if text.is_empty() || text.ends_with(b"\n") { "" } else { "\n" };
        file.write_all(format!("{begin}{line}\n").as_bytes()).map_err(|error| self.unreadable(error))
    }

    fn read_checked(&self, file: &File) -> Result<Vec<u8>, TokenFileError> {
        let path = || self.path.clone();
        let metadata = file.metadata().map_err(|error| self.unreadable(error))?;
        if !metadata.is_file() {
            return Err(TokenFileError::NotAFile { path: path() });
        }
        if metadata.uid() != 0 && metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(TokenFileError::NotOwned { path: path() });
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(TokenFileError::TooOpen { path: path(), mode: metadata.mode() & 0o777 });
        }
        let mut text = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(|error| self.unreadable(error))?;
        let is_too_long =
            text.len() as u64 > MAX_BYTES || text.split(|byte| *byte == b'\n').count() > MAX_LINES + 1;
        if is_too_long { Err(TokenFileError::TooLong { path: path() }) } else { Ok(text) }
    }

    fn unreadable(&self, error: io::Error) -> TokenFileError {
        TokenFileError::Unreadable { path: self.path.clone(), error }
    }

    fn flawed(&self, line: usize, flaw: LineFlaw) -> TokenFileError {
        TokenFileError::Line { path: self.path.clone(), line, flaw }
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
        let table = TokenTable::parse(&text).map_err(|(line, flaw)| self.flawed(line, flaw))?;
        if table.principals.is_empty() {
            tracing::warn!("{} names nobody: every call is refused", self.path.display());
        }
        Ok(table)
    }
}

/// A pipe in place of the file must not keep us waiting for its writer.
#[allow(clippy::cast_possible_wrap, reason = "flags are bits")]
fn open_flags() -> i32 {
    OFlags::NONBLOCK.bits() as i32
}

/// The line for a file of tokens, with the hash in place of the token.
pub fn hashed_line(name: &str, token: &str) -> Result<String, TokenFileError> {
    let principal =
        Principal::named(name).ok_or_else(|| TokenFileError::BadName { name: name.to_owned() })?;
    let mut line = format!("{principal}:{HASH_MARK}");
    for byte in hash(token) {
        // Writing to a string does not fail.
        let _ = write!(line, "{byte:02x}");
    }
    Ok(line)
}

/// Who has which token.
///
/// Found by hash in a map. Neither that nor comparing the hashes takes a constant time, and need not: what could
/// be learnt from the time is something about the hash of a known token, and to make use of it somebody would
/// have to find tokens with hashes of their choice.
pub(crate) struct TokenTable {
    principals: HashMap<TokenHash, Principal>,
}

impl TokenTable {
    pub(crate) fn find(&self, token: &[u8]) -> Option<Principal> {
        self.principals.get(&hash(token)).cloned()
    }

    /// Whether a caller that had a token of these still has the same one.
    pub(crate) fn still_holds_for(&self, principal: &Principal, now: &Self) -> bool {
        let of = |table: &Self| {
            table.principals.iter().find(|(_, known)| *known == principal).map(|(hash, _)| *hash)
        };
        of(now).is_some_and(|token| of(self).is_none_or(|before| before == token))
    }

    /// A flaw comes with the number of its line.
    fn parse(text: &[u8]) -> Result<Self, (usize, LineFlaw)> {
        let mut principals = HashMap::new();
        let mut lines_of_names: HashMap<Principal, usize> = HashMap::new();
        let mut lines_of_tokens: HashMap<TokenHash, usize> = HashMap::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = std::str::from_utf8(line).map_err(|_| (number, LineFlaw::NotText))?.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (principal, token) = read_line(line).map_err(|flaw| (number, flaw))?;
            if let Some(&first) = lines_of_names.get(&principal) {
                return Err((number, LineFlaw::NameTwice { first }));
            }
            if let Some(&first) = lines_of_tokens.get(&token) {
                return Err((number, LineFlaw::TokenTwice { first }));
            }
            lines_of_names.insert(principal.clone(), number);
            lines_of_tokens.insert(token, number);
            principals.insert(token, principal);
        }
        Ok(Self { principals })
    }
}

/// How many there are is all that may be seen of them.
impl fmt::Debug for TokenTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenTable").field("principals", &self.principals.len()).finish()
    }
}

fn read_line(line: &str) -> Result<(Principal, TokenHash), LineFlaw> {
    let (name, token) = line.split_once(':').ok_or(LineFlaw::NoColon)?;
    let principal = Principal::named(name.trim()).ok_or(LineFlaw::Name)?;
    let token = token.trim();
    let hash = match token.strip_prefix(HASH_MARK) {
        Some(digits) => read_hash(digits).ok_or(LineFlaw::Hash)?,
        None if token.len() < MIN_TOKEN => return Err(LineFlaw::ShortToken),
        None if !token.bytes().all(|byte| byte.is_ascii_graphic()) => return Err(LineFlaw::TokenCharacters),
        None => hash(token),
    };
    Ok((principal, hash))
}

fn read_hash(digits: &str) -> Option<TokenHash> {
    let mut hash = TokenHash::default();
    if digits.len() != 2 * hash.len() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, place) in hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(digits.get(place..place + 2)?, 16).ok()?;
    }
    Some(hash)
}

fn hash(token: impl AsRef<[u8]>) -> TokenHash {
    Sha256::digest(token.as_ref()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn flaw(text: &str) -> (usize, LineFlaw) {
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
    fn flaws_are_told_with_their_line_and_without_its_text() {
        assert_eq!(flaw("just-a-secret-token"), (1, LineFlaw::NoColon));
        assert_eq!(flaw(&format!("\n\na b:{TOKEN}")), (3, LineFlaw::Name));
        assert_eq!(flaw(&format!("anonymous:{TOKEN}")), (1, LineFlaw::Name));
        assert_eq!(flaw(&format!("{}:{TOKEN}", "x".repeat(65))), (1, LineFlaw::Name));
        assert_eq!(flaw("a:short-token-12"[..16].trim_end()), (1, LineFlaw::ShortToken));
        assert_eq!(flaw("a:a token with spaces"), (1, LineFlaw::TokenCharacters));
        assert_eq!(flaw("a:ünïcödé-ünïcödé-ünïcödé"), (1, LineFlaw::TokenCharacters));
        assert_eq!(flaw("a:sha256:0123456789abcdef"), (1, LineFlaw::Hash));
        assert_eq!(flaw(&format!("a:sha256:{}", "ä".repeat(32))), (1, LineFlaw::Hash));
        assert_eq!(TokenTable::parse(b"a:\xff").unwrap_err(), (1, LineFlaw::NotText));
        let other = "another-token-for-it";
        assert_eq!(flaw(&format!("#\na:{TOKEN}\na:{other}")), (3, LineFlaw::NameTwice { first: 2 }));
        assert_eq!(flaw(&format!("a:{TOKEN}\n\nb:{TOKEN}")), (3, LineFlaw::TokenTwice { first: 1 }));
        let hashed = hashed_line("b", TOKEN).unwrap();
        assert_eq!(flaw(&format!("a:{TOKEN}\n{hashed}")), (2, LineFlaw::TokenTwice { first: 1 }));
    }
}
