//! What a tool gives back: text for the model, the same as data for programs, and failures that say what to do.

use serde_json::{Value, json};

use super::arguments::ArgumentError;
use crate::files::PathError;

/// What a tool found or did.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) data: Value,
    /// Other content, such as an image.
    pub(crate) more: Vec<Value>,
    /// The tool did its work, and the outcome is a failure all the same: a command that exits with an error.
    pub(crate) is_error: bool,
}

impl Answer {
    pub(crate) fn new(text: impl Into<String>, data: Value) -> Self {
        Self { text: text.into(), data, more: Vec::new(), is_error: false }
    }

    pub(crate) fn to_result(&self) -> Value {
        let mut content = vec![json!({ "type": "text", "text": self.text })];
        content.extend(self.more.iter().cloned());
        let mut result = json!({ "content": content, "structuredContent": self.data });
        if self.is_error {
            result["isError"] = true.into();
        }
        result
    }
}

/// Why a tool did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    /// For programs.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) path: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, path: None }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(crate) fn at(self, path: impl Into<String>) -> Self {
        Self { path: Some(path.into()), ..self }
    }

    pub(crate) fn to_result(&self) -> Value {
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
        json!({ "content": [{ "type": "text", "text": text }], "structuredContent": data, "isError": true })
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
            hint: error.hint(),
            path: Some(error.path().to_owned()),
        }
    }
}

impl From<ArgumentError> for Failure {
    fn from(error: ArgumentError) -> Self {
        Self::new("bad_arguments", error.to_string())
    }
}
