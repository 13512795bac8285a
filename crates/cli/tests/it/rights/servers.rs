//! What a principal gets in its directories: servers, tools, leave to write, secrets, and how much of each.

use serde_json::{Value, json};
use testkit::wait_until;

use super::{ALICE, BOB, Site, fixture, initialize, tools};

/// Alice and Bob each have their own project; Alice has these rights besides.
fn principals(site: &Site, rights: &Value) -> Value {
    let mut alice = json!({"scopes": [site.project("alice")]});
    for (key, value) in rights.as_object().unwrap() {
        alice[key] = value.clone();
    }
    json!({"alice": alice, "bob": {"scopes": [site.project("bob")]}})
}

#[tokio::test]
async fn servers_and_tools_are_those_of_the_principal() {
    let site = Site::new("rights-servers");
    let rights = json!({"servers": ["box"], "tools": {"deny": ["*_write_*"]}});
    let servers = json!({"box": fixture(), "other": fixture()});
    site.configure(&json!({"servers": servers, "principals": principals(&site, &rights)}));
    let gateway = site.builder().start().await;
    let alice = site.open(&gateway, ALICE, "alice").await;
    let bob = site.open(&gateway, BOB, "bob").await;
    let mut seen = Vec::new();
    for (client, expected) in [(&alice, "box_echo"), (&bob, "other_echo")] {
        wait_until("the tools are listed", async || {
            seen = tools(client).await;
            seen.iter().any(|tool| tool == expected)
        })
        .await;
        let is_alice = expected == "box_echo";
        assert_eq!(seen.iter().any(|tool| tool.starts_with("other_")), !is_alice, "{seen:?}");
        assert_eq!(seen.iter().any(|tool| tool == "box_write_file"), !is_alice, "{seen:?}");
    }
    let write = json!({"path": "forged", "text": "x"});
    for tool in ["box_write_file", "other_write_file", "other_echo"] {
        let refused = alice.call_tool(tool, write.clone()).await;
        assert_eq!(refused["error"]["code"], -32602, "{tool}: {refused}");
    }
    assert!(!site.project("alice").join("forged").exists());
    bob.call_tool_for_text("box_write_file", write).await;
    assert!(site.project("bob").join("forged").exists(), "the control");
    let report = alice.session_report().await;
    assert!(report["servers"]["other"].is_null() && report["servers"]["box"].is_object(), "{report}");
}

#[tokio::test]
async fn a_principal_that_may_only_read_writes_nowhere() {
    let site = Site::new("rights-reader");
    let servers = json!({
        "box": fixture(),
        "filesystem": {},
        "open": {"command": fixture()["command"], "fence": {"unfenced": true}},
    });
    let principals = principals(&site, &json!({"readOnly": true}));
    site.configure(&json!({"servers": servers, "principals": principals}));
    let gateway = site.builder().start().await;
    let alice = site.open(&gateway, ALICE, "alice").await;
    let bob = site.open(&gateway, BOB, "bob").await;
    let write = json!({"path": "written", "text": "x"});
    let refused = alice.call_tool("box_write_file", write.clone()).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert!(!site.project("alice").join("written").exists());
    bob.call_tool_for_text("box_write_file", write).await;
    assert!(site.project("bob").join("written").exists(), "the control");

    std::fs::write(site.project("alice").join("notes"), "of alice").unwrap();
    assert_eq!(alice.call_tool_for_text("box_read_file", json!({"path": "notes"})).await, "of alice");
    let report = alice.session_report().await;
    let reason = report["servers"]["open"]["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("has no fence"), "{report}");
    let mut seen = [Vec::new(), Vec::new()];
    for (client, seen) in [&alice, &bob].into_iter().zip(&mut seen) {
        wait_until("the built-in tools are listed", async || {
            *seen = tools(client).await;
            seen.iter().any(|tool| tool == "filesystem_read_file")
        })
        .await;
    }
    let writes = |tools: &[String]| tools.iter().any(|tool| tool == "filesystem_write_file");
    assert_eq!(seen.each_ref().map(|tools| writes(tools)), [false, true], "{seen:?}");
}

#[tokio::test]
async fn limits_are_those_of_the_principal() {
    let site = Site::new("rights-limits");
    let rights = json!({"limits": {"sessions": 1, "callsPerSecond": 1}});
    let gateway = site.gateway(&principals(&site, &rights)).start().await;
    let alice = site.open(&gateway, ALICE, "alice").await;
    let _bobs = [site.open(&gateway, BOB, "bob").await, site.open(&gateway, BOB, "bob").await];
    assert_eq!(site.ask(&gateway, ALICE, "alice").await.status, 429);
    wait_until("a second call within a second is refused", async || {
        let call = async || alice.post_request(&alice.next_id(), "ping", None).await;
        call().await;
        let second = call().await;
        second.status == 429 && second.json()["error"]["data"]["reason"] == "rate_limited"
    })
    .await;
    wait_until("the session is deleted", async || alice.delete().await.status == 204).await;
    wait_until("it is gone", async || !site.sessions(&gateway).await.contains(&"alice".to_owned())).await;
    assert_eq!(site.ask(&gateway, ALICE, "alice").await.status, 200, "a place is free again");
}

/// What a command of the built-in server tells two principals, of whom the first one has these limits.
async fn told_with_limits(name: &str, limits: &Value, command: &str) -> [String; 2] {
    let site = Site::new(name);
    let principals = principals(&site, &json!({"limits": limits}));
    site.configure(&json!({"servers": {"filesystem": {}}, "principals": principals}));
    let gateway = site.builder().start().await;
    let mut told = [String::new(), String::new()];
    for ((token, project), told) in [(ALICE, "alice"), (BOB, "bob")].into_iter().zip(&mut told) {
        let client = site.open(&gateway, token, project).await;
        let answer = client.call_tool("filesystem_run_terminal_cmd", json!({"command": command})).await;
        *told = answer.to_string();
    }
    told
}

#[tokio::test]
async fn the_processes_of_a_principal_are_limited_in_its_fences() {
    let command = "for n in $(seq 200); do sleep 60 & done; kill $(jobs -p); echo started all";
    let [alice, bob] = told_with_limits("rights-processes", &json!({"processes": 40}), command).await;
    assert!(!alice.contains("started all") && alice.contains("fork"), "{alice}");
    assert!(bob.contains("started all"), "the control: {bob}");
}

#[tokio::test]
async fn the_memory_of_a_principal_is_limited_in_its_fences() {
    let command = "python3 -c 'print(len(bytearray(400 << 20)) >> 20, \"MiB\")'";
    let [alice, bob] = told_with_limits("rights-memory", &json!({"memory": "128M"}), command).await;
    // Where the host gives no control group, the server of a principal with a limit does not start.
    let is_ended = alice.contains("SIGKILL") || alice.contains("memory");
    assert!(!alice.contains("400 MiB") && is_ended, "{alice}");
    assert!(bob.contains("400 MiB"), "the control: {bob}");
}

#[tokio::test]
async fn secrets_of_a_workspace_are_for_those_who_may_work_in_it() {
    let site = Site::new("rights-secrets");
    let shop = site.project("shared");
    std::fs::create_dir(shop.join("web")).unwrap();
    let keyed = json!({"command": fixture()["command"], "env": {"API_KEY": "${API_KEY}"}});
    site.configure(&json!({
        "servers": {"keyed": keyed},
        "secrets": {"API_KEY": {"env": "KEY_FOR_ALL"}},
        "workspaces": {shop.to_str().unwrap(): {"secrets": {"API_KEY": {"env": "KEY_FOR_SHOP"}}}},
        "principals": {"alice": {"scopes": [shop]}, "bob": {"scopes": [shop.join("web")]}},
    }));
    let builder = site.builder().env_remove("API_KEY");
    let gateway = builder.env("KEY_FOR_ALL", "everybodys").env("KEY_FOR_SHOP", "the-shops").start().await;
    for (token, own, foreign) in [(ALICE, "the-shops", "everybodys"), (BOB, "everybodys", "the-shops")] {
        let client = site.open(&gateway, token, "shared/web").await;
        let environment = client.call_tool_for_text("keyed_environment", json!({})).await;
        assert!(environment.contains(own) && !environment.contains(foreign), "{environment}");
    }
}

#[tokio::test]
async fn a_group_gives_its_members_its_rights() {
    let site = Site::new("rights-groups");
    site.configure(&json!({
        "servers": {"box": fixture()},
        "groups": {"web": {"members": ["alice"], "scopes": [site.project("shared")], "servers": []}},
    }));
    let gateway = site.builder().start().await;
    let alice = site.open(&gateway, ALICE, "shared").await;
    assert!(tools(&alice).await.is_empty());
    assert_eq!(site.ask(&gateway, BOB, "shared").await.status, 403, "no member");
    assert_eq!(initialize(&site.client(&gateway, ALICE, "alice")).await.status, 403);
}
