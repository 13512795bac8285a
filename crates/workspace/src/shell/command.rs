//! Starts a script as a process: finds the shell, builds the environment and connects the output.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fence::nested::{NestedCommand, NestedDomain};
use rustix::fs::{Access, OFlags};
use rustix::pipe::PipeFlags;
use rustix::process::Pid;

use super::operation_id::OperationId;
use super::tree::MARK_VARIABLE;
use wire::worker_variable::STATE;

/// Names the operation in the environment of its processes.
const OPERATION_VARIABLE: &str = "RINGFENCE_OPERATION";

/// There is no terminal, so programs should use no pagers, prompts or cursor movements. Applied only to variables
/// that are not set.
const DEFAULTS: &[(&str, &str)] =
    &[("PAGER", "cat"), ("GIT_PAGER", "cat"), ("GIT_TERMINAL_PROMPT", "0"), ("TERM", "dumb")];

/// Searched in this order, before `PATH`.
const SYSTEM_DIRECTORIES: &[&str] = &["/bin", "/usr/bin", "/usr/local/bin"];

/// A command to start.
#[derive(Debug)]
pub(crate) struct ShellCommand {
    /// Passed to the shell verbatim.
    pub(crate) script: String,
    /// The working directory. A descriptor, so that the directory that was checked is the one that is used.
    pub(crate) directory: OwnedFd,
    /// The name of the directory in reports.
    pub(crate) directory_name: String,
    /// Added to the server's own environment.
    pub(crate) environment: Vec<(String, String)>,
    /// After this time, everything that the command started is ended.
    pub(crate) timeout: Option<Duration>,
}

/// The system's bash, or else its plain shell.
pub(super) fn find_shell() -> Option<PathBuf> {
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = SYSTEM_DIRECTORIES
        .iter()
        .map(PathBuf::from)
        // A relative entry would mean another program in every directory.
        .chain(std::env::split_paths(&search_path).filter(|directory| directory.is_absolute()))
        .collect();
    let find = |name: &str| {
        directories.iter().map(|directory| directory.join(name)).find(|path| is_executable(path))
    };
    find("bash").or_else(|| find("sh"))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

/// Starts the shell. Its standard output and error share one pipe, so that they keep their order. The pipe is read
/// without blocking.
pub(super) fn spawn(
    shell: &Path,
    command: &ShellCommand,
    id: OperationId,
    mark: &str,
    domain: &NestedDomain,
) -> io::Result<(Pid, File)> {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK)?;
    let shell = CString::new(shell.as_os_str().as_bytes())?;
    let nested = NestedCommand {
        program: shell.clone(),
        // After `--`, a script that begins with a dash is not taken for an option.
        arguments: vec![shell, c"-c".to_owned(), c"--".to_owned(), CString::new(command.script.as_str())?],
        environment: environment(command, id, mark)?,
    };
    Ok((domain.spawn(&nested, command.directory.as_fd(), writer.as_fd())?, reader.into()))
}

/// The server's environment and the command's. Our own variables override both.
fn environment(command: &ShellCommand, id: OperationId, mark: &str) -> io::Result<Vec<CString>> {
    let given = |(name, value): &(&str, &str)| (OsString::from(name), OsString::from(value));
    let mut variables: BTreeMap<OsString, OsString> = DEFAULTS.iter().map(given).collect();
    // It names open files that commands do not get.
    variables.extend(std::env::vars_os().filter(|(name, _)| name != STATE));
    variables.extend(command.environment.iter().map(|(name, value)| (name.into(), value.into())));
    variables.extend([(OPERATION_VARIABLE, &*id.to_string()), (MARK_VARIABLE, mark)].iter().map(given));
    let entry = |(mut name, value): (OsString, OsString)| {
        name.push("=");
        name.push(value);
        CString::new(name.into_vec()).map_err(io::Error::from)
    };
    variables.into_iter().map(entry).collect()
}
