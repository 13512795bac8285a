//! `ringfence stdio`: the same session, with one client on stdin and stdout instead of HTTP.

use std::sync::Arc;

use bytes::Bytes;
use session::{
    Caller, Contexts, EndReason, Instance, Lifecycle, Next, Principal, Session, Sessions, Settings,
    StreamReader, WorkspaceChoice,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use wire::{Body, ErrorReply, LineBuffer, Message, MessageError, Request, code, method};

use crate::arguments::ServerTask;
use crate::assembly::Assembly;
use crate::configuration_file::ConfigurationFile;
use crate::error::Failure;
use crate::{logging, signals};

/// Lines that wait for the client to read them.
pub(crate) const OUTPUT_LINES: usize = 256;

pub(crate) fn run(task: ServerTask) -> Result<(), Failure> {
    logging::start(task.upstream.log);
    let assembly = match ConfigurationFile::of(&task)? {
        // The one client is on this machine.
        Some(file) => Assembly::of_configuration(&task, &file.configuration, true)?.0,
        None => Assembly::new(&task, Lifecycle::Session)?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve(task, assembly));
    // A read of stdin may still be under way on a thread of its own; it cannot be interrupted.
    runtime.shutdown_background();
    served
}

async fn serve(task: ServerTask, assembly: Assembly) -> Result<(), Failure> {
    let Assembly { offer, rules, package } = assembly;
    let audit = task.audit_log()?;
    let stop = signals::stop_requested()?;
    session::adopt_orphans()?;
    let sessions =
        Sessions::new(offer, Settings { has_many_streams: false, ..task.settings() }, rules, audit.clone());
    tokio::spawn(Arc::clone(&sessions).watch());
    let (output, lines) = mpsc::channel(OUTPUT_LINES);
    let writer = tokio::spawn(write_lines(lines));
    let client = Client::new(&sessions, output, None);
    tokio::select! {
        () = client.read(task.upstream.max_message_bytes) => {}
        () = stop => {}
    }
    sessions.shut_down(std::time::Duration::ZERO).await;
    let _ = writer.await;
    drop(package);
    if let Some(audit) = audit {
        let _ = tokio::task::spawn_blocking(move || audit.close()).await;
    }
    Ok(())
}

pub(crate) async fn write_lines(mut lines: mpsc::Receiver<Bytes>) {
    let mut stdout = tokio::io::stdout();
    while let Some(line) = lines.recv().await {
        let written = async {
            stdout.write_all(&line).await?;
            stdout.write_all(b"\n").await?;
            if lines.is_empty() { stdout.flush().await } else { Ok(()) }
        };
        if written.await.is_err() {
            return;
        }
    }
}

/// The one client, and its session once it has one.
pub(crate) struct Client {
    sessions: Arc<Sessions>,
    output: mpsc::Sender<Bytes>,
    /// Where it works, if that is known without asking it.
    workspace: Option<WorkspaceChoice>,
    session: Option<Arc<Session>>,
    /// Told of the session once there is one.
    opened: watch::Sender<Option<Arc<Session>>>,
}

impl Client {
    pub(crate) fn new(
        sessions: &Arc<Sessions>,
        output: mpsc::Sender<Bytes>,
        workspace: Option<WorkspaceChoice>,
    ) -> Self {
        let sessions = Arc::clone(sessions);
        Self { sessions, output, workspace, session: None, opened: watch::Sender::default() }
    }

    /// Tells of the session that the client has now.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<Arc<Session>>> {
        self.opened.subscribe()
    }

    /// The client is gone.
    pub(crate) async fn leave(self) {
        if let Some(session) = self.session {
            session.end(EndReason::Deleted).await;
        }
    }

    /// Takes messages until stdin ends.
    pub(crate) async fn read(mut self, limit: usize) {
        let mut stdin = tokio::io::stdin();
        let mut lines = LineBuffer::new(limit);
        while let Ok(1..) = stdin.read_buf(lines.space()).await {
            while let Some(line) = lines.next_line() {
                match line {
                    Ok(line) if line.is_empty() => {}
                    Ok(line) => self.take(line).await,
                    Err(too_long) => self.refuse(&too_long.to_string()).await,
                }
            }
        }
        self.leave().await;
    }

    async fn refuse(&self, reason: &str) {
        let error = ErrorReply::new(code::INVALID_REQUEST, reason);
        let _ = self.output.send(error.to_message(None)).await;
    }

    pub(crate) async fn take(&mut self, line: Bytes) {
        match Body::parse(line) {
            Ok(Body::Single(message)) => self.take_message(message).await,
            Ok(Body::Batch(_)) => self.refuse("batches are not taken on stdio").await,
            Err(MessageError { code, reason, id }) => {
                let _ = self.output.send(ErrorReply::new(code, reason).to_message(id.as_ref())).await;
            }
        }
    }

    async fn take_message(&mut self, message: Message) {
        // A client may begin anew after its session ended.
        let session =
            self.session.as_ref().filter(|session| !session.has_ended() || !is_initialize(&message));
        match (message, session) {
            (Message::Request(request), None) if request.method == method::INITIALIZE => {
                self.open(request).await;
            }
            (Message::Request(request), Some(session)) => {
                let id = request.id.clone();
                match session.call(request) {
                    Ok(reader) => drop(tokio::spawn(forward(reader, self.output.clone()))),
                    Err(refusal) => drop(self.output.send(refusal.reply().to_message(Some(&id))).await),
                }
            }
            (Message::Request(request), None) => {
                let error = ErrorReply::new(code::INVALID_REQUEST, "begin with initialize");
                let _ = self.output.send(error.to_message(Some(&request.id))).await;
            }
            (Message::Notification(notification), Some(session)) => {
                if let Err(refusal) = session.notify(&notification).await {
                    // There is nobody to answer; every later request is.
                    tracing::warn!("{refusal}");
                }
            }
            (Message::Response(response), Some(session)) => session.answer(&response),
            (Message::Notification(_) | Message::Response(_), None) => {}
        }
    }

    async fn open(&mut self, request: Request) {
        let id = request.id.clone();
        let caller = Caller {
            principal: Principal::anonymous(),
            instance: std::env::var("INSTANCE_ID").ok().as_deref().and_then(Instance::named),
            workspace: self.workspace.clone(),
            contexts: Contexts::default(),
        };
        let answer = match self.sessions.open(caller, request).await {
            Ok((session, answer)) => {
                if let Ok(reader) = session.listen(Some(session.instance()), None) {
                    tokio::spawn(forward(reader, self.output.clone()));
                }
                self.opened.send_replace(Some(Arc::clone(&session)));
                self.session = Some(session);
                answer.into_bytes()
            }
            Err(refusal) => refusal.reply().to_message(Some(&id)),
        };
        let _ = self.output.send(answer).await;
    }
}

fn is_initialize(message: &Message) -> bool {
    matches!(message, Message::Request(request) if request.method == method::INITIALIZE)
}

/// Copies one stream to the output, to its end.
async fn forward(mut reader: StreamReader, output: mpsc::Sender<Bytes>) {
    while let Next::Message(delivery) = reader.next().await {
        let is_last = delivery.is_answer;
        if output.send(delivery.text.into_bytes()).await.is_err() || is_last {
            return;
        }
    }
}
