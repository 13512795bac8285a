//! How a worker talks to its upstream: lines out, lines in, an end. A process, a URL and the client's machine
//! differ here and nowhere above.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use outbound::Incoming;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};

use crate::attachment::Channel;
use crate::process::{Exit, Process, Urgency, read_stdout};

#[derive(Debug)]
pub(crate) struct Connection {
    kind: Kind,
    pub(crate) started: Instant,
}

#[derive(Debug)]
enum Kind {
    Process(Process),
    Http { client: Arc<outbound::Connection>, lost: watch::Sender<Option<End>> },
    Attached { channel: Channel, lost: watch::Sender<Option<End>> },
}

/// Where what the upstream says comes from.
pub(crate) enum Inbox {
    Stdout(pipe::Receiver),
    Http(mpsc::Receiver<Incoming>),
    Attached(mpsc::Receiver<Bytes>),
}

/// What the upstream's side has to say.
pub(crate) enum Heard {
    Line(Result<Bytes, wire::LineTooLong>),
    /// It has forgotten us and was greeted again.
    Renewed,
}

/// How an upstream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Exited(Exit),
    /// It is elsewhere, and cannot be reached any more.
    Lost(String),
}

impl End {
    pub(crate) fn exit(&self) -> Option<Exit> {
        match self {
            Self::Exited(exit) => Some(*exit),
            Self::Lost(_) => None,
        }
    }
}

impl fmt::Display for End {
    /// As a phrase that follows "the MCP server".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(exit) => exit.fmt(f),
            Self::Lost(reason) => write!(f, "was lost ({reason})"),
        }
    }
}

impl Connection {
    pub(crate) fn process(process: Process, stdout: pipe::Receiver) -> (Arc<Self>, Inbox) {
        (Self::new(Kind::Process(process)), Inbox::Stdout(stdout))
    }

    pub(crate) fn http(endpoint: outbound::Endpoint) -> (Arc<Self>, Inbox) {
        let (client, incoming) = outbound::Connection::open(endpoint);
        (Self::new(Kind::Http { client, lost: watch::Sender::default() }), Inbox::Http(incoming))
    }

    pub(crate) fn attached(channel: Channel, incoming: mpsc::Receiver<Bytes>) -> (Arc<Self>, Inbox) {
        (Self::new(Kind::Attached { channel, lost: watch::Sender::default() }), Inbox::Attached(incoming))
    }

    fn new(kind: Kind) -> Arc<Self> {
        Arc::new(Self { kind, started: Instant::now() })
    }

    /// Hears the upstream out, to its end.
    pub(crate) async fn listen(&self, inbox: Inbox, limit: usize, mut each: impl FnMut(Heard)) {
        match inbox {
            Inbox::Stdout(stdout) => read_stdout(stdout, limit, |line| each(Heard::Line(line))).await,
            Inbox::Http(mut incoming) => {
                let mut reason = "the connection was closed".to_owned();
                while let Some(message) = incoming.recv().await {
                    match message {
                        Incoming::Message(line) => each(Heard::Line(Ok(line))),
                        Incoming::Renewed => each(Heard::Renewed),
                        Incoming::Lost(why) => reason = why,
                    }
                }
                self.lose(reason);
            }
            Inbox::Attached(mut incoming) => {
                while let Some(line) = incoming.recv().await {
                    each(Heard::Line(Ok(line)));
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
    pub(crate) fn pid(&self) -> Option<i32> {
        match &self.kind {
            Kind::Process(process) => Some(process.pid()),
            Kind::Http { .. } | Kind::Attached { .. } => None,
        }
    }

    /// What holds around it, in one line.
    pub(crate) fn confinement(&self) -> Option<&str> {
        match &self.kind {
            Kind::Process(process) => process.confinement.as_deref(),
            Kind::Http { .. } | Kind::Attached { .. } => None,
        }
    }

    pub(crate) fn send(&self, line: &[u8]) {
        self.send_call(line, Urgency::Now);
    }

    /// Sends a call. False: the upstream does not read, and too much waits already.
    pub(crate) fn send_call(&self, line: &[u8], urgency: Urgency) -> bool {
        match &self.kind {
            Kind::Process(process) => process.send_call(line, urgency),
            Kind::Http { client, .. } => client.send(line),
            Kind::Attached { channel, .. } => channel.send(line),
        }
    }

    /// The id of the session at the other end, if there is one.
    pub(crate) fn session_id(&self) -> Option<String> {
        match &self.kind {
            Kind::Http { client, .. } => client.session_id(),
            Kind::Process(_) | Kind::Attached { .. } => None,
        }
    }

    pub(crate) fn stderr_tail(&self) -> String {
        match &self.kind {
            Kind::Process(process) => process.stderr_tail(),
            Kind::Http { .. } | Kind::Attached { .. } => String::new(),
        }
    }

    pub(crate) fn has_ended(&self) -> Option<End> {
        match &self.kind {
            Kind::Process(process) => process.has_exited().map(End::Exited),
            Kind::Http { lost, .. } | Kind::Attached { lost, .. } => lost.borrow().clone(),
        }
    }

    pub(crate) async fn ended(&self) -> End {
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
    pub(crate) async fn end(&self, grace: Duration) {
        match &self.kind {
            Kind::Process(process) => process.end(grace).await,
            Kind::Http { .. } | Kind::Attached { .. } => self.kill().await,
        }
    }

    /// Ends what is left, at once.
    pub(crate) async fn kill(&self) {
        match &self.kind {
            Kind::Process(process) => process.kill().await,
            Kind::Http { client, .. } => client.close().await,
            Kind::Attached { channel, .. } => channel.close(),
        }
        self.lose("it was ended".to_owned());
    }
}
