//! The token file: one line for each caller.
//!
//! ```text
//! # comment
//! alice:0123456789abcdef-a-token
//! bob:sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//! carol:sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752 expires=2030-12-31 # her laptop
//! ```
//!
//! Only hashes of tokens are kept in memory, and an error about a line never shows its text.

use std::collections::HashMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use config::PrivateFileError;
use identity::Principal;
use jiff::Timestamp;
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

const EXPIRY_MARK: &str = "expires=";

/// Begins a note at the end of a line.
const NOTE_MARK: char = '#';

/// Longest note.
const MAX_NOTE: usize = 200;

/// Hexadecimal digits of a hash that are enough to name a token.
const MIN_PREFIX: usize = 8;

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
    #[error("the note is longer than {MAX_NOTE} characters or has line breaks or control characters")]
    BadNote,
    #[error("{}: no token has the name `{what}`, or a hash that begins so", path.display())]
    NoSuchToken { path: PathBuf, what: String },
    #[error("{}: the hashes of several tokens begin with `{what}`", path.display())]
    SeveralTokens { path: PathBuf, what: String },
}

impl TokenFileError {
    /// What the operator can do.
    pub fn hint(&self) -> String {
        const NAMES: &str =
            "names have at most 64 letters, digits, `.`, `_` and `-`; `anonymous` is reserved";
        match self {
            Self::Unreadable { path, .. } => {
                format!("`ringfence token create NAME --file {}` makes a token and the file", path.display())
            }
            Self::NotPrivate(error) => error.hint(),
            Self::TooLong { .. } => "remove the lines of callers that are gone".to_owned(),
            Self::Line { error: TokenLineError::Name, .. } | Self::BadName { .. } => NAMES.to_owned(),
            Self::Line {
                error: TokenLineError::NameTwice { .. } | TokenLineError::TokenTwice { .. },
                ..
            } => "every caller has one name and one token; remove one of the lines".to_owned(),
            Self::Line { .. } => format!(
                "a line is `name:token` or `name:{HASH_MARK}HEX`, then `{EXPIRY_MARK}DATE` and `# a note` if wanted, or \
                 a `#` comment; `ringfence token create NAME` makes one"
            ),
            Self::NameTaken { path, name } => format!(
                "`ringfence token revoke {name} --file {}` first; the old token then stops working",
                path.display()
            ),
            Self::BadNote => "write one short line".to_owned(),
            Self::NoSuchToken { .. } | Self::SeveralTokens { .. } => {
                format!(
                    "write the name at the beginning of its line, or at least {MIN_PREFIX} digits of its hash"
                )
            }
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
    #[error(
        "`{EXPIRY_MARK}` is not followed by a date such as 2030-12-31 or a time such as 2030-12-31T18:00:00Z"
    )]
    Expiry,
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
    pub fn add(&self, new: &NewToken<'_>) -> Result<(), TokenFileError> {
        let line = new.hashed_line()?;
        let mut file = self.open_locked(OpenOptions::new().append(true).create(true).mode(0o600))?;
        let text = self.read_checked(&file)?;
        if self.parse(&text)?.lines.iter().any(|line| line.principal.as_str() == new.name) {
            return Err(TokenFileError::NameTaken { path: self.path.clone(), name: new.name.to_owned() });
        }
        let begin = if text.is_empty() || text.ends_with(b"\n") { "" } else { "\n" };
        file.write_all(format!("{begin}{line}\n").as_bytes()).map_err(|error| self.unreadable(error))
    }

    /// Removes the line of a caller: of this name, or whose token's hash begins so. Returns the name.
    pub fn revoke(&self, what: &str) -> Result<String, TokenFileError> {
        let mut file = self.open_locked(OpenOptions::new().write(true))?;
        let text = self.read_checked(&file)?;
        let table = self.parse(&text)?;
        let line = self.find_line(&table, what)?;
        let rest = &text[line.place.end..];
        // In its place, and not as a new file, which another owner than that of this one could have. A gateway that
        // reads it meanwhile finds a name twice, keeps what it knows, and reads it again.
        file.seek(SeekFrom::Start(line.place.start as u64))
            .and_then(|_| file.write_all(rest))
            .and_then(|()| file.set_len((text.len() - line.place.len()) as u64))
            .map_err(|error| self.unreadable(error))?;
        Ok(line.principal.to_string())
    }

    fn find_line<'a>(&self, table: &'a TokenTable, what: &str) -> Result<&'a Line, TokenFileError> {
        let (path, what) = (self.path.clone(), what.to_owned());
        if let Some(line) = table.lines.iter().find(|line| line.principal.as_str() == what) {
            return Ok(line);
        }
        let digits = what.strip_prefix(HASH_MARK).unwrap_or(&what).to_ascii_lowercase();
        let is_meant =
            |line: &&Line| digits.len() >= MIN_PREFIX && wire::hex(&line.token).starts_with(&digits);
        let mut meant = table.lines.iter().filter(is_meant);
        match (meant.next(), meant.next()) {
            (Some(line), None) => Ok(line),
            (Some(_), Some(_)) => Err(TokenFileError::SeveralTokens { path, what }),
            (None, _) => Err(TokenFileError::NoSuchToken { path, what }),
        }
    }

    /// Opens the file for reading and changing. Two processes that change it at the same time must each see what the
    /// other wrote.
    fn open_locked(&self, options: &mut OpenOptions) -> Result<File, TokenFileError> {
        let opened = options.read(true).custom_flags(open_flags()).open(&self.path);
        let file = opened.map_err(|error| self.unreadable(error))?;
        file.lock().map_err(|error| self.unreadable(error))?;
        Ok(file)
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
        if table.lines.is_empty() {
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

/// A token that is to be added.
#[derive(Clone, Copy)]
pub struct NewToken<'a> {
    pub name: &'a str,
    pub token: &'a str,
    pub expires: Option<Timestamp>,
    /// For the operator; ringfence ignores it.
    pub note: Option<&'a str>,
}

/// Without the token.
impl fmt::Debug for NewToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("name", &self.name).finish_non_exhaustive()
    }
}

impl NewToken<'_> {
    /// The line of a token file, with the hash in place of the token.
    pub fn hashed_line(&self) -> Result<String, TokenFileError> {
        let principal = Principal::named(self.name)
            .ok_or_else(|| TokenFileError::BadName { name: self.name.to_owned() })?;
        let mut line = format!("{principal}:{HASH_MARK}{}", wire::hex(&hash(self.token)));
        if let Some(expires) = self.expires {
            line = format!("{line} {EXPIRY_MARK}{expires}");
        }
        if let Some(note) = self.note {
            if note.chars().count() > MAX_NOTE || note.chars().any(char::is_control) {
                return Err(TokenFileError::BadNote);
            }
            line = format!("{line} {NOTE_MARK} {}", note.trim());
        }
        Ok(line)
    }
}

/// The callers by the hash of their token.
///
/// The lookup does not take constant time and need not: its timing reveals something about the hash of a valid token,
/// and using that would take tokens whose hashes an attacker can choose.
pub(crate) struct TokenTable {
    lines: Vec<Line>,
    by_token: HashMap<TokenHash, usize>,
    by_principal: HashMap<Principal, usize>,
}

/// One caller.
struct Line {
    principal: Principal,
    token: TokenHash,
    expires: Option<Timestamp>,
    /// The number of the line, from 1.
    number: usize,
    /// Its bytes in the file, with the line break.
    place: Range<usize>,
}

/// A caller whose token is in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) principal: Principal,
    /// From then on the token is refused.
    pub(crate) expires: Option<Timestamp>,
}

impl TokenTable {
    pub(crate) fn find(&self, token: &[u8]) -> Option<Known> {
        let line = &self.lines[*self.by_token.get(&hash(token))?];
        Some(Known { principal: line.principal.clone(), expires: line.expires })
    }

    fn line_of(&self, principal: &Principal) -> Option<&Line> {
        self.by_principal.get(principal).map(|place| &self.lines[*place])
    }

    pub(crate) fn token_of(&self, principal: &Principal) -> Option<TokenHash> {
        self.line_of(principal).map(|line| line.token)
    }

    /// Whether the token of a caller has expired.
    pub(crate) fn has_expired(&self, principal: &Principal, now: Timestamp) -> bool {
        self.line_of(principal).and_then(|line| line.expires).is_some_and(|expires| expires <= now)
    }

    /// Parses the whole file. The error comes with the number of its line.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, (usize, TokenLineError)> {
        let mut table = Self { lines: Vec::new(), by_token: HashMap::new(), by_principal: HashMap::new() };
        let mut start = 0;
        for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
            let place = start..start + line.len();
            start = place.end;
            let line = std::str::from_utf8(line).map_err(|_| (number, TokenLineError::NotText))?.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (known, token) = read_line(line).map_err(|error| (number, error))?;
            let Known { principal, expires } = known;
            table.add(Line { principal, token, expires, number, place }).map_err(|error| (number, error))?;
        }
        Ok(table)
    }

    fn add(&mut self, line: Line) -> Result<(), TokenLineError> {
        if let Some(first) = self.line_of(&line.principal) {
            return Err(TokenLineError::NameTwice { first: first.number });
        }
        if let Some(first) = self.by_token.get(&line.token) {
            return Err(TokenLineError::TokenTwice { first: self.lines[*first].number });
        }
        self.by_principal.insert(line.principal.clone(), self.lines.len());
        self.by_token.insert(line.token, self.lines.len());
        self.lines.push(line);
        Ok(())
    }
}

/// Shows only the number of callers.
impl fmt::Debug for TokenTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenTable").field("principals", &self.lines.len()).finish_non_exhaustive()
    }
}

fn read_line(line: &str) -> Result<(Known, TokenHash), TokenLineError> {
    let (name, rest) = line.split_once(':').ok_or(TokenLineError::NoColon)?;
    let principal = Principal::named(name.trim()).ok_or(TokenLineError::Name)?;
    let rest = rest.trim();
    let (token, settings) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let expires = read_expiry(settings)?;
    let hash = match token.strip_prefix(HASH_MARK) {
        Some(digits) => wire::from_hex(digits).ok_or(TokenLineError::Hash)?,
        None if token.len() < MIN_TOKEN => return Err(TokenLineError::ShortToken),
        None if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            return Err(TokenLineError::TokenCharacters);
        }
        None => hash(token),
    };
    Ok((Known { principal, expires }, hash))
}

/// Reads what follows a token: its expiry and a note, both optional.
fn read_expiry(settings: &str) -> Result<Option<Timestamp>, TokenLineError> {
    let settings = settings.split(NOTE_MARK).next().unwrap_or_default().trim();
    if settings.is_empty() {
        return Ok(None);
    }
    let expires = settings.strip_prefix(EXPIRY_MARK).ok_or(TokenLineError::TokenCharacters)?;
    config::parse_expiry(expires).map(Some).ok_or(TokenLineError::Expiry)
}

fn hash(token: impl AsRef<[u8]>) -> TokenHash {
    Sha256::digest(token.as_ref()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn hashed_line(name: &str, token: &str) -> String {
        NewToken { name, token, expires: None, note: None }.hashed_line().unwrap()
    }

    #[test]
    fn a_line_may_say_when_its_token_expires_and_what_it_is_for() {
        let expires = "2030-06-30T12:00:00Z".parse::<Timestamp>().unwrap();
        let new = NewToken { name: "alice", token: TOKEN, expires: Some(expires), note: Some("laptop # 2") };
        let text = format!("{}\nbob:bobs-token-12345678 # no date\n", new.hashed_line().unwrap());
        let table = TokenTable::parse(text.as_bytes()).unwrap();
        assert_eq!(table.find(TOKEN.as_bytes()).unwrap().expires, Some(expires));
        assert_eq!(table.find(b"bobs-token-12345678").unwrap().expires, None);
        let alice = Principal::named("alice").unwrap();
        let second = std::time::Duration::from_secs(1);
        assert!(table.has_expired(&alice, expires) && !table.has_expired(&alice, expires - second));
        assert_eq!(line_error(&format!("a:{TOKEN} expires=soon")), (1, TokenLineError::Expiry));
        for note in ["two\nlines", &"x".repeat(201)] {
            let refused = NewToken { note: Some(note), ..new }.hashed_line();
            assert!(matches!(refused, Err(TokenFileError::BadNote)), "{note}");
        }
    }

    #[test]
    fn a_revoked_token_is_found_by_its_name_or_the_beginning_of_its_hash() {
        let file = TokenFile::at("tokens");
        let text = format!("alice:{TOKEN}\nbob:bobs-token-12345678\n");
        let table = TokenTable::parse(text.as_bytes()).unwrap();
        let find = |what: &str| file.find_line(&table, what).map(|line| line.principal.to_string());
        let digits = wire::hex(&hash(TOKEN));
        for what in ["alice", &digits, &digits[..8], &format!("sha256:{digits}")] {
            assert_eq!(find(what).unwrap(), "alice");
        }
        for what in ["", "carol", &digits[..7], "00000000"] {
            assert!(matches!(find(what), Err(TokenFileError::NoSuchToken { .. })), "{what}");
        }
        let line = file.find_line(&table, "alice").unwrap();
        assert_eq!(&text[line.place.clone()], format!("alice:{TOKEN}\n"));
    }

    fn line_error(text: &str) -> (usize, TokenLineError) {
        TokenTable::parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn callers_are_found_by_their_tokens() {
        let hashed = hashed_line("carol", "carols-own-token-is-here");
        let spaced = hashed.replacen("carol:", "dave: ", 1).replace("carols", "daves");
        let text = format!("# who calls\n\n alice:{TOKEN}\r\nbob: with:colons:and~signs+/=\n{hashed}");
        let table = TokenTable::parse(text.as_bytes()).unwrap();
        let find = |token: &str| table.find(token.as_bytes()).map(|known| known.principal.to_string());
        assert_eq!(find(TOKEN).as_deref(), Some("alice"));
        assert_eq!(find("with:colons:and~signs+/=").as_deref(), Some("bob"));
        assert_eq!(find("carols-own-token-is-here").as_deref(), Some("carol"));
        for nobody in ["", "0123456789abcde", "0123456789abcdef0", hashed.split_once(':').unwrap().1] {
            assert_eq!(find(nobody), None, "{nobody}");
        }
        let table = TokenTable::parse(spaced.to_uppercase().replace("SHA256", "sha256").as_bytes()).unwrap();
        assert_eq!(table.find(b"carols-own-token-is-here").unwrap().principal.to_string(), "DAVE");
        assert!(!format!("{table:?}").to_lowercase().contains(&hashed[20..30]), "{table:?}");
    }

    #[test]
    fn a_file_without_callers_is_one() {
        assert!(TokenTable::parse(b"\n# nobody\n").unwrap().lines.is_empty());
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
        let hashed = hashed_line("b", TOKEN);
        assert_eq!(line_error(&format!("a:{TOKEN}\n{hashed}")), (2, TokenLineError::TokenTwice { first: 1 }));
    }
}
