//! The state of one conversation: which phase it is in, what waits for the next one, which calls run.
//!
//! Every task of a connection is in one set here, so that ending the conversation ends them all. The lock is held
//! for moments only and never while something is awaited.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use wire::{ErrorReply, Id, Malformed, Message};

use crate::http::answer::{Answer, LINGER, Piece};
use crate::http::client::{EndpointError, Http, Session};
use crate::http::line::{Held, Kind, Line, Load};
use crate::http::modern::{self, Modern};
use crate::http::{Endpoint, Incoming, call, error_answers, greeting, standalone_stream};

/// Requests that run at the same time; more wait. Each may need a connection of its own.
const MAX_RUNNING: usize = 128;
/// Other messages that are posted at the same time. The server takes them at once, so few connections do.
const MAX_NOTES: usize = 16;
/// Messages that wait for our user. When it is full, we stop reading from the server.
const INCOMING_QUEUE: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing was said yet, or the server refused `initialize`.
    Fresh,
    /// `initialize` is under way.
    Greeting,
    /// `initialize` was answered.
    Greeted,
    /// `notifications/initialized` is under way.
    Settling,
    Ready,
    /// The server forgot the session and is being greeted again.
    Renewing,
    Closed,
}

impl Phase {
    /// Whether messages go out, or wait.
    fn is_open(self) -> bool {
        matches!(self, Self::Greeted | Self::Ready)
    }
}

pub(crate) struct Conversation {
    /// The error says why nothing can be sent at all.
    pub(crate) http: Result<Http, EndpointError>,
    pub(crate) max_message: usize,
    load: Arc<Load>,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    session: Arc<Session>,
    /// Of a server that speaks only the newer revision, which has no sessions.
    modern: Option<Arc<Modern>>,
    /// What the server was greeted with, to do it again.
    initialize: Option<Bytes>,
    initialized: Option<Bytes>,
    /// In the order in which it was sent. Its length is bounded by the load.
    waiting: VecDeque<Line>,
    /// Requests that were posted and not answered yet. The sender tells the call that it was cancelled.
    running: HashMap<Id, Option<oneshot::Sender<()>>>,
    /// How many messages that want no answer are being posted.
    notes: usize,
    /// Resolves when the POST of the line before has begun.
    last_begun: Option<oneshot::Receiver<()>>,
    standalone_stream: Option<AbortHandle>,
    tasks: JoinSet<()>,
    /// `None` once the conversation is over.
    incoming: Option<mpsc::Sender<Incoming>>,
}

/// What became of a message from the server.
#[derive(Debug)]
pub(crate) enum Delivered {
    /// It was the answer to this request.
    Answer(Id),
    /// It was something else, or nobody waits for it.
    Other,
    Malformed(Malformed),
}

/// The place of a line in the order of sending.
#[derive(Debug)]
pub(crate) struct Turn {
    before: Option<oneshot::Receiver<()>>,
    /// Dropped when the POST has begun: the next line may go.
    _begun: oneshot::Sender<()>,
}

impl Turn {
    pub(crate) async fn wait(&mut self) {
        if let Some(before) = self.before.take() {
            // It never sends anything: its end is the signal.
            let _ = before.await;
        }
    }
}

impl Conversation {
    pub(crate) fn new(endpoint: Endpoint) -> (Arc<Self>, mpsc::Receiver<Incoming>) {
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
            load: Arc::default(),
            state: Mutex::new(state),
        });
        (conversation, receiver)
    }

    /// Takes one message of our user. False: there is too much, or the conversation is over.
    pub(crate) fn send(self: &Arc<Self>, text: &[u8]) -> bool {
        let Some(held) = Held::take(&self.load, text.len()) else { return false };
        let line = match Line::new(text, held) {
            Ok(line) => line,
            Err(malformed) => {
                tracing::warn!(reason = %malformed, "a message that is none was not sent to the MCP server");
                return true;
            }
        };
        let mut state = self.state();
        let phase = state.phase;
        match phase {
            Phase::Closed => return false,
            Phase::Fresh => self.begin_greeting(&mut state, line),
            _ if state.withdraw(&line) => {}
            _ => {
                state.waiting.push_back(line);
                self.begin_waiting(&mut state);
            }
        }
        true
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.state().session)
    }

    /// What the server was greeted with.
    pub(crate) fn greeting_lines(&self) -> (Option<Bytes>, Option<Bytes>) {
        let state = self.state();
        (state.initialize.clone(), state.initialized.clone())
    }

    /// The server answered `initialize`, or `modern` is how it is spoken to without.
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

    /// The server refused `initialize`: what waits for the greeting waits in vain.
    pub(crate) fn not_greeted(self: &Arc<Self>) {
        let mut state = self.state();
        self.enter(&mut state, Phase::Fresh);
        for line in std::mem::take(&mut state.waiting) {
            self.begin_greeting(&mut state, line);
        }
    }

    /// The server knows that it was greeted: calls may go out, and it may speak unasked.
    pub(crate) fn settled(self: &Arc<Self>) {
        let mut state = self.state();
        self.enter(&mut state, Phase::Ready);
    }

    /// The server was greeted again and `Renewed` was emitted.
    pub(crate) fn renewed(self: &Arc<Self>, session: Session) {
        let mut state = self.state();
        state.session = Arc::new(session);
        self.enter(&mut state, Phase::Ready);
    }

    /// The server no longer knows `forgotten`: greets it again unless that was done or is being done, and sends `line`
    /// once more after that.
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
            state.spawn(greeting::renew(Arc::clone(self)));
        }
        self.begin_waiting(&mut state);
    }

    /// Passes a message of the server on. An answer is passed on once, and only if somebody waits for it.
    pub(crate) async fn deliver(self: &Arc<Self>, text: Bytes) -> Delivered {
        let answered = match Message::parse(text.clone()) {
            Ok(Message::Response(response)) if !self.settle(&response.id) => {
                tracing::debug!(id = ?response.id, "nobody waits for this answer of the MCP server");
                return Delivered::Other;
            }
            Ok(Message::Response(response)) => Some(response.id),
            Ok(Message::Request(_) | Message::Notification(_)) => None,
            Err(malformed) => {
                tracing::warn!(reason = %malformed, "the MCP server sent something that is no message");
                return Delivered::Malformed(malformed);
            }
        };
        self.emit(Incoming::Message(text)).await;
        answered.map_or(Delivered::Other, Delivered::Answer)
    }

    /// Passes on what still comes after an answer, until the server ends the body.
    pub(crate) async fn deliver_rest(self: &Arc<Self>, mut answer: Answer) {
        let rest = async {
            while let Ok(piece) = answer.next().await {
                if let Piece::Message(text) = piece {
                    self.deliver(text).await;
                }
            }
        };
        // A server that leaves it open costs us the connection and nothing else.
        let _ = timeout(LINGER, rest).await;
    }

    /// Lets the server end a stream of which we need no more, so that its connection can be used again.
    pub(crate) fn let_end(&self, mut answer: Answer) {
        if answer.is_stream() {
            self.spawn(async move {
                let _ = timeout(LINGER, async { while answer.next().await.is_ok() {} }).await;
            });
        }
    }

    /// Runs a task that ends with the conversation.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut state = self.state();
        if state.phase != Phase::Closed {
            state.spawn(task);
        }
    }

    /// Answers a running request in the server's place.
    pub(crate) async fn answer(self: &Arc<Self>, id: &Id, reply: &ErrorReply) {
        self.answer_with(id, reply.to_message(Some(id))).await;
    }

    /// The same with a whole message.
    pub(crate) async fn answer_with(self: &Arc<Self>, id: &Id, message: Bytes) {
        if self.settle(id) {
            self.emit(Incoming::Message(message)).await;
        }
    }

    pub(crate) async fn emit(&self, incoming: Incoming) {
        let sender = self.state().incoming.clone();
        if let Some(sender) = sender {
            // It fails when our user has stopped listening, who then does not miss it.
            let _ = sender.send(incoming).await;
        }
    }

    pub(crate) fn is_running(&self, id: &Id) -> bool {
        self.state().running.contains_key(id)
    }

    /// Ends the wait for an answer; false if nobody waited. A waiting request may take the place.
    pub(crate) fn settle(self: &Arc<Self>, id: &Id) -> bool {
        let mut state = self.state();
        let was_running = state.running.remove(id).is_some();
        if was_running && !state.waiting.is_empty() {
            self.begin_waiting(&mut state);
        }
        was_running
    }

    /// A message that wants no answer is out. A waiting one may take the place.
    pub(crate) fn note_posted(self: &Arc<Self>) {
        let mut state = self.state();
        state.notes = state.notes.saturating_sub(1);
        if !state.waiting.is_empty() {
            self.begin_waiting(&mut state);
        }
    }

    /// The server was told that the call is cancelled.
    pub(crate) fn cancel(&self, id: &Id) {
        self.state().cancel(id);
    }

    /// Ends the conversation because of the server. `Lost` is the last thing that our user hears.
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

    /// Ends the conversation. The session, if the server should be told of its end.
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

    /// Goes on to the next phase, unless all is over.
    fn enter(self: &Arc<Self>, state: &mut State, phase: Phase) {
        if state.phase == Phase::Closed {
            return;
        }
        state.phase = phase;
        if phase == Phase::Ready {
            if let Some(old) = state.standalone_stream.take() {
                old.abort();
            }
            let stream = if let Some(modern) = state.modern.clone() {
                state.spawn(modern::listen::run(Arc::clone(self), modern))
            } else {
                let session = Arc::clone(&state.session);
                state.spawn(standalone_stream::listen(Arc::clone(self), session))
            };
            state.standalone_stream = Some(stream);
        }
        self.begin_waiting(state);
    }

    fn begin_greeting(self: &Arc<Self>, state: &mut State, line: Line) {
        match line.request_id().cloned() {
            Some(id) if matches!(line.kind, Kind::Initialize(_)) => {
                state.phase = Phase::Greeting;
                state.spawn(greeting::greet(Arc::clone(self), line, id));
            }
            Some(id) => {
                let conversation = Arc::clone(self);
                let answer = error_answers::not_initialized().to_message(Some(&id));
                state.spawn(async move { conversation.emit(Incoming::Message(answer)).await });
            }
            None => {}
        }
    }

    /// Begins everything that need not wait any longer. Requests wait for each other when too many run; other
    /// messages overtake them, because the running ones may depend on them.
    fn begin_waiting(self: &Arc<Self>, state: &mut State) {
        while state.phase.is_open() {
            let takes_requests = state.running.len() < MAX_RUNNING;
            let takes_notes = state.notes < MAX_NOTES;
            let may_go = |line: &Line| if line.request_id().is_some() { takes_requests } else { takes_notes };
            let Some(index) = state.waiting.iter().position(may_go) else { return };
            let Some(line) = state.waiting.remove(index) else { return };
            if let Some(modern) = state.modern.clone() {
                self.begin_modern(state, modern, line);
            } else if matches!(line.kind, Kind::Initialized) {
                state.initialized = Some(line.text.clone());
                state.phase = Phase::Settling;
                state.spawn(greeting::settle(Arc::clone(self), Arc::clone(&state.session), line));
            } else {
                self.begin(state, line);
            }
        }
    }

    fn begin(self: &Arc<Self>, state: &mut State, line: Line) {
        let cancelled = line.request_id().map(|id| state.run(id));
        if cancelled.is_none() {
            state.notes += 1;
        }
        let turn = state.next_turn();
        let session = Arc::clone(&state.session);
        state.spawn(call::run(Arc::clone(self), session, line, turn, cancelled));
    }

    /// A server of the newer revision hears requests only: everything else is meant for us, or for nobody.
    fn begin_modern(self: &Arc<Self>, state: &mut State, modern: Arc<Modern>, line: Line) {
        match &line.kind {
            Kind::Initialize(id) | Kind::Request(id) => {
                let cancelled = state.run(id);
                let turn = state.next_turn();
                state.spawn(modern::call::run(Arc::clone(self), modern, line, turn, cancelled));
            }
            Kind::Initialized if state.phase == Phase::Greeted => self.enter(state, Phase::Ready),
            Kind::Cancellation(id) => state.cancel(id),
            Kind::Response(id) => {
                let id = id.clone();
                modern.questions.answer(&id, line);
            }
            Kind::Initialized | Kind::Notification => {
                tracing::debug!("a notification that the MCP server's revision does not know is dropped");
            }
        }
    }
}

impl State {
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        // What has ended is only remembered until someone looks.
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(task)
    }

    /// Takes note of a request that begins. The receiver hears of its cancellation.
    fn run(&mut self, id: &Id) -> oneshot::Receiver<()> {
        let (cancel, cancelled) = oneshot::channel();
        self.running.insert(id.clone(), Some(cancel));
        cancelled
    }

    fn cancel(&mut self, id: &Id) {
        if let Some(told) = self.running.get_mut(id).and_then(Option::take) {
            // The call may have ended by itself.
            let _ = told.send(());
        }
    }

    fn next_turn(&mut self) -> Turn {
        let (begun, after) = oneshot::channel();
        Turn { before: self.last_begun.replace(after), _begun: begun }
    }

    /// A cancellation of a request that was not posted yet: neither is.
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
