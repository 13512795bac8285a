//! Servers that are missing, silent, malformed or dead beside one that works, which keeps working. The session
//! report gives the reasons.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{Gateway, MessageLog, RawClient, ReplyBody, wait_until};

use super::{Site, fixture, open, reason, result, script, tools, with};

const FOREVER_MS: u64 = 3_600_000;

async fn works(client: &RawClient) {
    assert_eq!(client.call_tool_for_text("good_echo", json!({"text": "here"})).await, "here");
}

#[tokio::test]
async fn every_kind_of_broken_server_says_why_and_leaves_the_others_alone() {
    let site = Site::new(
        "broken",
        &json!({"servers": {
            "silent": with(fixture(&["--no-initialize-answer"]), "startTimeout", json!(1)),
            "absent": {"command": ["/no/such/program"]},
            "unset": {"command": ["true"], "env": {"API_KEY": "${NOBODY_SET_THIS}"}},
            "exits": fixture(&["--exit-at-start", "3"]),
            "mute-url": {"url": "http://127.0.0.1:9/mcp"},
            "unnamed": {},
            "off": with(fixture(&[]), "enabled", json!(false)),
            "good": fixture(&[]),
        }}),
    );
    let gateway = site.builder().env_remove("NOBODY_SET_THIS").start().await;
    let client = open(&gateway).await;
    works(&client).await;
    let names = tools(&client).await;
    assert!(!names.is_empty() && names.iter().all(|name| name.starts_with("good_")), "{names:?}");
    for (server, expected) in [
        ("silent", "did not answer initialize within 1 s"),
        ("absent", "/no/such/program"),
        ("unset", "Missing NOBODY_SET_THIS"),
        ("exits", "exited with code 3"),
        ("mute-url", ""),
        ("unnamed", "nothing to run is named"),
        ("off", ""),
    ] {
        let why = reason(&client, server).await.unwrap_or_else(|| panic!("{server} cannot be used"));
        assert!(why.contains(expected), "{server}: {why}");
    }
    assert_eq!(reason(&client, "unset").await.unwrap(), "Missing NOBODY_SET_THIS", "nothing else");
    assert_eq!(reason(&client, "good").await, None, "the control");
    works(&client).await;
}

#[tokio::test]
async fn a_call_that_may_be_for_a_broken_server_names_it() {
    let site = Site::new(
        "broken-call",
        &json!({"servers": {"exits": fixture(&["--exit-at-start", "3"]), "good": fixture(&[])}}),
    );
    let gateway = site.start().await;
    let client = open(&gateway).await;
    let refused = client.call_tool("exits_echo", json!({"text": "?"})).await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("exits_echo") && message.contains("`exits`"), "{message}");
    works(&client).await;
}

/// The pid of a server's worker, as `/sessions` reports it to the operator.
async fn worker_pid(site: &Site, gateway: &Gateway, server: &str) -> Pid {
    let workers = site.workers(gateway).await;
    let worker = workers.iter().find(|worker| worker["upstream"] == server);
    let pid = worker.and_then(|worker| worker["pid"].as_i64()).unwrap_or_else(|| panic!("{workers:?}"));
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

#[tokio::test]
async fn a_server_killed_in_a_call_fails_that_call_alone_and_comes_back_with_the_next() {
    let site = Site::new("killed", &json!({}));
    let log = MessageLog::new(site.directory.join("frail"));
    let frail =
        with(fixture(&["--message-log", log.path().to_str().unwrap()]), "fence", json!({"unfenced": true}));
    site.write_configuration(&json!({"servers": {"frail": frail, "good": fixture(&[])}}).to_string());
    let gateway = site.start().await;
    let client = open(&gateway).await;
    client.call_tool_for_text("good_state_set", json!({"key": "k", "value": "kept"})).await;
    let first = client.call_tool_for_text("frail_pid", json!({})).await;
    let id = json!("dies");
    let dying = client.post_tool_call(&id, "frail_sleep", json!({"ms": FOREVER_MS})).await;
    log.wait_for_calls("sleep", 1).await;
    let good = client.post_tool_call(&json!("lives"), "good_sleep", json!({"ms": 1000})).await;

    kill_process(worker_pid(&site, &gateway, "frail").await, Signal::KILL).unwrap();
    let died = client.finish_exchange(&id, dying, |ask| panic!("{ask}")).await.response;
    assert_eq!(died["error"]["data"]["reason"], "upstream_exited", "{died}");
    let lived = client.finish_exchange(&json!("lives"), good, |ask| panic!("{ask}")).await.response;
    assert_eq!(lived["result"]["content"][0]["text"], "slept");
    assert_eq!(client.call_tool_for_text("good_state_get", json!({"key": "k"})).await, "kept");

    let second = client.call_tool_for_text("frail_pid", json!({})).await;
    assert_ne!(first, second, "it has come back as another process");
    assert_eq!(reason(&client, "frail").await, None);
}

#[tokio::test]
async fn a_fenced_server_that_crashes_comes_back_with_the_next_call() {
    let site = Site::new("crashed", &json!({"servers": {"frail": fixture(&[]), "good": fixture(&[])}}));
    let gateway = site.start().await;
    let client = open(&gateway).await;
    let crashed = client.call_tool("frail_crash", json!({"code": 4})).await;
    assert_eq!(crashed["error"]["data"]["reason"], "upstream_exited", "{crashed}");
    works(&client).await;
    assert_eq!(client.call_tool_for_text("frail_echo", json!({"text": "back"})).await, "back");
}

/// Lists malformed tools, and a last one that is fine.
const MAD: &str = r"
const tools = [
    { name: 'no-schema' },
    { name: 'text-schema', inputSchema: 'object' },
    { name: 'wrong-type', inputSchema: { type: 'array' } },
    { name: 'wrong-required', inputSchema: { type: 'object', required: 'all' } },
    { name: 'wrong-words', description: 7, annotations: [], inputSchema: { type: 'object' } },
    { name: 7, inputSchema: { type: 'object' } },
    'not even an object',
    null,
    { name: 'fine', inputSchema: { type: 'object', properties: { a: { type: 'string' } } } },
];
serve({
    'tools/list': () => ({ tools }),
    'tools/call': ({ name }) => ({ content: [{ type: 'text', text: name }] }),
});
";

#[tokio::test]
async fn schemas_that_are_none_do_not_spoil_the_list() {
    let site = Site::new("mad", &json!({}));
    let mad = script(&site, "mad", MAD);
    site.write_configuration(&json!({"servers": {"mad": mad, "good": fixture(&[])}}).to_string());
    let gateway = site.start().await;
    let client = open(&gateway).await;
    let found = result(&client, "tools/list", json!({})).await;
    let all = found["tools"].as_array().unwrap();
    for tool in all {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(tool["name"].is_string() && tool.get("description").is_none_or(Value::is_string), "{tool}");
    }
    let names: Vec<&str> = all.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let mad: Vec<&&str> = names.iter().filter(|name| name.starts_with("mad_")).collect();
    assert_eq!(mad.len(), 6, "{names:?}");
    let fine = all.iter().find(|tool| tool["name"] == "mad_fine").unwrap();
    assert_eq!(fine["inputSchema"]["properties"]["a"]["type"], "string", "what is right stays as it is");
    assert_eq!(client.call_tool_for_text("mad_text-schema", json!({})).await, "text-schema");
    works(&client).await;
}

#[tokio::test]
async fn a_list_is_answered_without_a_server_that_takes_too_long() {
    let slow = with(fixture(&["--start-delay-ms", "3600000"]), "startTimeout", json!(300));
    let site = Site::new("slow", &json!({"servers": {"slow": slow, "good": fixture(&[])}}));
    let gateway = site.start().await;
    let client = open(&gateway).await;
    works(&client).await;
    let names = tools(&client).await;
    assert!(names.iter().all(|name| name.starts_with("good_")) && !names.is_empty(), "{names:?}");
}

/// Reads nothing and says nothing before a file appears.
const GATED: &str = r"
import { existsSync } from 'node:fs';
while (!existsSync('GATE')) await new Promise((done) => setTimeout(done, 20));
serve({
    'tools/list': () => ({ tools: [{ name: 'say', inputSchema: { type: 'object' } }] }),
    'tools/call': () => ({ content: [{ type: 'text', text: 'said' }] }),
});
";

#[tokio::test]
async fn initialize_is_answered_while_every_member_hangs() {
    let site = Site::new("all-hang", &json!({}));
    let gate = site.directory.join("gate");
    let source = GATED.replace("GATE", gate.to_str().unwrap());
    let names = ["one", "two", "three"];
    let servers: serde_json::Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), with(script(&site, name, &source), "startTimeout", json!(300))))
        .collect();
    site.write_configuration(&json!({ "servers": servers }).to_string());
    // Without fences, so that they see the file.
    let gateway = site.start_unfenced().await;
    let mut client = gateway.client();
    let opened = client.open(json!({}), testkit::NEWEST).await;
    assert_eq!(opened.result["serverInfo"]["name"], "ringfence");
    assert!(opened.result["capabilities"]["tools"].is_object(), "{:?}", opened.result);
    std::fs::write(gate, "").unwrap();
    // The control: they had not failed, they had only not answered.
    super::tools_with(&client, &["one_say", "two_say", "three_say"]).await;
    assert_eq!(client.call_tool_for_text("two_say", json!({})).await, "said");
}

#[tokio::test]
async fn a_server_that_is_late_is_news_once_it_has_come() {
    let late = with(fixture(&["--start-delay-ms", "12000"]), "startTimeout", json!(60));
    let site = Site::new("late", &json!({"servers": {"late": late, "good": fixture(&[])}}));
    let gateway = site.start().await;
    let client = open(&gateway).await;
    let mut events = client.get_stream(None).await.into_events();
    works(&client).await;
    // A call waits for the late server, whether or not the first list had its tools.
    assert_eq!(client.call_tool_for_text("late_echo", json!({"text": "late"})).await, "late");
    let message = events.next_message().await.unwrap();
    assert_eq!(message["method"], "notifications/tools/list_changed", "{message}");
    wait_until("it is listed", async || tools(&client).await.contains(&"late_echo".to_owned())).await;
}

#[tokio::test]
async fn lines_that_are_no_messages_concern_one_server() {
    let site = Site::new("garbage", &json!({"servers": {"mad": fixture(&[]), "good": fixture(&[])}}));
    let gateway = site.start().await;
    let client = open(&gateway).await;
    let reply =
        client.post_tool_call(&json!(1), "mad_raw_stdout", json!({"line": "{\"jsonrpc\": garbage"})).await;
    assert!(matches!(reply.body, ReplyBody::Json(_) | ReplyBody::Sse(_)), "{:?}", reply.body);
    let _ = reply.answer_text().await;
    works(&client).await;
    assert_eq!(client.call_tool_for_text("mad_echo", json!({"text": "too"})).await, "too");
}

/// Lists its tools, but never answers `prompts/list`.
const HALF_MUTE: &str = r"
serve({
    initialize: ({ protocolVersion }) => ({
        protocolVersion, capabilities: { tools: {}, prompts: {} }, serverInfo: { name: 'half', version: '1' },
    }),
    'tools/list': () => ({ tools: [{ name: 'say', inputSchema: { type: 'object' } }] }),
    'tools/call': () => ({ content: [{ type: 'text', text: 'said' }] }),
    'prompts/list': () => NEVER,
});
";

#[tokio::test]
async fn a_server_that_never_lists_its_prompts_leaves_the_others_alone() {
    let site = Site::new("half-mute", &json!({}));
    let half = script(&site, "half", HALF_MUTE);
    site.write_configuration(&json!({"servers": {"half": half, "good": fixture(&[])}}).to_string());
    let gateway = site.start().await;
    let client = open(&gateway).await;
    works(&client).await;
    let prompts = super::listed(&client, "prompts/list", "prompts", "name").await;
    assert!(prompts.contains(&"good_test_simple_prompt".to_owned()), "{prompts:?}");
    assert!(tools(&client).await.contains(&"good_echo".to_owned()));
}
