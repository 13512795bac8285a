//! What one client is to receive in order: the messages around one call, or those that belong to none.
//!
//! A stream outlives the connection that reads it. It keeps a bounded number of messages, so that a client
//! that lost its connection can come back for what it missed.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use wire::Text;

use crate::Counters;
use crate::settings::{MAX_STREAM_BYTES, MAX_STREAM_EVENTS, PARKED_FOR};

/// What a full stream may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// A notification: a client can do without.
    IfRoom,
    /// A response or a request: somebody waits for it.
    Always,
}

/// Whether somebody reads the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Absent,
    Reading,
    /// We closed the connection at this time and told the client to come back.
    Parked(Instant),
}

/// A message with its place in the stream, counted from 1.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub sequence: u64,
    pub text: Text,
    /// The answer to the call that opened the stream; nothing follows.
    pub is_answer: bool,
}

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

struct Kept {
    delivery: Delivery,
    keep: Keep,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) number: u64,
    /// Only the answer goes here, because it is answered together with others in one body.
    pub(crate) answer_only: bool,
    counters: Arc<Counters>,
    state: Mutex<State>,
}

struct State {
    events: VecDeque<Kept>,
    bytes: usize,
    next_sequence: u64,
    /// Everything up to here was handed to a connection.
    delivered: u64,
    ended: bool,
    /// Nothing arrived soon.
    is_late: bool,
    presence: Presence,
    /// The connection that may read; a newer one takes over.
    reader: u64,
    waker: Option<Waker>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("events", &self.events.len())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Stream {
    pub(crate) fn new(number: u64, answer_only: bool, counters: &Arc<Counters>) -> Arc<Self> {
        let state = State {
            events: VecDeque::new(),
            bytes: 0,
            next_sequence: 1,
            delivered: 0,
            ended: false,
            is_late: false,
            presence: Presence::Absent,
            reader: 0,
            waker: None,
        };
        Arc::new(Self { number, answer_only, counters: Arc::clone(counters), state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Adds a message. Older notifications may have to go for it.
    pub(crate) fn push(&self, text: Text, keep: Keep) {
        self.add(text, keep, false);
    }

    /// Adds the answer and ends the stream.
    pub(crate) fn answer(&self, text: Text) {
        self.add(text, Keep::Always, true);
    }

    /// Ends the stream without an answer.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.wake();
    }

    fn add(&self, text: Text, keep: Keep, is_answer: bool) {
        let mut state = self.lock();
        if state.ended {
            return;
        }
        let sequence = state.next_sequence;
        state.next_sequence += 1;
        state.bytes += text.len();
        state.events.push_back(Kept { delivery: Delivery { sequence, text, is_answer }, keep });
        state.ended = is_answer;
        for _ in 0..state.make_room() {
            self.counters.dropped_notifications.add();
        }
        state.wake();
    }

    /// Tells a reader that still waits for the first message that it takes longer.
    pub(crate) fn run_late(&self) {
        let mut state = self.lock();
        if !state.is_late {
            state.is_late = true;
            state.wake();
        }
    }

    /// Lets a connection read: after the message `after`, or whatever was not yet handed out. A connection
    /// that reads now is told that it was taken over.
    pub(crate) fn attach(self: &Arc<Self>, after: Option<u64>) -> StreamReader {
        let mut state = self.lock();
        state.reader += 1;
        state.presence = Presence::Reading;
        state.wake();
        StreamReader {
            cursor: after.unwrap_or(state.delivered),
            reader: state.reader,
            stream: Arc::clone(self),
        }
    }

    /// Whether a message put here reaches the client soon.
    pub(crate) fn has_reader(&self) -> bool {
        match self.lock().presence {
            Presence::Absent => false,
            Presence::Reading => true,
            Presence::Parked(since) => since.elapsed() < PARKED_FOR,
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.lock().ended
    }

    pub(crate) fn kept_bytes(&self) -> usize {
        self.lock().bytes
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Forgets what was delivered first, then notifications that nobody came for; says how many of those.
    fn make_room(&mut self) -> usize {
        let mut dropped = 0;
        while self.events.len() > MAX_STREAM_EVENTS || self.bytes > MAX_STREAM_BYTES {
            let delivered = self.delivered;
            let is_delivered = |kept: &Kept| kept.delivery.sequence <= delivered;
            let victim = if self.events.front().is_some_and(is_delivered) {
                0
            } else if let Some(found) = self.events.iter().position(|kept| kept.keep == Keep::IfRoom) {
                dropped += 1;
                found
            } else {
                break;
            };
            if let Some(kept) = self.events.remove(victim) {
                self.bytes -= kept.delivery.text.len();
            }
        }
        dropped
    }
}

/// One connection's hold on a stream.
#[derive(Debug)]
pub struct StreamReader {
    stream: Arc<Stream>,
    reader: u64,
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
            Poll::Pending if self.stream.lock().is_late => Poll::Ready(First::Late),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    pub async fn next(&mut self) -> Next {
        poll_fn(|context| self.poll_next(context)).await
    }

    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.stream.lock();
        if state.reader != self.reader {
            return Poll::Ready(Next::TakenOver);
        }
        let at = state.events.partition_point(|kept| kept.delivery.sequence <= self.cursor);
        if let Some(kept) = state.events.get(at) {
            let delivery = kept.delivery.clone();
            self.cursor = delivery.sequence;
            state.delivered = state.delivered.max(delivery.sequence);
            return Poll::Ready(Next::Message(delivery));
        }
        if state.ended {
            return Poll::Ready(Next::End);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Leaves the stream for the client to come back to.
    pub fn park(self) {
        let mut state = self.stream.lock();
        if state.reader == self.reader {
            state.presence = Presence::Parked(Instant::now());
        }
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let mut state = self.stream.lock();
        if state.reader == self.reader && state.presence == Presence::Reading {
            state.presence = Presence::Absent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(content: &str) -> Text {
        bytes::Bytes::copy_from_slice(content.as_bytes()).into()
    }

    fn read_all(reader: &mut StreamReader) -> Vec<String> {
        let mut context = Context::from_waker(Waker::noop());
        let mut out = Vec::new();
        while let Poll::Ready(Next::Message(delivery)) = reader.poll_next(&mut context) {
            out.push(String::from_utf8(delivery.text.into_bytes().to_vec()).unwrap());
        }
        out
    }

    #[test]
    fn a_client_that_comes_back_gets_what_it_missed_and_nothing_twice() {
        let stream = Stream::new(1, false, &Arc::default());
        let mut first = stream.attach(None);
        stream.push(text("a"), Keep::IfRoom);
        stream.push(text("b"), Keep::IfRoom);
        assert_eq!(read_all(&mut first), ["a", "b"]);
        drop(first);
        stream.answer(text("c"));
        assert_eq!(read_all(&mut stream.attach(Some(1))), ["b", "c"], "resumed after the first message");
        assert!(read_all(&mut stream.attach(None)).is_empty(), "all of it was delivered by now");
    }

    #[test]
    fn a_newer_connection_takes_over_and_the_older_cannot_disturb_it() {
        let stream = Stream::new(1, false, &Arc::default());
        let mut old = stream.attach(None);
        let mut new = stream.attach(None);
        stream.push(text("a"), Keep::IfRoom);
        assert!(matches!(
            old.poll_next(&mut Context::from_waker(Waker::noop())),
            Poll::Ready(Next::TakenOver)
        ));
        drop(old);
        assert!(stream.has_reader());
        assert_eq!(read_all(&mut new), ["a"]);
    }

    #[test]
    fn a_full_stream_loses_notifications_and_never_the_answer() {
        let stream = Stream::new(1, false, &Arc::default());
        stream.push(text("request"), Keep::Always);
        for number in 0..MAX_STREAM_EVENTS * 4 {
            stream.push(text(&number.to_string()), Keep::IfRoom);
        }
        stream.push(text(&"x".repeat(MAX_STREAM_BYTES)), Keep::Always);
        stream.answer(text("answer"));
        let seen = read_all(&mut stream.attach(None));
        assert_eq!(seen.first().unwrap(), "request");
        assert_eq!(seen.last().unwrap(), "answer");
        assert_eq!(
            usize::try_from(stream.counters.dropped_notifications.get()).unwrap(),
            MAX_STREAM_EVENTS * 4 + 3 - seen.len()
        );
    }

    #[test]
    fn nothing_follows_the_answer() {
        let stream = Stream::new(1, false, &Arc::default());
        stream.answer(text("answer"));
        stream.push(text("late"), Keep::Always);
        assert_eq!(read_all(&mut stream.attach(None)), ["answer"]);
    }

    #[test]
    fn a_parked_stream_still_counts_as_read() {
        let stream = Stream::new(1, false, &Arc::default());
        let reader = stream.attach(None);
        reader.park();
        assert!(stream.has_reader());
        drop(stream.attach(None));
        assert!(!stream.has_reader());
    }
}
