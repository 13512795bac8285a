//! Messages on standard input, parsed no further than needed: payloads stay raw JSON text.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A request, a notification or a response.
#[derive(Debug, Deserialize)]
pub(crate) struct Message<'line> {
    #[serde(borrow)]
    pub(crate) id: Option<&'line RawValue>,
    #[serde(borrow)]
    pub(crate) method: Option<Cow<'line, str>>,
    #[serde(borrow)]
    pub(crate) params: Option<&'line RawValue>,
    #[serde(borrow)]
    pub(crate) result: Option<&'line RawValue>,
    #[serde(borrow)]
    pub(crate) error: Option<&'line RawValue>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ToolCallParams<'line> {
    #[serde(borrow)]
    pub(crate) name: Cow<'line, str>,
    #[serde(borrow)]
    pub(crate) arguments: Option<&'line RawValue>,
    #[serde(borrow)]
    pub(crate) task: Option<&'line RawValue>,
    #[serde(borrow, rename = "_meta")]
    pub(crate) meta: Option<CallMeta<'line>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CallMeta<'line> {
    #[serde(borrow, rename = "progressToken")]
    pub(crate) progress_token: Option<&'line RawValue>,
}

/// An `echo` call as nearly every client writes it, parsed in a single pass over the line.
#[derive(Debug, Deserialize)]
struct EchoMessage<'line> {
    #[serde(borrow)]
    id: &'line RawValue,
    method: &'line str,
    #[serde(borrow)]
    params: EchoParams<'line>,
}

#[derive(Debug, Deserialize)]
struct EchoParams<'line> {
    name: &'line str,
    #[serde(borrow)]
    arguments: EchoArguments<'line>,
    #[serde(borrow)]
    task: Option<&'line RawValue>,
}

#[derive(Debug, Deserialize)]
struct EchoArguments<'line> {
    #[serde(borrow)]
    text: &'line RawValue,
}

/// The raw id and text of an `echo` call, or `None` if the line needs full parsing.
pub(crate) fn parse_echo_call(line: &[u8]) -> Option<(&str, &str)> {
    let message: EchoMessage<'_> = serde_json::from_slice(line).ok()?;
    let text = message.params.arguments.text.get();
    let is_plain_echo = message.method == "tools/call"
        && message.params.name == "echo"
        && message.params.task.is_none()
        && text.starts_with('"');
    is_plain_echo.then(|| (message.id.get(), text))
}
