//! One running upstream process: its pipes, the tail of its stderr, and how it is ended.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use fence::{Ending, LimitHit, Remote};
use rustix::process::{Pid, Signal};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::{Notify, watch};
use wire::LineBuffer;

use crate::StartFailure;
use crate::fence_host::{Enclosure, Launched};
use crate::scope::Scope;
use crate::settings::{MAX_OUTBOX_BYTES, STDERR_LINE_BYTES, STDERR_LINES_PER_SECOND, STDERR_TAIL_BYTES};
use crate::tree::{MARK_VARIABLE, Tree};
use crate::upstream::Program;
use crate::worker_variables::{Owner, worker_variables};

/// Reading what a dead process had still written ends here: a descendant may hold the pipe open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A process in the kernel's uninterruptible sleep cannot be waited for without end.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// A long line is read through a pipe of this size, the most that the kernel gives to anybody.
const LARGE_PIPE: usize = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Process {
    hold: Hold,
    outbox: Arc<Outbox>,
    stderr: Arc<StderrTail>,
    /// Holds how the process ended once it did.
    exit: watch::Receiver<Option<Exit>>,
    /// What holds around it, in one line; `None`: it has no fence.
    pub(crate) confinement: Option<String>,
}

/// How a process and all that it started is held.
#[derive(Debug)]
enum Hold {
    Open(Tree),
    /// Its keeper ends the tree when the hold is let go.
    Fenced {
        keeper: Pid,
        remote: Mutex<Remote>,
    },
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    pub status: ExitStatus,
    /// A limit of its fence that stood in its way.
    pub limit: Option<LimitHit>,
}

/// Our ends of a process's pipes.
struct Pipes {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Process {
    /// Starts the upstream without a fence, and the tasks around its pipes except the one that reads its
    /// stdout.
    pub(crate) fn spawn(
        name: &str,
        program: &Program,
        scope: &Scope,
        owner: Option<&Owner>,
    ) -> Result<(Self, pipe::Receiver), StartFailure> {
        let failed = |error: io::Error| StartFailure::spawn(&program.program, &error);
        let spawn = |mark: &str| {
            let mut command = Command::new(&program.program);
            command
                .args(&program.arguments)
                .env_clear()
                .envs(program.variables.iter().map(|(name, value)| (name, value)))
                .envs(worker_variables(owner, scope))
                .env(MARK_VARIABLE, mark)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .process_group(0);
            if let Some(directory) = program.directory.as_deref().or_else(|| scope.primary()) {
                command.current_dir(directory);
            }
            command.spawn()
        };
        let (mut child, tree) = Tree::start(spawn, Child::id).map_err(failed)?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(StartFailure::Stopped);
        };
        let pipes = Pipes {
            stdin: stdin.into_owned_fd().map_err(failed)?,
            stdout: stdout.into_owned_fd().map_err(failed)?,
            stderr: stderr.into_owned_fd().map_err(failed)?,
        };
        let root = tree.root();
        let ended = async move {
            let status = child.wait().await.unwrap_or_default();
            Tree::root_is_gone(root);
            Exit { status, limit: None }
        };
        Self::attend(name, pipes, Hold::Open(tree), None, ended).map_err(failed)
    }

    /// Takes over an upstream that was started inside a fence.
    pub(crate) fn adopt(
        name: &str,
        enclosure: &Enclosure,
        launched: Launched,
    ) -> io::Result<(Self, pipe::Receiver)> {
        let Launched { mut fenced, stdin, stdout, stderr } = launched;
        let remote = fenced.remote()?;
        let keeper = fenced.keeper();
        let confinement = fenced.confinement.summary();
        // The fence stands; its description takes more memory than all else that is kept of it.
        fenced.confinement.protections = Vec::new();
        let listeners = std::mem::take(&mut fenced.listeners);
        let network = (!listeners.is_empty()).then(|| {
            tokio::spawn({
                let (name, hosts) = (name.to_owned(), enclosure.allowed_hosts());
                async move {
                    if let Err(error) = fence::network::serve(listeners, hosts).await {
                        tracing::error!(upstream = name, "the network of the fence failed: {error}");
                    }
                }
            })
        });
        let ended = async move {
            // If this fails, the thread below waits instead.
            let _ = fenced.ended().await;
            if let Some(network) = network {
                network.abort();
            }
            let ending = tokio::task::spawn_blocking(move || fenced.wait()).await;
            ending.ok().and_then(Result::ok).map_or_else(Exit::default, Exit::from)
        };
        let hold = Hold::Fenced { keeper, remote: Mutex::new(remote) };
        Self::attend(name, Pipes { stdin, stdout, stderr }, hold, Some(confinement), ended)
    }

    fn attend(
        name: &str,
        pipes: Pipes,
        hold: Hold,
        confinement: Option<String>,
        ended: impl Future<Output = Exit> + Send + 'static,
    ) -> io::Result<(Self, pipe::Receiver)> {
        let stdin = pipe::Sender::from_owned_fd(pipes.stdin).map(Arc::new)?;
        let stdout = pipe::Receiver::from_owned_fd(pipes.stdout)?;
        let stderr = pipe::Receiver::from_owned_fd(pipes.stderr)?;
        let outbox = Arc::new(Outbox::new(Some(Arc::clone(&stdin))));
        let tail = Arc::new(StderrTail::default());
        let (exit_sender, exit) = watch::channel(None);
        let process =
            Self { hold, outbox: Arc::clone(&outbox), stderr: Arc::clone(&tail), exit, confinement };
        tokio::spawn(write_stdin(outbox, stdin));
        let stderr_reader = tokio::spawn(read_stderr(tail, stderr, name.to_owned()));
        tokio::spawn(async move {
            let exit = ended.await;
            // The tail is part of the error that callers see, so it must be complete first.
            let _ = tokio::time::timeout(LAST_WORDS, stderr_reader).await;
            let _ = exit_sender.send(Some(exit));
        });
        Ok((process, stdout))
    }

    /// The process to look at from outside: the root of the tree, or its keeper.
    pub(crate) fn pid(&self) -> i32 {
        let pid = match &self.hold {
            Hold::Open(tree) => tree.root(),
            Hold::Fenced { keeper, .. } => *keeper,
        };
        pid.as_raw_nonzero().get()
    }

    /// Sends a call. False: the upstream does not read, and too much waits already.
    pub(crate) fn send_call(&self, line: &[u8], urgency: Urgency) -> bool {
        self.outbox.push(line, urgency)
    }

    pub(crate) fn stderr_tail(&self) -> String {
        self.stderr.text()
    }

    pub(crate) fn has_exited(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    pub(crate) async fn exited(&self) -> Exit {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.unwrap_or_default(),
            Err(_) => Exit::default(),
        }
    }

    /// Ends the process and everything it started: stdin closed, SIGTERM, SIGKILL, each after `grace`.
    pub(crate) async fn end(&self, grace: Duration) {
        self.outbox.close();
        if tokio::time::timeout(grace, self.exited()).await.is_err() {
            self.terminate();
            let _ = tokio::time::timeout(grace, self.exited()).await;
        }
        self.kill().await;
    }

    /// Ends what is left, at once.
    pub(crate) async fn kill(&self) {
        self.outbox.close();
        match &self.hold {
            Hold::Open(tree) => tree.kill().await,
            Hold::Fenced { remote, .. } => {
                remote.lock().unwrap_or_else(PoisonError::into_inner).kill();
                if tokio::time::timeout(KILLED_WITHIN, self.exited()).await.is_err() {
                    tracing::warn!("some processes of an MCP server did not end after SIGKILL");
                }
            }
        }
    }

    fn terminate(&self) {
        match &self.hold {
            Hold::Open(tree) => tree.terminate(),
            Hold::Fenced { remote, .. } => {
                // Gone already is as good.
                let _ = remote.lock().unwrap_or_else(PoisonError::into_inner).signal(Signal::TERM);
            }
        }
    }
}

impl From<Ending> for Exit {
    fn from(ending: Ending) -> Self {
        let raw = ending.code.map(|code| (code & 0xff) << 8).or(ending.signal).unwrap_or(0);
        Self { status: ExitStatus::from_raw(raw), limit: ending.limit }
    }
}

impl fmt::Display for Exit {
    /// As a phrase that follows "the MCP server".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => write!(f, "exited with code {code}")?,
            (None, Some(signal)) => write!(f, "was killed by signal {signal}")?,
            (None, None) => write!(f, "ended")?,
        }
        match self.limit {
            Some(LimitHit::Memory { bytes }) => {
                write!(f, " at its memory limit of {} MiB (--memory)", bytes >> 20)
            }
            Some(LimitHit::Processes { count }) => {
                write!(f, " at its limit of {count} processes (--processes)")
            }
            None => Ok(()),
        }
    }
}

/// Calls `each` for every line of stdout until it ends.
pub(crate) async fn read_stdout(
    mut stdout: pipe::Receiver,
    limit: usize,
    mut each: impl FnMut(Result<Bytes, wire::LineTooLong>),
) {
    let mut lines = LineBuffer::new(limit);
    let mut pipe_is_large = false;
    loop {
        match stdout.read_buf(lines.space()).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        while let Some(line) = lines.next_line() {
            each(line);
        }
        if lines.holds_long_line() && !pipe_is_large {
            // Best effort: a smaller pipe only means more wake-ups.
            let _ = rustix::pipe::fcntl_setpipe_size(&stdout, LARGE_PIPE);
            pipe_is_large = true;
        }
    }
}

/// Lines on their way to stdin. A line is written at once if it is alone and the pipe has room; what comes
/// with others or does not fit waits for the task that writes the rest.
#[derive(Debug)]
struct Outbox {
    queue: Mutex<Queue>,
    changed: Notify,
}

/// When a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    Now,
    /// Together with others that come at the same time: one write and one wake-up for all.
    WithOthers,
}

#[derive(Debug)]
struct Queue {
    lines: BytesMut,
    /// Gone when stdin was closed; the task holds the other reference.
    pipe: Option<Arc<pipe::Sender>>,
    /// How much the task took out of `lines` and is writing; a line written directly would overtake it.
    writing: usize,
    is_closed: bool,
}

impl Outbox {
    fn new(pipe: Option<Arc<pipe::Sender>>) -> Self {
        let queue = Queue { lines: BytesMut::new(), pipe, writing: 0, is_closed: false };
        Self { queue: Mutex::new(queue), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8], urgency: Urgency) -> bool {
        let mut queue = self.lock();
        if queue.is_closed || queue.writing + queue.lines.len() + line.len() > MAX_OUTBOX_BYTES {
            return queue.is_closed;
        }
        let may_overtake = queue.lines.is_empty() && queue.writing == 0;
        let written = if urgency == Urgency::Now && may_overtake { queue.write_now(line) } else { 0 };
        if written <= line.len() {
            queue.lines.extend_from_slice(&line[written..]);
            queue.lines.extend_from_slice(b"\n");
            drop(queue);
            self.changed.notify_one();
        }
        true
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// What is to be written now. `None`: nothing is left, and nothing will come.
    fn take(&self) -> Option<BytesMut> {
        let mut queue = self.lock();
        queue.writing = queue.lines.len();
        if queue.lines.is_empty() && queue.is_closed {
            return None;
        }
        Some(std::mem::take(&mut queue.lines))
    }
}

impl Queue {
    /// How much of the line and its end the pipe took. An error shows when the task meets it.
    fn write_now(&self, line: &[u8]) -> usize {
        let Some(pipe) = &self.pipe else { return 0 };
        // Straight to the descriptor, which does not block: the runtime knows of its readiness only after a
        // round through its event loop, and a new process is waiting for its first line.
        rustix::io::writev(pipe, &[IoSlice::new(line), IoSlice::new(b"\n")]).unwrap_or(0)
    }
}

/// Writes what did not fit at once, until the outbox closes; then stdin closes with it.
async fn write_stdin(outbox: Arc<Outbox>, pipe: Arc<pipe::Sender>) {
    write_rest(&outbox, &pipe).await;
    let mut queue = outbox.lock();
    queue.is_closed = true;
    queue.pipe = None;
}

async fn write_rest(outbox: &Outbox, pipe: &pipe::Sender) {
    while let Some(lines) = outbox.take() {
        if lines.is_empty() {
            outbox.changed.notified().await;
            // Whoever is about to add a line gets the chance to, before all are written.
            tokio::task::yield_now().await;
            continue;
        }
        let written = tokio::select! {
            biased;
            written = write_all(pipe, &lines) => written,
            () = closed(outbox) => return,
        };
        if written.is_err() {
            return;
        }
    }
}

async fn write_all(pipe: &pipe::Sender, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        pipe.writable().await?;
        match pipe.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Resolves when the outbox closes while a write is stuck.
async fn closed(outbox: &Outbox) {
    loop {
        let changed = outbox.changed.notified();
        if outbox.lock().is_closed {
            return;
        }
        changed.await;
    }
}

/// The last part of what a process wrote to stderr.
#[derive(Debug, Default)]
struct StderrTail(Mutex<VecDeque<u8>>);

impl StderrTail {
    fn add(&self, line: &[u8]) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(line);
        tail.push_back(b'\n');
        let excess = tail.len().saturating_sub(STDERR_TAIL_BYTES);
        tail.drain(..excess);
    }

    fn text(&self) -> String {
        let tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (front, back) = tail.as_slices();
        String::from_utf8_lossy(&[front, back].concat()).trim_end().to_owned()
    }
}

async fn read_stderr(tail: Arc<StderrTail>, mut stderr: pipe::Receiver, name: String) {
    let mut lines = LineBuffer::new(STDERR_LINE_BYTES);
    let mut budget = LogBudget::default();
    while let Ok(1..) = stderr.read_buf(lines.space()).await {
        while let Some(line) = lines.next_line() {
            let line = line.unwrap_or_else(|long| long.head());
            tail.add(&line);
            if budget.allows() {
                tracing::info!(upstream = name, "stderr: {}", String::from_utf8_lossy(&line));
            }
        }
    }
    let rest = std::mem::take(lines.space());
    if !rest.is_empty() {
        tail.add(&rest);
        tracing::info!(upstream = name, "stderr: {}", String::from_utf8_lossy(&rest));
    }
}

/// Keeps a chatty upstream from flooding the log.
#[derive(Default)]
struct LogBudget {
    second: Option<Instant>,
    used: u32,
}

impl LogBudget {
    fn allows(&mut self) -> bool {
        let now = Instant::now();
        if self.second.is_none_or(|second| now.duration_since(second) >= Duration::from_secs(1)) {
            if self.used > STDERR_LINES_PER_SECOND {
                tracing::info!("{} lines of stderr were not logged", self.used - STDERR_LINES_PER_SECOND);
            }
            (self.second, self.used) = (Some(now), 0);
        }
        self.used += 1;
        self.used <= STDERR_LINES_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_keeps_the_end() {
        let tail = StderrTail::default();
        for number in 0..10_000 {
            tail.add(format!("line {number}").as_bytes());
        }
        let text = tail.text();
        assert!(text.ends_with("line 9999") && text.len() <= STDERR_TAIL_BYTES, "{text}");
    }

    #[test]
    fn an_outbox_that_nobody_empties_is_bounded() {
        let outbox = Outbox::new(None);
        let line = vec![b'x'; 1024 * 1024];
        let taken = (0..1000).take_while(|_| outbox.push(&line, Urgency::Now)).count();
        assert!(taken < 64 && taken > 50, "{taken}");
        outbox.close();
        assert!(
            outbox.push(b"after the end nothing waits", Urgency::Now),
            "the death of the process tells the caller"
        );
    }
}
