//! Standard input, output and error of a child.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pipe::PipeFlags;

/// What a command gets as standard input, output and error: pipes, files or terminals. A socket is refused,
/// because it would pass the fence's network rules.
#[derive(Clone, Copy, Debug)]
pub struct Stdio<'a> {
    pub stdin: BorrowedFd<'a>,
    pub stdout: BorrowedFd<'a>,
    pub stderr: BorrowedFd<'a>,
}

/// Our ends of a child's three pipes.
#[derive(Debug)]
pub struct Pipes {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// The child's ends. To be dropped once the child runs, so that its pipes close when it closes them.
#[derive(Debug)]
pub struct ChildPipes {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Pipes {
    pub fn new() -> io::Result<(Self, ChildPipes)> {
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
        let (child_stdin, stdin) = pipe()?;
        let (stdout, child_stdout) = pipe()?;
        let (stderr, child_stderr) = pipe()?;
        let child = ChildPipes { stdin: child_stdin, stdout: child_stdout, stderr: child_stderr };
        Ok((Self { stdin, stdout, stderr }, child))
    }
}

impl ChildPipes {
    pub fn stdio(&self) -> Stdio<'_> {
        Stdio { stdin: self.stdin.as_fd(), stdout: self.stdout.as_fd(), stderr: self.stderr.as_fd() }
    }
}
