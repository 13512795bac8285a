//! A child process that exchanges lines of JSON over its stdin and stdout, with a deadline on every wait.

use std::process::{ExitStatus, Stdio};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::within_deadline;

#[derive(Debug)]
pub struct PipedProcess {
    pub child: Child,
    pub stderr: ChildStderr,
    /// `None` once it is closed.
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl PipedProcess {
    /// Starts the command with all three streams piped; it is killed when this is dropped.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let stderr = child.stderr.take().expect("stderr is piped");
        Self { child, stderr, stdin, stdout }
    }

    /// Panics if the process was already waited for.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("the process was not waited for")
    }

    pub async fn write_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        stdin.write_all(format!("{line}\n").as_bytes()).await.expect("the process reads");
    }

    pub async fn send(&mut self, message: &Value) {
        self.write_line(&message.to_string()).await;
    }

    /// The next line, not parsed; `None` at the end of stdout.
    pub async fn read_line(&mut self) -> Option<String> {
        within_deadline("the process writes a line", self.stdout.next_line()).await.expect("stdout is text")
    }

    pub async fn read(&mut self) -> Value {
        let line = self.read_line().await.expect("stdout is open");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub async fn exit_status(&mut self) -> ExitStatus {
        within_deadline("the process exits", self.child.wait()).await.expect("the process can be waited for")
    }
}
