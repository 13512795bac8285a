//! A message of the caller on its way to the server, and the bound on their number.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use wire::{Id, Message, MessageError, method};

/// Most messages that wait or are being sent.
const MAX_LINES: usize = 2048;
/// Most bytes of these. A single message may always be sent.
const MAX_BYTES: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) text: Bytes,
    pub(crate) kind: Kind,
    /// It was sent before, and the server had forgotten the session.
    pub(crate) was_resent: bool,
    _held: Held,
}

/// The kinds of messages that the transport distinguishes.
#[derive(Debug)]
pub(crate) enum Kind {
    Initialize(Id),
    Initialized,
    Request(Id),
    Cancellation(Id),
    Notification,
    /// The response to the server's request with this id.
    Response(Id),
}

impl Line {
    pub(crate) fn new(text: &[u8], held: Held) -> Result<Self, MessageError> {
        let text = Bytes::copy_from_slice(text.trim_ascii());
        let kind = match Message::parse(text.clone())? {
            Message::Request(request) if request.method == method::INITIALIZE => Kind::Initialize(request.id),
            Message::Request(request) => Kind::Request(request.id),
            Message::Notification(notification) => match &*notification.method {
                method::INITIALIZED => Kind::Initialized,
                method::CANCELLED => {
                    notification.cancelled_request().map_or(Kind::Notification, Kind::Cancellation)
                }
                _ => Kind::Notification,
            },
            Message::Response(response) => Kind::Response(response.id),
        };
        Ok(Self { text, kind, was_resent: false, _held: held })
    }

    /// The id of a request; `None` for a message that has no answer.
    pub(crate) fn request_id(&self) -> Option<&Id> {
        match &self.kind {
            Kind::Initialize(id) | Kind::Request(id) => Some(id),
            Kind::Initialized | Kind::Cancellation(_) | Kind::Notification | Kind::Response(_) => None,
        }
    }
}

/// The messages that wait or are being sent.
#[derive(Debug, Default)]
pub(crate) struct Load {
    lines: AtomicUsize,
    bytes: AtomicUsize,
}

/// The share of one message in the load; given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    load: Arc<Load>,
    bytes: usize,
}

impl Held {
    /// Returns `None` if the load is full.
    pub(crate) fn take(load: &Arc<Load>, bytes: usize) -> Option<Self> {
        let lines_before = load.lines.fetch_add(1, Ordering::Relaxed);
        let bytes_before = load.bytes.fetch_add(bytes, Ordering::Relaxed);
        // From here on dropping it gives the share back.
        let held = Self { load: Arc::clone(load), bytes };
        let fits = lines_before < MAX_LINES && (bytes_before == 0 || bytes_before + bytes <= MAX_BYTES);
        fits.then_some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.load.lines.fetch_sub(1, Ordering::Relaxed);
        self.load.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_bounded_and_given_back() {
        let load = Arc::new(Load::default());
        let mut held: Vec<Held> = std::iter::from_fn(|| Held::take(&load, 10)).collect();
        assert_eq!(held.len(), MAX_LINES);
        held.pop();
        assert!(Held::take(&load, MAX_BYTES).is_none());
        held.clear();
        let large = Held::take(&load, MAX_BYTES + 1);
        assert!(large.is_some() && Held::take(&load, 1).is_none());
    }
}
