//! Verifies a log: every line by its hash, every hash by the next line.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::chain::{AuditHash, LineError, Link, key_id};
use crate::key::{AuditKey, KeyMismatch};
use crate::read::read;

/// The result for an intact log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub files: usize,
    pub records: u64,
    /// None in an empty log.
    pub first_seq: Option<u64>,
    pub last_seq: Option<u64>,
    /// Keep it elsewhere to prove later that no line up to here was cut off or replaced.
    pub last_hash: AuditHash,
    /// Lost entries that the log reports.
    pub lost: u64,
    /// Whether the first line ever is there. If not, rotation deleted older files.
    pub starts_at_beginning: bool,
}

/// Why a log is not intact, or could not be verified.
#[derive(Debug, Error)]
pub enum VerifyError {
    #[error("{}: {source}", .file.display())]
    Unreadable { file: PathBuf, source: io::Error },
    #[error("{}: this file of the log is missing", .file.display())]
    MissingFile { file: PathBuf },
    #[error("{}, line {line}: {error}", .file.display())]
    Broken { file: PathBuf, line: u64, error: LineError },
    #[error("{}: {mismatch}", .file.display())]
    Key { file: PathBuf, mismatch: KeyMismatch },
    #[error("the last hash is {found}, not {expected}: {}", expected_hash_place(.seen.as_ref()))]
    OtherEnd {
        expected: AuditHash,
        found: AuditHash,
        /// The file and line with the expected hash.
        seen: Option<(PathBuf, u64)>,
    },
}

impl VerifyError {
    /// Returns true if the log could not be checked, so that it may be intact.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::Key { mismatch: KeyMismatch::KeyNeeded { .. }, .. })
    }
}

fn expected_hash_place(seen: Option<&(PathBuf, u64)>) -> String {
    match seen {
        Some((file, line)) => {
            format!("that is {}, line {line}; the lines after it were added since", file.display())
        }
        None => "no line has that hash; the end was cut off, or the whole log was replaced".to_owned(),
    }
}

/// Verifies all files of the log at `path`, and that its last hash is `expect_last` if that is given. With a key the
/// log must have been written with that key.
pub fn verify(
    path: &Path,
    key: Option<&AuditKey>,
    expect_last: Option<AuditHash>,
) -> Result<Verified, VerifyError> {
    let lines = read(path)?;
    let mut verified = Verified {
        files: lines.files(),
        records: 0,
        first_seq: None,
        last_seq: None,
        last_hash: AuditHash::NONE,
        lost: 0,
        starts_at_beginning: true,
    };
    let (mut chain, mut seen) = (None, None);
    for line in lines {
        let line = line?;
        let broken = |error| VerifyError::Broken { file: line.file.clone(), line: line.number, error };
        if verified.records == 0 {
            let checked = KeyMismatch::check(key_id(&line.text).as_deref(), key);
            checked.map_err(|mismatch| VerifyError::Key { file: line.file.clone(), mismatch })?;
        }
        let record = Link::parse(&line.text, key).map_err(broken)?;
        if verified.records == 0 {
            verified.first_seq = Some(record.seq);
            verified.starts_at_beginning = record.is_first();
        }
        chain.get_or_insert(record.before()).advance(&record).map_err(broken)?;
        if Some(record.hash) == expect_last {
            seen = Some((line.file.clone(), line.number));
        }
        verified.records += 1;
        verified.last_seq = Some(record.seq);
        verified.last_hash = record.hash;
        verified.lost += record.lost;
    }
    match expect_last {
        Some(expected) if expected != verified.last_hash => {
            Err(VerifyError::OtherEnd { expected, found: verified.last_hash, seen })
        }
        _ => Ok(verified),
    }
}
