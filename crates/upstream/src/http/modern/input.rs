//! Translates the questions of a server into requests of the caller's era, and the answers back.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use wire::{ClientCapabilities, ErrorReply, Id, Message, Outcome, method};

use super::members::Members;
use crate::http::error_replies;
use crate::http::outgoing_line::Line;

/// Most questions at once.
const MAX_QUESTIONS: usize = 32;
/// The methods that a server may ask for.
const QUESTIONS: [&str; 3] = [method::ELICITATION, method::SAMPLING, method::ROOTS_LIST];

/// A result of type `input_required`: the server's questions.
pub(super) struct InputRequired<'a> {
    pub(super) questions: Members<'a>,
    /// A string as JSON text, to be returned unchanged.
    pub(super) state: Option<&'a str>,
}

impl<'a> InputRequired<'a> {
    pub(super) fn read(result: &'a str) -> Result<Self, ErrorReply> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields<'a> {
            #[serde(borrow, default)]
            input_requests: Option<Members<'a>>,
            #[serde(borrow, default)]
            request_state: Option<&'a RawValue>,
        }
        let fields: Fields<'_> =
            wire::read_object(result).map_err(|error| error_replies::cannot_be_asked(&error.to_string()))?;
        let questions = fields.input_requests.unwrap_or_default();
        let state = fields.request_state.map(RawValue::get);
        if state.is_some_and(|state| !state.starts_with('"')) {
            return Err(error_replies::cannot_be_asked("its state is not a string"));
        }
        if questions.len() == 0 && state.is_none() {
            return Err(error_replies::cannot_be_asked("it asks no question"));
        }
        if questions.len() > MAX_QUESTIONS {
            return Err(error_replies::cannot_be_asked(&format!(
                "more than {MAX_QUESTIONS} questions at once"
            )));
        }
        Ok(Self { questions, state })
    }
}

/// A question that was sent to the caller.
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) text: String,
    pub(super) id: Id,
}

/// Translates a question into a request of the caller's era, under this id.
pub(super) fn ask(question: &str, id: Id, user: ClientCapabilities) -> Result<Asked, ErrorReply> {
    #[derive(Deserialize)]
    struct Fields<'a> {
        method: String,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    let fields: Fields<'_> =
        wire::read_object(question).map_err(|error| error_replies::cannot_be_asked(&error.to_string()))?;
    let method = fields.method;
    if !QUESTIONS.contains(&method.as_str()) {
        return Err(error_replies::cannot_be_asked(&format!("{method} is not a question")));
    }
    if !user.allow(&method) {
        return Err(error_replies::cannot_be_asked(&format!("the client does not support {method}")));
    }
    let params = match fields.params {
        Some(params) if method == method::ELICITATION => {
            format!(",\"params\":{}", with_elicitation_id(params.get(), &id))
        }
        Some(params) => format!(",\"params\":{}", params.get()),
        None => String::new(),
    };
    let text = format!(r#"{{"jsonrpc":"2.0","id":{},"method":"{method}"{params}}}"#, id.as_json());
    Ok(Asked { method, text, id })
}

/// The caller's answer, as JSON text.
pub(super) fn answer_of(line: &Line, method: &str) -> Result<String, ErrorReply> {
    #[derive(Deserialize)]
    struct Error {
        #[serde(default)]
        message: String,
    }
    let Ok(Message::Response(response)) = Message::parse(line.text.clone()) else {
        return Err(error_replies::input_refused(method, "it is not a response"));
    };
    match response.outcome() {
        Outcome::Result(result) => Ok(result.to_owned()),
        Outcome::Error(error) => {
            let message = serde_json::from_str::<Error>(error).map(|error| error.message);
            Err(error_replies::input_refused(method, message.as_deref().unwrap_or("the answer is an error")))
        }
    }
}

/// Adds the id that the caller's era requires for an elicitation by URL, and the server's no longer has.
fn with_elicitation_id<'a>(params: &'a str, id: &Id) -> Cow<'a, str> {
    match Members::read(params) {
        Some(mut members)
            if members.get("mode") == Some(r#""url""#) && members.get("elicitationId").is_none() =>
        {
            members.set("elicitationId", id.as_json().to_owned());
            members.to_string().into()
        }
        _ => params.into(),
    }
}
