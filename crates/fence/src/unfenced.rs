//! Processes that the operator wants without a fence. They are started here so that every start of a process is
//! in this crate.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use crate::stdio::Pipes;

/// Starts a program with all the rights of this process: nothing confines what it reads, writes, reaches or
/// starts. It leads a process group of its own and gets exactly these variables.
///
/// Needs a tokio runtime, which reaps the child.
pub fn spawn_unfenced(
    program: &OsStr,
    arguments: &[OsString],
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    directory: Option<&Path>,
) -> io::Result<(tokio::process::Child, Pipes)> {
    let (pipes, child_pipes) = Pipes::new()?;
    let mut command = tokio::process::Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment)
        .stdin(child_pipes.stdin)
        .stdout(child_pipes.stdout)
        .stderr(child_pipes.stderr)
        .process_group(0);
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    Ok((command.spawn()?, pipes))
}
