//! A request of the caller: answered here, or translated and sent, again after each time that the server asks
//! something before it can answer.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use wire::{ErrorReply, Id, LogLevel, Message, Outcome, Request, Response, code, method};

use super::annotations::{Annotation, Page};
use super::envelope::Continuation;
use super::exchange::{ExchangeError, Outgoing, error_code};
use super::headers;
use super::input::{self, Asked, InputRequired};
use super::members::Members;
use super::state::Modern;
use crate::http::client::Http;
use crate::http::conversation::{Conversation, Turn};
use crate::http::error_replies;
use crate::http::incoming::Incoming;
use crate::http::outgoing_line::{Kind, Line};

/// How often a server may ask before it answers a call.
const MAX_ROUNDS: usize = 16;
/// Most pages of the list of tools that are read to find one tool.
const MAX_PAGES: usize = 64;
/// How long that may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// The requests that a server may answer with questions.
const MAY_ASK: [&str; 3] = [method::TOOLS_CALL, method::PROMPTS_GET, method::RESOURCES_READ];

const EMPTY_RESULT: &str = "{}";

pub(crate) async fn run(
    conversation: Arc<Conversation>,
    modern: Arc<Modern>,
    line: Line,
    turn: Turn,
    cancelled: oneshot::Receiver<()>,
) {
    let (Ok(http), Some(id)) = (&conversation.http, line.request_id()) else { return };
    let answer = async {
        let mut call = Call { conversation: &conversation, modern: &modern, http, id, has_headers: false };
        call.answer(&line, turn).await
    };
    tokio::select! {
        biased;
        // Dropping the request cancels it in this era. The server need not answer, and neither do we.
        Ok(()) = cancelled => drop(conversation.settle(id)),
        answer = answer => match answer {
            Ok(answer) => conversation.answer_with(id, answer).await,
            Err(reply) => conversation.answer(id, &reply).await,
        },
    }
    for open in modern.questions.withdraw(id) {
        let params = format!(r#"{{"requestId":{},"reason":"the call has ended"}}"#, open.as_json());
        let text = format!(r#"{{"jsonrpc":"2.0","method":"{}","params":{params}}}"#, method::CANCELLED);
        conversation.emit(Incoming::Message(text.into())).await;
    }
}

struct Call<'a> {
    conversation: &'a Arc<Conversation>,
    modern: &'a Arc<Modern>,
    http: &'a Http,
    /// The id under which the caller expects the answer.
    id: &'a Id,
    /// The headers of the tool were looked up already.
    has_headers: bool,
}

impl Call<'_> {
    /// Returns the whole answer.
    async fn answer(&mut self, line: &Line, mut turn: Turn) -> Result<bytes::Bytes, ErrorReply> {
        turn.wait().await;
        if matches!(line.kind, Kind::Initialize(_)) {
            return Err(error_replies::already_initialized());
        }
        let Ok(Message::Request(request)) = Message::parse(line.text.clone()) else {
            return Err(ErrorReply::new(code::INVALID_REQUEST, "not a request"));
        };
        let result = match request.method.as_str() {
            method::PING => EMPTY_RESULT,
            method::SET_LEVEL => self.set_level(request.level())?,
            method::SUBSCRIBE => self.subscribe(&request, turn).await?,
            method::UNSUBSCRIBE => self.unsubscribe(&request, turn).await?,
            _ => {
                let response = self.send(&request, turn).await?;
                return Ok(response.with_id(self.id).into_bytes());
            }
        };
        Ok(wire::Text::result(self.id, result.into()).into_bytes())
    }

    /// Sends nothing: from now on the level is part of every request.
    fn set_level(&self, level: Option<LogLevel>) -> Result<&'static str, ErrorReply> {
        let level = level.ok_or_else(|| ErrorReply::new(code::INVALID_PARAMS, "unknown log level"))?;
        *self.modern.log_level() = Some(level);
        Ok(EMPTY_RESULT)
    }

    async fn subscribe(&self, request: &Request, turn: Turn) -> Result<&'static str, ErrorReply> {
        let change = self.modern.subscriptions.add(uri_of(request)?)?;
        // The next messages do not depend on the stream.
        drop(turn);
        self.modern.subscriptions.granted(change).await.map(|()| EMPTY_RESULT)
    }

    async fn unsubscribe(&self, request: &Request, turn: Turn) -> Result<&'static str, ErrorReply> {
        let change = self.modern.subscriptions.remove(&uri_of(request)?)?;
        drop(turn);
        self.modern.subscriptions.removed(change).await;
        Ok(EMPTY_RESULT)
    }

    /// Sends the request, and again with the answers to the server's questions, until the server answers.
    async fn send(&mut self, request: &Request, turn: Turn) -> Result<Response, ErrorReply> {
        let may_ask = MAY_ASK.contains(&request.method.as_str());
        let mut continuation = may_ask.then(Continuation::default);
        let mut turn = Some(turn);
        for round in 0..=MAX_ROUNDS {
            let id = if round == 0 { self.id.clone() } else { self.modern.own_id("retry") };
            let response = self.post(request, &id, continuation.as_ref(), turn.take()).await?;
            let Outcome::Result(result) = response.outcome() else { return Ok(response) };
            match ResultKind::of(result)? {
                ResultKind::Complete => {
                    if request.method == method::TOOLS_LIST {
                        self.modern.annotations.learn_from(result);
                    }
                    return Ok(response);
                }
                ResultKind::InputRequired if may_ask => continuation = Some(self.ask(result).await?),
                ResultKind::InputRequired => return Err(error_replies::unknown_result("input_required")),
            }
        }
        Err(error_replies::cannot_be_asked("it asks too often"))
    }

    /// Posts the request, and a second time if the server rejected it for missing headers that only its list of tools
    /// names.
    async fn post(
        &mut self,
        request: &Request,
        id: &Id,
        continuation: Option<&Continuation>,
        turn: Option<Turn>,
    ) -> Result<Response, ErrorReply> {
        let level = *self.modern.log_level();
        let params = request.params_text();
        let text = self.modern.envelope.request(id, &request.method, params, level, continuation)?;
        let tool =
            Some(request).filter(|request| request.method == method::TOOLS_CALL).and_then(Request::name);
        let known = tool.as_ref().map(|tool| self.modern.annotations.of(tool)).unwrap_or_default();
        let headers = headers::of_request(request, &known);
        let mut outgoing = Outgoing { session: &self.modern.session, id, text, headers };
        let answer = outgoing.exchange(self.conversation, self.http, turn).await;
        if let Some(tool) = tool
            && is_header_mismatch(&answer)
            && !std::mem::replace(&mut self.has_headers, true)
            && let Some(annotations) = self.look_up(&tool).await
        {
            outgoing.headers = headers::of_request(request, &annotations);
            let again = outgoing.exchange(self.conversation, self.http, None).await;
            return again.map_err(ExchangeError::into_reply);
        }
        answer.map_err(ExchangeError::into_reply)
    }

    /// Looks up the annotations of a tool in the server's list. Returns `None` if the list does not have it.
    async fn look_up(&self, tool: &str) -> Option<Arc<[Annotation]>> {
        timeout(LIST_TIMEOUT, self.read_list(tool)).await.ok().flatten()
    }

    async fn read_list(&self, tool: &str) -> Option<Arc<[Annotation]>> {
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let id = self.modern.own_id("list");
            let params = cursor.take().map(|cursor| serde_json::json!({ "cursor": cursor }).to_string());
            let envelope = &self.modern.envelope;
            let outgoing = Outgoing {
                session: &self.modern.session,
                text: envelope.request(&id, method::TOOLS_LIST, params.as_deref(), None, None).ok()?,
                headers: headers::of_method(method::TOOLS_LIST),
                id: &id,
            };
            let response = outgoing.exchange(self.conversation, self.http, None).await.ok()?;
            let Outcome::Result(result) = response.outcome() else { return None };
            let page = Page::read(result)?;
            let found = page.tool(tool);
            cursor.clone_from(&page.next_cursor);
            self.modern.annotations.learn(page);
            if found.is_some() || cursor.is_none() {
                return found;
            }
        }
        None
    }

    /// Asks the caller all questions of the server.
    async fn ask(&self, result: &str) -> Result<Continuation, ErrorReply> {
        let wanted = InputRequired::read(result)?;
        let asked = wanted.questions.iter().map(|(key, question)| {
            let asked = input::ask(question, self.modern.own_id("input"), self.modern.capabilities);
            asked.map(|asked| (key, asked))
        });
        let asked: Vec<(&str, Asked)> = asked.collect::<Result<_, _>>()?;
        let (sender, mut answers) = mpsc::unbounded_channel();
        for (_, asked) in &asked {
            self.modern.questions.open(asked.id.clone(), self.id.clone(), sender.clone());
            self.conversation.emit(Incoming::Message(asked.text.clone().into())).await;
        }
        drop(sender);
        let mut responses = Members::default();
        for _ in 0..asked.len() {
            let answer = answers.recv().await;
            let (id, line) =
                answer.ok_or_else(|| error_replies::cannot_be_asked("the client does not answer"))?;
            if let Some((key, asked)) = asked.iter().find(|(_, asked)| asked.id == id) {
                responses.set(key, input::answer_of(&line, &asked.method)?);
            }
        }
        let input_responses = (wanted.questions.len() > 0).then(|| responses.to_string());
        Ok(Continuation { input_responses, request_state: wanted.state.map(str::to_owned) })
    }
}

/// The `resultType` of a result.
enum ResultKind {
    Complete,
    InputRequired,
}

impl ResultKind {
    fn of(result: &str) -> Result<Self, ErrorReply> {
        #[derive(Deserialize)]
        struct Fields<'a> {
            #[serde(borrow, default, rename = "resultType")]
            kind: Option<&'a RawValue>,
        }
        // A result that is not an object has no kind. The caller's era allows it.
        let fields = wire::read_object::<Fields<'_>>(result).ok();
        let Some(kind) = fields.and_then(|fields| fields.kind) else { return Ok(Self::Complete) };
        match serde_json::from_str::<Cow<'_, str>>(kind.get()).as_deref() {
            Ok("complete") => Ok(Self::Complete),
            Ok("input_required") => Ok(Self::InputRequired),
            _ => Err(error_replies::unknown_result(kind.get())),
        }
    }
}

/// Returns true if the server rejected a call because of its headers.
fn is_header_mismatch(answer: &Result<Response, ExchangeError>) -> bool {
    let code = match answer {
        Ok(response) => error_code(response),
        Err(ExchangeError::Refused(error)) => error.code(),
        Err(ExchangeError::Failed(_)) => None,
    };
    code == Some(code::HEADER_MISMATCH.into())
}

fn uri_of(request: &Request) -> Result<String, ErrorReply> {
    request.uri().ok_or_else(|| ErrorReply::new(code::INVALID_PARAMS, "params.uri must be a string"))
}
