//! One message on its way: the POST, what the server makes of it, and the stream of its answer to the end.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use reqwest::{Request, Response, StatusCode};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};
use wire::{ErrorReply, Id};

use crate::http::answer::{Answer, Cursor, End, Piece, finish};
use crate::http::backoff::Backoff;
use crate::http::client::{Http, Session};
use crate::http::conversation::{Conversation, Delivered, Turn};
use crate::http::error_answers;
use crate::http::line::{Kind, Line};
use crate::http::refusal::{Refusal, acceptable_wait};

/// How often a message is sent again because the server is busy.
const MAX_RETRIES: u32 = 2;
/// How long a broken stream is knocked for without success.
const RESUME_PATIENCE: Duration = Duration::from_secs(60);
/// How long the server has to take a message that wants no answer.
const NOTE_PATIENCE: Duration = Duration::from_secs(60);
/// Servers need not answer a call that was cancelled. After this time none is expected.
const CANCELLED_PATIENCE: Duration = Duration::from_secs(5);

/// What became of a message.
enum Outcome {
    /// It was delivered, and a request was answered.
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
        () = patience_after(&line, cancelled) => match line.request_id() {
            Some(id) => {
                conversation.settle(id);
                return;
            }
            None => Outcome::Failed(error_answers::broke_while_running()),
        },
    };
    if line.request_id().is_none() {
        conversation.note_posted();
    }
    match (outcome, &line.kind) {
        (Outcome::Done, Kind::Cancellation(id)) => conversation.cancel(id),
        (Outcome::Done, _) => {}
        // It answers a question that was asked in the session that is gone.
        (Outcome::Forgotten, Kind::Response(_)) => conversation.renew(&session, None),
        (Outcome::Forgotten, _) => conversation.renew(&session, Some(line)),
        (Outcome::Failed(reply), kind) => {
            if let Kind::Cancellation(id) = kind {
                conversation.cancel(id);
            }
            if let Some(id) = line.request_id() {
                conversation.answer(id, &reply).await;
            } else {
                tracing::warn!(reason = reply.message, "a message did not reach the MCP server");
            }
        }
    }
}

/// Resolves when there is no use in waiting: some time after a call was cancelled, never for others.
async fn patience_after(line: &Line, cancelled: Option<oneshot::Receiver<()>>) {
    let patience = match cancelled {
        Some(cancelled) => cancelled.await.ok().map(|()| CANCELLED_PATIENCE),
        None => line.request_id().is_none().then_some(NOTE_PATIENCE),
    };
    match patience {
        Some(patience) => sleep(patience).await,
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
        let response = match post_until_taken(self.http, request, Some(turn)).await {
            Ok(response) => response,
            Err(error) => return Outcome::Failed(error_answers::unreachable(&error)),
        };
        if !response.status().is_success() {
            return self.refused(line, Refusal::read(response).await).await;
        }
        if let Some(id) = line.request_id() {
            return self.read_answer(id, response).await;
        }
        finish(response).await;
        Outcome::Done
    }

    async fn refused(&self, line: &Line, refusal: Refusal) -> Outcome {
        let id = line.request_id();
        if self.session.id.is_some() && !line.was_resent && refusal.is_forgotten_session(id) {
            return Outcome::Forgotten;
        }
        if let Some(answer) = id.and_then(|id| refusal.answer_to(id)) {
            self.conversation.deliver(answer).await;
            return Outcome::Done;
        }
        Outcome::Failed(refusal.to_reply())
    }

    async fn read_answer(&self, id: &Id, response: Response) -> Outcome {
        let Some(mut answer) = Answer::new(response, self.conversation.max_message, Cursor::default()) else {
            return Outcome::Failed(error_answers::not_understood("neither JSON nor a stream of events"));
        };
        let mut backoff = Backoff::default();
        let mut passed_over = None;
        loop {
            match answer.next().await {
                Ok(Piece::Message(text)) => match self.conversation.deliver(text).await {
                    Delivered::Answer(answered) if answered == *id => {
                        self.conversation.deliver_rest(answer).await;
                        return Outcome::Done;
                    }
                    Delivered::Malformed(reason) => {
                        passed_over = Some(error_answers::not_understood(&reason.reason));
                    }
                    Delivered::Answer(_) | Delivered::Other => backoff.reset(),
                },
                Ok(Piece::Sign) => backoff.reset(),
                Ok(Piece::TooLong) => {
                    passed_over = Some(error_answers::too_long(self.conversation.max_message));
                }
                // The answer may have come on another stream.
                Err(_) if !self.conversation.is_running(id) => return Outcome::Done,
                Err(end) => match (passed_over, answer.is_stream(), end) {
                    (Some(reply), ..) => return Outcome::Failed(reply),
                    (None, false, End::Whole) => {
                        return Outcome::Failed(error_answers::not_understood("it answers another request"));
                    }
                    (None, false, End::Broken) => {
                        return Outcome::Failed(error_answers::broke_while_running());
                    }
                    (None, true, _) => match self.resume(answer.cursor, &mut backoff).await {
                        Some(resumed) => (answer, passed_over) = (resumed, None),
                        None => return Outcome::Failed(error_answers::broke_while_running()),
                    },
                },
            }
        }
    }

    /// Takes up a stream after the last event that arrived. `None`: there is no way.
    async fn resume(&self, cursor: Cursor, backoff: &mut Backoff) -> Option<Answer> {
        let last_event = cursor.last_event.clone()?;
        let asked = cursor.retry;
        let mut wait = backoff.next(asked);
        let end = Instant::now() + wait + RESUME_PATIENCE;
        loop {
            sleep(wait).await;
            let request = self.http.get(self.session, Some(&last_event));
            match timeout_at(end, self.http.execute(request)).await {
                Err(_) => return None,
                Ok(Ok(response)) if response.status().is_success() => {
                    let answer = Answer::new(response, self.conversation.max_message, cursor)?;
                    return Some(answer).filter(Answer::is_stream);
                }
                Ok(Ok(response)) if !may_change(response.status()) => return None,
                Ok(_) => {}
            }
            wait = backoff.next(asked);
            if Instant::now() + wait > end {
                return None;
            }
        }
    }
}

/// Posts a message, again if the server is busy and says for how long. The turn ends when the first POST has begun.
pub(crate) async fn post_until_taken(
    http: &Http,
    request: impl Fn() -> Request,
    mut turn: Option<Turn>,
) -> reqwest::Result<Response> {
    let mut retries = 0;
    loop {
        let mut sending = pin!(http.execute(request()));
        let first = std::future::poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await;
        // The POST has begun, so the next line may.
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

/// Whether the same request may succeed later.
pub(crate) fn may_change(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status.as_u16(), 408 | 409 | 425 | 429)
}
