//! `read_file`: returns the text of a file or some of its lines, or an image.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::contents::{MAX_TEXT_BYTES, hash_of, not_text, read_all};
use super::listing::size_in_words;
use super::long_file::read_long_file;
use super::parameters::{Field, Kind};
use super::text_answer::{LineRange, LinesRead, TextData, whole_lines};
use super::tool::{Effect, Pace, Tool};
use crate::text::{FileKind, FileText, Lines};

/// Bytes of a text that are shown by default.
const WINDOW_BYTES: usize = 128 * 1024;
/// Bytes that are shown if the client asks for the whole file or for certain lines.
const MAX_SHOWN_BYTES: usize = 1024 * 1024;
/// The largest image that is shown.
const MAX_IMAGE_BYTES: u64 = 4 * 1024 * 1024;

pub(super) const TOOL: Tool = Tool {
    name: "read_file",
    title: "Read a file",
    about: "Reads a text file, all of it or a range of lines (counted from 1, the last one included). Also returns the number of lines, the encoding, and a hash for `expected_hash` in later edits. Images are returned as images; other binary files are described, not shown. Use it before you edit a file; to find a place in many files, use grep_search.",
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
        Field::switch("line_numbers", "Put a line number before each line."),
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
        Field::optional("mime_type", Kind::Text, "MIME type of an image."),
    ],
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let workspace = &call.context.workspace;
    let path = workspace.path(arguments.text("path"))?;
    let mut found = workspace.open_file(&path)?;
    let size = u64::try_from(found.stat.st_size).unwrap_or(0);
    let range = LineRange::of(arguments)?;
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
        (FileKind::Image(mime), _) => image(&shown, mime, &bytes)?,
        (FileKind::Text, Ok(text)) => text_answer(&shown, &text, &bytes, range, arguments),
        (kind, Ok(_) | Err(_)) => return Err(not_text(&shown, kind, size)),
    };
    call.did("read", &path, bytes.len() as u64);
    Ok(answer)
}

fn text_answer(path: &str, text: &FileText, bytes: &[u8], range: LineRange, arguments: &Arguments) -> Answer {
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

fn numbered(text: &str, start: usize) -> String {
    let mut shown = String::with_capacity(text.len() * 2);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let _ = write!(shown, "{:>6}\t{line}", start + index);
    }
    shown
}

fn image(path: &str, mime: &'static str, bytes: &[u8]) -> Result<Answer, ToolError> {
    if bytes.len() as u64 > MAX_IMAGE_BYTES {
        return Err(not_text(path, FileKind::Image(mime), bytes.len() as u64));
    }
    let data = json!({ "path": path, "mime_type": mime, "size": bytes.len(), "hash": hash_of(bytes) });
    let mut answer = Answer::new(format!("{path}: {mime}, {}", size_in_words(bytes.len() as u64)), &data);
    answer.more.push(json!({ "type": "image", "data": STANDARD.encode(bytes), "mimeType": mime }));
    Ok(answer)
}
