//! Official servers side by side, each in its own fence, and one at a URL: every request reaches the right server.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Gateway, RawClient, RemoteServer, wait_until};

use super::{
    Site, assert_contains, listed, official, official_python, open, open_with, reason, result, tools_with,
    with,
};

const TOKEN: &str = "a-token-that-only-the-url-wants";
const NOTE: &str = "note://current";
const FEATURES: &str = "demo://resource/static/document/features.md";

/// A gateway with six servers, and a repository to work in.
struct Six {
    site: Site,
    gateway: Gateway,
    _remote: RemoteServer,
}

impl Six {
    async fn start() -> Self {
        let remote = RemoteServer::start(&[("TOKEN", TOKEN)]).await;
        let memory = with(official("server-memory", &[]), "storage", json!("persistent"));
        let memory = with(memory, "env", json!({"MEMORY_FILE_PATH": "{storage}/memory.jsonl"}));
        let site = Site::new(
            "six",
            &json!({"servers": {
                "everything": official("server-everything", &[]),
                "filesystem": official("server-filesystem", &["{workingDirectory}"]),
                "memory": memory,
                "git": official_python("mcp-server-git", &["--repository", "{workingDirectory}"]),
                "time": official_python("mcp-server-time", &[]),
                "remote": {"url": remote.url, "bearerToken": "${REMOTE_TOKEN}"},
            }}),
        );
        make_repository(&site.project());
        let gateway = site.builder().env("REMOTE_TOKEN", TOKEN).start().await;
        Self { site, gateway, _remote: remote }
    }

    /// Opens a client and waits until the servers with resources and prompts have started.
    async fn client(&self) -> RawClient {
        let client = open(&self.gateway).await;
        tools_with(&client, &["everything_echo", "remote_add"]).await;
        client
    }

    fn path(&self, name: &str) -> String {
        self.site.project().join(name).to_str().unwrap().to_owned()
    }
}

fn make_repository(directory: &Path) {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=test", "-c", "user.email=test@example.org"]).args(arguments);
        assert!(command.current_dir(directory).output().unwrap().status.success(), "git {arguments:?}");
    };
    std::fs::write(directory.join("readme"), "hello").unwrap();
    git(&["init", "-q"]);
    git(&["add", "readme"]);
    git(&["commit", "-q", "-m", "the first commit"]);
}

async fn text(client: &RawClient, tool: &str, arguments: Value) -> String {
    client.call_tool_for_text(tool, arguments).await
}

#[tokio::test]
async fn six_servers_list_and_answer_as_one() {
    let six = Six::start().await;
    let client = open(&six.gateway).await;
    let expected = [
        "everything_echo",
        "filesystem_read_text_file",
        "git_git_log",
        "memory_create_entities",
        "remote_add",
        "time_convert_time",
    ];
    let names = tools_with(&client, &expected).await;
    let order: Vec<usize> =
        expected.iter().map(|name| names.iter().position(|found| found == name).unwrap()).collect();
    assert!(order.is_sorted(), "the order is the file's: {names:?}");
    for server in ["everything", "filesystem", "memory", "git", "time", "remote"] {
        assert_eq!(reason(&client, server).await, None, "{server}: {}", six.gateway.log());
    }

    assert_eq!(text(&client, "everything_echo", json!({"message": "hi"})).await, "Echo: hi");
    assert_eq!(
        text(&client, "filesystem_read_text_file", json!({"path": six.path("readme")})).await,
        "hello"
    );
    let entity = json!({"name": "Ada", "entityType": "person", "observations": ["counts"]});
    text(&client, "memory_create_entities", json!({"entities": [entity]})).await;
    assert!(text(&client, "memory_read_graph", json!({})).await.contains("Ada"));
    let log = text(&client, "git_git_log", json!({"repo_path": six.path(""), "max_count": 1})).await;
    assert!(log.contains("the first commit"), "{log}");
    let zones = json!({"source_timezone": "UTC", "target_timezone": "Asia/Tokyo", "time": "12:00"});
    let converted = text(&client, "time_convert_time", zones).await;
    assert!(converted.contains("21:00"), "{converted}");
    assert_eq!(text(&client, "remote_add", json!({"a": 19, "b": 23})).await, "42");
}

#[tokio::test]
async fn prompts_resources_templates_and_completions_find_their_server() {
    let six = Six::start().await;
    let client = six.client().await;
    let prompts = listed(&client, "prompts/list", "prompts", "name").await;
    assert_contains(&prompts, &["everything_simple-prompt", "everything_args-prompt"]);
    let arguments = json!({"name": "everything_args-prompt", "arguments": {"city": "Oslo"}});
    let prompt = result(&client, "prompts/get", arguments).await;
    assert!(prompt.to_string().contains("Oslo"), "{prompt}");

    let uris = listed(&client, "resources/list", "resources", "uri").await;
    assert_contains(&uris, &[FEATURES, NOTE]);
    let features = result(&client, "resources/read", json!({"uri": FEATURES})).await;
    assert_eq!(features["contents"][0]["uri"], FEATURES);
    let note = result(&client, "resources/read", json!({"uri": NOTE})).await;
    assert_eq!(note["contents"][0]["text"], "nothing yet");

    let templates = listed(&client, "resources/templates/list", "resourceTemplates", "uriTemplate").await;
    assert_contains(&templates, &["demo://resource/dynamic/text/{resourceId}"]);
    let dynamic = result(&client, "resources/read", json!({"uri": "demo://resource/dynamic/text/7"})).await;
    assert!(dynamic["contents"][0]["text"].as_str().unwrap().starts_with("Resource 7"), "{dynamic}");

    let of_prompt = json!({
        "ref": {"type": "ref/prompt", "name": "everything_completable-prompt"},
        "argument": {"name": "department", "value": "E"},
    });
    let completed = result(&client, "completion/complete", of_prompt).await;
    assert_eq!(completed["completion"]["values"], json!(["Engineering"]));
    let of_template = json!({
        "ref": {"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"},
        "argument": {"name": "resourceId", "value": "7"},
    });
    let completed = result(&client, "completion/complete", of_template).await;
    assert_eq!(completed["completion"]["values"], json!(["7"]));
}

#[tokio::test]
async fn a_resource_is_read_before_any_list_was_asked_for() {
    let six = Six::start().await;
    let client = six.client().await;
    let note = result(&client, "resources/read", json!({"uri": NOTE})).await;
    assert_eq!(note["contents"][0]["text"], "nothing yet");
    let unknown = client.request("resources/read", Some(json!({"uri": "nobody://has/this"}))).await;
    assert_eq!(unknown["error"]["code"], -32002, "{unknown}");
}

#[tokio::test]
async fn what_is_subscribed_to_at_a_url_is_news_here() {
    let six = Six::start().await;
    let client = six.client().await;
    let mut events = client.get_stream(None).await.into_events();
    result(&client, "resources/subscribe", json!({"uri": NOTE})).await;
    assert_eq!(text(&client, "remote_note", json!({"text": "changed"})).await, "1 told");
    let update = loop {
        let message = events.next_message().await.expect("the stream stays open");
        if message["method"] == "notifications/resources/updated" {
            break message;
        }
    };
    assert_eq!(update["params"]["uri"], NOTE);
    let note = result(&client, "resources/read", json!({"uri": NOTE})).await;
    assert_eq!(note["contents"][0]["text"], "changed");
    result(&client, "resources/unsubscribe", json!({"uri": NOTE})).await;
    assert_eq!(text(&client, "remote_note", json!({"text": "again"})).await, "0 told");
}

#[tokio::test]
async fn capabilities_are_the_union_of_what_the_servers_declare() {
    let six = Six::start().await;
    let expected = [
        ("tools", json!({"listChanged": true})),
        ("prompts", json!({"listChanged": true})),
        ("resources", json!({"listChanged": true, "subscribe": true})),
        ("completions", json!({})),
        ("logging", json!({})),
    ];
    // The answer to `initialize` does not wait for servers that start slowly.
    wait_until("all is declared", async || {
        let declared = declared(&six.gateway).await;
        expected.iter().all(|(name, value)| declared[name] == *value)
    })
    .await;
}

/// Opens and ends a session, and returns the capabilities that it declared.
async fn declared(gateway: &Gateway) -> Value {
    let mut client = gateway.client();
    let opened = client.open(json!({}), super::NEWEST).await;
    client.delete().await;
    opened.result["capabilities"].clone()
}

#[tokio::test]
async fn nothing_is_declared_that_no_server_has() {
    let site = Site::new("tools-only", &json!({}));
    let tools_only = super::script(&site, "tools-only", "serve({ 'tools/list': () => ({ tools: [] }) });");
    site.write_configuration(&super::one_server("tools-only", tools_only).to_string());
    let gateway = site.start().await;
    // As long as the server's capabilities are unknown, the gateway declares more than tools.
    wait_until("only tools are declared", async || {
        declared(&gateway).await == json!({"tools": {"listChanged": true}})
    })
    .await;
}

#[tokio::test]
async fn questions_and_progress_of_several_servers_reach_the_client() {
    let six = Six::start().await;
    let capabilities = json!({"sampling": {}, "elicitation": {}});
    let client = open_with(six.gateway.client(), capabilities).await;
    tools_with(&client, &["everything_trigger-sampling-request", "remote_ask"]).await;
    let sampled = client
        .call_tool_answering("everything_trigger-sampling-request", json!({"prompt": "Tag"}), |ask| {
            assert_eq!(ask["method"], "sampling/createMessage");
            Ok(json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "sampled"}}))
        })
        .await;
    assert!(sampled.response.to_string().contains("sampled"), "{:?}", sampled.response);
    let asked = client
        .call_tool_answering("remote_ask", json!({"question": "Why?"}), |ask| {
            assert_eq!(
                (&ask["method"], &ask["params"]["message"]),
                (&json!("elicitation/create"), &json!("Why?"))
            );
            Ok(json!({"action": "accept", "content": {"answer": "because"}}))
        })
        .await;
    assert_eq!(asked.response["result"]["content"][0]["text"], "because");

    for (tool, arguments) in [
        ("everything_trigger-long-running-operation", json!({"duration": 0.4, "steps": 4})),
        ("remote_slow", json!({"steps": 4})),
    ] {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "same"}});
        let run = client.request_answering("tools/call", Some(params), |ask| panic!("{ask}")).await;
        let is_progress = |message: &&Value| message["method"] == "notifications/progress";
        let progress: Vec<&Value> = run.notifications.iter().filter(is_progress).collect();
        let steps: Vec<&Value> = progress.iter().map(|message| &message["params"]["progress"]).collect();
        assert_eq!(steps, [1, 2, 3, 4], "{tool}");
        assert!(progress.iter().all(|message| message["params"]["progressToken"] == "same"));
    }
}

#[tokio::test]
async fn a_wrong_token_for_a_url_concerns_that_server_alone() {
    let remote = RemoteServer::start(&[("TOKEN", TOKEN)]).await;
    let site = Site::new(
        "wrong-token",
        &json!({"servers": {
            "good": {"url": remote.url, "bearerToken": "${GOOD}"},
            "bad": {"url": remote.url, "bearerToken": "${BAD}"},
        }}),
    );
    let gateway = site.builder().env("GOOD", TOKEN).env("BAD", "not-the-token-at-all").start().await;
    let client = open(&gateway).await;
    tools_with(&client, &["good_add"]).await;
    assert_eq!(text(&client, "good_add", json!({"a": 1, "b": 2})).await, "3");
    let why = reason(&client, "bad").await.expect("it cannot be used");
    assert!(!why.contains("not-the-token-at-all"), "{why}");
    assert!(!gateway.log().contains("not-the-token-at-all"));
    assert_eq!(reason(&client, "good").await, None, "the control");
}
