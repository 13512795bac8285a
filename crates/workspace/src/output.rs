//! Messages toward the client: one at a time, each a line.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use wire::{ErrorReply, Id};

/// Where the client reads.
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

    /// A client that reads no more is about to close our input too, which ends everything.
    fn send(&self, line: &[u8]) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let _: io::Result<()> = writer.write_all(line).and_then(|()| writer.flush());
    }

    pub(crate) fn answer(&self, id: &Id, result: &Value) {
        // A value of ours always becomes text.
        self.answer_with(id, |line| drop(serde_json::to_writer(line, result)));
    }

    /// An answer whose result is written by `write`, as JSON.
    pub(crate) fn answer_with(&self, id: &Id, write: impl FnOnce(&mut Vec<u8>)) {
        let mut line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":", id.as_json()).into_bytes();
        write(&mut line);
        line.extend_from_slice(b"}\n");
        self.send(&line);
    }

    pub(crate) fn refuse(&self, id: Option<&Id>, error: &ErrorReply) {
        let mut line = error.to_message(id).to_vec();
        line.push(b'\n');
        self.send(&line);
    }

    pub(crate) fn notify(&self, method: &str, params: &Value) {
        let line = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.send(format!("{line}\n").as_bytes());
    }

    /// News of a call under way.
    pub(crate) fn progress(&self, token: &RawValue, progress: u64, message: &str) {
        let params = json!({ "progressToken": token, "progress": progress, "message": message });
        self.notify(wire::method::PROGRESS, &params);
    }
}
