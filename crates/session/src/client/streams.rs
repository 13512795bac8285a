//! The streams of one session: its own, those of other clients that share it, and those of calls that may be resumed.
//! Pure, apart from the streams themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use identity::Instance;
use wire::Text;

use crate::counters::Counters;
use crate::error::Refusal;
use crate::settings::{ENDED_STREAM_AGE, MAX_ENDED_BYTES, MAX_ENDED_STREAMS};
use crate::stream::{Keep, Stream, first_number};

/// The number of the stream of messages that belong to no call, which a client reads by GET.
pub(crate) const STANDALONE: u64 = 0;

/// Clients beside the one that opened the session that may listen at the same time.
const MAX_OTHERS: usize = 8;

#[derive(Debug)]
pub(crate) struct Streams {
    counters: Arc<Counters>,
    next_number: u64,
    /// For the client that opened the session.
    standalone: Arc<Stream>,
    others: Vec<OtherClient>,
    /// Streams of calls, by number, with the time of their end.
    resumable: BTreeMap<u64, (Arc<Stream>, Option<Instant>)>,
    /// Those of the resumable streams whose answers the store keeps.
    stored: BTreeSet<u64>,
    /// A client has read a standalone stream.
    was_listened_to: bool,
    /// A client has come back to a stream where it had left it.
    was_resumed: bool,
}

/// A client that shares a session which another one opened.
#[derive(Debug)]
struct OtherClient {
    /// How it names itself, if it does.
    instance: Option<Instance>,
    stream: Arc<Stream>,
}

impl Streams {
    pub(crate) fn new(counters: &Arc<Counters>, epoch: u32) -> Self {
        Self {
            counters: Arc::clone(counters),
            next_number: first_number(epoch),
            standalone: Stream::of_epoch(epoch, STANDALONE, false, counters),
            others: Vec::new(),
            resumable: BTreeMap::new(),
            stored: BTreeSet::new(),
            was_listened_to: false,
            was_resumed: false,
        }
    }

    pub(crate) fn was_listened_to(&self) -> bool {
        self.was_listened_to
    }

    /// Whether a client may be expected back: it has come back before, or was told to.
    pub(crate) fn is_resumed(&self) -> bool {
        let others = self.others.iter().map(|other| &other.stream);
        let of_calls = self.resumable.values().map(|(stream, _)| stream);
        let mut all = std::iter::once(&self.standalone).chain(others).chain(of_calls);
        self.was_resumed || all.any(|stream| stream.is_parked())
    }

    /// The stream with this number, for a client that comes back to it.
    pub(crate) fn resume(&mut self, number: u64) -> Option<Arc<Stream>> {
        let stream = self.with_number(number)?;
        self.was_resumed = true;
        Some(stream)
    }

    /// A stream for one call.
    pub(crate) fn for_call(&mut self, answer_only: bool) -> Arc<Stream> {
        let number = self.next_number;
        self.next_number += 1;
        Stream::new(number, answer_only, &self.counters)
    }

    fn with_number(&self, number: u64) -> Option<Arc<Stream>> {
        if number == STANDALONE {
            return Some(Arc::clone(&self.standalone));
        }
        let of_call = self.resumable.get(&number).map(|(stream, _)| stream);
        let mut of_others = self.others.iter().map(|other| &other.stream);
        of_call.or_else(|| of_others.find(|stream| stream.number == number)).cloned()
    }

    pub(crate) fn is_of_a_call(&self, number: u64) -> bool {
        self.resumable.contains_key(&number)
    }

    /// The stream that a listening client reads. The session's own is for the client that opened it (`is_opener`), and
    /// for an unnamed client while no other reads it. Every other client has its own.
    pub(crate) fn listen(
        &mut self,
        client: Option<&Instance>,
        is_opener: bool,
        now: Instant,
    ) -> Result<Arc<Stream>, Refusal> {
        self.was_listened_to = true;
        let is_vacant = client.is_none() && !self.standalone.has_reader(now);
        if is_opener || is_vacant || self.standalone.is_ended() {
            return Ok(Arc::clone(&self.standalone));
        }
        if let Some(other) = self.others.iter().find(|other| other.instance.as_ref() == client) {
            return Ok(Arc::clone(&other.stream));
        }
        if self.others.len() >= MAX_OTHERS {
            let unread = self.others.iter().position(|other| !other.stream.has_reader(now));
            let unread = unread.ok_or(Refusal::TooManyListeners { limit: MAX_OTHERS + 1 })?;
            self.others.remove(unread).stream.end();
        }
        let stream = self.for_call(false);
        self.others.push(OtherClient { instance: client.cloned(), stream: Arc::clone(&stream) });
        Ok(stream)
    }

    /// The first standalone stream that is read.
    fn listened(&self, now: Instant) -> Option<&Arc<Stream>> {
        let others = self.others.iter().map(|other| &other.stream);
        std::iter::once(&self.standalone).chain(others).find(|stream| stream.has_reader(now))
    }

    /// Where a client is most likely to hear what belongs to no call.
    pub(crate) fn standalone(&self, now: Instant) -> Arc<Stream> {
        Arc::clone(self.listened(now).unwrap_or(&self.standalone))
    }

    /// Gives news that belong to no call to all clients, also to those that lost their connection and will come back.
    pub(crate) fn broadcast(&self, text: &Text) {
        for stream in self.others.iter().map(|other| &other.stream).chain([&self.standalone]) {
            stream.push(text.clone(), Keep::IfRoom);
        }
    }

    pub(crate) fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// Keeps the stream of a call for a client that learns its event ids.
    pub(crate) fn make_resumable(&mut self, stream: &Arc<Stream>) {
        self.resumable.insert(stream.number, (Arc::clone(stream), None));
    }

    /// Takes in the stream of a call that an earlier gateway had, with what its client is to hear of it.
    pub(crate) fn take_over(&mut self, epoch: u32, number: u64, answer: Text, now: Instant) {
        let stream = Stream::of_epoch(epoch, number, false, &self.counters);
        stream.answer(answer);
        self.resumable.insert(number, (stream, Some(now)));
        self.stored.insert(number);
    }

    /// Notes that the store keeps the answer of this stream.
    pub(crate) fn note_stored(&mut self, number: u64) {
        self.stored.insert(number);
    }

    /// The streams that are not kept here any more, so that the store need not keep their answers either.
    pub(crate) fn take_forgotten(&mut self) -> Vec<u64> {
        let is_forgotten = |number: &u64| !self.resumable.contains_key(number);
        let forgotten: Vec<u64> = self.stored.iter().copied().filter(is_forgotten).collect();
        for number in &forgotten {
            self.stored.remove(number);
        }
        forgotten
    }

    /// Notes that a call was answered.
    pub(crate) fn call_ended(&mut self, number: u64, now: Instant) {
        if let Some((_, ended)) = self.resumable.get_mut(&number) {
            *ended = Some(now);
            self.forget_old(now);
        }
    }

    pub(crate) fn is_read(&self, now: Instant) -> bool {
        self.listened(now).is_some() || self.resumable.values().any(|(stream, _)| stream.has_reader(now))
    }

    /// Keeps ended streams for a while, as long as they are few and small.
    pub(crate) fn forget_old(&mut self, now: Instant) {
        for (stream, ended) in self.resumable.values_mut() {
            // A call may have been answered just before its stream was made resumable.
            if ended.is_none() && stream.is_ended() {
                *ended = Some(now);
            }
        }
        let is_old = |ended: Option<Instant>| {
            ended.is_some_and(|ended| now.saturating_duration_since(ended) >= ENDED_STREAM_AGE)
        };
        self.resumable.retain(|_, (_, ended)| !is_old(*ended));
        let ended = || self.resumable.values().filter(|(_, ended)| ended.is_some());
        let mut count = ended().count();
        let mut bytes: usize = ended().map(|(stream, _)| stream.kept_bytes()).sum();
        while count > MAX_ENDED_STREAMS || bytes > MAX_ENDED_BYTES {
            let Some((&oldest, _)) = self.resumable.iter().find(|(_, (_, ended))| ended.is_some()) else {
                return;
            };
            if let Some((stream, _)) = self.resumable.remove(&oldest) {
                count -= 1;
                bytes -= stream.kept_bytes();
            }
        }
    }

    /// Lets go of what a client that seems to be gone can do without: of answers that it has not fetched, and of most
    /// news.
    pub(crate) fn shed(&mut self) {
        self.resumable.retain(|_, (stream, ended)| ended.is_none() && !stream.is_ended());
        self.others.shrink_to_fit();
        for stream in self.others.iter().map(|other| &other.stream).chain([&self.standalone]) {
            stream.shed();
        }
    }

    pub(crate) fn end_all(&mut self) {
        for (stream, _) in std::mem::take(&mut self.resumable).into_values() {
            stream.end();
        }
        for other in std::mem::take(&mut self.others) {
            other.stream.end();
        }
        self.standalone.end();
    }
}

#[cfg(test)]
mod tests;
