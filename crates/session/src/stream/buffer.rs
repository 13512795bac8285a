//! The messages of one stream: a bounded buffer that a client can read again from any event it still remembers.
//! Pure: no locks, no wakers, time passed in.

use std::collections::VecDeque;
use std::time::Instant;

use wire::Text;

use crate::settings::{MAX_DESERTED_BYTES, MAX_STREAM_BYTES, MAX_STREAM_EVENTS, PARKED_FOR};

/// Whether a full buffer may drop the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// A notification: the client can do without.
    IfRoom,
    /// A response or a request: the other side waits for it.
    Always,
}

/// A message with its place in the stream, counted from 1; by a later gateway, from beyond what an earlier one counted.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub sequence: u64,
    pub text: Text,
    /// The answer to the call that opened the stream; nothing follows.
    pub is_answer: bool,
}

/// Whether a connection reads the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Absent,
    Reading,
    /// The gateway closed the connection at this time and told the client to come back.
    Parked(Instant),
}

/// What a connection finds when it reads.
#[derive(Debug)]
pub(crate) enum Read {
    Message(Delivery),
    /// Nothing yet.
    Empty,
    Ended,
    /// A newer connection reads the stream now.
    TakenOver,
}

struct Kept {
    delivery: Delivery,
    keep: Keep,
}

/// One connection's claim on a stream; a newer claim ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim(u64);

pub(crate) struct StreamBuffer {
    events: VecDeque<Kept>,
    bytes: usize,
    next_sequence: u64,
    /// Everything up to here was handed to a connection.
    delivered: u64,
    ended: bool,
    /// The 100 ms in which the first message may be answered as plain JSON are over.
    is_late: bool,
    presence: Presence,
    claim: Claim,
}

impl std::fmt::Debug for StreamBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamBuffer")
            .field("events", &self.events.len())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// What the gateways before the one of this epoch have not counted up to, in streams, in their events, and in requests
/// toward the client. No gateway counts beyond it, and JavaScript counts that far exactly.
pub(crate) fn first_number(epoch: u32) -> u64 {
    u64::from(epoch) << 32 | 1
}

impl StreamBuffer {
    /// A buffer whose events are counted on from those of earlier gateways.
    pub(crate) fn of_epoch(epoch: u32) -> Self {
        let first = first_number(epoch);
        Self {
            events: VecDeque::new(),
            bytes: 0,
            next_sequence: first,
            delivered: first - 1,
            ended: false,
            is_late: false,
            presence: Presence::Absent,
            claim: Claim(0),
        }
    }

    /// Adds a message; an answer ends the stream. Returns how many undelivered notifications were dropped for it.
    pub(crate) fn push(&mut self, text: Text, keep: Keep, is_answer: bool) -> usize {
        if self.ended {
            return 0;
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.bytes += text.len();
        self.events.push_back(Kept { delivery: Delivery { sequence, text, is_answer }, keep });
        self.ended = is_answer;
        self.make_room()
    }

    /// Ends the stream without an answer.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Notes that the first message takes long. Returns false if that was known.
    pub(crate) fn run_late(&mut self) -> bool {
        !std::mem::replace(&mut self.is_late, true)
    }

    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }

    /// Lets a connection read after the message `after`, or from the first message that was not handed out yet.
    /// Returns its claim and the position it reads from.
    pub(crate) fn attach(&mut self, after: Option<u64>) -> (Claim, u64) {
        self.claim = Claim(self.claim.0 + 1);
        self.presence = Presence::Reading;
        (self.claim, after.unwrap_or(self.delivered))
    }

    /// The next message after `position`.
    pub(crate) fn read(&mut self, claim: Claim, position: u64) -> Read {
        if self.claim != claim {
            return Read::TakenOver;
        }
        let at = self.events.partition_point(|kept| kept.delivery.sequence <= position);
        match self.events.get(at) {
            Some(kept) => {
                self.delivered = self.delivered.max(kept.delivery.sequence);
                Read::Message(kept.delivery.clone())
            }
            None if self.ended => Read::Ended,
            None => Read::Empty,
        }
    }

    /// The connection closed on purpose; its client was told to come back.
    pub(crate) fn park(&mut self, claim: Claim, now: Instant) {
        if self.claim == claim {
            self.presence = Presence::Parked(now);
        }
    }

    /// The connection is gone.
    pub(crate) fn detach(&mut self, claim: Claim) {
        if self.claim == claim && self.presence == Presence::Reading {
            self.presence = Presence::Absent;
        }
    }

    /// Whether a message put here reaches the client soon.
    pub(crate) fn has_reader(&self, now: Instant) -> bool {
        match self.presence {
            Presence::Absent => false,
            Presence::Reading => true,
            Presence::Parked(since) => now.saturating_duration_since(since) < PARKED_FOR,
        }
    }

    /// Whether the client was told to come back and has not.
    pub(crate) fn is_parked(&self) -> bool {
        matches!(self.presence, Presence::Parked(_))
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn kept_bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps no more than the newest messages that a client which seems to be gone has not had yet. Returns how many of
    /// those were dropped.
    pub(crate) fn shed(&mut self) -> usize {
        let (delivered, bytes_before) = (self.delivered, self.bytes);
        self.events.retain(|kept| kept.delivery.sequence > delivered);
        let undelivered = self.events.len();
        self.bytes = self.events.iter().map(|kept| kept.delivery.text.len()).sum();
        while self.bytes > MAX_DESERTED_BYTES
            && let Some(kept) = self.events.pop_front()
        {
            self.bytes -= kept.delivery.text.len();
        }
        if self.bytes < bytes_before {
            self.events.shrink_to_fit();
        }
        for kept in &mut self.events {
            kept.delivery.text = kept.delivery.text.copied();
        }
        undelivered - self.events.len()
    }

    /// Forgets delivered messages first, then undelivered notifications; counts the latter.
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

#[cfg(test)]
mod tests;
