//! The exchange of one message: its POST, and the stream of its answer to the end.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use reqwest::{Request, Response};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};
use wire::{ErrorReply, Id};

use crate::http::client::{Http, Session};
use crate::http::conversation::{Conversation, Delivered, Turn};
use crate::http::error_replies;
use crate::http::error_response::{ErrorResponse, acceptable_wait, may_change};
use crate::http::outgoing_line::{Kind, Line};
use crate::http::reconnect_pause::ReconnectPause;
use crate::http::response_body::{Cursor, End, Piece, ResponseBody, finish};

/// How often a message is sent again because the server is busy.
const MAX_RETRIES: u32 = 2;
/// How long resuming a broken stream is tried.
const RESUME_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the server may take to accept a notification or response.
const NOTE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the answer to a cancelled call is waited for. Servers need not send one.
const CANCELLED_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of an exchange.
enum Outcome {
    /// The message was delivered and, if it is a request, answered.
    Done,
    /// The server does not know the session.
    Forgotten,
    Failed(ErrorReply),
}

pub(crate) async fn run(
    conversation: Arc<Conversation>,
    session: Arc<Session>,
    line: Line,
    turn: Turn,
    cancelled: Option<oneshot::Receiver<()>>,
) {
    let Ok(http) = &conversation.http else { return };
    let exchange = Exchange { conversation: &conversation, http, session: &session };
    let outcome = tokio::select! {
        biased;
        outcome = exchange.post(&line, turn) => outcome,
        () = timed_out(&line, cancelled) => match line.request_id() {
            Some(id) => {
                conversation.settle(id);
                return;
            }
            None => Outcome::Failed(error_replies::broke_while_running()),
        },
    };
    if line.request_id().is_none() {
        conversation.note_posted();
    }
    match (outcome, &line.kind) {
        (Outcome::Done, Kind::Cancellation(id)) => conversation.cancel(id),
        (Outcome::Done, _) => {}
        // A response to a request of the forgotten session is of no use in the next one.
        (Outcome::Forgotten, Kind::Response(_)) => conversation.renew(&session, None),
        (Outcome::Forgotten, _) => conversation.renew(&session, Some(line)),
        (Outcome::Failed(reply), kind) => {
            if let Kind::Cancellation(id) = kind {
                conversation.cancel(id);
            }
            if let Some(id) = line.request_id() {
                conversation.answer(id, &reply).await;
            } else {
                tracing::warn!(reason = reply.message, "could not deliver a message to the MCP server");
            }
        }
    }
}

/// Resolves some time after a request was cancelled, or after another message was posted. Never resolves for a request
/// that is not cancelled.
async fn timed_out(line: &Line, cancelled: Option<oneshot::Receiver<()>>) {
    let timeout = match cancelled {
        Some(cancelled) => cancelled.await.ok().map(|()| CANCELLED_TIMEOUT),
        None => line.request_id().is_none().then_some(NOTE_TIMEOUT),
    };
    match timeout {
        Some(timeout) => sleep(timeout).await,
        None => std::future::pending().await,
    }
}

struct Exchange<'a> {
    conversation: &'a Arc<Conversation>,
    http: &'a Http,
    session: &'a Arc<Session>,
}

impl Exchange<'_> {
    async fn post(&self, line: &Line, mut turn: Turn) -> Outcome {
        turn.wait().await;
        let request = || self.http.post(self.session, line.text.clone());
        let response = match post_with_retries(self.http, request, Some(turn)).await {
            Ok(response) => response,
            Err(error) => return Outcome::Failed(error_replies::unreachable(&error)),
        };
        if !response.status().is_success() {
            return self.take_error(line, ErrorResponse::read(response).await).await;
        }
        if let Some(id) = line.request_id() {
            return self.read_answer(id, response).await;
        }
        finish(response).await;
        Outcome::Done
    }

    async fn take_error(&self, line: &Line, error: ErrorResponse) -> Outcome {
        let id = line.request_id();
        if self.session.id.is_some() && !line.was_resent && error.is_forgotten_session(id) {
            return Outcome::Forgotten;
        }
        if let Some(answer) = id.and_then(|id| error.answer_to(id)) {
            self.conversation.deliver(answer).await;
            return Outcome::Done;
        }
        Outcome::Failed(error.to_reply())
    }

    async fn read_answer(&self, id: &Id, response: Response) -> Outcome {
        let max_message = self.conversation.max_message;
        let Some(mut body) = ResponseBody::new(response, max_message, Cursor::default()) else {
            return Outcome::Failed(error_replies::not_understood("neither JSON nor a stream of events"));
        };
        let mut pause = ReconnectPause::default();
        // Why a message was dropped that may have been the answer.
        let mut dropped = None;
        loop {
            match body.next().await {
                Ok(Piece::Message(text)) => match self.conversation.deliver(text).await {
                    Delivered::Answer(answered) if answered == *id => {
                        self.conversation.deliver_rest(body).await;
                        return Outcome::Done;
                    }
                    Delivered::Malformed(error) => {
                        dropped = Some(error_replies::not_understood(&error.reason));
                    }
                    Delivered::Answer(_) | Delivered::Other => pause.reset(),
                },
                Ok(Piece::Empty) => pause.reset(),
                Ok(Piece::TooLong) => dropped = Some(error_replies::too_long(max_message)),
                // The answer may have arrived on another stream.
                Err(_) if !self.conversation.is_running(id) => return Outcome::Done,
                Err(end) => match (dropped, body.is_stream(), end) {
                    (Some(reply), ..) => return Outcome::Failed(reply),
                    (None, false, End::Whole) => {
                        return Outcome::Failed(error_replies::not_understood("it answers another request"));
                    }
                    (None, false, End::Broken) => {
                        return Outcome::Failed(error_replies::broke_while_running());
                    }
                    (None, true, _) => match self.resume(body.cursor, &mut pause).await {
                        Some(resumed) => (body, dropped) = (resumed, None),
                        None => return Outcome::Failed(error_replies::broke_while_running()),
                    },
                },
            }
        }
    }

    /// Resumes a stream after the last event that arrived. Returns `None` if that is not possible.
    async fn resume(&self, cursor: Cursor, pause: &mut ReconnectPause) -> Option<ResponseBody> {
        let last_event = cursor.last_event.clone()?;
        let retry = cursor.retry;
        let mut wait = pause.next(retry);
        let end = Instant::now() + wait + RESUME_TIMEOUT;
        loop {
            sleep(wait).await;
            let request = self.http.get(self.session, Some(&last_event));
            match timeout_at(end, self.http.execute(request)).await {
                Err(_) => return None,
                Ok(Ok(response)) if response.status().is_success() => {
                    let body = ResponseBody::new(response, self.conversation.max_message, cursor)?;
                    return Some(body).filter(ResponseBody::is_stream);
                }
                Ok(Ok(response)) if !may_change(response.status()) => return None,
                Ok(_) => {}
            }
            wait = pause.next(retry);
            if Instant::now() + wait > end {
                return None;
            }
        }
    }
}

/// Posts a message, and again if the server is busy and says for how long. The turn ends when the first POST has begun.
pub(crate) async fn post_with_retries(
    http: &Http,
    request: impl Fn() -> Request,
    mut turn: Option<Turn>,
) -> reqwest::Result<Response> {
    let mut retries = 0;
    loop {
        let mut sending = pin!(http.execute(request()));
        let first = std::future::poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await;
        // The POST has begun, so the next line may be sent.
        drop(turn.take());
        let response = match first {
            Poll::Ready(response) => response,
            Poll::Pending => sending.await,
        }?;
        match acceptable_wait(&response) {
            Some(wait) if retries < MAX_RETRIES => sleep(wait).await,
            _ => return Ok(response),
        }
        retries += 1;
    }
}
