//! A request of our user: answered here, or sent in the words of the other era, as often as the server needs to ask
//! something before it can answer.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use wire::{ErrorReply, Id, LogLevel, Message, Outcome, Request, Response, code, method};

use super::Modern;
use super::annotations::{Annotation, Page};
use super::envelope::Continuation;
use super::exchange::{Failure, Outgoing, error_code};
use super::headers;
use super::input::{self, Asked, InputRequired};
use super::members::Members;
use crate::http::client::Http;
use crate::http::conversation::{Conversation, Turn};
use crate::http::line::{Kind, Line};
use crate::http::{Incoming, error_answers};

/// How often a server can ask before it answers a call.
const MAX_ROUNDS: usize = 16;
/// How many pages of tools are read to find the headers of one.
const MAX_PAGES: usize = 64;
/// How long that may take.
const LIST_PATIENCE: Duration = Duration::from_secs(60);

/// The requests that it can answer with questions.
const MAY_ASK: [&str; 3] = [method::TOOLS_CALL, method::PROMPTS_GET, method::RESOURCES_READ];

const NOTHING: &str = "{}";

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
        // To drop the request is how this era cancels it. The server need not answer, so nobody does.
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
    /// Under which our user expects the answer.
    id: &'a Id,
    /// The headers of the tool were looked up already.
    has_headers: bool,
}

impl Call<'_> {
    /// The whole answer.
    async fn answer(&mut self, line: &Line, mut turn: Turn) -> Result<bytes::Bytes, ErrorReply> {
        turn.wait().await;
        if matches!(line.kind, Kind::Initialize(_)) {
            return Err(error_answers::already_initialized());
        }
        let Ok(Message::Request(request)) = Message::parse(line.text.clone()) else {
            return Err(ErrorReply::new(code::INVALID_REQUEST, "not a request"));
        };
        let result = match request.method.as_str() {
            method::PING => NOTHING,
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

    /// Nothing is sent: the level goes with every request from now on.
    fn set_level(&self, level: Option<LogLevel>) -> Result<&'static str, ErrorReply> {
        let level = level.ok_or_else(|| ErrorReply::new(code::INVALID_PARAMS, "unknown log level"))?;
        *self.modern.log_level() = Some(level);
        Ok(NOTHING)
    }

    async fn subscribe(&self, request: &Request, turn: Turn) -> Result<&'static str, ErrorReply> {
        let change = self.modern.subscriptions.add(uri_of(request)?)?;
        // What follows does not depend on the stream.
        drop(turn);
        self.modern.subscriptions.honoured(change).await.map(|()| NOTHING)
    }

    async fn unsubscribe(&self, request: &Request, turn: Turn) -> Result<&'static str, ErrorReply> {
        let change = self.modern.subscriptions.remove(&uri_of(request)?)?;
        drop(turn);
        self.modern.subscriptions.given_up(change).await;
        Ok(NOTHING)
    }

    /// Sends the request, and again with what the server asked for, until it has an answer.
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
                ResultKind::InputRequired => return Err(error_answers::unknown_result("input_required")),
            }
        }
        Err(error_answers::cannot_be_asked("it asks again and again"))
    }

    /// Posts the request once; twice if the server did not act on it because headers were missing that only its list
    /// of tools tells of.
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
            && names_other_headers(&answer)
            && !std::mem::replace(&mut self.has_headers, true)
            && let Some(annotations) = self.look_up(&tool).await
        {
            outgoing.headers = headers::of_request(request, &annotations);
            let again = outgoing.exchange(self.conversation, self.http, None).await;
            return again.map_err(Failure::into_reply);
        }
        answer.map_err(Failure::into_reply)
    }

    /// The annotations of a tool, from all the pages of the server's list. `None`: the list does not have it.
    async fn look_up(&self, tool: &str) -> Option<Arc<[Annotation]>> {
        timeout(LIST_PATIENCE, self.read_list(tool)).await.ok().flatten()
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

    /// Asks our user everything that the server wants to know.
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
            let (id, line) = answer.ok_or_else(|| error_answers::cannot_be_asked("nobody answers"))?;
            if let Some((key, asked)) = asked.iter().find(|(_, asked)| asked.id == id) {
                responses.set(key, input::answer_of(&line, &asked.method)?);
            }
        }
        let input_responses = (wanted.questions.len() > 0).then(|| responses.to_string());
        Ok(Continuation { input_responses, request_state: wanted.state.map(str::to_owned) })
    }
}

/// What a result is.
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
        // What is no object has no kind; our user's era never minded.
        let fields = wire::read_object::<Fields<'_>>(result).ok();
        let Some(kind) = fields.and_then(|fields| fields.kind) else { return Ok(Self::Complete) };
        match serde_json::from_str::<Cow<'_, str>>(kind.get()).as_deref() {
            Ok("complete") => Ok(Self::Complete),
            Ok("input_required") => Ok(Self::InputRequired),
            _ => Err(error_answers::unknown_result(kind.get())),
        }
    }
}

/// Whether the server did not act on a call because of its headers.
fn names_other_headers(answer: &Result<Response, Failure>) -> bool {
    let code = match answer {
        Ok(response) => error_code(response),
        Err(Failure::Refused(refusal)) => refusal.code(),
        Err(Failure::Failed(_)) => None,
    };
    code == Some(code::HEADER_MISMATCH.into())
}

fn uri_of(request: &Request) -> Result<String, ErrorReply> {
    request.uri().ok_or_else(|| ErrorReply::new(code::INVALID_PARAMS, "params.uri must be a string"))
}
