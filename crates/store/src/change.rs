//! The rows of the store, and what can happen to them.

use identity::RecordKey;

/// What is kept of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    pub key: RecordKey,
    pub body: String,
}

/// A call whose client may come back for its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRow {
    pub session: RecordKey,
    /// The stream that the answer belongs to; unique in its session.
    pub stream: u64,
    pub body: String,
}

/// A session that is over, and what its client is to hear of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndRow {
    pub key: RecordKey,
    /// Seconds since 1970 after which it is forgotten.
    pub until: i64,
    pub body: String,
}

/// One change of the store. The newest change of a row counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Session(SessionRow),
    /// The session is over, with its calls.
    Ended {
        key: RecordKey,
        end: Option<EndRow>,
    },
    Call(CallRow),
    /// The client has its answer.
    CallOver {
        session: RecordKey,
        stream: u64,
    },
}

/// What a change replaces: the session itself, or one of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Slot {
    session: RecordKey,
    stream: Option<u64>,
}

impl Change {
    pub(crate) fn slot(&self) -> Slot {
        match self {
            Self::Session(SessionRow { key, .. }) | Self::Ended { key, .. } => {
                Slot { session: *key, stream: None }
            }
            Self::Call(CallRow { session, stream, .. }) | Self::CallOver { session, stream } => {
                Slot { session: *session, stream: Some(*stream) }
            }
        }
    }
}
