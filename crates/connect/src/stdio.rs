//! stdin and stdout as the two directions of one client, one JSON-RPC message on each line.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use identity::Instance;
use session::{Session, Sessions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use wire::LineBuffer;

use crate::client::{Client, OUTPUT_LINES};

/// The client on stdin and stdout.
pub(crate) struct StdioFront {
    client: Client,
    writer: JoinHandle<()>,
}

impl StdioFront {
    pub(crate) fn open(sessions: &Arc<Sessions>, instance: Option<Instance>) -> Self {
        let (output, lines) = mpsc::channel(OUTPUT_LINES);
        let writer = tokio::spawn(write_lines(lines));
        Self { client: Client::new(sessions, output, instance, None), writer }
    }

    /// Reports each session that the client opens.
    pub(crate) fn opened(&self) -> watch::Receiver<Option<Arc<Session>>> {
        self.client.opened()
    }

    /// Takes messages until stdin ends or `stop` resolves. The writer ends after the last session.
    pub(crate) async fn take_messages(
        self,
        max_message: usize,
        stop: impl Future<Output = ()>,
    ) -> JoinHandle<()> {
        tokio::select! {
            () = read_lines(self.client, max_message) => {}
            () = stop => {}
        }
        self.writer
    }
}

/// Ends all sessions and waits until their last lines are written.
pub(crate) async fn finish(sessions: &Arc<Sessions>, writer: JoinHandle<()>) {
    sessions.shut_down(Duration::ZERO, session::ShutDownCause::End).await;
    let _ = writer.await;
}

async fn read_lines(mut client: Client, max_message: usize) {
    let mut stdin = tokio::io::stdin();
    let mut lines = LineBuffer::new(max_message);
    while let Ok(1..) = stdin.read_buf(lines.space()).await {
        while let Some(line) = lines.next_line() {
            match line {
                Ok(line) if line.is_empty() => {}
                Ok(line) => client.take(line).await,
                Err(too_long) => client.refuse(&too_long.to_string()).await,
            }
        }
    }
    client.leave().await;
}

async fn write_lines(mut lines: mpsc::Receiver<Bytes>) {
    let mut stdout = tokio::io::stdout();
    while let Some(line) = lines.recv().await {
        let written = async {
            stdout.write_all(&line).await?;
            stdout.write_all(b"\n").await?;
            if lines.is_empty() { stdout.flush().await } else { Ok(()) }
        };
        if written.await.is_err() {
            return;
        }
    }
}
