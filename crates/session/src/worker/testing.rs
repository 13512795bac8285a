//! A worker machine with named clients and no process. Each event returns what the machine wants done, one line of text
//! for each action.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::oneshot;
use upstream::{End, Lifecycle, StartError, Upstream};
use wire::{ErrorReply, InitializeResult, Message, Request, Response};

use super::action::{Action, Note};
use super::client_handle::ClientHandle;
use super::machine::WorkerMachine;
use super::queue::{Question, Work};
use super::terms::{Greeting, WorkerTerms};
use crate::client::{Call, Client};
use crate::gateway_context::GatewayContext;
use crate::messages::cancellation;
use crate::scope::Scope;
use crate::testing;

pub(super) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

pub(super) struct Rig {
    pub(super) machine: WorkerMachine,
    pub(super) now: Instant,
    context: Arc<GatewayContext>,
    clients: BTreeMap<&'static str, Arc<Client>>,
    /// By the client and the id that it gave the call.
    calls: BTreeMap<(&'static str, u64), Arc<Call>>,
}

/// Where the answer to a request of the gateway arrives.
pub(super) type Asked<T> = oneshot::Receiver<Result<T, StartError>>;

impl Rig {
    pub(super) fn new(lifecycle: Lifecycle) -> Self {
        Self::with(lifecycle, |_, _| {})
    }

    /// A machine with other terms or another greeting.
    pub(super) fn with(lifecycle: Lifecycle, change: impl FnOnce(&mut WorkerTerms, &mut Greeting)) -> Self {
        let mut terms = WorkerTerms {
            upstream: testing::upstream(lifecycle),
            scope: Arc::new(Scope::nothing()),
            is_passed_through: true,
            asks_for_roots: Arc::new(AtomicBool::new(false)),
            verbose_meta: false,
            failures: Arc::default(),
        };
        let mut greeting = Greeting {
            handshake: Arc::new(testing::request(0, "initialize", "{}")),
            initialized: None,
            advertised: None,
        };
        change(&mut terms, &mut greeting);
        let now = Instant::now();
        Self {
            machine: WorkerMachine::new(terms, greeting, now),
            now,
            context: testing::context(),
            clients: BTreeMap::new(),
            calls: BTreeMap::new(),
        }
    }

    /// A machine whose upstream differs.
    pub(super) fn with_upstream(lifecycle: Lifecycle, change: impl FnOnce(&mut Upstream)) -> Self {
        Self::with(lifecycle, |terms, _| change(Arc::make_mut(&mut terms.upstream)))
    }

    /// A machine whose upstream is up, with one client: `a`.
    pub(super) fn up(lifecycle: Lifecycle) -> Self {
        let mut rig = Self::new(lifecycle);
        rig.join("a");
        rig.start();
        rig
    }

    /// A machine whose upstream is up and serves `a` and `b`.
    pub(super) fn shared() -> Self {
        let mut rig = Self::up(Lifecycle::Shared);
        rig.join("b");
        rig
    }

    /// Starts a generation without a call.
    pub(super) fn start(&mut self) {
        drop(self.ready());
        self.greeted();
        assert_eq!(self.machine.condition().0, "up");
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    pub(super) fn client(&self, name: &str) -> &Arc<Client> {
        &self.clients[name]
    }

    pub(super) fn join(&mut self, name: &'static str) {
        let client = testing::client(&self.context);
        self.machine.join(ClientHandle::new(&client, |_| {}));
        self.clients.insert(name, client);
    }

    /// A client's call is submitted.
    pub(super) fn call(&mut self, client: &'static str, id: u64, method: &str, params: &str) -> Vec<String> {
        self.submit_call(client, testing::request(id, method, params))
    }

    pub(super) fn tool(&mut self, client: &'static str, id: u64) -> Vec<String> {
        self.call(client, id, "tools/call", "{}")
    }

    pub(super) fn submit_call(&mut self, client: &'static str, request: Request) -> Vec<String> {
        let actions = self.submit_raw(client, request);
        self.perform(actions)
    }

    /// The same, with the actions as they are.
    pub(super) fn submit_raw(&mut self, client: &'static str, request: Request) -> Vec<Action> {
        let (call, _) = testing::call(self.client(client), &request);
        let number = request.id.as_number().unwrap_or_default();
        self.calls.insert((client, number), Arc::clone(&call));
        self.machine.submit(Work::Call(call, Box::new(request)), self.now)
    }

    pub(super) fn ready(&mut self) -> (Asked<Arc<InitializeResult>>, Vec<String>) {
        let (sender, receiver) = oneshot::channel();
        let actions = self.machine.submit(Work::Ready(sender), self.now);
        (receiver, self.perform(actions))
    }

    pub(super) fn ask(&mut self, method: &'static str) -> (Asked<Response>, Vec<String>) {
        let (answer, receiver) = oneshot::channel();
        let question = Box::new(Question { method, params: serde_json::json!({}), answer });
        let actions = self.machine.submit(Work::Ask(question), self.now);
        (receiver, self.perform(actions))
    }

    pub(super) fn greeted(&mut self) -> Vec<String> {
        self.greeted_with("2025-11-25", "{}")
    }

    pub(super) fn greeted_with(&mut self, version: &str, capabilities: &str) -> Vec<String> {
        let actions = self.machine.greeted(testing::initialize_result(version, capabilities), self.now);
        self.perform(actions)
    }

    pub(super) fn settled(&mut self, generation: u64) -> Vec<String> {
        let actions = self.machine.settled(generation, self.now);
        self.perform(actions)
    }

    pub(super) fn start_failed(&mut self) -> Vec<String> {
        let reason = "no room".to_owned();
        self.start_failed_with(&StartError::Spawn { program: "server".to_owned(), reason })
    }

    pub(super) fn start_failed_with(&mut self, error: &StartError) -> Vec<String> {
        let actions = self.machine.start_failed(error, self.now);
        self.perform(actions)
    }

    /// The process of the current generation dies young.
    pub(super) fn died(&mut self) -> Vec<String> {
        self.died_after(Duration::ZERO)
    }

    pub(super) fn died_after(&mut self, lived: Duration) -> Vec<String> {
        let generation = self.machine.condition().1;
        let end = End::Lost("gone".to_owned());
        let actions = self.machine.died(generation, Some(&end), lived, "its last words", self.now);
        self.perform(actions)
    }

    pub(super) fn receive(&mut self, text: &str) -> Vec<String> {
        let actions = self.receive_raw(text);
        self.perform(actions)
    }

    pub(super) fn receive_raw(&mut self, text: &str) -> Vec<Action> {
        self.machine.receive(testing::message(text), self.now)
    }

    /// The upstream answers a request of the gateway.
    pub(super) fn answered(&mut self, id: u64, result: &str) -> Vec<String> {
        let response = Message::Response(testing::response(id, result));
        let actions = self.machine.receive(response, self.now);
        self.perform(actions)
    }

    pub(super) fn notified(&mut self, method: &str, params: &str) -> Vec<String> {
        let notification = Message::Notification(testing::notification(method, params));
        let actions = self.machine.receive(notification, self.now);
        self.perform(actions)
    }

    pub(super) fn requested(&mut self, id: u64, method: &str) -> Vec<String> {
        let request = Message::Request(testing::request(id, method, "{}"));
        let actions = self.machine.receive(request, self.now);
        self.perform(actions)
    }

    /// A client was asked what the upstream wants to know, under this number.
    pub(super) fn accepted(&mut self, upstream_id: &str, client: &str, number: u64) -> Vec<String> {
        let client = Arc::clone(self.client(client));
        let actions = self.machine.request_accepted(testing::id(upstream_id), client, number);
        self.perform(actions)
    }

    /// A client cancels its call.
    pub(super) fn cancel(&mut self, client: &'static str, id: u64) -> Vec<String> {
        self.client(client).cancel(&wire::Id::number(id));
        let call = Arc::clone(&self.calls[&(client, id)]);
        let actions = self.machine.withdraw(&call, |id| cancellation(id, "changed its mind"));
        self.perform(actions)
    }

    /// A call has taken too long.
    pub(super) fn give_up(&mut self, client: &'static str, id: u64) -> Vec<String> {
        self.machine.note_unanswered(self.now);
        let call = Arc::clone(&self.calls[&(client, id)]);
        let actions = self.machine.withdraw(&call, |id| cancellation(id, "timeout"));
        self.perform(actions)
    }

    pub(super) fn leave(&mut self, client: &str) -> Vec<String> {
        let session = self.client(client).id();
        let actions = self.machine.leave(session, self.now);
        self.perform(actions)
    }

    pub(super) fn stop(&mut self) -> (bool, Vec<String>) {
        let (was_up, actions) = self.machine.stop();
        (was_up, self.perform(actions))
    }

    pub(super) fn finish_handshake(&mut self) -> Vec<String> {
        let actions = self.machine.finish_handshake(Bytes::from(INITIALIZED));
        self.perform(actions)
    }

    /// Closes the calls that are over, as the driver does, and says what was to be done.
    pub(super) fn perform(&self, actions: Vec<Action>) -> Vec<String> {
        let lines = actions.iter().map(|action| self.line(action)).collect();
        for action in actions {
            match action {
                Action::Answer { call, text, outcome } => call.answer(text, outcome),
                Action::Fail { call, error } => call.fail(&error),
                _ => {}
            }
        }
        lines
    }

    fn line(&self, action: &Action) -> String {
        match action {
            Action::Start { generation } => format!("start {generation}"),
            Action::Send(line) => format!("send {}", brief(line)),
            Action::SendCall { line, .. } => format!("call {}", brief(line)),
            Action::Answer { call, text, .. } => {
                format!("answer {} {}", self.name(&call.client), brief(&text.clone().into_bytes()))
            }
            Action::Fail { call, error } => {
                format!("fail {} #{}: {}", self.name(&call.client), call.client_id.as_json(), reason(error))
            }
            Action::Deliver { client, text, prefer } => {
                format!("deliver {} {prefer:?} {}", self.name(client), brief(&text.clone().into_bytes()))
            }
            Action::Progress { call, text } => {
                let (id, text) = (call.client_id.as_json(), brief(&text.clone().into_bytes()));
                format!("progress {} #{id}: {text}", self.name(&call.client))
            }
            Action::AskClient { client, request } => {
                format!("ask {} #{} {}", self.name(client), request.id.as_json(), request.method)
            }
            Action::AnswerItself { client, request } => {
                format!("context {} #{}", self.name(client), request.id.as_json())
            }
            Action::WithdrawRequest { client, number, notice } => {
                let notice = notice.clone().map_or_else(|| "none".to_owned(), |it| brief(&it.into_bytes()));
                format!("withdraw {} #{number}: {notice}", self.name(client))
            }
            Action::Tell(handle, event) => format!("tell {} {event:?}", self.name(&handle.client)),
            Action::Subscription { client, uri, is_on } => {
                format!("subscription {} {uri} {is_on}", self.name(client))
            }
            Action::LogLevel { client, level } => format!("level {} {}", self.name(client), level.as_str()),
            Action::RecordFiles { session, files } => {
                let client = self.clients.values().find(|client| Some(client.handle()) == *session);
                let client = client.map_or("none", |client| self.name(client));
                format!("files {client} {} {}", files.tool, files.operations.len())
            }
            Action::Settle { generation } => format!("settle {generation}"),
            Action::RootsAnswered => "roots answered".to_owned(),
            Action::Retire => "retire".to_owned(),
            Action::Note(Note::Died { lost_calls, .. }) => format!("note died, {lost_calls} lost"),
            Action::Note(Note::UnattributedRequest { method, .. }) => format!("note unattributed {method}"),
            Action::Note(note) => format!("note {note:?}"),
        }
    }

    fn name(&self, client: &Arc<Client>) -> &'static str {
        let known = self.clients.iter().find(|(_, known)| known.id() == client.id());
        known.map_or("stranger", |(name, _)| name)
    }
}

/// A message without its frame: `#id method params`, `#id = result` or `#id ! error`.
fn brief(line: &[u8]) -> String {
    let message: Value = serde_json::from_slice(line).unwrap();
    let id = message.get("id").map(|id| format!("#{id} ")).unwrap_or_default();
    if let Some(result) = message.get("result") {
        return format!("{id}= {result}");
    }
    if message.get("error").is_some() {
        return format!("{id}! {}", message["error"]["message"].as_str().unwrap());
    }
    let params = message.get("params").map(|params| format!(" {params}")).unwrap_or_default();
    format!("{id}{}{params}", message["method"].as_str().unwrap())
}

/// The word that a client's program can tell errors apart by, or else their message.
fn reason(error: &ErrorReply) -> String {
    let reason = error.data.as_ref().and_then(|data| data["reason"].as_str());
    let is_word = |reason: &&str| *reason != "upstream_not_started";
    reason.filter(is_word).unwrap_or(&error.message).to_owned()
}

/// A notice of cancellation as [`brief`] shows it.
pub(super) fn cancelled(id: u64, reason: &str) -> String {
    format!("notifications/cancelled {}", serde_json::json!({ "requestId": id, "reason": reason }))
}

/// Actions about several clients come in no order.
pub(super) fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}
