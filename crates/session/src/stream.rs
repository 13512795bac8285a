//! What one client is to receive in order: the messages around one call, or those that belong to none.
//!
//! A stream outlives the connection that reads it. Its [`StreamBuffer`] keeps a bounded number of messages, so that a
//! client that lost its connection can come back for what it missed.

mod buffer;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;
use wire::Text;

pub use self::buffer::Delivery;
use self::buffer::{Claim, Read, StreamBuffer};
pub(crate) use self::buffer::{Keep, first_number};
use crate::counters::Counters;

/// How a call begins to be answered.
#[derive(Debug)]
pub enum First {
    /// Something arrived soon.
    Arrived(Next),
    /// Nothing yet: the client should hear that its call is under way.
    Late,
}

/// What a reader gets next.
#[derive(Debug)]
pub enum Next {
    Message(Delivery),
    /// The stream ended.
    End,
    /// Another connection reads the stream now.
    TakenOver,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) number: u64,
    /// Takes nothing but the answer, because that is sent together with others in one body.
    pub(crate) answer_only: bool,
    counters: Arc<Counters>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    buffer: StreamBuffer,
    /// The connection that waits for a message.
    waker: Option<Waker>,
}

impl State {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Stream {
    pub(crate) fn new(number: u64, answer_only: bool, counters: &Arc<Counters>) -> Arc<Self> {
        Self::of_epoch(0, number, answer_only, counters)
    }

    /// A stream that an earlier gateway may have had under this number.
    pub(crate) fn of_epoch(
        epoch: u32,
        number: u64,
        answer_only: bool,
        counters: &Arc<Counters>,
    ) -> Arc<Self> {
        let state = Mutex::new(State { buffer: StreamBuffer::of_epoch(epoch), waker: None });
        Arc::new(Self { number, answer_only, counters: Arc::clone(counters), state })
    }

    /// Adds a message. Older notifications may have to go for it.
    pub(crate) fn push(&self, text: Text, keep: Keep) {
        self.add(text, keep, false);
    }

    /// Adds the answer and ends the stream.
    pub(crate) fn answer(&self, text: Text) {
        self.add(text, Keep::Always, true);
    }

    fn add(&self, text: Text, keep: Keep, is_answer: bool) {
        let mut state = self.state.lock();
        for _ in 0..state.buffer.push(text, keep, is_answer) {
            self.counters.dropped_notifications.add();
        }
        state.wake();
    }

    /// Ends the stream without an answer.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.buffer.end();
        state.wake();
    }

    /// Tells a reader that still waits for the first message that it takes longer.
    pub(crate) fn run_late(&self) {
        let mut state = self.state.lock();
        if state.buffer.run_late() {
            state.wake();
        }
    }

    /// Lets a connection read: after the message `after`, or the messages that were not handed out yet. A connection
    /// that reads now is told that it was taken over.
    pub(crate) fn attach(self: &Arc<Self>, after: Option<u64>) -> StreamReader {
        let mut state = self.state.lock();
        let (claim, cursor) = state.buffer.attach(after);
        state.wake();
        StreamReader { stream: Arc::clone(self), claim, cursor }
    }

    /// Whether a message put here reaches the client soon.
    pub(crate) fn has_reader(&self, now: Instant) -> bool {
        self.state.lock().buffer.has_reader(now)
    }

    /// Whether a request put here would be seen: it is read, not over, and not for an answer alone.
    pub(crate) fn takes_requests(&self, now: Instant) -> bool {
        let state = self.state.lock();
        !self.answer_only && !state.buffer.is_ended() && state.buffer.has_reader(now)
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().buffer.is_ended()
    }

    /// Whether the client was told to come back and has not.
    pub(crate) fn is_parked(&self) -> bool {
        self.state.lock().buffer.is_parked()
    }

    /// Lets go of what a client that seems to be gone can do without.
    pub(crate) fn shed(&self) {
        for _ in 0..self.state.lock().buffer.shed() {
            self.counters.dropped_notifications.add();
        }
    }

    pub(crate) fn kept_bytes(&self) -> usize {
        self.state.lock().buffer.kept_bytes()
    }
}

/// One connection's hold on a stream.
#[derive(Debug)]
pub struct StreamReader {
    stream: Arc<Stream>,
    claim: Claim,
    /// The last message that this connection was given.
    cursor: u64,
}

impl StreamReader {
    /// The number of the stream, for event ids.
    pub fn stream_number(&self) -> u64 {
        self.stream.number
    }

    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// The last message that was read, for the id of a priming event.
    pub fn position(&self) -> u64 {
        self.cursor
    }

    /// The first message, if it comes soon.
    pub async fn first(&mut self) -> First {
        poll_fn(|context| match self.poll_next(context) {
            Poll::Ready(next) => Poll::Ready(First::Arrived(next)),
            Poll::Pending if self.stream.state.lock().buffer.is_late() => Poll::Ready(First::Late),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    pub async fn next(&mut self) -> Next {
        poll_fn(|context| self.poll_next(context)).await
    }

    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.stream.state.lock();
        match state.buffer.read(self.claim, self.cursor) {
            Read::Message(delivery) => {
                self.cursor = delivery.sequence;
                Poll::Ready(Next::Message(delivery))
            }
            Read::Ended => Poll::Ready(Next::End),
            Read::TakenOver => Poll::Ready(Next::TakenOver),
            Read::Empty => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Leaves the stream for the client to come back to.
    pub fn park(self) {
        self.stream.state.lock().buffer.park(self.claim, Instant::now());
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.stream.state.lock().buffer.detach(self.claim);
    }
}

#[cfg(test)]
mod tests;
