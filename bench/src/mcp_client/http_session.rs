//! One MCP session over Streamable HTTP, bound to one connection; siblings share the session on others.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::error::{Error, WhileDoing};
use crate::mcp_client::http_connection::HttpConnection;
use crate::mcp_client::messages::{self, BodyEnds, CallTemplate};

const BIG_BUFFER_BYTES: usize = 256 * 1024;

/// Where a gateway listens.
#[derive(Debug, Clone)]
pub(crate) struct HttpEndpoint {
    pub(crate) address: SocketAddr,
    pub(crate) path: String,
    /// The client's answer to `roots/list`; `None`: the client does not declare roots.
    pub(crate) root: Option<String>,
}

/// A tool call that is sent often.
#[derive(Debug)]
pub(crate) struct PreparedCall {
    request: CallTemplate,
    /// Text that the answer must contain.
    expected: String,
}

/// The endpoint, and the headers that every request of the session carries.
#[derive(Debug, Clone)]
struct SessionHeaders {
    endpoint: HttpEndpoint,
    session_id: Option<String>,
    protocol_version: Option<String>,
}

impl SessionHeaders {
    fn request(&self, method: &str, body: &str) -> Vec<u8> {
        // Writing to a string cannot fail.
        let mut request =
            format!("{method} {} HTTP/1.1\r\nHost: {}\r\n", self.endpoint.path, self.endpoint.address);
        if let Some(session_id) = &self.session_id {
            let _ = write!(request, "Mcp-Session-Id: {session_id}\r\n");
        }
        if let Some(version) = &self.protocol_version {
            let _ = write!(request, "MCP-Protocol-Version: {version}\r\n");
        }
        request.push_str("Accept: application/json, text/event-stream\r\n");
        if !body.is_empty() {
            let length = body.len();
            let _ = write!(request, "Content-Type: application/json\r\nContent-Length: {length}\r\n");
        }
        request.push_str("\r\n");
        request.push_str(body);
        request.into_bytes()
    }
}

#[derive(Debug)]
pub(crate) struct HttpSession {
    headers: SessionHeaders,
    connection: HttpConnection,
    echo_call: CallTemplate,
    session_tag: u32,
    next_call_id: u32,
    body: Vec<u8>,
    /// The root to answer with when the gateway asks during the first call; `None` afterwards.
    unasked_root: Option<String>,
}

impl HttpSession {
    /// Connects, then sends `initialize` and `notifications/initialized`.
    pub(crate) async fn open(endpoint: &HttpEndpoint) -> Result<Self, Error> {
        Self::open_timed(endpoint).await.map(|(session, _)| session)
    }

    /// Like `open`; also returns the time of `initialize` alone.
    pub(crate) async fn open_timed(endpoint: &HttpEndpoint) -> Result<(Self, Duration), Error> {
        let mut connection = HttpConnection::open(endpoint.address).await?;
        let mut headers =
            SessionHeaders { endpoint: endpoint.clone(), session_id: None, protocol_version: None };
        let mut body = Vec::new();
        let initialize = match endpoint.root {
            Some(_) => messages::INITIALIZE_WITH_ROOTS,
            None => messages::INITIALIZE,
        };
        let request = headers.request("POST", initialize);
        let began = Instant::now();
        let head = connection
            .exchange(&request, |piece| body.extend_from_slice(piece))
            .await
            .while_doing("initialize")?;
        let took = began.elapsed();
        let version = messages::negotiated_version(&body);
        if head.status != 200 || version.is_none() {
            return Err(unexpected_status("initialize", head.status, &body));
        }
        headers.session_id = head.session_id;
        headers.protocol_version = version;
        let request = headers.request("POST", messages::INITIALIZED);
        let head = connection.exchange(&request, |_| {}).await.while_doing("notifications/initialized")?;
        if !(200..300).contains(&head.status) {
            return Err(unexpected_status("notifications/initialized", head.status, &[]));
        }
        let unasked_root = endpoint.root.clone();
        let session = Self::on_connection(headers, connection, messages::next_session_tag(), 0);
        Ok((Self { unasked_root, ..session }, took))
    }

    fn on_connection(
        headers: SessionHeaders,
        connection: HttpConnection,
        session_tag: u32,
        lane: u32,
    ) -> Self {
        let call = headers.request("POST", &messages::echo_call_with_placeholders(session_tag));
        Self {
            headers,
            connection,
            echo_call: CallTemplate::new(call),
            session_tag,
            next_call_id: messages::FIRST_CALL_ID + lane * messages::IDS_PER_LANE,
            body: Vec::with_capacity(1024),
            unasked_root: None,
        }
    }

    /// The same MCP session on a connection of its own, with ids of its own.
    pub(crate) async fn sibling(&self, lane: u32) -> Result<Self, Error> {
        let connection = HttpConnection::open(self.headers.endpoint.address).await?;
        Ok(Self::on_connection(self.headers.clone(), connection, self.session_tag, lane))
    }

    /// The same MCP session at the next gateway.
    pub(crate) async fn again_at(&self, endpoint: &HttpEndpoint) -> Result<Self, Error> {
        let connection = HttpConnection::open(endpoint.address).await?;
        let headers = SessionHeaders { endpoint: endpoint.clone(), ..self.headers.clone() };
        Ok(Self::on_connection(headers, connection, self.session_tag, 1))
    }

    pub(crate) async fn call_echo(&mut self) -> Result<(), Error> {
        if let Some(root) = self.unasked_root.take() {
            return self.call_echo_answering(&root).await;
        }
        let call_id = self.take_call_id();
        self.body.clear();
        let body = &mut self.body;
        let request = self.echo_call.with_id(call_id);
        let head = self.connection.exchange(request, |piece| body.extend_from_slice(piece)).await?;
        if head.status != 200 {
            return Err(unexpected_status("tools/call", head.status, &self.body));
        }
        messages::check_echo_answer(&self.body, self.session_tag, call_id)
    }

    /// Makes the first call: the gateway asks for roots on its stream and is answered on another connection.
    async fn call_echo_answering(&mut self, root: &str) -> Result<(), Error> {
        let call_id = self.take_call_id();
        self.body.clear();
        let (asked, question) = tokio::sync::oneshot::channel();
        let mut asked = Some(asked);
        let (body, headers) = (&mut self.body, &self.headers);
        let request = self.echo_call.with_id(call_id);
        let call = self.connection.exchange(request, |piece| {
            body.extend_from_slice(piece);
            if let Some(id) = messages::roots_question(body)
                && let Some(asked) = asked.take()
            {
                let _ = asked.send(id);
            }
        });
        let answer = async {
            let id = question
                .await
                .map_err(|_| Error::new("missing question: the gateway did not ask for roots"))?;
            let mut connection = HttpConnection::open(headers.endpoint.address).await?;
            let request = headers.request("POST", &messages::roots_answer(id, root));
            connection.exchange(&request, |_| {}).await
        };
        let (called, answered) = tokio::try_join!(call, answer)?;
        if called.status != 200 || answered.status != 202 {
            return Err(unexpected_status("tools/call with roots", called.status, &self.body));
        }
        messages::check_echo_answer(&self.body, self.session_tag, call_id)
    }

    /// Calls one at a time until the deadline; returns the number of answered calls.
    pub(crate) async fn call_echo_until(&mut self, deadline: Instant) -> Result<u32, Error> {
        let mut answered = 0;
        while Instant::now() < deadline {
            self.call_echo().await?;
            answered += 1;
        }
        Ok(answered)
    }

    pub(crate) async fn call_big(&mut self, bytes: u32) -> Result<(), Error> {
        if self.unasked_root.is_some() {
            self.call_echo().await?;
        }
        let call_id = self.take_call_id();
        self.connection.grow_buffer(BIG_BUFFER_BYTES);
        let request = self.headers.request("POST", &messages::big_call(call_id, bytes));
        let mut ends = BodyEnds::default();
        let head = self.connection.exchange(&request, |piece| ends.push(piece)).await?;
        if head.status != 200 {
            return Err(unexpected_status("tools/call", head.status, &[]));
        }
        ends.check_big_answer(call_id, bytes as usize)
    }

    /// Prepares a call of any tool, which fails unless the answer contains `expected`.
    pub(crate) fn prepare_call(&self, tool: &str, arguments: &Value, expected: &str) -> PreparedCall {
        let body = messages::tool_call_with_placeholders(tool, arguments);
        let request = CallTemplate::new(self.headers.request("POST", &body));
        PreparedCall { request, expected: expected.to_owned() }
    }

    /// Makes a prepared call and returns the time until the whole answer arrived. The answer is checked afterwards.
    pub(crate) async fn call_prepared(&mut self, call: &mut PreparedCall) -> Result<Duration, Error> {
        let call_id = self.take_call_id();
        self.body.clear();
        let body = &mut self.body;
        let request = call.request.with_id(call_id);
        let began = Instant::now();
        let head = self.connection.exchange(request, |piece| body.extend_from_slice(piece)).await?;
        let took = began.elapsed();
        if head.status != 200 {
            return Err(unexpected_status("tools/call", head.status, &self.body));
        }
        messages::check_tool_answer(&self.body, &call.expected, call_id)?;
        Ok(took)
    }

    /// The result of the previous call.
    pub(crate) fn last_result(&self) -> Option<Value> {
        messages::result_of_answer(&self.body)
    }

    pub(crate) async fn list_tools(&mut self) -> Result<(), Error> {
        self.body.clear();
        let body = &mut self.body;
        let request = self.headers.request("POST", messages::TOOLS_LIST);
        let head = self.connection.exchange(&request, |piece| body.extend_from_slice(piece)).await?;
        if head.status != 200 || self.last_result().is_none_or(|result| result["tools"].is_null()) {
            return Err(unexpected_status("tools/list", head.status, &self.body));
        }
        Ok(())
    }

    /// Ends the session with DELETE, on a fresh connection: servers close idle ones.
    pub(crate) async fn close(self) -> Result<(), Error> {
        let mut connection = HttpConnection::open(self.headers.endpoint.address).await?;
        connection.exchange(&self.headers.request("DELETE", ""), |_| {}).await.while_doing("DELETE")?;
        Ok(())
    }

    fn take_call_id(&mut self) -> u32 {
        self.next_call_id += 1;
        self.next_call_id
    }
}

fn unexpected_status(request: &str, status: u16, body: &[u8]) -> Error {
    let shown: String = String::from_utf8_lossy(body).chars().take(300).collect();
    Error::new(format!("{request} was answered with status {status}: {shown:?}"))
}
