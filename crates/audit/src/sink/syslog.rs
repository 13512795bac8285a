//! Syslog (RFC 5424) over TCP (RFC 6587, octet counting) or TLS (RFC 5425).
//!
//! Syslog has no acknowledgements, and what was written into a connection that then breaks is lost without a trace.
//! Closing has one: a receiver that has read everything up to our end of the stream closes its own end, and one that
//! has not resets the connection. So each batch has a connection of its own, and counts as sent when the receiver has
//! closed it.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::address::SyslogAddress;
use super::delivery::DeliveryError;
use super::follower::Batch;

/// Facility 13 (log audit), severity 6 (informational).
const PRIORITY: u8 = 13 * 8 + 6;

/// A receiver says nothing. This much is read past, in case it does.
const MAX_ANSWER: usize = 64 * 1024;

/// The longest that RFC 5424 allows.
const MAX_HOST_NAME: usize = 255;
const MAX_MESSAGE_ID: usize = 32;
const MAX_TIME: usize = 32;

pub(super) struct Syslog {
    receiver: SyslogAddress,
    tls: TlsConnector,
    /// The header of every message between the time and the event.
    sender: String,
}

impl std::fmt::Debug for Syslog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Syslog").field(&self.receiver).finish()
    }
}

impl Syslog {
    pub(super) fn new(receiver: SyslogAddress, tls: rustls::ClientConfig) -> Self {
        let host_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host_name = printable(&host_name, MAX_HOST_NAME);
        let sender = format!("{host_name} ringfence {}", std::process::id());
        Self { receiver, tls: TlsConnector::from(Arc::new(tls)), sender }
    }

    pub(super) async fn send(&self, batch: &Batch) -> Result<(), DeliveryError> {
        let mut frames = Vec::new();
        for line in &batch.lines {
            let message = message(&self.sender, line);
            frames.extend_from_slice(format!("{} ", message.len()).as_bytes());
            frames.extend_from_slice(&message);
        }
        let SyslogAddress { host, port, has_tls } = &self.receiver;
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        if !has_tls {
            return Ok(exchange(stream, &frames).await?);
        }
        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
        Ok(exchange(self.tls.connect(name, stream).await?, &frames).await?)
    }
}

/// Writes all frames, and waits until the receiver has read them.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, frames: &[u8]) -> io::Result<()> {
    stream.write_all(frames).await?;
    stream.shutdown().await?;
    let mut answer = [0; 1024];
    let mut read = 0;
    while read < MAX_ANSWER {
        read += match stream.read(&mut answer).await {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            // Many receivers, rsyslog among them, end TLS by closing the connection.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a syslog receiver: it sends data"))
}

#[derive(Deserialize)]
struct Record<'a> {
    #[serde(borrow)]
    time: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    event: std::borrow::Cow<'a, str>,
}

/// `<PRI>1 TIME HOST ringfence PID EVENT - LINE`. The line stays as it is in the log, so that its hash can be checked.
fn message(sender: &str, line: &[u8]) -> Vec<u8> {
    let record = serde_json::from_slice::<Record<'_>>(line).ok();
    let (time, event) = match &record {
        Some(record) => (printable(&record.time, MAX_TIME), printable(&record.event, MAX_MESSAGE_ID)),
        None => ("-".to_owned(), "-".to_owned()),
    };
    let mut message = format!("<{PRIORITY}>1 {time} {sender} {event} - ").into_bytes();
    message.extend_from_slice(line);
    message
}

/// A field of the header: printable ASCII without spaces, or `-` for none.
fn printable(text: &str, longest: usize) -> String {
    let field: String = text.chars().filter(char::is_ascii_graphic).take(longest).collect();
    if field.is_empty() { "-".to_owned() } else { field }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_message_of_rfc_5424() {
        let line =
            r#"{"seq":7,"time":"2026-01-31T12:00:00.000Z","event":"tool_called","tool":"ä","hash":"0"}"#;
        let text = String::from_utf8(message("host ringfence 42", line.as_bytes())).unwrap();
        let header = "<110>1 2026-01-31T12:00:00.000Z host ringfence 42 tool_called - ";
        assert_eq!(text, format!("{header}{line}"));
    }

    #[test]
    fn a_field_of_the_header_cannot_break_it() {
        assert_eq!(printable("a b\nc\u{e4}", 9), "abc");
        assert_eq!(printable(" \u{e4}", 9), "-");
        assert_eq!(printable(&"x".repeat(300), MAX_HOST_NAME).len(), MAX_HOST_NAME);
        assert!(message("s", b"not a record").starts_with(b"<110>1 - s - - not"));
    }
}
