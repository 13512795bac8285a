//! Standard input, output and error of a fenced command. They are passed on as they are, except for sockets, which would
//! bypass the fence's network rules, and for output that is counted. Those go through a pipe and a thread.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use fence::Stdio;
use rustix::fs::FileType;
use tokio::sync::oneshot;

/// The ends that the command gets, and the threads that copy.
pub(super) struct StandardStreams {
    input: OwnedFd,
    output: OwnedFd,
    error: OwnedFd,
    carriers: Vec<JoinHandle<()>>,
    /// Resolves when the command has written too much.
    pub(super) flooded: Option<oneshot::Receiver<()>>,
}

/// The threads that copy output, to be joined when the command has ended.
pub(super) struct Carriers(Vec<JoinHandle<()>>);

impl StandardStreams {
    pub(super) fn prepare(max_output: Option<u64>) -> io::Result<Self> {
        let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
        let mut carriers = Vec::new();
        let (sender, receiver) = oneshot::channel();
        let counter = max_output.map(|limit| {
            Arc::new(Counter { left: AtomicU64::new(limit), sender: std::sync::Mutex::new(Some(sender)) })
        });
        Ok(Self {
            input: if is_socket(input.as_fd()) {
                carry_input()?
            } else {
                input.as_fd().try_clone_to_owned()?
            },
            output: pass_or_carry(output.as_fd(), counter.as_ref(), &mut carriers)?,
            error: pass_or_carry(error.as_fd(), counter.as_ref(), &mut carriers)?,
            carriers,
            flooded: max_output.is_some().then_some(receiver),
        })
    }

    pub(super) fn stdio(&self) -> Stdio<'_> {
        Stdio { stdin: self.input.as_fd(), stdout: self.output.as_fd(), stderr: self.error.as_fd() }
    }

    /// Closes our copies of the command's ends, so that the threads see when the command closes its own.
    pub(super) fn release(self) -> Carriers {
        Carriers(self.carriers)
    }
}

impl Carriers {
    /// Blocks until all output is copied.
    pub(super) fn finish(self) {
        for carrier in self.0 {
            let _ = carrier.join();
        }
    }
}

fn is_socket(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// The thread is not joined, because input may never end.
fn carry_input() -> io::Result<OwnedFd> {
    let (reader, writer) = pipe()?;
    let source = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    std::thread::spawn(move || {
        let _ = io::copy(&mut &source, &mut File::from(writer));
    });
    Ok(reader)
}

fn pass_or_carry(
    target: BorrowedFd<'_>,
    counter: Option<&Arc<Counter>>,
    carriers: &mut Vec<JoinHandle<()>>,
) -> io::Result<OwnedFd> {
    if counter.is_none() && !is_socket(target) {
        return target.try_clone_to_owned();
    }
    let (reader, writer) = pipe()?;
    let target = File::from(target.try_clone_to_owned()?);
    let counter = counter.cloned();
    carriers
        .push(std::thread::spawn(move || carry_output(&mut File::from(reader), target, counter.as_deref())));
    Ok(writer)
}

fn carry_output(source: &mut File, mut target: File, counter: Option<&Counter>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = source.read(&mut buffer) {
        let allowed = counter.map_or(length, |counter| counter.take(length));
        if target.write_all(&buffer[..allowed]).is_err() || allowed < length {
            return;
        }
    }
}

/// Counts down the output that is still allowed.
struct Counter {
    left: AtomicU64,
    sender: std::sync::Mutex<Option<oneshot::Sender<()>>>,
}

impl Counter {
    /// Takes `length` bytes from the allowance. Returns how many of them may be written.
    fn take(&self, length: usize) -> usize {
        let wanted = u64::try_from(length).unwrap_or(u64::MAX);
        let before = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(wanted)))
            .unwrap_or(0);
        if before >= wanted {
            return length;
        }
        if let Ok(mut sender) = self.sender.lock()
            && let Some(sender) = sender.take()
        {
            let _ = sender.send(());
        }
        usize::try_from(before).unwrap_or(length)
    }
}
