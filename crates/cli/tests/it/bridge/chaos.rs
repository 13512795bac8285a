//! Faults at the worst moment: killed processes, clients that vanish or never read, garbage from both sides. The
//! gateway answers where it can, keeps its memory bounded and leaves nothing behind.

use std::collections::BTreeMap;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{
    EventStream, Gateway, MalformedRequests, MessageLog, NEWEST, RawClient, ReplyBody, fixture_binary,
    open_descriptors, peak_resident_bytes, process_exists, resident_bytes, wait_until, within_deadline,
    workspace_dir,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const MEBIBYTE: u64 = 1024 * 1024;
const FOREVER_MS: u64 = 3_600_000;

async fn echoes(client: &RawClient, text: &str) {
    assert_eq!(client.call_tool_for_text("echo", json!({"text": text})).await, text);
}

async fn pid(client: &RawClient) -> u32 {
    client.call_tool_for_text("pid", json!({})).await.parse().unwrap()
}

/// Compares the gateway's peak memory with a baseline in bytes.
fn assert_grew_less_than(mebibytes: u64, gateway: &Gateway, baseline: u64) {
    let growth = peak_resident_bytes(gateway.pid()).saturating_sub(baseline) / MEBIBYTE;
    println!("the gateway grew by {growth} MiB");
    assert!(growth < mebibytes, "the gateway grew by {growth} MiB");
}

fn kill_now(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

// ---- the server is killed ----

#[tokio::test]
async fn killing_the_server_answers_every_call_in_flight_once_and_the_next_call_works() {
    const CALLS: usize = 32;
    for lifecycle in ["--session-isolation", "--shared"] {
        let directory = workspace_dir("killed");
        let log = MessageLog::new(directory.join("messages"));
        let flags = ["--message-log".as_ref(), log.path().as_os_str()];
        let gateway = Gateway::unfenced().flag(lifecycle).fixture_flags(flags).start().await;
        if lifecycle != "--shared" {
            gateway.wait_for_probe().await;
        }
        let client = gateway.open().await;
        let killed = pid(&client).await;

        let mut calls = JoinSet::new();
        for id in 0..CALLS {
            let client = client.clone();
            calls.spawn(async move {
                let id = json!(format!("call {id}"));
                let reply = client.post_tool_call(&id, "sleep", json!({"ms": FOREVER_MS})).await;
                (id, reply.all_messages().await)
            });
        }
        log.wait_for_calls("sleep", CALLS).await;
        kill_now(killed);
        while let Some(call) = calls.join_next().await {
            let (id, messages) = call.unwrap();
            assert_eq!(messages.len(), 1, "{lifecycle}: {messages:?}");
            assert_eq!(messages[0]["id"], id);
            assert_eq!(messages[0]["error"]["data"]["signal"], 9, "{messages:?}");
            assert_eq!(messages[0]["error"]["data"]["reason"], "upstream_exited");
        }

        let fresh = pid(&client).await;
        assert_ne!(fresh, killed);
        assert_eq!(gateway.descendants(), [fresh], "{lifecycle}");
        let sent_again = log.with_method("tools/call").len();
        assert_eq!(sent_again, 1 + CALLS + 1, "no call of unknown outcome is sent twice");
        client.delete().await;
        let left = usize::from(lifecycle == "--shared");
        wait_until("nothing is left", async || gateway.descendants().len() == left).await;
    }
}

#[tokio::test]
async fn killing_the_server_under_load_gives_each_call_its_own_result_or_an_error() {
    const LANES: usize = 32;
    const CALLS_PER_LANE: usize = 40;
    let gateway = Gateway::unfenced().start().await;
    gateway.wait_for_probe().await;
    let client = gateway.open().await;
    let victim = pid(&client).await;
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let client = client.clone();
        lanes.spawn(async move {
            let (mut results, mut errors) = (0, 0);
            for call in 0..CALLS_PER_LANE {
                let text = format!("lane {lane} call {call}");
                let id = json!(text);
                let reply = client.post_tool_call(&id, "echo", json!({"text": text})).await;
                let messages = reply.all_messages().await;
                assert_eq!(messages.len(), 1, "{messages:?}");
                assert_eq!(messages[0]["id"], id);
                if let Some(echo) = messages[0]["result"]["content"][0]["text"].as_str() {
                    assert_eq!(echo, text);
                    results += 1;
                } else {
                    assert_eq!(messages[0]["error"]["code"], -32000, "{messages:?}");
                    errors += 1;
                }
                // Kill the server in the middle of the load.
                if (lane, call) == (0, CALLS_PER_LANE / 2) {
                    kill_now(victim);
                }
            }
            (results, errors)
        });
    }
    let mut answered = 0;
    while let Some(outcomes) = lanes.join_next().await {
        let (results, errors) = outcomes.unwrap();
        answered += results + errors;
    }
    assert_eq!(answered, LANES * CALLS_PER_LANE);
    assert_ne!(pid(&client).await, victim);
    assert_eq!(gateway.counter("worker_deaths").await, 1);
    assert_eq!(gateway.descendants().len(), 1);
}

// ---- clients that vanish ----

/// Starts a call and reads the first progress notification on its stream.
async fn begin_streaming(client: &RawClient, ms: u64) -> EventStream {
    let arguments = json!({"ms": ms, "progress_every_ms": 20});
    let params = json!({"name": "sleep", "arguments": arguments, "_meta": {"progressToken": 1}});
    let mut events = client.post_request(&json!("stream"), "tools/call", Some(params)).await.into_events();
    let first = events.next_message().await.unwrap();
    assert_eq!(first["method"], "notifications/progress");
    events
}

#[tokio::test]
async fn clients_that_vanish_leave_no_session_and_no_process() {
    const CLIENTS: usize = 40;
    let gateway = Gateway::unfenced().flags(["--idle-timeout", "10"]).start().await;
    let mut vanishing = JoinSet::new();
    for number in 0..CLIENTS {
        let client = gateway.open().await;
        vanishing.spawn(async move {
            let events = begin_streaming(&client, 400).await;
            let listening = client.get_stream(None).await;
            // Half of them lose the stream of the call first, the others the GET stream.
            if number % 2 == 0 {
                drop(events);
                drop(listening);
            } else {
                drop((listening, events));
            }
        });
    }
    while let Some(vanished) = vanishing.join_next().await {
        vanished.unwrap();
    }
    assert_eq!(gateway.counter("sessions_opened").await, CLIENTS as u64);
    wait_until("all sessions have ended", async || gateway.open_sessions().await == 0).await;
    wait_until("all processes have ended", async || gateway.descendants().is_empty()).await;
    let counters = gateway.report().await["counters"].clone();
    assert_eq!(counters["timeouts"], 0, "the calls finished: {counters}");
    assert_eq!(counters["worker_deaths"], 0, "{counters}");
    echoes(&gateway.open().await, "healthy").await;
}

#[tokio::test]
async fn a_call_whose_client_vanished_finishes_and_its_result_can_be_fetched() {
    let gateway = Gateway::unfenced().start().await;
    for _ in 0..5 {
        let client = gateway.open().await;
        let events = begin_streaming(&client, 300).await;
        let last_event_id = events.last_event_id().unwrap().to_owned();
        drop(events);
        let mut events = client.get_stream(Some(&last_event_id)).await.into_events();
        let messages = events.remaining_messages().await;
        let answer = messages.last().unwrap();
        assert_eq!(answer["id"], "stream");
        assert_eq!(answer["result"]["content"][0]["text"], "slept");
        // Nothing is lost or repeated: the steps continue where they stopped.
        let steps: Vec<_> =
            messages.iter().filter_map(|message| message["params"]["progress"].as_u64()).collect();
        assert_eq!(steps, (2..=15).collect::<Vec<u64>>());
        assert_eq!(client.call_tool_for_text("cancelled_count", json!({})).await, "0");
    }
}

#[tokio::test]
async fn requests_that_break_off_at_any_byte_do_no_harm() {
    let gateway = Gateway::unfenced().start().await;
    let client = gateway.open().await;
    let request = raw_post(&client, &json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string());
    let baseline = open_descriptors(gateway.pid());
    for length in (1..request.len()).step_by(3) {
        let mut socket = connect(&gateway).await;
        socket.write_all(&request[..length]).await.unwrap();
    }
    echoes(&client, "healthy").await;
    wait_until("the sockets are closed", async || open_descriptors(gateway.pid()) <= baseline).await;
}

async fn connect(gateway: &Gateway) -> TcpStream {
    TcpStream::connect(authority(gateway.url())).await.unwrap()
}

fn authority(url: &str) -> &str {
    url.strip_prefix("http://").and_then(|rest| rest.split('/').next()).unwrap()
}

/// The bytes of a whole POST, to write to a raw socket.
fn raw_post(client: &RawClient, body: &str) -> Vec<u8> {
    raw_request(client, "POST", body)
}

fn raw_request(client: &RawClient, verb: &str, body: &str) -> Vec<u8> {
    format!(
        "{verb} /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMcp-Session-Id: {}\r\n\
         Mcp-Protocol-Version: {NEWEST}\r\nContent-Length: {}\r\n\r\n{body}",
        authority(client.url()),
        client.session_id().unwrap(),
        body.len(),
    )
    .into_bytes()
}

// ---- clients that never read ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_costs_bounded_memory_and_disturbs_nobody() {
    const UPDATES: usize = 4_000;
    const URI_BYTES: usize = 100 * 1024;
    const UNREAD_RESULTS: usize = 8;
    for lifecycle in ["--session-isolation", "--shared"] {
        let gateway = Gateway::unfenced().flag(lifecycle).start().await;
        let (slow, other) = (gateway.open().await, gateway.open().await);
        let baseline = resident_bytes(gateway.pid());

        // Open the GET stream and request a few results of 8 MiB each, and never read any of them.
        let mut unread = vec![connect(&gateway).await];
        unread[0].write_all(&raw_request(&slow, "GET", "")).await.unwrap();
        wait_for_head(&unread[0]).await;
        for id in 0..UNREAD_RESULTS {
            let mut socket = connect(&gateway).await;
            let params = json!({"name": "big", "arguments": {"bytes": 8 * MEBIBYTE}});
            let body = json!({"jsonrpc": "2.0", "id": format!("big {id}"), "method": "tools/call", "params": params});
            socket.write_all(&raw_post(&slow, &body.to_string())).await.unwrap();
            wait_for_head(&socket).await;
            unread.push(socket);
        }

        // Send 400 MB of notifications to the GET stream.
        let uri = json!({"uri": format!("test://{}", "u".repeat(URI_BYTES))});
        assert_eq!(slow.request("resources/subscribe", Some(uri.clone())).await["result"], json!({}));
        for update in 0..UPDATES {
            assert_eq!(slow.call_tool_for_text("notify_resource", uri.clone()).await, "notified");
            if update % 100 == 0 {
                echoes(&other, &format!("update {update}")).await;
            }
        }
        assert!(gateway.counter("dropped_notifications").await > 0, "the flood exceeded what is kept");
        assert_grew_less_than(300, &gateway, baseline);
        echoes(&slow, "its other connections work").await;
        echoes(&other, "healthy").await;
        drop(unread);
    }
}

/// Waits until the response has begun, without reading any of it.
async fn wait_for_head(socket: &TcpStream) {
    within_deadline("the response begins", socket.readable()).await.unwrap();
}

// ---- garbage from clients ----

/// Sends `count` malformed requests, several at a time, and checks that each is answered, none with a 5xx.
async fn survive_malformed_requests(gateway: &Gateway, generator: &mut MalformedRequests, count: usize) {
    const AT_ONCE: usize = 8;
    let client = gateway.open().await;
    let baseline = resident_bytes(gateway.pid());
    let mut statuses = BTreeMap::<u16, usize>::new();
    let mut running = JoinSet::new();
    for number in 0..count {
        let (request, description) = generator.next_request(&client);
        running.spawn(async move {
            let sent = request.send().await;
            let reply = sent.unwrap_or_else(|error| panic!("request {number} ({description}): {error}"));
            let status = reply.status.as_u16();
            // Some requests turn out to be valid calls; their streams end with the answer.
            if let ReplyBody::Sse(mut events) = reply.body {
                events.remaining_messages().await;
            }
            (number, description, status)
        });
        if running.len() >= AT_ONCE {
            note_status(&mut statuses, running.join_next().await.unwrap().unwrap());
        }
    }
    while let Some(finished) = running.join_next().await {
        note_status(&mut statuses, finished.unwrap());
    }
    assert_eq!(statuses.values().sum::<usize>(), count);
    for expected in [200, 202, 400, 404, 406, 415] {
        assert!(statuses.contains_key(&expected), "the generator reaches {expected}: {statuses:?}");
    }
    assert_grew_less_than(100, gateway, baseline);
    echoes(&client, "a valid call works").await;
    assert_eq!(gateway.counter("worker_deaths").await, 0);
}

fn note_status(statuses: &mut BTreeMap<u16, usize>, sent: (usize, String, u16)) {
    let (number, description, status) = sent;
    assert!((200..300).contains(&status) || (400..500).contains(&status), "{number} {description}: {status}");
    *statuses.entry(status).or_default() += 1;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_malformed_bodies_are_refused_without_a_crash_or_a_hang() {
    let gateway = Gateway::unfenced().start().await;
    gateway.wait_for_probe().await;
    let mut generator = MalformedRequests::new(0x0005_eed0_f1e1_d5ed);
    survive_malformed_requests(&gateway, &mut generator, 10_000).await;
    assert_eq!(gateway.descendants().len(), 1, "no further process was started");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_bodies_toward_a_shared_server_do_not_reach_another_client() {
    let gateway = Gateway::unfenced().flag("--shared").start().await;
    let bystander = gateway.open().await;
    let mut events = bystander.get_stream(None).await.into_events();
    let mut generator = MalformedRequests::new(0x5eed);
    survive_malformed_requests(&gateway, &mut generator, 2_000).await;
    echoes(&bystander, "undisturbed").await;
    bystander.call_tool_for_text("notify_list_changed", json!({})).await;
    let first = events.next_message().await.unwrap();
    assert_eq!(first["method"], "notifications/tools/list_changed", "nothing came before");
}

#[tokio::test]
async fn bytes_that_are_no_http_are_refused_or_cut_off() {
    let gateway = Gateway::unfenced().start().await;
    let client = gateway.open().await;
    let baseline = open_descriptors(gateway.pid());
    let mut generator = MalformedRequests::new(7);
    for _ in 0..300 {
        let mut socket = connect(&gateway).await;
        // The gateway may close the connection at any byte.
        drop(socket.write_all(&generator.random_bytes(2_000)).await);
        drop(socket.write_all(b"\r\n\r\n").await);
        drop(socket.shutdown().await);
        let mut answer = Vec::new();
        drop(within_deadline("the connection ends", socket.read_to_end(&mut answer)).await);
        let line = String::from_utf8_lossy(&answer);
        assert!(line.is_empty() || line.starts_with("HTTP/1.1 4"), "{line}");
    }
    echoes(&client, "healthy").await;
    wait_until("the sockets are closed", async || open_descriptors(gateway.pid()) <= baseline).await;
}

// ---- servers that misbehave ----

#[tokio::test]
async fn calls_to_a_server_that_stopped_reading_end_with_clear_errors_in_bounded_memory() {
    // Calls of 1 MiB each, more than the gateway queues: up to 64 MiB that wait and as much that is being written.
    const CALLS: usize = 160;
    let gateway = Gateway::unfenced().flags(["--timeout", "10", "--grace", "0.2"]).start().await;
    let (stuck, other) = (gateway.open().await, gateway.open().await);
    let stuck_pid = pid(&stuck).await;
    let baseline = resident_bytes(gateway.pid());
    stuck.call_tool_for_text("stop_reading", json!({})).await;

    let text = "x".repeat(usize::try_from(MEBIBYTE).unwrap());
    let mut calls = JoinSet::new();
    for id in 0..CALLS {
        let request = stuck.post_tool_call(&json!(id), "echo", json!({"text": text}));
        calls.spawn(async move { (id, request.await.all_messages().await) });
    }
    let (mut refused, mut timed_out) = (0, 0);
    while let Some(call) = calls.join_next().await {
        let (id, messages) = call.unwrap();
        assert_eq!(messages.len(), 1, "{id}");
        assert_eq!(messages[0]["id"], id);
        let error = &messages[0]["error"];
        match error["data"]["reason"].as_str() {
            Some("upstream_not_reading") => refused += 1,
            Some("timeout") => timed_out += 1,
            _ => panic!("{error}"),
        }
    }
    assert!(refused > 0 && timed_out > 0, "{refused} refused, {timed_out} timed out");
    assert_grew_less_than(400, &gateway, baseline);
    echoes(&other, "healthy").await;
    assert_eq!(stuck.delete().await.status, 204);
    wait_until("the stuck process is gone", async || !process_exists(stuck_pid)).await;
}

#[tokio::test]
async fn a_flood_of_garbage_on_stdout_is_counted_and_does_not_hide_the_answers() {
    const LINES: u64 = 20_000;
    // The command prints a flood of lines, then one very long line, and only then becomes a server.
    let script = format!(
        "yes 'this is no message' | head -n {LINES}; head -c {} /dev/zero | tr '\\0' x; echo; exec \"$0\"",
        64 * MEBIBYTE
    );
    let fixture = fixture_binary().into_os_string();
    let command = ["sh".into(), "-c".into(), script.into(), fixture];
    let gateway = Gateway::unfenced().command(command).start().await;
    let baseline = resident_bytes(gateway.pid());
    gateway.wait_for_probe().await;
    assert_eq!(gateway.counter("bad_lines").await, LINES + 1, "the trial");
    let client = gateway.open().await;
    echoes(&client, "an answer").await;
    assert_eq!(gateway.counter("bad_lines").await, 2 * (LINES + 1));
    assert_grew_less_than(100, &gateway, baseline);
}

#[tokio::test]
async fn answers_that_the_server_invents_reach_nobody() {
    for lifecycle in ["--session-isolation", "--shared"] {
        let gateway = Gateway::unfenced().flag(lifecycle).start().await;
        let client = gateway.open().await;
        let mut events = client.get_stream(None).await.into_events();
        let inventions = [
            r#"{"jsonrpc":"2.0","id":987654321,"result":{"invented":true}}"#,
            r#"{"jsonrpc":"2.0","id":"1","result":{"invented":true}}"#,
            r#"{"jsonrpc":"2.0","id":-1,"error":{"code":1,"message":"invented"}}"#,
        ];
        for line in inventions {
            assert_eq!(client.call_tool_for_text("raw_stdout", json!({"line": line})).await, "written");
        }
        let garbage =
            ["", "null", "[]", "{}", "\u{1}", "{\"jsonrpc\":\"2.0\"}", "[{\"jsonrpc\":\"2.0\",\"id\":1}]"];
        for line in garbage {
            assert_eq!(client.call_tool_for_text("raw_stdout", json!({"line": line})).await, "written");
        }
        let counters = gateway.report().await["counters"].clone();
        assert_eq!(counters["stray_answers"], inventions.len(), "{lifecycle}: {counters}");
        assert_eq!(counters["bad_lines"], garbage.len() - 1, "an empty line is nothing: {counters}");
        client.delete().await;
        assert_eq!(events.remaining_messages().await, Vec::<Value>::new(), "{lifecycle}");
    }
}

#[tokio::test]
async fn a_call_that_the_server_answers_twice_is_answered_once() {
    let directory = workspace_dir("twice");
    let log = MessageLog::new(directory.join("messages"));
    let flags = ["--message-log".as_ref(), log.path().as_os_str()];
    let gateway = Gateway::unfenced().fixture_flags(flags).start().await;
    let client = gateway.open().await;
    echoes(&client, "to see how the gateway counts").await;
    let last = log.messages().last().unwrap()["id"].as_u64().unwrap();
    let line = json!({"jsonrpc": "2.0", "id": last + 1, "result": {"first": true}}).to_string();
    let reply = client.post_tool_call(&json!("twice"), "raw_stdout", json!({"line": line})).await;
    let messages = reply.all_messages().await;
    assert_eq!(messages, [json!({"jsonrpc": "2.0", "id": "twice", "result": {"first": true}})]);
    echoes(&client, "the next call is not answered with the second").await;
    let counters = gateway.report().await["counters"].clone();
    assert_eq!((&counters["late_answers"], &counters["stray_answers"]), (&json!(1), &json!(0)));
}

// ---- many sessions in a hurry ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_sessions_opened_and_ended_in_a_hurry_leave_nothing() {
    const SESSIONS: usize = 100;
    let gateway = Gateway::unfenced().start().await;
    gateway.wait_for_probe().await;
    // The baseline includes everything that is opened once and kept.
    gateway.open().await.delete().await;
    wait_until("nothing runs", async || gateway.descendants().is_empty()).await;
    let baseline = open_descriptors(gateway.pid());

    let mut running = JoinSet::new();
    for number in 0..SESSIONS {
        let mut client = gateway.client();
        running.spawn(async move {
            client.open(json!({}), NEWEST).await;
            // Some sessions end with a call in flight or a stream open.
            let held = match number % 3 {
                0 => Some(client.post_tool_call(&json!(1), "sleep", json!({"ms": FOREVER_MS})).await),
                1 => Some(client.get_stream(None).await),
                _ => None,
            };
            assert_eq!(client.delete().await.status, 204);
            drop(held);
        });
        if running.len() >= 16 {
            running.join_next().await.unwrap().unwrap();
        }
    }
    while let Some(finished) = running.join_next().await {
        finished.unwrap();
    }
    assert_eq!(gateway.open_sessions().await, 0);
    wait_until("no process is left", async || gateway.descendants().is_empty()).await;
    wait_until("all descriptors are closed", async || open_descriptors(gateway.pid()) <= baseline).await;
}

#[tokio::test]
async fn clients_that_give_up_during_initialize_leave_no_process() {
    // The servers never answer `initialize`, so each ends only when its client gives up.
    let patient = Gateway::unfenced().flags(["--start-timeout", "3600"]);
    let gateway = patient.fixture_flags(["--no-initialize-answer"]).start().await;
    wait_until("the gateway tries its server", async || gateway.descendants().len() == 1).await;
    let trial = gateway.descendants();
    for _ in 0..10 {
        let initialize = gateway.client().post_initialize(&json!(1), json!({}), NEWEST);
        let waiting = tokio::spawn(initialize.into_future());
        wait_until("a process starts", async || gateway.descendants().len() == 2).await;
        waiting.abort();
        wait_until("no process of a client is left", async || gateway.descendants() == trial).await;
    }
    let report = gateway.report().await;
    assert_eq!((&report["sessions"], &report["counters"]["sessions_opened"]), (&json!(0), &json!(0)));
}
