//! Serves one client on stdin and stdout, to its end.

use std::sync::Arc;

use identity::Instance;
use session::Sessions;

use crate::attachment::keep_attached;
use crate::connection::{Connection, LocalServers};
use crate::stdio::{StdioFront, finish};

/// Serves one client with `sessions` until its input ends or `stop` resolves, then ends all sessions.
pub async fn serve_stdio(
    sessions: Arc<Sessions>,
    instance: Option<Instance>,
    max_message: usize,
    stop: impl Future<Output = ()>,
) {
    let front = StdioFront::open(&sessions, instance);
    let writer = front.take_messages(max_message, stop).await;
    finish(&sessions, writer).await;
}

/// Serves one client with the servers here and on the gateway until its input ends or `stop` resolves.
pub async fn serve_connected(connection: Connection, stop: impl Future<Output = ()>) {
    let local = Arc::new(LocalServers::new(connection));
    let connection = &local.connection;
    let sessions = connection.sessions(connection.all_servers());
    let front = StdioFront::open(&sessions, connection.instance.clone());
    let attaching = tokio::spawn(keep_attached(Arc::clone(&local), front.opened()));
    let writer = front.take_messages(connection.settings.max_message, stop).await;
    attaching.abort();
    // Its channels close when it is dropped.
    let _ = attaching.await;
    local.end_channel_sessions().await;
    finish(&sessions, writer).await;
}
