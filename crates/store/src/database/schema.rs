//! The tables, and the steps from each earlier version to this one.

use rusqlite::Connection;

/// What this program writes. It is also the number of migrations.
pub(crate) const VERSION: i64 = 1;

/// `MIGRATIONS[n]` leads from version n to n + 1. What has been released is never changed.
const MIGRATIONS: [&str; 1] = ["
    CREATE TABLE sessions (key BLOB PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE calls (
        session BLOB NOT NULL, stream INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (session, stream)
    ) WITHOUT ROWID;
    CREATE TABLE ends (key BLOB PRIMARY KEY, until INTEGER NOT NULL, body TEXT NOT NULL) WITHOUT ROWID;
"];

pub(crate) enum Outcome {
    Current,
    /// A newer program has written it. Nothing was changed.
    Newer(i64),
}

/// Takes all steps that are missing, in one transaction.
pub(crate) fn bring_up_to_date(connection: &mut Connection) -> rusqlite::Result<Outcome> {
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if found > VERSION {
        return Ok(Outcome::Newer(found));
    }
    let transaction = connection.transaction()?;
    for migration in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(Outcome::Current)
}
