//! The connection over which the gateway reaches the servers here. It is opened from here, kept open, and opened again
//! when it breaks. What the gateway can start is what is configured here, by name.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use audit::AuditLog;
use bytes::Bytes;
use config::Configuration;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use session::{
    ATTACH_PROTOCOL, Frame, ScopeRules, ServerPlan, ServerSet, Session, Sessions, Settings, Terms,
    WorkspaceChoice,
};
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{Connector, WebSocketStream};

use super::GATEWAY;
use crate::arguments::ServerTask;
use crate::configured::Configured;
use crate::error::Failure;
use crate::stdio::{Client, OUTPUT_LINES};
use crate::text_file;

/// How soon a lost gateway is looked for again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// A gateway that says nothing for so long is gone; it asks every 15 seconds whether we are there.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// Frames that wait for the socket.
const FRAMES: usize = 1024;

/// Conversations that a gateway may have at once.
const MAX_CHANNELS: usize = 256;

/// What is here: the servers that the client's own configuration names for this machine.
pub(super) struct Local {
    pub(super) base: String,
    pub(super) token: Option<String>,
    /// Where other clients of the same user find the session.
    pub(super) session_file: Option<PathBuf>,
    pub(super) configuration: Configuration,
    pub(super) configured: Configured,
    /// The servers for this machine.
    pub(super) plans: Vec<ServerPlan>,
    pub(super) task: ServerTask,
    /// Those that the gateway has begun, by server. They outlive one connection.
    pub(super) channel_sessions: Mutex<HashMap<String, Arc<Sessions>>>,
    pub(super) audit: Option<Arc<AuditLog>>,
}

impl Local {
    /// The names of those that can be started.
    pub(super) fn names(&self) -> Vec<String> {
        let plans = self.plans.iter().filter(|plan| plan.disabled.is_none());
        plans.map(|plan| plan.upstream.name.clone()).collect()
    }

    pub(super) fn terms(&self) -> Terms {
        self.configured.terms(&self.configuration, true)
    }

    /// Lets other clients of this user find the session. The id is a credential: nobody else may read it.
    fn publish(&self, id: &str) {
        let Some(file) = &self.session_file else { return };
        let url = format!("{}/mcp", self.base);
        let text = serde_json::json!({ "url": url, "sessionId": id }).to_string();
        if let Err(error) = text_file::write_private(file, &text) {
            tracing::error!("{} cannot be written: {error}", file.display());
        }
    }

    fn channel_sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<Sessions>>> {
        self.channel_sessions.lock()
    }

    /// Ends what the gateway has begun.
    pub(super) async fn end(&self) {
        let sessions: Vec<_> = self.channel_sessions().values().cloned().collect();
        for sessions in sessions {
            sessions.end_all().await;
        }
    }

    /// The sessions of one server that the gateway opens; none is there that the client's own configuration does not
    /// name.
    fn sessions_of(&self, server: &str) -> Option<Arc<Sessions>> {
        let mut sessions = self.channel_sessions();
        if let Some(found) = sessions.get(server) {
            return Some(Arc::clone(found));
        }
        let can_run = |plan: &&ServerPlan| plan.upstream.name == server && plan.disabled.is_none();
        let mut plan = self.plans.iter().find(can_run)?.clone();
        plan.names = Some(config::NameMode::None);
        let settings = Settings { has_many_streams: false, ..self.task.settings() };
        let offer = ServerSet::Many { servers: vec![plan], terms: self.terms() };
        let made = Sessions::new(offer, settings, self.rules().ok()?, self.audit.clone());
        tokio::spawn(Arc::clone(&made).watch());
        sessions.insert(server.to_owned(), Arc::clone(&made));
        Some(made)
    }

    pub(super) fn rules(&self) -> Result<ScopeRules, Failure> {
        self.task.scope.rules(&self.task.fence.scope, self.configured.host_environment())
    }
}

/// Keeps the session of the client attached for as long as it lasts.
pub(super) async fn keep_attached(local: Arc<Local>, mut opened: watch::Receiver<Option<Arc<Session>>>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Ok(session) = opened.wait_for(Option::is_some).await.map(|session| session.clone()) else {
            return;
        };
        let Some(session) = session else { continue };
        let Some(id) = session.session_id_at(GATEWAY) else {
            if session.scope().is_some() {
                session.try_again(GATEWAY);
            }
            tokio::time::sleep(pause).await;
            pause = longer(pause);
            continue;
        };
        local.publish(&id);
        match attach(&local, &session, &id).await {
            Ok(()) => pause = FIRST_PAUSE,
            Err(error) => {
                tracing::info!("the gateway cannot be attached to: {error}");
                pause = longer(pause);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(LONGEST_PAUSE)
}

/// Carries frames until the connection ends. An error: it never began.
async fn attach(local: &Arc<Local>, session: &Arc<Session>, id: &str) -> Result<(), String> {
    let url = format!("{}/session/{id}/attach", local.base.replacen("http", "ws", 1));
    let mut request = url.into_client_request().map_err(|error| error.to_string())?;
    let headers = request.headers_mut();
    headers.insert("sec-websocket-protocol", HeaderValue::from_static(ATTACH_PROTOCOL));
    if let Some(token) = &local.token {
        let mut value =
            HeaderValue::try_from(format!("Bearer {token}")).map_err(|error| error.to_string())?;
        value.set_sensitive(true);
        headers.insert("authorization", value);
    }
    let longest = local.task.upstream.max_message_bytes + 1024;
    let limits = tungstenite::protocol::WebSocketConfig::default()
        .max_message_size(Some(longest))
        .max_frame_size(Some(longest));
    let tls = upstream::http::tls().map(|tls| Connector::Rustls(Arc::new(tls))).ok();
    let connected = tokio_tungstenite::connect_async_tls_with_config(request, Some(limits), true, tls);
    let connected = tokio::time::timeout(SILENT_FOR, connected).await.map_err(|error| error.to_string())?;
    let (mut socket, _) = connected.map_err(|error| error.to_string())?;
    let offers = serde_json::json!(local.names()).to_string();
    socket.send(Message::Text(offers.into())).await.map_err(|error| error.to_string())?;
    tracing::info!("attached to the gateway");
    let channels = Channels::new(local, session).map_err(|failure| failure.message())?;
    carry(socket, channels).await;
    tracing::info!("the gateway is away");
    Ok(())
}

/// What is being sent never keeps what arrives waiting, or both sides could wait for each other.
async fn carry<S>(socket: WebSocketStream<S>, mut channels: Channels)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let (sink, stream) = socket.split();
    let (toward_gateway, frames) = mpsc::channel::<Frame>(FRAMES);
    tokio::select! {
        () = send(sink, frames) => {}
        () = receive(stream, &mut channels, &toward_gateway) => {}
    }
    channels.end().await;
}

async fn send<S>(mut sink: SplitSink<WebSocketStream<S>, Message>, mut frames: mpsc::Receiver<Frame>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Some(frame) = frames.recv().await {
        if sink.send(Message::Binary(frame.encode())).await.is_err() {
            return;
        }
    }
}

/// Until the gateway says nothing any more. Its pings are answered by reading.
async fn receive<S>(
    mut stream: SplitStream<WebSocketStream<S>>,
    channels: &mut Channels,
    toward_gateway: &mpsc::Sender<Frame>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Ok(Some(Ok(message))) = tokio::time::timeout(SILENT_FOR, stream.next()).await {
        match message {
            Message::Close(_) => return,
            Message::Binary(text) => {
                if let Some(frame) = Frame::decode(&text) {
                    channels.take(frame, toward_gateway);
                }
            }
            _ => {}
        }
    }
}

/// The conversations of the gateway with servers here. Each is a session of its own on one server, in the directories
/// of the client's session.
struct Channels {
    local: Arc<Local>,
    workspace: Option<WorkspaceChoice>,
    open: HashMap<u64, mpsc::Sender<Bytes>>,
}

impl Channels {
    fn new(local: &Arc<Local>, session: &Arc<Session>) -> Result<Self, Failure> {
        local.rules()?;
        let directory =
            session.scope().and_then(|scope| scope.primary().map(|path| path.to_string_lossy().into_owned()));
        Ok(Self {
            local: Arc::clone(local),
            workspace: directory.map(WorkspaceChoice::NamedOrPath),
            open: HashMap::new(),
        })
    }

    fn take(&mut self, frame: Frame, toward_gateway: &mpsc::Sender<Frame>) {
        match frame {
            Frame::Open { channel, server } => self.begin(channel, &server, toward_gateway),
            Frame::Line { channel, line } => {
                let is_full = self.open.get(&channel).is_some_and(|lines| lines.try_send(line).is_err());
                if is_full {
                    self.open.remove(&channel);
                    let _ = toward_gateway.try_send(Frame::Close { channel });
                }
            }
            Frame::Close { channel } => drop(self.open.remove(&channel)),
        }
    }

    fn begin(&mut self, channel: u64, server: &str, toward_gateway: &mpsc::Sender<Frame>) {
        let sessions = self.local.sessions_of(server).filter(|_| self.open.len() < MAX_CHANNELS);
        let Some(sessions) = sessions else {
            let _ = toward_gateway.try_send(Frame::Close { channel });
            return;
        };
        let (lines, incoming) = mpsc::channel(FRAMES);
        self.open.insert(channel, lines);
        let client = Client::new(&sessions, forwarded(channel, toward_gateway), self.workspace.clone());
        tokio::spawn(converse(client, incoming));
    }

    async fn end(self) {
        drop(self.open);
        self.local.end().await;
    }
}

/// Takes what the gateway says on one channel, to its end.
async fn converse(mut client: Client, mut incoming: mpsc::Receiver<Bytes>) {
    while let Some(line) = incoming.recv().await {
        client.take(line).await;
    }
    client.leave().await;
}

/// Where the answers of one channel go.
fn forwarded(channel: u64, toward_gateway: &mpsc::Sender<Frame>) -> mpsc::Sender<Bytes> {
    let (output, mut lines) = mpsc::channel::<Bytes>(OUTPUT_LINES);
    let toward_gateway = toward_gateway.clone();
    tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            if toward_gateway.send(Frame::Line { channel, line }).await.is_err() {
                return;
            }
        }
    });
    output
}
