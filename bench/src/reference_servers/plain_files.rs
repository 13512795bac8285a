//! A stdio MCP server with `read_file`, `write_file` and `list_dir` that gives the built-in server's answers using
//! plain `std::fs`: the cost of the same work without a resolver. It trusts every path.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use wire::{LineBuffer, Message, Request};
use workspace::{FileKind, FileText, Landing, Lines, hash_of, size_in_words};

use crate::error::{Error, WhileDoing};
use crate::mcp_client::messages::PROTOCOL_VERSION;

/// Bytes per read.
const PIECE: usize = 64 * 1024;
const TOOLS: [&str; 3] = ["read_file", "write_file", "list_dir"];

#[derive(Deserialize)]
struct ToolCall {
    name: String,
    #[serde(default)]
    arguments: Value,
}

/// Serves until the client closes its end. Reads messages in the same way as the built-in server.
pub(crate) fn run(root: &Path) -> Result<(), Error> {
    let mut input = std::io::stdin().lock();
    let mut output = std::io::stdout().lock();
    let mut lines = LineBuffer::new(wire::MAX_MESSAGE_BYTES);
    let mut piece = vec![0; PIECE];
    loop {
        let length = input.read(&mut piece)?;
        if length == 0 {
            return Ok(());
        }
        lines.space().extend_from_slice(&piece[..length]);
        while let Some(line) = lines.next_line() {
            let message =
                Message::parse(line.while_doing("reading a line")?).while_doing("reading a message")?;
            let Message::Request(request) = message else { continue };
            let mut answered =
                format!(r#"{{"jsonrpc":"2.0","id":{},"result":"#, request.id.as_json()).into_bytes();
            answer(root, &request, &mut answered)?;
            answered.extend_from_slice(b"}\n");
            output.write_all(&answered)?;
            output.flush()?;
        }
    }
}

fn answer(root: &Path, request: &Request, answered: &mut Vec<u8>) -> Result<(), Error> {
    match request.method.as_str() {
        "initialize" => {
            let result = json!({
                "protocolVersion": PROTOCOL_VERSION,
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "plain-files", "version": env!("CARGO_PKG_VERSION") },
            });
            serde_json::to_writer(answered, &result)?;
        }
        "tools/list" => {
            let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
            serde_json::to_writer(answered, &json!({ "tools": TOOLS.map(tool) }))?;
        }
        "tools/call" => {
            let call: ToolCall = serde_json::from_str(request.params_text().unwrap_or("{}"))?;
            let (text, data) = call_tool(root, &call)?;
            let content = [TextContent { kind: "text", text }];
            serde_json::to_writer(answered, &ToolResult { content, data })?;
        }
        _ => answered.extend_from_slice(b"{}"),
    }
    Ok(())
}

/// The text and the structured content of a tool result, each already serialized.
type TextAndData = (Box<RawValue>, Box<RawValue>);

#[derive(Serialize)]
struct ToolResult {
    content: [TextContent; 1],
    #[serde(rename = "structuredContent")]
    data: Box<RawValue>,
}

#[derive(Serialize)]
struct TextContent {
    #[serde(rename = "type")]
    kind: &'static str,
    text: Box<RawValue>,
}

fn call_tool(root: &Path, call: &ToolCall) -> Result<TextAndData, Error> {
    let path = call.arguments["path"].as_str().unwrap_or(".");
    match call.name.as_str() {
        "read_file" => read_file(path, &root.join(path)),
        "write_file" => {
            write_file(path, &root.join(path), call.arguments["content"].as_str().unwrap_or_default())
        }
        "list_dir" => list_dir(path, &root.join(path)),
        other => Err(Error::new(format!("there is no tool {other:?}"))),
    }
}

fn decoded(bytes: &[u8]) -> Result<FileText, Error> {
    FileText::decode(bytes).while_doing("decoding")
}

fn read_file(shown: &str, path: &Path) -> Result<TextAndData, Error> {
    #[derive(Serialize)]
    struct TextRead<'a> {
        path: &'a str,
        content: &'a RawValue,
        total_lines: usize,
        lines_read: LinesRead,
        encoding: &'static str,
        line_ending: &'static str,
        hash: String,
        size: usize,
    }
    #[derive(Serialize)]
    struct LinesRead {
        start: usize,
        end: usize,
    }
    let bytes = fs::read(path).while_doing("reading")?;
    if FileKind::of(&bytes) != FileKind::Text {
        return Err(Error::new("not a text"));
    }
    let text = decoded(&bytes)?;
    let lines = Lines::of(&text.text);
    let slice = lines.slice(1, usize::MAX);
    let (start, end) = slice.range.unwrap_or((1, 0));
    let content = to_raw_value(slice.text)?;
    let data = TextRead {
        path: shown,
        content: &content,
        total_lines: lines.total(),
        lines_read: LinesRead { start, end },
        encoding: text.style.encoding.name(),
        line_ending: text.style.line_ending.name(),
        hash: hash_of(&bytes),
        size: bytes.len(),
    };
    let data = to_raw_value(&data)?;
    Ok((content, data))
}

fn write_file(shown: &str, path: &Path, content: &str) -> Result<TextAndData, Error> {
    let before = fs::read(path).while_doing("reading")?;
    let old = decoded(&before)?;
    let text = old.style.adapt(content);
    let bytes = old.style.encode(&text).while_doing("encoding")?;
    let landing = Landing::between(&old.text, &text, shown);
    replace(path, &bytes)?;
    let mut data = json!({
        "path": shown,
        "created": false,
        "edited": true,
        "bytes_written": bytes.len(),
        "lines_added": landing.added,
        "lines_removed": landing.removed,
        "diff": landing.diff,
        "hash": hash_of(&bytes),
    });
    let mut place = String::new();
    if let Some((start, end)) = landing.changed {
        data["changed_range"] = json!({ "start": start, "end": end });
        place = if start == end { format!(", line {start}") } else { format!(", lines {start} to {end}") };
    }
    let head = format!("edited {shown}{place} (+{} -{})", landing.added, landing.removed);
    Ok((to_raw_value(&format!("{head}\n{}", landing.diff))?, to_raw_value(&data)?))
}

/// Writes the file atomically and keeps its permissions.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let beside: PathBuf = path.with_extension("plain-tmp");
    fs::write(&beside, bytes).while_doing("writing")?;
    let permissions = fs::metadata(path).while_doing("looking")?.permissions();
    fs::set_permissions(&beside, permissions).while_doing("setting permissions")?;
    fs::rename(&beside, path).while_doing("renaming")
}

fn list_dir(shown: &str, path: &Path) -> Result<TextAndData, Error> {
    #[derive(Serialize)]
    struct Entry {
        name: String,
        #[serde(rename = "type")]
        kind: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    }
    #[derive(Serialize)]
    struct Listing<'a> {
        path: &'a str,
        entries: Vec<Entry>,
        total_entries: usize,
        truncated: bool,
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).while_doing("listing")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            let metadata = entry.metadata()?;
            let kind = if metadata.is_dir() { "directory" } else { "file" };
            entries.push(Entry { name, kind, size: metadata.is_file().then_some(metadata.len()) });
        }
    }
    entries.sort_by(|one, other| one.kind.cmp(other.kind).then_with(|| one.name.cmp(&other.name)));
    let mut text = String::new();
    for entry in &entries {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&entry.name);
        match entry.size {
            None => text.push('/'),
            Some(size) => {
                let _ = write!(text, " ({})", size_in_words(size));
            }
        }
    }
    let total_entries = entries.len();
    let data = Listing { path: shown, entries, total_entries, truncated: false };
    Ok((to_raw_value(&text)?, to_raw_value(&data)?))
}
