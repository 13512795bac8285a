//! What a tool returns: text for the model, the same as data for programs that ask for it, or an error with a hint.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::arguments::ArgumentError;
use super::tool::ResultForm;
use crate::files::PathError;

/// What a tool found or did.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Serialized, like `data`: a long text that is in both is escaped only once.
    pub(crate) text: Box<RawValue>,
    pub(crate) data: Box<RawValue>,
    /// Other content, such as an image.
    pub(crate) more: Vec<Value>,
    /// The tool worked, but its outcome is an error, such as a command that exits with code 1.
    pub(crate) is_error: bool,
}

impl Answer {
    pub(crate) fn new(text: impl AsRef<str>, data: &impl Serialize) -> Self {
        Self { text: as_json(text.as_ref()), data: as_json(data), more: Vec::new(), is_error: false }
    }

    /// The result of `tools/call`.
    pub(crate) fn to_result(&self, form: ResultForm) -> impl Serialize {
        let text = Content::Text { kind: "text", text: &self.text };
        ToolResult {
            content: std::iter::once(text).chain(self.more.iter().map(Content::Other)).collect(),
            is_error: self.is_error.then_some(true),
            structured_content: (form == ResultForm::TextAndData).then_some(&*self.data),
        }
    }
}

pub(super) fn as_json(value: &(impl Serialize + ?Sized)) -> Box<RawValue> {
    // Our own values always serialize.
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult<'a> {
    content: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_error: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text {
        #[serde(rename = "type")]
        kind: &'static str,
        text: &'a RawValue,
    },
    Other(&'a Value),
}

/// Why a tool did not do what was asked.
#[derive(Debug)]
pub(crate) struct ToolError {
    /// A stable code for programs.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) path: Option<String>,
}

impl ToolError {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, path: None }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(crate) fn at(self, path: impl Into<String>) -> Self {
        Self { path: Some(path.into()), ..self }
    }

    pub(crate) fn into_answer(self) -> Answer {
        let text = match &self.hint {
            Some(hint) => format!("Error: {}\nhint: {hint}", self.message),
            None => format!("Error: {}", self.message),
        };
        let mut data = json!({ "success": false, "error": self.message, "code": self.code });
        if let Some(hint) = &self.hint {
            data["hint"] = hint.as_str().into();
        }
        if let Some(path) = &self.path {
            data["path"] = path.as_str().into();
        }
        Answer { is_error: true, ..Answer::new(text, &data) }
    }
}

impl From<PathError> for ToolError {
    fn from(error: PathError) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
            hint: error.hint(),
            path: Some(error.path().to_owned()),
        }
    }
}

impl From<ArgumentError> for ToolError {
    fn from(error: ArgumentError) -> Self {
        Self::new("bad_arguments", error.to_string())
    }
}
