//! What time does to a session: calls and questions that take too long, streams that nobody comes back for, and
//! the session itself.

use std::sync::Arc;
use std::time::Instant;

use wire::{ErrorReply, code};

use super::server_requests::{RootsPurpose, ServerRequest, ServerRequestKind};
use super::{EndReason, Session, State};
use crate::call::Overdue;
use crate::error::timed_out;
use crate::settings::{ANSWERED_SOON, ENDED_STREAM_AGE, MAX_ENDED_BYTES, MAX_ENDED_STREAMS};
use crate::worker::cancellation;
use audit::CallOutcome;

impl Session {
    /// Looks at every deadline of the session. Says why it must end, if it must.
    pub(crate) fn tick(self: &Arc<Self>, now: Instant) -> Option<EndReason> {
        self.tick_gate(now);
        self.expire_server_requests(now);
        self.expire_calls(now);
        let settings = &self.context.settings;
        let is_listened_to = self.is_listened_to();
        let mut state = self.lock();
        if let Some(reason) = state.ended {
            return Some(reason);
        }
        state.forget_old_streams(now);
        let is_in_use = !state.calls.is_empty()
            || is_listened_to
            || state.resumable.values().any(|(stream, _)| stream.has_reader());
        if is_in_use {
            state.last_used = now;
        }
        let (age, unused) = (now.duration_since(self.opened), now.duration_since(state.last_used));
        if settings.max_age.is_some_and(|limit| age >= limit) {
            Some(EndReason::Expired)
        } else if !state.is_initialized && unused >= settings.handshake_timeout {
            Some(EndReason::NeverInitialized)
        } else {
            (unused >= settings.idle_timeout).then_some(EndReason::Idle)
        }
    }

    fn expire_calls(&self, now: Instant) {
        let (calls, is_asked) = {
            let state = self.lock();
            let is_asked = state
                .server_requests
                .values()
                .any(|ask| matches!(ask.kind, ServerRequestKind::Upstream { .. }));
            (state.calls.values().cloned().collect::<Vec<_>>(), is_asked)
        };
        for call in calls {
            if now.saturating_duration_since(call.began) >= ANSWERED_SOON {
                call.stream.run_late();
            }
            // A person may take a while to answer: time does not count against the call meanwhile.
            if is_asked {
                call.clock().refresh();
            }
            let settings = &self.context.settings;
            let (timeout, longest) =
                call.worker().map_or((settings.timeout, settings.max_timeout), |worker| {
                    (worker.call_timeout(), worker.longest_call())
                });
            let error = match call.clock().overdue(now, timeout, longest) {
                None => continue,
                Some(Overdue::NoProgress) => timed_out(timeout, "--timeout", "no answer and no progress for"),
                Some(Overdue::TooLong) => timed_out(longest, "--max-timeout", "it ran for more than"),
            };
            self.context.counters.timeouts.add();
            tracing::warn!(session = %self.handle, id = ?call.client_id, "{}", error.message);
            if let Some(worker) = call.worker() {
                worker.note_unanswered();
                worker.withdraw(&call, |id| cancellation(id, "timeout"));
            }
            call.fail_as(&error, CallOutcome::Timeout);
        }
    }

    fn expire_server_requests(self: &Arc<Self>, now: Instant) {
        let limit = |ask: &ServerRequest| match ask.kind {
            ServerRequestKind::Roots(RootsPurpose::Compare) => self.context.settings.scope_timeout,
            _ => self.context.settings.max_timeout,
        };
        let is_old = |ask: &ServerRequest| now.saturating_duration_since(ask.asked) >= limit(ask);
        let old: Vec<u64> = self
            .lock()
            .server_requests
            .iter()
            .filter(|(_, ask)| is_old(ask))
            .map(|(&number, _)| number)
            .collect();
        for number in old {
            let ask = self.lock().server_requests.remove(&number);
            match ask.map(|ask| ask.kind) {
                Some(ServerRequestKind::Upstream { worker, id, .. }) => {
                    let error = ErrorReply::new(code::SERVER_ERROR, "the client did not answer in time");
                    if let Some(worker) = worker.upgrade() {
                        worker.answer_server_request(&id, &error.to_message(Some(&id)));
                    }
                }
                Some(ServerRequestKind::Roots(RootsPurpose::Compare)) => {
                    let session = Arc::clone(self);
                    tokio::spawn(
                        async move { session.reject_roots_change("roots/list was not answered").await },
                    );
                }
                Some(ServerRequestKind::Roots(RootsPurpose::Lock)) | None => {}
            }
        }
    }
}

impl State {
    /// Keeps ended streams for a while, as long as they are few and small.
    pub(super) fn forget_old_streams(&mut self, now: Instant) {
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
        let (mut count, mut bytes) = (0, 0);
        for (stream, ended) in self.resumable.values() {
            if ended.is_some() {
                count += 1;
                bytes += stream.kept_bytes();
            }
        }
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
}
