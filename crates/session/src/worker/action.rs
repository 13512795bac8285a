//! What the worker's machine asks of its driver.

use std::sync::Arc;

use audit::CallOutcome;
use bytes::Bytes;
use identity::Handle;
use upstream::Urgency;
use wire::{ErrorReply, Id, LogLevel, Request, Text};

use super::client_handle::{ClientHandle, WorkerEvent};
use crate::client::{Call, Client, Prefer, ReportedFiles};

/// What the driver must do.
#[derive(Debug)]
pub(crate) enum Action {
    /// Start a generation: launch, greet, report.
    Start {
        generation: u64,
    },
    /// Write a line to the upstream.
    Send(Bytes),
    /// Write a call to the upstream; report back if it does not read.
    SendCall {
        id: u64,
        line: Bytes,
        urgency: Urgency,
    },
    Answer {
        call: Arc<Call>,
        text: Text,
        outcome: CallOutcome,
    },
    Fail {
        call: Arc<Call>,
        error: ErrorReply,
    },
    /// Give a notification to a client.
    Deliver {
        client: Arc<Client>,
        text: Text,
        prefer: Prefer,
    },
    Progress {
        call: Arc<Call>,
        text: Text,
    },
    /// Pass a request of the upstream on to a client.
    AskClient {
        client: Arc<Client>,
        request: Request,
    },
    /// Answer a request of the built-in server about its session, instead of the client.
    AnswerItself {
        client: Arc<Client>,
        request: Request,
    },
    /// Tell a client to forget a request of the upstream.
    WithdrawRequest {
        client: Arc<Client>,
        number: u64,
        notice: Option<Text>,
    },
    /// Tell the session of a client.
    Tell(ClientHandle, WorkerEvent),
    /// Note a subscription in the session's record.
    Subscription {
        client: Arc<Client>,
        uri: String,
        is_on: bool,
    },
    /// Note a log level in the session's record.
    LogLevel {
        client: Arc<Client>,
        level: LogLevel,
    },
    RecordFiles {
        session: Option<Handle>,
        files: ReportedFiles,
    },
    /// Wait until the upstream has processed its roots, then report `settled`.
    Settle {
        generation: u64,
    },
    /// The upstream asked for its roots and was answered.
    RootsAnswered,
    /// The one call that the worker was for is over.
    Retire,
    Note(Note),
}

/// What is counted, and logged now and then.
#[derive(Debug)]
pub(crate) enum Note {
    LateAnswer,
    StrayAnswer(Id),
    DroppedNotification(String),
    UnattributedRequest {
        method: String,
        reason: String,
    },
    RequestIdUsedTwice(Id),
    Died {
        generation: u64,
        lost_calls: usize,
        message: String,
    },
    Contradicted,
    /// An answer says that the fence refused a write; with what to do about it.
    RefusedWrite(String),
}
