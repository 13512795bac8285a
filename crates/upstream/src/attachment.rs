//! The attachment of a client's machine: frames to and from its `ringfence connect`, sorted into channels, one for each
//! server that runs there. The owner of the socket carries the frames.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use crate::outbox::MAX_OUTBOX_BYTES;

/// Frames that wait for the socket, and lines that wait for a worker.
pub(crate) const MAX_FRAMES: usize = 1024;

/// The WebSocket subprotocol of an attachment.
pub const ATTACH_PROTOCOL: &str = "ringfence.attach.1";

/// Servers that one client's machine can make available.
pub const MAX_AVAILABLE: usize = 256;

/// A message between the gateway and a client's machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Starts a conversation with a server. Sent by the gateway.
    Open { channel: u64, server: String },
    /// Carries one JSON-RPC message, either way.
    Line { channel: u64, line: Bytes },
    /// Ends the conversation, either way.
    Close { channel: u64 },
}

/// One connected client's machine.
#[derive(Debug)]
pub struct Attachment {
    /// The servers that can be started there.
    available: Vec<String>,
    toward_client: mpsc::Sender<Frame>,
    /// Bytes that wait to be sent.
    waiting: AtomicUsize,
    channels: Mutex<HashMap<u64, mpsc::Sender<Bytes>>>,
    next_channel: AtomicU64,
    /// Set when the attachment has ended or was replaced.
    is_closed: watch::Sender<bool>,
}

/// One conversation with a server on the client's machine.
#[derive(Debug)]
pub(crate) struct Channel {
    attachment: Arc<Attachment>,
    number: u64,
}

impl Attachment {
    /// The receiver is for the owner of the socket.
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
        self.available.iter().any(|available| available == server)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, mpsc::Sender<Bytes>>> {
        self.channels.lock()
    }

    /// Takes a frame of the client. Waits if its worker does not keep up.
    pub async fn receive(&self, frame: Frame) {
        match frame {
            Frame::Line { channel, line } => {
                let worker = self.lock().get(&channel).cloned();
                if let Some(worker) = worker {
                    // It fails if the worker is gone.
                    let _ = worker.send(line).await;
                }
            }
            Frame::Close { channel } => drop(self.lock().remove(&channel)),
            Frame::Open { .. } => {}
        }
    }

    /// Call when a frame was written to the socket.
    pub fn sent(&self, frame: &Frame) {
        self.waiting.fetch_sub(frame.size(), Ordering::Relaxed);
    }

    /// Call when the socket is gone. Ends every conversation.
    pub fn close(&self) {
        self.is_closed.send_replace(true);
        self.lock().clear();
    }

    /// Resolves when the attachment has ended or was replaced.
    pub async fn closed(&self) {
        // It cannot fail while `self` holds the sender.
        let _ = self.is_closed.subscribe().wait_for(|is_closed| *is_closed).await;
    }

    pub(crate) fn open(self: &Arc<Self>, server: &str) -> Option<(Channel, mpsc::Receiver<Bytes>)> {
        if self.toward_client.is_closed() || !self.has(server) {
            return None;
        }
        let number = self.next_channel.fetch_add(1, Ordering::Relaxed);
        let (sender, lines) = mpsc::channel(MAX_FRAMES);
        if !self.insert(number, sender) {
            return None;
        }
        if !self.push(Frame::Open { channel: number, server: server.to_owned() }) {
            self.lock().remove(&number);
            return None;
        }
        Some((Channel { attachment: Arc::clone(self), number }, lines))
    }

    /// Adds a channel, unless the attachment has ended: nothing would end a conversation that begins after that.
    fn insert(&self, number: u64, sender: mpsc::Sender<Bytes>) -> bool {
        let mut channels = self.lock();
        let is_closed = *self.is_closed.borrow();
        if !is_closed {
            channels.insert(number, sender);
        }
        !is_closed
    }

    /// Bytes that wait to be sent.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
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
    /// The frame as text: its kind and channel, a line break, and its content.
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

    /// Reads the output of [`Frame::encode`]. Returns `None` for anything else.
    pub fn decode(text: &Bytes) -> Option<Self> {
        let end = memchr::memchr(b'\n', text)?;
        let head = std::str::from_utf8(&text[..end]).ok()?;
        let (kind, number) = head.split_once(' ')?;
        let (channel, rest) = (read_number(number)?, text.slice(end + 1..));
        match kind {
            "open" => Some(Self::Open { channel, server: String::from_utf8(rest.to_vec()).ok()? }),
            "line" => Some(Self::Line { channel, line: rest }),
            "close" if rest.is_empty() => Some(Self::Close { channel }),
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

/// A number as it is written: no sign, no zeros before it.
fn read_number(text: &str) -> Option<u64> {
    let is_plain = text == "0" || text.starts_with(|first: char| matches!(first, '1'..='9'));
    text.parse().ok().filter(|_| is_plain)
}

impl Channel {
    pub(crate) fn send(&self, line: &[u8]) -> bool {
        self.attachment.push(Frame::Line { channel: self.number, line: Bytes::copy_from_slice(line) })
    }

    /// Ends the conversation, and the whole attachment if the client cannot be told: it reads too little, and would keep
    /// the server of every conversation that it believes open.
    pub(crate) fn close(&self) {
        let was_open = self.attachment.lock().remove(&self.number).is_some();
        if was_open && !self.attachment.push(Frame::Close { channel: self.number }) {
            self.attachment.close();
        }
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn number(&self) -> u64 {
        self.number
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
        for bad in [
            "",
            "line 1",
            "line x\n",
            "shout 1\n",
            "line\n{}",
            "line -1\n{}",
            "line +1\n{}",
            "line 01\n{}",
            "close 1\n{}",
        ] {
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

    #[tokio::test]
    async fn no_conversation_begins_on_an_attachment_that_has_ended() {
        let (attachment, mut frames) = Attachment::new(vec!["files".to_owned()]);
        attachment.close();
        assert!(attachment.open("files").is_none());
        assert!(frames.try_recv().is_err(), "the client is not told of it");
    }

    #[tokio::test]
    async fn an_attachment_ends_when_its_client_cannot_be_told_that_a_conversation_has() {
        let (attachment, mut frames) = Attachment::new(vec!["files".to_owned()]);
        let (channel, _lines) = attachment.open("files").unwrap();
        let (other, mut lines) = attachment.open("files").unwrap();
        while channel.send(b"{}") {}
        assert!(attachment.open("files").is_none(), "nothing more fits");
        assert_eq!(lines.try_recv(), Err(mpsc::error::TryRecvError::Empty), "and that alone ends nothing");
        drop(channel);
        attachment.closed().await;
        assert_eq!(lines.recv().await, None);
        drop(other);
        while frames.try_recv().is_ok() {}
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
