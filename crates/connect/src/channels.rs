//! The gateway's conversations with servers here. Each channel is a session of its own on one server, in the
//! directory of the client's session.

#[cfg(any(test, fuzzing))]
pub mod oracle;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use session::{Session, WorkspaceChoice};
use tokio::sync::mpsc;
use upstream::Frame;

use crate::client::{Client, OUTPUT_LINES};
use crate::connection::LocalServers;

/// Lines of the gateway that may wait for one channel.
const INPUT_LINES: usize = 1024;

/// Channels that a gateway may have open at once.
const MAX_CHANNELS: usize = 256;

pub(crate) struct Channels {
    local: Arc<LocalServers>,
    workspace: Option<WorkspaceChoice>,
    open: HashMap<u64, mpsc::Sender<Bytes>>,
}

impl Channels {
    pub(crate) fn new(local: &Arc<LocalServers>, session: &Arc<Session>) -> Self {
        let directory =
            session.scope().and_then(|scope| scope.primary().map(|path| path.to_string_lossy().into_owned()));
        Self {
            local: Arc::clone(local),
            workspace: directory.map(WorkspaceChoice::NamedOrPath),
            open: HashMap::new(),
        }
    }

    /// Takes one frame of the gateway. Closes a channel whose server reads too slowly.
    pub(crate) fn take(&mut self, frame: Frame, toward_gateway: &mpsc::Sender<Frame>) {
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
        // A number that is taken would put the answers of two conversations into one channel.
        let is_taken = self.open.remove(&channel).is_some();
        let has_room = !is_taken && self.open.len() < MAX_CHANNELS;
        let sessions = self.local.sessions_of(server).filter(|_| has_room);
        let Some(sessions) = sessions else {
            let _ = toward_gateway.try_send(Frame::Close { channel });
            return;
        };
        let (lines, incoming) = mpsc::channel(INPUT_LINES);
        self.open.insert(channel, lines);
        let output = self.output_of(channel, toward_gateway);
        let instance = self.local.connection.instance.clone();
        let client = Client::new(&sessions, output, instance, self.workspace.clone());
        self.local.conversations.spawn(converse(client, incoming));
    }

    /// Sends the answers of one channel to the gateway as frames.
    fn output_of(&self, channel: u64, toward_gateway: &mpsc::Sender<Frame>) -> mpsc::Sender<Bytes> {
        let (output, mut lines) = mpsc::channel::<Bytes>(OUTPUT_LINES);
        let toward_gateway = toward_gateway.clone();
        self.local.conversations.spawn(async move {
            while let Some(line) = lines.recv().await {
                if toward_gateway.send(Frame::Line { channel, line }).await.is_err() {
                    return;
                }
            }
        });
        output
    }

    /// Ends all channels and their sessions.
    pub(crate) async fn end(self) {
        drop(self.open);
        self.local.end_channel_sessions().await;
    }
}

/// Passes the lines of one channel to its client until the channel closes.
async fn converse(mut client: Client, mut incoming: mpsc::Receiver<Bytes>) {
    while let Some(line) = incoming.recv().await {
        client.take(line).await;
    }
    client.leave().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::testing::{connection, server};

    fn channels(servers: Vec<session::ServerPlan>) -> Channels {
        let local = Arc::new(LocalServers::new(connection(servers)));
        Channels { local, workspace: None, open: HashMap::new() }
    }

    fn open(channel: u64, server: &str) -> Frame {
        Frame::Open { channel, server: server.to_owned() }
    }

    /// Returns the channels that were closed.
    fn closed(frames: &mut mpsc::Receiver<Frame>) -> Vec<u64> {
        let mut closed = Vec::new();
        while let Ok(frame) = frames.try_recv() {
            if let Frame::Close { channel } = frame {
                closed.push(channel);
            }
        }
        closed
    }

    #[tokio::test]
    async fn the_gateway_can_start_no_server_but_those_configured_here() {
        let disabled = session::ServerPlan { disabled: Some("off".to_owned()), ..server("disabled") };
        let mut channels = channels(vec![server("files"), disabled]);
        let (toward_gateway, mut frames) = mpsc::channel(16);
        for (channel, server) in [(1, "files"), (2, "other"), (3, "disabled"), (4, ""), (5, "gateway")] {
            channels.take(open(channel, server), &toward_gateway);
        }
        assert_eq!(closed(&mut frames), [2, 3, 4, 5]);
        assert_eq!(channels.open.keys().collect::<Vec<_>>(), [&1]);
    }

    #[tokio::test]
    async fn a_channel_that_is_opened_twice_is_closed() {
        let mut channels = channels(vec![server("files")]);
        let (toward_gateway, mut frames) = mpsc::channel(16);
        channels.take(open(1, "files"), &toward_gateway);
        assert!(closed(&mut frames).is_empty());
        channels.take(open(1, "files"), &toward_gateway);
        assert_eq!(closed(&mut frames), [1]);
        assert!(channels.open.is_empty());
        channels.take(open(1, "files"), &toward_gateway);
        assert!(closed(&mut frames).is_empty(), "it can begin anew");
    }

    #[tokio::test]
    async fn a_gateway_has_a_bounded_number_of_channels() {
        let mut channels = channels(vec![server("files")]);
        let (toward_gateway, mut frames) = mpsc::channel(16);
        for channel in 0..=MAX_CHANNELS as u64 {
            channels.take(open(channel, "files"), &toward_gateway);
        }
        assert_eq!(closed(&mut frames), [MAX_CHANNELS as u64]);
        channels.take(Frame::Close { channel: 0 }, &toward_gateway);
        channels.take(open(1000, "files"), &toward_gateway);
        assert!(closed(&mut frames).is_empty());
    }

    #[tokio::test]
    async fn a_channel_whose_server_does_not_read_is_closed() {
        let mut channels = channels(Vec::new());
        let (toward_gateway, mut frames) = mpsc::channel(16);
        let (lines, unread) = mpsc::channel(1);
        channels.open.insert(1, lines);
        let line = || Frame::Line { channel: 1, line: Bytes::from_static(b"{}") };
        channels.take(line(), &toward_gateway);
        assert!(closed(&mut frames).is_empty());
        channels.take(line(), &toward_gateway);
        assert_eq!(closed(&mut frames), [1]);
        assert!(channels.open.is_empty());
        drop(unread);
    }
}
