//! The servers of the client's machine, which all clients of its session can use, and no others.

use serde_json::{Value, json};
use testkit::{EventStream, NEWEST, RawClient, text_of, wait_until};

use super::machine::Machine;
use super::{Connected, FOREVER_MS, LIST_CHANGED, Site, error_of, shows};

async fn tools(client: &RawClient) -> String {
    client.request("tools/list", Some(json!({}))).await["result"]["tools"].to_string()
}

async fn hear_change(events: &mut EventStream) {
    while events.next_message().await.expect("the stream stays open")["method"] != LIST_CHANGED {}
}

async fn attach(client: &RawClient, name: &str) -> Machine {
    Machine::attach(client.url(), client.session_id().unwrap(), None, name).await.unwrap()
}

async fn wait_for_tool(client: &RawClient, tool: &str, is_there: bool) {
    wait_until(&format!("{tool} is there: {is_there}"), async || {
        tools(client).await.contains(tool) == is_there
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_client_of_the_session_works_on_the_clients_machine() {
    let mut connected = Connected::start("connect-colleague").await;
    let colleague = connected.colleague();
    let write = json!({"path": "made.txt", "content": "by a colleague"});
    colleague.call_tool_for_text("filesystem_write_file", write).await;
    let made = connected.site.project().join("made.txt");
    assert_eq!(std::fs::read_to_string(made).unwrap(), "by a colleague");
    assert!(!connected.site.directory.join("gateway/made.txt").exists());
    let text = connected.ide.call_for_text("filesystem_read_file", json!({"path": "made.txt"})).await;
    assert!(text.contains("by a colleague"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_another_client_has_progress_and_can_be_cancelled() {
    let connected = Connected::start("connect-colleague-calls").await;
    let colleague = connected.colleague();
    let params = json!({"name": "local_test_tool_with_progress", "_meta": {"progressToken": "p"}});
    let refuse = |ask: &Value| panic!("unexpected request: {ask}");
    let exchange = colleague.request_answering("tools/call", Some(params), refuse).await;
    let steps: Vec<&Value> =
        exchange.notifications.iter().map(|message| &message["params"]["progress"]).collect();
    assert_eq!(steps, [0, 50, 100], "{exchange:?}");

    let id = json!("to be cancelled");
    let reply = colleague.post_tool_call(&id, "local_sleep", json!({"ms": FOREVER_MS})).await;
    connected.site.log("local").wait_for_calls("sleep", 1).await;
    colleague.notify("notifications/cancelled", Some(json!({"requestId": id}))).await;
    let exchange = colleague.finish_exchange(&id, reply, refuse).await;
    assert_eq!(exchange.response["error"]["data"]["reason"], "cancelled", "{exchange:?}");
    assert_eq!(colleague.call_tool_for_text("local_cancelled_count", json!({})).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_both_ways_do_not_block_each_other() {
    const CALLS: usize = 24;
    let connected = Connected::start("connect-large").await;
    let text = "x".repeat(2_000_000);
    let calls: Vec<_> = (0..CALLS)
        .map(|number| {
            let (colleague, id) = (connected.colleague(), json!(format!("call {number}")));
            let params = json!({"name": "local_echo", "arguments": {"text": text}});
            tokio::spawn(async move { colleague.request_with_id(&id, "tools/call", Some(params)).await })
        })
        .collect();
    for call in calls {
        let answer = call.await.unwrap();
        assert_eq!(text_of(&answer).len(), text.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_come_and_go_with_the_machine_and_clients_hear_it() {
    let site = Site::new("connect-comes-and-goes");
    let gateway = site.gateway().start().await;
    let client = gateway.open().await;
    let mut events = client.get_stream(None).await.into_events();
    let away = client.call_tool("local_where", json!({})).await;
    assert!(error_of(&away).contains("ringfence connect"), "{away}");
    let server = client.session_report().await["servers"]["local"].clone();
    assert_eq!(server["enabled"], false, "{server}");
    assert!(server["reason"].as_str().unwrap().contains("not connected"), "{server}");

    for name in ["first", "second"] {
        let machine = attach(&client, name).await;
        hear_change(&mut events).await;
        wait_for_tool(&client, "local_where", true).await;
        assert_eq!(client.call_tool_for_text("local_where", json!({})).await, name);
        assert_eq!(machine.calls(), 1);
        let shown = client.session_report().await;
        assert_eq!((&shown["attached"], &shown["servers"]["local"]["enabled"]), (&json!(true), &json!(true)));
        assert!(shows(&shown, "local_where"), "{shown}");

        drop(machine);
        hear_change(&mut events).await;
        wait_for_tool(&client, "local_where", false).await;
        let gone = client.call_tool("local_where", json!({})).await;
        assert!(error_of(&gone).contains("not connected"), "{gone}");
        let shown = client.session_report().await;
        assert_eq!(
            (&shown["attached"], &shown["servers"]["local"]["enabled"]),
            (&json!(false), &json!(false))
        );
        let remote = client.call_tool_for_text("remote_echo", json!({"text": "others go on"})).await;
        assert_eq!(remote, "others go on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_of_a_session_that_listens_hears_of_changes() {
    let site = Site::new("connect-listeners");
    let gateway = site.gateway().start().await;
    let opener = gateway.open().await;
    let share = |name: Option<&str>| {
        let client = gateway.client();
        let mut client = name.into_iter().fold(client, |it, name| it.with_header("ringfence-instance", name));
        client.set_session(opener.session_id(), Some(NEWEST));
        client
    };
    let mut streams = Vec::new();
    for client in [&opener, &share(Some("second")), &share(Some("third"))] {
        streams.push(client.get_stream(None).await.into_events());
    }
    for _ in 0..2 {
        let machine = attach(&opener, "machine").await;
        for events in &mut streams {
            hear_change(events).await;
        }
        drop(machine);
        for events in &mut streams {
            hear_change(events).await;
        }
    }
    // A client that reconnects under its name replaces its own older connection, and no other.
    let mut again = share(Some("second")).get_stream(None).await.into_events();
    assert!(streams.remove(1).next_message().await.is_none(), "it is over");
    let machine = attach(&opener, "machine").await;
    hear_change(&mut again).await;
    for events in &mut streams {
        hear_change(events).await;
    }
    // Messages sent while a client is disconnected are delivered when it comes back.
    let last = again.last_event_id().unwrap().to_owned();
    drop((again, machine));
    for events in &mut streams {
        hear_change(events).await;
    }
    let mut resumed = share(Some("second")).get_stream(Some(&last)).await.into_events();
    hear_change(&mut resumed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_waits_for_the_stream_of_a_client_that_has_just_begun() {
    let site = Site::new("connect-late-listener");
    let gateway = site.gateway().start().await;
    let opened = gateway.client().post("{}").path("/session/init").await;
    let mut client = gateway.client();
    client.set_session(opened.json()["sessionId"].as_str(), Some(NEWEST));
    let _machine = attach(&client, "machine").await;
    // Wait on the report, because a call would learn of the change itself.
    wait_until("the machine is there", async || shows(&client.session_report().await, "local_where")).await;
    let mut events = client.get_stream(None).await.into_events();
    hear_change(&mut events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_clients_listen_at_once() {
    let site = Site::new("connect-many-listeners");
    let gateway = site.gateway().start().await;
    let opener = gateway.open().await;
    let listen = async |name: &str| {
        let mut client = gateway.client().with_header("ringfence-instance", name);
        client.set_session(opener.session_id(), Some(NEWEST));
        client.get_stream(None).await
    };
    let mut streams = Vec::new();
    for number in 0..8 {
        streams.push(listen(&format!("client-{number}")).await.into_events());
    }
    let refused = listen("one-too-many").await;
    assert_eq!(refused.status, 429, "{:?}", refused.body);
    drop(streams.pop());
    wait_until("there is room again", async || listen("one-too-many").await.status == 200).await;
    let _machine = attach(&opener, "machine").await;
    for events in &mut streams {
        hear_change(events).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_listens_takes_nothing_from_the_ide() {
    let mut connected = Connected::start("connect-listening-colleague").await;
    let mut events = connected.colleague().get_stream(None).await.into_events();
    // The machine detaches and attaches again, while the colleague's stream stays open.
    for _ in 0..3 {
        connected.proxy.cut_attachments();
        hear_change(&mut events).await;
        hear_change(&mut events).await;
        connected.attached().await;
    }
    connected.ide.echoes("remote").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_goes_during_a_call_is_an_error_of_the_call() {
    let site = Site::new("connect-goes-during-call");
    let gateway = site.gateway().start().await;
    let client = gateway.open().await;
    let machine = attach(&client, "first").await;
    wait_for_tool(&client, "local_where", true).await;
    let id = json!("endless");
    let reply = client.post_tool_call(&id, "local_where", json!({"forever": true})).await;
    wait_until("the machine has the call", async || machine.calls() == 1).await;
    drop(machine);
    let exchange = client.finish_exchange(&id, reply, |ask| panic!("unexpected request: {ask}")).await;
    assert!(error_of(&exchange.response).contains("client's machine is not connected"), "{exchange:?}");
    let _machine = attach(&client, "second").await;
    wait_for_tool(&client, "local_where", true).await;
    assert_eq!(client.call_tool_for_text("local_where", json!({})).await, "second");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_session_has_nothing_of_the_machine() {
    let connected = Connected::start("connect-other-session").await;
    let stranger = connected.gateway.open().await;
    let shown = tools(&stranger).await;
    assert!(shown.contains("remote_echo"), "the control: {shown}");
    assert!(!shown.contains("local_") && !shown.contains("filesystem_"), "{shown}");
    let answer = stranger.call_tool("local_echo", json!({"text": "x"})).await;
    assert!(error_of(&answer).contains("not connected"), "{answer}");
    let answer = stranger.call_tool("filesystem_read_file", json!({"path": "made.txt"})).await;
    assert!(error_of(&answer).contains("not connected"), "{answer}");
    assert_eq!(stranger.session_report().await["attached"], false);
    assert_eq!(connected.colleague().call_tool_for_text("local_echo", json!({"text": "x"})).await, "x");
}
