//! One message on its way to the server, and the bound on how many there may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use wire::{Id, Malformed, Message};

/// Most messages that wait or are under way.
const MAX_LINES: usize = 2048;
/// Most bytes that those hold; a single message may always go.
const MAX_BYTES: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) text: Bytes,
    pub(crate) kind: Kind,
    /// The server forgot the session once already when this was sent.
    pub(crate) was_resent: bool,
    _held: Held,
}

/// What the rules of the transport need to know of a message.
#[derive(Debug)]
pub(crate) enum Kind {
    Initialize(Id),
    Initialized,
    Request(Id),
    Cancellation(Id),
    Notification,
    /// To the request of the server with this id.
    Response(Id),
}

impl Line {
    pub(crate) fn new(text: &[u8], held: Held) -> Result<Self, Malformed> {
        let text = Bytes::copy_from_slice(text.trim_ascii());
        let kind = match Message::parse(text.clone())? {
            Message::Request(request) if request.method == "initialize" => Kind::Initialize(request.id),
            Message::Request(request) => Kind::Request(request.id),
            Message::Notification(notification) => match &*notification.method {
                "notifications/initialized" => Kind::Initialized,
                "notifications/cancelled" => {
                    notification.cancelled_request().map_or(Kind::Notification, Kind::Cancellation)
                }
                _ => Kind::Notification,
            },
            Message::Response(response) => Kind::Response(response.id),
        };
        Ok(Self { text, kind, was_resent: false, _held: held })
    }

    /// The id under which an answer is expected.
    pub(crate) fn request_id(&self) -> Option<&Id> {
        match &self.kind {
            Kind::Initialize(id) | Kind::Request(id) => Some(id),
            Kind::Initialized | Kind::Cancellation(_) | Kind::Notification | Kind::Response(_) => None,
        }
    }
}

/// How much waits or is under way.
#[derive(Debug, Default)]
pub(crate) struct Load {
    lines: AtomicUsize,
    bytes: AtomicUsize,
}

/// The place of one message in the load; given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    load: Arc<Load>,
    bytes: usize,
}

impl Held {
    /// `None`: there is too much already.
    pub(crate) fn take(load: &Arc<Load>, bytes: usize) -> Option<Self> {
        let lines_before = load.lines.fetch_add(1, Ordering::Relaxed);
        let bytes_before = load.bytes.fetch_add(bytes, Ordering::Relaxed);
        // From here on the place is given back whatever happens.
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
