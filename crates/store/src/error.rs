//! Why a store cannot be opened.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the directory for sessions, {}: {source}", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("the directory for sessions, {}, lies on a network file system ({kind})", .path.display())]
    NetworkFileSystem { path: PathBuf, kind: &'static str },
    #[error("other users may use the directory for sessions, {} (mode {mode:o})", .path.display())]
    NotPrivate { path: PathBuf, mode: u32 },
    #[error("another gateway{} keeps its sessions in {}", process(*.pid), .path.display())]
    InUse { path: PathBuf, pid: Option<u32> },
    #[error("the sessions in {} were written by a newer ringfence (format {found}; this one knows {known})", .path.display())]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("the database of sessions, {}: {source}", .path.display())]
    Database { path: PathBuf, source: rusqlite::Error },
}

fn process(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

impl StoreError {
    /// What the user can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Directory { .. } => {
                "name a directory that this user may write with --state-dir, or keep nothing with --ephemeral"
            }
            Self::NetworkFileSystem { .. } => {
                "databases are not safe there: name a local directory with --state-dir, or keep nothing with --ephemeral"
            }
            Self::NotPrivate { .. } => {
                "take their rights away with chmod 700 if it is for sessions alone, or name a directory that is not there yet with --state-dir"
            }
            Self::InUse { .. } => {
                "end the other gateway, or give this one a directory of its own with --state-dir"
            }
            Self::Newer { .. } => {
                "start the newer ringfence, name another directory with --state-dir, or keep nothing with --ephemeral"
            }
            Self::Database { .. } => {
                "check that the disk can be written and is not full, or keep nothing with --ephemeral"
            }
        }
    }
}
