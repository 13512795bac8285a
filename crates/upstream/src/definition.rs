//! The definition of an MCP server: what to start or reach, its environment, its fence, and what shares it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::fence_host::FenceHost;
use crate::redaction::Redaction;
use crate::start_error::StartError;

/// What shares a running upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lifecycle {
    /// One process serves all clients.
    Shared,
    /// One process serves the sessions of one principal on one workspace.
    Workspace,
    /// Each session has a process of its own.
    Session,
    /// Each call has a process of its own.
    Call,
}

impl Lifecycle {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Workspace => "workspace",
            Self::Session => "session",
            Self::Call => "call",
        }
    }

    /// Returns true if several sessions share one process, which the gateway then initializes itself.
    pub fn serves_many(self) -> bool {
        matches!(self, Self::Shared | Self::Workspace)
    }
}

/// A server as it is started or reached for one session. Commands and addresses come from the operator, never from a
/// request.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// For logs, errors and the names of its tools.
    pub name: String,
    pub transport: Transport,
    pub lifecycle: Lifecycle,
    /// It reports its operations on files, for the audit log.
    pub reports_files: bool,
    /// Overrides of the gateway's own timeouts.
    pub timeouts: Timeouts,
    /// It has a circuit breaker: after some unanswered calls, further ones fail at once. Set if it is one of several.
    pub is_guarded: bool,
    /// Takes the secrets that were filled in out of what it says about itself.
    pub redaction: Redaction,
}

/// How a server is reached. Everything above this crate treats the three alike.
#[derive(Clone, Debug)]
pub enum Transport {
    /// A process on this machine.
    Process(Program),
    /// An MCP endpoint elsewhere.
    Http(Address),
    /// A process on the client's machine, through the attachment of the session.
    Attached,
}

#[derive(Clone, Debug)]
pub struct Program {
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// Without a fence the whole environment of the process; with one, additions to the environment of the fence.
    pub variables: Vec<(OsString, OsString)>,
    /// Paths that the program needs to read besides those that the fence finds itself.
    pub readable: Vec<PathBuf>,
    /// Where it starts; by default in the first directory of its scope.
    pub directory: Option<PathBuf>,
    /// `None` if the operator wants it unconfined.
    pub fence: Option<Arc<FenceHost>>,
    /// Its own answers say what the fence refused.
    pub explains_refusals: bool,
    /// It keeps what is to outlive it in files that it is given at its start.
    pub keeps_state: bool,
    /// Runs before each start.
    pub preparation: Option<Preparation>,
}

impl Program {
    /// Runs the preparation, if any. Returns the program to start.
    pub(crate) async fn prepared(&self) -> Result<Self, StartError> {
        let program = self.clone();
        let Some(preparation) = program.preparation.clone() else { return Ok(program) };
        let prepare = move || (preparation.0)(program);
        tokio::task::spawn_blocking(prepare).await.unwrap_or(Err(StartError::Stopped))
    }
}

/// Finds or installs a program. Blocks, for minutes if it downloads a package.
#[derive(Clone)]
pub struct Preparation(pub Arc<dyn Fn(Program) -> Result<Program, StartError> + Send + Sync>);

impl std::fmt::Debug for Preparation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Preparation")
    }
}

#[derive(Clone)]
pub struct Address {
    pub url: String,
    /// Never printed, because some are secrets.
    pub headers: Vec<(String, String)>,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Address").field("url", &self.url).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Timeouts {
    pub call: Option<Duration>,
    pub longest_call: Option<Duration>,
    pub start: Option<Duration>,
}

impl Upstream {
    /// A server on this machine, without a circuit breaker.
    pub fn process(name: String, program: Program, lifecycle: Lifecycle) -> Self {
        Self {
            name,
            transport: Transport::Process(program),
            lifecycle,
            reports_files: false,
            timeouts: Timeouts::default(),
            is_guarded: false,
            redaction: Redaction::default(),
        }
    }

    /// The program, if the server is a process on this machine.
    pub fn program(&self) -> Option<&Program> {
        match &self.transport {
            Transport::Process(program) => Some(program),
            Transport::Http(_) | Transport::Attached => None,
        }
    }
}
