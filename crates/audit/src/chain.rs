//! The hash chain of the log: writes a line that continues the one before, and checks a line that was read.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::entry::OwnEntry;
use crate::key::AuditKey;
use crate::timestamp::Timestamp;

/// Longest line. Entries are far shorter, except for scopes of a thousand long paths.
pub(super) const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;

const BEFORE_HASH: &[u8] = b",\"hash\":\"";
const AFTER_HASH: &[u8] = b"\"}";
const HASH_DIGITS: usize = 64;

/// The hash of a line, written as 64 hexadecimal digits: SHA-256, or HMAC-SHA-256 if the log has a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AuditHash([u8; 32]);

impl AuditHash {
    /// The `previous` of the first line.
    pub const NONE: Self = Self([0; 32]);

    fn of(bytes: &[u8], key: Option<&AuditKey>) -> Self {
        Self(key.map_or_else(|| Sha256::digest(bytes).into(), |key| key.hash(bytes)))
    }
}

impl fmt::Display for AuditHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&wire::hex(&self.0))
    }
}

impl fmt::Debug for AuditHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for AuditHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AuditHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A text is not a hash in lower-case hexadecimal digits.
#[derive(Debug, Error)]
#[error("a hash has 64 digits of 0-9 and a-f")]
pub struct HashError;

impl FromStr for AuditHash {
    type Err = HashError;

    fn from_str(text: &str) -> Result<Self, HashError> {
        let is_upper_case = text.bytes().any(|byte| byte.is_ascii_uppercase());
        wire::from_hex(text).filter(|_| !is_upper_case).map(Self).ok_or(HashError)
    }
}

/// Why a line is not part of an intact log.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LineError {
    #[error("the line is not a record of an audit log")]
    NotARecord,
    #[error("the line is longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    #[error("the line was changed: its hash does not match its contents")]
    Changed,
    #[error("found record {found} instead of {expected}: lines are missing")]
    Missing { expected: u64, found: u64 },
    #[error("found record {found} instead of {expected}: lines were inserted or moved")]
    Misplaced { expected: u64, found: u64 },
    #[error("the line does not continue the previous one: one of the two was replaced")]
    Replaced,
    #[error(
        "the last line is incomplete ({bytes} bytes): the gateway was killed while writing it, and cuts it off at \
         its next start"
    )]
    Torn { bytes: usize },
}

/// The end of the chain: the number of the next line and the hash of the last.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    next: u64,
    previous: AuditHash,
    key: Option<AuditKey>,
}

#[derive(Serialize)]
struct Record<'a, E> {
    seq: u64,
    time: Timestamp,
    #[serde(flatten)]
    entry: &'a E,
    previous: AuditHash,
}

impl Chain {
    pub(super) fn start(key: Option<AuditKey>) -> Self {
        Self { next: 1, previous: AuditHash::NONE, key }
    }

    pub(super) fn after(link: &Link, key: Option<AuditKey>) -> Self {
        Self { next: link.seq + 1, previous: link.hash, key }
    }

    /// The number of the last line, or 0.
    pub(super) fn last(&self) -> u64 {
        self.next - 1
    }

    /// Appends the first line of a file of a log with a key. It says that there is one, so that the log is not taken
    /// for one without.
    pub(super) fn begin_file(&mut self, lines: &mut Vec<u8>) {
        if let Some(key_id) = self.key.as_ref().map(|key| key.id().to_owned()) {
            self.append(lines, Timestamp::now(), &OwnEntry::ChainKeyed { keyed: true, key_id });
        }
    }

    /// Appends a line for `entry`. An entry that is too long is recorded as lost.
    pub(super) fn append(&mut self, lines: &mut Vec<u8>, time: Timestamp, entry: &impl Serialize) {
        if !self.try_append(lines, time, entry) {
            let is_short = self.try_append(lines, time, &OwnEntry::Lost { count: 1 });
            debug_assert!(is_short);
        }
    }

    fn try_append(&mut self, lines: &mut Vec<u8>, time: Timestamp, entry: &impl Serialize) -> bool {
        let start = lines.len();
        let record = Record { seq: self.next, time, entry, previous: self.previous };
        let is_written = serde_json::to_writer(&mut *lines, &record).is_ok();
        if !is_written || lines.len() - start + BEFORE_HASH.len() + HASH_DIGITS > MAX_LINE_BYTES {
            lines.truncate(start);
            return false;
        }
        // Arguments keep the line breaks that the client put between tokens. JSON strings contain none.
        for byte in &mut lines[start..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        // The closing brace comes after the hash.
        lines.pop();
        let hash = AuditHash::of(&lines[start..], self.key.as_ref());
        lines.extend_from_slice(BEFORE_HASH);
        lines.extend_from_slice(hash.to_string().as_bytes());
        lines.extend_from_slice(AFTER_HASH);
        lines.push(b'\n');
        (self.next, self.previous) = (self.next + 1, hash);
        true
    }

    /// Moves on to a line that was read, if it is the next one.
    pub(super) fn advance(&mut self, link: &Link) -> Result<(), LineError> {
        let (expected, found) = (self.next, link.seq);
        if found > expected {
            return Err(LineError::Missing { expected, found });
        }
        if found < expected {
            return Err(LineError::Misplaced { expected, found });
        }
        if link.previous != self.previous {
            return Err(LineError::Replaced);
        }
        (self.next, self.previous) = (link.seq + 1, link.hash);
        Ok(())
    }
}

/// The part of a line that the chain needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) seq: u64,
    pub(super) previous: AuditHash,
    pub(super) hash: AuditHash,
    /// The number of lost entries that the line reports.
    pub(super) lost: u64,
}

#[derive(Deserialize)]
struct Fields<'a> {
    seq: u64,
    #[serde(borrow)]
    event: std::borrow::Cow<'a, str>,
    #[serde(default)]
    count: Option<&'a serde_json::value::RawValue>,
    previous: &'a str,
}

impl Link {
    /// Parses a line without its line break, and checks its hash.
    pub(super) fn parse(line: &[u8], key: Option<&AuditKey>) -> Result<Self, LineError> {
        let end = line.strip_suffix(AFTER_HASH).ok_or(LineError::NotARecord)?;
        let (front, digits) = end.split_last_chunk::<HASH_DIGITS>().ok_or(LineError::NotARecord)?;
        let content = front.strip_suffix(BEFORE_HASH).ok_or(LineError::NotARecord)?;
        let hash = parse_hash(digits)?;
        if AuditHash::of(content, key) != hash {
            return Err(LineError::Changed);
        }
        let fields: Fields<'_> = serde_json::from_slice(line).map_err(|_| LineError::NotARecord)?;
        let lost = match (fields.event.as_ref(), fields.count) {
            ("lost", Some(count)) => count.get().parse().map_err(|_| LineError::NotARecord)?,
            _ => 0,
        };
        let previous = parse_hash(fields.previous.as_bytes())?;
        let is_numbered = (1..u64::MAX).contains(&fields.seq);
        if !is_numbered || (fields.seq == 1) != (previous == AuditHash::NONE) {
            return Err(LineError::NotARecord);
        }
        Ok(Self { seq: fields.seq, previous, hash, lost })
    }

    /// Returns true for the first line ever, and false for the first line that rotation left.
    pub(super) fn is_first(&self) -> bool {
        self.previous == AuditHash::NONE
    }

    /// The chain that this line continues.
    pub(super) fn before(&self) -> Chain {
        Chain { next: self.seq, previous: self.previous, key: None }
    }
}

/// The id of the key that the first line of a file names; not checked.
pub(super) fn key_id(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Keyed {
        keyed: bool,
        key_id: String,
    }
    serde_json::from_slice::<Keyed>(line).ok().filter(|first| first.keyed).map(|first| first.key_id)
}

fn parse_hash(digits: &[u8]) -> Result<AuditHash, LineError> {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(LineError::NotARecord)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_as_it_is_written() {
        let hash = AuditHash::of(b"x", None);
        assert_eq!(hash.to_string().parse::<AuditHash>().unwrap(), hash);
        let uppercase = hash.to_string().to_uppercase();
        for bad in ["", "0", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &uppercase] {
            assert!(bad.parse::<AuditHash>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_hash_is_that_of_the_bytes_before_it() {
        let mut lines = Vec::new();
        Chain::start(None).append(&mut lines, Timestamp::now(), &OwnEntry::Lost { count: 3 });
        let text = String::from_utf8(lines).unwrap();
        let (content, _) = text.split_once(",\"hash\":").unwrap();
        assert!(
            content.starts_with("{\"seq\":1,\"time\":\"")
                && content.contains("\"event\":\"lost\",\"count\":3")
        );
        assert!(content.ends_with(&format!(",\"previous\":\"{}\"", "0".repeat(64))));
        let hash = AuditHash::of(content.as_bytes(), None);
        assert_eq!(text, format!("{content},\"hash\":\"{hash}\"}}\n"));
        let link = Link::parse(text.trim_end().as_bytes(), None).unwrap();
        assert_eq!((link.seq, link.hash, link.lost, link.is_first()), (1, hash, 3, true));
    }

    #[test]
    fn line_breaks_in_arguments_do_not_break_lines() {
        #[derive(Serialize)]
        struct Odd<'a> {
            event: &'a str,
            arguments: &'a serde_json::value::RawValue,
        }
        let nested = format!("{}{}", "[\n".repeat(2000), "\r\n]".repeat(2000));
        let arguments = serde_json::value::RawValue::from_string(nested).unwrap();
        let mut lines = Vec::new();
        let mut chain = Chain::start(None);
        chain.append(&mut lines, Timestamp::now(), &Odd { event: "x", arguments: &arguments });
        assert_eq!(lines.iter().position(|byte| *byte == b'\n'), Some(lines.len() - 1));
        Link::parse(lines.trim_ascii_end(), None).unwrap();
    }

    #[test]
    fn a_line_that_is_too_long_is_said_to_be_lost() {
        let mut lines = Vec::new();
        let mut chain = Chain::start(None);
        let long = std::collections::BTreeMap::from([("event", "x".repeat(MAX_LINE_BYTES))]);
        chain.append(&mut lines, Timestamp::now(), &long);
        assert_eq!(Link::parse(lines.trim_ascii_end(), None).unwrap().lost, 1);
    }
}
