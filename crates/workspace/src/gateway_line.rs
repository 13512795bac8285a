//! Questions of this server to the gateway that started it, which answers them itself: no client sees them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use thiserror::Error;
use wire::{Outcome, Response};

use crate::output::Output;

/// The gateway answers a change when it is on the disk, which may be busy.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct GatewayLine {
    output: Arc<Output>,
    asked: AtomicU64,
    /// Who waits for which answer. As many as calls run.
    waiting: Mutex<HashMap<u64, Sender<Result<Value, String>>>>,
}

#[derive(Debug, Error)]
pub(crate) enum AskError {
    /// In the gateway's words.
    #[error("{0}")]
    Refused(String),
    #[error("the gateway did not answer within {} seconds", PATIENCE.as_secs())]
    NoAnswer,
}

impl GatewayLine {
    pub(crate) fn new(output: Arc<Output>) -> Self {
        Self { output, asked: AtomicU64::new(0), waiting: Mutex::default() }
    }

    /// Asks with a method of ours. Waits for the answer: not for the thread that reads.
    pub(crate) fn ask(&self, method: &'static str, params: &Value) -> Result<Value, AskError> {
        let id = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, answer) = channel();
        self.waiting.lock().insert(id, sender);
        self.output.ask(id, method, params);
        let answer = answer.recv_timeout(PATIENCE);
        self.waiting.lock().remove(&id);
        answer.map_err(|_| AskError::NoAnswer)?.map_err(AskError::Refused)
    }

    /// Takes an answer. One that is not waited for is dropped.
    pub(crate) fn take(&self, response: &Response) {
        let sender = response.id.as_number().and_then(|id| self.waiting.lock().remove(&id));
        let Some(sender) = sender else { return };
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        let _ = sender.send(match response.outcome() {
            Outcome::Result(text) => Ok(read(text)),
            Outcome::Error(text) => {
                Err(read(text)["message"].as_str().unwrap_or("the gateway gave no reason").to_owned())
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use wire::Message;

    fn response(text: &str) -> Response {
        match Message::parse(text.as_bytes().to_vec().into()) {
            Ok(Message::Response(response)) => response,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_reaches_who_asked_and_others_are_dropped() {
        let line = Arc::new(GatewayLine::new(Arc::new(Output::new(Box::new(std::io::sink())))));
        let asking = {
            let line = Arc::clone(&line);
            std::thread::spawn(move || line.ask(wire::method::SESSION_CONTEXT, &json!({})))
        };
        while line.waiting.lock().is_empty() {
            std::thread::yield_now();
        }
        line.take(&response(r#"{"jsonrpc":"2.0","id":"1","result":{"name":"a string is another id"}}"#));
        line.take(&response(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#));
        line.take(&response(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no; hint: yes"}}"#));
        assert_eq!(asking.join().unwrap().unwrap_err().to_string(), "no; hint: yes");
        assert!(line.waiting.lock().is_empty());
    }
}
