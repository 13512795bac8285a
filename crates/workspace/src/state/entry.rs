//! What an entry of the state files says, as JSON; bytes follow it where there are any.

use serde::{Deserialize, Serialize};

use crate::shell::Outcome;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub(super) enum Entry {
    /// A further server of the session has begun.
    Began {
        servers: u32,
    },
    /// The server was told to end.
    Ending,
    /// The path of a file, so many bytes long, and what was in the file before its first change.
    Original {
        path: usize,
        kind: OriginalKind,
    },
    /// More files were changed than are recorded.
    Incomplete,
    /// A command, with its script.
    Started {
        id: u64,
        at: u64,
        directory: String,
    },
    /// The end of a command's output so far, and the size of all of it.
    Output {
        id: u64,
        total: u64,
    },
    Ended {
        id: u64,
        outcome: Outcome,
        took_ms: u64,
    },
    /// The snapshot from before the first command. Without a tree it was too large.
    Snapshot {
        tree: Option<String>,
    },
    /// An object of the snapshot, as git has compressed it.
    Object {
        name: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OriginalKind {
    Nothing,
    Contents,
    Unkept,
}

/// What an entry is about. A newer entry replaces an older one with the same key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Began,
    Ending,
    Original(u32),
    Incomplete,
    Started(u64),
    Output(u64),
    Ended(u64),
    Snapshot,
    Object(u32),
}
