//! A conversation with an MCP server over its pipes, one request at a time. Notifications are passed over, and what the
//! server asks for is declined.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::error::{Error, WhileDoing};
use crate::machine::started_processes;
use crate::mcp_client::messages::{INITIALIZE, INITIALIZED};

#[derive(Debug)]
pub(crate) struct Conversation {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    last_id: u64,
}

impl Conversation {
    pub(crate) fn start(mut command: Command) -> Result<Self, Error> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .while_doing("starting a server")?;
        started_processes::remember(Some(process.id()));
        let no_pipe = || Error::new("a server has no pipe");
        let requests = process.stdin.take().ok_or_else(no_pipe)?;
        let answers = BufReader::new(process.stdout.take().ok_or_else(no_pipe)?);
        let mut conversation = Self { process, requests, answers, last_id: 1 };
        writeln!(conversation.requests, "{INITIALIZE}")?;
        conversation.answer_to(1)?;
        writeln!(conversation.requests, "{INITIALIZED}")?;
        Ok(conversation)
    }

    /// Sends a request and returns its result.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Result<Value, Error> {
        self.last_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        writeln!(self.requests, "{request}")?;
        self.answer_to(self.last_id)
    }

    fn answer_to(&mut self, id: u64) -> Result<Value, Error> {
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line)? == 0 {
                return Err(Error::new("missing answer: the server ended"));
            }
            let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
            match (message.get("method"), &message["id"]) {
                (None, answered) if *answered == id => return result_of(&message),
                (Some(_), asked) if !asked.is_null() => {
                    let error = json!({ "code": -32601, "message": "not offered" });
                    writeln!(self.requests, "{}", json!({ "jsonrpc": "2.0", "id": asked, "error": error }))?;
                }
                _ => {}
            }
        }
    }

    pub(crate) fn stop(self) -> Result<(), Error> {
        let Self { mut process, requests, answers, .. } = self;
        drop((requests, answers));
        // One of them goes on without a client.
        process.kill().while_doing("ending a server")?;
        process.wait().while_doing("waiting for a server")?;
        Ok(())
    }
}

fn result_of(message: &Value) -> Result<Value, Error> {
    match &message["result"] {
        result if result.is_object() && result["isError"] != true => Ok(result.clone()),
        _ => Err(Error::new(format!("wrong answer: {message}"))),
    }
}
