//! A server that answers every request in the same way, and keeps what it was sent.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

pub(super) struct Recorder {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Vec<u8>>>>,
    accepting: AbortHandle,
}

impl Recorder {
    /// Answers with 404.
    pub(super) async fn start() -> Self {
        Self::start_at("127.0.0.1", "HTTP/1.1 404 Not Found".to_owned()).await
    }

    /// Answers with a redirect to the same path below `url`.
    pub(super) async fn redirecting_to(url: &str) -> Self {
        Self::start_at("127.0.0.1", format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {url}/mcp")).await
    }

    pub(super) async fn start_at(host: &str, answer: String) -> Self {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::default();
        let accepting = tokio::spawn(accept(listener, answer, Arc::clone(&received))).abort_handle();
        Self { address, received, accepting }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What each connection has sent so far.
    pub(super) fn received(&self) -> Vec<Vec<u8>> {
        self.received.lock().unwrap().clone()
    }

    /// Whether some connection has sent this.
    pub(super) fn has_received(&self, text: &str) -> bool {
        self.received().iter().any(|bytes| String::from_utf8_lossy(bytes).contains(text))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, answer: String, received: Arc<Mutex<Vec<Vec<u8>>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let place = {
            let mut received = received.lock().unwrap();
            received.push(Vec::new());
            received.len() - 1
        };
        tokio::spawn(converse(stream, answer.clone(), Arc::clone(&received), place));
    }
}

async fn converse(mut stream: TcpStream, answer: String, received: Arc<Mutex<Vec<Vec<u8>>>>, place: usize) {
    let mut piece = [0; 4096];
    let mut has_answered = false;
    while let Ok(count @ 1..) = stream.read(&mut piece).await {
        let has_head = {
            let bytes = &mut received.lock().unwrap()[place];
            bytes.extend_from_slice(&piece[..count]);
            bytes.windows(4).any(|four| four == b"\r\n\r\n")
        };
        if has_head && !has_answered {
            has_answered = true;
            let text = format!("{answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(text.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    }
}
