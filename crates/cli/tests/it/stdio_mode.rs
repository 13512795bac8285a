//! `--mode stdio`: the same session with one client on stdin and stdout.

use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{PipedProcess, descendants, fixture_binary, process_exists, ringfence_binary, within_deadline};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

const NEWEST: &str = "2025-11-25";

/// Far longer than any test: such a call ends by being cancelled, or with its session.
const FOREVER_MS: u64 = 3_600_000;

/// A ringfence that this test is the client of. It runs without a fence: this is about the bridge alone.
struct Ringfence {
    process: PipedProcess,
    last_id: u64,
}

impl Ringfence {
    fn start(flags: &[&str], fixture_flags: &[&str]) -> Self {
        let mut command = Command::new(ringfence_binary());
        command
            .args(["--mode", "stdio", "--unfenced"])
            .args(flags)
            .arg("--")
            .arg(fixture_binary())
            .args(fixture_flags);
        Self { process: PipedProcess::start(&mut command), last_id: 0 }
    }

    /// With the handshake done.
    async fn open(flags: &[&str]) -> Self {
        let mut ringfence = Self::start(flags, &[]);
        let answer = ringfence.initialize().await;
        assert_eq!(answer["result"]["protocolVersion"], NEWEST, "{answer}");
        ringfence.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        ringfence
    }

    async fn initialize(&mut self) -> Value {
        let capabilities = json!({"sampling": {}, "elicitation": {}});
        let client = json!({"name": "test", "version": "0"});
        let params = json!({"protocolVersion": NEWEST, "capabilities": capabilities, "clientInfo": client});
        self.send(&json!({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params})).await;
        self.next().await
    }

    fn pid(&self) -> u32 {
        self.process.child.id().unwrap()
    }

    async fn send_line(&mut self, line: &str) {
        self.process.write_line(line).await;
    }

    async fn send(&mut self, message: &Value) {
        self.process.send(message).await;
    }

    /// The next line of stdout as it is; `None` at its end.
    async fn next_line(&mut self) -> Option<String> {
        self.process.read_line().await
    }

    async fn next(&mut self) -> Value {
        self.process.read().await
    }

    async fn send_call(&mut self, id: &Value, tool: &str, arguments: &Value) {
        let params = json!({"name": tool, "arguments": arguments});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})).await;
    }

    /// Calls a tool when nothing else is on its way.
    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.last_id += 1;
        let id = json!(self.last_id);
        self.send_call(&id, tool, &arguments).await;
        let answer = self.next().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    async fn call_for_text(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments).await;
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    async fn exit(&mut self) -> ExitStatus {
        self.process.exit_status().await
    }

    /// A child, and an orphan in a session of its own.
    async fn start_descendants(&mut self) -> Vec<u32> {
        let mut pids = Vec::new();
        for tool in ["pid", "spawn_child", "spawn_daemon"] {
            pids.push(self.call_for_text(tool, json!({})).await.parse().unwrap());
        }
        assert!(pids.iter().all(|pid| process_exists(*pid)), "{pids:?}");
        pids
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_run_side_by_side_and_the_server_may_ask_meanwhile() {
    let mut ringfence = Ringfence::open(&[]).await;
    ringfence.send_call(&json!(1), "ask", &json!({"kind": "sampling", "tag": "a tag"})).await;
    let question = ringfence.next().await;
    assert_eq!(question["method"], "sampling/createMessage");
    assert_eq!(question["params"]["messages"][0]["content"]["text"], "a tag");
    ringfence.send_call(&json!("1"), "echo", &json!({"text": "meanwhile"})).await;
    let meanwhile = ringfence.next().await;
    assert_eq!(
        (&meanwhile["id"], &meanwhile["result"]["content"][0]["text"]),
        (&json!("1"), &json!("meanwhile"))
    );
    ringfence.send(&json!({"jsonrpc": "2.0", "id": "no such question", "result": {"wrong": true}})).await;
    ringfence.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"right": true}})).await;
    let answer = ringfence.next().await;
    assert_eq!(answer["id"], 1);
    assert_eq!(answer["result"]["content"][0]["text"], json!({"right": true}).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_at_once_each_get_their_answer() {
    let mut ringfence = Ringfence::open(&[]).await;
    for id in 0..200 {
        ringfence.send_call(&json!(id), "echo", &json!({"text": format!("call {id}")})).await;
    }
    let mut seen = Vec::new();
    for _ in 0..200 {
        let answer = ringfence.next().await;
        let id = answer["id"].as_u64().unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], format!("call {id}"));
        seen.push(id);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_pass_byte_for_byte() {
    let mut ringfence = Ringfence::open(&[]).await;
    let text = r#""\u00e9é🦀\/ \n""#;
    for id in ["5", r#""five 🦀""#, "123456789012345678901234567890"] {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":{text}}}}}}}"#
        );
        ringfence.send_line(&call).await;
        let expected = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":{text}}}]}}}}"#
        );
        assert_eq!(ringfence.next_line().await.unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_and_notifications_come_in_their_order() {
    let mut ringfence = Ringfence::open(&[]).await;
    let params = json!({"name": "test_tool_with_progress", "arguments": {}, "_meta": {"progressToken": "t"}});
    ringfence.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})).await;
    for progress in [0, 50, 100] {
        let message = ringfence.next().await;
        assert_eq!(
            (&message["params"]["progressToken"], &message["params"]["progress"]),
            (&json!("t"), &json!(progress))
        );
    }
    assert_eq!(ringfence.next().await["id"], 1);
    ringfence.send_call(&json!(2), "log", &json!({"text": "of the call"})).await;
    assert_eq!(ringfence.next().await["params"]["data"], "of the call");
    assert_eq!(ringfence.next().await["id"], 2);
    ringfence.send_call(&json!(3), "notify_list_changed", &json!({})).await;
    let messages = [ringfence.next().await, ringfence.next().await];
    assert!(
        messages.iter().any(|message| message["method"] == "notifications/tools/list_changed"),
        "{messages:?}"
    );
    assert!(messages.iter().any(|message| message["id"] == 3), "{messages:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_can_be_cancelled_and_times_out() {
    let mut ringfence = Ringfence::open(&["--timeout", "2"]).await;
    ringfence.send_call(&json!(100), "sleep", &json!({"ms": FOREVER_MS})).await;
    ringfence.send_call(&json!(101), "sleep", &json!({"ms": FOREVER_MS})).await;
    ringfence
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 101}}))
        .await;
    let cancelled = ringfence.next().await;
    assert_eq!((&cancelled["id"], &cancelled["error"]["data"]["reason"]), (&json!(101), &json!("cancelled")));
    let timed_out = ringfence.next().await;
    assert_eq!((&timed_out["id"], &timed_out["error"]["data"]["reason"]), (&json!(100), &json!("timeout")));
    assert_eq!(ringfence.call_for_text("cancelled_count", json!({})).await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_fails_its_calls_and_the_next_call_gets_a_new_process() {
    let mut ringfence = Ringfence::open(&[]).await;
    let before = ringfence.call_for_text("pid", json!({})).await;
    let crashed = ringfence.call("crash", json!({"code": 7, "stderr": "the disk is full\n"})).await;
    let data = &crashed["error"]["data"];
    assert_eq!((&data["reason"], &data["exit_code"]), (&json!("upstream_exited"), &json!(7)), "{crashed}");
    assert!(data["stderr"].as_str().unwrap().contains("the disk is full"), "{crashed}");
    assert_ne!(ringfence.call_for_text("pid", json!({})).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_exits_at_once_is_an_error_with_its_last_words() {
    let mut ringfence =
        Ringfence::start(&[], &["--exit-at-start", "3", "--stderr", "the licence has expired"]);
    let answer = ringfence.initialize().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["data"]["exit_code"]),
        (&json!("init"), &json!(3)),
        "{answer}"
    );
    assert!(
        answer["error"]["data"]["stderr"].as_str().unwrap().contains("the licence has expired"),
        "{answer}"
    );
    ringfence.process.close_stdin();
    assert_eq!(ringfence.exit().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_no_message_gets_an_error_and_the_session_goes_on() {
    let mut ringfence = Ringfence::open(&["--max-message-bytes", "2000"]).await;
    let too_long = format!(r#"{{"jsonrpc":"2.0","method":"x","params":{{"x":"{}"}}}}"#, "x".repeat(5000));
    let cases: [(&str, i64, Value); 7] = [
        ("garbage", -32700, Value::Null),
        ("{", -32700, Value::Null),
        ("{}", -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"1.0","id":5,"method":"ping"}"#, -32600, json!(5)),
        (r#"[{"jsonrpc":"2.0","id":5,"method":"ping"}]"#, -32600, Value::Null),
        (&too_long, -32600, Value::Null),
    ];
    for (line, code, id) in cases {
        ringfence.send_line(line).await;
        let answer = ringfence.next().await;
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &id), "{line}: {answer}");
        assert_eq!(ringfence.call_for_text("echo", json!({"text": "after"})).await, "after");
    }
    ringfence.send_line("").await;
    ringfence.send_line("\r").await;
    assert_eq!(
        ringfence.call_for_text("echo", json!({"text": "empty lines are nothing"})).await,
        "empty lines are nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_begins_with_one_initialize() {
    let mut ringfence = Ringfence::start(&[], &[]);
    ringfence.send(&json!({"jsonrpc": "2.0", "method": "notifications/too-early"})).await;
    ringfence.send(&json!({"jsonrpc": "2.0", "id": 5, "method": "ping"})).await;
    let early = ringfence.next().await;
    assert_eq!((&early["id"], &early["error"]["code"]), (&json!(5), &json!(-32600)), "{early}");
    assert!(ringfence.initialize().await.get("result").is_some());
    let twice = ringfence.initialize().await;
    assert_eq!((&twice["id"], &twice["error"]["code"]), (&json!("init"), &json!(-32600)), "{twice}");
    assert_eq!(ringfence.call_for_text("echo", json!({"text": "x"})).await, "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_in_flight_is_refused() {
    let mut ringfence = Ringfence::open(&[]).await;
    ringfence.send_call(&json!(7), "sleep", &json!({"ms": FOREVER_MS})).await;
    ringfence.send_call(&json!(7), "echo", &json!({"text": "x"})).await;
    let refused = ringfence.next().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(7), &json!(-32600)), "{refused}");
    assert_eq!(ringfence.call_for_text("echo", json!({"text": "other"})).await, "other");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_input_ends_everything() {
    let mut ringfence = Ringfence::open(&[]).await;
    let started = ringfence.start_descendants().await;
    ringfence.process.close_stdin();
    assert_eq!(ringfence.exit().await.code(), Some(0));
    assert!(started.iter().all(|pid| !process_exists(*pid)), "{started:?}");
    assert_eq!(ringfence.next_line().await, None, "nothing else is on stdout");
    let mut log = String::new();
    within_deadline("stderr ends", ringfence.process.stderr.read_to_string(&mut log)).await.unwrap();
    assert!(log.contains("session opened"), "the log is on stderr: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_input_ends_a_server_that_will_not_go() {
    let mut ringfence = Ringfence::start(&["--grace", "0.3"], &["--ignore-term"]);
    ringfence.initialize().await;
    ringfence.send_call(&json!(1), "sleep", &json!({"ms": FOREVER_MS})).await;
    let started = descendants(ringfence.pid());
    assert_eq!(started.len(), 1);
    ringfence.process.close_stdin();
    assert_eq!(ringfence.exit().await.code(), Some(0));
    assert!(!process_exists(started[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_end_everything() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut ringfence = Ringfence::open(&[]).await;
        let started = ringfence.start_descendants().await;
        ringfence.send_call(&json!("running"), "sleep", &json!({"ms": FOREVER_MS})).await;
        let pid = Pid::from_raw(i32::try_from(ringfence.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        assert_eq!(ringfence.exit().await.code(), Some(0), "{signal:?}");
        assert!(started.iter().all(|pid| !process_exists(*pid)), "{signal:?}: {started:?}");
    }
}
