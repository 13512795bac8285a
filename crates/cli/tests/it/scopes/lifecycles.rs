//! Which sessions share a server process, and how results name their session.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{
    Gateway, GatewayBuilder, NEWEST, PipedProcess, RawClient, fixture_binary, ringfence_binary, roots,
    text_of, wait_until,
};
use tokio::process::Command;

use super::{
    assert_kept_out_of, assert_works_in, begin_asked_call, lock, only_message, open, project_with_secret,
    window, with_roots,
};

const CANARY: &str = "canary of the first window";

async fn remember(client: &RawClient, value: &str) {
    client.call_tool_for_text("state_set", json!({"key": "k", "value": value})).await;
}

async fn recall(client: &RawClient) -> String {
    client.call_tool_for_text("state_get", json!({"key": "k"})).await
}

fn with_lifecycle(lifecycle: &str) -> GatewayBuilder {
    Gateway::builder().flags(["--lifecycle", lifecycle])
}

#[tokio::test]
async fn with_a_process_per_workspace_sessions_share_by_directory() {
    let gateway = with_lifecycle("workspace").start().await;
    let (project, other) = (project_with_secret("pooled"), project_with_secret("other"));
    let link = other.path.join("link");
    std::os::unix::fs::symlink(&project.path, &link).unwrap();
    let first = window(&gateway, &project.path).await;
    let second = window(&gateway, &project.path).await;
    let by_link = open(&gateway).await;
    lock(&by_link, roots(&[&link])).await;
    let mut by_header = gateway.client().with_header("ringfence-workspace", project.path.to_str().unwrap());
    by_header.open(with_roots(), NEWEST).await;
    let elsewhere = window(&gateway, &other.path).await;
    remember(&first, CANARY).await;
    for client in [&second, &by_link, &by_header] {
        assert_eq!(recall(client).await, CANARY);
        assert_works_in(client, &project.path).await;
        assert_kept_out_of(client, &other.path).await;
    }
    assert_eq!(recall(&elsewhere).await, "");
    assert_works_in(&elsewhere, &other.path).await;
    assert_kept_out_of(&elsewhere, &project.path).await;
    // The process outlives the session that started it.
    assert_eq!(first.delete().await.status, 204);
    assert_eq!(recall(&second).await, CANARY);
}

#[tokio::test]
async fn a_process_per_workspace_ends_when_nobody_used_it_for_a_while() {
    let gateway = with_lifecycle("workspace").flags(["--idle-stop", "0.2"]).start().await;
    let project = project_with_secret("deserted");
    let client = window(&gateway, &project.path).await;
    remember(&client, CANARY).await;
    assert_ne!(gateway.descendants(), Vec::<u32>::new());
    client.delete().await;
    wait_until("the process is gone", async || gateway.descendants().is_empty()).await;
    assert_eq!(recall(&window(&gateway, &project.path).await).await, "");
}

#[tokio::test]
async fn with_a_process_per_session_nothing_is_shared() {
    for builder in
        [with_lifecycle("session"), Gateway::builder(), Gateway::builder().flag("--session-isolation")]
    {
        let gateway = builder.start().await;
        let project = project_with_secret("own");
        let (first, second) = (window(&gateway, &project.path).await, window(&gateway, &project.path).await);
        remember(&first, CANARY).await;
        assert_eq!((recall(&first).await.as_str(), recall(&second).await.as_str()), (CANARY, ""));
        first.delete().await;
        second.delete().await;
        wait_until("the processes are gone", async || gateway.descendants().is_empty()).await;
    }
}

#[tokio::test]
async fn with_a_process_per_call_nothing_survives_a_call() {
    let gateway = with_lifecycle("call").start().await;
    let (project, other) = (project_with_secret("per-call"), project_with_secret("other"));
    let client = window(&gateway, &project.path).await;
    for _ in 0..3 {
        remember(&client, CANARY).await;
        assert_eq!(recall(&client).await, "");
        assert_works_in(&client, &project.path).await;
        assert_kept_out_of(&client, &other.path).await;
        client.call_tool_for_text("spawn_daemon", json!({})).await;
        wait_until("no process is left", async || gateway.descendants().is_empty()).await;
    }
    let crashed = client.call_tool("crash", json!({})).await;
    assert_eq!(crashed["error"]["data"]["reason"], "upstream_exited", "{crashed}");
    assert_eq!(client.call_tool_for_text("echo", json!({"text": "goes on"})).await, "goes on");
    wait_until("no process is left", async || gateway.descendants().is_empty()).await;
}

#[tokio::test]
async fn a_call_that_was_cancelled_before_it_had_a_process_leaves_none_behind() {
    let gateway = with_lifecycle("call").start().await;
    let project = project_with_secret("cancelled");
    let client = open(&gateway).await;
    let (first, question) = begin_asked_call(&client, &json!("first"), "working_directory").await;
    let second = client.post_tool_call(&json!("second"), "echo", json!({"text": "x"})).await.into_events();
    client.notify("notifications/cancelled", Some(json!({"requestId": "second"}))).await;
    assert_eq!(only_message(second).await["error"]["data"]["reason"], "cancelled");
    client.respond(&question, roots(&[&project.path])).await;
    assert_eq!(text_of(&only_message(first).await), project.path.to_string_lossy());
    wait_until("no process is left", async || gateway.descendants().is_empty()).await;
}

#[tokio::test]
async fn calls_at_once_have_processes_of_their_own_and_a_cancelled_one_ends() {
    let gateway = with_lifecycle("call").start().await;
    let project = project_with_secret("at-once");
    let client = window(&gateway, &project.path).await;
    let sleeping =
        client.post_tool_call(&json!("sleeping"), "sleep", json!({"ms": 3_600_000})).await.into_events();
    assert_eq!(client.call_tool_for_text("echo", json!({"text": "beside"})).await, "beside");
    assert_ne!(gateway.descendants(), Vec::<u32>::new());
    client.notify("notifications/cancelled", Some(json!({"requestId": "sleeping"}))).await;
    assert_eq!(only_message(sleeping).await["error"]["data"]["reason"], "cancelled");
    wait_until("no process is left", async || gateway.descendants().is_empty()).await;
}

#[tokio::test]
async fn a_shared_process_works_in_the_scope_that_was_fixed_at_start() {
    let (fixed, wanted) = (project_with_secret("fixed"), project_with_secret("wanted"));
    for flags in [&["--shared"][..], &["--lifecycle", "shared"]] {
        let gateway = Gateway::builder().current_dir(&fixed.path).flags(flags).start().await;
        let by_roots = open(&gateway).await;
        let naming =
            |path: &Path| gateway.client().with_header("ringfence-workspace", path.to_str().unwrap());
        let elsewhere = naming(&wanted.path).post_initialize(&json!(1), with_roots(), NEWEST).await;
        assert_eq!(elsewhere.status, 403, "{:?}", elsewhere.body);
        assert_eq!(elsewhere.json()["error"]["data"]["reason"], "scope_refused");
        let mut by_header = naming(&fixed.path);
        by_header.open(with_roots(), NEWEST).await;
        let without_roots = gateway.open().await;
        remember(&without_roots, CANARY).await;
        for client in [&by_roots, &by_header, &without_roots] {
            let exchange = client
                .call_tool_answering("state_get", json!({"key": "k"}), |_| panic!("no request is expected"))
                .await;
            assert_eq!(text_of(&exchange.response), CANARY);
            assert_works_in(client, &fixed.path).await;
            assert_kept_out_of(client, &wanted.path).await;
        }
    }
}

/// Opens two windows of one caller on one directory, stores a value in the first, and reads it from the second.
async fn found_by_the_other_window(gateway: &Gateway, project: &Path, instances: [&str; 2]) -> String {
    let mut windows = Vec::new();
    for instance in instances {
        let mut client = gateway.client().with_header("ringfence-instance", instance);
        client.open(with_roots(), NEWEST).await;
        lock(&client, roots(&[project])).await;
        windows.push(client);
    }
    remember(&windows[0], CANARY).await;
    assert_eq!(recall(&windows[0]).await, CANARY);
    recall(&windows[1]).await
}

#[tokio::test]
async fn instances_share_a_workspace_process_only_if_they_are_not_to_be_isolated() {
    let project = project_with_secret("instances");
    let isolating = with_lifecycle("workspace").env("ENABLE_SESSION_ISOLATION", "true").start().await;
    let ids = ["test-instance-1", "test-instance-2"];
    assert_eq!(found_by_the_other_window(&isolating, &project.path, ids).await, "");
    // Sessions of one window still share.
    let same = ["test-instance-3", "test-instance-3"];
    assert_eq!(found_by_the_other_window(&isolating, &project.path, same).await, CANARY);
    // An unexpanded variable does not count as a common name.
    let unfilled = ["${CLAUDE_INSTANCE_ID}", "${CLAUDE_INSTANCE_ID}"];
    assert_eq!(found_by_the_other_window(&isolating, &project.path, unfilled).await, "");

    let pooling = with_lifecycle("workspace").env("ENABLE_SESSION_ISOLATION", "false").start().await;
    assert_eq!(found_by_the_other_window(&pooling, &project.path, ids).await, CANARY);
}

const META: &str = "io.ringfence/instance";

#[tokio::test]
async fn verbose_results_say_which_window_and_project_they_belong_to() {
    let project = project_with_secret("verbose");
    let by_flag = Gateway::builder().flag("--verbose-meta").start().await;
    let by_variable = Gateway::builder().env("MCP_VERBOSE", "true").start().await;
    let quiet = Gateway::builder().env_remove("MCP_VERBOSE").start().await;
    for (gateway, is_verbose) in [(&by_flag, true), (&by_variable, true), (&quiet, false)] {
        let mut client = gateway.client().with_header("ringfence-instance", "window-7");
        client.open(with_roots(), NEWEST).await;
        lock(&client, roots(&[&project.path])).await;
        for answer in [
            client.call_tool("echo", json!({"text": "x"})).await,
            client.call_tool("test_error_handling", json!({})).await,
            client.request("tools/list", None).await,
        ] {
            let meta = &answer["result"]["_meta"];
            if !is_verbose {
                assert!(!answer.to_string().contains("io.ringfence"), "{answer}");
                continue;
            }
            assert_eq!(meta[META]["instance_id"], "window-7", "{answer}");
            assert_eq!(meta[META]["project"], project.path.to_str().unwrap(), "{answer}");
            assert!(meta[META]["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{answer}");
            let handle = meta[META]["session"].as_str().unwrap();
            assert!(gateway.log().contains(handle), "the log knows the session by the same handle");
            assert_ne!(handle, client.session_id().unwrap());
        }
        // Errors have no `_meta`.
        let error = client.request("no/such/method", None).await;
        assert!(error["error"].is_object() && !error.to_string().contains("io.ringfence"), "{error}");
    }
}

/// The instance that `_meta` names for a client on stdio.
async fn instance_on_stdio(project: &Path, variable: Option<&str>) -> Value {
    let mut command = Command::new(ringfence_binary());
    command.arg("stdio").arg("--").arg(fixture_binary()).current_dir(project).env("MCP_VERBOSE", "true");
    match variable {
        Some(value) => command.env("INSTANCE_ID", value),
        None => command.env_remove("INSTANCE_ID"),
    };
    let mut process = PipedProcess::start(&mut command);
    let client = json!({"name": "test", "version": "0"});
    let params = json!({"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": client});
    process.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})).await;
    assert_eq!(process.read().await["id"], 1);
    process.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    process.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})).await;
    let mut answer = process.read().await;
    process.close_stdin();
    process.exit_status().await;
    answer["result"]["_meta"][META].take()
}

#[tokio::test]
async fn on_stdio_the_environment_names_the_window_unless_it_was_left_unfilled() {
    let project = project_with_secret("stdio-instance");
    let named = instance_on_stdio(&project.path, Some("window-8")).await;
    assert_eq!(
        (&named["instance_id"], &named["project"]),
        (&json!("window-8"), &json!(project.path.to_str().unwrap()))
    );
    for absent in [None, Some("${CLAUDE_INSTANCE_ID}"), Some("")] {
        let (one, two) =
            (instance_on_stdio(&project.path, absent).await, instance_on_stdio(&project.path, absent).await);
        for meta in [&one, &two] {
            let id = meta["instance_id"].as_str().unwrap();
            assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{absent:?}: {id}");
        }
        assert_ne!(one["instance_id"], two["instance_id"], "{absent:?}");
    }
}
