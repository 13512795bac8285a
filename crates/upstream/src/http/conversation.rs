//! The state of one conversation: its phase, the messages that wait, and the calls that run.
//!
//! It decides what happens next and starts it as a [`Task`]. All tasks of a connection are in one set, so that ending
//! the conversation ends them all. The lock is never held across an await.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use wire::{ErrorReply, Id, Message, MessageError};

use crate::http::client::{EndpointError, Http, Session};
use crate::http::endpoint::Endpoint;
use crate::http::error_replies;
use crate::http::incoming::Incoming;
use crate::http::modern::state::Modern;
use crate::http::outgoing_line::{Held, Kind, Line, Load};
use crate::http::response_body::{LINGER, Piece, ResponseBody};

/// Requests that run at the same time; further ones wait. Each may need a connection of its own.
const MAX_RUNNING: usize = 128;
/// Notifications and responses that are posted at the same time. Servers accept them at once, so few connections
/// suffice.
const MAX_NOTES: usize = 16;
/// Messages that wait for the caller. When the queue is full, reading from the server stops.
const INCOMING_QUEUE: usize = 64;

/// Work that a conversation starts.
pub(crate) enum Task {
    /// Sends the caller's `initialize`.
    Greet { line: Line, id: Id },
    /// Sends the caller's `notifications/initialized`.
    Settle { session: Arc<Session>, line: Line },
    /// Initializes again, because the server forgot the session.
    Renew,
    /// Posts a message and delivers its answer.
    Exchange { session: Arc<Session>, line: Line, turn: Turn, cancelled: Option<oneshot::Receiver<()>> },
    /// Reads the stream that belongs to no call.
    Listen { session: Arc<Session> },
    /// Sends a request to a server of the modern era.
    ModernCall { modern: Arc<Modern>, line: Line, turn: Turn, cancelled: oneshot::Receiver<()> },
    /// Reads the notifications of a server of the modern era.
    ModernListen { modern: Arc<Modern> },
}

pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
pub(crate) type RunTask = fn(Arc<Conversation>, Task) -> TaskFuture;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `initialize` was not sent yet, or the server refused it.
    Fresh,
    /// `initialize` is under way.
    Greeting,
    /// `initialize` was answered.
    Greeted,
    /// `notifications/initialized` is under way.
    Settling,
    Ready,
    /// The server forgot the session and is being initialized again.
    Renewing,
    Closed,
}

impl Phase {
    /// Returns true if messages may be sent; otherwise they wait.
    fn is_open(self) -> bool {
        matches!(self, Self::Greeted | Self::Ready)
    }
}

pub(crate) struct Conversation {
    /// The error says why the endpoint cannot be used.
    pub(crate) http: Result<Http, EndpointError>,
    pub(crate) max_message: usize,
    run_task: RunTask,
    load: Arc<Load>,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    session: Arc<Session>,
    /// Set for a server that speaks only the modern revision, which has no sessions.
    modern: Option<Arc<Modern>>,
    /// The lines of the handshake, to repeat it.
    initialize: Option<Bytes>,
    initialized: Option<Bytes>,
    /// In the order of sending. `load` bounds its length.
    waiting: VecDeque<Line>,
    /// Requests that were posted and not answered yet. The sender tells the task that its request was cancelled.
    running: HashMap<Id, Option<oneshot::Sender<()>>>,
    /// The number of notifications and responses being posted.
    notes: usize,
    /// Resolves when the POST of the previous line has begun.
    last_begun: Option<oneshot::Receiver<()>>,
    standalone_stream: Option<AbortHandle>,
    tasks: JoinSet<()>,
    /// `None` once the conversation is over.
    incoming: Option<mpsc::Sender<Incoming>>,
}

/// The result of delivering a message from the server.
#[derive(Debug)]
pub(crate) enum Delivered {
    /// It was the answer to this request.
    Answer(Id),
    /// It was another message, or an answer that no request waits for.
    Other,
    Malformed(MessageError),
}

/// The place of a line in the order of sending.
#[derive(Debug)]
pub(crate) struct Turn {
    before: Option<oneshot::Receiver<()>>,
    /// Dropped when the POST has begun, so that the next line may be sent.
    _begun: oneshot::Sender<()>,
}

impl Turn {
    pub(crate) async fn wait(&mut self) {
        if let Some(before) = self.before.take() {
            // Nothing is ever sent: the end of the channel is the signal.
            let _ = before.await;
        }
    }
}

impl Conversation {
    pub(crate) fn new(endpoint: Endpoint, run_task: RunTask) -> (Arc<Self>, mpsc::Receiver<Incoming>) {
        let (incoming, receiver) = mpsc::channel(INCOMING_QUEUE);
        let state = State {
            phase: Phase::Fresh,
            session: Arc::default(),
            modern: None,
            initialize: None,
            initialized: None,
            waiting: VecDeque::new(),
            running: HashMap::new(),
            notes: 0,
            last_begun: None,
            standalone_stream: None,
            tasks: JoinSet::new(),
            incoming: Some(incoming),
        };
        let conversation = Arc::new(Self {
            max_message: endpoint.max_message,
            http: Http::new(endpoint),
            run_task,
            load: Arc::default(),
            state: Mutex::new(state),
        });
        (conversation, receiver)
    }

    /// Takes one message of the caller. Returns false if too much waits, or if the conversation is over.
    pub(crate) fn send(self: &Arc<Self>, text: &[u8]) -> bool {
        let Some(held) = Held::take(&self.load, text.len()) else { return false };
        let line = match Line::new(text, held) {
            Ok(line) => line,
            Err(malformed) => {
                tracing::warn!(reason = %malformed, "not sending a line that is no message to the MCP server");
                return true;
            }
        };
        let mut state = self.state();
        let phase = state.phase;
        match phase {
            Phase::Closed => return false,
            Phase::Fresh => self.start_greeting(&mut state, line),
            _ if state.withdraw(&line) => {}
            _ => {
                state.waiting.push_back(line);
                self.start_waiting(&mut state);
            }
        }
        true
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.state().session)
    }

    /// The caller's `initialize` and `notifications/initialized`.
    pub(crate) fn handshake_lines(&self) -> (Option<Bytes>, Option<Bytes>) {
        let state = self.state();
        (state.initialize.clone(), state.initialized.clone())
    }

    /// The server answered `initialize`; or it is of the modern era, which has no handshake.
    pub(crate) fn greeted(
        self: &Arc<Self>,
        session: Session,
        initialize: Bytes,
        modern: Option<Arc<Modern>>,
    ) {
        let mut state = self.state();
        state.session = Arc::new(session);
        state.modern = modern;
        state.initialize = Some(initialize);
        self.enter(&mut state, Phase::Greeted);
    }

    /// The server refused `initialize`: answers the requests that wait for it with an error.
    pub(crate) fn not_greeted(self: &Arc<Self>) {
        let mut state = self.state();
        self.enter(&mut state, Phase::Fresh);
        for line in std::mem::take(&mut state.waiting) {
            self.start_greeting(&mut state, line);
        }
    }

    /// The server received `notifications/initialized`: calls may be sent, and its own messages read.
    pub(crate) fn settled(self: &Arc<Self>) {
        let mut state = self.state();
        self.enter(&mut state, Phase::Ready);
    }

    /// The server was initialized again and `Renewed` was emitted.
    pub(crate) fn renewed(self: &Arc<Self>, session: Session) {
        let mut state = self.state();
        state.session = Arc::new(session);
        self.enter(&mut state, Phase::Ready);
    }

    /// The server no longer knows the session `forgotten`. Initializes again, unless that is done or under way, and
    /// then sends `line` once more.
    pub(crate) fn renew(self: &Arc<Self>, forgotten: &Session, line: Option<Line>) {
        let mut state = self.state();
        if let Some(mut line) = line {
            if let Some(id) = line.request_id() {
                state.running.remove(id);
            }
            line.was_resent = true;
            state.waiting.push_front(line);
        }
        if state.session.number == forgotten.number && !matches!(state.phase, Phase::Renewing | Phase::Closed)
        {
            state.phase = Phase::Renewing;
            self.start(&mut state, Task::Renew);
        }
        self.start_waiting(&mut state);
    }

    /// Delivers a message of the server to the caller. An answer is delivered once, and only if its request still runs.
    pub(crate) async fn deliver(self: &Arc<Self>, text: Bytes) -> Delivered {
        let answered = match Message::parse(text.clone()) {
            Ok(Message::Response(response)) if !self.settle(&response.id) => {
                tracing::debug!(id = ?response.id, "dropping an answer of the MCP server that no request waits for");
                return Delivered::Other;
            }
            Ok(Message::Response(response)) => Some(response.id),
            Ok(Message::Request(_) | Message::Notification(_)) => None,
            Err(malformed) => {
                tracing::warn!(reason = %malformed, "the MCP server sent a line that is no message");
                return Delivered::Malformed(malformed);
            }
        };
        self.emit(Incoming::Message(text)).await;
        answered.map_or(Delivered::Other, Delivered::Answer)
    }

    /// Delivers the messages after an answer, until the server ends the body.
    pub(crate) async fn deliver_rest(self: &Arc<Self>, mut body: ResponseBody) {
        let rest = async {
            while let Ok(piece) = body.next().await {
                if let Piece::Message(text) = piece {
                    self.deliver(text).await;
                }
            }
        };
        // If the server leaves it open, only the connection cannot be used again.
        let _ = timeout(LINGER, rest).await;
    }

    /// Lets the server end a stream that is no longer needed, so that its connection can be used again.
    pub(crate) fn let_end(&self, mut body: ResponseBody) {
        if body.is_stream() {
            self.spawn(async move {
                let _ = timeout(LINGER, async { while body.next().await.is_ok() {} }).await;
            });
        }
    }

    /// Spawns a future that ends with the conversation.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut state = self.state();
        if state.phase != Phase::Closed {
            state.spawn(task);
        }
    }

    /// Answers a running request with an error of our own.
    pub(crate) async fn answer(self: &Arc<Self>, id: &Id, reply: &ErrorReply) {
        self.answer_with(id, reply.to_message(Some(id))).await;
    }

    /// Answers a running request with a whole message.
    pub(crate) async fn answer_with(self: &Arc<Self>, id: &Id, message: Bytes) {
        if self.settle(id) {
            self.emit(Incoming::Message(message)).await;
        }
    }

    pub(crate) async fn emit(&self, incoming: Incoming) {
        let sender = self.state().incoming.clone();
        if let Some(sender) = sender {
            // It fails if the caller has stopped listening.
            let _ = sender.send(incoming).await;
        }
    }

    pub(crate) fn is_running(&self, id: &Id) -> bool {
        self.state().running.contains_key(id)
    }

    /// Ends the wait for an answer and starts a waiting request. Returns false if the request was not running.
    pub(crate) fn settle(self: &Arc<Self>, id: &Id) -> bool {
        let mut state = self.state();
        let was_running = state.running.remove(id).is_some();
        if was_running && !state.waiting.is_empty() {
            self.start_waiting(&mut state);
        }
        was_running
    }

    /// A notification or response was posted. Starts a waiting one.
    pub(crate) fn note_posted(self: &Arc<Self>) {
        let mut state = self.state();
        state.notes = state.notes.saturating_sub(1);
        if !state.waiting.is_empty() {
            self.start_waiting(&mut state);
        }
    }

    /// The cancellation of a request was sent to the server.
    pub(crate) fn cancel(&self, id: &Id) {
        self.state().cancel(id);
    }

    /// Ends the conversation because the server is lost. `Lost` is the last message that the caller gets.
    pub(crate) fn lose(&self, reason: String) {
        let mut state = self.state();
        let Some(incoming) = state.incoming.take() else { return };
        state.end();
        let mut tasks = std::mem::take(&mut state.tasks);
        state.spawn(async move {
            tasks.shutdown().await;
            let _ = incoming.send(Incoming::Lost(reason)).await;
        });
    }

    /// Ends the conversation. Returns the session if it has to be ended at the server.
    pub(crate) fn close(&self) -> Option<Arc<Session>> {
        let mut state = self.state();
        state.end();
        state.incoming = None;
        state.tasks.abort_all();
        let session = std::mem::take(&mut state.session);
        session.id.is_some().then_some(session)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Enters the next phase, unless the conversation is closed.
    fn enter(self: &Arc<Self>, state: &mut State, phase: Phase) {
        if state.phase == Phase::Closed {
            return;
        }
        state.phase = phase;
        if phase == Phase::Ready {
            if let Some(old) = state.standalone_stream.take() {
                old.abort();
            }
            let listen = match state.modern.clone() {
                Some(modern) => Task::ModernListen { modern },
                None => Task::Listen { session: Arc::clone(&state.session) },
            };
            state.standalone_stream = Some(self.start(state, listen));
        }
        self.start_waiting(state);
    }

    fn start(self: &Arc<Self>, state: &mut State, task: Task) -> AbortHandle {
        state.spawn((self.run_task)(Arc::clone(self), task))
    }

    /// Sends `initialize`. Any other request is answered with an error.
    fn start_greeting(self: &Arc<Self>, state: &mut State, line: Line) {
        match line.request_id().cloned() {
            Some(id) if matches!(line.kind, Kind::Initialize(_)) => {
                state.phase = Phase::Greeting;
                self.start(state, Task::Greet { line, id });
            }
            Some(id) => {
                let conversation = Arc::clone(self);
                let answer = error_replies::not_initialized().to_message(Some(&id));
                state.spawn(async move { conversation.emit(Incoming::Message(answer)).await });
            }
            None => {}
        }
    }

    /// Sends the waiting messages that need not wait any longer. Requests wait while too many run; notifications and
    /// responses overtake them, because a running request may depend on them.
    fn start_waiting(self: &Arc<Self>, state: &mut State) {
        while state.phase.is_open() {
            let takes_requests = state.running.len() < MAX_RUNNING;
            let takes_notes = state.notes < MAX_NOTES;
            let may_go = |line: &Line| if line.request_id().is_some() { takes_requests } else { takes_notes };
            let Some(index) = state.waiting.iter().position(may_go) else { return };
            let Some(line) = state.waiting.remove(index) else { return };
            if let Some(modern) = state.modern.clone() {
                self.start_modern(state, modern, line);
            } else if matches!(line.kind, Kind::Initialized) {
                state.initialized = Some(line.text.clone());
                state.phase = Phase::Settling;
                let session = Arc::clone(&state.session);
                self.start(state, Task::Settle { session, line });
            } else {
                self.start_exchange(state, line);
            }
        }
    }

    fn start_exchange(self: &Arc<Self>, state: &mut State, line: Line) {
        let cancelled = line.request_id().map(|id| state.run(id));
        if cancelled.is_none() {
            state.notes += 1;
        }
        let turn = state.next_turn();
        let session = Arc::clone(&state.session);
        self.start(state, Task::Exchange { session, line, turn, cancelled });
    }

    /// A server of the modern revision takes only requests. All other messages are handled here or dropped.
    fn start_modern(self: &Arc<Self>, state: &mut State, modern: Arc<Modern>, line: Line) {
        match &line.kind {
            Kind::Initialize(id) | Kind::Request(id) => {
                let cancelled = state.run(id);
                let turn = state.next_turn();
                self.start(state, Task::ModernCall { modern, line, turn, cancelled });
            }
            Kind::Initialized if state.phase == Phase::Greeted => self.enter(state, Phase::Ready),
            Kind::Cancellation(id) => state.cancel(id),
            Kind::Response(id) => {
                let id = id.clone();
                modern.questions.answer(&id, line);
            }
            Kind::Initialized | Kind::Notification => {
                tracing::debug!("dropping a notification that the MCP server's revision does not have");
            }
        }
    }
}

impl State {
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        // Removes the tasks that have ended.
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(task)
    }

    /// Registers a request that starts. The receiver resolves when it is cancelled.
    fn run(&mut self, id: &Id) -> oneshot::Receiver<()> {
        let (cancel, cancelled) = oneshot::channel();
        self.running.insert(id.clone(), Some(cancel));
        cancelled
    }

    fn cancel(&mut self, id: &Id) {
        if let Some(cancelled) = self.running.get_mut(id).and_then(Option::take) {
            // It fails if the call has just ended.
            let _ = cancelled.send(());
        }
    }

    fn next_turn(&mut self) -> Turn {
        let (begun, after) = oneshot::channel();
        Turn { before: self.last_begun.replace(after), _begun: begun }
    }

    /// Drops a waiting request and its cancellation, so that neither is posted. Returns false if `line` cancels no
    /// waiting request.
    fn withdraw(&mut self, line: &Line) -> bool {
        let Kind::Cancellation(cancelled) = &line.kind else { return false };
        let index = self.waiting.iter().position(|waiting| waiting.request_id() == Some(cancelled));
        index.and_then(|index| self.waiting.remove(index)).is_some()
    }

    fn end(&mut self) {
        self.phase = Phase::Closed;
        self.waiting.clear();
        self.running.clear();
        self.last_begun = None;
    }
}
