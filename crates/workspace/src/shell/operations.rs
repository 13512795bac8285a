//! The table of operations: limits how many run, remembers finished ones, and ends them all with the server.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fence::nested::{NestedDomain, shield_this_process};
use rustix::event::EventfdFlags;
use rustix::process::Signal;

use super::capture::Capture;
use super::command::{self, ShellCommand};
use super::operation::{Beginning, Operation};
use super::operation_id::OperationId;
use super::past::PastOperation;
use super::tree::Tree;
use super::watcher::{Watched, Watcher};
use crate::state::State;

/// The kernel's limit for one argument (`MAX_ARG_STRLEN`), without the final NUL.
const LONGEST_SCRIPT: usize = 128 * 1024 - 1;
/// Characters of a script that an error quotes.
const QUOTED_CHARACTERS: usize = 60;
/// Time between SIGTERM and SIGKILL when the server itself ends, which must be quick.
const LAST_GRACE: Duration = Duration::from_millis(500);
const LAST_PATIENCE: Duration = Duration::from_secs(3);

/// Limits for all operations of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationLimits {
    /// Operations that run at the same time.
    pub(crate) running: usize,
    /// Finished operations that left processes running.
    pub(crate) left: usize,
    /// Finished operations that are remembered.
    pub(crate) kept: usize,
    /// Bytes of output and scripts of finished operations that are remembered.
    pub(crate) kept_bytes: usize,
    /// Bytes that are kept from the beginning of each output.
    pub(crate) head: usize,
    /// Bytes that are kept from the end of each output.
    pub(crate) tail: usize,
    /// Time between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
}

impl Default for OperationLimits {
    fn default() -> Self {
        Self {
            running: 8,
            left: 16,
            kept: 64,
            kept_bytes: 4 * 1024 * 1024,
            head: 32 * 1024,
            tail: 96 * 1024,
            grace: Duration::from_secs(2),
        }
    }
}

/// All operations of one server. Shared by its threads.
#[derive(Debug)]
pub(crate) struct Operations {
    limits: OperationLimits,
    domain: NestedDomain,
    shell: Option<PathBuf>,
    state: Arc<State>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// How many operations were started so far.
    started: u64,
    /// Oldest first.
    operations: VecDeque<Arc<Operation>>,
    /// Those of earlier servers of the session, oldest first. They are few, and stay.
    past: Vec<Arc<PastOperation>>,
    is_closed: bool,
}

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(
        "{} commands are running already, which is the most at one time; wait for one or cancel one: {}",
        running.len(), listed(running)
    )]
    TooMany { running: Vec<Unfinished> },
    #[error(
        "{} commands have left processes running in the background, which is the most; cancel one: {}",
        left.len(), listed(left)
    )]
    TooManyLeft { left: Vec<Unfinished> },
    #[error("there is neither bash nor sh on this system, so no command can be run")]
    NoShell,
    #[error(
        "the script has {bytes} bytes and may have {LONGEST_SCRIPT} at most; write it to a file and run that"
    )]
    ScriptTooLong { bytes: usize },
    #[error("the server is ending and starts no more commands")]
    Closed,
    #[error("the command could not be started")]
    Spawn(#[source] io::Error),
}

/// An operation that counts against a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfinished {
    pub(crate) id: OperationId,
    pub(crate) script: String,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.script.trim().lines().next().unwrap_or_default();
        let quoted: String = line.chars().take(QUOTED_CHARACTERS).collect();
        let more = if quoted.len() < self.script.trim().len() { " ..." } else { "" };
        write!(formatter, "{} ({quoted}{more})", self.id)
    }
}

fn listed(operations: &[Unfinished]) -> String {
    operations.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Why an operation was not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LookupError {
    #[error("there was never an operation {id:?}; list the operations to see their ids")]
    Unknown { id: String },
    #[error("the operation {id} has ended and was forgotten, because later operations took its place")]
    Forgotten { id: OperationId },
}

impl Operations {
    /// Also shields this process from its commands and makes it adopt their orphans. Without that, commands could
    /// outlive their end and escape their limits.
    pub(crate) fn new(limits: OperationLimits) -> io::Result<Self> {
        shield_this_process()?;
        Ok(Self {
            limits,
            domain: NestedDomain::prepare()?,
            shell: command::find_shell(),
            state: Arc::default(),
            table: Mutex::default(),
        })
    }

    /// Goes on after the operations of earlier servers, and keeps what a later one is to know.
    #[must_use]
    pub(crate) fn keeping(self, state: &Arc<State>, past: Vec<PastOperation>) -> Self {
        let started = past.last().map_or(0, |last| last.id.0);
        let past = past.into_iter().map(Arc::new).collect();
        let table = Mutex::new(Table { started, past, ..Table::default() });
        Self { state: Arc::clone(state), table, ..self }
    }

    /// The nested domain that commands run in.
    pub(crate) fn domain(&self) -> &NestedDomain {
        &self.domain
    }

    pub(crate) fn limits(&self) -> &OperationLimits {
        &self.limits
    }

    /// The shell that runs scripts, if one was found.
    pub(crate) fn shell(&self) -> Option<&Path> {
        self.shell.as_deref()
    }

    /// Starts a command and returns at once.
    pub(crate) fn start(&self, command: ShellCommand) -> Result<Arc<Operation>, StartError> {
        let shell = self.shell.as_deref().ok_or(StartError::NoShell)?;
        if command.script.len() > LONGEST_SCRIPT {
            return Err(StartError::ScriptTooLong { bytes: command.script.len() });
        }
        let mut table = self.table();
        self.check_limits(&table)?;
        let id = OperationId(table.started + 1);
        self.state.operation_started(id, &command.script, &command.directory_name);
        let operation = self.spawn(shell, command, id).map_err(|error| {
            self.state.operation_failed(id);
            StartError::Spawn(error)
        })?;
        table.started = id.0;
        table.operations.push_back(Arc::clone(&operation));
        Ok(operation)
    }

    fn check_limits(&self, table: &Table) -> Result<(), StartError> {
        if table.is_closed {
            return Err(StartError::Closed);
        }
        let running = unfinished(table, |operation| operation.state().is_running());
        if running.len() >= self.limits.running {
            return Err(StartError::TooMany { running });
        }
        let left = unfinished(table, |operation| !operation.state().is_running() && !operation.is_quiet());
        if left.len() >= self.limits.left {
            return Err(StartError::TooManyLeft { left });
        }
        Ok(())
    }

    fn spawn(
        &self,
        shell: &std::path::Path,
        command: ShellCommand,
        id: OperationId,
    ) -> io::Result<Arc<Operation>> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let watcher_wake = wake.try_clone()?;
        let (tree, output) = Tree::start(|mark| command::spawn(shell, &command, id, mark, &self.domain))?;
        let operation = Arc::new(Operation::new(Beginning {
            id,
            script: command.script,
            directory_name: command.directory_name,
            tree,
            capture: Capture::new(self.limits.head, self.limits.tail),
            wake,
        }));
        let watched = Watched {
            output,
            wake: watcher_wake,
            timeout: command.timeout,
            grace: self.limits.grace,
            state: Arc::clone(&self.state),
        };
        if let Err(error) = Watcher::start(Arc::clone(&operation), watched) {
            // Without its thread the command would run unwatched, so it is killed.
            operation.tree.signal(Signal::KILL);
            while operation.tree.wait_for_root().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            return Err(error);
        }
        Ok(operation)
    }

    /// Ends an operation with everything that it started, including what it left running. Returns at once;
    /// [`Operation::wait`] returns when that is done.
    pub(crate) fn cancel(&self, id: &str, reason: &str) -> Result<Arc<Operation>, LookupError> {
        let operation = self.get(id)?;
        operation.request_end(reason, self.limits.grace);
        Ok(operation)
    }

    pub(crate) fn get(&self, id: &str) -> Result<Arc<Operation>, LookupError> {
        let unknown = || LookupError::Unknown { id: id.to_owned() };
        let id: OperationId = id.parse().map_err(|()| unknown())?;
        let table = self.table();
        if let Some(operation) = table.operations.iter().find(|operation| operation.id() == id) {
            return Ok(Arc::clone(operation));
        }
        if (1..=table.started).contains(&id.0) { Err(LookupError::Forgotten { id }) } else { Err(unknown()) }
    }

    /// The operation of an earlier server that has this id.
    pub(crate) fn past(&self, id: &str) -> Option<Arc<PastOperation>> {
        let id: OperationId = id.parse().ok()?;
        self.table().past.iter().find(|operation| operation.id == id).cloned()
    }

    /// Those of earlier servers, newest first.
    pub(crate) fn list_past(&self) -> Vec<Arc<PastOperation>> {
        self.table().past.iter().rev().cloned().collect()
    }

    /// Newest first.
    pub(crate) fn list(&self) -> Vec<Arc<Operation>> {
        self.table().operations.iter().rev().cloned().collect()
    }

    /// Ends all operations and starts no more. Returns when all have ended, or after a few seconds. Processes that
    /// belong to no operation end with the fence.
    pub(crate) fn end_all(&self) {
        let mut table = self.table();
        table.is_closed = true;
        let operations: Vec<_> = table.operations.iter().cloned().collect();
        drop(table);
        for operation in operations.iter().filter(|operation| operation.state().is_running()) {
            let (total, newest) = operation.newest_output();
            self.state.operation_output(operation.id(), &newest, total);
        }
        self.state.end();
        for operation in &operations {
            operation.request_end("the server is ending", LAST_GRACE.min(self.limits.grace));
        }
        let until = Instant::now() + LAST_PATIENCE;
        for operation in &operations {
            operation.wait(until, &|| false, &mut |_| {});
        }
    }

    /// Locks the table and forgets old operations.
    fn table(&self) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock();
        table.forget_beyond(&self.limits);
        table
    }
}

impl Table {
    /// Forgets finished operations beyond the limits, oldest first.
    fn forget_beyond(&mut self, limits: &OperationLimits) {
        let (mut kept, mut bytes) = (0, 0);
        let mut is_remembered: Vec<bool> = Vec::with_capacity(self.operations.len());
        for operation in self.operations.iter().rev() {
            let is_over = operation.is_quiet();
            if is_over {
                kept += 1;
                bytes += operation.kept_bytes();
            }
            // The newest stays, even if it is too large.
            is_remembered.push(!is_over || kept <= 1 || (kept <= limits.kept && bytes <= limits.kept_bytes));
        }
        let mut is_remembered = is_remembered.into_iter().rev();
        self.operations.retain(|_| is_remembered.next().unwrap_or(true));
    }
}

fn unfinished(table: &Table, is_in_the_way: impl Fn(&Operation) -> bool) -> Vec<Unfinished> {
    let operations = table.operations.iter().filter(|operation| is_in_the_way(operation));
    operations
        .map(|operation| Unfinished { id: operation.id(), script: operation.script().to_owned() })
        .collect()
}
