//! The events that a launcher reports, one line of JSON each.

use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::LaunchError;
use crate::launch_request::{Event, MAX_EVENT};

/// Our end of the pipe that a launcher writes its events to.
#[derive(Debug)]
pub(super) struct Events {
    pipe: File,
    unread: Vec<u8>,
}

impl Events {
    pub(super) fn new(pipe: File) -> Self {
        Self { pipe, unread: Vec::new() }
    }

    /// Returns the next event, or `None` at the end. Fails as stuck when `timeout` has passed.
    pub(super) fn next(&mut self, timeout: Option<Duration>) -> Result<Option<Event>, LaunchError> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).map_err(|_| LaunchError::Lost);
            }
            if !self.wait(deadline)? {
                return Err(LaunchError::Stuck);
            }
            let mut bytes = [0; MAX_EVENT];
            let read = match self.pipe.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if read == 0 {
                return Ok(None);
            }
            self.unread.extend_from_slice(&bytes[..read]);
        }
    }

    fn wait(&self, deadline: Option<Instant>) -> Result<bool, LaunchError> {
        let Some(deadline) = deadline else { return Ok(true) };
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }
}
