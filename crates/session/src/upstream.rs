//! The definition of an MCP server: what to start, with which environment, shared by whom.

use std::ffi::OsString;

/// Who shares a running upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// One process serves all clients.
    Shared,
    /// Each session has a process of its own.
    Session,
}

/// Commands come from the operator, never from a request.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// For logs and errors.
    pub name: String,
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// The whole environment of the process; nothing is inherited beside it.
    pub environment: Vec<(OsString, OsString)>,
    pub lifecycle: Lifecycle,
}
