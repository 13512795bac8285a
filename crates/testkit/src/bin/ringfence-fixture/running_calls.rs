//! Calls that block: each has a thread and a mailbox through which a cancellation or the client's answer
//! wakes it.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// A client's answer: the raw JSON of `result` or of `error`.
#[derive(Debug, Clone)]
pub(crate) enum ClientAnswer {
    Result(String),
    Error(String),
}

#[derive(Debug)]
pub(crate) enum WakeUp {
    Cancelled,
    Answered(ClientAnswer),
}

/// The client cancelled the call, which therefore ends without a response.
#[derive(Debug)]
pub(crate) struct Cancelled;

/// A call as its own thread sees it.
#[derive(Debug)]
pub(crate) struct BlockingCall {
    pub(crate) arguments: String,
    pub(crate) raw_progress_token: Option<String>,
    pub(crate) mailbox: Receiver<WakeUp>,
    pub(crate) wake: Sender<WakeUp>,
}

impl BlockingCall {
    pub(crate) fn new(arguments: String, raw_progress_token: Option<String>) -> Self {
        let (wake, mailbox) = channel();
        Self { arguments, raw_progress_token, mailbox, wake }
    }

    pub(crate) fn pause(&self, duration: Duration) -> Result<(), Cancelled> {
        let end = Instant::now() + duration;
        loop {
            match self.mailbox.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(WakeUp::Cancelled) => return Err(Cancelled),
                Ok(WakeUp::Answered(_)) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    pub(crate) fn wait_for_answer(&self) -> Result<ClientAnswer, Cancelled> {
        match self.mailbox.recv() {
            Ok(WakeUp::Answered(answer)) => Ok(answer),
            Ok(WakeUp::Cancelled) | Err(_) => Err(Cancelled),
        }
    }
}

/// The running calls by the raw text of their ids, and the cancelled ones.
#[derive(Debug, Default)]
pub(crate) struct RunningCalls {
    running: Mutex<HashMap<String, Sender<WakeUp>>>,
    cancelled: Mutex<Vec<String>>,
}

impl RunningCalls {
    pub(crate) fn begin(&self, raw_id: &str, wake: Sender<WakeUp>) {
        self.running.lock().insert(raw_id.to_owned(), wake);
    }

    pub(crate) fn end(&self, raw_id: &str) {
        self.running.lock().remove(raw_id);
    }

    /// Ignores a call that is not running.
    pub(crate) fn cancel(&self, raw_id: &str) {
        let hit = self.running.lock().remove(raw_id);
        if let Some(wake) = hit {
            self.cancelled.lock().push(raw_id.to_owned());
            // The call may have ended a moment ago.
            drop(wake.send(WakeUp::Cancelled));
        }
    }

    /// The raw ids of all cancelled calls, in the order of their cancellations.
    pub(crate) fn cancelled_ids(&self) -> Vec<String> {
        self.cancelled.lock().clone()
    }
}
