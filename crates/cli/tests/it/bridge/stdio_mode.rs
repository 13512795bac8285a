//! `--mode stdio`: a session with one client on stdin and stdout.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{
    NEWEST, StdioClient, descendants, fixture_binary, process_exists, ringfence_binary, within_deadline,
};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

/// Far longer than any test, so such a call ends only by being cancelled, or with its session.
const FOREVER_MS: u64 = 3_600_000;

/// Starts ringfence with this test as its client, without a fence, because these tests are about the bridge alone.
fn start(flags: &[&str], fixture_flags: &[&str]) -> StdioClient {
    let mut command = Command::new(ringfence_binary());
    command
        .args(["--mode", "stdio", "--unfenced"])
        .args(flags)
        .arg("--")
        .arg(fixture_binary())
        .args(fixture_flags);
    StdioClient::start(&mut command)
}

/// Starts ringfence and completes the handshake.
async fn open(flags: &[&str]) -> StdioClient {
    let mut ringfence = start(flags, &[]);
    let answer = initialize(&mut ringfence).await;
    assert_eq!(answer["result"]["protocolVersion"], NEWEST, "{answer}");
    ringfence.notify("notifications/initialized").await;
    ringfence
}

async fn initialize(ringfence: &mut StdioClient) -> Value {
    ringfence.initialize(json!({"sampling": {}, "elicitation": {}}), NEWEST).await
}

/// Starts a child of the server, and an orphan in a session of its own. Returns their pids and the server's.
async fn start_descendants(ringfence: &mut StdioClient) -> Vec<u32> {
    let mut pids = Vec::new();
    for tool in ["pid", "spawn_child", "spawn_daemon"] {
        pids.push(ringfence.call_for_text(tool, json!({})).await.parse().unwrap());
    }
    assert!(pids.iter().all(|pid| process_exists(*pid)), "{pids:?}");
    pids
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_run_side_by_side_and_the_server_may_ask_meanwhile() {
    let mut ringfence = open(&[]).await;
    ringfence.send_call_with_id(&json!(1), "ask", &json!({"kind": "sampling", "tag": "a tag"})).await;
    let question = ringfence.read().await;
    assert_eq!(question["method"], "sampling/createMessage");
    assert_eq!(question["params"]["messages"][0]["content"]["text"], "a tag");
    ringfence.send_call_with_id(&json!("1"), "echo", &json!({"text": "meanwhile"})).await;
    let meanwhile = ringfence.read().await;
    assert_eq!(
        (&meanwhile["id"], &meanwhile["result"]["content"][0]["text"]),
        (&json!("1"), &json!("meanwhile"))
    );
    ringfence.send(&json!({"jsonrpc": "2.0", "id": "no such question", "result": {"wrong": true}})).await;
    ringfence.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"right": true}})).await;
    let answer = ringfence.read().await;
    assert_eq!(answer["id"], 1);
    assert_eq!(answer["result"]["content"][0]["text"], json!({"right": true}).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_at_once_each_get_their_answer() {
    let mut ringfence = open(&[]).await;
    for id in 0..200 {
        ringfence.send_call_with_id(&json!(id), "echo", &json!({"text": format!("call {id}")})).await;
    }
    let mut seen = Vec::new();
    for _ in 0..200 {
        let answer = ringfence.read().await;
        let id = answer["id"].as_u64().unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], format!("call {id}"));
        seen.push(id);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_pass_byte_for_byte() {
    let mut ringfence = open(&[]).await;
    let text = r#""\u00e9é🦀\/ \n""#;
    for id in ["5", r#""five 🦀""#, "123456789012345678901234567890"] {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":{text}}}}}}}"#
        );
        ringfence.write_line(&call).await;
        let expected = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":{text}}}]}}}}"#
        );
        assert_eq!(ringfence.read_line().await.unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_and_notifications_come_in_their_order() {
    let mut ringfence = open(&[]).await;
    let params = json!({"name": "test_tool_with_progress", "arguments": {}, "_meta": {"progressToken": "t"}});
    ringfence.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})).await;
    for progress in [0, 50, 100] {
        let message = ringfence.read().await;
        assert_eq!(
            (&message["params"]["progressToken"], &message["params"]["progress"]),
            (&json!("t"), &json!(progress))
        );
    }
    assert_eq!(ringfence.read().await["id"], 1);
    ringfence.send_call_with_id(&json!(2), "log", &json!({"text": "of the call"})).await;
    assert_eq!(ringfence.read().await["params"]["data"], "of the call");
    assert_eq!(ringfence.read().await["id"], 2);
    ringfence.send_call_with_id(&json!(3), "notify_list_changed", &json!({})).await;
    let messages = [ringfence.read().await, ringfence.read().await];
    assert!(
        messages.iter().any(|message| message["method"] == "notifications/tools/list_changed"),
        "{messages:?}"
    );
    assert!(messages.iter().any(|message| message["id"] == 3), "{messages:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_can_be_cancelled_and_times_out() {
    let mut ringfence = open(&["--timeout", "6"]).await;
    ringfence.send_call_with_id(&json!(100), "sleep", &json!({"ms": FOREVER_MS})).await;
    ringfence.send_call_with_id(&json!(101), "sleep", &json!({"ms": FOREVER_MS})).await;
    ringfence
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 101}}))
        .await;
    let cancelled = ringfence.read().await;
    assert_eq!((&cancelled["id"], &cancelled["error"]["data"]["reason"]), (&json!(101), &json!("cancelled")));
    let timed_out = ringfence.read().await;
    assert_eq!((&timed_out["id"], &timed_out["error"]["data"]["reason"]), (&json!(100), &json!("timeout")));
    assert_eq!(ringfence.call_for_text("cancelled_count", json!({})).await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_fails_its_calls_and_the_next_call_gets_a_new_process() {
    let mut ringfence = open(&[]).await;
    let before = ringfence.call_for_text("pid", json!({})).await;
    let crashed = ringfence.call("crash", json!({"code": 7, "stderr": "the disk is full\n"})).await;
    let data = &crashed["error"]["data"];
    assert_eq!((&data["reason"], &data["exit_code"]), (&json!("upstream_exited"), &json!(7)), "{crashed}");
    assert!(data["stderr"].as_str().unwrap().contains("the disk is full"), "{crashed}");
    assert_ne!(ringfence.call_for_text("pid", json!({})).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_exits_at_once_is_an_error_with_its_last_words() {
    let mut ringfence = start(&[], &["--exit-at-start", "3", "--stderr", "the licence has expired"]);
    let answer = initialize(&mut ringfence).await;
    assert_eq!(
        (&answer["id"], &answer["error"]["data"]["exit_code"]),
        (&json!("initialize"), &json!(3)),
        "{answer}"
    );
    assert!(
        answer["error"]["data"]["stderr"].as_str().unwrap().contains("the licence has expired"),
        "{answer}"
    );
    ringfence.close_stdin();
    assert_eq!(ringfence.exit_status().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_no_message_gets_an_error_and_the_session_goes_on() {
    let mut ringfence = open(&["--max-message-bytes", "2000"]).await;
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
        ringfence.write_line(line).await;
        let answer = ringfence.read().await;
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &id), "{line}: {answer}");
        assert_eq!(ringfence.call_for_text("echo", json!({"text": "after"})).await, "after");
    }
    ringfence.write_line("").await;
    ringfence.write_line("\r").await;
    assert_eq!(
        ringfence.call_for_text("echo", json!({"text": "empty lines are nothing"})).await,
        "empty lines are nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_begins_with_one_initialize() {
    let mut ringfence = start(&[], &[]);
    ringfence.send(&json!({"jsonrpc": "2.0", "method": "notifications/too-early"})).await;
    ringfence.send(&json!({"jsonrpc": "2.0", "id": 5, "method": "ping"})).await;
    let early = ringfence.read().await;
    assert_eq!((&early["id"], &early["error"]["code"]), (&json!(5), &json!(-32600)), "{early}");
    assert!(initialize(&mut ringfence).await.get("result").is_some());
    let twice = initialize(&mut ringfence).await;
    assert_eq!((&twice["id"], &twice["error"]["code"]), (&json!("initialize"), &json!(-32600)), "{twice}");
    assert_eq!(ringfence.call_for_text("echo", json!({"text": "x"})).await, "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_in_flight_is_refused() {
    let mut ringfence = open(&[]).await;
    ringfence.send_call_with_id(&json!(7), "sleep", &json!({"ms": FOREVER_MS})).await;
    ringfence.send_call_with_id(&json!(7), "echo", &json!({"text": "x"})).await;
    let refused = ringfence.read().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(7), &json!(-32600)), "{refused}");
    assert_eq!(ringfence.call_for_text("echo", json!({"text": "other"})).await, "other");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_input_ends_everything() {
    let mut ringfence = open(&[]).await;
    let started = start_descendants(&mut ringfence).await;
    ringfence.close_stdin();
    assert_eq!(ringfence.exit_status().await.code(), Some(0));
    assert!(started.iter().all(|pid| !process_exists(*pid)), "{started:?}");
    assert_eq!(ringfence.read_line().await, None, "nothing else is on stdout");
    let mut log = String::new();
    within_deadline("stderr ends", ringfence.stderr.read_to_string(&mut log)).await.unwrap();
    assert!(log.contains("session opened"), "the log is on stderr: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_input_ends_a_server_that_will_not_go() {
    let mut ringfence = start(&["--grace", "0.3"], &["--ignore-term"]);
    initialize(&mut ringfence).await;
    ringfence.send_call_with_id(&json!(1), "sleep", &json!({"ms": FOREVER_MS})).await;
    let started = descendants(ringfence.pid());
    assert_eq!(started.len(), 1);
    ringfence.close_stdin();
    assert_eq!(ringfence.exit_status().await.code(), Some(0));
    assert!(!process_exists(started[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_end_everything() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut ringfence = open(&[]).await;
        let started = start_descendants(&mut ringfence).await;
        ringfence.send_call_with_id(&json!("running"), "sleep", &json!({"ms": FOREVER_MS})).await;
        let pid = Pid::from_raw(i32::try_from(ringfence.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        assert_eq!(ringfence.exit_status().await.code(), Some(0), "{signal:?}");
        assert!(started.iter().all(|pid| !process_exists(*pid)), "{signal:?}: {started:?}");
    }
}
