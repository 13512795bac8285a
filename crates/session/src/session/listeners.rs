//! Who hears what belongs to no call, and where everything else is put. Several clients may share a session: each that
//! listens hears of changes, and a question goes to one of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wire::Text;
use wire::sse::EventId;

use super::{Prefer, STANDALONE, Session};
use crate::call::Call;
use crate::stream::{Keep, Stream, StreamReader};
use crate::worker::Worker;
use crate::{Instance, Refusal};

/// Clients beside the one that opened the session that may listen at the same time.
const MAX_OTHERS: usize = 8;

/// A client that shares a session which another one opened.
#[derive(Debug)]
pub(super) struct Other {
    /// How it names itself, if it does.
    client: Option<Instance>,
    stream: Arc<Stream>,
}

impl Session {
    /// Opens the stream of messages that belong to no call, or resumes any stream after an event.
    pub fn listen(&self, client: Option<&Instance>, after: Option<EventId>) -> Result<StreamReader, Refusal> {
        self.touch();
        if let Some(event) = after.filter(|event| event.stream != STANDALONE) {
            let stream = self.stream_with_number(event.stream).ok_or(Refusal::UnknownEvent)?;
            return Ok(stream.attach(Some(event.sequence)));
        }
        let reader = match after {
            Some(event) => self.standalone.attach(Some(event.sequence)),
            None => self.stream_for(client)?.attach(None),
        };
        if self.route().is_none() {
            self.request_roots();
        }
        Ok(reader)
    }

    fn stream_with_number(&self, number: u64) -> Option<Arc<Stream>> {
        let state = self.lock();
        let of_call = state.resumable.get(&number).map(|(stream, _)| stream);
        let mut of_others = state.others.iter().map(|other| &other.stream);
        of_call.or_else(|| of_others.find(|stream| stream.number == number)).cloned()
    }

    /// Whether a stream with this number is that of a call.
    pub fn is_of_a_call(&self, number: u64) -> bool {
        self.lock().resumable.contains_key(&number)
    }

    /// The session's own stream is for the client that opened it, and for one that names nobody while that one does
    /// not listen. Every other client has its own.
    fn stream_for(&self, client: Option<&Instance>) -> Result<Arc<Stream>, Refusal> {
        let is_opener = client == Some(&self.instance) || client.is_none() && !self.is_named;
        let is_vacant = client.is_none() && !self.standalone.has_reader();
        let mut state = self.lock();
        if is_opener || is_vacant || state.ended.is_some() {
            return Ok(Arc::clone(&self.standalone));
        }
        if let Some(other) = state.others.iter().find(|other| other.client.as_ref() == client) {
            return Ok(Arc::clone(&other.stream));
        }
        if state.others.len() >= MAX_OTHERS {
            let unread = state.others.iter().position(|other| !other.stream.has_reader());
            let unread = unread.ok_or(Refusal::TooManyListeners { limit: MAX_OTHERS + 1 })?;
            state.others.remove(unread).stream.end();
        }
        let number = self.next_stream.fetch_add(1, Ordering::Relaxed);
        let stream = Stream::new(number, false, &self.context.counters);
        state.others.push(Other { client: client.cloned(), stream: Arc::clone(&stream) });
        Ok(stream)
    }

    /// The first that somebody reads.
    fn listened(&self) -> Option<Arc<Stream>> {
        let state = self.lock();
        let mut all = std::iter::once(&self.standalone).chain(state.others.iter().map(|other| &other.stream));
        all.find(|stream| stream.has_reader()).cloned()
    }

    pub(super) fn is_listened_to(&self) -> bool {
        self.listened().is_some()
    }

    /// Where a client is most likely to hear what belongs to no call.
    pub(crate) fn standalone(&self) -> Arc<Stream> {
        self.listened().unwrap_or_else(|| Arc::clone(&self.standalone))
    }

    pub(super) fn end_listening(&self) {
        let others = std::mem::take(&mut self.lock().others);
        for other in others {
            other.stream.end();
        }
        self.standalone.end();
    }

    /// Puts a message where the client will see it soonest. News of no call go to all clients, also to those that have
    /// lost their connection and will come back.
    pub(crate) fn deliver(&self, text: Text, keep: Keep, prefer: Prefer) {
        let is_news = (prefer, keep) == (Prefer::Standalone, Keep::IfRoom);
        let state = self.lock();
        if state.others.is_empty() || !is_news {
            drop(state);
            return self.choose_stream(prefer).push(text, keep);
        }
        for stream in state.others.iter().map(|other| &other.stream).chain([&self.standalone]) {
            stream.push(text.clone(), keep);
        }
    }

    pub(crate) fn deliver_progress(&self, call: &Call, text: Text) {
        if call.stream.answer_only {
            self.standalone().push(text, Keep::IfRoom);
        } else {
            call.stream.push(text, Keep::IfRoom);
        }
    }

    /// Where a question of a worker is seen soonest: on a call that it works on, if one is read.
    pub(crate) fn stream_of(&self, worker: &Arc<Worker>) -> Arc<Stream> {
        let is_its = |call: &Call| call.worker().is_some_and(|own| Arc::ptr_eq(own, worker));
        self.newest_call(is_its).unwrap_or_else(|| self.choose_stream(Prefer::Call))
    }

    pub(crate) fn choose_stream(&self, prefer: Prefer) -> Arc<Stream> {
        let any = |_: &Call| true;
        match prefer {
            Prefer::Call => self.newest_call(any).unwrap_or_else(|| self.standalone()),
            Prefer::Standalone => {
                let standalone = self.standalone();
                let has_reader = standalone.has_reader();
                self.newest_call(any).filter(|_| !has_reader).unwrap_or(standalone)
            }
        }
    }

    /// The newest stream of such a call that somebody reads.
    fn newest_call(&self, is_meant: impl Fn(&Call) -> bool) -> Option<Arc<Stream>> {
        let state = self.lock();
        let streams = state.calls.values().filter(|call| is_meant(call)).map(|call| &call.stream);
        let read = streams.filter(|stream| !stream.answer_only && stream.has_reader());
        read.max_by_key(|stream| stream.number).cloned()
    }
}
