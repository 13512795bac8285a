//! One request of a client on its way: where its answer goes, and until when it is waited for.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::{ErrorReply, Id, Text};

use crate::Session;
use crate::call_record::CallRecord;
use crate::stream::Stream;
use crate::worker::Worker;
use audit::CallOutcome;

/// What the gateway must do with the answer beside passing it on (shared upstreams only).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Plain,
    Subscribe(String),
    ListTasks,
    /// The answer may name a task, which then belongs to the caller.
    StartTask,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) session: Arc<Session>,
    pub(crate) client_id: Id,
    /// The client's progress token, as JSON text.
    pub(crate) progress_token: Option<Bytes>,
    pub(crate) is_task: bool,
    pub(crate) began: Instant,
    pub(crate) stream: Arc<Stream>,
    /// Who was given the call, once it was.
    worker: OnceLock<Arc<Worker>>,
    /// The id that the upstream knows the call by, once it was sent.
    sent_as: AtomicU64,
    clock: Clock,
    /// For the audit log, if there is one.
    record: Option<Box<CallRecord>>,
}

impl Call {
    pub(crate) fn new(session: &Arc<Session>, request: &wire::Request, stream: Arc<Stream>) -> Self {
        Self {
            session: Arc::clone(session),
            client_id: request.id.clone(),
            progress_token: request.wants_progress(),
            is_task: request.wants_task(),
            began: Instant::now(),
            stream,
            worker: OnceLock::new(),
            sent_as: AtomicU64::new(0),
            clock: Clock::default(),
            record: CallRecord::of(request, session.context()),
        }
    }

    pub(crate) fn mark_sent(&self, id: u64) {
        self.clock.start();
        self.sent_as.store(id, Ordering::Relaxed);
    }

    /// The upstream's id of the call; ids begin at 1.
    pub(crate) fn sent_as(&self) -> Option<u64> {
        Some(self.sent_as.load(Ordering::Relaxed)).filter(|&id| id != 0)
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether the audit log will tell of it.
    pub(crate) fn is_recorded(&self) -> bool {
        self.record.is_some()
    }

    pub(crate) fn give_to(&self, worker: &Arc<Worker>) {
        let _ = self.worker.set(Arc::clone(worker));
    }

    pub(crate) fn worker(&self) -> Option<&Arc<Worker>> {
        self.worker.get()
    }

    /// Answers, unless the call was settled before.
    pub(crate) fn answer(self: &Arc<Self>, text: Text, outcome: CallOutcome) {
        if self.session.settle(self) {
            self.close(text, outcome);
        }
    }

    /// Answers in place of the upstream, unless the call was settled before.
    pub(crate) fn fail(self: &Arc<Self>, error: &ErrorReply) {
        self.fail_as(error, CallOutcome::Error);
    }

    pub(crate) fn fail_as(self: &Arc<Self>, error: &ErrorReply, outcome: CallOutcome) {
        if self.session.settle(self) {
            self.close(error.to_message(Some(&self.client_id)).into(), outcome);
        }
    }

    /// Gives the answer of a call that was settled.
    pub(crate) fn close(&self, text: Text, outcome: CallOutcome) {
        let (context, took) = (self.session.context(), self.began.elapsed());
        context.counters.call_times.observe(took);
        if matches!(outcome, CallOutcome::Error | CallOutcome::Timeout) {
            self.session.note_error();
        }
        if let Some(record) = &self.record {
            let sole = || self.session.roster().sole().map_or("", |server| server.name());
            let upstream = self.worker.get().map_or_else(sole, |worker| worker.upstream.name.as_str());
            context.record(|| record.entry(self.session.handle(), upstream, outcome, took, text.len()));
        }
        self.stream.answer(text);
        self.release();
    }

    /// The call is over: a worker that was there for it alone goes.
    pub(crate) fn release(&self) {
        if let Some(worker) = self.worker.get().filter(|worker| worker.is_for_one_call()) {
            let worker = Arc::clone(worker);
            tokio::spawn(async move { worker.stop().await });
        }
    }
}

/// Runs from the moment a call was sent; stands still while the client itself is being asked.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    sent: OnceLock<Instant>,
    /// Milliseconds since `sent` at which there was progress, plus the time stood still.
    fresh_at: AtomicU64,
}

/// Which limit a call has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    NoProgress,
    TooLong,
}

impl Clock {
    fn start(&self) {
        let _ = self.sent.set(Instant::now());
    }

    fn age(&self, now: Instant) -> Option<Duration> {
        self.sent.get().map(|sent| now.saturating_duration_since(*sent))
    }

    /// There was progress, or the client is being asked: the limit counts anew from now.
    pub(crate) fn refresh(&self) {
        if let Some(age) = self.age(Instant::now()) {
            self.fresh_at.store(u64::try_from(age.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    pub(crate) fn overdue(&self, now: Instant, timeout: Duration, longest: Duration) -> Option<Overdue> {
        let age = self.age(now)?;
        if age >= longest {
            return Some(Overdue::TooLong);
        }
        let fresh_at = Duration::from_millis(self.fresh_at.load(Ordering::Relaxed));
        (age.saturating_sub(fresh_at) >= timeout).then_some(Overdue::NoProgress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_extends_the_limit_up_to_the_maximum() {
        let (timeout, longest) = (Duration::from_secs(10), Duration::from_secs(25));
        let clock = Clock::default();
        assert_eq!(clock.overdue(Instant::now(), timeout, longest), None, "not sent yet");
        clock.start();
        let sent = *clock.sent.get().unwrap();
        let after = |seconds| sent + Duration::from_secs(seconds);
        assert_eq!(clock.overdue(after(9), timeout, longest), None);
        assert_eq!(clock.overdue(after(11), timeout, longest), Some(Overdue::NoProgress));
        clock.fresh_at.store(15_000, Ordering::Relaxed);
        assert_eq!(clock.overdue(after(20), timeout, longest), None);
        assert_eq!(clock.overdue(after(25), timeout, longest), Some(Overdue::TooLong));
    }
}
