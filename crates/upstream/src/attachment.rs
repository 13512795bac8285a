//! The client's machine as a place where servers run: frames to and from its `ringfence connect`. Whoever owns the
//! socket carries them; here they are told apart by channel, one for each server that runs there.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use crate::outbox::MAX_OUTBOX_BYTES;

/// Frames that wait for the socket, and lines that wait for a worker.
const MAX_FRAMES: usize = 1024;

/// What both sides of an attachment speak: its WebSocket subprotocol.
pub const ATTACH_PROTOCOL: &str = "ringfence.attach.1";

/// Servers that one client's machine can make available.
pub const MAX_AVAILABLE: usize = 256;

/// What is said between a gateway and a client's machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Toward the client: a conversation with this server begins.
    Open { channel: u64, server: String },
    /// One message, either way.
    Line { channel: u64, line: Bytes },
    /// Either way: the conversation is over.
    Close { channel: u64 },
}

/// One connected client's machine.
#[derive(Debug)]
pub struct Attachment {
    /// The servers that can be started there.
    available: Vec<String>,
    toward_client: mpsc::Sender<Frame>,
    /// What waits to be sent, in bytes.
    waiting: AtomicUsize,
    channels: Mutex<HashMap<u64, mpsc::Sender<Bytes>>>,
    next_channel: AtomicU64,
    /// Set when it has ended, or another has taken its place.
    is_closed: watch::Sender<bool>,
}

/// One conversation with a server on the client's machine.
#[derive(Debug)]
pub(crate) struct Channel {
    attachment: Arc<Attachment>,
    number: u64,
}

impl Attachment {
    /// The receiver is for whoever owns the socket.
    pub fn new(mut available: Vec<String>) -> (Arc<Self>, mpsc::Receiver<Frame>) {
        available.truncate(MAX_AVAILABLE);
        let (toward_client, frames) = mpsc::channel(MAX_FRAMES);
        let attachment = Self {
            available,
            toward_client,
            waiting: AtomicUsize::new(0),
            channels: Mutex::default(),
            next_channel: AtomicU64::new(1),
            is_closed: watch::Sender::default(),
        };
        (Arc::new(attachment), frames)
    }

    pub fn has(&self, server: &str) -> bool {
        self.available.iter().any(|server_name| server_name == server)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, mpsc::Sender<Bytes>>> {
        self.channels.lock()
    }

    /// Takes a frame of the client. Waits if the worker is behind.
    pub async fn receive(&self, frame: Frame) {
        match frame {
            Frame::Line { channel, line } => {
                let worker = self.lock().get(&channel).cloned();
                if let Some(worker) = worker {
                    // A worker that is gone needs no answer.
                    let _ = worker.send(line).await;
                }
            }
            Frame::Close { channel } => drop(self.lock().remove(&channel)),
            Frame::Open { .. } => {}
        }
    }

    /// A frame was written to the socket.
    pub fn sent(&self, frame: &Frame) {
        self.waiting.fetch_sub(frame.size(), Ordering::Relaxed);
    }

    /// The socket is gone: every conversation ends.
    pub fn close(&self) {
        self.is_closed.send_replace(true);
        self.lock().clear();
    }

    /// Until it has ended, or another has taken its place.
    pub async fn closed(&self) {
        // The sender is ours, so this cannot fail.
        let _ = self.is_closed.subscribe().wait_for(|is_closed| *is_closed).await;
    }

    pub(crate) fn open(self: &Arc<Self>, server: &str) -> Option<(Channel, mpsc::Receiver<Bytes>)> {
        if self.toward_client.is_closed() || !self.has(server) {
            return None;
        }
        let number = self.next_channel.fetch_add(1, Ordering::Relaxed);
        let (sender, lines) = mpsc::channel(MAX_FRAMES);
        self.lock().insert(number, sender);
        let channel = Channel { attachment: Arc::clone(self), number };
        self.push(Frame::Open { channel: number, server: server.to_owned() }).then_some((channel, lines))
    }

    fn push(&self, frame: Frame) -> bool {
        let size = frame.size();
        if self.waiting.fetch_add(size, Ordering::Relaxed) + size > MAX_OUTBOX_BYTES
            || self.toward_client.try_send(frame).is_err()
        {
            self.waiting.fetch_sub(size, Ordering::Relaxed);
            return false;
        }
        true
    }
}

impl Frame {
    /// The frame as text: what it is, its channel, and after a line break what it carries.
    pub fn encode(&self) -> Bytes {
        match self {
            Self::Open { channel, server } => format!("open {channel}\n{server}").into(),
            Self::Close { channel } => format!("close {channel}\n").into(),
            Self::Line { channel, line } => {
                let mut text = Vec::with_capacity(line.len() + 24);
                text.extend_from_slice(format!("line {channel}\n").as_bytes());
                text.extend_from_slice(line);
                text.into()
            }
        }
    }

    /// Reads what [`Frame::encode`] makes. `None`: it is something else.
    pub fn decode(text: &Bytes) -> Option<Self> {
        let end = memchr::memchr(b'\n', text)?;
        let head = std::str::from_utf8(&text[..end]).ok()?;
        let (kind, channel) = head.split_once(' ')?;
        let (channel, rest) = (channel.parse().ok()?, text.slice(end + 1..));
        match kind {
            "open" => Some(Self::Open { channel, server: String::from_utf8(rest.to_vec()).ok()? }),
            "line" => Some(Self::Line { channel, line: rest }),
            "close" => Some(Self::Close { channel }),
            _ => None,
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Line { line, .. } => line.len(),
            Self::Open { .. } | Self::Close { .. } => 0,
        }
    }
}

impl Channel {
    pub(crate) fn send(&self, line: &[u8]) -> bool {
        self.attachment.push(Frame::Line { channel: self.number, line: Bytes::copy_from_slice(line) })
    }

    pub(crate) fn close(&self) {
        if self.attachment.lock().remove(&self.number).is_some() {
            self.attachment.push(Frame::Close { channel: self.number });
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_back_as_it_was() {
        let line = Bytes::from_static(b"{\"a\":\"x\\ny\"}");
        for frame in [
            Frame::Open { channel: 1, server: "file-system".to_owned() },
            Frame::Line { channel: u64::MAX, line },
            Frame::Close { channel: 3 },
        ] {
            assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        }
        for bad in ["", "line 1", "line x\n", "shout 1\n", "line\n{}", "line -1\n{}"] {
            assert_eq!(Frame::decode(&Bytes::from(bad)), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn a_machine_that_goes_takes_its_conversations_with_it() {
        let (attachment, mut frames) = Attachment::new(vec!["files".to_owned()]);
        assert!(attachment.open("other").is_none());
        let (channel, mut lines) = attachment.open("files").unwrap();
        assert_eq!(frames.recv().await, Some(Frame::Open { channel: 1, server: "files".to_owned() }));
        assert!(channel.send(b"{}"));
        attachment.receive(Frame::Line { channel: 1, line: Bytes::from_static(b"[]") }).await;
        assert_eq!(lines.recv().await.as_deref(), Some(&b"[]"[..]));
        attachment.close();
        assert_eq!(lines.recv().await, None);
    }

    #[test]
    fn what_a_client_does_not_take_is_bounded() {
        let (attachment, _frames) = Attachment::new(vec!["files".to_owned()]);
        let (channel, _lines) = attachment.open("files").unwrap();
        let line = vec![b'x'; 1024 * 1024];
        let taken = (0..1000).take_while(|_| channel.send(&line)).count();
        assert!(taken <= 64, "{taken}");
    }
}
