//! The operator's view: `ringfence sessions`, its endpoints, metrics, and the audit log.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, wait_until, workspace_dir};

use super::{Site, address_of, echoes};

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
async fn sessions_are_listed_shown_and_stopped_by_handle() {
    let mut site = Site::start("operator", &[]).await;
    let client = site.gateway.open().await;
    echoes(&client).await;
    client.call_tool("no_such_tool", json!({})).await;

    let listed = site.ringfence(&["sessions", "list", "--json"]).await;
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

    let people = text(&site.ringfence(&["sessions", "list"]).await);
    assert!(people.contains(handle) && people.contains("SCOPE"), "{people}");
    for part in ["PRINCIPAL", "anonymous", "FENCE", "holds", "project (default)"] {
        assert!(people.contains(part), "{part}: {people}");
    }
    let shown = text(&site.ringfence(&["sessions", "show", handle]).await);
    assert!(shown.contains("fence") && shown.contains("generation 1"), "{shown}");
    assert!(
        shown.contains("principal   anonymous") && shown.contains("the client named no directory"),
        "{shown}"
    );

    let unknown = site.ringfence(&["sessions", "stop", "s-00000000"]).await;
    assert_eq!(unknown.status.code(), Some(1), "{}", text(&unknown));
    assert!(site.ringfence(&["sessions", "stop", handle]).await.status.success());
    wait_until("its processes are gone", async || site.gateway.descendants().is_empty()).await;
    let reply = client.post_tool_call(&json!(1), "echo", json!({})).await;
    assert_eq!(reply.status, 404);

    site.gateway.terminate().await;
    let none = site.ringfence(&["sessions", "list"]).await;
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none).contains("hint:"), "{}", text(&none));
}

#[tokio::test]
async fn a_session_shows_why_a_server_is_down_and_what_its_fence_is() {
    let directory = workspace_dir("operator-down");
    std::fs::create_dir(directory.join("project")).unwrap();
    let configuration = json!({"servers": {
        "broken": {"command": ["sh", "-c", "echo Missing BRAVE_API_KEY >&2; exit 3"]},
        "files": {"command": ["ringfence", "workspace"]},
    }});
    std::fs::write(directory.join("servers.yaml"), configuration.to_string()).unwrap();
    let gateway = Gateway::without_command()
        .flag("--config")
        .flag(directory.join("servers.yaml"))
        .env("XDG_CACHE_HOME", directory.join("caches"))
        .current_dir(directory.join("project"))
        .start()
        .await;
    let client = gateway.open().await;
    client.call_tool_for_text("files_session_info", json!({})).await;
    let ringfence = async |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(testkit::ringfence_binary());
        command.args(arguments).env("XDG_CACHE_HOME", directory.join("caches"));
        text(&command.output().await.unwrap())
    };
    let listed: Value = serde_json::from_str(&ringfence(&["sessions", "list", "--json"]).await).unwrap();
    let handle = listed["sessions"][0]["session"].as_str().unwrap().to_owned();
    wait_until("the reason is shown", async || {
        let shown = ringfence(&["sessions", "show", &handle]).await;
        shown.contains("unavailable broken: ") && shown.contains("Missing BRAVE_API_KEY")
    })
    .await;
    assert!(ringfence(&["sessions", "show", &handle]).await.contains("protections enforced"));
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

fn sockets_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.filter(|entry| entry.file_type().unwrap().is_socket()).map(|entry| entry.path()).collect()
}

#[tokio::test]
async fn the_operators_socket_is_private_and_goes_with_its_gateway() {
    let mut site = Site::start("operator-socket", &[]).await;
    let directory = site.own().join("gateways");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let killed = sockets_in(&directory);
    assert_eq!((killed.len(), mode(&killed[0]), mode(&directory)), (1, 0o600, 0o700));
    site.gateway.kill().await;
    assert_eq!(sockets_in(&directory), killed, "the control: a killed gateway leaves its socket");

    let second = Site::gateway(&site.directory, &[]).await;
    let live = sockets_in(&directory);
    assert!(live.len() == 1 && live != killed, "{live:?}");
    site.gateway = Site::gateway(&site.directory, &[]).await;
    assert_eq!(sockets_in(&directory).len(), 2, "that of a running gateway is left alone");
    drop(second);
    site.gateway.terminate().await;
    assert!(sockets_in(&directory).iter().all(|socket| live.contains(socket)), "it removes its own");
}

#[tokio::test]
async fn sessions_are_listed_through_the_socket_and_without_it_through_the_url() {
    let site = Site::start("operator-ways", &[]).await;
    let _client = site.gateway.open().await;
    let is_listed = async || {
        let listed = site.ringfence(&["sessions", "list", "--json"]).await;
        let answer: Value = serde_json::from_slice(&listed.stdout).unwrap();
        answer["sessions"].as_array().unwrap().len() == 1
    };
    let file = site.own().join(format!("gateways/{}.json", site.gateway.pid()));
    let announced = std::fs::read_to_string(&file).unwrap();
    let url = address_of(&site.gateway);
    std::fs::write(&file, announced.replace(&url, "127.0.0.1:1")).unwrap();
    assert!(is_listed().await, "through the socket alone");
    for socket in sockets_in(&site.own().join("gateways")) {
        std::fs::remove_file(socket).unwrap();
    }
    assert!(!is_listed().await, "the control: neither way leads there");
    std::fs::write(&file, announced).unwrap();
    assert!(is_listed().await, "through the URL alone");
}

#[tokio::test]
async fn the_socket_can_lie_deeper_than_its_address_is_long() {
    let directory = workspace_dir("operator-deep");
    let caches = directory.join("d".repeat(120)).join("d".repeat(120));
    std::fs::create_dir_all(&caches).unwrap();
    let gateway = Gateway::unfenced().env("XDG_CACHE_HOME", &caches).start().await;
    let _client = gateway.open().await;
    assert_eq!(sockets_in(&caches.join("ringfence/gateways")).len(), 1);
    let mut command = tokio::process::Command::new(testkit::ringfence_binary());
    let listed = command.args(["sessions", "list"]).env("XDG_CACHE_HOME", &caches).output().await.unwrap();
    assert!(text(&listed).contains("ready"), "{}", text(&listed));
}

#[tokio::test]
async fn no_fence_shows_the_operators_socket_or_the_registered_supervisors() {
    let site = Site::start("operator-hidden", &[]).await;
    let own = site.own();
    let shown = site.own().join("gateways");
    assert!(shown.is_dir(), "the control");
    for tier in ["a", "b"] {
        let script = format!("ls {0}/gateways {0}/supervisors; touch {0}/supervisors/1-1", own.display());
        let run = ["run", "--tier", tier, "--allow-root", "--", "/bin/sh", "-c", &script];
        let output = site.ringfence(&run).await;
        assert!(!output.status.success() && output.stdout.is_empty(), "tier {tier}: {}", text(&output));
        assert!(!own.join("supervisors/1-1").exists(), "tier {tier}");
    }
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

    assert!(site.ringfence(&["audit", "verify", &log_text]).await.status.success());
    std::fs::write(&log, text_of_log.replace("\"echo\"", "\"erase\"")).unwrap();
    assert_eq!(site.ringfence(&["audit", "verify", &log_text]).await.status.code(), Some(1));
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
