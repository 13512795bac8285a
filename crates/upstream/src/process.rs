//! One running upstream process: its pipes, the tail of its stderr, and how it is ended.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fence::Remote;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use wire::LineBuffer;

use crate::definition::Program;
use crate::directories::Directories;
use crate::end::Exit;
use crate::outbox::{Outbox, Urgency, write_stdin};
use crate::process_tree::{MARK_VARIABLE, ProcessTree};
use crate::start_error::StartError;
use crate::stderr::{StderrTail, read_stderr};
use crate::worker_fence::Launched;
use crate::worker_variables::{Owner, worker_variables};

/// Reading what a dead process had still written ends here: a descendant may hold the pipe open.
const STDERR_SETTLE: Duration = Duration::from_millis(500);

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
    Open(ProcessTree),
    /// Its supervisor ends the tree when the hold is let go.
    Fenced {
        supervisor: Pid,
        remote: Mutex<Remote>,
    },
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
        directories: &Directories,
        owner: Option<&Owner>,
    ) -> Result<(Self, pipe::Receiver), StartError> {
        let failed = |error: io::Error| StartError::spawn(&program.program, &error);
        let spawn = |mark: &str| {
            let mut command = Command::new(&program.program);
            command
                .args(&program.arguments)
                .env_clear()
                .envs(program.variables.iter().map(|(name, value)| (name, value)))
                .envs(worker_variables(owner, directories))
                .env(MARK_VARIABLE, mark)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .process_group(0);
            if let Some(directory) = program.directory.as_deref().or_else(|| directories.primary()) {
                command.current_dir(directory);
            }
            command.spawn()
        };
        let (mut child, tree) = ProcessTree::start(spawn, Child::id).map_err(failed)?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(StartError::Stopped);
        };
        let pipes = Pipes {
            stdin: stdin.into_owned_fd().map_err(failed)?,
            stdout: stdout.into_owned_fd().map_err(failed)?,
            stderr: stderr.into_owned_fd().map_err(failed)?,
        };
        let root = tree.root();
        let ended = async move {
            let status = child.wait().await.unwrap_or_default();
            ProcessTree::root_is_gone(root);
            Exit { status, limit: None }
        };
        Self::attend(name, pipes, Hold::Open(tree), None, ended).map_err(failed)
    }

    /// Takes over an upstream that was started inside a fence.
    pub(crate) fn adopt(name: &str, launched: Launched) -> io::Result<(Self, pipe::Receiver)> {
        let Launched { mut fenced, stdin, stdout, stderr, hosts } = launched;
        let remote = fenced.remote()?;
        let supervisor = fenced.supervisor();
        let confinement = fenced.confinement.summary();
        // The fence stands; its description takes more memory than all else that is kept of it.
        fenced.confinement.protections = Vec::new();
        let listeners = std::mem::take(&mut fenced.listeners);
        let network = (!listeners.is_empty()).then(|| {
            tokio::spawn({
                let name = name.to_owned();
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
        let hold = Hold::Fenced { supervisor, remote: Mutex::new(remote) };
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
            let _ = tokio::time::timeout(STDERR_SETTLE, stderr_reader).await;
            let _ = exit_sender.send(Some(exit));
        });
        Ok((process, stdout))
    }

    /// The process to look at from outside: the root of the tree, or its supervisor.
    pub(crate) fn pid(&self) -> i32 {
        let pid = match &self.hold {
            Hold::Open(tree) => tree.root(),
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

    /// Ends what is left, at once.
    pub(crate) async fn kill(&self) {
        self.outbox.close();
        match &self.hold {
            Hold::Open(tree) => tree.kill().await,
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
            Hold::Open(tree) => tree.terminate(),
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
