//! The public face of a conversation: opens it, takes lines, and tells the server when it ends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::http::client::Session;
use crate::http::conversation::Conversation;
use crate::http::endpoint::Endpoint;
use crate::http::incoming::Incoming;
use crate::http::tasks;

/// How long the server may take to end its session.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// A conversation with one server. It ends with [`Connection::close`] or when dropped; both end the server's session.
pub struct Connection {
    conversation: Arc<Conversation>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    /// Does not connect yet: the first line, which must be `initialize`, does. If the endpoint cannot be used, that
    /// line is answered with [`Incoming::Lost`].
    pub fn open(endpoint: Endpoint) -> (Arc<Self>, mpsc::Receiver<Incoming>) {
        let (conversation, incoming) = Conversation::new(endpoint, tasks::run);
        (Arc::new(Self { conversation }), incoming)
    }

    /// Sends one message; must be called within a Tokio runtime. Returns false if too much waits already, or if the
    /// conversation is over.
    ///
    /// Requests and notifications are posted in this order, each as soon as the POST before it has begun. Nothing
    /// overtakes `initialize` and `notifications/initialized`. A request that is cancelled may stay without an answer.
    pub fn send(&self, line: &[u8]) -> bool {
        self.conversation.send(line)
    }

    /// The session id that the server gave, if any.
    pub fn session_id(&self) -> Option<String> {
        let session = self.conversation.session();
        session.id.as_ref().and_then(|id| id.to_str().ok()).map(str::to_owned)
    }

    /// Ends all running requests and the server's session (a DELETE, for at most a few seconds).
    pub async fn close(&self) {
        if let Some(session) = self.conversation.close() {
            end_session(Arc::clone(&self.conversation), session).await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let session = self.conversation.close();
        // Without a runtime the DELETE cannot be sent.
        if let Some((session, runtime)) = session.zip(Handle::try_current().ok()) {
            runtime.spawn(end_session(Arc::clone(&self.conversation), session));
        }
    }
}

async fn end_session(conversation: Arc<Conversation>, session: Arc<Session>) {
    if let Ok(http) = &conversation.http {
        // Servers need not support DELETE; they drop idle sessions sooner or later.
        let _ = timeout(GOODBYE_TIMEOUT, http.execute(http.delete(&session))).await;
    }
}
