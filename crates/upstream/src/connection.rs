//! How a worker talks to its upstream: lines out, lines in, an end. A process, a URL and the client's machine
//! differ here and nowhere above.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::unix::pipe;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::attachment::{Attachment, Channel};
use crate::definition::{Lifecycle, Program, Transport, Upstream};
use crate::directories::Directories;
use crate::end::End;
use crate::http::{self, Incoming};
use crate::outbox::Urgency;
use crate::process::{Process, read_stdout};
use crate::start_error::StartError;
use crate::worker_fence::FenceSlot;
use crate::worker_variables::Owner;

#[derive(Debug)]
pub struct Connection {
    kind: Kind,
    pub started: Instant,
}

#[derive(Debug)]
enum Kind {
    Process(Process),
    Http { client: Arc<http::Connection>, lost: watch::Sender<Option<End>> },
    Attached { channel: Channel, lost: watch::Sender<Option<End>> },
}

/// The upstream's end of a connection: what [`Connection::listen`] reads.
#[derive(Debug)]
pub struct Inbox(Source);

#[derive(Debug)]
enum Source {
    Stdout(pipe::Receiver),
    Http(mpsc::Receiver<Incoming>),
    Attached(mpsc::Receiver<Bytes>),
}

/// What the upstream's side has to say.
#[derive(Debug)]
pub enum Received {
    Line(Result<Bytes, wire::LineTooLong>),
    /// It has forgotten us and was greeted again.
    Renewed,
}

/// What it takes to open one connection.
#[derive(Debug)]
pub struct Opening<'a> {
    pub upstream: &'a Upstream,
    pub directories: &'a Arc<Directories>,
    /// The session that the server runs for, unless several share it.
    pub owner: Option<Owner>,
    /// The client's machine, if it is connected.
    pub attachment: Option<Arc<Attachment>>,
    /// The fence that all generations of one worker run in.
    pub fence: &'a FenceSlot,
    /// Where the state of a server that keeps some outlives the gateway.
    pub state: Option<PathBuf>,
    /// Held while a process is launched, where launches are to take turns.
    pub turns: Option<&'a Semaphore>,
    /// Longest message that the server may send.
    pub max_message: usize,
    pub connect_timeout: Duration,
}

impl Opening<'_> {
    /// Starts the process, or reaches the server.
    pub async fn open(self) -> Result<(Arc<Connection>, Inbox), StartError> {
        match &self.upstream.transport {
            Transport::Process(program) => self.start_process(program).await,
            Transport::Http(address) => Ok(Connection::http(http::Endpoint {
                url: address.url.clone(),
                headers: address.headers.clone(),
                max_message: self.max_message,
                connect_timeout: self.connect_timeout,
            })),
            Transport::Attached => {
                let channel = self.attachment.and_then(|attachment| attachment.open(&self.upstream.name));
                let (channel, lines) = channel.ok_or(StartError::NotAttached)?;
                Ok(Connection::attached(channel, lines))
            }
        }
    }

    /// Starts the program inside the worker's fence, or without one if the operator wants none.
    async fn start_process(&self, program: &Program) -> Result<(Arc<Connection>, Inbox), StartError> {
        let (name, redaction) = (&self.upstream.name, self.upstream.redaction.clone());
        let mut program = program.prepared().await?;
        // Nothing comes after a server that is there for one call.
        program.keeps_state &= self.upstream.lifecycle != Lifecycle::Call;
        let (process, stdout) = match program.fence.clone() {
            None => Process::spawn(name, redaction, &program, self.directories, self.owner.as_ref())?,
            Some(host) => {
                let fence =
                    self.fence.get_or_new(&host, self.directories, self.owner.clone(), self.state.clone());
                let turn = match self.turns {
                    Some(turns) => turns.acquire().await.ok(),
                    None => None,
                };
                let launched = fence.launch(program).await?;
                drop(turn);
                self.fence.keep(fence);
                Process::adopt(name, redaction, launched, self.directories)
                    .map_err(|error| StartError::spawn(name.as_ref(), &error))?
            }
        };
        Ok(Connection::process(process, stdout))
    }
}

impl Connection {
    fn process(process: Process, stdout: pipe::Receiver) -> (Arc<Self>, Inbox) {
        (Self::new(Kind::Process(process)), Inbox(Source::Stdout(stdout)))
    }

    fn http(endpoint: http::Endpoint) -> (Arc<Self>, Inbox) {
        let (client, incoming) = http::Connection::open(endpoint);
        (Self::new(Kind::Http { client, lost: watch::Sender::default() }), Inbox(Source::Http(incoming)))
    }

    fn attached(channel: Channel, incoming: mpsc::Receiver<Bytes>) -> (Arc<Self>, Inbox) {
        let kind = Kind::Attached { channel, lost: watch::Sender::default() };
        (Self::new(kind), Inbox(Source::Attached(incoming)))
    }

    fn new(kind: Kind) -> Arc<Self> {
        Arc::new(Self { kind, started: Instant::now() })
    }

    /// Hears the upstream out, to its end.
    pub async fn listen(&self, inbox: Inbox, limit: usize, mut each: impl FnMut(Received)) {
        match inbox.0 {
            Source::Stdout(stdout) => read_stdout(stdout, limit, |line| each(Received::Line(line))).await,
            Source::Http(mut incoming) => {
                let mut reason = "the connection was closed".to_owned();
                while let Some(message) = incoming.recv().await {
                    match message {
                        Incoming::Message(line) => each(Received::Line(Ok(line))),
                        Incoming::Renewed => each(Received::Renewed),
                        Incoming::Lost(why) => reason = why,
                    }
                }
                self.lose(reason);
            }
            Source::Attached(mut incoming) => {
                while let Some(line) = incoming.recv().await {
                    each(Received::Line(Ok(line)));
                }
                self.lose("the client's machine is not connected".to_owned());
            }
        }
    }

    fn lose(&self, reason: String) {
        if let Kind::Http { lost, .. } | Kind::Attached { lost, .. } = &self.kind {
            lost.send_if_modified(|end| {
                let is_first = end.is_none();
                end.get_or_insert(End::Lost(reason));
                is_first
            });
        }
    }

    /// The process to look at from outside, if it is on this machine.
    pub fn pid(&self) -> Option<i32> {
        match &self.kind {
            Kind::Process(process) => Some(process.pid()),
            Kind::Http { .. } | Kind::Attached { .. } => None,
        }
    }

    /// What holds around it, in one line.
    pub fn confinement(&self) -> Option<&str> {
        match &self.kind {
            Kind::Process(process) => process.confinement.as_deref(),
            Kind::Http { .. } | Kind::Attached { .. } => None,
        }
    }

    pub fn send(&self, line: &[u8]) {
        self.send_call(line, Urgency::Now);
    }

    /// Sends a call. False: the upstream does not read, and too much waits already.
    pub fn send_call(&self, line: &[u8], urgency: Urgency) -> bool {
        match &self.kind {
            Kind::Process(process) => process.send_call(line, urgency),
            Kind::Http { client, .. } => client.send(line),
            Kind::Attached { channel, .. } => channel.send(line),
        }
    }

    /// The id of the session at the other end, if there is one.
    pub fn session_id(&self) -> Option<String> {
        match &self.kind {
            Kind::Http { client, .. } => client.session_id(),
            Kind::Process(_) | Kind::Attached { .. } => None,
        }
    }

    pub fn stderr_tail(&self) -> String {
        match &self.kind {
            Kind::Process(process) => process.stderr_tail(),
            Kind::Http { .. } | Kind::Attached { .. } => String::new(),
        }
    }

    pub fn has_ended(&self) -> Option<End> {
        match &self.kind {
            Kind::Process(process) => process.has_exited().map(End::Exited),
            Kind::Http { lost, .. } | Kind::Attached { lost, .. } => lost.borrow().clone(),
        }
    }

    pub async fn ended(&self) -> End {
        match &self.kind {
            Kind::Process(process) => End::Exited(process.exited().await),
            Kind::Http { lost, .. } | Kind::Attached { lost, .. } => {
                let mut lost = lost.subscribe();
                let end = lost.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
                end.unwrap_or_else(|| End::Lost("it ended".to_owned()))
            }
        }
    }

    /// Ends the upstream in an orderly way; a process with everything it started.
    pub async fn end(&self, grace: Duration) {
        match &self.kind {
            Kind::Process(process) => process.end(grace).await,
            Kind::Http { .. } | Kind::Attached { .. } => self.kill().await,
        }
    }

    /// Ends the upstream at once.
    pub async fn kill(&self) {
        match &self.kind {
            Kind::Process(process) => process.kill().await,
            Kind::Http { client, .. } => client.close().await,
            Kind::Attached { channel, .. } => channel.close(),
        }
        self.lose("it was ended".to_owned());
    }
}
