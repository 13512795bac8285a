//! What happened to a copy, in a bounded file of JSON lines beside its record.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One line of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryLine {
    pub at: Timestamp,
    #[serde(flatten)]
    pub event: Event,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    Created {
        method: crate::Method,
    },
    SetUp {
        command: String,
        exit_code: Option<i32>,
    },
    /// A session of a client works in the copy.
    Attached {
        client: String,
        session: Option<String>,
    },
    Detached {
        client: String,
        session: Option<String>,
    },
    Applied {
        paths: usize,
    },
    /// Commits went to a ref of the main repository.
    Merged {
        commits: usize,
        into: String,
    },
    Undone {
        paths: usize,
    },
    Recovered {
        outcome: String,
    },
    Discarded,
    Restored,
    Note {
        text: String,
    },
}
