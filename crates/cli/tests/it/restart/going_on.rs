//! What a session is after its gateway was killed or ended: the same, with new processes.

use serde_json::{Value, json};
use testkit::{EventStream, Gateway, NEWEST, text_of, wait_until};

use super::{Site, asked_where, open_in, works_in};

fn restored(response: &Value) -> &Value {
    &response["result"]["_meta"]["io.ringfence/restored"]
}

#[tokio::test]
async fn a_session_goes_on_after_its_gateway_was_killed() {
    let mut site = Site::new("killed");
    let mut gateway = site.start_fixture().await;
    let client = open_in(&gateway, &site.project.path).await;
    assert!(restored(&works_in(&client).await).is_null(), "the control");
    gateway.kill().await;
    let gateway = site.start_fixture().await;
    assert_eq!(gateway.open_sessions().await, 0, "nothing runs before the client comes back");
    let back = works_in(&client).await;
    assert_eq!(text_of(&back), site.project.path.to_string_lossy());
    // A call whose answer was written out just before the kill may still count as lost.
    assert_eq!(
        (&restored(&back)["reason"], &restored(&back)["epoch"]),
        (&json!("gateway_restarted"), &json!(1))
    );
    assert!(restored(&works_in(&client).await).is_null(), "it is said once");
    assert_eq!((gateway.open_sessions().await, gateway.counter("sessions_restored").await), (1, 1));
}

#[tokio::test]
async fn a_session_goes_on_after_its_gateway_was_ended_and_once_more() {
    let mut site = Site::new("ended");
    let mut gateway = site.start_fixture().await;
    let client = open_in(&gateway, &site.project.path).await;
    for epoch in 1..=3 {
        assert!(gateway.terminate().await.success(), "{}", gateway.log());
        gateway = site.start_fixture().await;
        assert_eq!(restored(&works_in(&client).await)["epoch"], epoch);
    }
}

#[tokio::test]
async fn a_session_without_a_scope_is_asked_for_its_roots_by_the_next_gateway() {
    let mut site = Site::new("early");
    let mut gateway = site.start_fixture().await;
    let mut client = gateway.client();
    client.open(json!({"roots": {}}), NEWEST).await;
    gateway.kill().await;
    let _gateway = site.start_fixture().await;
    assert_eq!(asked_where(&client, &site.project.path).await, site.project.path.to_string_lossy());
}

#[tokio::test]
async fn subscriptions_and_the_log_level_hold_and_the_client_is_told_what_may_be_new() {
    const URI: &str = "test://watched-resource";
    let mut site = Site::new("wishes");
    let mut gateway = site.start_fixture().await;
    let client = open_in(&gateway, &site.project.path).await;
    let subscribed = client.request("resources/subscribe", Some(json!({"uri": URI}))).await;
    assert_eq!(subscribed["result"], json!({}));
    assert_eq!(
        client.request("logging/setLevel", Some(json!({"level": "error"}))).await["result"],
        json!({})
    );
    // Both are written soon, not at once.
    gateway.terminate().await;
    let _gateway = site.start_fixture().await;
    let mut events = client.listen().await;
    let told = until(&mut events, "notifications/resources/updated").await;
    let methods: Vec<&str> = told.iter().filter_map(|message| message["method"].as_str()).collect();
    assert!(methods.contains(&"notifications/tools/list_changed"), "{methods:?}");
    let warning = told.iter().find(|message| message["method"] == "notifications/message").unwrap();
    assert_eq!(warning["params"]["data"]["reason"], "gateway_restarted");
    assert_eq!(client.call_tool_for_text("notify_resource", json!({"uri": URI})).await, "notified");
    let exchange = client
        .call_tool_answering("log", json!({"text": "too quiet to be heard", "level": "info"}), |_| panic!())
        .await;
    assert!(exchange.notifications.is_empty(), "{:?}", exchange.notifications);
}

/// Everything up to a message with this method.
async fn until(events: &mut EventStream, method: &str) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        let message = events.next_message().await.expect("the stream stays open");
        let is_last = message["method"] == method;
        all.push(message);
        if is_last {
            return all;
        }
    }
}

#[tokio::test]
async fn event_ids_are_never_used_again() {
    let mut site = Site::new("event-ids");
    let mut gateway = site.start_fixture().await;
    let client = open_in(&gateway, &site.project.path).await;
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 {
        for _ in 0..3 {
            let mut events =
                client.post_tool_call(&client.next_id(), "sleep", json!({"ms": 300})).await.into_events();
            while let Some(event) = events.next().await {
                assert!(seen.insert(event.id.clone().unwrap()), "{:?} came twice", event.id);
            }
        }
        gateway.kill().await;
        gateway = site.start_fixture().await;
    }
    assert!(seen.len() >= 18);
}

#[tokio::test]
async fn every_door_leads_back_in() {
    let mut site = Site::new("doors");
    let mut gateway = site.start_fixture().await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(open_in(&gateway, &site.project.path).await);
    }
    gateway.kill().await;
    let gateway = site.start_fixture().await;
    let _events = clients[0].listen().await;
    let directory = site.project.path.to_string_lossy();
    wait_until("the scope is vetted", async || {
        clients[1].session_report().await["workingDirectory"] == directory.as_ref()
    })
    .await;
    assert_eq!(clients[2].delete().await.status, 204);
    assert_eq!(clients[2].post_tool_call(&json!(1), "echo", json!({"text": "x"})).await.status, 404);
    assert_eq!(clients[3].notify("notifications/cancelled", Some(json!({"requestId": 9}))).await.status, 202);
    assert_eq!(gateway.open_sessions().await, 3);
}

#[tokio::test]
async fn many_first_requests_at_once_restore_the_session_once() {
    let mut site = Site::new("at-once");
    let mut gateway = site.start_fixture().await;
    let client = open_in(&gateway, &site.project.path).await;
    gateway.kill().await;
    let gateway = site.start_fixture().await;
    let texts: Vec<String> = (0..20).map(|number| format!("call {number}")).collect();
    let calls = texts.iter().map(|text| client.call_tool_for_text("echo", json!({"text": text})));
    assert_eq!(futures_util::future::join_all(calls).await, texts);
    assert_eq!((gateway.open_sessions().await, gateway.counter("sessions_restored").await), (1, 1));
    assert_eq!(gateway.descendants().len(), 2, "one server with its supervisor");
}

#[tokio::test]
async fn several_servers_come_back_each_with_its_first_call() {
    let mut site = Site::new("several");
    let fixture = testkit::fixture_binary();
    let configuration =
        format!("servers:\n  one: {{command: [{fixture:?}]}}\n  two: {{command: [{fixture:?}]}}\n");
    let file = site.state.join("servers.yaml");
    std::fs::write(&file, configuration).unwrap();
    let builder = || Gateway::without_command().flag("--config").flag(&file);
    let mut gateway = site.start(builder()).await;
    let mut client = gateway.client();
    client.open(json!({}), NEWEST).await;
    let before = client.request("tools/list", None).await["result"]["tools"].clone();
    assert_eq!(client.call_tool_for_text("one_echo", json!({"text": "a"})).await, "a");
    gateway.kill().await;
    let gateway = site.start(builder()).await;
    assert_eq!(client.request("tools/list", None).await["result"]["tools"], before);
    assert_eq!(gateway.descendants(), Vec::<u32>::new(), "a list starts no server");
    assert_eq!(client.call_tool_for_text("two_echo", json!({"text": "b"})).await, "b");
    assert_eq!(gateway.descendants().len(), 2, "only the one that was called");
}

#[tokio::test]
async fn sessions_that_share_a_server_share_it_again() {
    for lifecycle in ["workspace", "shared"] {
        let mut site = Site::new(lifecycle);
        let builder = || Gateway::builder().flags(["--lifecycle", lifecycle]);
        let mut gateway = site.start(builder()).await;
        let mut clients = Vec::new();
        for _ in 0..2 {
            let mut client = gateway.client();
            client.open(json!({}), NEWEST).await;
            client.call_tool_for_text("echo", json!({"text": "before"})).await;
            clients.push(client);
        }
        gateway.kill().await;
        let gateway = site.start(builder()).await;
        for client in &clients {
            assert_eq!(client.call_tool_for_text("echo", json!({"text": "after"})).await, "after");
        }
        assert_eq!(gateway.counter("sessions_restored").await, 2);
        // The probe of the server may still run.
        wait_until("one server with its supervisor runs", async || gateway.descendants().len() == 2).await;
    }
}
