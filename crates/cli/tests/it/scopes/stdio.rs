//! The scope rules for the one client of `ringfence stdio`.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{
    NEWEST, StdioClient, descendants, file_uri, fixture_binary, ringfence_binary, roots, text_of, wait_until,
};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::{SECRET, add_directory, project_with_secret, with_roots};

/// A client that supports roots.
struct Client {
    stdio: StdioClient,
}

impl Client {
    /// Starts `ringfence stdio` in this directory and completes the handshake.
    async fn open(started_in: &Path, flags: &[&str]) -> Self {
        let mut client = Self::start(started_in, flags).await;
        client.notify("notifications/initialized").await;
        client
    }

    async fn start(started_in: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new(ringfence_binary());
        command.arg("stdio").args(flags).arg("--").arg(fixture_binary()).args(["--message-log", "messages"]);
        let mut stdio = StdioClient::start(command.current_dir(started_in));
        let answer = stdio.initialize(with_roots(), NEWEST).await;
        if answer["result"]["serverInfo"]["name"] != "ringfence-fixture" {
            stdio.close_stdin();
            let mut log = String::new();
            let _ = stdio.stderr.read_to_string(&mut log).await;
            panic!("{answer}\n{log}");
        }
        Self { stdio }
    }

    /// Reads a `roots/list`, which must come next, and returns its id.
    async fn roots_question(&mut self) -> Value {
        let question = self.read().await;
        assert_eq!(question["method"], "roots/list", "{question}");
        question["id"].clone()
    }

    /// Answers the `roots/list` that follows `initialized`.
    async fn lock(&mut self, answer: Value) {
        let question = self.roots_question().await;
        self.respond(&question, answer).await;
    }

    /// Calls a tool and returns its answer. Only repeated `roots/list` requests may come before it.
    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.send_call(tool, &arguments).await;
        loop {
            let answer = self.read().await;
            if answer["method"] != "roots/list" {
                assert_eq!(answer["id"], id, "{answer}");
                return answer;
            }
        }
    }

    async fn assert_works_in(&mut self, directory: &Path) {
        let file = directory.join("written");
        let answer = self.call("write_file", json!({"path": file, "text": "text"})).await;
        assert_eq!(text_of(&answer), "written");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
        let answer = self.call("read_file", json!({"path": directory.join("secret")})).await;
        assert_eq!(text_of(&answer), SECRET);
    }

    async fn assert_kept_out_of(&mut self, directory: &Path) {
        let file = directory.join("intruder");
        let write = self.call("write_file", json!({"path": file, "text": "text"})).await;
        let read = self.call("read_file", json!({"path": directory.join("secret")})).await;
        for answer in [write, read] {
            assert_eq!(answer["result"]["isError"], true, "{answer}");
            assert!(
                answer["result"]["content"][0]["text"].as_str().unwrap().contains("os error"),
                "{answer}"
            );
        }
        assert!(!file.exists());
    }
}

impl std::ops::Deref for Client {
    type Target = StdioClient;

    fn deref(&self) -> &StdioClient {
        &self.stdio
    }
}

impl std::ops::DerefMut for Client {
    fn deref_mut(&mut self) -> &mut StdioClient {
        &mut self.stdio
    }
}

const ROOTS_CHANGED: &str = "notifications/roots/list_changed";

#[tokio::test]
async fn the_roots_of_the_client_are_where_its_server_works() {
    let (project, started_in) = (project_with_secret("rooted"), project_with_secret("started-in"));
    let mut client = Client::open(&started_in.path, &[]).await;
    client.lock(roots(&[&project.path])).await;
    assert_eq!(text_of(&client.call("working_directory", json!({})).await), project.path.to_string_lossy());
    client.assert_works_in(&project.path).await;
    client.assert_kept_out_of(&started_in.path).await;
    for id in 0..5 {
        client.respond(&json!(id), roots(&[&started_in.path])).await;
    }
    client.assert_works_in(&project.path).await;
    client.assert_kept_out_of(&started_in.path).await;
    let heard = text_of(&client.call("ask", json!({"kind": "roots"})).await);
    assert!(heard.contains(&file_uri(&project.path)), "{heard}");
}

#[tokio::test]
async fn no_roots_mean_the_working_directory_and_none_without_a_default() {
    for answer in [json!({"result": {"roots": []}}), json!({"error": {"code": -32601, "message": "no"}})] {
        for flags in [&[][..], &["--no-default-scope"]] {
            let started_in = project_with_secret("started-in");
            let mut client = Client::open(&started_in.path, flags).await;
            let mut message = answer.clone();
            message["jsonrpc"] = json!("2.0");
            message["id"] = client.roots_question().await;
            client.send_call_with_id(&json!("waits"), "working_directory", &json!({})).await;
            // Answer after sending the call, so that the call is already waiting.
            client.send(&message).await;
            let answer = client.read().await;
            assert_eq!(answer["id"], "waits");
            if flags.is_empty() {
                assert_eq!(text_of(&answer), started_in.path.to_string_lossy());
                client.assert_works_in(&started_in.path).await;
            } else {
                super::assert_scope_refused(&answer);
            }
        }
    }
}

#[tokio::test]
async fn requests_wait_in_their_order_and_ping_does_not() {
    let (project, started_in) = (project_with_secret("waiting"), project_with_secret("started-in"));
    let mut client = Client::start(&started_in.path, &[]).await;
    for number in 0..20 {
        client.send_call_with_id(&json!(number), "echo", &json!({"text": number.to_string()})).await;
    }
    client.send(&json!({"jsonrpc": "2.0", "id": "ping", "method": "ping"})).await;
    assert_eq!(client.read().await, json!({"jsonrpc": "2.0", "id": "ping", "result": {}}));
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    client.send(&cancel).await;
    let cancelled = client.read().await;
    assert_eq!((&cancelled["id"], &cancelled["error"]["data"]["reason"]), (&json!(7), &json!("cancelled")));
    client.notify("notifications/initialized").await;
    client.lock(roots(&[&project.path])).await;
    let mut answered = Vec::new();
    for _ in 0..19 {
        let answer = client.read().await;
        assert_eq!(text_of(&answer), answer["id"].to_string());
        answered.push(answer["id"].as_u64().unwrap());
    }
    answered.sort_unstable();
    let all_but_one: Vec<u64> = (0..20).filter(|number| *number != 7).collect();
    assert_eq!(answered, all_but_one);
    let log = testkit::MessageLog::new(project.path.join("messages"));
    let reached: Vec<u64> = log
        .with_method("tools/call")
        .iter()
        .map(|call| call["params"]["arguments"]["text"].as_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(reached, all_but_one);
}

#[tokio::test]
async fn silence_is_named_and_can_be_broken() {
    let (project, started_in) = (project_with_secret("silent"), project_with_secret("started-in"));
    let mut client = Client::start(&started_in.path, &["--scope-timeout", "3"]).await;
    let answer = client.call("working_directory", json!({})).await;
    assert_eq!(answer["error"]["data"], json!({"reason": "scope_timeout", "missing": "initialized"}));
    client.notify("notifications/initialized").await;
    let question = client.roots_question().await;
    let answer = client.call("working_directory", json!({})).await;
    assert_eq!(answer["error"]["data"], json!({"reason": "scope_timeout", "missing": "roots"}));
    client.respond(&question, roots(&[&project.path])).await;
    assert_eq!(text_of(&client.call("working_directory", json!({})).await), project.path.to_string_lossy());
}

#[tokio::test]
async fn a_bad_answer_refuses_the_session_with_its_reason() {
    let started_in = project_with_secret("started-in");
    for bad in [json!({}), json!({"roots": [{"uri": "file:///"}]}), json!({"roots": [{"uri": "http://x"}]})] {
        let mut client = Client::open(&started_in.path, &[]).await;
        let question = client.roots_question().await;
        client.send_call_with_id(&json!("waits"), "working_directory", &json!({})).await;
        client.respond(&question, bad).await;
        let answer = client.read().await;
        assert_eq!(answer["id"], "waits");
        super::assert_scope_refused(&answer);
        for _ in 0..2 {
            super::assert_scope_refused(&client.call("echo", json!({"text": "later"})).await);
        }
    }
}

#[tokio::test]
async fn a_change_before_the_lock_is_allowed_and_one_afterwards_ends_the_session() {
    let (project, started_in) = (project_with_secret("changed"), project_with_secret("started-in"));
    let mut client = Client::open(&started_in.path, &[]).await;
    let question = client.roots_question().await;
    client.notify(ROOTS_CHANGED).await;
    client.respond(&question, roots(&[&project.path])).await;
    client.assert_works_in(&project.path).await;
    client.call("spawn_daemon", json!({})).await;
    let zygote = descendants(client.pid()).len();

    client.send_call_with_id(&json!("running"), "sleep", &json!({"ms": 3_600_000})).await;
    client.notify(ROOTS_CHANGED).await;
    let ended = client.read().await;
    assert_eq!(ended["id"], "running");
    let later = client.call("echo", json!({"text": "later"})).await;
    for answer in [ended, later] {
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
        assert_eq!(answer["error"]["data"]["reason"], "roots_change_rejected", "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("roots change not allowed after sandbox lock"), "{message}");
    }
    wait_until("the tree is gone", async || descendants(client.pid()).len() + 2 <= zygote).await;
}

#[tokio::test]
async fn other_policies_for_changes_hold_too() {
    let (project, started_in) = (project_with_secret("policies"), project_with_secret("started-in"));
    let inside = add_directory(&project, "inside");
    let mut client = Client::open(&started_in.path, &["--on-roots-change", "ignore"]).await;
    client.lock(roots(&[&project.path])).await;
    client.notify(ROOTS_CHANGED).await;
    client.assert_works_in(&project.path).await;

    let mut client = Client::open(&started_in.path, &["--on-roots-change", "compare"]).await;
    client.lock(roots(&[&project.path])).await;
    client.assert_works_in(&project.path).await;
    client.notify(ROOTS_CHANGED).await;
    client.lock(roots(&[&inside])).await;
    client.assert_works_in(&project.path).await;
    client.send_call_with_id(&json!("running"), "sleep", &json!({"ms": 3_600_000})).await;
    client.notify(ROOTS_CHANGED).await;
    client.lock(roots(&[&started_in.path])).await;
    let answer = client.read().await;
    assert_eq!(answer["error"]["data"]["reason"], "roots_change_rejected", "{answer}");
}

#[tokio::test]
async fn a_client_whose_session_was_ended_may_begin_anew() {
    let (first, second, started_in) =
        (project_with_secret("first"), project_with_secret("second"), project_with_secret("elsewhere"));
    let mut client = Client::open(&started_in.path, &[]).await;
    client.lock(roots(&[&first.path])).await;
    client.assert_works_in(&first.path).await;
    let early = client.initialize(with_roots(), NEWEST).await;
    assert_eq!(early["error"]["code"], -32600, "not while the session lives: {early}");
    client.notify("notifications/roots/list_changed").await;
    let refused = client.call("echo", json!({"text": "x"})).await;
    assert_eq!(refused["error"]["data"]["reason"], "roots_change_rejected", "{refused}");

    let again = client.initialize(with_roots(), NEWEST).await;
    assert_eq!(again["result"]["protocolVersion"], NEWEST, "{again}");
    client.notify("notifications/initialized").await;
    client.lock(roots(&[&second.path])).await;
    client.assert_works_in(&second.path).await;
    client.assert_kept_out_of(&first.path).await;
}
