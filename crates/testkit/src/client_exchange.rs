//! Follows a request from its POST to its response, over JSON or SSE, across resumptions of the stream.

use serde_json::Value;

use crate::event_stream::EventStream;
use crate::raw_client::RawClient;
use crate::reply::{Reply, ReplyBody};

/// A finished request, with everything that came on its stream.
#[derive(Debug, Default)]
pub struct Exchange {
    /// The whole JSON-RPC response.
    pub response: Value,
    pub notifications: Vec<Value>,
    /// The requests that the server sent on this stream.
    pub server_requests: Vec<Value>,
    /// How often the server closed the stream before the response, so that it had to be resumed.
    pub resumptions: usize,
}

impl RawClient {
    /// Waits for the response to `id` in `reply`. Each request of the server on the stream goes to `answer`,
    /// whose `Ok` is posted as its result and whose `Err` as its error.
    pub async fn finish_exchange(
        &self,
        id: &Value,
        reply: Reply,
        mut answer: impl FnMut(&Value) -> Result<Value, Value>,
    ) -> Exchange {
        let mut exchange = Exchange::default();
        let mut events = match reply.body {
            ReplyBody::Sse(events) => *events,
            ReplyBody::Json(response) => return Exchange { response, ..exchange },
            other => panic!("request {id} was answered with {} and {other:?}", reply.status),
        };
        loop {
            let Some(message) = events.next_message().await else {
                events = self.resume(id, &events).await;
                exchange.resumptions += 1;
                continue;
            };
            if message.get("method").is_none() && message.get("id") == Some(id) {
                exchange.response = message;
                return exchange;
            }
            if message.get("method").is_some() && message.get("id").is_some() {
                self.post_answer(&message["id"], answer(&message)).await;
                exchange.server_requests.push(message);
            } else {
                exchange.notifications.push(message);
            }
        }
    }

    async fn resume(&self, id: &Value, ended: &EventStream) -> EventStream {
        let Some(last_event_id) = ended.last_event_id() else {
            panic!("the stream of request {id} ended without a response ({:?})", ended.failure());
        };
        self.get_stream(Some(last_event_id)).await.into_events()
    }

    async fn post_answer(&self, id: &Value, answer: Result<Value, Value>) {
        let reply = match answer {
            Ok(result) => self.respond(id, result).await,
            Err(error) => self.respond_error(id, error).await,
        };
        assert!(reply.status.is_success(), "the answer to {id} was refused with {}", reply.status);
    }
}
