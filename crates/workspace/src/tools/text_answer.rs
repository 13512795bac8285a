//! Lines of a text as an answer, with what the client should know about the text.

use serde::Serialize;
use serde_json::value::RawValue;

use super::answer::{Answer, ToolError, as_json};
use super::arguments::Arguments;

/// The lines that the client asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineRange {
    pub(super) start: usize,
    /// `None`: to the end.
    pub(super) end: Option<usize>,
    /// The client named no lines.
    pub(super) is_whole: bool,
}

impl LineRange {
    pub(super) fn of(arguments: &Arguments) -> Result<Self, ToolError> {
        let number =
            |name: &str| arguments.given_number(name).map(|line| usize::try_from(line).unwrap_or(usize::MAX));
        let (start, end) = (number("start_line_one_indexed"), number("end_line_one_indexed_inclusive"));
        if let (Some(start), Some(end)) = (start, end)
            && start > end
        {
            return Err(ToolError::new(
                "bad_arguments",
                format!("lines {start} to {end}: the first is after the last"),
            ));
        }
        Ok(Self { start: start.unwrap_or(1), end, is_whole: start.is_none() && end.is_none() })
    }
}

/// The structured part of an answer with text.
#[derive(Debug, Default, Serialize)]
pub(super) struct TextData<'a> {
    pub(super) path: &'a str,
    /// The text, as JSON.
    pub(super) content: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) total_lines: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lines_read: Option<LinesRead>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) omitted: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) encoding: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line_ending: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hash: Option<String>,
    pub(super) size: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct LinesRead {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl TextData<'_> {
    /// Builds the answer from the text and notes about it.
    pub(super) fn into_answer(mut self, content: &str, notes: &[String]) -> Answer {
        self.content = as_json(content);
        if !notes.is_empty() {
            let notes = notes.join("; ");
            let separator = if content.is_empty() || content.ends_with('\n') { "" } else { "\n" };
            let text = format!("{content}{separator}[{notes}]");
            self.omitted = Some(notes);
            return Answer::new(text, &self);
        }
        if content.is_empty() {
            return Answer::new("[the file is empty]", &self);
        }
        let data = as_json(&self);
        Answer { text: self.content, data, more: Vec::new(), is_error: false }
    }
}

/// As many whole lines as fit; if not even the first does, its beginning.
pub(super) fn whole_lines(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let limit = (0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let end = text[..limit].rfind('\n').map_or(limit, |at| at + 1);
    &text[..end]
}
