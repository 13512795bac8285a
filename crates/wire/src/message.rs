//! One JSON-RPC message: the bytes it arrived in, and the positions of the parts that the gateway acts on.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::limits::{MAX_DEPTH, is_too_deep};
use crate::params::{Peek, present};
use crate::{Id, MessageError, Text, compact_newlines, read_object};

/// A place in a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The position of `part`, which borrows from `whole`. Messages are far below 4 GiB.
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn of(part: &RawValue, whole: &str) -> Self {
        let start = part.get().as_ptr().addr() - whole.as_ptr().addr();
        Self { start: start as u32, end: (start + part.get().len()) as u32 }
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

#[derive(Debug)]
pub enum Message {
    Request(Request),
    Notification(Notification),
    Response(Response),
}

/// A message that wants an answer.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: Id,
    pub method: String,
    text: Bytes,
    id_span: Span,
    params: Option<Span>,
    peek: Peek,
    /// Replaces the name on the way to the upstream, as JSON text.
    own_name: Option<Box<str>>,
}

#[derive(Debug)]
pub struct Notification {
    pub method: String,
    text: Bytes,
    peek: Peek,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Response {
    pub id: Id,
    text: Bytes,
    id_span: Span,
    outcome: Span,
    is_error: bool,
}

/// The result or error of a response, as JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    Result(&'a str),
    Error(&'a str),
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present_text")]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// A text. `null` is none: a receiver that looks for the key would take an answer for a request.
fn present_text<'de: 'a, 'a, D>(deserializer: D) -> Result<Option<Cow<'a, str>>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);
    Borrowed::deserialize(deserializer).map(|text| Some(text.0))
}

impl Message {
    /// Reads one message. Line breaks between its tokens become spaces; nothing else changes.
    pub fn parse(text: Bytes) -> Result<Self, MessageError> {
        let whole =
            std::str::from_utf8(&text).map_err(|_| MessageError::not_json("the message is not UTF-8"))?;
        let envelope: Envelope<'_> = read_object(whole).map_err(|error| explain(&error, whole))?;
        if is_too_deep(whole) {
            let reason = format!("the message nests deeper than {MAX_DEPTH} levels");
            return Err(MessageError::invalid(reason).with_id(readable_id(whole)));
        }
        let id = envelope.id.map(Id::from_raw).transpose();
        let known_id = id.as_ref().ok().cloned().flatten();
        let refuse = |reason: &str| MessageError::invalid(reason).with_id(known_id.clone());
        if envelope.jsonrpc.map(RawValue::get) != Some(r#""2.0""#) {
            return Err(refuse("the message lacks \"jsonrpc\":\"2.0\""));
        }
        let id = id.map_err(refuse)?.zip(envelope.id.map(|raw| Span::of(raw, whole)));
        let method = envelope.method.map(Cow::into_owned);
        let peek = match method {
            Some(_) => {
                Peek::into_params(whole, envelope.params).map_err(|error| refuse(&error.to_string()))?
            }
            None => Peek::default(),
        };
        let span = |raw: Option<&RawValue>| raw.map(|raw| Span::of(raw, whole));
        let (params, result, error) = (span(envelope.params), span(envelope.result), span(envelope.error));
        let is_error = envelope.error.is_some_and(|error| error.get().starts_with('{'));
        // A space for each line break: the places stay. Not before the text is known to be JSON, because a line break
        // inside a string would become part of one.
        let text = compact_newlines(text);
        Ok(match (method, id, result, error) {
            (Some(method), Some((id, id_span)), None, None) => {
                Self::Request(Request { id, method, text, id_span, params, peek, own_name: None })
            }
            (Some(method), None, None, None) => Self::Notification(Notification { method, text, peek }),
            (None, Some((id, id_span)), Some(outcome), None) => {
                Self::Response(Response { id, text, id_span, outcome, is_error })
            }
            (None, Some((id, id_span)), None, Some(outcome)) if is_error => {
                Self::Response(Response { id, text, id_span, outcome, is_error })
            }
            _ => return Err(refuse("the message is neither a request, a notification nor a response")),
        })
    }

    pub fn method(&self) -> Option<&str> {
        match self {
            Self::Request(request) => Some(&request.method),
            Self::Notification(notification) => Some(&notification.method),
            Self::Response(_) => None,
        }
    }

    /// The id to echo in an error about this message.
    pub fn request_id(&self) -> Option<&Id> {
        match self {
            Self::Request(request) => Some(&request.id),
            Self::Notification(_) | Self::Response(_) => None,
        }
    }
}

fn explain(error: &serde_json::Error, whole: &str) -> MessageError {
    match error.classify() {
        serde_json::error::Category::Data => {
            MessageError::invalid(format!("not a JSON-RPC message: {error}")).with_id(readable_id(whole))
        }
        _ => MessageError::not_json(format!("not valid JSON: {error}")),
    }
}

/// The id of an object that is otherwise not a message, to echo it in the error.
fn readable_id(whole: &str) -> Option<Id> {
    #[derive(Deserialize)]
    struct OnlyId<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }
    read_object::<OnlyId<'_>>(whole).ok().and_then(|only| Id::from_raw(only.id).ok())
}

impl Request {
    pub fn params(&self) -> Option<&RawValue> {
        self.params.and_then(|span| borrow_raw(&self.text, span))
    }

    /// The same request with a text of its own, to be kept. Otherwise a short message keeps the whole buffer that the
    /// connection had read.
    #[must_use]
    pub fn into_kept(self) -> Self {
        Self { text: Bytes::copy_from_slice(&self.text), ..self }
    }

    /// The parameters as text, without parsing them again.
    pub fn params_text(&self) -> Option<&str> {
        std::str::from_utf8(self.text_at(self.params?)).ok()
    }

    /// The message under the gateway's own id, which also replaces the caller's progress token: an upstream then never
    /// sees two calls with the same id or token.
    pub fn toward_upstream(&self, id: u64) -> Bytes {
        let id = id.to_string();
        let name = self.own_name.as_ref().and_then(|name| Some((self.peek.name?, name.as_bytes())));
        let mut edits = [
            Some((self.id_span, id.as_bytes())),
            self.peek.wants_progress.map(|span| (span, id.as_bytes())),
            name,
        ];
        edits.sort_by_key(|edit| edit.map(|(span, _)| span.start));
        let name_length = name.map_or(0, |(_, name)| name.len());
        let mut line = BytesMut::with_capacity(self.text.len() + 2 * id.len() + name_length);
        let mut copied = 0;
        for (span, replacement) in edits.into_iter().flatten() {
            line.extend_from_slice(&self.text[copied..span.range().start]);
            line.extend_from_slice(replacement);
            copied = span.range().end;
        }
        line.extend_from_slice(&self.text[copied..]);
        line.freeze()
    }

    /// The message under another id and otherwise unchanged: how an upstream's request is sent to a client.
    pub fn with_id(&self, id: &Id) -> Text {
        Text::spliced(&self.text, self.id_span.range(), id.as_json().as_bytes())
    }

    /// The bytes that the message holds in memory.
    pub fn size(&self) -> usize {
        self.text.len()
    }

    /// The caller's progress token, as JSON text.
    pub fn wants_progress(&self) -> Option<Bytes> {
        self.peek.wants_progress.map(|span| self.text.slice(span.range()))
    }

    /// Returns true if the call asks to run as a task, whose progress continues after its answer.
    pub fn wants_task(&self) -> bool {
        self.peek.task.is_some()
    }

    pub fn uri(&self) -> Option<String> {
        read_string(&self.text, self.peek.uri)
    }

    /// The name of the tool or prompt.
    pub fn name(&self) -> Option<String> {
        read_string(&self.text, self.peek.name)
    }

    /// Sets the name that the upstream itself has given to the tool or prompt.
    pub fn call_by(&mut self, own_name: &str) {
        self.own_name = Some(serde_json::Value::from(own_name).to_string().into());
    }

    pub fn cursor(&self) -> Option<String> {
        read_string(&self.text, self.peek.cursor)
    }

    pub fn task_id(&self) -> Option<String> {
        read_string(&self.text, self.peek.task_id)
    }

    pub fn level(&self) -> Option<crate::LogLevel> {
        read_json(&self.text, self.peek.level)
    }

    /// A `logging/setLevel` with another level, under the gateway's id.
    pub fn with_level(&self, id: u64, level: crate::LogLevel) -> Bytes {
        let Some(span) = self.peek.level else { return self.toward_upstream(id) };
        let text = Text::spliced(&self.text, span.range(), format!("\"{}\"", level.as_str()).as_bytes());
        match Message::parse(text.into_bytes()) {
            Ok(Message::Request(changed)) => changed.toward_upstream(id),
            _ => self.toward_upstream(id),
        }
    }

    pub(crate) fn peek(&self) -> Peek {
        self.peek
    }

    pub(crate) fn text_at(&self, span: Span) -> &[u8] {
        &self.text[span.range()]
    }
}

impl Notification {
    /// The message as it arrived, on one line.
    pub fn text(&self) -> Bytes {
        self.text.clone()
    }

    /// The token of a progress notification, if it is a valid id.
    pub fn progress_token(&self) -> Option<Id> {
        read_id(&self.text, self.peek.progress_token)
    }

    /// The same notification under the token that its receiver chose.
    pub fn with_progress_token(&self, token: &[u8]) -> Text {
        replace(&self.text, self.peek.progress_token, token)
    }

    /// The id of the request that a cancellation is about.
    pub fn cancelled_request(&self) -> Option<Id> {
        read_id(&self.text, self.peek.request_id)
    }

    /// The same cancellation under the id that its receiver knows.
    pub fn with_cancelled_request(&self, id: &Id) -> Text {
        replace(&self.text, self.peek.request_id, id.as_json().as_bytes())
    }

    pub fn uri(&self) -> Option<String> {
        read_string(&self.text, self.peek.uri)
    }

    pub fn task_id(&self) -> Option<String> {
        read_string(&self.text, self.peek.task_id)
    }

    pub fn level(&self) -> Option<crate::LogLevel> {
        read_json(&self.text, self.peek.level)
    }

    pub(crate) fn peek(&self) -> Peek {
        self.peek
    }
}

impl Response {
    /// The same answer under the id that its receiver asked with.
    pub fn with_id(&self, id: &Id) -> Text {
        Text::spliced(&self.text, self.id_span.range(), id.as_json().as_bytes())
    }

    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// The length of the result or the error.
    pub fn outcome_length(&self) -> usize {
        self.outcome.range().len()
    }

    pub fn outcome(&self) -> Outcome<'_> {
        let text = std::str::from_utf8(&self.text[self.outcome.range()]).unwrap_or_default();
        if self.is_error { Outcome::Error(text) } else { Outcome::Result(text) }
    }
}

fn replace(text: &Bytes, span: Option<Span>, replacement: &[u8]) -> Text {
    match span {
        Some(span) => Text::spliced(text, span.range(), replacement),
        None => text.clone().into(),
    }
}

fn borrow_raw(text: &Bytes, span: Span) -> Option<&RawValue> {
    serde_json::from_slice(&text[span.range()]).ok()
}

fn read_id(text: &Bytes, span: Option<Span>) -> Option<Id> {
    Id::from_raw(borrow_raw(text, span?)?).ok()
}

fn read_string(text: &Bytes, span: Option<Span>) -> Option<String> {
    read_json(text, span)
}

fn read_json<T: serde::de::DeserializeOwned>(text: &Bytes, span: Option<Span>) -> Option<T> {
    serde_json::from_slice(&text[span?.range()]).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::code;

    fn parse(text: &str) -> Result<Message, MessageError> {
        Message::parse(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn request(text: &str) -> Request {
        match parse(text) {
            Ok(Message::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_kept_request_lets_go_of_the_buffer_that_it_was_read_into() {
        let buffer = Bytes::from(
            [br#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1}}"#.as_slice(), &[0; 999]].concat(),
        );
        let Ok(Message::Request(request)) = Message::parse(buffer.slice(..buffer.len() - 999)) else {
            panic!()
        };
        assert!(!buffer.is_unique());
        let kept = request.into_kept();
        assert!(buffer.is_unique());
        assert_eq!(kept.params_text(), Some(r#"{"a":1}"#));
    }

    #[test]
    fn only_the_id_and_the_token_change_on_the_way_up() {
        let text = r#"{ "params" : {"_meta":{"progressToken":"tok","x":null},"a":1,"a":2,"n":1.0e400},"id":"c","jsonrpc":"2.0","method":"tools/call","extra":[ ]}"#;
        let call = request(text);
        let expected = text.replace("\"tok\"", "42").replace("\"c\"", "42");
        assert_eq!(call.toward_upstream(42), expected.as_bytes());
        assert_eq!(call.wants_progress().unwrap(), &b"\"tok\""[..]);
    }

    #[test]
    fn a_tool_is_called_by_its_servers_name_for_it() {
        let text = r#"{"jsonrpc":"2.0","method":"tools/call","params":{"_meta":{"progressToken":1},"arguments":{"name":"git_status"},"name":"git_status"},"id":2}"#;
        let mut call = request(text);
        assert_eq!(call.name().as_deref(), Some("git_status"));
        call.call_by("st\"atus");
        let expected = text
            .replace(r#""name":"git_status"},"id":2"#, r#""name":"st\"atus"},"id":77"#)
            .replace(r#""progressToken":1"#, r#""progressToken":77"#);
        assert_eq!(call.toward_upstream(77), expected.as_bytes());
        let mut completion = request(
            r#"{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"a_p"},"argument":{"name":"x","value":""}}}"#,
        );
        completion.call_by("p");
        let up = completion.toward_upstream(1);
        assert!(std::str::from_utf8(&up).unwrap().contains(r#""ref":{"type":"ref/prompt","name":"p"}"#));
    }

    #[test]
    fn an_answer_returns_under_the_callers_id() {
        let text = r#"{"jsonrpc":"2.0","result":{"id":7,"big":123456789012345678901234567890},"id":7}"#;
        let Ok(Message::Response(response)) = parse(text) else { panic!() };
        let back = response.with_id(&request(r#"{"jsonrpc":"2.0","id":"x","method":"m"}"#).id).into_bytes();
        assert_eq!(
            back,
            text.replace(r#""id":7}"#, r#""id":"x"}"#).replace(r#"{"id":"x","#, r#"{"id":7,"#).as_bytes()
        );
    }

    #[test]
    fn line_breaks_between_tokens_become_spaces() {
        let call = request("{\"jsonrpc\":\"2.0\",\r\n\"id\":1,\n\"method\":\"a\\nb\"}");
        assert_eq!(call.toward_upstream(1), &b"{\"jsonrpc\":\"2.0\",  \"id\":1, \"method\":\"a\\nb\"}"[..]);
    }

    #[test]
    fn what_is_not_a_message_is_refused_with_its_id_where_there_is_one() {
        let cases: &[(&str, i32, Option<&str>)] = &[
            ("", code::PARSE_ERROR, None),
            ("{", code::PARSE_ERROR, None),
            ("nonsense", code::PARSE_ERROR, None),
            ("42", code::INVALID_REQUEST, None),
            ("{}", code::INVALID_REQUEST, None),
            (r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, code::INVALID_REQUEST, None),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, code::INVALID_REQUEST, None),
            (r#"{"jsonrpc":"1.0","id":5,"method":"x"}"#, code::INVALID_REQUEST, Some("5")),
            (r#"{"id":5,"method":"x"}"#, code::INVALID_REQUEST, Some("5")),
            (r#"{"jsonrpc":"2.0","id":5}"#, code::INVALID_REQUEST, Some("5")),
            (r#"{"jsonrpc":"2.0","id":5,"method":7}"#, code::INVALID_REQUEST, Some("5")),
            (r#"{"jsonrpc":"2.0","id":5,"method":null,"result":1}"#, code::INVALID_REQUEST, Some("5")),
            ("{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"a\nb\"}", code::PARSE_ERROR, None),
            (r#"["2.0",5,"ping"]"#, code::INVALID_REQUEST, None),
            (r#""text""#, code::INVALID_REQUEST, None),
            (r#"{"jsonrpc":"2.0","id":5,"result":1,"error":{}}"#, code::INVALID_REQUEST, Some("5")),
            (r#"{"jsonrpc":"2.0","id":5,"method":"x","result":1}"#, code::INVALID_REQUEST, Some("5")),
            (r#"{"jsonrpc":"2.0","id":5,"method":"x","\u006dethod":"y"}"#, code::INVALID_REQUEST, Some("5")),
            (r#"{"jsonrpc":"2.0","id":5,"id":6,"method":"x"}"#, code::INVALID_REQUEST, None),
            (
                r#"{"jsonrpc":"2.0","id":5,"method":"x","params":{"_meta":{},"_meta":{}}}"#,
                code::INVALID_REQUEST,
                Some("5"),
            ),
        ];
        for (text, code, id) in cases {
            let error = parse(text).expect_err(text);
            assert_eq!(error.code, *code, "{text}: {error}");
            assert_eq!(error.id.as_ref().map(Id::as_json), *id, "{text}: {error}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let deep =
            |n| format!(r#"{{"jsonrpc":"2.0","method":"x","params":{}{}}}"#, "[".repeat(n), "]".repeat(n));
        assert!(parse(&deep(MAX_DEPTH - 1)).is_ok());
        assert_eq!(parse(&deep(MAX_DEPTH)).unwrap_err().code, code::INVALID_REQUEST);
        assert_eq!(parse(&deep(1_000_000)).unwrap_err().code, code::INVALID_REQUEST);
    }

    #[test]
    fn repeated_keys_in_tool_arguments_pass() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":1,"a":2}}}"#;
        assert_eq!(request(text).toward_upstream(1), text.as_bytes());
    }

    proptest! {
        /// For any arguments, replacing the ids and putting them back restores the text.
        #[test]
        fn passing_through_changes_nothing_else(arguments in ".*", token in 0_u64.., id in ".*") {
            let arguments = serde_json::to_string(&arguments).unwrap();
            let id = serde_json::to_string(&id).unwrap();
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"x":{arguments},"_meta":{{"progressToken":{token}}}}}}}"#
            );
            let call = request(&text);
            let up = call.toward_upstream(9);
            let Ok(Message::Request(arrived)) = Message::parse(up) else { panic!() };
            prop_assert_eq!(arrived.wants_progress().unwrap(), &b"9"[..]);
            let with_token = Text::spliced(&arrived.text, arrived.peek.wants_progress.unwrap().range(), token.to_string().as_bytes());
            let Ok(Message::Request(arrived)) = Message::parse(with_token.into_bytes()) else { panic!() };
            prop_assert_eq!(arrived.with_id(&call.id).into_bytes(), text.as_bytes());
        }

        /// No bytes make the parser panic.
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Message::parse(bytes.into());
        }
    }
}
