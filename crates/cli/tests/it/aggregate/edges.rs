//! Unusual combinations of servers, clients and configurations.

use serde_json::{Value, json};
use testkit::wait_until;

use super::separation::{ALICE, ALICES_KEY, BOB, BOBS_KEY, environment, start_with_shops_key, with_token};
use super::{Site, fixture, listed, one_server, open, open_in, reason, result, script, with};
use crate::authentication::write_private;

#[tokio::test]
async fn a_shared_process_is_never_given_one_principals_key() {
    let site = Site::new("shared-key", &json!({}));
    let tokens = site.directory.join("tokens");
    write_private(&tokens, &format!("alice:{ALICE}\nbob:{BOB}\n"));
    let keyed = with(fixture(&[]), "env", json!({"API_KEY": "${API_KEY}"}));
    let configuration = json!({
        "servers": {"keyed": with(keyed, "lifecycle", json!("shared"))},
        "principals": {
            "alice": {"secrets": {"API_KEY": {"env": "KEY_FOR_ALICE"}}},
            "bob": {"secrets": {"API_KEY": {"env": "KEY_FOR_BOB"}}},
        },
    });
    site.write_configuration(&configuration.to_string());
    let builder = site.builder().flag("--auth-token-file").flag(&tokens).env_remove("API_KEY");
    let builder = builder.flag("--allow-scope").flag(site.directory.path());
    let started = builder.env("KEY_FOR_ALICE", ALICES_KEY).env("KEY_FOR_BOB", BOBS_KEY).try_start().await;
    // Either the file is refused, or no session gets the key of another principal.
    let Ok(gateway) = started else { return };
    let projects = ["alice", "bob"].map(|name| site.another_project(name));
    let alice = open_in(with_token(&gateway, ALICE), &projects[0]).await;
    let bob = open_in(with_token(&gateway, BOB), &projects[1]).await;
    for (client, own, foreign) in [(&alice, ALICES_KEY, BOBS_KEY), (&bob, BOBS_KEY, ALICES_KEY)] {
        let found: Value = client.call_tool("keyed_environment", json!({})).await;
        assert!(!found.to_string().contains(foreign), "the key of another principal: {found}");
        let is_off = reason(client, "keyed").await.is_some();
        assert!(is_off || found.to_string().contains(own), "the control: {found}");
    }
}

#[tokio::test]
async fn workspaces_with_a_common_place_to_write_still_have_processes_of_their_own() {
    let site = Site::new("common-place", &json!({}));
    let (shop, other) = (site.another_project("shop"), site.another_project("other"));
    let common = site.another_project("common");
    let mut keyed =
        with(fixture(&[]), "env", json!({"API_KEY": "${API_KEY}", "WHERE": "{workingDirectory}"}));
    keyed["lifecycle"] = json!("workspace");
    keyed["allowedDirectories"] = json!([common]);
    let gateway = start_with_shops_key(&site, &shop, &keyed).await;
    let in_shop = open_in(gateway.client(), &shop).await;
    let found = environment(&in_shop, "keyed").await;
    assert!(found.contains("the-shops") && found.contains(shop.to_str().unwrap()), "the control: {found}");
    let elsewhere = open_in(gateway.client(), &other).await;
    let found = environment(&elsewhere, "keyed").await;
    assert!(!found.contains("the-shops") && found.contains(other.to_str().unwrap()), "{found}");
}

#[tokio::test]
async fn a_late_initialize_gets_the_version_that_it_asks_for() {
    let site = Site::new("late-version", &one_server("box", fixture(&[])));
    let gateway = site.start().await;
    let opened = gateway.client().post("{}").path("/session/init").await;
    let mut client = gateway.client();
    client.set_session(opened.json()["sessionId"].as_str(), None);
    let reply = client.post_initialize(&json!("i"), json!({}), "2025-06-18").await;
    let opened: Value = serde_json::from_str(&reply.answer_text().await).unwrap();
    assert_eq!(opened["result"]["protocolVersion"], "2025-06-18", "it is one that is served here");
}

/// Declares resources, but never answers `resources/list` or `resources/read`.
const MUTE: &str = r"
serve({
    initialize: ({ protocolVersion }) => ({
        protocolVersion, capabilities: { tools: {}, resources: {} }, serverInfo: { name: 'mute', version: '1' },
    }),
    'tools/list': () => ({ tools: [] }),
    'resources/templates/list': () => ({ resourceTemplates: [] }),
    'resources/list': () => NEVER,
    'resources/read': () => NEVER,
});
";

#[tokio::test]
async fn resources_are_listed_and_read_without_a_server_that_does_not_list_its_own() {
    let site = Site::new("mute", &json!({}));
    // Longer than any client waits.
    let mute = with(script(&site, "mute", MUTE), "timeout", json!(300));
    site.write_configuration(&json!({"servers": {"mute": mute, "good": fixture(&[])}}).to_string());
    let gateway = site.start().await;
    let client = open(&gateway).await;
    let uris = listed(&client, "resources/list", "resources", "uri").await;
    assert!(uris.contains(&"test://static-text".to_owned()), "{uris:?}");
    let read = result(&client, "resources/read", json!({"uri": "test://static-text"})).await;
    assert!(read["contents"][0]["text"].is_string(), "{read}");
}

#[tokio::test]
async fn a_server_that_is_switched_off_declares_nothing() {
    let off = with(fixture(&[]), "enabled", json!(false));
    let site = Site::new("off-declares", &json!({}));
    let tools_only = script(&site, "tools-only", "serve({ 'tools/list': () => ({ tools: [] }) });");
    site.write_configuration(&json!({"servers": {"tools-only": tools_only, "off": off}}).to_string());
    let gateway = site.start().await;
    wait_until("only tools are declared", async || {
        let mut client = gateway.client();
        let opened = client.open(json!({}), super::NEWEST).await;
        client.delete().await;
        opened.result["capabilities"] == json!({"tools": {"listChanged": true}})
    })
    .await;
}

#[tokio::test]
async fn the_missing_key_of_the_founding_example_is_the_reason() {
    let brave = json!({"executionContext": "remote", "env": {"BRAVE_API_KEY": "${BRAVE_API_KEY}"}});
    let site = Site::new("founding-brave", &one_server("brave-search", brave));
    let gateway = site.builder().env_remove("BRAVE_API_KEY").start().await;
    let client = open(&gateway).await;
    assert_eq!(reason(&client, "brave-search").await.as_deref(), Some("Missing BRAVE_API_KEY"));
}

/// Clients list everything before they do anything.
#[tokio::test]
async fn lists_start_no_server_that_a_probe_knows() {
    let site =
        Site::new("lists-start-nothing", &json!({"servers": {"one": fixture(&[]), "two": fixture(&[])}}));
    let gateway = site.start().await;
    let client = open(&gateway).await;
    let mut events = client.listen().await;
    wait_until("the probes are over", async || gateway.descendants().is_empty()).await;
    for (method, list, key) in [
        ("tools/list", "tools", "name"),
        ("resources/list", "resources", "uri"),
        ("resources/templates/list", "resourceTemplates", "uriTemplate"),
        ("prompts/list", "prompts", "name"),
    ] {
        assert!(!listed(&client, method, list, key).await.is_empty(), "{method}");
    }
    assert_eq!(gateway.descendants(), Vec::<u32>::new(), "nothing was started");
    // The control: what is listed can be used, which starts one server, and the client hears that its own list counts.
    let read = result(&client, "resources/read", json!({"uri": "test://static-text"})).await;
    assert!(read["contents"][0]["text"].is_string(), "{read}");
    assert!(!gateway.descendants().is_empty());
    let mut news = json!({});
    while news["method"] != "notifications/resources/list_changed" {
        news = events.next_message().await.unwrap();
    }
}
