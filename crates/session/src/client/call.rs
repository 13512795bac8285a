//! One request of a client on its way: where its answer goes, and until when it is waited for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use audit::CallOutcome;
use bytes::Bytes;
use upstream::Upstream;
use wire::{ErrorReply, Id, Request, Text, method};

use super::Client;
use super::call_record::CallRecord;
use crate::lost_call::LostCall;
use crate::stream::{Keep, Stream};
use crate::worker_id::WorkerId;

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) client: Arc<Client>,
    /// The id that the client gave it.
    pub(crate) client_id: Id,
    /// The client's progress token, as JSON text.
    pub(crate) progress_token: Option<Bytes>,
    pub(crate) is_task: bool,
    pub(crate) began: Instant,
    pub(crate) stream: Arc<Stream>,
    /// The worker that has the call, once one has.
    assignment: OnceLock<Assignment>,
    /// The id that the upstream knows the call by, once it was sent.
    sent_as: AtomicU64,
    clock: Clock,
    /// For the audit log, if there is one.
    record: Option<Box<CallRecord>>,
    /// For the store, if there is one.
    label: Option<Box<CallLabel>>,
}

/// What a client is told of a call that a gateway lost.
#[derive(Debug)]
struct CallLabel {
    method: String,
    tool: Option<String>,
}

/// The worker that a call was given to.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    pub(crate) worker: WorkerId,
    pub(crate) upstream: Arc<Upstream>,
    /// How long the call may take without an answer or progress.
    pub(crate) timeout: Duration,
    /// How long it may take with progress.
    pub(crate) max_timeout: Duration,
}

impl Call {
    pub(crate) fn new(client: &Arc<Client>, request: &Request, stream: Arc<Stream>, now: Instant) -> Self {
        Self {
            client: Arc::clone(client),
            client_id: request.id.clone(),
            progress_token: request.wants_progress(),
            is_task: request.wants_task(),
            began: now,
            stream,
            assignment: OnceLock::new(),
            sent_as: AtomicU64::new(0),
            clock: Clock::default(),
            record: CallRecord::of(request, client.context()),
            label: client.context().durable.is_kept().then(|| Box::new(CallLabel::of(request))),
        }
    }

    pub(crate) fn assign(&self, assignment: Assignment) {
        let _ = self.assignment.set(assignment);
    }

    pub(crate) fn assignment(&self) -> Option<&Assignment> {
        self.assignment.get()
    }

    pub(crate) fn mark_sent(&self, id: u64, now: Instant) {
        self.clock.start(now);
        self.sent_as.store(id, Ordering::Relaxed);
    }

    /// The upstream's id of the call; ids begin at 1.
    pub(crate) fn sent_as(&self) -> Option<u64> {
        Some(self.sent_as.load(Ordering::Relaxed)).filter(|&id| id != 0)
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn record(&self) -> Option<&CallRecord> {
        self.record.as_deref()
    }

    /// Tells the client of progress, where it hears of it soonest.
    pub(crate) fn deliver_progress(&self, text: Text) {
        if self.stream.answer_only {
            self.client.standalone().push(text, Keep::IfRoom);
        } else {
            self.stream.push(text, Keep::IfRoom);
        }
    }

    /// The call as its client is told of it, should the gateway lose it. `None` if nothing is kept.
    pub(super) fn as_lost(&self) -> Option<LostCall> {
        let label = self.label.as_ref()?;
        let id = serde_json::from_str(self.client_id.as_json()).ok()?;
        Some(LostCall { id, method: label.method.clone(), tool: label.tool.clone(), answer_bytes: None })
    }

    /// Answers the call, unless it was answered or given up before.
    pub(crate) fn answer(self: &Arc<Self>, text: Text, outcome: CallOutcome) {
        self.client.answer(self, text, outcome);
    }

    /// Answers in place of the upstream, unless the call was answered or given up before.
    pub(crate) fn fail(self: &Arc<Self>, error: &ErrorReply) {
        self.answer(error.to_message(Some(&self.client_id)).into(), CallOutcome::Error);
    }

    pub(crate) fn is_open(self: &Arc<Self>) -> bool {
        self.client.is_open(self)
    }
}

impl CallLabel {
    fn of(request: &Request) -> Self {
        let tool = if request.method == method::TOOLS_CALL { request.name() } else { None };
        Self { method: request.method.clone(), tool }
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
    fn start(&self, now: Instant) {
        let _ = self.sent.set(now);
    }

    fn age(&self, now: Instant) -> Option<Duration> {
        self.sent.get().map(|sent| now.saturating_duration_since(*sent))
    }

    /// There was progress, or the client is being asked: the limit counts anew from now.
    pub(crate) fn refresh(&self, now: Instant) {
        if let Some(age) = self.age(now) {
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
        let sent = Instant::now();
        clock.start(sent);
        let after = |seconds| sent + Duration::from_secs(seconds);
        assert_eq!(clock.overdue(after(9), timeout, longest), None);
        assert_eq!(clock.overdue(after(11), timeout, longest), Some(Overdue::NoProgress));
        clock.refresh(after(15));
        assert_eq!(clock.overdue(after(20), timeout, longest), None);
        assert_eq!(clock.overdue(after(25), timeout, longest), Some(Overdue::TooLong));
    }
}
