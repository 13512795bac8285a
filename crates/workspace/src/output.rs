//! Writes messages to the client, one per line.

use parking_lot::Mutex;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use wire::{ErrorReply, Id, code};

/// The way to the client. A lock keeps messages from being mixed.
pub(crate) struct Output {
    writer: Mutex<Box<dyn Write + Send>>,
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}

impl Output {
    pub(crate) fn new(writer: Box<dyn Write + Send>) -> Self {
        Self { writer: Mutex::new(writer) }
    }

    /// Ignores write errors: a client that stops reading also closes our input, which ends the server.
    pub(crate) fn send(&self, batch: &Batch) {
        if batch.lines.is_empty() {
            return;
        }
        let mut writer = self.writer.lock();
        let _: io::Result<()> = writer.write_all(&batch.lines).and_then(|()| writer.flush());
    }

    pub(crate) fn answer(&self, id: &Id, result: &Value) {
        let mut batch = Batch::default();
        batch.answer(id, result);
        self.send(&batch);
    }

    pub(crate) fn refuse(&self, id: Option<&Id>, error: &ErrorReply) {
        let mut lines = error.to_message(id).to_vec();
        lines.push(b'\n');
        self.send(&Batch { lines });
    }

    pub(crate) fn notify(&self, method: &str, params: &Value) {
        let mut batch = Batch::default();
        batch.notify(method, params);
        self.send(&batch);
    }

    /// Asks the gateway.
    pub(crate) fn ask(&self, id: u64, method: &str, params: &Value) {
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(&Batch { lines: format!("{line}\n").into_bytes() });
    }

    /// Reports the progress of a running call.
    pub(crate) fn progress(&self, token: &RawValue, progress: u64, message: &str) {
        let params = json!({ "progressToken": token, "progress": progress, "message": message });
        self.notify(wire::method::PROGRESS, &params);
    }
}

/// Messages that are written together, so that the reader wakes up only once.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    lines: Vec<u8>,
}

impl Batch {
    pub(crate) fn answer(&mut self, id: &Id, result: &impl Serialize) {
        // Our own values always serialize.
        self.answer_with(id, |line| drop(serde_json::to_writer(line, result)));
    }

    /// Adds an answer whose result `write` writes as JSON.
    pub(crate) fn answer_with(&mut self, id: &Id, write: impl FnOnce(&mut Vec<u8>)) {
        self.lines.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        self.lines.extend_from_slice(id.as_json().as_bytes());
        self.lines.extend_from_slice(b",\"result\":");
        write(&mut self.lines);
        self.lines.extend_from_slice(b"}\n");
    }

    pub(crate) fn notify(&mut self, method: &str, params: &Value) {
        let line = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.lines.extend_from_slice(format!("{line}\n").as_bytes());
    }
}

/// The error for parameters that cannot be used.
pub(crate) fn invalid_params(reason: &str) -> ErrorReply {
    ErrorReply::new(code::INVALID_PARAMS, reason)
}
