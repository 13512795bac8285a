//! What must hold for any order of frames and calls on an attachment, as the gateway has it. Called by the fuzz target
//! `attach_frames` and, with the corpus that it kept, by a test.
//!
//! A model says what each side is to receive: a line reaches the channel that it names while that is open, in order,
//! and no other; what waits is bounded; after the end nothing is open.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use arbitrary::Unstructured;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use crate::attachment::{Attachment, Channel, Frame, MAX_FRAMES};
use crate::outbox::MAX_OUTBOX_BYTES;

/// The servers on the client's machine, and one that it does not have.
const SERVERS: &[&str] = &["files", "git", ""];
const UNKNOWN: &str = "other";

/// Steps of one run.
const MAX_STEPS: usize = 200;
/// Few of these fill what may wait for the socket.
const LONG_LINE: usize = 1024 * 1024;
const MOST_LONG_LINES: usize = 70;

/// Panics if an attachment breaks a promise on this input.
pub fn check(data: &[u8]) {
    let mut choices = Unstructured::new(data);
    let mut gateway = Gateway::new();
    for _ in 0..MAX_STEPS {
        if choices.is_empty() || gateway.step(&mut choices).is_err() {
            break;
        }
    }
    gateway.finish();
}

struct Gateway {
    attachment: Arc<Attachment>,
    frames: mpsc::Receiver<Frame>,
    /// The frames that wait for the socket.
    expected: VecDeque<Frame>,
    waiting: usize,
    conversations: Vec<Conversation>,
    last_number: u64,
    is_closed: bool,
}

struct Conversation {
    number: u64,
    /// The worker's end; `None` once the worker is gone.
    channel: Option<Channel>,
    lines: mpsc::Receiver<Bytes>,
    /// The lines that wait for the worker.
    expected: VecDeque<Bytes>,
    is_open: bool,
}

impl Gateway {
    fn new() -> Self {
        let (attachment, frames) = Attachment::new(SERVERS.iter().map(|&name| name.to_owned()).collect());
        Self {
            attachment,
            frames,
            expected: VecDeque::new(),
            waiting: 0,
            conversations: Vec::new(),
            last_number: 0,
            is_closed: false,
        }
    }

    fn step(&mut self, choices: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        match choices.int_in_range(0..=15)? {
            0..=2 => self.open(choices.choose(&["files", "git", "", UNKNOWN])?),
            3..=5 => self.send(choices)?,
            6 => self.leave(choices)?,
            7..=10 => self.receive(choices)?,
            11 | 12 => self.read_lines(choices)?,
            13 | 14 => self.carry(usize::from(choices.arbitrary::<u16>()?)),
            _ if choices.arbitrary()? => self.close(),
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, server: &str) {
        let can_open = !self.is_closed && server != UNKNOWN && self.expected.len() < MAX_FRAMES;
        let Some((channel, lines)) = self.attachment.open(server) else {
            assert!(!can_open, "{server:?} cannot be opened");
            return;
        };
        assert!(can_open, "{server:?} can be opened");
        let number = channel.number();
        assert!(number > self.last_number, "numbers are not used twice");
        self.last_number = number;
        self.expected.push_back(Frame::Open { channel: number, server: server.to_owned() });
        let (channel, expected) = (Some(channel), VecDeque::new());
        self.conversations.push(Conversation { number, channel, lines, expected, is_open: true });
    }

    fn conversation(&self, choices: &mut Unstructured<'_>) -> arbitrary::Result<Option<usize>> {
        let count = self.conversations.len();
        if count == 0 { Ok(None) } else { choices.choose_index(count).map(Some) }
    }

    /// A worker sends the same line some times.
    fn send(&mut self, choices: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let Some(index) = self.conversation(choices)? else { return Ok(()) };
        let (line, times) = match choices.arbitrary::<u8>()? {
            255 => (vec![b'x'; LONG_LINE], choices.int_in_range(0..=MOST_LONG_LINES)?),
            length => (choices.bytes(usize::from(length).min(choices.len()))?.to_vec(), repeats(choices)?),
        };
        for _ in 0..times {
            let conversation = &self.conversations[index];
            let Some(channel) = &conversation.channel else { return Ok(()) };
            let fits = self.waiting + line.len() <= MAX_OUTBOX_BYTES && self.expected.len() < MAX_FRAMES;
            assert_eq!(channel.send(&line), fits);
            if !fits {
                return Ok(());
            }
            self.waiting += line.len();
            let line = Bytes::copy_from_slice(&line);
            self.expected.push_back(Frame::Line { channel: conversation.number, line });
        }
        Ok(())
    }

    /// A worker ends its conversation.
    fn leave(&mut self, choices: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let Some(index) = self.conversation(choices)? else { return Ok(()) };
        let conversation = &mut self.conversations[index];
        drop(conversation.channel.take());
        if std::mem::take(&mut conversation.is_open) {
            let channel = conversation.number;
            // Without the frame the client would keep the conversation, so it loses all of them.
            if self.expected.len() < MAX_FRAMES {
                self.expected.push_back(Frame::Close { channel });
            } else {
                self.note_end();
            }
        }
        Ok(())
    }

    /// The client sends a frame, or what is none.
    fn receive(&mut self, choices: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let channel = match choices.arbitrary::<u8>()? {
            255 => choices.arbitrary()?,
            number => u64::from(number % 16),
        };
        let length = usize::from(choices.arbitrary::<u8>()?).min(choices.len());
        let (frame, times) = match choices.int_in_range(0..=4)? {
            0 => (Frame::Close { channel }, 1),
            1 => (Frame::Open { channel, server: SERVERS[0].to_owned() }, 1),
            2 => {
                let text = Bytes::copy_from_slice(choices.bytes(length)?);
                let Some(frame) = Frame::decode(&text) else { return Ok(()) };
                assert_eq!(frame.encode(), text, "each frame has one spelling");
                (frame, 1)
            }
            _ => {
                let line = Bytes::copy_from_slice(choices.bytes(length)?);
                (Frame::Line { channel, line }, repeats(choices)?)
            }
        };
        assert_eq!(Frame::decode(&frame.encode()).as_ref(), Some(&frame));
        for _ in 0..times {
            self.take(&frame);
        }
        Ok(())
    }

    fn take(&mut self, frame: &Frame) {
        let is_taken = {
            let received = pin!(self.attachment.receive(frame.clone()));
            received.poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        let named = |channel: u64| move |one: &&mut Conversation| one.number == channel && one.is_open;
        match frame {
            Frame::Line { channel, line } => {
                let conversation = self.conversations.iter_mut().find(named(*channel));
                let Some(conversation) = conversation else {
                    return assert!(is_taken, "a line for no channel waits");
                };
                assert_eq!(is_taken, conversation.expected.len() < MAX_FRAMES);
                if is_taken {
                    conversation.expected.push_back(line.clone());
                }
            }
            Frame::Close { channel } => {
                if let Some(conversation) = self.conversations.iter_mut().find(named(*channel)) {
                    conversation.is_open = false;
                }
            }
            Frame::Open { .. } => {}
        }
    }

    fn read_lines(&mut self, choices: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let Some(index) = self.conversation(choices)? else { return Ok(()) };
        self.conversations[index].read(repeats(choices)?);
        Ok(())
    }

    /// The socket takes some frames.
    fn carry(&mut self, count: usize) {
        for _ in 0..count {
            let frame = self.frames.try_recv().ok();
            assert_eq!(frame, self.expected.pop_front());
            let Some(frame) = frame else { return };
            if let Frame::Line { line, .. } = &frame {
                self.waiting -= line.len();
            }
            self.attachment.sent(&frame);
        }
    }

    fn close(&mut self) {
        self.attachment.close();
        self.note_end();
    }

    fn note_end(&mut self) {
        self.is_closed = true;
        for conversation in &mut self.conversations {
            conversation.is_open = false;
        }
    }

    /// All that was sent arrives, and nothing else.
    fn finish(mut self) {
        assert_eq!(self.attachment.waiting(), self.waiting);
        self.carry(MAX_FRAMES + 1);
        assert_eq!(self.attachment.waiting(), 0);
        for conversation in &mut self.conversations {
            conversation.read(MAX_FRAMES + 1);
            let end = if conversation.is_open { TryRecvError::Empty } else { TryRecvError::Disconnected };
            assert_eq!(conversation.lines.try_recv(), Err(end));
        }
    }
}

impl Conversation {
    fn read(&mut self, count: usize) {
        for _ in 0..count {
            let line = self.lines.try_recv().ok();
            assert_eq!(line, self.expected.pop_front(), "channel {}", self.number);
            if line.is_none() {
                return;
            }
        }
    }
}

/// Mostly once, sometimes more than fits.
fn repeats(choices: &mut Unstructured<'_>) -> arbitrary::Result<usize> {
    Ok(match choices.arbitrary::<u8>()? {
        0..=199 => 1,
        200..=249 => usize::from(choices.arbitrary::<u8>()?),
        _ => MAX_FRAMES + 1,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_fuzzing_kept_of_frames_is_carried_as_promised() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/attach_frames");
        let mut files = 0;
        for file in std::fs::read_dir(corpus).unwrap() {
            super::check(&std::fs::read(file.unwrap().path()).unwrap());
            files += 1;
        }
        assert!(files > 0);
    }
}
