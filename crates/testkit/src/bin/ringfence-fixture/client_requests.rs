//! Requests that the server sends to the client, correlated with their answers by id.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use serde_json::Value;

use crate::output::Output;
use crate::running_calls::{ClientAnswer, WakeUp};

/// Ids count up from 1, so they equal ids of the client's own requests. That is allowed: the two directions are
/// separate.
#[derive(Debug, Default)]
pub(crate) struct ClientRequests {
    last_id: AtomicU64,
    waiting: Mutex<HashMap<u64, Sender<WakeUp>>>,
}

impl ClientRequests {
    pub(crate) fn ask(&self, output: &Output, method: &str, params: Option<&Value>, wake: Sender<WakeUp>) {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        self.waiting.lock().insert(id, wake);
        output.send_request(id, method, params);
    }

    /// Hands an answer to the call that asked; answers to unknown ids are dropped.
    pub(crate) fn answer(&self, raw_id: &str, answer: ClientAnswer) {
        let Ok(id) = raw_id.parse() else { return };
        let asker = self.waiting.lock().remove(&id);
        if let Some(wake) = asker {
            // A cancelled call no longer listens.
            drop(wake.send(WakeUp::Answered(answer)));
        }
    }
}
