//! What must hold for any frames that a gateway sends to a client's machine. Called by the fuzz target
//! `attach_frames` and, with the corpus that it kept, by a test.
//!
//! A model says which channels are open: only those of servers that the client configured, so many at most, and each
//! with so many lines at most. The conversations themselves do not run here.

use std::collections::BTreeMap;
use std::sync::Arc;

use arbitrary::Unstructured;
use bytes::Bytes;
use session::ServerPlan;
use tokio::sync::mpsc;
use upstream::Frame;

use super::{Channels, INPUT_LINES, MAX_CHANNELS};
use crate::connection::LocalServers;
use crate::connection::testing::{connection, server};

const MAX_STEPS: usize = 200;

/// Panics if the client's end breaks a promise on this input.
pub fn check(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let mut choices = Unstructured::new(data);
        let mut machine = Machine::new();
        for _ in 0..MAX_STEPS {
            if choices.is_empty() || machine.step(&mut choices).is_err() {
                break;
            }
        }
    });
}

struct Machine {
    channels: Channels,
    toward_gateway: mpsc::Sender<Frame>,
    frames: mpsc::Receiver<Frame>,
    /// The open channels, and how many lines wait in each.
    open: BTreeMap<u64, usize>,
}

impl Machine {
    fn new() -> Self {
        let disabled = ServerPlan { disabled: Some("off".to_owned()), ..server("disabled") };
        let local = Arc::new(LocalServers::new(connection(vec![server("files"), server("git"), disabled])));
        let (toward_gateway, frames) = mpsc::channel(MAX_CHANNELS);
        let channels = Channels { local, workspace: None, open: std::collections::HashMap::new() };
        Self { channels, toward_gateway, frames, open: BTreeMap::new() }
    }

    fn step(&mut self, choices: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let channel = match choices.arbitrary::<u8>()? {
            255 => choices.arbitrary()?,
            number => u64::from(number % 16),
        };
        match choices.int_in_range(0..=9)? {
            0..=3 => self.open(channel, choices.choose(&["files", "git", "disabled", "gateway", ""])?),
            4 => {
                // More channels than there may be.
                for channel in channel..channel.saturating_add(MAX_CHANNELS as u64) {
                    self.open(channel, "files");
                }
            }
            5..=7 => self.send(channel, choices)?,
            _ => {
                self.take(&Frame::Close { channel });
                self.open.remove(&channel);
                self.expect(None);
            }
        }
        Ok(())
    }

    fn open(&mut self, channel: u64, server: &str) {
        self.take(&Frame::Open { channel, server: server.to_owned() });
        let is_new = !self.open.contains_key(&channel);
        if is_new && self.open.len() < MAX_CHANNELS && ["files", "git"].contains(&server) {
            self.open.insert(channel, 0);
            self.expect(None);
        } else {
            self.open.remove(&channel);
            self.expect(Some(channel));
        }
    }

    fn send(&mut self, channel: u64, choices: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let times = match choices.arbitrary::<u8>()? {
            0..=249 => 1,
            _ => INPUT_LINES + 1,
        };
        let length = usize::from(choices.arbitrary::<u8>()?).min(choices.len());
        let line = Bytes::copy_from_slice(choices.bytes(length)?);
        for _ in 0..times {
            self.take(&Frame::Line { channel, line: line.clone() });
            let waiting = self.open.get_mut(&channel);
            let is_full = waiting.as_ref().is_some_and(|waiting| **waiting == INPUT_LINES);
            if is_full {
                self.open.remove(&channel);
            } else if let Some(waiting) = waiting {
                *waiting += 1;
            }
            self.expect(is_full.then_some(channel));
        }
        Ok(())
    }

    /// Takes a frame as it arrives.
    fn take(&mut self, frame: &Frame) {
        let arrived = Frame::decode(&frame.encode());
        assert_eq!(arrived.as_ref(), Some(frame));
        self.channels.take(arrived.expect("the same frame"), &self.toward_gateway);
    }

    /// The gateway is told which channel was closed, if one was, and nothing else.
    fn expect(&mut self, closed: Option<u64>) {
        assert_eq!(self.frames.try_recv().ok(), closed.map(|channel| Frame::Close { channel }));
        assert!(self.frames.try_recv().is_err());
        assert_eq!(self.channels.open.len(), self.open.len());
        for (channel, waiting) in &self.open {
            let lines = self.channels.open.get(channel).map(|lines| lines.max_capacity() - lines.capacity());
            assert_eq!(lines, Some(*waiting), "channel {channel}");
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_fuzzing_kept_of_frames_opens_nothing_but_what_is_configured() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/attach_frames");
        let mut files = 0;
        for file in std::fs::read_dir(corpus).unwrap() {
            super::check(&std::fs::read(file.unwrap().path()).unwrap());
            files += 1;
        }
        assert!(files > 0);
    }
}
