//! Work for an upstream, and the queue where it waits until the upstream is up.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::oneshot;
use upstream::{MAX_OUTBOX_BYTES, StartError};
use wire::{InitializeResult, Request, Response};

use crate::client::Call;
use crate::settings::MAX_WAITING;

/// What is done as soon as the upstream is up.
#[derive(Debug)]
pub(crate) enum Work {
    Call(Arc<Call>, Box<Request>),
    Ready(oneshot::Sender<Result<Arc<InitializeResult>, StartError>>),
    /// A request of the gateway itself.
    Ask(Box<Question>),
}

#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) method: &'static str,
    pub(crate) params: Value,
    pub(crate) answer: oneshot::Sender<Result<Response, StartError>>,
}

/// Work that waits for the upstream, bounded in number and bytes.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) items: Vec<Work>,
    pub(super) bytes: usize,
}

impl Queue {
    /// Lets work wait, unless too much waits already.
    pub(super) fn add(&mut self, work: Work) -> Result<(), Work> {
        let bytes = self.bytes + work.size();
        if self.items.len() >= MAX_WAITING || bytes > MAX_OUTBOX_BYTES {
            return Err(work);
        }
        self.bytes = bytes;
        self.items.push(work);
        Ok(())
    }
}

impl Work {
    fn size(&self) -> usize {
        match self {
            Self::Call(_, request) => request.size(),
            Self::Ready(_) | Self::Ask(_) => 0,
        }
    }
}
