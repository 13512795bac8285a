//! The JSON-RPC messages that the load client sends, and the checks of the answers.
//!
//! Call ids have a fixed width, so a request is built once and only its digits are rewritten. The echoed
//! text (the nonce) is the session's tag and the call's id: an answer that reached another session or
//! another call cannot pass the check.

use std::sync::atomic::{AtomicU32, Ordering};

use memchr::memmem;
use serde_json::Value;

use crate::error::Error;

pub(crate) const PROTOCOL_VERSION: &str = "2025-11-25";
pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"ringfence-bench","version":"0.1.0"}}}"#;
/// The same for a client with the roots capability.
pub(crate) const INITIALIZE_WITH_ROOTS: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"ringfence-bench","version":"0.1.0"}}}"#;
pub(crate) const TOOLS_LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The id of the gateway's `roots/list` request, if these events contain one.
pub(crate) fn roots_question(events: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(events).ok()?;
    text.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line.strip_prefix("data:")?.trim()).ok()?;
        (message["method"] == "roots/list").then(|| message["id"].as_u64()).flatten()
    })
}

pub(crate) fn roots_answer(id: u64, root: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"roots":[{{"uri":"{root}"}}]}}}}"#)
}

/// Every call id lies between this and `u32::MAX`, so all have ten digits.
pub(crate) const FIRST_CALL_ID: u32 = 1_000_000_000;
/// The distance between the first ids of two lanes (connections of one session).
pub(crate) const IDS_PER_LANE: u32 = 10_000_000;

const ID_DIGITS: usize = 10;
const ID_PLACEHOLDER: &str = "##########";

/// Bytes the envelope of a `big` answer may add to the text itself (JSON, server-sent event fields).
const BIG_ENVELOPE_ALLOWANCE: usize = 1024;

/// A number no other session of this run has.
pub(crate) fn next_session_tag() -> u32 {
    static NEXT_SESSION_TAG: AtomicU32 = AtomicU32::new(0x5000_0000);
    NEXT_SESSION_TAG.fetch_add(1, Ordering::Relaxed)
}

fn nonce(session_tag: u32, call_id: u32) -> String {
    format!("{session_tag:08x}-{call_id}")
}

/// The body of an `echo` call with placeholders where its id goes.
pub(crate) fn echo_call_with_placeholders(session_tag: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{ID_PLACEHOLDER},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"{session_tag:08x}-{ID_PLACEHOLDER}"}}}}}}"#
    )
}

pub(crate) fn big_call(call_id: u32, bytes: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{call_id},"method":"tools/call","params":{{"name":"big","arguments":{{"bytes":{bytes}}}}}}}"#
    )
}

/// The body of a call of any tool with placeholders where its id goes.
pub(crate) fn tool_call_with_placeholders(tool: &str, arguments: &Value) -> String {
    let tool = Value::from(tool);
    format!(
        r#"{{"jsonrpc":"2.0","id":{ID_PLACEHOLDER},"method":"tools/call","params":{{"name":{tool},"arguments":{arguments}}}}}"#
    )
}

/// Fails unless `body` answers this call without an error and contains the expected text.
pub(crate) fn check_tool_answer(body: &[u8], expected: &str, call_id: u32) -> Result<(), Error> {
    let id_member = format!(r#""id":{call_id}"#);
    let holds = |part: &str| memmem::find(body, part.as_bytes()).is_some();
    if holds(&id_member) && holds(expected) && !holds(r#""isError":true"#) {
        return Ok(());
    }
    let shown: String = String::from_utf8_lossy(body).chars().take(600).collect();
    Err(Error::new(format!("wrong answer: call {call_id} expected {expected:?}, got {shown:?}")))
}

/// The result in a body (JSON or server-sent events).
pub(crate) fn result_of_answer(body: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(body).ok()?;
    text.lines().find_map(|line| {
        let mut message: Value =
            serde_json::from_str(line.strip_prefix("data:").unwrap_or(line).trim()).ok()?;
        message.get_mut("result").map(Value::take)
    })
}

/// Request bytes whose id is rewritten in place before each send.
#[derive(Debug, Clone)]
pub(crate) struct CallTemplate {
    bytes: Vec<u8>,
    id_positions: Vec<usize>,
}

impl CallTemplate {
    pub(crate) fn new(bytes_with_placeholders: Vec<u8>) -> Self {
        let id_positions = memmem::find_iter(&bytes_with_placeholders, ID_PLACEHOLDER).collect();
        Self { bytes: bytes_with_placeholders, id_positions }
    }

    pub(crate) fn with_id(&mut self, call_id: u32) -> &[u8] {
        let digits = id_digits(call_id);
        for &position in &self.id_positions {
            self.bytes[position..position + ID_DIGITS].copy_from_slice(&digits);
        }
        &self.bytes
    }
}

fn id_digits(call_id: u32) -> [u8; ID_DIGITS] {
    let mut digits = [b'0'; ID_DIGITS];
    let mut rest = call_id;
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789"[(rest % 10) as usize];
        rest /= 10;
    }
    digits
}

/// Fails unless `body` (JSON or server-sent events) answers exactly this `echo` call.
pub(crate) fn check_echo_answer(body: &[u8], session_tag: u32, call_id: u32) -> Result<(), Error> {
    let digits = id_digits(call_id);
    let mut id_member = *br#""id":##########"#;
    id_member[5..].copy_from_slice(&digits);
    let nonce = nonce(session_tag, call_id);
    if memmem::find(body, &id_member).is_some() && memmem::find(body, nonce.as_bytes()).is_some() {
        return Ok(());
    }
    check_echo_answer_by_parsing(body, &nonce, call_id)
}

/// The slow check, for servers that put spaces into their JSON. It also produces the error message.
fn check_echo_answer_by_parsing(body: &[u8], nonce: &str, call_id: u32) -> Result<(), Error> {
    let text = String::from_utf8_lossy(body);
    for line in text.lines() {
        let json = line.strip_prefix("data:").unwrap_or(line).trim();
        let Ok(message) = serde_json::from_str::<Value>(json) else { continue };
        if message["id"] == call_id && message["result"]["content"][0]["text"] == nonce {
            return Ok(());
        }
    }
    let shown: String = text.chars().take(300).collect();
    Err(Error::new(format!("wrong answer: call {call_id} expected the text {nonce}, got {shown:?}")))
}

/// The id of an answer that came as one JSON line, read without parsing the rest.
pub(crate) fn id_of_answer_line(line: &[u8]) -> Option<u32> {
    let after_key = memmem::find(line, br#""id":"#)? + 5;
    let digits = line.get(after_key..after_key + ID_DIGITS)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The two ends and the length of a body that is too long to keep.
#[derive(Debug, Default)]
pub(crate) struct BodyEnds {
    head: Vec<u8>,
    tail: Vec<u8>,
    length: usize,
}

impl BodyEnds {
    const KEPT: usize = 512;

    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.length += piece.len();
        let missing = Self::KEPT.saturating_sub(self.head.len()).min(piece.len());
        self.head.extend_from_slice(&piece[..missing]);
        if piece.len() >= Self::KEPT {
            self.tail.clear();
            self.tail.extend_from_slice(&piece[piece.len() - Self::KEPT..]);
            return;
        }
        self.tail.extend_from_slice(piece);
        let surplus = self.tail.len().saturating_sub(Self::KEPT);
        self.tail.drain(..surplus);
    }

    /// Fails unless the ends name the call and the length fits `bytes` of text plus a small envelope.
    pub(crate) fn check_big_answer(&self, call_id: u32, bytes: usize) -> Result<(), Error> {
        let id_member = format!(r#""id":{call_id}"#);
        let names_the_call = [&self.head, &self.tail]
            .iter()
            .any(|end| memmem::find(end, id_member.as_bytes()).is_some() && !end.is_empty());
        let has_the_length = (bytes..=bytes + BIG_ENVELOPE_ALLOWANCE).contains(&self.length);
        if names_the_call && has_the_length {
            return Ok(());
        }
        Err(Error::new(format!(
            "wrong answer: call {call_id} for {bytes} bytes got {} bytes starting {:?}",
            self.length,
            String::from_utf8_lossy(&self.head[..self.head.len().min(120)])
        )))
    }
}

/// The protocol version an initialize answer (JSON or server-sent events) settled on.
pub(crate) fn negotiated_version(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    text.lines().find_map(|line| {
        let json = line.strip_prefix("data:").unwrap_or(line).trim();
        let message: Value = serde_json::from_str(json).ok()?;
        message["result"]["protocolVersion"].as_str().map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: u32 = 0x5000_0007;
    const ID: u32 = FIRST_CALL_ID + 42;

    fn answer(id: u32, text: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#)
    }

    #[test]
    fn template_rewrites_the_id_and_the_nonce() {
        let mut template = CallTemplate::new(echo_call_with_placeholders(TAG).into_bytes());
        let request = String::from_utf8_lossy(template.with_id(ID)).into_owned();
        assert!(request.contains(r#""id":1000000042,"#), "{request}");
        assert!(request.contains(r#""text":"50000007-1000000042""#), "{request}");
    }

    #[test]
    fn right_answers_pass_in_every_framing() {
        let plain = answer(ID, &nonce(TAG, ID));
        check_echo_answer(plain.as_bytes(), TAG, ID).unwrap();
        check_echo_answer(format!("event: message\ndata: {plain}\n\n").as_bytes(), TAG, ID).unwrap();
        check_echo_answer(plain.replace(':', ": ").as_bytes(), TAG, ID).unwrap();
    }

    #[test]
    fn crossed_answers_fail() {
        check_echo_answer(answer(ID, &nonce(TAG + 1, ID)).as_bytes(), TAG, ID).unwrap_err();
        check_echo_answer(answer(ID + 1, &nonce(TAG, ID + 1)).as_bytes(), TAG, ID).unwrap_err();
        check_echo_answer(b"", TAG, ID).unwrap_err();
    }

    #[test]
    fn body_ends_check_length_and_id() {
        let body = answer(ID, &"x".repeat(5000));
        for piece_length in [1, 100, 700, 6000] {
            let mut ends = BodyEnds::default();
            body.as_bytes().chunks(piece_length).for_each(|piece| ends.push(piece));
            ends.check_big_answer(ID, 5000).unwrap();
            ends.check_big_answer(ID, 6000).unwrap_err();
            ends.check_big_answer(ID + 1, 5000).unwrap_err();
        }
    }

    #[test]
    fn answer_line_gives_its_id() {
        assert_eq!(id_of_answer_line(answer(ID, "x").as_bytes()), Some(ID));
        assert_eq!(id_of_answer_line(b"{}"), None);
    }
}
