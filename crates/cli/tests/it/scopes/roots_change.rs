//! `notifications/roots/list_changed`: a session's rights never grow, and by default it ends.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::{Value, json};
use testkit::{
    EventStream, Gateway, NEWEST, RawClient, Reply, file_uri, node_binary, roots, run_part, text_of,
    wait_until,
};

use super::{
    add_directory, assert_kept_out_of, assert_works_in, begin_asked_call, only_message, open,
    project_with_secret, roots_question, try_tool, window, with_roots,
};

async fn roots_changed(client: &RawClient) -> Reply {
    client.notify("notifications/roots/list_changed", None).await
}

fn assert_change_rejected(message: &Value) {
    assert_eq!(message["jsonrpc"], "2.0", "{message}");
    assert_eq!(message["error"]["code"], -32600, "{message}");
    assert_eq!(message["error"]["data"]["reason"], "roots_change_rejected", "{message}");
    let text = message["error"]["message"].as_str().unwrap();
    assert!(
        text.contains("Session terminated: roots change not allowed after sandbox lock")
            && text.contains("reconnect to start a new session")
            && text.contains("--on-roots-change compare"),
        "the founding words are missing: {text}"
    );
}

fn assert_terminated(reply: &Reply, id: &Value) {
    assert_eq!(reply.status, 403, "{:?}", reply.body);
    assert_eq!(reply.json()["id"], *id);
    assert_change_rejected(reply.json());
}

/// The session's handle in a line of the log.
fn handle_in(line: &str) -> &str {
    let start = line.find("session=").unwrap_or_else(|| panic!("no session in {line}")) + "session=".len();
    line[start..].split_whitespace().next().unwrap().trim_matches('"')
}

#[tokio::test]
async fn a_change_after_the_lock_ends_the_session_for_good() {
    let gateway = Gateway::builder().start().await;
    let project = project_with_secret("changed");
    let client = window(&gateway, &project.path).await;
    let locked = handle_in(&gateway.wait_for_log("scope locked").await).to_owned();
    for tool in ["spawn_child", "spawn_daemon"] {
        client.call_tool_for_text(tool, json!({})).await;
    }
    assert!(gateway.descendants().len() >= 3, "a server, its child and an orphan");
    let mut get = client.get_stream(None).await.into_events();
    let running =
        client.post_tool_call(&json!("running"), "sleep", json!({"ms": 3_600_000})).await.into_events();

    assert_terminated(&roots_changed(&client).await, &Value::Null);
    assert_change_rejected(&only_message(running).await);
    assert_eq!(get.next_message().await, None, "the stream ends");
    wait_until("the whole tree is gone", async || gateway.descendants().is_empty()).await;
    assert!(!gateway.report().await["sessions"].is_null());

    for round in 0..3 {
        let id = json!(round);
        assert_terminated(&client.post_tool_call(&id, "echo", json!({"text": "x"})).await, &id);
        assert_terminated(&client.post_request(&id, "ping", None).await, &id);
        assert_terminated(&client.get_stream(None).await, &Value::Null);
        assert_terminated(&roots_changed(&client).await, &Value::Null);
        assert_terminated(&client.respond(&json!(1), roots(&[&project.path])).await, &Value::Null);
        wait_until("the session is out of the list", async || gateway.open_sessions().await == 0).await;
    }

    let line = gateway.wait_for_log("roots changed after the scope was locked").await;
    assert_eq!(handle_in(&line), locked);
    assert!(line.contains("ERROR") && line.contains(&*project.path.to_string_lossy()), "{line}");
    assert!(line.contains("notifications/roots/list_changed"), "{line}");
    assert!(!gateway.log().contains(client.session_id().unwrap()), "session ids are credentials");

    // The client can simply start over, even with the old id in the header.
    let mut client = client;
    client.open(with_roots(), NEWEST).await;
    let answer =
        client.call_tool_answering("working_directory", json!({}), |_| Ok(roots(&[&project.path]))).await;
    assert_eq!(text_of(&answer.response), project.path.to_string_lossy());
}

#[tokio::test]
async fn a_session_that_was_ended_by_a_change_cannot_be_deleted_out_of_memory() {
    let gateway = Gateway::builder().start().await;
    let project = project_with_secret("deleted");
    let client = window(&gateway, &project.path).await;
    assert_terminated(&roots_changed(&client).await, &Value::Null);
    for _ in 0..2 {
        assert_terminated(&client.delete().await, &Value::Null);
        let id = json!("after");
        assert_terminated(&client.post_request(&id, "tools/list", None).await, &id);
        wait_until("the session is out of the list", async || gateway.open_sessions().await == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_while_the_session_ends_hears_the_same_reason() {
    let gateway = Gateway::builder().flags(["--grace", "0.2"]).start().await;
    let project = project_with_secret("meanwhile");
    for _ in 0..5 {
        let client = window(&gateway, &project.path).await;
        // A server that ignores SIGTERM makes the session take a while to end.
        client.call_tool_for_text("ignore_term", json!({})).await;
        let changed = {
            let client = client.clone();
            tokio::spawn(async move { roots_changed(&client).await })
        };
        let id = json!("meanwhile");
        wait_for_end(&client).await;
        while !changed.is_finished() {
            assert_terminated(&client.post_request(&id, "ping", None).await, &id);
        }
        assert_terminated(&changed.await.unwrap(), &Value::Null);
    }
}

#[tokio::test]
async fn other_sessions_live_on_when_one_ends_by_a_change() {
    let gateway = Gateway::builder().start().await;
    let project = project_with_secret("neighbours");
    let (ends, stays) = (window(&gateway, &project.path).await, window(&gateway, &project.path).await);
    assert_terminated(&roots_changed(&ends).await, &Value::Null);
    assert_works_in(&stays, &project.path).await;
}

#[tokio::test]
async fn a_change_before_the_lock_is_taken_note_of_and_the_session_goes_on() {
    let gateway = Gateway::builder().start().await;
    let project = project_with_secret("before");
    let client = open(&gateway).await;
    assert_eq!(roots_changed(&client).await.status, 202);
    let (events, question) = begin_asked_call(&client, &json!("call"), "working_directory").await;
    let reply = roots_changed(&client).await;
    assert_eq!((reply.status.as_u16(), reply.raw.len()), (202, 0));
    client.respond(&question, roots(&[&project.path])).await;
    assert_eq!(text_of(&only_message(events).await), project.path.to_string_lossy());
    assert_works_in(&client, &project.path).await;
    // The control: a change after the lock ends the session.
    assert_terminated(&roots_changed(&client).await, &Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_races_the_lock_is_before_it_or_after_it() {
    let gateway = Gateway::builder().start().await;
    let (project, other) = (project_with_secret("raced"), project_with_secret("other"));
    for _ in 0..20 {
        let client = open(&gateway).await;
        let (events, question) = begin_asked_call(&client, &json!("call"), "working_directory").await;
        let (_, changed) =
            tokio::join!(client.respond(&question, roots(&[&project.path])), roots_changed(&client));
        let answer = only_message(events).await;
        if changed.status == 202 {
            assert_eq!(text_of(&answer), project.path.to_string_lossy());
            assert_works_in(&client, &project.path).await;
            assert_kept_out_of(&client, &other.path).await;
        } else {
            assert_terminated(&changed, &Value::Null);
            let id = json!("later");
            assert_terminated(&client.post_request(&id, "tools/list", None).await, &id);
        }
        let _ = client.delete().await;
    }
    wait_until("nothing runs", async || gateway.descendants().is_empty()).await;
}

async fn comparing(project: &Path) -> (Gateway, RawClient, EventStream) {
    let flags = ["--on-roots-change", "compare", "--scope-timeout", "8"];
    let gateway = Gateway::builder().flags(flags).start().await;
    let client = window(&gateway, project).await;
    let get = client.get_stream(None).await.into_events();
    (gateway, client, get)
}

async fn wait_for_end(client: &RawClient) {
    wait_until("the session is over", async || {
        let id = client.next_id();
        let reply = client.post_request(&id, "ping", None).await;
        if reply.status == 200 {
            return false;
        }
        assert_terminated(&reply, &id);
        true
    })
    .await;
}

#[tokio::test]
async fn compared_roots_that_lie_in_the_scope_keep_the_session_and_its_process() {
    let project = project_with_secret("compared");
    let inside = add_directory(&project, "inside");
    let link = project.path.join("link");
    std::os::unix::fs::symlink(&inside, &link).unwrap();
    for same_or_narrower in [&project.path, &inside, &link] {
        let (gateway, client, mut get) = comparing(&project.path).await;
        client.call_tool_for_text("state_set", json!({"key": "k", "value": "v"})).await;
        assert_eq!(roots_changed(&client).await.status, 202);
        let question = roots_question(&mut get).await;
        client.respond(&question, roots(&[same_or_narrower])).await;
        gateway.wait_for_log("the client's roots changed within the scope").await;
        assert_eq!(client.call_tool_for_text("state_get", json!({"key": "k"})).await, "v");
        assert_works_in(&client, &project.path).await;
    }
}

#[tokio::test]
async fn compared_roots_that_lie_elsewhere_end_the_session() {
    let (project, other) = (project_with_secret("compared"), project_with_secret("other"));
    let sibling = project
        .path
        .with_file_name(format!("{}-sibling", project.path.file_name().unwrap().to_string_lossy()));
    std::fs::create_dir(&sibling).unwrap();
    let parent = project.path.parent().unwrap().to_owned();
    for elsewhere in [&other.path, &sibling, &parent, Path::new("/")] {
        let (gateway, client, mut get) = comparing(&project.path).await;
        assert_eq!(roots_changed(&client).await.status, 202);
        let question = roots_question(&mut get).await;
        client.respond(&question, roots(&[elsewhere])).await;
        wait_for_end(&client).await;
        wait_until("the process is gone", async || gateway.descendants().is_empty()).await;
    }
    std::fs::remove_dir(&sibling).unwrap();
}

#[tokio::test]
async fn compared_roots_that_are_garbage_or_never_told_end_the_session() {
    let project = project_with_secret("compared");
    for answer in [Some(json!({"roots": "all"})), Some(json!({"roots": [{"uri": "http://x"}]})), None] {
        let (_gateway, client, mut get) = comparing(&project.path).await;
        assert_eq!(roots_changed(&client).await.status, 202);
        let question = roots_question(&mut get).await;
        if let Some(answer) = answer {
            client.respond(&question, answer).await;
        }
        wait_for_end(&client).await;
    }
}

#[tokio::test]
async fn of_several_roots_each_must_lie_in_the_scope_to_keep_the_session() {
    let projects = ["first", "second", "third"].map(project_with_secret);
    let paths: Vec<&Path> = projects.iter().map(|project| project.path.as_path()).collect();
    let flags = ["--roots", "all", "--on-roots-change", "compare"];
    let gateway = Gateway::builder().flags(flags).start().await;
    let client = open(&gateway).await;
    super::lock(&client, roots(&paths[..2])).await;
    let mut get = client.get_stream(None).await.into_events();
    for within in [&paths[1..2], &[paths[1], paths[0]][..]] {
        assert_eq!(roots_changed(&client).await.status, 202);
        let question = roots_question(&mut get).await;
        client.respond(&question, roots(within)).await;
        gateway.wait_for_log("the client's roots changed within the scope").await;
        assert_works_in(&client, paths[0]).await;
    }
    assert_eq!(roots_changed(&client).await.status, 202);
    let question = roots_question(&mut get).await;
    client.respond(&question, roots(&paths)).await;
    wait_for_end(&client).await;
}

#[tokio::test]
async fn an_ignored_change_leaves_everything_as_it_is() {
    let gateway = Gateway::builder().flags(["--on-roots-change", "ignore"]).start().await;
    let (project, other) = (project_with_secret("ignored"), project_with_secret("other"));
    let client = window(&gateway, &project.path).await;
    for _ in 0..3 {
        assert_eq!(roots_changed(&client).await.status, 202);
        let exchange =
            client.call_tool_answering("ask", json!({"kind": "roots"}), |_| Ok(roots(&[&other.path]))).await;
        assert_eq!(exchange.server_requests, Vec::<Value>::new(), "the client is not asked again");
        assert!(text_of(&exchange.response).contains(&file_uri(&project.path)));
        assert_works_in(&client, &project.path).await;
        assert_kept_out_of(&client, &other.path).await;
    }
}

#[tokio::test]
async fn a_client_that_is_to_start_over_is_told_that_its_session_is_unknown() {
    let gateway = Gateway::builder().flags(["--on-roots-change", "reinit"]).start().await;
    let (project, other) = (project_with_secret("before"), project_with_secret("after"));
    let mut client = window(&gateway, &project.path).await;
    let reply = roots_changed(&client).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["error"]["code"]), (404, &json!(-32001)));
    for _ in 0..2 {
        let reply = client.post_request(&json!(1), "tools/list", None).await;
        assert_eq!((reply.status.as_u16(), &reply.json()["error"]["code"]), (404, &json!(-32001)));
        wait_until("the process is gone", async || gateway.descendants().is_empty()).await;
    }
    client.open(with_roots(), NEWEST).await;
    super::lock(&client, roots(&[&other.path])).await;
    assert_works_in(&client, &other.path).await;
    assert_kept_out_of(&client, &project.path).await;
}

#[tokio::test]
async fn a_scope_that_did_not_come_from_roots_is_not_touched_by_their_change() {
    let (named, default) = (project_with_secret("named"), project_with_secret("default"));
    let gateway = Gateway::builder().current_dir(&default.path).start().await;
    let mut by_header = gateway.client().with_header("ringfence-workspace", &named.path.to_string_lossy());
    by_header.open(with_roots(), NEWEST).await;
    let by_default = gateway.open().await;
    let by_empty_list = open(&gateway).await;
    super::lock(&by_empty_list, json!({"roots": []})).await;
    for (client, path) in
        [(&by_header, &named.path), (&by_default, &default.path), (&by_empty_list, &default.path)]
    {
        for _ in 0..2 {
            let reply = roots_changed(client).await;
            assert_eq!((reply.status.as_u16(), reply.raw.len()), (202, 0));
            assert_works_in(client, path).await;
        }
    }
}

#[tokio::test]
async fn a_process_that_several_sessions_share_outlives_the_changes_of_one() {
    let project = project_with_secret("shared");
    for flags in [&["--shared"][..], &["--lifecycle", "workspace"]] {
        let gateway = Gateway::builder().current_dir(&project.path).flags(flags).start().await;
        let open_one = async || {
            let client = open(&gateway).await;
            let exchange = client
                .call_tool_answering("working_directory", json!({}), |_| Ok(roots(&[&project.path])))
                .await;
            assert_eq!(text_of(&exchange.response), project.path.to_string_lossy());
            client
        };
        let (first, second) = (open_one().await, open_one().await);
        first.call_tool_for_text("state_set", json!({"key": "k", "value": "v"})).await;
        for _ in 0..3 {
            let reply = roots_changed(&first).await;
            assert_eq!((reply.status.as_u16(), reply.raw.len()), (202, 0), "{flags:?}");
        }
        for client in [&first, &second] {
            assert_eq!(try_tool(client, "state_get", json!({"key": "k"})).await, Ok("v".into()), "{flags:?}");
            assert_works_in(client, &project.path).await;
        }
    }
}

/// The official SDK as an application uses it that connects again when its session is over. Prints where it worked
/// before and after its folder changed, and what it was told in between.
const RECONNECTING: &str = r"
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ListRootsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { pathToFileURL } from 'node:url';
const [url, ...folders] = process.argv.slice(1);
const client = new Client({ name: 'reconnecting', version: '1.0.0' }, { capabilities: { roots: { listChanged: true } } });
client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [{ uri: pathToFileURL(folders[0]).href }] }));
const connect = () => client.connect(new StreamableHTTPClientTransport(new URL(url)));
const where = async () => (await client.callTool({ name: 'working_directory', arguments: {} })).content[0].text;
await connect();
const before = await where();
folders.shift();
let told = '';
try {
    await client.sendRootsListChanged();
    await where();
} catch (error) {
    told = String(error);
    await client.close();
    await connect();
}
console.log(JSON.stringify({ before, told, after: await where() }));
process.exit(0);
";

#[tokio::test]
async fn an_application_that_connects_again_works_in_the_new_folder_without_a_human() {
    let (old, new) = (project_with_secret("old"), project_with_secret("new"));
    for (policy, told) in [("terminate", "reconnect to start a new session"), ("reinit", "Session not found")]
    {
        let gateway = Gateway::builder().flags(["--on-roots-change", policy]).start().await;
        let folders = [old.path.as_os_str(), new.path.as_os_str()];
        let words = ["--input-type=module", "-e", RECONNECTING, gateway.url()].map(OsStr::new);
        let ended = run_part(&node_binary(), words.into_iter().chain(folders)).await.succeeded("the client");
        let seen: Value = serde_json::from_str(ended.stdout.trim()).unwrap();
        assert_eq!(seen["before"], *old.path.to_string_lossy(), "{seen}");
        assert_eq!(seen["after"], *new.path.to_string_lossy(), "{policy}: {seen}");
        assert!(seen["told"].as_str().unwrap().contains(told), "{policy}: {seen}");
    }
}
