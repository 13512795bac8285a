//! The operator's view: `ringfence sessions`, its endpoints, metrics, and the audit log.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use serde_json::{Value, json};
use testkit::{NEWEST, ringfence_binary, wait_until};
use tokio::process::Command;

use super::{Site, echoes};

async fn ringfence(site: &Site, arguments: &[&str]) -> Output {
    let mut command = Command::new(ringfence_binary());
    command.args(arguments).env("XDG_CACHE_HOME", site.directory.join("caches"));
    command.output().await.unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
async fn sessions_are_listed_shown_and_stopped_by_handle() {
    let mut site = Site::start("operator", &[]).await;
    let client = site.gateway.open().await;
    echoes(&client).await;
    client.call_tool("no_such_tool", json!({})).await;

    let listed = ringfence(&site, &["sessions", "list", "--json"]).await;
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let session = &listed["sessions"][0];
    let handle = session["session"].as_str().unwrap();
    assert_eq!(session["state"], "ready");
    assert_eq!((&session["calls"], &session["errors"]), (&json!(2), &json!(1)), "{session}");
    assert_eq!(session["scope"][0], site.directory.join("project").canonicalize().unwrap().to_str().unwrap());
    assert_eq!(session["scope_source"], "default");
    assert_eq!(session["instance"].as_str().unwrap().len(), 32);
    let worker = &session["workers"][0];
    assert_eq!((&worker["state"], &worker["generation"]), (&json!("up"), &json!(1)), "{worker}");
    assert!(worker["pss_bytes"].as_u64().unwrap() > 100_000, "{worker}");
    assert!(worker["confinement"].as_str().unwrap().contains("protections enforced"), "{worker}");
    assert!(site.gateway.descendants().contains(&u32::try_from(worker["pid"].as_i64().unwrap()).unwrap()));
    assert!(!listed.to_string().contains(client.session_id().unwrap()), "an id is a credential");

    let people = text(&ringfence(&site, &["sessions", "list"]).await);
    assert!(people.contains(handle) && people.contains("SCOPE"), "{people}");
    let shown = text(&ringfence(&site, &["sessions", "show", handle]).await);
    assert!(shown.contains("fence") && shown.contains("generation 1"), "{shown}");

    let unknown = ringfence(&site, &["sessions", "stop", "s-00000000"]).await;
    assert_eq!(unknown.status.code(), Some(1), "{}", text(&unknown));
    assert!(ringfence(&site, &["sessions", "stop", handle]).await.status.success());
    wait_until("its processes are gone", async || site.gateway.descendants().is_empty()).await;
    let reply = client.post_tool_call(&json!(1), "echo", json!({})).await;
    assert_eq!(reply.status, 404);

    site.gateway.terminate().await;
    let none = ringfence(&site, &["sessions", "list"]).await;
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none).contains("hint:"), "{}", text(&none));
}

#[tokio::test]
async fn the_operators_endpoints_want_the_token_and_its_file_is_private() {
    let site = Site::start("token", &[]).await;
    let _client = site.gateway.open().await;
    let file = site.directory.join(format!("caches/ringfence/gateways/{}.json", site.gateway.pid()));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let token = site.token();
    for wrong in ["", "Bearer ", "Bearer x", &format!("Bearer {token}x"), &token] {
        let reply = site.get("/sessions").header("authorization", wrong).await;
        assert_eq!(reply.status, 401, "{wrong:?}");
    }
    let reply = site.get("/sessions").header("authorization", format!("Bearer {token}")).await;
    assert_eq!(reply.status, 200, "the control");
    assert_eq!(reply.json()["sessions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_session_that_waits_for_its_scope_says_so() {
    let site = Site::start("waiting", &[]).await;
    let mut client = site.gateway.client();
    client.open(json!({"roots": {}}), NEWEST).await;
    let authorization = format!("Bearer {}", site.token());
    let reply = site.get("/sessions").header("authorization", &authorization).await;
    let session = &reply.json()["sessions"][0];
    assert_eq!(session["state"], "awaiting_scope");
    assert_eq!((&session["scope"], &session["workers"]), (&json!([]), &json!([])), "{session}");
}

#[tokio::test]
async fn metrics_are_sums_for_everybody_and_single_sessions_for_the_operator() {
    let site = Site::start("metrics", &[]).await;
    let client = site.gateway.open().await;
    echoes(&client).await;
    let read = async |authorization: &str| {
        let reply = site.get("/metrics").header("authorization", authorization).await;
        assert_eq!(reply.status, 200);
        String::from_utf8(reply.raw).unwrap()
    };
    let sums = read("").await;
    for line in [
        "ringfence_sessions_active 1",
        "ringfence_instances_active 1",
        "ringfence_session_creations_total 1",
        "ringfence_calls_total 1",
        "ringfence_stray_answers_total 0",
        "ringfence_scope_lock_seconds_count 1",
        r#"ringfence_call_latency_seconds_count{upstream="ringfence-fixture"} 1"#,
    ] {
        assert!(sums.lines().any(|found| found == line), "no {line} in:\n{sums}");
    }
    assert!(!sums.contains("ringfence_session_memory"), "{sums}");
    let all = read(&format!("Bearer {}", site.token())).await;
    assert!(all.contains("ringfence_session_memory_bytes{session=\"s-"), "{all}");
    assert!(!all.contains(client.session_id().unwrap()));

    client.delete().await;
    wait_until("the end is counted", async || {
        read("").await.contains(r#"ringfence_session_ends_total{reason="deleted"} 1"#)
    })
    .await;
}

#[tokio::test]
async fn the_audit_log_tells_who_did_what_and_cannot_be_altered_unseen() {
    let directory = testkit::workspace_dir("audit");
    let log = directory.join("audit.jsonl");
    let log_text = log.to_str().unwrap().to_owned();
    let mut site = Site::start("audited", &["--audit-log", &log_text]).await;
    let client = site.gateway.open().await;
    echoes(&client).await;
    client.call_tool("echo", json!({"text": 7})).await;
    client.call_tool("test_error_handling", json!({})).await;
    client.delete().await;
    site.gateway.terminate().await;

    let text_of_log = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text_of_log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    for event in
        ["session_opened", "scope_locked", "worker_started", "tool_called", "worker_exited", "session_ended"]
    {
        assert!(events.contains(&event), "no {event} in {events:?}");
    }
    let calls: Vec<&Value> = lines.iter().filter(|line| line["event"] == "tool_called").collect();
    assert_eq!(calls.len(), 3, "{calls:?}");
    assert_eq!((&calls[0]["tool"], &calls[0]["outcome"]), (&json!("echo"), &json!("ok")));
    assert_eq!(calls[2]["outcome"], "tool_error", "{calls:?}");
    assert!(calls.iter().all(|call| call.get("arguments").is_none()), "not unless asked for");
    assert!(!text_of_log.contains(client.session_id().unwrap()));

    assert!(ringfence(&site, &["audit", "verify", &log_text]).await.status.success());
    std::fs::write(&log, text_of_log.replace("\"echo\"", "\"erase\"")).unwrap();
    assert_eq!(ringfence(&site, &["audit", "verify", &log_text]).await.status.code(), Some(1));
}

#[tokio::test]
async fn arguments_are_logged_only_when_the_operator_wants_them() {
    let directory = testkit::workspace_dir("audit-arguments");
    let log = directory.join("audit.jsonl");
    let flags = ["--audit-log", log.to_str().unwrap(), "--audit-arguments"];
    let mut site = Site::start("audited-arguments", &flags).await;
    let client = site.gateway.open().await;
    client.call_tool_for_text("echo", json!({"text": "seen"})).await;
    site.gateway.terminate().await;
    assert!(std::fs::read_to_string(&log).unwrap().contains(r#""arguments":{"text":"seen"}"#));
}
