//! `ringfence workspace` as a child process, driven through its pipes, one request at a time.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::error::{Error, WhileDoing};
use crate::machine::started_processes;
use crate::mcp_client::messages::{INITIALIZE, INITIALIZED};
use crate::programs::Programs;

#[derive(Debug)]
pub(crate) struct StdioWorker {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl StdioWorker {
    /// Starts the worker and waits for its answer to `initialize`.
    pub(crate) fn start(programs: &Programs, root: &Path) -> Result<Self, Error> {
        let mut process = Command::new(&programs.ringfence)
            .args(["workspace", "--root"])
            .arg(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .while_doing("starting a worker")?;
        started_processes::remember(Some(process.id()));
        let no_pipe = || Error::new("a worker has no pipe");
        let requests = process.stdin.take().ok_or_else(no_pipe)?;
        let answers = BufReader::new(process.stdout.take().ok_or_else(no_pipe)?);
        let mut worker = Self { process, requests, answers };
        worker.ask(INITIALIZE)?;
        Ok(worker)
    }

    pub(crate) fn say_initialized(&mut self) -> Result<(), Error> {
        Ok(writeln!(self.requests, "{INITIALIZED}")?)
    }

    /// Sends a request and returns the line with its answer.
    fn ask(&mut self, request: &str) -> Result<String, Error> {
        self.requests.write_all(format!("{request}\n").as_bytes())?;
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(Error::new("missing answer: the worker ended"));
        }
        Ok(line)
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Result<String, Error> {
        let params = json!({ "name": tool, "arguments": arguments });
        self.ask(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }).to_string())
    }

    pub(crate) fn stop(self) -> Result<(), Error> {
        let Self { mut process, requests, answers } = self;
        drop((requests, answers));
        process.wait().while_doing("waiting for a worker")?;
        Ok(())
    }
}
