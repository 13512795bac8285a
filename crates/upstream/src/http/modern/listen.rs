//! The stream of `subscriptions/listen`: the server's notifications.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use wire::{Id, Message, Notification, code, method};

use super::exchange::{Outgoing, drop_request, error_code};
use super::headers;
use super::state::Modern;
use super::subscriptions::{Filter, Wanted};
use crate::http::client::Http;
use crate::http::conversation::Conversation;
use crate::http::error_replies;
use crate::http::error_response::ErrorResponse;
use crate::http::incoming::Incoming;
use crate::http::reconnect_pause::ReconnectPause;
use crate::http::response_body::{Cursor, Piece, ResponseBody};

const LISTEN: &str = "subscriptions/listen";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// How long the server may take to open and acknowledge a stream.
const OPENING_TIMEOUT: Duration = Duration::from_secs(20);
/// A stream that lasted this long counts as a success.
const STEADY: Duration = Duration::from_secs(10);
/// How long the previous stream is still read after a new one opened: its last messages may be on their way.
const OVERLAP: Duration = Duration::from_millis(500);

/// Listens as long as the conversation lasts. Reconnects when the stream ends, and opens another one when the caller's
/// subscriptions change.
pub(crate) async fn run(conversation: Arc<Conversation>, modern: Arc<Modern>) {
    let pause = ReconnectPause::default();
    let mut listener = Listener { conversation, modern, current: None, pause, has_missed: false };
    loop {
        let wanted = listener.modern.subscriptions.wanted();
        let pause = listener.adjust(&wanted).await;
        listener.rest(wanted.generation, pause).await;
    }
}

struct Listener {
    conversation: Arc<Conversation>,
    modern: Arc<Modern>,
    current: Option<Stream>,
    pause: ReconnectPause,
    /// There was no stream for a while, so notifications may have been missed.
    has_missed: bool,
}

/// A stream that the server has acknowledged.
struct Stream {
    id: Id,
    body: ResponseBody,
    asked: Filter,
    promised: Filter,
    since: Instant,
    has_delivered: bool,
    /// Read and not delivered yet.
    undelivered: Option<Bytes>,
    /// The filter of the stream that replaced this one.
    replaced_by: Option<Filter>,
}

enum Opening {
    Stream(Box<Stream>),
    NotNow,
    /// Trying again is of no use, for this reason.
    Never(String),
}

impl Listener {
    /// Opens a stream if the current one does not fit. Returns how long to wait before the next attempt, if one is
    /// needed.
    async fn adjust(&mut self, wanted: &Wanted) -> Option<Duration> {
        let subscriptions = &self.modern.subscriptions;
        if wanted.filter.is_nothing() {
            self.current = None;
            subscriptions.settle(wanted.generation, Ok(wanted.filter.resource_subscriptions.clone()));
            return None;
        }
        let fits = |stream: &&Stream| stream.asked == wanted.filter || stream.promised == wanted.filter;
        if let Some(stream) = self.current.as_ref().filter(fits) {
            subscriptions.settle(wanted.generation, Ok(stream.promised.resource_subscriptions.clone()));
            return None;
        }
        let (conversation, modern) = (Arc::clone(&self.conversation), Arc::clone(&self.modern));
        let opening = async { timeout(OPENING_TIMEOUT, open(&conversation, &modern, &wanted.filter)).await };
        match self.while_reading(opening).await {
            Ok(Opening::Stream(stream)) => {
                self.install(*stream, wanted).await;
                None
            }
            Ok(Opening::Never(reason)) => {
                tracing::debug!(reason, "the MCP server has no stream of notifications");
                self.modern.subscriptions.settle(wanted.generation, Err(reason));
                None
            }
            Ok(Opening::NotNow) | Err(_) => {
                self.has_missed |= self.current.is_none();
                Some(self.pause.next(None))
            }
        }
    }

    async fn install(&mut self, stream: Stream, wanted: &Wanted) {
        let promised = stream.promised.clone();
        let before = if promised.is_nothing() { self.current.take() } else { self.current.replace(stream) };
        if let Some(mut before) = before {
            before.replaced_by = Some(wanted.filter.clone());
            let conversation = Arc::clone(&self.conversation);
            self.conversation.spawn(async move {
                let _ = timeout(OVERLAP, before.read(&conversation)).await;
            });
        }
        if std::mem::take(&mut self.has_missed) {
            self.notify_of_all(&promised).await;
        }
        self.modern.subscriptions.settle(wanted.generation, Ok(promised.resource_subscriptions));
    }

    /// Delivers every notification that may have been missed.
    async fn notify_of_all(&self, promised: &Filter) {
        let lists = [
            (method::TOOLS_CHANGED, promised.tools_list_changed),
            (method::PROMPTS_CHANGED, promised.prompts_list_changed),
            (method::RESOURCES_CHANGED, promised.resources_list_changed),
        ];
        for (method, _) in lists.into_iter().filter(|(_, promised)| *promised) {
            let text = json!({ "jsonrpc": "2.0", "method": method }).to_string();
            self.conversation.emit(Incoming::Message(text.into())).await;
        }
        for uri in &promised.resource_subscriptions {
            let params = json!({ "uri": uri });
            let text = json!({ "jsonrpc": "2.0", "method": method::RESOURCE_UPDATED, "params": params });
            self.conversation.emit(Incoming::Message(text.to_string().into())).await;
        }
    }

    /// Listens until the subscriptions change, the stream has ended and its pause is over, or `pause` is over.
    async fn rest(&mut self, generation: u64, pause: Option<Duration>) {
        let modern = Arc::clone(&self.modern);
        let change_or = async |pause: Option<Duration>| {
            let pause = async {
                match pause {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = modern.subscriptions.changed(generation) => {}
                () = pause => {}
            }
        };
        let Some(stream) = &mut self.current else { return change_or(pause).await };
        tokio::select! {
            biased;
            () = stream.read(&self.conversation) => {}
            () = change_or(pause) => return,
        }
        if stream.has_delivered || stream.since.elapsed() >= STEADY {
            self.pause.reset();
        }
        let wait = self.pause.next(stream.body.cursor.retry);
        self.current = None;
        self.has_missed = true;
        change_or(Some(wait)).await;
    }

    /// Keeps reading the current stream while another future is awaited.
    async fn while_reading<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = pin!(other);
        if let Some(stream) = &mut self.current {
            tokio::select! {
                biased;
                () = stream.read(&self.conversation) => {}
                done = &mut other => return done,
            }
            self.current = None;
            self.has_missed = true;
        }
        other.await
    }
}

/// Asks for a stream and reads up to the server's acknowledgement.
async fn open(conversation: &Arc<Conversation>, modern: &Modern, filter: &Filter) -> Opening {
    let Ok(http) = &conversation.http else {
        return Opening::Never("the endpoint cannot be used".to_owned());
    };
    let id = modern.own_id("listen");
    match post(conversation, http, modern, filter, &id).await {
        Ok(body) => acknowledged(conversation, body, filter, id).await,
        Err(opening) => opening,
    }
}

async fn post(
    conversation: &Arc<Conversation>,
    http: &Http,
    modern: &Modern,
    filter: &Filter,
    id: &Id,
) -> Result<ResponseBody, Opening> {
    let params = filter.to_params().to_string();
    let text = modern.envelope.request(id, LISTEN, Some(&params), None, None);
    let text = text.map_err(|reply| Opening::Never(reply.message))?;
    let outgoing = Outgoing { session: &modern.session, id, text, headers: headers::of_method(LISTEN) };
    let response = outgoing.post(http, None).await.map_err(|_| Opening::NotNow)?;
    if !response.status().is_success() {
        let error = ErrorResponse::read(response).await;
        return Err(if error.may_change() {
            Opening::NotNow
        } else {
            Opening::Never(error.to_reply().message)
        });
    }
    ResponseBody::new(response, conversation.max_message, Cursor::default())
        .ok_or_else(|| Opening::Never("it answers with neither JSON nor a stream".to_owned()))
}

async fn acknowledged(
    conversation: &Arc<Conversation>,
    mut body: ResponseBody,
    filter: &Filter,
    id: Id,
) -> Opening {
    while let Ok(piece) = body.next().await {
        let Piece::Message(text) = piece else { continue };
        match Message::parse(text) {
            Ok(Message::Notification(notification)) if notification.method == ACKNOWLEDGED => {
                return Opening::Stream(Box::new(Stream {
                    id,
                    body,
                    asked: filter.clone(),
                    promised: promise_of(&notification).within(filter),
                    since: Instant::now(),
                    has_delivered: false,
                    undelivered: None,
                    replaced_by: None,
                }));
            }
            Ok(Message::Notification(notification)) => {
                conversation.emit(Incoming::Message(notification.text())).await;
            }
            Ok(Message::Response(response)) if response.id == id => {
                return match error_code(&response) {
                    // The stream ended before it began, or the server has an internal error.
                    None => Opening::NotNow,
                    Some(code) if code == i64::from(code::INTERNAL_ERROR) => Opening::NotNow,
                    Some(code) => Opening::Never(format!("it answers with the error {code}")),
                };
            }
            Ok(Message::Response(_)) => {}
            Ok(Message::Request(request)) => drop_request(&request.method),
            Err(malformed) => {
                return Opening::Never(error_replies::quotable(&malformed.reason));
            }
        }
    }
    Opening::NotNow
}

/// The notifications that the server promises in its acknowledgement.
fn promise_of(acknowledgement: &Notification) -> Filter {
    #[derive(Deserialize)]
    struct Fields {
        params: Params,
    }
    #[derive(Deserialize)]
    struct Params {
        notifications: Filter,
    }
    let fields = serde_json::from_slice::<Fields>(&acknowledgement.text());
    fields.map(|fields| fields.params.notifications).unwrap_or_default()
}

impl Stream {
    /// Delivers the notifications until the stream ends. Cancel-safe: a second call continues where the first stopped.
    async fn read(&mut self, conversation: &Conversation) {
        loop {
            if let Some(text) = self.undelivered.clone() {
                conversation.emit(Incoming::Message(text)).await;
                self.undelivered = None;
            }
            let text = match self.body.next().await {
                Ok(Piece::Message(text)) => text,
                Ok(Piece::Empty) => continue,
                Ok(Piece::TooLong) => {
                    tracing::warn!("dropping a message of the MCP server that is too long");
                    continue;
                }
                Err(_) => return,
            };
            match Message::parse(text) {
                Ok(Message::Notification(notification)) if self.is_end(&notification) => return,
                Ok(Message::Notification(notification)) => {
                    self.has_delivered = true;
                    self.undelivered = self.is_wanted(&notification).then(|| notification.text());
                }
                Ok(Message::Response(response)) if response.id == self.id => return,
                Ok(Message::Response(_)) => {}
                Ok(Message::Request(request)) => drop_request(&request.method),
                Err(malformed) => {
                    tracing::warn!(reason = %malformed, "the MCP server sent a line that is no message");
                }
            }
        }
    }

    /// Returns true for a cancellation of the stream. The other way to end it is a response.
    fn is_end(&self, notification: &Notification) -> bool {
        notification.method == method::CANCELLED
            && notification.cancelled_request().as_ref() == Some(&self.id)
    }

    fn is_wanted(&self, notification: &Notification) -> bool {
        if notification.method == ACKNOWLEDGED {
            return false;
        }
        match (&self.replaced_by, notification.uri()) {
            (Some(wanted), Some(uri)) if notification.method == method::RESOURCE_UPDATED => {
                wanted.resource_subscriptions.contains(&uri)
            }
            _ => true,
        }
    }
}
