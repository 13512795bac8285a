//! What a client's conversation consists of at the moment: calls, streams, unanswered requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::{Id, Text};

use super::Prefer;
use super::call::Call;
use super::restored::Restored;
use super::server_requests::ServerRequests;
use super::streams::Streams;
use crate::counters::Counters;
use crate::record::{EndReason, SessionEnd};
use crate::settings::{LONGER_GRACE, Settings};
use crate::stream::Stream;
use crate::worker_id::WorkerId;

/// How often the store is told that a session was used.
const NOTE_USE_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct State {
    pub(super) calls: HashMap<Id, Arc<Call>>,
    pub(super) streams: Streams,
    pub(super) server_requests: ServerRequests,
    pub(super) is_initialized: bool,
    pub(super) last_used: Instant,
    /// When the memory of a client that seemed to be gone was let go of.
    shed: Option<Instant>,
    /// The last use that the store was told of.
    noted_use: Instant,
    pub(super) end: Option<SessionEnd>,
    /// What the client is to be told with its next result: that its session was restored.
    pub(super) restored: Option<Restored>,
}

impl State {
    pub(super) fn new(counters: &Arc<Counters>, epoch: u32, now: Instant) -> Self {
        Self {
            calls: HashMap::new(),
            streams: Streams::new(counters, epoch),
            server_requests: ServerRequests::new(epoch),
            is_initialized: false,
            last_used: now,
            shed: None,
            noted_use: now,
            end: None,
            restored: None,
        }
    }

    pub(super) fn is_open(&self, call: &Arc<Call>) -> bool {
        self.calls.get(&call.client_id).is_some_and(|open| Arc::ptr_eq(open, call))
    }

    /// Where a request of a worker is seen soonest: on a call that it works on, if one is read.
    pub(super) fn stream_of(&self, worker: WorkerId) -> Arc<Stream> {
        let is_its = |call: &Call| call.assignment().is_some_and(|own| own.worker == worker);
        self.newest_call(is_its).unwrap_or_else(|| self.choose_stream(Prefer::Call))
    }

    pub(super) fn choose_stream(&self, prefer: Prefer) -> Arc<Stream> {
        let now = Instant::now();
        let standalone = self.streams.standalone(now);
        if prefer == Prefer::Standalone && standalone.has_reader(now) {
            return standalone;
        }
        self.newest_call(|_| true).unwrap_or(standalone)
    }

    /// The stream of the newest such call that is read.
    fn newest_call(&self, is_meant: impl Fn(&Call) -> bool) -> Option<Arc<Stream>> {
        let now = Instant::now();
        let streams = self.calls.values().filter(|call| is_meant(call)).map(|call| &call.stream);
        let read = streams.filter(|stream| !stream.answer_only && stream.has_reader(now));
        read.max_by_key(|stream| stream.number).cloned()
    }

    /// Whether the client seems to be gone: no call of it runs, it reads nothing, and it has not been heard of for the
    /// grace that it is given. One that never listened cannot be told from one that is gone, and one that resumes
    /// streams means to come back: both are waited for longer.
    pub(super) fn is_deserted(&self, now: Instant, settings: &Settings) -> bool {
        let is_soon = self.streams.was_listened_to() && !self.streams.is_resumed();
        let grace = settings.client_grace * if is_soon { 1 } else { LONGER_GRACE };
        // On stdio, a client that is gone closes its end.
        settings.has_many_streams
            && self.calls.is_empty()
            && !self.streams.is_read(now)
            && now.saturating_duration_since(self.last_used) >= grace
    }

    /// Lets go of what a client that seems to be gone can do without. Returns false if that was done before, or the
    /// client is there again.
    pub(super) fn shed(&mut self, now: Instant, settings: &Settings) -> bool {
        let is_done = self.shed.is_some_and(|shed| shed >= self.last_used);
        if is_done || !self.is_deserted(now, settings) {
            return false;
        }
        self.shed = Some(now);
        self.streams.shed();
        self.calls.shrink_to_fit();
        self.server_requests.shrink();
        true
    }

    /// An answer of a call, with the note that the session was restored if the client has not heard of that.
    pub(super) fn with_restored_note(&mut self, answer: Text) -> Text {
        let Some(noted) = self.restored.as_ref().and_then(|restored| restored.note_in(&answer)) else {
            return answer;
        };
        self.restored = None;
        noted
    }

    /// Whether the client was there since this was last asked; at most once in a while.
    pub(super) fn take_use_news(&mut self) -> bool {
        let is_news = self.last_used.saturating_duration_since(self.noted_use) >= NOTE_USE_EVERY;
        if is_news {
            self.noted_use = self.last_used;
        }
        is_news
    }

    /// Why the session must end now, if it must.
    pub(super) fn overdue_end(
        &mut self,
        now: Instant,
        opened: Instant,
        settings: &Settings,
    ) -> Option<EndReason> {
        if let Some(end) = &self.end {
            return Some(end.reason);
        }
        self.streams.forget_old(now);
        if !self.calls.is_empty() || self.streams.is_read(now) {
            self.last_used = now;
        }
        let age = now.saturating_duration_since(opened);
        let unused = now.saturating_duration_since(self.last_used);
        if settings.max_age.is_some_and(|limit| age >= limit) {
            Some(EndReason::Expired)
        } else if !self.is_initialized && unused >= settings.handshake_timeout {
            Some(EndReason::NeverInitialized)
        } else {
            (unused >= settings.idle_timeout).then_some(EndReason::Idle)
        }
    }
}
