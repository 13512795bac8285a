//! Starts, watches, limits and ends shell commands.
//!
//! [`Operations`] holds all commands that this server has started for its client. Each is an [`Operation`]: a
//! shell in its own process session and nested domain. Its thread reads the output, ends the command on timeout
//! or cancellation, and stays as long as any process of the command runs. A [`Report`] is a snapshot of an
//! operation.

mod capture;
mod command;
mod internal_command;
mod operation;
mod operation_id;
mod operations;
mod past;
mod report;
mod screen;
#[cfg(test)]
mod tests;
mod tree;
mod watcher;

pub(crate) use command::ShellCommand;
pub(crate) use operation::{Operation, Waited};
pub(crate) use operation_id::OperationId;
pub(crate) use operations::{LookupError, OperationLimits, Operations, StartError};
pub(crate) use past::{LostReason, Outcome, PastOperation};
pub(crate) use report::{Report, State};
