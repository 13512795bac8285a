//! From an open session to a locked scope: requests that come early wait in order, the client is asked for its roots,
//! and the first answer decides, once.
//!
//! A pure machine: an event and the time go in, [`GateAction`]s come out. `session/gate_driver.rs` performs them.
//!
//! ```text
//! Waiting ──first roots answer──► Locking ──vetted──► Open
//!    │ deadline: waiting requests fail, naming the missing step
//!    └── the scope is known: header, URL, no roots capability ──► Open
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use upstream::MAX_OUTBOX_BYTES;
use wire::{ErrorReply, Request, code};

use crate::client::Call;
use crate::scope::RootsAnswer;
use crate::settings::MAX_WAITING;
use crate::stream::Stream;

/// A request that has waited so long is asked on too, in case the client does not read the other stream.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often a client is asked before its requests fail.
const MAX_ROOTS_REQUESTS: usize = 3;

/// What a session holds until its scope is locked.
#[derive(Debug)]
pub(crate) struct Gate {
    stage: Stage,
    settings: GateSettings,
    is_initialized: bool,
    queue: Vec<Queued>,
    bytes: usize,
    requests: Vec<RootsRequest>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct GateSettings {
    /// How long requests wait for the scope.
    pub(crate) deadline: Duration,
    /// Whether a client may read one stream and not another, so that asking on a second one can help.
    pub(crate) has_many_streams: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// One answer has won; its directories are being vetted.
    Locking,
    Open,
}

/// A request that waits for the scope.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) call: Arc<Call>,
    pub(crate) request: Box<Request>,
}

/// One `roots/list` to the client.
#[derive(Debug)]
struct RootsRequest {
    stream: Arc<Stream>,
    at: Instant,
}

#[derive(Debug)]
pub(crate) enum GateEvent {
    Call(Queued),
    /// The client finished its handshake, and may be asked.
    Initialized,
    /// The client opened a stream on which it could be asked.
    Listening,
    RootsAnswered(RootsAnswer),
    /// The scope is known from an earlier gateway, and is being vetted again.
    Restoring,
    /// The scope is locked, and a route stands behind the gate.
    Locked,
    /// The client took a waiting request back.
    Cancelled(Arc<Call>),
    Tick,
    /// The session is over.
    Ended,
}

#[derive(Debug)]
pub(crate) enum GateAction {
    /// Ask the client for its roots on this stream.
    RequestRoots(Arc<Stream>),
    /// Vet what the client named, and lock the scope to it. Happens once.
    Vet(RootsAnswer),
    /// Hand these over, in this order.
    Release(Vec<Queued>),
    /// Answer these with the error.
    Fail(Vec<Arc<Call>>, ErrorReply),
    /// Answer that too many requests wait already.
    RefuseOverflow(Arc<Call>),
    /// An answer came after another had won.
    IgnoreLateAnswer,
}

impl Gate {
    pub(crate) fn new(settings: GateSettings) -> Self {
        Self {
            stage: Stage::Waiting,
            settings,
            is_initialized: false,
            queue: Vec::new(),
            bytes: 0,
            requests: Vec::new(),
        }
    }

    /// Takes one event. `standalone` is the stream that the client reads for messages that belong to no call.
    pub(crate) fn step(
        &mut self,
        event: GateEvent,
        standalone: &Arc<Stream>,
        now: Instant,
    ) -> Vec<GateAction> {
        match event {
            GateEvent::Call(queued) => self.enqueue(queued, standalone, now),
            GateEvent::Initialized => {
                self.is_initialized = true;
                self.request_roots(standalone, now)
            }
            GateEvent::Listening => self.request_roots(standalone, now),
            GateEvent::RootsAnswered(answer) => self.take_roots(answer),
            GateEvent::Restoring => {
                self.stage = Stage::Locking;
                Vec::new()
            }
            GateEvent::Locked => self.open(),
            GateEvent::Cancelled(call) => {
                self.forget(&call);
                Vec::new()
            }
            GateEvent::Tick => self.tick(standalone, now),
            GateEvent::Ended => {
                // The session has answered its calls already.
                drop(self.open());
                Vec::new()
            }
        }
    }

    /// What the session is waiting for, for people.
    pub(crate) fn describe(&self) -> &'static str {
        match self.stage {
            Stage::Waiting if !self.is_initialized => "opening",
            Stage::Waiting => "awaiting_scope",
            Stage::Locking => "locking",
            Stage::Open => "ready",
        }
    }

    fn enqueue(&mut self, queued: Queued, standalone: &Arc<Stream>, now: Instant) -> Vec<GateAction> {
        if self.stage == Stage::Open {
            return vec![GateAction::Release(vec![queued])];
        }
        let bytes = self.bytes + queued.request.size();
        if self.queue.len() >= MAX_WAITING || bytes > MAX_OUTBOX_BYTES {
            return vec![GateAction::RefuseOverflow(queued.call)];
        }
        self.bytes = bytes;
        self.queue.push(queued);
        self.request_roots(standalone, now)
    }

    fn request_roots(&mut self, standalone: &Arc<Stream>, now: Instant) -> Vec<GateAction> {
        let Some(stream) = self.next_stream(standalone, now) else { return Vec::new() };
        self.requests.push(RootsRequest { stream: Arc::clone(&stream), at: now });
        vec![GateAction::RequestRoots(stream)]
    }

    /// Where the client is to be asked now, if it is to be asked: on the oldest waiting request, else on the standalone
    /// stream; again if that stream closed, or if a request has waited for long on another.
    fn next_stream(&self, standalone: &Arc<Stream>, now: Instant) -> Option<Arc<Stream>> {
        let may_ask = self.stage == Stage::Waiting && self.is_initialized;
        if !may_ask || self.requests.len() >= MAX_ROOTS_REQUESTS {
            return None;
        }
        let mut waiting =
            self.queue.iter().map(|queued| &queued.call.stream).filter(|stream| stream.takes_requests(now));
        let standalone = Some(standalone).filter(|stream| stream.takes_requests(now));
        let open = self.requests.last().filter(|last| !last.stream.is_ended() && last.stream.has_reader(now));
        let Some(last) = open else {
            return waiting.next().or(standalone).cloned();
        };
        let was_used =
            |stream: &Arc<Stream>| self.requests.iter().any(|request| Arc::ptr_eq(&request.stream, stream));
        let is_due =
            self.settings.has_many_streams && now.saturating_duration_since(last.at) >= ASK_AGAIN_AFTER;
        is_due.then(|| waiting.find(|stream| !was_used(stream)).cloned()).flatten()
    }

    fn take_roots(&mut self, answer: RootsAnswer) -> Vec<GateAction> {
        if self.stage != Stage::Waiting {
            return vec![GateAction::IgnoreLateAnswer];
        }
        self.stage = Stage::Locking;
        vec![GateAction::Vet(answer)]
    }

    fn open(&mut self) -> Vec<GateAction> {
        self.stage = Stage::Open;
        self.requests.clear();
        let queue = self.take_queue();
        if queue.is_empty() { Vec::new() } else { vec![GateAction::Release(queue)] }
    }

    fn take_queue(&mut self) -> Vec<Queued> {
        self.bytes = 0;
        std::mem::take(&mut self.queue)
    }

    /// Makes room when a waiting call was cancelled.
    fn forget(&mut self, call: &Arc<Call>) {
        self.queue.retain(|queued| !Arc::ptr_eq(&queued.call, call));
        self.bytes = self.queue.iter().map(|queued| queued.request.size()).sum();
    }

    /// Asks again where that is due; fails requests that have waited for too long.
    fn tick(&mut self, standalone: &Arc<Stream>, now: Instant) -> Vec<GateAction> {
        let deadline = self.settings.deadline;
        let is_overdue = |queued: &Queued| now.saturating_duration_since(queued.call.began) >= deadline;
        let mut actions = self.request_roots(standalone, now);
        if self.stage == Stage::Waiting && self.queue.iter().any(is_overdue) {
            let reply = self.timeout_reply();
            let calls = self.take_queue().into_iter().map(|queued| queued.call).collect();
            // A client that tries again is asked again.
            self.requests.clear();
            actions.push(GateAction::Fail(calls, reply));
        }
        actions
    }

    fn timeout_reply(&self) -> ErrorReply {
        let (step, explanation) = self.missing_step();
        let message = format!(
            "The workspace of this session is not known after {} s: {explanation}",
            self.settings.deadline.as_secs_f32()
        );
        ErrorReply::new(code::SERVER_ERROR, message)
            .with_data(json!({ "reason": "scope_timeout", "missing": step }))
    }

    /// Which step of the client is missing.
    fn missing_step(&self) -> (&'static str, &'static str) {
        if !self.is_initialized {
            ("initialized", "the client has not sent notifications/initialized")
        } else if self.requests.is_empty() {
            (
                "stream",
                "the client reads no stream on which it could be asked for its roots; it must open one with GET, or POST requests one by one",
            )
        } else {
            ("roots", "the client did not answer roots/list")
        }
    }
}

#[cfg(test)]
mod tests;
