//! Accepts the connections of a fence, with one limit on their number for all its listeners.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Connections at a time in one fence. A browser's worth; each costs two descriptors of the gateway.
const MOST_CONNECTIONS: usize = 256;

/// After a failure to accept, which is mostly the want of descriptors: until others are closed.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// The right of one fence to so many connections, shared by its listeners.
#[derive(Clone, Debug)]
pub(super) struct Slots(Arc<Semaphore>);

impl Slots {
    fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self::new(MOST_CONNECTIONS)
    }
}

/// Runs `serve` as a task for each connection, for ever; dropping it ends them all.
///
/// A connection is accepted before it has a slot: listeners without clients then hold none. So at most one
/// connection per listener waits here, and the others in the kernel's queue.
pub(super) async fn serve_each<Serve, Served>(listener: TcpListener, slots: Slots, serve: Serve)
where
    Serve: Fn(TcpStream) -> Served,
    Served: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                let Ok(slot) = Arc::clone(&slots.0).acquire_owned().await else { return };
                let served = serve(stream);
                connections.spawn(async move {
                    served.await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection from inside a fence was not accepted");
                sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Serves by echoing one byte, with so many slots. The task ends when its handle's set is dropped.
    async fn echo(slots: Slots) -> (std::net::SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut running = JoinSet::new();
        running.spawn(serve_each(listener, slots, |mut stream| async move {
            let byte = stream.read_u8().await.unwrap_or_default();
            let _ = stream.write_u8(byte).await;
        }));
        (address, running)
    }

    #[tokio::test]
    async fn connections_beyond_the_bound_wait_for_a_slot() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (served, most_served) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut running = JoinSet::new();
        let most = Arc::clone(&most_served);
        running.spawn(serve_each(listener, Slots::new(2), move |mut stream| {
            let (served, most) = (Arc::clone(&served), Arc::clone(&most));
            async move {
                most.fetch_max(served.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let byte = stream.read_u8().await.unwrap_or_default();
                served.fetch_sub(1, Ordering::SeqCst);
                let _ = stream.write_u8(byte).await;
            }
        }));
        let mut clients = Vec::new();
        for _ in 0..6 {
            clients.push(TcpStream::connect(address).await.unwrap());
        }
        for (number, client) in (0..).zip(&mut clients) {
            client.write_u8(number).await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), number);
        }
        assert!(most_served.load(Ordering::SeqCst) <= 2);
    }

    #[tokio::test]
    async fn idle_listeners_hold_no_slot() {
        let slots = Slots::new(1);
        let (_, _idle) = echo(slots.clone()).await;
        let (address, _running) = echo(slots).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_u8(7).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), 7);
    }

    #[tokio::test]
    async fn dropping_the_service_ends_its_connections() {
        let (address, running) = echo(Slots::new(1)).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        drop(running);
        assert!(client.read_u8().await.is_err());
    }
}
