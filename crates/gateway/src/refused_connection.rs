//! Answers connections that are refused, without giving them a place: a small response, and the end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Refused connections that are answered at once. Others are closed without an answer.
const MAX_AT_ONCE: usize = 64;

/// How long such a connection lives at most. A client that sent its request has the answer within a round trip.
const WITHIN: Duration = Duration::from_secs(1);

/// Bytes that are read from it, so that the answer is not lost in a reset. A request's head is shorter.
const MAX_READ: u64 = 64 * 1024;

/// Clones share the bound.
#[derive(Clone, Debug)]
pub(crate) struct RefusedConnections(Arc<Semaphore>);

impl Default for RefusedConnections {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_AT_ONCE)))
    }
}

impl RefusedConnections {
    /// Sends the answer if that is quickly done, and closes the connection in any case.
    pub(crate) async fn answer(&self, stream: impl AsyncRead + AsyncWrite + Unpin, answer: &Bytes) {
        let Ok(_bound) = self.0.try_acquire() else { return };
        // The peer sees the connection close, whether it got the answer or not.
        let _ = timeout(WITHIN, exchange(stream, answer)).await;
    }
}

/// Reads the beginning of the request first: many clients take what precedes it for an error. After the answer it
/// waits for the peer to close, because closing with unread data would reset the connection and discard the answer.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &Bytes) -> std::io::Result<()> {
    let mut unread = [0; 4096];
    if stream.read(&mut unread).await? == 0 {
        return Ok(());
    }
    stream.write_all(answer).await?;
    stream.shutdown().await?;
    tokio::io::copy(&mut stream.take(MAX_READ), &mut tokio::io::sink()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Bytes = Bytes::from_static(b"HTTP/1.1 403 Forbidden\r\n\r\n");

    #[tokio::test]
    async fn a_request_is_answered_and_its_connection_closed() {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let refused =
            tokio::spawn(async move { RefusedConnections::default().answer(server, &ANSWER).await });
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, ANSWER);
        drop(client);
        refused.await.unwrap();
    }

    #[tokio::test]
    async fn a_silent_or_talkative_peer_is_not_waited_for() {
        let refused = RefusedConnections::default();
        let (silent, server) = tokio::io::duplex(64);
        refused.answer(server, &ANSWER).await;
        drop(silent);
        let (mut endless, server) = tokio::io::duplex(64);
        let talking = tokio::spawn(async move { while endless.write_all(&[b'x'; 64]).await.is_ok() {} });
        refused.answer(server, &ANSWER).await;
        talking.await.unwrap();
    }

    #[tokio::test]
    async fn beyond_the_bound_connections_are_closed_without_an_answer() {
        let refused = RefusedConnections(Arc::new(Semaphore::new(0)));
        let (mut client, server) = tokio::io::duplex(64);
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        refused.answer(server, &ANSWER).await;
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        assert!(received.is_empty());
    }
}
