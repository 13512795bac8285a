//! The database: SQLite with a write-ahead log, opened by one process alone.

mod schema;

use std::path::{Path, PathBuf};

use identity::RecordKey;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, params};

use crate::change::{CallRow, Change, EndRow, SessionRow};
use crate::directory::StoreDirectory;
use crate::{Loaded, StoreError};

pub(crate) use self::schema::VERSION as SCHEMA_VERSION;

const FILE: &str = "sessions.db";

/// Files that belong to the database while it is in use, or after a crash.
const COMPANIONS: &[&str] = &["-wal", "-shm", "-journal"];

/// How many damaged databases are kept for their owner to look at.
const KEPT_DAMAGED: usize = 2;

/// The mode in which a database can be made smaller a piece at a time, as SQLite numbers it.
const INCREMENTAL: i64 = 2;

/// More ends than this are not kept; the oldest go.
const MAX_ENDS: u32 = 1024;

/// The file is made smaller when this many pages of it are free (1 MiB), and a quarter of all.
const MANY_FREE_PAGES: u64 = 256;

/// The log beside the database is cut to this size after its content went into the database.
const LONGEST_LOG: u32 = 4 * 1024 * 1024;

/// What a write must outlive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    OfTheProcess,
    OfTheMachine,
}

#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    /// What the connection is set to.
    durability: Durability,
}

impl Database {
    /// Opens the database and reads it. One that is damaged is set aside, and a new one takes its place.
    pub(crate) fn open(directory: &StoreDirectory) -> Result<(Self, Loaded), StoreError> {
        let path = directory
            .private_file(FILE)
            .map_err(|source| StoreError::Directory { path: directory.path().to_owned(), source })?;
        match Self::open_file(&path) {
            Err(StoreError::Database { source, .. }) if is_damage(&source) => {
                let aside = set_aside(directory, &path)?;
                tracing::error!(
                    "the sessions of the last gateway cannot be read ({source}), so their clients have to start new ones; \
                     the damaged file is now {}",
                    aside.display()
                );
                let path = directory
                    .private_file(FILE)
                    .map_err(|source| StoreError::Directory { path: directory.path().to_owned(), source })?;
                Self::open_file(&path)
            }
            opened => opened,
        }
    }

    pub(crate) fn is_in(directory: &Path) -> bool {
        directory.join(FILE).is_file()
    }

    fn open_file(path: &Path) -> Result<(Self, Loaded), StoreError> {
        let failed = |source| StoreError::Database { path: path.to_owned(), source };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        prepare(&connection).map_err(failed)?;
        match schema::bring_up_to_date(&mut connection).map_err(failed)? {
            schema::Outcome::Current => {}
            schema::Outcome::Newer(found) => {
                return Err(StoreError::Newer { path: path.to_owned(), found, known: schema::VERSION });
            }
        }
        let loaded = load(&connection).map_err(failed)?;
        Ok((Self { connection, durability: Durability::OfTheMachine }, loaded))
    }

    /// Limits the size of the database, like a disk that is full.
    #[cfg(test)]
    pub(crate) fn allow_pages(&self, pages: u32) {
        self.connection.pragma_update(None, "max_page_count", pages).unwrap();
    }

    /// Writes all changes, or none.
    pub(crate) fn write(&mut self, changes: &[Change], durability: Durability) -> rusqlite::Result<()> {
        if self.durability != durability {
            let level = match durability {
                Durability::OfTheProcess => "NORMAL",
                Durability::OfTheMachine => "FULL",
            };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.durability = durability;
        }
        let transaction = self.connection.transaction()?;
        for change in changes {
            apply(&transaction, change)?;
        }
        transaction.commit()
    }

    /// What the rows take on the disk.
    pub(crate) fn used_bytes(&self) -> u64 {
        let used = self.number("page_count").saturating_sub(self.number("freelist_count"));
        used.saturating_mul(self.number("page_size"))
    }

    /// Makes the file smaller if much of it is free.
    pub(crate) fn give_back_space(&self) {
        let free = self.number("freelist_count");
        if free < MANY_FREE_PAGES || free * 4 < self.number("page_count") {
            return;
        }
        let smaller = shrink(&self.connection);
        if let Err(error) = smaller {
            tracing::warn!("the database of sessions cannot be made smaller: {error}");
        }
    }

    /// A figure of the database; 0 if it cannot be read.
    fn number(&self, pragma: &str) -> u64 {
        let read = self.connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0));
        read.ok().and_then(|number| u64::try_from(number).ok()).unwrap_or_default()
    }
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    // Exclusive, so that the log needs no memory shared between processes.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    // Must be said before there are tables; else the database has to be written anew once.
    let shrinks: i64 = connection.query_row("PRAGMA auto_vacuum", [], |row| row.get(0))?;
    if shrinks != INCREMENTAL {
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; VACUUM")?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", LONGEST_LOG)?;
    // What was removed may be secret to its owner.
    connection.pragma_update(None, "secure_delete", "ON")?;
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict == "ok" {
        return Ok(());
    }
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Err(rusqlite::Error::SqliteFailure(code, Some(verdict)))
}

/// Takes the free pages out of the file.
fn shrink(connection: &Connection) -> rusqlite::Result<()> {
    // Each step takes one page.
    let mut statement = connection.prepare("PRAGMA incremental_vacuum")?;
    let mut steps = statement.query([])?;
    while steps.next()?.is_some() {}
    // Only now does what the log says become the size of the file.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

fn apply(transaction: &Transaction<'_>, change: &Change) -> rusqlite::Result<()> {
    let run =
        |sql: &str, values: &[&dyn rusqlite::ToSql]| transaction.prepare(sql)?.execute(values).map(drop);
    match change {
        Change::Session(SessionRow { key, body }) => {
            run("INSERT OR REPLACE INTO sessions (key, body) VALUES (?1, ?2)", params![key.as_bytes(), body])
        }
        Change::Ended { key, end } => {
            run("DELETE FROM sessions WHERE key = ?1", params![key.as_bytes()])?;
            run("DELETE FROM calls WHERE session = ?1", params![key.as_bytes()])?;
            let Some(EndRow { key, until, body }) = end else { return Ok(()) };
            run(
                "INSERT OR REPLACE INTO ends (key, until, body) VALUES (?1, ?2, ?3)",
                params![key.as_bytes(), until, body],
            )?;
            run("DELETE FROM ends WHERE until <= unixepoch()", &[])?;
            run(
                "DELETE FROM ends WHERE key IN (SELECT key FROM ends ORDER BY until DESC LIMIT -1 OFFSET ?1)",
                params![MAX_ENDS],
            )
        }
        Change::Call(CallRow { session, stream, body }) => run(
            "INSERT OR REPLACE INTO calls (session, stream, body) VALUES (?1, ?2, ?3)",
            params![session.as_bytes(), stream.cast_signed(), body],
        ),
        Change::CallOver { session, stream } => run(
            "DELETE FROM calls WHERE session = ?1 AND stream = ?2",
            params![session.as_bytes(), stream.cast_signed()],
        ),
    }
}

/// Reads everything, and removes what is of no use any more.
fn load(connection: &Connection) -> rusqlite::Result<Loaded> {
    connection.execute("DELETE FROM ends WHERE until <= unixepoch()", [])?;
    connection.execute("DELETE FROM calls WHERE session NOT IN (SELECT key FROM sessions)", [])?;
    let sessions = read(connection, "SELECT key, body FROM sessions", |row| {
        Ok(SessionRow { key: key(row)?, body: row.get(1)? })
    })?;
    let calls = read(connection, "SELECT session, stream, body FROM calls", |row| {
        Ok(CallRow { session: key(row)?, stream: row.get::<_, i64>(1)?.cast_unsigned(), body: row.get(2)? })
    })?;
    let ends = read(connection, "SELECT key, until, body FROM ends", |row| {
        Ok(EndRow { key: key(row)?, until: row.get(1)?, body: row.get(2)? })
    })?;
    Ok(Loaded { sessions, calls, ends })
}

fn read<Row>(
    connection: &Connection,
    sql: &str,
    convert: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<Row>,
) -> rusqlite::Result<Vec<Row>> {
    connection.prepare(sql)?.query_map([], convert)?.collect()
}

/// The key in the first column.
fn key(row: &rusqlite::Row<'_>) -> rusqlite::Result<RecordKey> {
    row.get::<_, [u8; 32]>(0).map(RecordKey::from_bytes)
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Renames a damaged database with its companions. Returns its new path.
fn set_aside(directory: &StoreDirectory, path: &Path) -> Result<PathBuf, StoreError> {
    let failed = |source| StoreError::Directory { path: directory.path().to_owned(), source };
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let aside = directory.path().join(format!("{FILE}.damaged-{seconds}"));
    std::fs::rename(path, &aside).map_err(failed)?;
    for companion in COMPANIONS {
        let with = |path: &Path| PathBuf::from(format!("{}{companion}", path.display()));
        // Most of them are not there.
        let _ = std::fs::rename(with(path), with(&aside));
    }
    forget_old_damage(directory.path());
    Ok(aside)
}

fn forget_old_damage(directory: &Path) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_damaged = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("{FILE}.damaged-")))
    };
    let mut damaged: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_damaged).collect();
    // Their names have the time in them.
    damaged.sort();
    let is_companion = |path: &&PathBuf| COMPANIONS.iter().any(|end| path.to_string_lossy().ends_with(end));
    let databases = damaged.iter().filter(|path| !is_companion(path)).count();
    for old in damaged.iter().filter(|path| !is_companion(path)).take(databases.saturating_sub(KEPT_DAMAGED))
    {
        for file in damaged.iter().filter(|file| file.to_string_lossy().starts_with(&*old.to_string_lossy()))
        {
            let _ = std::fs::remove_file(file);
        }
    }
}
