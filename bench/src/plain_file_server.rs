//! A stdio MCP server with `read_file`, `write_file` and `list_dir` that gives the answers of the built-in one with
//! plain `std::fs`: what the same work costs without a resolver. It trusts every path that it is given.

use std::fs;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use workspace::edit::Landing;
use workspace::text::{FileKind, FileText, Lines};

use crate::failure::{Failure, WhileDoing};
use crate::mcp_messages::PROTOCOL_VERSION;

const TOOLS: [&str; 3] = ["read_file", "write_file", "list_dir"];

#[derive(Deserialize)]
struct Incoming<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: String,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ToolCall {
    name: String,
    #[serde(default)]
    arguments: Value,
}

/// Until the client closes its end.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let mut input = std::io::stdin().lock();
    let mut output = std::io::stdout().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let message: Incoming<'_> = serde_json::from_slice(&line)?;
        let Some(id) = message.id else { continue };
        let result = answer(root, &message)?;
        let mut answered = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#).into_bytes();
        serde_json::to_writer(&mut answered, &result)?;
        answered.extend_from_slice(b"}\n");
        output.write_all(&answered)?;
        output.flush()?;
    }
}

fn answer(root: &Path, message: &Incoming<'_>) -> Result<Value, Failure> {
    match message.method.as_str() {
        "initialize" => Ok(json!({
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "plain-files", "version": env!("CARGO_PKG_VERSION") },
        })),
        "tools/list" => {
            let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
            Ok(json!({ "tools": TOOLS.map(tool) }))
        }
        "tools/call" => {
            let call: ToolCall = serde_json::from_str(message.params.map_or("{}", RawValue::get))?;
            let (text, data) = call_tool(root, &call)?;
            Ok(json!({ "content": [{ "type": "text", "text": text }], "structuredContent": data }))
        }
        _ => Ok(json!({})),
    }
}

fn call_tool(root: &Path, call: &ToolCall) -> Result<(String, Value), Failure> {
    let path = call.arguments["path"].as_str().unwrap_or(".");
    match call.name.as_str() {
        "read_file" => read_file(path, &root.join(path)),
        "write_file" => {
            write_file(path, &root.join(path), call.arguments["content"].as_str().unwrap_or_default())
        }
        "list_dir" => list_dir(path, &root.join(path)),
        other => Err(Failure::new(format!("there is no tool {other:?}"))),
    }
}

fn decoded(bytes: &[u8]) -> Result<FileText, Failure> {
    FileText::decode(bytes).while_doing("decoding")
}

fn read_file(shown: &str, path: &Path) -> Result<(String, Value), Failure> {
    let bytes = fs::read(path).while_doing("reading")?;
    if FileKind::of(&bytes) != FileKind::Text {
        return Err(Failure::new("not a text"));
    }
    let text = decoded(&bytes)?;
    let lines = Lines::of(&text.text);
    let slice = lines.slice(1, usize::MAX);
    let (start, end) = slice.range.unwrap_or((1, 0));
    let mut data = json!({
        "path": shown,
        "total_lines": lines.total(),
        "encoding": text.style.encoding.name(),
        "line_ending": text.style.line_ending.name(),
        "hash": hash_of(&bytes),
        "size": bytes.len(),
    });
    data["lines_read"] = json!({ "start": start, "end": end });
    let content = slice.text.to_owned();
    data["content"] = content.clone().into();
    Ok((content, data))
}

fn write_file(shown: &str, path: &Path, content: &str) -> Result<(String, Value), Failure> {
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
    Ok((format!("{head}\n{}", landing.diff), data))
}

/// Whole or not at all, with the permissions of what was there.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let beside: PathBuf = path.with_extension("plain-tmp");
    fs::write(&beside, bytes).while_doing("writing")?;
    let permissions = fs::metadata(path).while_doing("looking")?.permissions();
    fs::set_permissions(&beside, permissions).while_doing("setting permissions")?;
    fs::rename(&beside, path).while_doing("renaming")
}

fn list_dir(shown: &str, path: &Path) -> Result<(String, Value), Failure> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).while_doing("listing")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            found.push((name, entry.metadata()?));
        }
    }
    found.sort_by(|(one, one_data), (other, other_data)| {
        other_data.is_dir().cmp(&one_data.is_dir()).then_with(|| one.cmp(other))
    });
    let mut entries = Vec::new();
    let mut lines = Vec::new();
    for (name, metadata) in &found {
        if metadata.is_dir() {
            entries.push(json!({ "name": name, "type": "directory" }));
            lines.push(format!("{name}/"));
        } else {
            entries.push(json!({ "name": name, "type": "file", "size": metadata.len() }));
            lines.push(format!("{name} ({})", size_in_words(metadata.len())));
        }
    }
    let data = json!({ "path": shown, "entries": entries, "total_entries": found.len(), "truncated": false });
    Ok((lines.join("\n"), data))
}

fn size_in_words(bytes: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "shown to one digit")]
    let kibibytes = bytes as f64 / 1024.0;
    if bytes < 1024 { format!("{bytes} bytes") } else { format!("{kibibytes:.1} KiB") }
}

fn hash_of(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
