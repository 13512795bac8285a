//! One MCP session directly with a server process over its pipes: the lower bound of every gateway.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::error::{Error, WhileDoing};
use crate::machine::started_processes;
use crate::mcp_client::messages::{self, BodyEnds, CallTemplate};
use crate::mcp_client::receive_buffer::ReceiveBuffer;

const BUFFER_BYTES: usize = 256 * 1024;

/// The server program each session spawns.
#[derive(Debug, Clone)]
pub(crate) struct StdioEndpoint {
    pub(crate) program: PathBuf,
}

#[derive(Debug)]
pub(crate) struct StdioSession {
    server: Child,
    requests: ChildStdin,
    answers: ChildStdout,
    buffer: ReceiveBuffer,
    echo_call: CallTemplate,
    session_tag: u32,
    next_call_id: u32,
    /// Calls kept in flight by `call_echo_until`.
    depth: u32,
}

impl StdioSession {
    /// Spawns the server, then sends `initialize` and `notifications/initialized`.
    pub(crate) async fn open(endpoint: &StdioEndpoint) -> Result<Self, Error> {
        let mut server = spawn_server(&endpoint.program)?;
        let missing_pipe = || Error::new("the server has no pipes");
        let requests = server.stdin.take().ok_or_else(missing_pipe)?;
        let answers = server.stdout.take().ok_or_else(missing_pipe)?;
        let session_tag = messages::next_session_tag();
        let echo_line = format!("{}\n", messages::echo_call_with_placeholders(session_tag));
        let mut session = Self {
            server,
            requests,
            answers,
            buffer: ReceiveBuffer::with_capacity(BUFFER_BYTES),
            echo_call: CallTemplate::new(echo_line.into_bytes()),
            session_tag,
            next_call_id: messages::FIRST_CALL_ID,
            depth: 1,
        };
        session.initialize().await?;
        Ok(session)
    }

    async fn initialize(&mut self) -> Result<(), Error> {
        self.requests.write_all(format!("{}\n", messages::INITIALIZE).as_bytes()).await?;
        let answer = self.read_line().await?;
        messages::negotiated_version(&answer)
            .ok_or_else(|| Error::new("the server did not answer initialize"))?;
        self.requests.write_all(format!("{}\n", messages::INITIALIZED).as_bytes()).await?;
        Ok(())
    }

    pub(crate) fn with_depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    pub(crate) fn process_id(&self) -> Option<u32> {
        self.server.id()
    }

    pub(crate) async fn call_echo(&mut self) -> Result<(), Error> {
        let call_id = self.take_call_id();
        self.requests.write_all(self.echo_call.with_id(call_id)).await?;
        let answer = self.read_line().await?;
        messages::check_echo_answer(&answer, self.session_tag, call_id)
    }

    /// Keeps `depth` calls in flight until the deadline, then collects the rest.
    pub(crate) async fn call_echo_until(&mut self, deadline: Instant) -> Result<u32, Error> {
        let mut outstanding = Vec::new();
        let mut batch = Vec::new();
        let mut answered = 0;
        loop {
            let missing = if Instant::now() < deadline { self.depth as usize - outstanding.len() } else { 0 };
            for _ in 0..missing {
                let call_id = self.take_call_id();
                batch.extend_from_slice(self.echo_call.with_id(call_id));
                outstanding.push(call_id);
            }
            if outstanding.is_empty() {
                return Ok(answered);
            }
            self.requests.write_all(&batch).await?;
            batch.clear();
            answered += self.take_buffered_answers(&mut outstanding).await?;
        }
    }

    /// Waits for at least one answer and takes every complete line that has arrived.
    async fn take_buffered_answers(&mut self, outstanding: &mut Vec<u32>) -> Result<u32, Error> {
        let mut answered = 0;
        while answered == 0 || memchr::memchr(b'\n', self.buffer.available()).is_some() {
            let line = self.read_line().await?;
            let position = messages::id_of_answer_line(&line)
                .and_then(|id| outstanding.iter().position(|waiting| *waiting == id))
                .ok_or_else(|| Error::new("wrong answer: an id that is not outstanding"))?;
            let call_id = outstanding.swap_remove(position);
            messages::check_echo_answer(&line, self.session_tag, call_id)?;
            answered += 1;
        }
        Ok(answered)
    }

    pub(crate) async fn call_big(&mut self, bytes: u32) -> Result<(), Error> {
        let call_id = self.take_call_id();
        let request = format!("{}\n", messages::big_call(call_id, bytes));
        self.requests.write_all(request.as_bytes()).await?;
        let mut ends = BodyEnds::default();
        loop {
            let line_end = memchr::memchr(b'\n', self.buffer.available());
            let count = line_end.unwrap_or(self.buffer.available().len());
            ends.push(&self.buffer.available()[..count]);
            self.buffer.consume(count);
            if line_end.is_some() {
                self.buffer.consume(1);
                return ends.check_big_answer(call_id, bytes as usize);
            }
            self.fill().await?;
        }
    }

    pub(crate) async fn close(mut self) -> Result<(), Error> {
        self.server.start_kill()?;
        self.server.wait().await?;
        Ok(())
    }

    async fn read_line(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(position) = memchr::memchr(b'\n', self.buffer.available()) {
                let line = self.buffer.available()[..position].to_vec();
                self.buffer.consume(position + 1);
                return Ok(line);
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), Error> {
        if self.buffer.fill(&mut self.answers).await? {
            return Ok(());
        }
        Err(Error::new("missing answer: the server closed its output"))
    }

    fn take_call_id(&mut self) -> u32 {
        self.next_call_id += 1;
        self.next_call_id
    }
}

fn spawn_server(program: &Path) -> Result<Child, Error> {
    let server = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .while_doing(&format!("spawning {}", program.display()))?;
    started_processes::remember(server.id());
    Ok(server)
}
