//! What is in flight between an upstream and its clients: calls that wait for an answer, requests of the upstream that
//! wait for a client, and the sessions that both belong to. `from_upstream.rs` has the way back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use audit::CallOutcome;
use bytes::Bytes;
use identity::SessionId;
use serde_json::Value;
use tokio::sync::oneshot;
use upstream::{StartError, Transport, Upstream, Urgency};
use wire::{ErrorReply, Id, LogLevel, Request, Response, method};

use super::action::{Action, Note};
use super::client_handle::{ClientHandle, WorkerEvent};
use super::queue::Question;
use super::shared_state::{Admission, Purpose, SharedState};
use super::terms::WorkerTerms;
use crate::client::{Call, Client};
use crate::error::{not_reading, session_ended};
use crate::messages::{cancellation, empty_result, own_request};

#[derive(Debug)]
pub(super) struct Routing {
    pub(super) terms: Arc<WorkerTerms>,
    /// Ids toward the upstream, never used twice, over all generations.
    next_id: u64,
    pub(super) pending: HashMap<u64, Pending>,
    /// Requests of the upstream that a client has not answered: the upstream's id → the client, and the id there.
    pub(super) server_requests: HashMap<Id, (Arc<Client>, u64)>,
    pub(super) sessions: HashMap<SessionId, ClientHandle>,
    /// Calls that were answered with a task and still report progress: id → whose, under which token.
    pub(super) task_progress: VecDeque<(u64, SessionId, Bytes)>,
    pub(super) shared: SharedState,
    /// Whether this generation was sent a call of a client.
    pub(super) was_called: bool,
}

/// Who waits for an answer of the upstream.
#[derive(Debug)]
pub(super) enum Pending {
    Call(Arc<Call>, Purpose),
    /// The gateway itself; the upstream may be gone before it answers.
    Own(oneshot::Sender<Result<Response, StartError>>),
}

/// What a session leaves behind with an upstream that it shared.
#[derive(Debug)]
pub(super) struct Remains {
    calls: Vec<u64>,
    unanswered: Vec<Id>,
    subscriptions: Vec<String>,
}

impl Routing {
    pub(super) fn new(terms: Arc<WorkerTerms>) -> Self {
        Self {
            next_id: first_id(&terms.upstream),
            terms,
            pending: HashMap::new(),
            server_requests: HashMap::new(),
            sessions: HashMap::new(),
            task_progress: VecDeque::new(),
            shared: SharedState::default(),
            was_called: false,
        }
    }

    /// Whether an id toward the upstream was ever given out.
    pub(super) fn was_used(&self, id: u64) -> bool {
        id < self.next_id
    }

    fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// Gives up the room that more calls at once once needed.
    pub(super) fn shrink(&mut self) {
        self.pending.shrink_to_fit();
        self.server_requests.shrink_to_fit();
        self.task_progress.shrink_to_fit();
    }

    /// The only session, if there is but one.
    pub(super) fn sole_session(&self) -> Option<&ClientHandle> {
        if self.sessions.len() == 1 { self.sessions.values().next() } else { None }
    }

    pub(super) fn tell_sessions(&self, event: &WorkerEvent) -> Vec<Action> {
        self.sessions.values().map(|handle| Action::Tell(handle.clone(), event.clone())).collect()
    }

    /// Forgets a session that shared the upstream.
    pub(super) fn forget_session(&mut self, session: SessionId) -> Remains {
        self.sessions.remove(&session);
        let is_own =
            |pending: &Pending| matches!(pending, Pending::Call(call, _) if call.client.id() == session);
        let calls = self.pending.extract_if(|_, pending| is_own(pending)).map(|(id, _)| id);
        let unanswered = self.server_requests.extract_if(|_, (client, _)| client.id() == session);
        Remains {
            calls: calls.collect(),
            unanswered: unanswered.map(|(id, _)| id).collect(),
            subscriptions: self.shared.forget(session),
        }
    }

    /// Tells the upstream that a session is gone: its calls are cancelled, its requests answered, its subscriptions
    /// ended.
    pub(super) fn clear_away(&mut self, remains: Remains) -> Vec<Action> {
        let mut actions = Vec::new();
        for id in remains.calls {
            actions.push(Action::Send(cancellation(id, "the client ended its session")));
        }
        for id in remains.unanswered {
            actions.push(Action::Send(session_ended().to_message(Some(&id))));
        }
        for uri in remains.subscriptions {
            actions.push(self.tell(method::UNSUBSCRIBE, &serde_json::json!({ "uri": uri })));
        }
        actions
    }

    /// A request of the gateway itself whose answer does not matter.
    pub(super) fn tell(&mut self, method: &str, params: &Value) -> Action {
        let id = self.expect_answer(oneshot::channel().0);
        Action::Send(own_request(id, method, params).into())
    }

    /// Sends a request of the gateway itself.
    pub(super) fn ask(&mut self, question: Question) -> Vec<Action> {
        // Those that took too long are not waited for.
        self.pending.retain(|_, pending| !matches!(pending, Pending::Own(asker) if asker.is_closed()));
        let id = self.expect_answer(question.answer);
        let line = own_request(id, question.method, &question.params).into();
        vec![Action::SendCall { id, line, urgency: Urgency::Now }]
    }

    /// Registers a request of the gateway itself. Returns its id.
    pub(super) fn expect_answer(&mut self, answer: oneshot::Sender<Result<Response, StartError>>) -> u64 {
        let id = self.take_id();
        self.pending.insert(id, Pending::Own(answer));
        id
    }

    /// Sends a client's call, or answers it in the upstream's place.
    pub(super) fn forward_call(&mut self, call: Arc<Call>, request: &Request, now: Instant) -> Vec<Action> {
        let session = call.client.id();
        let admission = self.shared.admit(session, request, self.terms.serves_many());
        let id = self.take_id();
        let mut actions = Vec::new();
        if let Some(uri) = request.uri().filter(|_| request.method == method::UNSUBSCRIBE) {
            actions.push(Action::Subscription { client: Arc::clone(&call.client), uri, is_on: false });
        }
        let (purpose, line) = match admission {
            Admission::Forward(purpose) => (purpose, request.toward_upstream(id)),
            Admission::ForwardLevel { own, upstream } => {
                actions.push(Action::LogLevel { client: Arc::clone(&call.client), level: own });
                (Purpose::Plain, request.with_level(id, upstream))
            }
            Admission::AnswerEmpty => {
                let text = empty_result(&call.client_id).into();
                actions.push(Action::Answer { call, text, outcome: CallOutcome::Ok });
                actions.extend(self.terms.retire());
                return actions;
            }
            Admission::Refuse(error) => {
                actions.push(Action::Fail { call, error });
                actions.extend(self.terms.retire());
                return actions;
            }
        };
        // A call that is alone is written at once; one among others may share a write with them.
        let urgency = if self.pending.is_empty() { Urgency::Now } else { Urgency::WithOthers };
        call.mark_sent(id, now);
        self.was_called = true;
        self.pending.insert(id, Pending::Call(call, purpose));
        actions.push(Action::SendCall { id, line, urgency });
        actions
    }

    /// The upstream does not read its input, and too much waits already.
    pub(super) fn not_sent(&mut self, id: u64) -> Vec<Action> {
        self.fail(id, not_reading)
    }

    /// Fails the call with this id toward the upstream, if it is still open.
    pub(super) fn fail(&mut self, id: u64, error: impl FnOnce() -> ErrorReply) -> Vec<Action> {
        match self.pending.remove(&id) {
            Some(Pending::Call(call, _)) => {
                let mut actions = vec![Action::Fail { call, error: error() }];
                actions.extend(self.terms.retire());
                actions
            }
            Some(Pending::Own(_)) | None => Vec::new(),
        }
    }

    /// The upstream is gone: calls in flight fail, and so do its requests to clients. Returns how many were in flight.
    pub(super) fn fail_all(&mut self, error: &ErrorReply) -> (usize, Vec<Action>) {
        self.task_progress.clear();
        let pending = std::mem::take(&mut self.pending);
        let (count, mut actions) = (pending.len(), Vec::new());
        for pending in pending.into_values() {
            match pending {
                Pending::Call(call, _) => {
                    actions.push(Action::Fail { call, error: error.clone() });
                    actions.extend(self.terms.retire());
                }
                Pending::Own(answer) => drop(answer.send(Err(StartError::Stopped))),
            }
        }
        actions.extend(self.withdraw_requests());
        (count, actions)
    }

    /// Drops the upstream's requests to clients, which no answer can reach any more.
    pub(super) fn withdraw_requests(&mut self) -> Vec<Action> {
        let requests = std::mem::take(&mut self.server_requests);
        let withdraw = |(client, number)| Action::WithdrawRequest { client, number, notice: None };
        requests.into_values().map(withdraw).collect()
    }

    /// Notes that a client was asked what the upstream wants to know.
    pub(super) fn request_accepted(&mut self, id: Id, client: Arc<Client>, number: u64) -> Vec<Action> {
        match self.server_requests.insert(id.clone(), (client, number)) {
            Some(_) => vec![Action::Note(Note::RequestIdUsedTwice(id))],
            None => Vec::new(),
        }
    }

    /// No longer waits for the answer to a call. Returns the id that the upstream knows it by, if it was waited for.
    pub(super) fn withdraw(&mut self, call: &Call) -> Option<u64> {
        let id = call.sent_as()?;
        self.pending.remove(&id).map(|_| id)
    }

    /// What the upstream must hear again: subscriptions, the log level.
    pub(super) fn replay(&mut self) -> Vec<Action> {
        let again = self.shared.replay();
        again.into_iter().map(|(method, params)| self.tell(method, &params)).collect()
    }

    /// Tells the upstream a level that serves all clients.
    pub(super) fn tell_level(&mut self, level: LogLevel) -> Action {
        self.tell(method::SET_LEVEL, &serde_json::json!({ "level": level.as_str() }))
    }
}

/// Another client of the same session at a URL has ids of its own, most probably small ones.
fn first_id(upstream: &Upstream) -> u64 {
    match upstream.transport {
        Transport::Process(_) | Transport::Attached => 1,
        Transport::Http(_) => u64::from(uuid::Uuid::new_v4().as_fields().0) << 16 | 1,
    }
}
