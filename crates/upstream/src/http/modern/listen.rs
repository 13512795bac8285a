//! The stream of `subscriptions/listen`: what the server says unasked.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use wire::{Id, Message, Notification, code, method};

use super::Modern;
use super::exchange::{Outgoing, error_code, refuse_question};
use super::headers;
use super::subscriptions::{Filter, Wanted};
use crate::http::answer::{Answer, Cursor, Piece};
use crate::http::backoff::Backoff;
use crate::http::client::Http;
use crate::http::conversation::Conversation;
use crate::http::refusal::Refusal;
use crate::http::{Incoming, error_answers};

const LISTEN: &str = "subscriptions/listen";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// How long the server has to open a stream and to say what it will tell on it.
const OPENING_PATIENCE: Duration = Duration::from_secs(20);
/// A stream that lasted so long was no failure.
const STEADY: Duration = Duration::from_secs(10);
/// How long the stream before is still read: what was said on it just before the new one stood may be on its way.
const OVERLAP: Duration = Duration::from_millis(500);

/// Listens for as long as the conversation lasts. Comes back whenever the stream ends, and opens another one whenever
/// our user wants to hear something else.
pub(crate) async fn run(conversation: Arc<Conversation>, modern: Arc<Modern>) {
    let mut listener =
        Listener { conversation, modern, current: None, backoff: Backoff::default(), has_missed: false };
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
    backoff: Backoff,
    /// There was no stream for a while, so something may have changed unheard.
    has_missed: bool,
}

/// A stream that the server has acknowledged.
struct Stream {
    id: Id,
    answer: Answer,
    asked: Filter,
    promised: Filter,
    since: Instant,
    has_spoken: bool,
    /// Was read and not passed on yet.
    unsaid: Option<Bytes>,
    /// Once another stream has taken its place: what is still wanted.
    replaced_by: Option<Filter>,
}

enum Opening {
    Stream(Box<Stream>),
    NotNow,
    /// Why to knock again is of no use.
    Never(String),
}

impl Listener {
    /// Brings the stream in line with what is wanted. How long to wait before the next attempt, if one is needed.
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
        let opening = async { timeout(OPENING_PATIENCE, open(&conversation, &modern, &wanted.filter)).await };
        match self.while_reading(opening).await {
            Ok(Opening::Stream(stream)) => {
                self.install(*stream, wanted).await;
                None
            }
            Ok(Opening::Never(reason)) => {
                tracing::debug!(reason, "the MCP server opens no stream of its own");
                self.modern.subscriptions.settle(wanted.generation, Err(reason));
                None
            }
            Ok(Opening::NotNow) | Err(_) => {
                self.has_missed |= self.current.is_none();
                Some(self.backoff.next(None))
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
            self.tell_of_all(&promised).await;
        }
        self.modern.subscriptions.settle(wanted.generation, Ok(promised.resource_subscriptions));
    }

    /// Whatever may have changed while nobody listened.
    async fn tell_of_all(&self, promised: &Filter) {
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

    /// Listens until something else is wanted, the stream has ended and it is time to come back, or `pause` is over.
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
        if stream.has_spoken || stream.since.elapsed() >= STEADY {
            self.backoff.reset();
        }
        let wait = self.backoff.next(stream.answer.cursor.retry);
        self.current = None;
        self.has_missed = true;
        change_or(Some(wait)).await;
    }

    /// Goes on with the stream that there is while something else is awaited.
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
    let Ok(http) = &conversation.http else { return Opening::Never("there is no way to it".to_owned()) };
    let id = modern.own_id("listen");
    match post(conversation, http, modern, filter, &id).await {
        Ok(answer) => acknowledged(conversation, answer, filter, id).await,
        Err(opening) => opening,
    }
}

async fn post(
    conversation: &Arc<Conversation>,
    http: &Http,
    modern: &Modern,
    filter: &Filter,
    id: &Id,
) -> Result<Answer, Opening> {
    let params = filter.to_params().to_string();
    let text = modern.envelope.request(id, LISTEN, Some(&params), None, None);
    let text = text.map_err(|reply| Opening::Never(reply.message))?;
    let outgoing = Outgoing { session: &modern.session, id, text, headers: headers::of_method(LISTEN) };
    let response = outgoing.post(http, None).await.map_err(|_| Opening::NotNow)?;
    if !response.status().is_success() {
        let refusal = Refusal::read(response).await;
        let is_for_now = refusal.may_change();
        return Err(if is_for_now { Opening::NotNow } else { Opening::Never(refusal.to_reply().message) });
    }
    Answer::new(response, conversation.max_message, Cursor::default())
        .ok_or_else(|| Opening::Never("it answers with neither JSON nor a stream".to_owned()))
}

async fn acknowledged(
    conversation: &Arc<Conversation>,
    mut answer: Answer,
    filter: &Filter,
    id: Id,
) -> Opening {
    while let Ok(piece) = answer.next().await {
        let Piece::Message(text) = piece else { continue };
        match Message::parse(text) {
            Ok(Message::Notification(notification)) if notification.method == ACKNOWLEDGED => {
                return Opening::Stream(Box::new(Stream {
                    id,
                    answer,
                    asked: filter.clone(),
                    promised: promise_of(&notification).within(filter),
                    since: Instant::now(),
                    has_spoken: false,
                    unsaid: None,
                    replaced_by: None,
                }));
            }
            Ok(Message::Notification(notification)) => {
                conversation.emit(Incoming::Message(notification.text())).await;
            }
            Ok(Message::Response(response)) if response.id == id => {
                return match error_code(&response) {
                    // The stream ended before it began, or the server is in trouble.
                    None => Opening::NotNow,
                    Some(code) if code == i64::from(code::INTERNAL_ERROR) => Opening::NotNow,
                    Some(code) => Opening::Never(format!("it answers with the error {code}")),
                };
            }
            Ok(Message::Response(_)) => {}
            Ok(Message::Request(request)) => refuse_question(&request.method),
            Err(malformed) => {
                return Opening::Never(error_answers::quotable(&malformed.reason));
            }
        }
    }
    Opening::NotNow
}

/// What the server says that it will tell.
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
    /// Passes on what comes, until the stream ends. May be dropped and called again: nothing is lost by that.
    async fn read(&mut self, conversation: &Conversation) {
        loop {
            if let Some(text) = self.unsaid.clone() {
                conversation.emit(Incoming::Message(text)).await;
                self.unsaid = None;
            }
            let text = match self.answer.next().await {
                Ok(Piece::Message(text)) => text,
                Ok(Piece::Sign) => continue,
                Ok(Piece::TooLong) => {
                    tracing::warn!("the MCP server sent a message that is too long: it is dropped");
                    continue;
                }
                Err(_) => return,
            };
            match Message::parse(text) {
                Ok(Message::Notification(notification)) if self.is_end(&notification) => return,
                Ok(Message::Notification(notification)) => {
                    self.has_spoken = true;
                    self.unsaid = self.is_wanted(&notification).then(|| notification.text());
                }
                Ok(Message::Response(response)) if response.id == self.id => return,
                Ok(Message::Response(_)) => {}
                Ok(Message::Request(request)) => refuse_question(&request.method),
                Err(malformed) => {
                    tracing::warn!(reason = %malformed, "the MCP server sent something that is no message");
                }
            }
        }
    }

    /// The protocol knows two ways to end a stream politely: an answer, and this.
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
