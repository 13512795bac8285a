//! One running upstream process: its pipes, the tail of its stderr, and how it is ended.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fence::{Pipes, Remote};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use wire::LineBuffer;

use crate::definition::Program;
use crate::directories::Directories;
use crate::end::Exit;
use crate::outbox::{Outbox, Urgency, write_stdin};
use crate::process_tree::{MARK_VARIABLE, ProcessTree};
use crate::redaction::Redaction;
use crate::start_error::StartError;
use crate::stderr::{StderrSource, StderrTail, read_stderr};
use crate::worker_fence::Launched;
use crate::worker_variables::{Owner, worker_variables};

/// How long the stderr of a dead process is read: a descendant may hold the pipe open.
const STDERR_SETTLE: Duration = Duration::from_millis(500);

/// A process in the kernel's uninterruptible sleep cannot be waited for without end.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// A long line is read through a pipe of this size, the largest that the kernel gives to every user.
const LARGE_PIPE: usize = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Process {
    hold: Hold,
    outbox: Arc<Outbox>,
    stderr: Arc<StderrTail>,
    /// Holds how the process ended once it did.
    exit: watch::Receiver<Option<Exit>>,
    /// What its fence enforces, in one line; `None` without a fence.
    pub(crate) confinement: Option<String>,
}

/// How a process and everything it started is ended.
#[derive(Debug)]
enum Hold {
    Unfenced(ProcessTree),
    /// Its supervisor ends the tree when the remote is dropped.
    Fenced {
        supervisor: Pid,
        remote: Mutex<Remote>,
    },
}

impl Process {
    /// Starts the upstream without a fence, and the tasks around its pipes except the one that reads its
    /// stdout.
    pub(crate) fn spawn(
        name: &str,
        redaction: Redaction,
        program: &Program,
        directories: &Directories,
        owner: Option<&Owner>,
    ) -> Result<(Self, pipe::Receiver), StartError> {
        if directories.staged.is_some() {
            return Err(StartError::UnfencedCopy);
        }
        let directory = program.directory.as_deref().or_else(|| directories.primary());
        let spawn = |mark: &str| {
            let variables = program.variables.iter().cloned();
            let environment = variables
                .chain(worker_variables(owner, directories))
                .chain([(MARK_VARIABLE.into(), mark.into())]);
            fence::spawn_unfenced(&program.program, &program.arguments, environment, directory)
        };
        let failed = |error: io::Error| StartError::spawn(&program.program, &error);
        let ((mut child, pipes), tree) =
            ProcessTree::start(spawn, |(child, _)| child.id()).map_err(failed)?;
        let root = tree.root();
        let ended = async move {
            let status = child.wait().await.unwrap_or_default();
            ProcessTree::root_is_gone(root);
            Exit { status, limit: None, mount_lost: false }
        };
        let source = StderrSource { name: name.to_owned(), redaction, fenced_to: None };
        Self::attend(source, pipes, Hold::Unfenced(tree), None, ended).map_err(failed)
    }

    /// Takes over an upstream that was started inside a fence around these directories.
    pub(crate) fn adopt(
        name: &str,
        redaction: Redaction,
        launched: Launched,
        directories: &Arc<Directories>,
    ) -> io::Result<(Self, pipe::Receiver)> {
        let Launched { mut fence, pipes } = launched;
        let hold = Hold::Fenced { supervisor: fence.supervisor(), remote: Mutex::new(fence.remote()?) };
        let confinement = fence.confinement().summary();
        let upstream = name.to_owned();
        let ended = async move {
            let network_failed =
                |error| tracing::error!(upstream, "the network of the fence failed: {error}");
            fence.attend(network_failed).await.map_or_else(|_| Exit::default(), Exit::from)
        };
        let fenced_to = Some(Arc::clone(directories));
        let source = StderrSource { name: name.to_owned(), redaction, fenced_to };
        Self::attend(source, pipes, hold, Some(confinement), ended)
    }

    fn attend(
        source: StderrSource,
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
        // These end with the process, and `exited` waits for the last of them.
        tokio::spawn(write_stdin(outbox, stdin));
        let stderr_reader = tokio::spawn(read_stderr(tail, stderr, source));
        tokio::spawn(async move {
            let exit = ended.await;
            // The tail is part of the error that callers see, so it must be complete first.
            let _ = tokio::time::timeout(STDERR_SETTLE, stderr_reader).await;
            let _ = exit_sender.send(Some(exit));
        });
        Ok((process, stdout))
    }

    /// The process to watch from outside: the root of the tree, or its supervisor.
    pub(crate) fn pid(&self) -> i32 {
        let pid = match &self.hold {
            Hold::Unfenced(tree) => tree.root(),
            Hold::Fenced { supervisor, .. } => *supervisor,
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

    /// Kills the process and everything it started, at once.
    pub(crate) async fn kill(&self) {
        self.outbox.close();
        match &self.hold {
            Hold::Unfenced(tree) => tree.kill().await,
            Hold::Fenced { remote, .. } => {
                remote.lock().kill();
                if tokio::time::timeout(KILLED_WITHIN, self.exited()).await.is_err() {
                    tracing::warn!("some processes of an MCP server did not end after SIGKILL");
                }
            }
        }
    }

    fn terminate(&self) {
        match &self.hold {
            Hold::Unfenced(tree) => tree.terminate(),
            Hold::Fenced { remote, .. } => {
                // Gone already is as good.
                let _ = remote.lock().signal(Signal::TERM);
            }
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
