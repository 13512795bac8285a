//! Commands that the server runs for itself. They are confined like the client's commands, but are not listed as
//! operations.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use super::command::{self, ShellCommand};
use super::operation_id::OperationId;
use super::operations::Operations;
use super::tree::Tree;

/// Output limit in bytes.
const MAX_OUTPUT: usize = 32 * 1024 * 1024;
/// Interval for checking whether a shell that has closed its output has ended.
const SETTLE: Duration = Duration::from_millis(1);

impl Operations {
    /// Runs a script and returns its output, if it exits with 0 before the deadline.
    pub(crate) fn run_internally(
        &self,
        script: String,
        directory: OwnedFd,
        environment: Vec<(String, String)>,
        until: Instant,
    ) -> Option<Vec<u8>> {
        let shell = self.shell()?;
        let directory_name = String::new();
        let command = ShellCommand { script, directory, directory_name, environment, timeout: None };
        let start = |mark: &str| command::spawn(shell, &command, OperationId(0), mark, self.domain());
        let (tree, mut output) = Tree::start(start).ok()?;
        let written = read_in_time(&mut output, until);
        let status = loop {
            if let Some(status) = tree.wait_for_root() {
                break status;
            }
            if written.is_none() || Instant::now() >= until {
                tree.signal(Signal::KILL);
            }
            std::thread::sleep(SETTLE);
        };
        written.filter(|_| status.exit_status() == Some(0))
    }
}

/// Reads to the end. `None` if that takes too long or exceeds the limit.
fn read_in_time(output: &mut File, until: Instant) -> Option<Vec<u8>> {
    let mut written = Vec::new();
    let mut piece = [0; 16 * 1024];
    loop {
        match output.read(&mut piece) {
            Ok(0) => return Some(written),
            Ok(length) if written.len() + length <= MAX_OUTPUT => written.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok()?;
                let ready = poll(&mut [PollFd::new(&*output, PollFlags::IN)], Some(&left));
                if ready == Ok(0) {
                    return None;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return None,
        }
    }
}
