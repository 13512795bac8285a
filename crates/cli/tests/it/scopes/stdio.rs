//! The same rules for the one client of `ringfence stdio`.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{PipedProcess, descendants, fixture_binary, ringfence_binary, wait_until};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::{NEWEST, Project, SECRET, roots, text_of, with_roots};

struct Client {
    process: PipedProcess,
    last_id: u64,
}

impl Client {
    /// Started elsewhere than in the project, with the handshake done.
    async fn open(started_in: &Path, flags: &[&str]) -> Self {
        let mut client = Self::start(started_in, flags).await;
        client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        client
    }

    async fn start(started_in: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new(ringfence_binary());
        command.arg("stdio").args(flags).arg("--").arg(fixture_binary()).args(["--message-log", "messages"]);
        let mut client = Self { process: PipedProcess::start(command.current_dir(started_in)), last_id: 0 };
        let answer = client.initialize().await;
        if answer["result"]["serverInfo"]["name"] != "ringfence-fixture" {
            client.process.close_stdin();
            let mut log = String::new();
            let _ = client.process.stderr.read_to_string(&mut log).await;
            panic!("{answer}\n{log}");
        }
        client
    }

    async fn initialize(&mut self) -> Value {
        let information = json!({"name": "test", "version": "0"});
        let params =
            json!({"protocolVersion": NEWEST, "capabilities": with_roots(), "clientInfo": information});
        self.send(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})).await;
        self.next().await
    }

    async fn send(&mut self, message: Value) {
        self.process.send(&message).await;
    }

    async fn next(&mut self) -> Value {
        self.process.read().await
    }

    async fn send_call(&mut self, id: &Value, tool: &str, arguments: Value) {
        let params = json!({"name": tool, "arguments": arguments});
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})).await;
    }

    async fn respond(&mut self, id: &Value, result: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
    }

    /// The id of the `roots/list` that comes next.
    async fn roots_question(&mut self) -> Value {
        let question = self.next().await;
        assert_eq!(question["method"], "roots/list", "{question}");
        question["id"].clone()
    }

    /// Answers the question that follows `initialized`.
    async fn lock(&mut self, answer: Value) {
        let question = self.roots_question().await;
        self.respond(&question, answer).await;
    }

    /// Calls a tool when nothing else is on its way but questions for roots that were asked before.
    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.last_id += 1;
        let id = json!(self.last_id);
        self.send_call(&id, tool, arguments).await;
        loop {
            let answer = self.next().await;
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

    fn pid(&self) -> u32 {
        self.process.child.id().unwrap()
    }
}

const ROOTS_CHANGED: &str = "notifications/roots/list_changed";

#[tokio::test]
async fn the_roots_of_the_client_are_where_its_server_works() {
    let (project, started_in) = (Project::new("rooted"), Project::new("started-in"));
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
    assert!(heard.contains(&super::file_uri(&project.path)), "{heard}");
}

#[tokio::test]
async fn no_roots_mean_the_working_directory_and_none_without_a_default() {
    for answer in [json!({"result": {"roots": []}}), json!({"error": {"code": -32601, "message": "no"}})] {
        for flags in [&[][..], &["--no-default-scope"]] {
            let started_in = Project::new("started-in");
            let mut client = Client::open(&started_in.path, flags).await;
            let mut message = answer.clone();
            message["jsonrpc"] = json!("2.0");
            message["id"] = client.roots_question().await;
            client.send_call(&json!("waits"), "working_directory", json!({})).await;
            // Written behind the call, so that the call is waiting by then.
            client.send(message).await;
            let answer = client.next().await;
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
    let (project, started_in) = (Project::new("waiting"), Project::new("started-in"));
    let mut client = Client::start(&started_in.path, &[]).await;
    for number in 0..20 {
        client.send_call(&json!(number), "echo", json!({"text": number.to_string()})).await;
    }
    client.send(json!({"jsonrpc": "2.0", "id": "ping", "method": "ping"})).await;
    assert_eq!(client.next().await, json!({"jsonrpc": "2.0", "id": "ping", "result": {}}));
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    client.send(cancel).await;
    let cancelled = client.next().await;
    assert_eq!((&cancelled["id"], &cancelled["error"]["data"]["reason"]), (&json!(7), &json!("cancelled")));
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    client.lock(roots(&[&project.path])).await;
    let mut answered = Vec::new();
    for _ in 0..19 {
        let answer = client.next().await;
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
    let (project, started_in) = (Project::new("silent"), Project::new("started-in"));
    let mut client = Client::start(&started_in.path, &["--scope-timeout", "1"]).await;
    let answer = client.call("working_directory", json!({})).await;
    assert_eq!(answer["error"]["data"], json!({"reason": "scope_timeout", "missing": "initialized"}));
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let question = client.roots_question().await;
    let answer = client.call("working_directory", json!({})).await;
    assert_eq!(answer["error"]["data"], json!({"reason": "scope_timeout", "missing": "roots"}));
    client.respond(&question, roots(&[&project.path])).await;
    assert_eq!(text_of(&client.call("working_directory", json!({})).await), project.path.to_string_lossy());
}

#[tokio::test]
async fn a_bad_answer_refuses_the_session_with_its_reason() {
    let started_in = Project::new("started-in");
    for bad in [json!({}), json!({"roots": [{"uri": "file:///"}]}), json!({"roots": [{"uri": "http://x"}]})] {
        let mut client = Client::open(&started_in.path, &[]).await;
        let question = client.roots_question().await;
        client.send_call(&json!("waits"), "working_directory", json!({})).await;
        client.respond(&question, bad).await;
        let answer = client.next().await;
        assert_eq!(answer["id"], "waits");
        super::assert_scope_refused(&answer);
        for _ in 0..2 {
            super::assert_scope_refused(&client.call("echo", json!({"text": "later"})).await);
        }
    }
}

#[tokio::test]
async fn a_change_before_the_lock_is_allowed_and_one_afterwards_ends_the_session() {
    let (project, started_in) = (Project::new("changed"), Project::new("started-in"));
    let mut client = Client::open(&started_in.path, &[]).await;
    let question = client.roots_question().await;
    client.send(json!({"jsonrpc": "2.0", "method": ROOTS_CHANGED})).await;
    client.respond(&question, roots(&[&project.path])).await;
    client.assert_works_in(&project.path).await;
    client.call("spawn_daemon", json!({})).await;
    let zygote = descendants(client.pid()).len();

    client.send_call(&json!("running"), "sleep", json!({"ms": 3_600_000})).await;
    client.send(json!({"jsonrpc": "2.0", "method": ROOTS_CHANGED})).await;
    let ended = client.next().await;
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
    let (project, started_in) = (Project::new("policies"), Project::new("started-in"));
    let inside = project.add("inside");
    let mut client = Client::open(&started_in.path, &["--on-roots-change", "ignore"]).await;
    client.lock(roots(&[&project.path])).await;
    client.send(json!({"jsonrpc": "2.0", "method": ROOTS_CHANGED})).await;
    client.assert_works_in(&project.path).await;

    let mut client = Client::open(&started_in.path, &["--on-roots-change", "compare"]).await;
    client.lock(roots(&[&project.path])).await;
    client.assert_works_in(&project.path).await;
    client.send(json!({"jsonrpc": "2.0", "method": ROOTS_CHANGED})).await;
    client.lock(roots(&[&inside])).await;
    client.assert_works_in(&project.path).await;
    client.send_call(&json!("running"), "sleep", json!({"ms": 3_600_000})).await;
    client.send(json!({"jsonrpc": "2.0", "method": ROOTS_CHANGED})).await;
    client.lock(roots(&[&started_in.path])).await;
    let answer = client.next().await;
    assert_eq!(answer["error"]["data"]["reason"], "roots_change_rejected", "{answer}");
}

#[tokio::test]
async fn a_client_whose_session_was_ended_may_begin_anew() {
    let (first, second, started_in) =
        (Project::new("first"), Project::new("second"), Project::new("elsewhere"));
    let mut client = Client::open(&started_in.path, &[]).await;
    client.lock(roots(&[&first.path])).await;
    client.assert_works_in(&first.path).await;
    let early = client.initialize().await;
    assert_eq!(early["error"]["code"], -32600, "not while the session lives: {early}");
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})).await;
    let refused = client.call("echo", json!({"text": "x"})).await;
    assert_eq!(refused["error"]["data"]["reason"], "roots_change_rejected", "{refused}");

    let again = client.initialize().await;
    assert_eq!(again["result"]["protocolVersion"], NEWEST, "{again}");
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    client.lock(roots(&[&second.path])).await;
    client.assert_works_in(&second.path).await;
    client.assert_kept_out_of(&first.path).await;
}
