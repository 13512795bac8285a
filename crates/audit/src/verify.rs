//! Whether a log is what was written: every line by its hash, every hash by the line after it.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::chain::{AuditHash, LineError, Link};
use crate::read::read;

/// What an intact log holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub files: usize,
    pub records: u64,
    /// None in a log without a line.
    pub first_seq: Option<u64>,
    pub last_seq: Option<u64>,
    /// Keep it elsewhere: it shows later that nothing before it was cut off or replaced.
    pub last_hash: AuditHash,
    /// Entries that the log itself says it lost.
    pub lost: u64,
    /// Whether the first line ever is there. If not, older files were deleted, as rotation does.
    pub starts_at_beginning: bool,
}

/// Why a log is not intact, or cannot be told to be.
#[derive(Debug, Error)]
pub enum VerifyError {
    #[error("{}: {source}", .file.display())]
    Unreadable { file: PathBuf, source: io::Error },
    #[error("{}: this file of the log is missing", .file.display())]
    MissingFile { file: PathBuf },
    #[error("{}, line {line}: {flaw}", .file.display())]
    Broken { file: PathBuf, line: u64, flaw: LineError },
    #[error("the log ends in {found}, not in {expected}: {}", whereabouts(.seen.as_ref()))]
    OtherEnd {
        expected: AuditHash,
        found: AuditHash,
        /// File and line that have the expected hash.
        seen: Option<(PathBuf, u64)>,
    },
}

impl VerifyError {
    /// Whether nothing can be said about the log because it could not be read.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Unreadable { .. })
    }
}

fn whereabouts(seen: Option<&(PathBuf, u64)>) -> String {
    match seen {
        Some((file, line)) => {
            format!("that is {}, line {line}; what follows was added since", file.display())
        }
        None => "no line has that hash; the end was cut off, or all was written anew".to_owned(),
    }
}

/// Checks all files of the log at `path`, and that it ends in `expect_last` if that is given.
pub fn verify(path: &Path, expect_last: Option<AuditHash>) -> Result<Verified, VerifyError> {
    let lines = read(path)?;
    let mut verified = Verified {
        files: lines.files(),
        records: 0,
        first_seq: None,
        last_seq: None,
        last_hash: AuditHash::NOTHING,
        lost: 0,
        starts_at_beginning: true,
    };
    let (mut chain, mut seen) = (None, None);
    for line in lines {
        let line = line?;
        let broken = |flaw| VerifyError::Broken { file: line.file.clone(), line: line.number, flaw };
        let record = Link::parse(&line.text).map_err(broken)?;
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
