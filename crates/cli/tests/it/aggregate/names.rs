//! The names of tools and prompts in an aggregate: clients see prefixes and aliases, servers their own names.

use serde_json::{Value, json};
use testkit::{Gateway, MessageLog};

use super::{
    Site, assert_contains, fixture, listed, official, one_server, open, result, script, tools, tools_with,
    with,
};

/// Starts a gateway with two fixtures, `first` and `second`, which log the messages that they read.
async fn two_fixtures(mode: &str) -> (Site, Gateway, [MessageLog; 2]) {
    let site = Site::new(&format!("names-{mode}"), &json!({}));
    let logs = ["first", "second"].map(|name| MessageLog::new(site.directory.join(name)));
    let logging = |log: &MessageLog| fixture(&["--message-log", log.path().to_str().unwrap()]);
    let configuration =
        json!({"names": mode, "servers": {"first": logging(&logs[0]), "second": logging(&logs[1])}});
    site.write_configuration(&configuration.to_string());
    let gateway = site.start_unfenced().await;
    (site, gateway, logs)
}

fn called(log: &MessageLog) -> Vec<Value> {
    log.with_method("tools/call").iter().map(|call| call["params"]["name"].clone()).collect()
}

#[tokio::test]
async fn with_a_prefix_each_server_hears_its_own_names() {
    let (_site, gateway, logs) = two_fixtures("prefix").await;
    let client = open(&gateway).await;
    let names = tools(&client).await;
    assert_contains(&names, &["first_echo", "second_echo"]);
    assert!(names.iter().all(|name| name.starts_with("first_") || name.starts_with("second_")), "{names:?}");
    assert_eq!(client.call_tool_for_text("first_echo", json!({"text": "1"})).await, "1");
    assert_eq!(client.call_tool_for_text("second_echo", json!({"text": "2"})).await, "2");
    assert_eq!(logs.each_ref().map(called), [vec![json!("echo")], vec![json!("echo")]]);
    let own = client.call_tool("echo", json!({"text": "whose?"})).await;
    assert_eq!(own["error"]["code"], -32602, "{own}");

    let prompt = json!({"name": "second_test_simple_prompt"});
    result(&client, "prompts/get", prompt).await;
    let asked = |log: &MessageLog| -> Vec<Value> {
        log.with_method("prompts/get").iter().map(|message| message["params"]["name"].clone()).collect()
    };
    assert_eq!(logs.each_ref().map(asked), [vec![], vec![json!("test_simple_prompt")]]);
}

#[tokio::test]
async fn on_conflict_only_names_that_several_have_get_a_prefix() {
    let site = Site::new(
        "names-conflict",
        &json!({"names": "conflict", "servers": {
            "everything": official("server-everything", &[]),
            "fixture": fixture(&[]),
        }}),
    );
    let gateway = site.start().await;
    let client = open(&gateway).await;
    let names = tools_with(&client, &["everything_echo", "fixture_echo", "get-sum", "pid"]).await;
    assert!(!names.iter().any(|name| name == "echo"), "{names:?}");
    assert_eq!(client.call_tool_for_text("fixture_echo", json!({"text": "f"})).await, "f");
    assert_eq!(client.call_tool_for_text("everything_echo", json!({"message": "e"})).await, "Echo: e");
    assert!(client.call_tool_for_text("get-sum", json!({"a": 1, "b": 2})).await.contains('3'));
}

#[tokio::test]
async fn without_prefixes_the_first_server_of_the_file_has_a_name() {
    let (_site, gateway, logs) = two_fixtures("none").await;
    let client = open(&gateway).await;
    let names = tools(&client).await;
    assert_eq!(names.iter().filter(|name| *name == "echo").count(), 1, "{names:?}");
    assert_eq!(client.call_tool_for_text("echo", json!({"text": "one"})).await, "one");
    assert_eq!(logs.each_ref().map(called), [vec![json!("echo")], vec![]]);
}

#[tokio::test]
async fn aliases_are_whole_names_and_rules_speak_of_the_servers_own() {
    let rules = json!({"allow": ["echo", "p*", "crash"], "deny": ["crash"], "aliases": {"echo": "say-it"}});
    let site = Site::new("rules", &one_server("box", with(fixture(&[]), "tools", rules)));
    let gateway = site.start().await;
    let client = open(&gateway).await;
    assert_eq!(tools(&client).await, ["say-it", "box_pid"]);
    assert_eq!(client.call_tool_for_text("say-it", json!({"text": "aliased"})).await, "aliased");
    assert!(client.call_tool_for_text("box_pid", json!({})).await.parse::<u32>().is_ok());
    for hidden in ["box_echo", "echo", "box_crash", "crash", "box_environment", "environment"] {
        let refused = client.call_tool(hidden, json!({})).await;
        assert_eq!(refused["error"]["code"], -32602, "{hidden}: {refused}");
    }
}

#[tokio::test]
async fn long_names_are_shortened_to_different_ones_that_can_be_called() {
    let name = "a-server-with-quite-a-long-name0";
    let tools_of_script = ["x".repeat(60), format!("{}y", "x".repeat(59))];
    let site = Site::new("long-names", &json!({}));
    let source = format!(
        "const tools = {}.map((name) => ({{ name, inputSchema: {{ type: 'object' }} }}));\n\
         const call = ({{ name }}) => ({{ content: [{{ type: 'text', text: name }}] }});\n\
         serve({{ 'tools/list': () => ({{ tools }}), 'tools/call': call }});",
        json!(tools_of_script)
    );
    let server = script(&site, "server", &source);
    site.write_configuration(&one_server(name, server).to_string());
    let gateway = site.start().await;
    let client = open(&gateway).await;
    let names = tools(&client).await;
    assert_eq!(names.len(), 2, "{names:?}: {}", gateway.log());
    assert_ne!(names[0], names[1]);
    for (shown, own) in names.iter().zip(&tools_of_script) {
        assert!(shown.len() <= 64 && shown.starts_with("a-server-with-quite"), "{shown}");
        assert_eq!(client.call_tool_for_text(shown, json!({})).await, *own, "the server sees its own name");
    }
    let again = open(&gateway).await;
    assert_eq!(tools(&again).await, names, "names do not change from session to session");
}

#[tokio::test]
async fn each_item_says_whose_it_is() {
    let site = Site::new("whose", &one_server("box", fixture(&[])));
    let gateway = site.start().await;
    let client = open(&gateway).await;
    let found = result(&client, "tools/list", json!({})).await;
    let echo = found["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "box_echo").unwrap();
    let expected = json!({"io.ringfence/server": "box", "io.ringfence/name": "echo"});
    assert_eq!(echo["_meta"], expected);
    assert_eq!(echo["description"], "Returns its text verbatim");
    assert_contains(&listed(&client, "prompts/list", "prompts", "name").await, &["box_test_simple_prompt"]);
}
