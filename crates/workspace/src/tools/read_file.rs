//! `read_file`: the text of a file or some lines of it, or a picture.

use std::fmt::Write as _;
use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::answer::as_json;
use super::changes::{MAX_TEXT_BYTES, hash_of};
use super::listing::size_in_words;
use super::long_file::read_long_file;
use super::parameters::{Field, Kind};
use super::{Answer, Arguments, Call, Effect, Failure, Pace, Tool};
use crate::files::{FoundFile, PathError, SessionPath};
use crate::text::{FileKind, FileText, Lines};

/// What is shown of a text at once, if nobody asked for all of it.
const WINDOW_BYTES: usize = 128 * 1024;
/// And if somebody did.
const MAX_SHOWN_BYTES: usize = 1024 * 1024;
/// The longest picture that is shown.
const MAX_IMAGE_BYTES: u64 = 4 * 1024 * 1024;

pub(super) const TOOL: Tool = Tool {
    name: "read_file",
    title: "Read a file",
    about: "Reads a text file, all of it or a range of lines (counted from 1, the last one included). Says how many lines there are, the encoding, and a hash for `expected_hash` of later edits. Pictures are returned as such; other binary files are named, not shown.",
    effect: Effect::Reads,
    pace: Pace::Brief,
    takes: &[
        Field::required("path", Kind::Text, "The file to read, relative to the workspace.")
            .or(&["target_file", "file_path"]),
        Field::optional(
            "start_line_one_indexed",
            Kind::Number { least: 1, most: u64::MAX },
            "The first line to read.",
        )
        .or(&["start_line"]),
        Field::optional(
            "end_line_one_indexed_inclusive",
            Kind::Number { least: 1, most: u64::MAX },
            "The last line to read.",
        )
        .or(&["end_line"]),
        Field::switch(
            "should_read_entire_file",
            "Read all of a long file, up to 1 MiB; otherwise 128 KiB are shown.",
        ),
        Field::switch("line_numbers", "Put its number before each line."),
    ],
    gives: &[
        Field::optional("path", Kind::Text, "The file."),
        Field::optional("content", Kind::Text, "The text."),
        Field::optional("total_lines", Kind::COUNT, "Lines in the whole file."),
        Field::optional("lines_read", Kind::Object, "`start` and `end` of what is shown."),
        Field::optional("omitted", Kind::Text, "What is not shown, in words."),
        Field::optional("encoding", Kind::Text, "UTF-8, UTF-16LE, UTF-16BE or windows-1252."),
        Field::optional("line_ending", Kind::Text, "LF, CRLF, mixed or none."),
        Field::optional("hash", Kind::Text, "SHA-256 of the file, for `expected_hash`."),
        Field::optional("size", Kind::COUNT, "Bytes in the file."),
        Field::optional("mime_type", Kind::Text, "Of a picture."),
    ],
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, Failure> {
    let workspace = &call.host.workspace;
    let path = workspace.path(arguments.text("path"))?;
    let mut found = workspace.open_file(&path)?;
    let size = u64::try_from(found.stat.st_size).unwrap_or(0);
    let range = Range::of(arguments)?;
    if size > MAX_TEXT_BYTES {
        let (answer, bytes_shown) =
            read_long_file(&path, &workspace.show(&path), &mut found, range, MAX_SHOWN_BYTES)?;
        call.did("read", &path, bytes_shown);
        return Ok(answer);
    }
    let bytes = read_all(&path, &mut found)?;
    let shown = workspace.show(&path);
    let kind = FileKind::of(&bytes);
    let answer = match (kind, FileText::decode(&bytes)) {
        (FileKind::Image(mime), _) => picture(&shown, mime, &bytes)?,
        (FileKind::Text, Ok(text)) => text_answer(&shown, &text, &bytes, range, arguments),
        (kind, Ok(_) | Err(_)) => return Err(not_text(&shown, kind, size)),
    };
    call.did("read", &path, bytes.len() as u64);
    Ok(answer)
}

/// The lines that are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) start: usize,
    /// `None`: to the end.
    pub(super) end: Option<usize>,
    /// Nobody named lines.
    pub(super) is_whole: bool,
}

impl Range {
    fn of(arguments: &Arguments) -> Result<Self, Failure> {
        let number =
            |name: &str| arguments.given_number(name).map(|line| usize::try_from(line).unwrap_or(usize::MAX));
        let (start, end) = (number("start_line_one_indexed"), number("end_line_one_indexed_inclusive"));
        if let (Some(start), Some(end)) = (start, end)
            && start > end
        {
            return Err(Failure::new(
                "bad_arguments",
                format!("lines {start} to {end}: the first is after the last"),
            ));
        }
        Ok(Self { start: start.unwrap_or(1), end, is_whole: start.is_none() && end.is_none() })
    }
}

pub(super) fn read_all(path: &SessionPath, found: &mut FoundFile) -> Result<Vec<u8>, PathError> {
    let size = usize::try_from(found.stat.st_size).unwrap_or(0);
    let mut bytes = Vec::with_capacity(size.min(1 << 24) + 1);
    // A file may grow while it is read.
    let limit = MAX_TEXT_BYTES + 1;
    (&mut found.file)
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| PathError::io(path.written(), error))?;
    if bytes.len() as u64 == limit {
        return Err(PathError::TooLarge {
            path: path.written().to_owned(),
            size: limit,
            limit: MAX_TEXT_BYTES,
        });
    }
    Ok(bytes)
}

fn text_answer(path: &str, text: &FileText, bytes: &[u8], range: Range, arguments: &Arguments) -> Answer {
    let lines = Lines::of(&text.text);
    let slice = lines.slice(range.start, range.end.unwrap_or(usize::MAX));
    let window = if arguments.flag("should_read_entire_file") || !range.is_whole {
        MAX_SHOWN_BYTES
    } else {
        WINDOW_BYTES
    };
    let content = whole_lines(slice.text, window);
    let (start, mut end) = slice.range.unwrap_or((range.start, 0));
    if content.len() < slice.text.len() {
        end = start + Lines::of(content).total().max(1) - 1;
    }
    let total = lines.total();
    let mut notes = Vec::new();
    if slice.range.is_none() && total > 0 {
        notes.push(format!("there are only {total} lines"));
    }
    if start > 1 && slice.range.is_some() {
        notes.push(format!("lines 1 to {} are not shown", start - 1));
    }
    if slice.range.is_some() && end < total {
        notes.push(format!("lines {} to {total} are not shown", end + 1));
    }
    if content.len() < slice.text.len() && Lines::of(content).total() <= 1 && !content.ends_with('\n') {
        notes.push("the line is longer than can be shown".to_owned());
    }
    let numbered = arguments.flag("line_numbers").then(|| numbered(content, start));
    let data = TextData {
        path,
        total_lines: Some(total),
        lines_read: slice.range.map(|_| LinesRead { start, end }),
        encoding: Some(text.style.encoding.name()),
        line_ending: Some(text.style.line_ending.name()),
        hash: Some(hash_of(bytes)),
        size: bytes.len() as u64,
        ..TextData::default()
    };
    data.into_answer(numbered.as_deref().unwrap_or(content), &notes)
}

/// What is told about a text.
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
    /// The text, with what is to be known about it.
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

/// As many whole lines as fit; of a first line that does not, its beginning.
pub(super) fn whole_lines(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let limit = (0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let end = text[..limit].rfind('\n').map_or(limit, |at| at + 1);
    &text[..end]
}

fn numbered(text: &str, start: usize) -> String {
    let mut shown = String::with_capacity(text.len() * 2);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let _ = write!(shown, "{:>6}\t{line}", start + index);
    }
    shown
}

fn picture(path: &str, mime: &'static str, bytes: &[u8]) -> Result<Answer, Failure> {
    if bytes.len() as u64 > MAX_IMAGE_BYTES {
        return Err(not_text(path, FileKind::Image(mime), bytes.len() as u64));
    }
    let data = json!({ "path": path, "mime_type": mime, "size": bytes.len(), "hash": hash_of(bytes) });
    let mut answer = Answer::new(format!("{path}: {mime}, {}", size_in_words(bytes.len() as u64)), &data);
    answer.more.push(json!({ "type": "image", "data": STANDARD.encode(bytes), "mimeType": mime }));
    Ok(answer)
}

/// The refusal of a file that has no text.
pub(super) fn not_text(path: &str, kind: FileKind, size: u64) -> Failure {
    let hint = match kind {
        FileKind::Pdf => "run_terminal_cmd can take the text out: `pdftotext FILE -`, if that is installed",
        FileKind::Archive(_) => "run_terminal_cmd can list it: `tar tf`, `unzip -l`",
        FileKind::Image(_) => "pictures are shown up to 4 MiB; run_terminal_cmd can make it smaller",
        _ => "run_terminal_cmd can look at it: `file`, `xxd | head`, `strings`",
    };
    let message = format!("`{path}` is {}, {}: it has no text", kind.describe(), size_in_words(size));
    Failure::new("binary", message).with_hint(hint).at(path)
}
