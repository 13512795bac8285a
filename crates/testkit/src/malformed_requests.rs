//! A seeded generator of requests that are wrong in some way: the same seed gives the same requests.

use serde_json::{Value, json};

use crate::raw_client::RawClient;
use crate::raw_request::RawRequest;

/// Mutates valid messages and headers. A few of its requests turn out to be valid all the same.
#[derive(Debug)]
pub struct MalformedRequests {
    state: u64,
}

impl MalformedRequests {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next request in the session of `client`, and what is wrong with it. None of them opens a session.
    pub fn next_request(&mut self, client: &RawClient) -> (RawRequest, String) {
        let message = self.valid_message();
        let text = message.to_string().into_bytes();
        match self.below(12) {
            0 => (client.post(self.truncated(text)), "truncated".to_owned()),
            1 => (client.post(self.with_flipped_bytes(text)), "flipped bytes".to_owned()),
            2 => (client.post(self.with_swapped_type(message)), "swapped type".to_owned()),
            3 => (client.post(self.deeply_nested()), "deeply nested".to_owned()),
            4 => (client.post(self.with_invalid_utf8(text)), "invalid UTF-8".to_owned()),
            5 => (client.post(self.random_bytes(4_096)), "random bytes".to_owned()),
            6 => (client.post(self.with_repeated_key(&message)), "repeated key".to_owned()),
            7 => (client.post(self.batch(&message)), "batch".to_owned()),
            8 => (client.post(self.with_extreme_value(message)), "extreme value".to_owned()),
            9 => (client.post(self.with_stray_bytes(text)), "stray bytes".to_owned()),
            _ => self.with_wrong_header(client, text),
        }
    }

    /// Up to `most` random bytes.
    pub fn random_bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most);
        (0..length).map(|_| self.next_number().to_le_bytes()[0]).collect()
    }

    /// The algorithm is `SplitMix64`.
    fn next_number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit.max(1)).expect("sizes fit 64 bits");
        usize::try_from(self.next_number() % limit).expect("it is less than a size")
    }

    fn pick<'a, Item: ?Sized>(&mut self, items: &[&'a Item]) -> &'a Item {
        items[self.below(items.len())]
    }

    /// A message that a session in use would send, with an id that is unlikely to be in use.
    fn valid_message(&mut self) -> Value {
        let id = self.next_number() >> 12;
        let request = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let notification =
            |method: &str, params: Value| json!({"jsonrpc": "2.0", "method": method, "params": params});
        match self.below(9) {
            0 => request("ping", json!({})),
            1 => request("tools/list", json!({"cursor": null})),
            2 | 3 => {
                request("tools/call", json!({"name": "echo", "arguments": {"text": "grüße \"\\\u{2028}"}}))
            }
            4 => request("resources/read", json!({"uri": "test://static-text"})),
            5 => request("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}})),
            6 => notification("notifications/cancelled", json!({"requestId": id, "reason": "none"})),
            7 => notification("notifications/progress", json!({"progressToken": id, "progress": 1})),
            _ => json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}}),
        }
    }

    fn truncated(&mut self, mut text: Vec<u8>) -> Vec<u8> {
        text.truncate(self.below(text.len()));
        text
    }

    fn with_flipped_bytes(&mut self, mut text: Vec<u8>) -> Vec<u8> {
        for _ in 0..=self.below(8) {
            let at = self.below(text.len());
            text[at] ^= 1 << self.below(8);
        }
        text
    }

    fn with_swapped_type(&mut self, mut message: Value) -> Vec<u8> {
        let strange = match self.below(8) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(-1.5),
            3 => json!("text"),
            4 => json!([]),
            5 => json!([1, "2", null]),
            6 => json!({}),
            _ => json!({"a": {"b": [{}]}}),
        };
        let field = self.pick(&["jsonrpc", "id", "method", "params", "result", "error"]);
        if field == "params" && self.below(2) == 0 && message["params"].is_object() {
            let inner = self.pick(&["name", "arguments", "uri", "requestId", "progressToken", "_meta"]);
            message["params"][inner] = strange;
        } else {
            message[field] = strange;
        }
        message.to_string().into_bytes()
    }

    fn deeply_nested(&mut self) -> Vec<u8> {
        let depth = [10, 100, 127, 128, 129, 1_000, 10_000, 100_000][self.below(8)];
        let (open, close) = [("[", "]"), (r#"{"a":"#, "}")][self.below(2)];
        let innermost = if open == "[" { "" } else { "1" };
        let closing = if self.below(4) == 0 { String::new() } else { close.repeat(depth) };
        let nested = format!("{}{innermost}{closing}", open.repeat(depth));
        let text = match self.below(3) {
            0 => nested,
            1 => format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{nested}}}"#),
            _ => format!(
                r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"echo","arguments":{nested}}}}}"#
            ),
        };
        text.into_bytes()
    }

    fn with_invalid_utf8(&mut self, mut text: Vec<u8>) -> Vec<u8> {
        let invalid: &[u8] = self.pick(&[
            &b"\xff"[..],
            &b"\xc3\x28"[..],
            &b"\xe2\x82"[..],
            &b"\xed\xa0\x80"[..],
            &b"\xf4\x90\x80\x80"[..],
        ]);
        let at = self.below(text.len());
        text.splice(at..at, invalid.iter().copied());
        text
    }

    fn with_repeated_key(&mut self, message: &Value) -> Vec<u8> {
        let repeated = self.pick(&[
            r#""id":1,"#,
            r#""method":"ping","#,
            r#""jsonrpc":"2.0","#,
            r#""\u006dethod":"ping","#,
        ]);
        message.to_string().replacen('{', &format!("{{{repeated}"), 1).into_bytes()
    }

    fn batch(&mut self, message: &Value) -> Vec<u8> {
        let copies = self.below(4);
        Value::Array(vec![message.clone(); copies]).to_string().into_bytes()
    }

    fn with_extreme_value(&mut self, mut message: Value) -> Vec<u8> {
        let long = "x".repeat(100_000);
        let extreme = match self.below(7) {
            0 => "1e400",
            1 => "-0",
            2 => "0.1e1",
            3 => "99999999999999999999999999",
            4 => "\"\\ud800\"",
            5 => "\"\"",
            _ => &format!("\"{long}\""),
        };
        let field = self.pick(&["id", "method", "params", "jsonrpc"]);
        message[field] = json!("<here>");
        message.to_string().replace("\"<here>\"", extreme).into_bytes()
    }

    fn with_stray_bytes(&mut self, mut text: Vec<u8>) -> Vec<u8> {
        let stray =
            self.pick(&["\0", "\u{feff}", "\n", "\r\n", "{}", "[", "\"", "// comment\n", "\u{1b}[0m"]);
        let at = [0, self.below(text.len()), text.len()][self.below(3)];
        text.splice(at..at, stray.bytes());
        text
    }

    fn with_wrong_header(&mut self, client: &RawClient, text: Vec<u8>) -> (RawRequest, String) {
        let (name, value) = match self.below(8) {
            0 => ("content-type", self.pick(&["text/plain", "", "application/jsonp", "application"])),
            1 => ("accept", self.pick(&["application/json", "text/event-stream", "", "text/html;q=0.1"])),
            2 | 3 => {
                ("mcp-protocol-version", self.pick(&["", "2025-11-26", "1", "2024-11-05", "2026-07-28"]))
            }
            4 => ("mcp-session-id", self.pick(&["", "nonsense", "00000000-0000-4000-8000-000000000000"])),
            5 => ("origin", self.pick(&["http://evil.example", "null", "http://127.0.0.1.evil.example"])),
            6 => ("host", self.pick(&["evil.example", "127.0.0.1.evil.example", "[::1"])),
            _ => ("last-event-id", self.pick(&["", "1-1", "nonsense", "99999999999999999999-1"])),
        };
        // An `initialize` without the session would open another one.
        let opens_session = name == "mcp-session-id";
        let body = if opens_session { br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.to_vec() } else { text };
        (client.post(body).header(name, value), format!("{name}: {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::MalformedRequests;
    use crate::raw_client::RawClient;

    #[test]
    fn the_same_seed_gives_the_same_requests() {
        let client = RawClient::new("http://127.0.0.1:1/mcp");
        let requests = |seed| {
            let mut generator = MalformedRequests::new(seed);
            (0..200).map(|_| format!("{:?}", generator.next_request(&client))).collect::<Vec<_>>()
        };
        assert_eq!(requests(1), requests(1));
        assert_ne!(requests(1), requests(2));
    }
}
