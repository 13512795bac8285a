//! The definition of an MCP server: what to start, with which environment, shared by whom, inside which fence.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use crate::FenceHost;

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

/// Commands come from the operator, never from a request.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// For logs and errors.
    pub name: String,
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// Without a fence: the whole environment of the process. With one: what is added to that of the fence.
    pub variables: Vec<(OsString, OsString)>,
    /// What the program needs to read beside what the fence finds out by itself.
    pub readable: Vec<PathBuf>,
    pub lifecycle: Lifecycle,
    /// It tells us what it does to files, for the audit log.
    pub reports_files: bool,
    /// `None`: the operator wants it unconfined.
    pub fence: Option<Arc<FenceHost>>,
}
