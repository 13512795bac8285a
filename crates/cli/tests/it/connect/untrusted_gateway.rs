//! A malicious gateway: the WebSocket of a real `ringfence connect` ends in the test, which makes forbidden requests.
//! Proper requests work on the same connection, which shows that the refusals are real.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, text_of, within_deadline};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use upstream::Frame;

use super::proxy::Hijacked;
use super::{Ide, Proxy, Site};

/// An IDE whose attachments end in the test.
struct Trap {
    site: Site,
    ide: Ide,
    hijacked: mpsc::UnboundedReceiver<Hijacked>,
    _proxy: Proxy,
    _gateway: Gateway,
}

impl Trap {
    async fn set(name: &str) -> Self {
        let site = Site::new(name);
        let gateway = site.gateway().start().await;
        let proxy = Proxy::start(gateway.url()).await;
        let hijacked = proxy.hijack();
        let ide = site.ide(&proxy.url()).open().await;
        Self { site, ide, hijacked, _proxy: proxy, _gateway: gateway }
    }

    async fn attachment(&mut self) -> Attachment {
        let socket = within_deadline("the machine attaches", self.hijacked.recv()).await.unwrap();
        let mut attachment = Attachment { socket };
        let Some(Message::Text(offers)) = attachment.next().await else { panic!("no offers") };
        let mut offers: Vec<String> = serde_json::from_str(&offers).unwrap();
        offers.sort();
        assert_eq!(offers, ["filesystem", "local"]);
        attachment
    }
}

struct Attachment {
    socket: Hijacked,
}

impl Attachment {
    /// The next message; `None` if the attachment was closed.
    async fn next(&mut self) -> Option<Message> {
        within_deadline("the machine says something", self.socket.next()).await?.ok()
    }

    async fn next_frame(&mut self) -> Option<Frame> {
        loop {
            match self.next().await? {
                Message::Binary(text) => return Some(Frame::decode(&text).expect("a frame")),
                Message::Close(_) => return None,
                _ => {}
            }
        }
    }

    async fn send(&mut self, frame: Frame) {
        self.socket.send(Message::Binary(frame.encode())).await.unwrap();
    }

    async fn send_line(&mut self, channel: u64, message: &Value) {
        self.send(Frame::Line { channel, line: Bytes::from(message.to_string()) }).await;
    }

    async fn request(&mut self, channel: u64, method: &str, params: Value) -> Value {
        let id = json!(method);
        self.send_line(channel, &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        loop {
            match self.next_frame().await.expect("the attachment stays") {
                Frame::Line { channel: from, line } if from == channel => {
                    let message: Value = serde_json::from_slice(&line).unwrap();
                    if message.get("method").is_none() && message["id"] == id {
                        return message;
                    }
                    self.lie_about_roots(channel, &message).await;
                }
                other => drop(other),
            }
        }
    }

    /// Answers every `roots/list` with the root directory.
    async fn lie_about_roots(&mut self, channel: u64, message: &Value) {
        if message["method"] == "roots/list" {
            let result = json!({"roots": [{"uri": "file:///"}]});
            self.send_line(channel, &json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).await;
        }
    }

    async fn open(&mut self, channel: u64, server: &str) {
        self.send(Frame::Open { channel, server: server.to_owned() }).await;
        let client = json!({"name": "gateway", "version": "0"});
        let capabilities = json!({"roots": {"listChanged": true}});
        let params = json!({"protocolVersion": NEWEST, "capabilities": capabilities, "clientInfo": client});
        let answer = self.request(channel, "initialize", params).await;
        assert!(answer.get("result").is_some(), "{answer}");
        self.send_line(channel, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        self.send_line(channel, &json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}))
            .await;
    }

    async fn call(&mut self, channel: u64, tool: &str, arguments: Value) -> Value {
        self.request(channel, "tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// The control: opens `local` on this channel and calls it.
    async fn works_on(&mut self, channel: u64) {
        self.open(channel, "local").await;
        let answer = self.call(channel, "echo", json!({"text": "proper"})).await;
        assert_eq!(text_of(&answer), "proper");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_servers_of_the_clients_configuration_can_be_opened() {
    let mut trap = Trap::set("connect-not-configured").await;
    let mut gateway = trap.attachment().await;
    let names =
        ["remote", "gateway", "sh", "/bin/sh", "Local", "local ", "local\0", "", "../local", "[\"sh\"]"];
    for (channel, server) in (1..).zip(names) {
        gateway.send(Frame::Open { channel, server: server.to_owned() }).await;
        assert_eq!(gateway.next_frame().await, Some(Frame::Close { channel }), "{server:?}");
        gateway.send_line(channel, &json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})).await;
    }
    gateway.works_on(100).await;
    trap.ide.echoes("local").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_passed_over() {
    let mut trap = Trap::set("connect-garbage").await;
    let mut gateway = trap.attachment().await;
    let texts: [&[u8]; 10] = [
        b"",
        b"\0\xff\xfe",
        b"shout 1\n",
        b"open 1",
        b"open -1\nlocal",
        b"open 99999999999999999999999\nlocal",
        b"open 1\n\xff\xff",
        b"line 77\n{}",
        b"close 77\n",
        b"line 77\nnot json",
    ];
    for text in texts {
        gateway.socket.send(Message::Binary(Bytes::from_static(text))).await.unwrap();
        gateway.socket.send(Message::Text(String::from_utf8_lossy(text).into_owned().into())).await.unwrap();
    }
    gateway.works_on(1).await;
    for line in ["", "not json", "[]", "{}", "null", "[[[[", r#"{"jsonrpc":"2.0","id":1}"#] {
        gateway.send(Frame::Line { channel: 1, line: Bytes::from(line) }).await;
    }
    let answer = gateway.call(1, "echo", json!({"text": "still proper"})).await;
    assert_eq!(text_of(&answer), "still proper");
    // A second conversation on the same channel would mix its answers with the first: the channel is closed, and can
    // begin anew.
    gateway.send(Frame::Open { channel: 1, server: "local".to_owned() }).await;
    while gateway.next_frame().await.expect("the attachment stays") != (Frame::Close { channel: 1 }) {}
    gateway.works_on(1).await;
    gateway.works_on(u64::MAX).await;
    trap.ide.echoes("local").await;
    trap.ide.echoes("remote").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_is_too_long_ends_the_attachment_and_nothing_else() {
    let mut trap = Trap::set("connect-long-frame").await;
    let mut gateway = trap.attachment().await;
    gateway.works_on(1).await;
    let line = Bytes::from(vec![b'x'; 200_000_000]);
    // The connection may close before the whole frame is sent.
    let _ = gateway.socket.send(Message::Binary(Frame::Line { channel: 1, line }.encode())).await;
    while gateway.next_frame().await.is_some() {}
    trap.ide.echoes("local").await;
    let mut again = trap.attachment().await;
    again.works_on(1).await;
    trap.ide.echoes("remote").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_closes_every_attachment_does_no_harm() {
    let mut trap = Trap::set("connect-closes").await;
    for _ in 0..3 {
        let mut gateway = trap.attachment().await;
        gateway.socket.send(Message::Close(None)).await.unwrap();
        trap.ide.echoes("local").await;
    }
    trap.attachment().await.works_on(1).await;
    trap.ide.echoes("remote").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_outside_of_the_workspace_stay_out_of_reach() {
    let mut trap = Trap::set("connect-outside").await;
    let secret = trap.site.directory.join("outside/secret.txt");
    std::fs::write(&secret, "the secret").unwrap();
    std::fs::write(trap.site.project().join("inside.txt"), "the project").unwrap();
    std::os::unix::fs::symlink(&secret, trap.site.project().join("link")).unwrap();
    let mut gateway = trap.attachment().await;
    gateway.open(1, "filesystem").await;
    let inside = gateway.call(1, "read_file", json!({"path": "inside.txt"})).await;
    assert!(inside.to_string().contains("the project"), "the control: {inside}");
    let shell = gateway.call(1, "run_terminal_cmd", json!({"command": "cat inside.txt"})).await;
    assert!(shell.to_string().contains("the project"), "the control: {shell}");

    let secret = secret.to_str().unwrap();
    for path in [secret, "../outside/secret.txt", "link", &format!("file://{secret}")] {
        let answer = gateway.call(1, "read_file", json!({"path": path})).await;
        assert_eq!(answer["result"]["isError"], true, "{path}: {answer}");
        assert!(!answer.to_string().contains("the secret"), "{path}: {answer}");
        let command = format!("cat '{}'", path.trim_start_matches("file://"));
        let answer = gateway.call(1, "run_terminal_cmd", json!({"command": command})).await;
        assert!(!answer.to_string().contains("the secret"), "{path}: {answer}");
        let write = json!({"path": path, "content": "overwritten"});
        let answer = gateway.call(1, "write_file", write).await;
        assert_eq!(answer["result"]["isError"], true, "{path}: {answer}");
    }
    assert_eq!(std::fs::read_to_string(secret).unwrap(), "the secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_that_nobody_ends_end_with_the_attachment() {
    let mut trap = Trap::set("connect-abandoned").await;
    let mut gateway = trap.attachment().await;
    let mut pids = Vec::new();
    for channel in 1..=3 {
        gateway.open(channel, "local").await;
        let answer = gateway.call(channel, "pid", json!({})).await;
        pids.push(text_of(&answer).parse::<u32>().unwrap());
    }
    assert!(pids.iter().all(|pid| testkit::process_exists(*pid)), "{pids:?}");
    gateway.send(Frame::Close { channel: 1 }).await;
    testkit::wait_until("the first one has ended", async || !testkit::process_exists(pids[0])).await;
    assert!(testkit::process_exists(pids[1]), "the control: others go on");
    drop(gateway);
    testkit::wait_until("all have ended", async || !pids.iter().any(|pid| testkit::process_exists(*pid)))
        .await;
    trap.ide.echoes("local").await;
}
