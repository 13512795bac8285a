//! How far a log has been sent: the last record that the sink acknowledged, kept in `FILE.sink` beside the log.

use std::io::{self, Read as _, Write as _};
use std::path::Path;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::chain::AuditHash;
use crate::files;

/// Longer than any cursor.
const MAX_BYTES: u64 = 1024;

/// The last record that was sent. The hash tells it from the record with the same number of another log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cursor {
    pub(super) seq: u64,
    pub(super) hash: AuditHash,
}

impl Cursor {
    /// Before the first record.
    pub(super) const START: Self = Self { seq: 0, hash: AuditHash::NONE };

    /// Reads the cursor of a log. Starts over if it is missing or damaged: sending twice is better than not at all.
    pub(super) fn load(log: &Path) -> Self {
        let path = files::beside(log, ".sink");
        let read = || -> io::Result<Self> {
            let mut text = Vec::new();
            files::open(&path, OFlags::RDONLY)?.take(MAX_BYTES).read_to_end(&mut text)?;
            Ok(serde_json::from_slice(&text)?)
        };
        match read() {
            Ok(cursor) => cursor,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::START,
            Err(error) => {
                tracing::warn!("{}: {error}; the whole audit log is sent again", path.display());
                Self::START
            }
        }
    }

    /// Replaces the cursor of a log.
    pub(super) fn save(&self, log: &Path) -> io::Result<()> {
        let (path, new) = (files::beside(log, ".sink"), files::beside(log, ".sink.new"));
        let mut file = files::open(&new, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
        file.write_all(format!("{}\n", serde_json::to_string(self)?).as_bytes())?;
        std::fs::rename(new, path)
    }
}
