//! The definition of an MCP server: what to start or reach, with which environment, shared by whom, inside which
//! fence.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::fence_host::FenceHost;
use crate::start_error::StartError;

/// Who shares a running upstream.
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

    /// Whether several sessions talk to one process, which the gateway then greets itself.
    pub fn serves_many(self) -> bool {
        matches!(self, Self::Shared | Self::Workspace)
    }
}

/// One server as it is started or reached for one session. Commands and addresses come from the operator, never
/// from a request.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// For logs, errors and the names of its tools.
    pub name: String,
    pub transport: Transport,
    pub lifecycle: Lifecycle,
    /// It tells us what it does to files, for the audit log.
    pub reports_files: bool,
    /// Where these differ from the gateway's own.
    pub timeouts: Timeouts,
    /// It is one of several: after some calls that it did not answer, others are not kept waiting for it.
    pub is_guarded: bool,
}

/// How a server is talked to. Everything above is written once for all of them.
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
    /// Without a fence: the whole environment of the process. With one: what is added to that of the fence.
    pub variables: Vec<(OsString, OsString)>,
    /// What the program needs to read beside what the fence finds out by itself.
    pub readable: Vec<PathBuf>,
    /// Where it starts; in the first directory of its scope if nothing is said.
    pub directory: Option<PathBuf>,
    /// `None`: the operator wants it unconfined.
    pub fence: Option<Arc<FenceHost>>,
    /// What must be done before it can be started, each time anew.
    pub preparation: Option<Preparation>,
}

impl Program {
    /// The program as it can be started now.
    pub(crate) async fn prepared(&self) -> Result<Self, StartError> {
        let program = self.clone();
        let Some(preparation) = program.preparation.clone() else { return Ok(program) };
        let prepare = move || (preparation.0)(program);
        tokio::task::spawn_blocking(prepare).await.unwrap_or(Err(StartError::Stopped))
    }
}

/// Finds a program, or installs it. Blocks, for minutes if a package has to be fetched.
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
    /// Secrets among them: never printed.
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
    /// A server on this machine, alone.
    pub fn process(name: String, program: Program, lifecycle: Lifecycle) -> Self {
        Self {
            name,
            transport: Transport::Process(program),
            lifecycle,
            reports_files: false,
            timeouts: Timeouts::default(),
            is_guarded: false,
        }
    }

    /// The process that it is, if it is one.
    pub fn program(&self) -> Option<&Program> {
        match &self.transport {
            Transport::Process(program) => Some(program),
            Transport::Http(_) | Transport::Attached => None,
        }
    }
}
