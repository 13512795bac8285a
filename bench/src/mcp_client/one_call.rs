//! A whole session for one tool call: opened, used and deleted.

use std::time::Instant;

use crate::error::{Error, WhileDoing};
use crate::mcp_client::http_connection::HttpConnection;
use crate::mcp_client::http_session::HttpEndpoint;
use crate::mcp_client::messages::{INITIALIZE, INITIALIZED};

/// What the call gave, and the time from connecting to its answer.
#[derive(Debug)]
pub(crate) struct OneCall {
    pub(crate) milliseconds: f64,
    pub(crate) answer: String,
}

pub(crate) async fn run_one_call(endpoint: &HttpEndpoint, call: &str) -> Result<OneCall, Error> {
    let started = Instant::now();
    let mut connection = HttpConnection::open(endpoint.address).await?;
    let mut session = String::new();
    let mut answer = String::new();
    for message in [INITIALIZE, INITIALIZED, call] {
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\n{session}Accept: application/json, text/event-stream\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{message}",
            endpoint.path,
            endpoint.address,
            message.len()
        );
        let mut body = Vec::new();
        let head = connection.exchange(request.as_bytes(), |piece| body.extend_from_slice(piece)).await?;
        if let Some(id) = head.session_id {
            session = format!("Mcp-Session-Id: {id}\r\n");
        }
        answer = String::from_utf8_lossy(&body).into_owned();
    }
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    let request = format!("DELETE {} HTTP/1.1\r\nHost: {}\r\n{session}\r\n", endpoint.path, endpoint.address);
    connection.exchange(request.as_bytes(), |_| {}).await.while_doing("DELETE")?;
    Ok(OneCall { milliseconds, answer })
}
