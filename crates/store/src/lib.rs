//! What a gateway must find again after its end. Rows of plain data under hashed keys; what is in them is the business of
//! the crate that writes them.
//!
//! ```text
//! Store::save, Store::note ─► Backlog (newest change per row) ─► writer thread ─► Database (SQLite)
//! ```
//!
//! [`Store::save`] is for what must outlive a power failure before anyone is told of it: its future resolves after an
//! fsync, which all changes of that moment share. [`Store::note`] is for what may be lost with the power, but not with the
//! process. A database that cannot be written degrades the store and nothing else: changes wait, and are tried again.

mod backlog;
mod change;
mod database;
mod directory;
mod error;
mod writer;

use std::path::Path;
use std::sync::Arc;

pub use self::change::{CallRow, Change, EndRow, SessionRow};
use self::database::Database;
pub use self::directory::StoreDirectory;
pub use self::error::StoreError;
pub use self::writer::Usage;
use self::writer::{Shared, Writer};

/// The rows that an earlier gateway has left.
#[derive(Debug, Default)]
pub struct Loaded {
    pub sessions: Vec<SessionRow>,
    /// Calls without an answer, or with one that was not read. Only those of sessions that are there.
    pub calls: Vec<CallRow>,
    pub ends: Vec<EndRow>,
}

/// What this program writes, and the newest that it reads.
pub const SCHEMA_VERSION: i64 = database::SCHEMA_VERSION;

/// Whether changes reach the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    Healthy,
    /// They wait in memory, for this reason.
    Degraded(String),
}

/// The open store of one gateway. No other gateway can open the same one.
#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    writer: Writer,
    /// Locked as long as the store is open.
    directory: StoreDirectory,
}

impl Store {
    /// Whether a gateway has kept something in this directory.
    pub fn is_in(path: &Path) -> bool {
        Database::is_in(path)
    }

    /// Opens the store in a directory, which is made if it is not there. A damaged database is set aside.
    pub fn open(path: &Path) -> Result<(Self, Loaded), StoreError> {
        let directory = StoreDirectory::lock(path)?;
        let (database, loaded) = Database::open(&directory)?;
        let shared = Arc::<Shared>::default();
        let writer = Writer::start(Arc::clone(&shared), database)
            .map_err(|source| StoreError::Directory { path: path.to_owned(), source })?;
        Ok((Self { shared, writer, directory }, loaded))
    }

    /// Writes a change. The future resolves when it is on the disk; or when it is known that it cannot be written now, in
    /// which case it is tried again later.
    pub fn save(&self, change: Change) -> impl Future<Output = ()> + use<> {
        let written = self.shared.add_urgent(change);
        async move {
            if let Some(written) = written {
                // The writer is gone only if the store is closed.
                let _ = written.await;
            }
        }
    }

    /// Writes a change soon.
    pub fn note(&self, change: Change) {
        self.shared.add(change);
    }

    /// The directory of the store, which belongs to this gateway alone as long as the store is open.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn condition(&self) -> Condition {
        self.shared.condition()
    }

    pub fn usage(&self) -> Usage {
        self.shared.usage()
    }

    /// Writes what waits, and ends the writer. Blocks. Later changes are dropped.
    pub fn close(&self) {
        self.writer.close(&self.shared);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
