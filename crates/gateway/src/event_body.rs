//! An SSE response body: the messages of a stream, keep-alives while it is quiet, and an early end after which the
//! client comes back for the rest.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use hyper::body::Frame;
use session::{Delivery, Next, StreamReader};
use tokio::time::{Instant, Sleep, sleep};
use wire::sse::{self, EventId};

/// Shorter than the 30 to 60 seconds after which intermediaries close quiet streams.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(crate) struct EventBody {
    /// `None` once the stream is over for this connection.
    reader: Option<StreamReader>,
    ready: VecDeque<Bytes>,
    keep_alive: Pin<Box<Sleep>>,
    park: Option<Pin<Box<Sleep>>>,
    retry_milliseconds: u64,
}

/// When a stream is closed early, and how soon the client may resume it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resumption {
    pub(crate) park_after: Option<Duration>,
    pub(crate) retry: Duration,
}

impl EventBody {
    /// `resumption` is for clients whose protocol revision can resume; they get a priming event.
    pub(crate) fn new(reader: StreamReader, first: Option<Delivery>, resumption: Option<Resumption>) -> Self {
        let retry = resumption.map_or(0, |resumption| resumption.retry.as_millis());
        let retry_milliseconds = u64::try_from(retry).unwrap_or(u64::MAX);
        let mut body = Self {
            ready: VecDeque::new(),
            keep_alive: Box::pin(sleep(KEEP_ALIVE)),
            park: resumption.and_then(|resumption| resumption.park_after).map(|after| Box::pin(sleep(after))),
            retry_milliseconds,
            reader: None,
        };
        let stream = reader.stream_number();
        if resumption.is_some() {
            let position = first.as_ref().map_or(reader.position(), |first| first.sequence - 1);
            body.ready
                .push_back(sse::priming_event(EventId { stream, sequence: position }, retry_milliseconds));
        }
        body.reader = Some(reader);
        if let Some(first) = first {
            body.add(stream, first);
        }
        body
    }

    fn add(&mut self, stream: u64, delivery: Delivery) {
        let id = EventId { stream, sequence: delivery.sequence };
        self.ready.extend(sse::message_event(id, delivery.text));
        if delivery.is_answer {
            self.reader = None;
        }
    }

    /// Polls for something to send. Returns `None` when the body is complete.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<Option<()>> {
        let Some(reader) = &mut self.reader else { return Poll::Ready(None) };
        let stream = reader.stream_number();
        match reader.poll_next(context) {
            Poll::Ready(Next::Message(delivery)) => self.add(stream, delivery),
            Poll::Ready(Next::End | Next::TakenOver) => self.reader = None,
            Poll::Pending if self.is_parking(context) => {
                self.ready.push_back(sse::retry_event(self.retry_milliseconds));
                if let Some(reader) = self.reader.take() {
                    reader.park();
                }
            }
            Poll::Pending => {
                ready!(self.keep_alive.as_mut().poll(context));
                self.ready.push_back(Bytes::from_static(sse::KEEP_ALIVE));
            }
        }
        Poll::Ready(Some(()))
    }

    fn is_parking(&mut self, context: &mut Context<'_>) -> bool {
        self.park.as_mut().is_some_and(|park| park.as_mut().poll(context).is_ready())
    }
}

impl HttpBody for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if ready!(self.poll_more(context)).is_none() {
                return Poll::Ready(None);
            }
        }
    }
}
