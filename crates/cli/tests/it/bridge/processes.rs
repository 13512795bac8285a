//! The processes behind the gateway: what they inherit, how they misbehave, die, restart and end.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{
    Gateway, MessageLog, NEWEST, RawClient, Reply, WorkspaceDir, process_exists, wait_until, workspace_dir,
};

/// Far longer than any test, so such a call ends only with its process or its session.
const FOREVER_MS: u64 = 3_600_000;

async fn initialize(gateway: &Gateway) -> Reply {
    gateway.client().post_initialize(&json!("first"), json!({}), NEWEST).await
}

/// The pid that a tool answers with.
async fn pid_from(client: &RawClient, tool: &str, arguments: Value) -> u32 {
    client.call_tool_for_text(tool, arguments).await.parse().unwrap()
}

async fn pid(client: &RawClient) -> u32 {
    pid_from(client, "pid", json!({})).await
}

/// Starts a child, an orphan in a session of its own, and another one that also holds the server's standard error.
/// Returns their pids and the server's.
async fn start_descendants(client: &RawClient) -> Vec<u32> {
    let started = vec![
        pid(client).await,
        pid_from(client, "spawn_child", json!({})).await,
        pid_from(client, "spawn_daemon", json!({})).await,
        pid_from(client, "spawn_daemon", json!({"keep_stderr": true})).await,
    ];
    assert!(started.iter().all(|pid| process_exists(*pid)), "{started:?}");
    started
}

fn send_signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

async fn wait_until_gone(pids: &[u32]) {
    wait_until(&format!("{pids:?} are gone"), async || pids.iter().all(|pid| !process_exists(*pid))).await;
}

/// A file to which each fixture appends its pid when it starts.
struct StartLog {
    path: PathBuf,
    _directory: WorkspaceDir,
}

impl StartLog {
    fn new() -> Self {
        let directory = workspace_dir("processes");
        Self { path: directory.join("starts"), _directory: directory }
    }

    fn pids(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_inherits_only_allowed_and_named_variables() {
    const ALLOWED: [&str; 17] = [
        "PATH",
        "HOME",
        "LANG",
        "TERM",
        "TZ",
        "TMPDIR",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NODE_EXTRA_CA_CERTS",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "PIP_CERT",
        "GIT_SSL_CAINFO",
        "RINGFENCE_INSTANCE",
        "RINGFENCE_SCOPE",
        "RINGFENCE_SCOPE_SOURCE",
        "RINGFENCE_SESSION",
    ];
    let gateway = Gateway::unfenced()
        .env("RINGFENCE_TEST_SECRET", "hunter2")
        .env("AWS_SECRET_ACCESS_KEY", "hunter3")
        .env("PASSED_BY_NAME", "as it is")
        .env("LC_TIME", "C")
        .env("TZ", "UTC")
        .flags(["--env", "PASSED_BY_NAME", "--env", "SET=a=b", "--env", "EMPTY="])
        .start()
        .await;
    let client = gateway.open().await;
    let answer = client.call_tool("environment", json!({})).await;
    let variables = answer["result"]["structuredContent"].as_object().unwrap();
    for (name, value) in
        [("PASSED_BY_NAME", "as it is"), ("SET", "a=b"), ("EMPTY", ""), ("LC_TIME", "C"), ("TZ", "UTC")]
    {
        assert_eq!(variables[name], value, "{name}");
    }
    assert_eq!(variables["PATH"].as_str(), std::env::var("PATH").ok().as_deref());
    let own = ["PASSED_BY_NAME", "SET", "EMPTY", "RINGFENCE_WORKER"];
    let others: BTreeSet<&str> = variables
        .keys()
        .map(String::as_str)
        .filter(|name| !ALLOWED.contains(name) && !name.starts_with("LC_") && !own.contains(name))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(!answer.to_string().contains("hunter"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_a_server_that_are_no_messages_are_ignored_and_counted() {
    const GARBAGE: [&str; 12] = [
        "Server listening on stdio",
        "{",
        "{}",
        "[]",
        "null",
        r#"["2.0",77,"ping"]"#,
        r#"[{"jsonrpc":"2.0","method":"notifications/message","params":{}}]"#,
        r#"{"jsonrpc":"1.0","method":"notifications/message"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":2,"result":{},"error":{}}"#,
        r#"{"jsonrpc":"2.0","id":2,"result":{},"method":"ping"}"#,
    ];
    let gateway = Gateway::unfenced().start().await;
    let client = gateway.open().await;
    let before = pid(&client).await;
    for (line, count) in GARBAGE.into_iter().zip(1..) {
        let exchange =
            client.call_tool_answering("raw_stdout", json!({"line": line}), |_| Ok(json!({}))).await;
        assert_eq!(exchange.response["result"]["content"][0]["text"], "written", "{line}");
        assert!(
            exchange.notifications.is_empty() && exchange.server_requests.is_empty(),
            "{line}: {exchange:?}"
        );
        assert_eq!(gateway.counter("bad_lines").await, count, "{line}");
    }
    client.call_tool_for_text("raw_stdout", json!({"line": "\n\r\n"})).await;
    assert_eq!(gateway.counter("bad_lines").await, GARBAGE.len() as u64, "an empty line is nothing");
    client
        .call_tool_for_text("raw_stdout", json!({"line": r#"{"jsonrpc":"2.0","id":9999,"result":{}}"#}))
        .await;
    assert_eq!(gateway.counter("stray_answers").await, 1, "an answer to nothing that was asked");
    assert_eq!(pid(&client).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_long_is_an_error_of_that_call_alone() {
    let gateway = Gateway::unfenced().flags(["--max-message-bytes", "100000"]).start().await;
    let client = gateway.open().await;
    let before = pid(&client).await;
    for bytes in [100_001, 1_000_000, 20_000_000] {
        let answer = client.call_tool("big", json!({"bytes": bytes})).await;
        let data = &answer["error"]["data"];
        assert_eq!(
            (&data["reason"], &data["limit"]),
            (&json!("answer_too_long"), &json!(100_000)),
            "{bytes}: {answer}"
        );
        assert_eq!(client.call_tool_for_text("echo", json!({"text": "after"})).await, "after");
    }
    assert_eq!(client.call_tool_for_text("big", json!({"bytes": 99_000})).await.len(), 99_000);
    let exchange =
        client.call_tool_answering("long_line", json!({"bytes": 200_000}), |_| Ok(json!({}))).await;
    assert_eq!(exchange.response["result"]["content"][0]["text"], "written");
    assert!(exchange.notifications.is_empty(), "a notification that is too long is dropped");
    assert_eq!(gateway.counter("bad_lines").await, 4);
    assert_eq!(pid(&client).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_on_standard_error_blocks_nothing() {
    let gateway = Gateway::unfenced().start().await;
    let client = gateway.open().await;
    assert_eq!(client.call_tool_for_text("stderr_flood", json!({"bytes": 16_000_000})).await, "written");
    assert_eq!(client.call_tool_for_text("echo", json!({"text": "after"})).await, "after");
    assert!(gateway.log().len() < 1_000_000, "the log is not flooded: {} bytes", gateway.log().len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_fails_the_calls_in_flight_and_the_next_call_gets_a_new_process() {
    let directory = workspace_dir("processes");
    let log = MessageLog::new(directory.join("messages"));
    let gateway =
        Gateway::unfenced().fixture_flags(["--message-log".as_ref(), log.path().as_os_str()]).start().await;
    gateway.wait_for_probe().await;
    std::fs::remove_file(log.path()).unwrap();
    let client = gateway.open().await;
    let before = pid(&client).await;
    let running_id = json!("running");
    let mut running =
        client.post_tool_call(&running_id, "sleep", json!({"ms": FOREVER_MS})).await.into_events();
    let crashed = client.call_tool("crash", json!({"code": 7, "stderr": "the disk is full\n"})).await;
    for answer in [running.next_message().await.unwrap(), crashed] {
        let error = &answer["error"];
        assert_eq!(
            (&error["data"]["reason"], &error["data"]["exit_code"]),
            (&json!("upstream_exited"), &json!(7))
        );
        assert!(error["data"]["stderr"].as_str().unwrap().contains("the disk is full"), "{error}");
        assert!(error["message"].as_str().unwrap().contains("exited with code 7"), "{error}");
    }
    let after = pid(&client).await;
    assert_ne!(after, before);
    assert!(!process_exists(before));
    let methods: Vec<String> =
        log.messages().iter().map(|message| message["method"].as_str().unwrap().to_owned()).collect();
    let handshake = ["initialize", "notifications/initialized"];
    let calls = ["tools/call"; 3];
    assert_eq!(methods, [&handshake[..], &calls, &handshake, &calls[..1]].concat(), "nothing is sent twice");
    let messages = log.messages();
    let without_id = |message: &Value| json!([message["method"], message["params"]]);
    assert_eq!(without_id(&messages[0]), without_id(&messages[5]), "the handshake is the client's own");
    let ids: BTreeSet<u64> = messages.iter().filter_map(|message| message["id"].as_u64()).collect();
    assert_eq!(ids.len(), 6, "no id is used twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_killed_is_reported_with_its_signal() {
    let gateway = Gateway::unfenced().start().await;
    let client = gateway.open().await;
    let before = pid(&client).await;
    let mut running =
        client.post_tool_call(&json!(1), "sleep", json!({"ms": FOREVER_MS})).await.into_events();
    send_signal(before, Signal::KILL);
    let answer = running.next_message().await.unwrap();
    let data = &answer["error"]["data"];
    assert_eq!((&data["reason"], &data["signal"]), (&json!("upstream_exited"), &json!(9)), "{answer}");
    assert_ne!(pid(&client).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_before_a_crash_still_count() {
    let gateway = Gateway::unfenced().start().await;
    let client = gateway.open().await;
    let before = pid(&client).await;
    assert_eq!(client.call_tool_for_text("exit_after_answer", json!({"code": 3})).await, "exiting");
    wait_until("its end was noticed", async || gateway.counter("worker_deaths").await == 1).await;
    assert_ne!(pid(&client).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_server_started_is_gone_with_it() {
    let gateway = Gateway::unfenced().start().await;
    let client = gateway.open().await;
    let started = start_descendants(&client).await;
    client.call_tool("crash", json!({})).await;
    wait_until_gone(&started).await;
    assert_eq!(client.call_tool_for_text("echo", json!({"text": "after"})).await, "after");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_exits_at_once_is_an_error_with_its_last_words() {
    let gateway = Gateway::unfenced()
        .flags(["--max-sessions", "1"])
        .fixture_flags(["--exit-at-start", "3", "--stderr", "the licence has expired"])
        .start()
        .await;
    for _ in 0..3 {
        let reply = initialize(&gateway).await;
        assert_eq!((reply.session_id(), &reply.json()["id"]), (None, &json!("first")));
        let error = &reply.json()["error"];
        assert_eq!(
            (&error["data"]["reason"], &error["data"]["exit_code"]),
            (&json!("upstream_not_started"), &json!(3)),
            "{error}"
        );
        assert!(error["data"]["stderr"].as_str().unwrap().contains("the licence has expired"), "{error}");
        wait_until("the attempt is forgotten", async || gateway.open_sessions().await == 0).await;
        wait_until("nothing is left", async || gateway.descendants().is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_initialize_is_given_up_and_ended() {
    let gateway = Gateway::unfenced()
        .flags(["--start-timeout", "1"])
        .fixture_flags(["--no-initialize-answer", "--ignore-term"])
        .start()
        .await;
    let reply = initialize(&gateway).await;
    let error = &reply.json()["error"];
    assert_eq!(error["data"]["reason"], "upstream_not_started", "{error}");
    assert!(error["message"].as_str().unwrap().contains("did not answer initialize"), "{error}");
    wait_until("nothing is left", async || gateway.descendants().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_crashes_again_and_again_is_started_less_and_less_often() {
    let gateway = Gateway::unfenced().start().await;
    let client = gateway.open().await;
    let mut crashes = 0;
    let refusal = loop {
        let answer = client.call_tool("crash", json!({"stderr": "again\n"})).await;
        if answer["error"]["data"]["reason"] != "upstream_exited" {
            break answer;
        }
        crashes += 1;
        // On a busy machine the first pauses, which are short, may be over before the next call.
        assert!(crashes < 10, "never refused");
    };
    assert!(crashes >= 2, "one crash is no loop: {refusal}");
    let error = &refusal["error"];
    assert_eq!(error["data"]["reason"], "upstream_not_started", "{error}");
    assert!(
        error["message"].as_str().unwrap().contains(&format!("crashed {crashes} times in a row")),
        "{error}"
    );
    assert!(error["data"]["stderr"].as_str().unwrap().contains("again"), "{error}");
    wait_until("the server is started again", async || {
        let answer = client.call_tool("echo", json!({"text": "x"})).await;
        answer.get("result").is_some()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_does_not_spoil_the_next_session() {
    let starts = StartLog::new();
    let flags = ["--crash-first-n".into(), starts.path.clone().into_os_string(), "2".into()];
    let gateway = Gateway::unfenced().fixture_flags(flags).start().await;
    gateway.wait_for_probe().await;
    assert_eq!(starts.pids().len(), 1, "the gateway's own trial, which is no reason not to begin");
    let reply = initialize(&gateway).await;
    assert_eq!(reply.json()["error"]["data"]["exit_code"], 1, "{:?}", reply.body);
    let client = gateway.open().await;
    assert_eq!(client.call_tool_for_text("echo", json!({"text": "third start"})).await, "third start");
    assert_eq!(starts.pids().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_server_that_does_not_start_is_an_error_of_serve() {
    let broken = Gateway::unfenced()
        .flag("--shared")
        .fixture_flags(["--exit-at-start", "4", "--stderr", "the licence has expired"])
        .try_start()
        .await
        .unwrap_err();
    assert_eq!(broken.status.code(), Some(1));
    assert_eq!(broken.stdout, "", "nothing listens");
    assert!(broken.stderr.contains("error: the MCP server exited with code 4"), "{}", broken.stderr);
    assert!(
        broken.stderr.contains("before it answered initialize: the licence has expired"),
        "{}",
        broken.stderr
    );
    Gateway::unfenced().flag("--shared").start().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_ends_everything_that_the_server_started() {
    let gateway = Gateway::unfenced().start().await;
    let (client, other) = (gateway.open().await, gateway.open().await);
    let started = start_descendants(&client).await;
    let others = start_descendants(&other).await;
    assert!(client.delete().await.status.is_success());
    wait_until_gone(&started).await;
    assert!(others.iter().all(|pid| process_exists(*pid)), "another session's processes go on");
    assert!(other.delete().await.status.is_success());
    wait_until("nothing is left", async || gateway.descendants().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_leaves_nothing_behind() {
    for lifecycle in ["--session-isolation", "--shared"] {
        let mut gateway = Gateway::unfenced().flag(lifecycle).start().await;
        let (client, other) = (gateway.open().await, gateway.open().await);
        let mut started = start_descendants(&client).await;
        started.extend(start_descendants(&other).await);
        assert_eq!(gateway.terminate().await.code(), Some(0), "{lifecycle}");
        let left: Vec<u32> = started.into_iter().filter(|pid| process_exists(*pid)).collect();
        assert!(left.is_empty(), "{lifecycle}: {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_the_end_of_its_input_and_sigterm_is_killed() {
    let mut gateway =
        Gateway::unfenced().flags(["--grace", "0.3"]).fixture_flags(["--ignore-term"]).start().await;
    let (client, other) = (gateway.open().await, gateway.open().await);
    let (stubborn, another) = (pid(&client).await, pid(&other).await);
    assert!(client.delete().await.status.is_success());
    wait_until_gone(&[stubborn]).await;
    assert!(process_exists(another));
    assert_eq!(gateway.terminate().await.code(), Some(0));
    assert!(!process_exists(another));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_flight_is_finished_before_the_gateway_ends() {
    let mut gateway = Gateway::unfenced().flags(["--drain", "50"]).start().await;
    let client = gateway.open().await;
    let id = client.next_id();
    let mut events = client.post_tool_call(&id, "sleep", json!({"ms": 1500})).await.into_events();
    gateway.send_terminate();
    gateway.wait_for_log("stopping").await;
    let answer = events.next_message().await.unwrap();
    assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&id, &json!("slept")), "{answer}");
    assert_eq!(gateway.wait_for_exit().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_outlasts_the_drain_gets_an_error() {
    let mut gateway = Gateway::unfenced().flags(["--drain", "0.2"]).start().await;
    let client = gateway.open().await;
    let server = pid(&client).await;
    let mut listening = client.get_stream(None).await.into_events();
    let mut events = client.post_tool_call(&json!(1), "sleep", json!({"ms": FOREVER_MS})).await.into_events();
    assert_eq!(gateway.terminate().await.code(), Some(0));
    let answer = events.next_message().await.unwrap();
    assert_eq!(answer["error"]["data"]["reason"], "session_ended", "{answer}");
    assert_eq!((listening.next_message().await, listening.failure()), (None, None), "closed, not torn");
    assert!(!process_exists(server));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_everything_at_once() {
    let mut gateway = Gateway::unfenced()
        .flags(["--grace", "3000", "--drain", "3000"])
        .fixture_flags(["--ignore-term"])
        .start()
        .await;
    let client = gateway.open().await;
    let started = start_descendants(&client).await;
    let _running = client.post_tool_call(&json!(1), "sleep", json!({"ms": FOREVER_MS})).await;
    gateway.send_terminate();
    gateway.wait_for_log("stopping").await;
    assert_eq!(gateway.terminate().await.code(), Some(1));
    assert!(started.iter().all(|pid| !process_exists(*pid)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_during_initialize_leaves_no_process() {
    let starts = StartLog::new();
    let flags = [
        "--start-log".into(),
        starts.path.clone().into_os_string(),
        "--start-delay-ms".into(),
        FOREVER_MS.to_string().into(),
    ];
    let patient = Gateway::unfenced().flags(["--start-timeout", "3600"]);
    let gateway = patient.fixture_flags(flags).start().await;
    wait_until("the gateway tries its server", async || starts.pids().len() == 1).await;
    let request = gateway.client().post_initialize(&json!(1), json!({}), NEWEST);
    let waiting = tokio::spawn(request.send());
    wait_until("the server is being started", async || starts.pids().len() == 2).await;
    let of_the_client = starts.pids()[1];
    assert!(process_exists(of_the_client));
    waiting.abort();
    wait_until_gone(&[of_the_client]).await;
    assert_eq!(gateway.open_sessions().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_session_ends_and_one_in_use_goes_on() {
    let gateway = Gateway::unfenced().flags(["--idle-timeout", "8"]).start().await;
    let listener = gateway.open().await;
    let mut listening = listener.get_stream(None).await.into_events();
    let caller = gateway.open().await;
    let _running = caller.post_tool_call(&json!("long"), "sleep", json!({"ms": FOREVER_MS})).await;
    let idle = gateway.open().await;
    let server = pid(&idle).await;
    wait_until_gone(&[server]).await;
    let reply = idle.post_request(&json!(5), "ping", None).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["error"]["code"]), (404, &json!(-32001)));
    listener.call_tool_for_text("notify_list_changed", json!({})).await;
    assert!(listening.next_message().await.is_some());
    assert_eq!(caller.call_tool_for_text("echo", json!({"text": "x"})).await, "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_sessions_than_allowed_are_refused_until_one_ends() {
    let gateway = Gateway::unfenced().flags(["--max-sessions", "2"]).start().await;
    let (first, second) = (gateway.open().await, gateway.open().await);
    let refused = initialize(&gateway).await;
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()));
    assert_eq!((&refused.json()["id"], &refused.json()["error"]["code"]), (&json!("first"), &json!(-32000)));
    assert_eq!(second.call_tool_for_text("echo", json!({"text": "x"})).await, "x");
    assert!(first.delete().await.status.is_success());
    wait_until("the place is free", async || initialize(&gateway).await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_reading_does_not_stop_the_others() {
    let gateway = Gateway::unfenced().flags(["--timeout", "6", "--grace", "0.3"]).start().await;
    let (client, other) = (gateway.open().await, gateway.open().await);
    let server = pid(&client).await;
    client.call_tool_for_text("stop_reading", json!({})).await;
    let unread = "x".repeat(1_000_000);
    let answer = client.call_tool("echo", json!({"text": unread})).await;
    assert_eq!(answer["error"]["data"]["reason"], "timeout", "{answer}");
    assert_eq!(other.call_tool_for_text("echo", json!({"text": "x"})).await, "x");
    assert!(client.delete().await.status.is_success());
    wait_until_gone(&[server]).await;
}
