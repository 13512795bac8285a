//! Copies bytes between two connections until both have ended or are idle for too long.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

/// What is carried at a time in one direction.
const BUFFER_LENGTH: usize = 16 * 1024;

/// When bytes last moved. Both directions note it, one deadline watches it.
#[derive(Debug)]
pub(super) struct Activity {
    start: Instant,
    /// Milliseconds from `start`.
    last: AtomicU64,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }

    pub(super) fn note(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Returns once nothing has moved for so long.
    pub(super) async fn quiet_for(&self, limit: Duration) {
        loop {
            let deadline = self.start + Duration::from_millis(self.last.load(Ordering::Relaxed)) + limit;
            if Instant::now() >= deadline {
                return;
            }
            sleep_until(deadline).await;
        }
    }
}

/// Joins two connections, `first` of which has already sent `early`. The end of one direction is passed on
/// and the other goes on. Without `idle`, silence is no reason to end.
pub(super) async fn splice(
    mut first: TcpStream,
    early: &[u8],
    mut second: TcpStream,
    idle: Option<Duration>,
) -> io::Result<()> {
    let activity = Activity::new();
    let (first_reader, first_writer) = first.split();
    let (second_reader, second_writer) = second.split();
    let both = async {
        tokio::try_join!(
            carry_to_the_end(early.chain(first_reader), second_writer, &activity),
            carry_to_the_end(second_reader, first_writer, &activity),
        )
    };
    tokio::select! {
        done = both => done.map(|_| ()),
        () = quiet(&activity, idle) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Carries bytes until `from` ends, and leaves `to` open.
pub(super) async fn carry(
    mut from: impl AsyncRead + Unpin,
    to: &mut (impl AsyncWrite + Unpin),
    activity: &Activity,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_LENGTH];
    loop {
        let length = from.read(&mut buffer).await?;
        activity.note();
        if length == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..length]).await?;
        activity.note();
    }
}

async fn carry_to_the_end(
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    activity: &Activity,
) -> io::Result<()> {
    carry(from, &mut to, activity).await?;
    to.shutdown().await
}

async fn quiet(activity: &Activity, idle: Option<Duration>) {
    match idle {
        Some(limit) => activity.quiet_for(limit).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn the_end_of_one_direction_leaves_the_other_open() {
        let ((mut client, inside), (outside, mut server)) = (pair().await, pair().await);
        let splicing = tokio::spawn(async move { splice(inside, b"early ", outside, None).await });
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut asked = String::new();
        server.read_to_string(&mut asked).await.unwrap();
        assert_eq!(asked, "early question");
        server.write_all(b"answer").await.unwrap();
        drop(server);
        let mut answered = String::new();
        client.read_to_string(&mut answered).await.unwrap();
        assert_eq!(answered, "answer");
        splicing.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn silence_ends_a_splice_with_an_idle_deadline() {
        let ((_client, inside), (outside, _server)) = (pair().await, pair().await);
        let ended = splice(inside, b"", outside, Some(Duration::from_millis(1))).await;
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
