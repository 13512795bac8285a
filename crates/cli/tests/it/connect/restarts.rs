//! The gateway is killed and started again with what it had stored: the client's session goes on by itself.

use serde_json::{Value, json};
use testkit::GatewayBuilder;

use super::ide::Ide;
use super::{Connected, FOREVER_MS, Proxy, Site, error_of};

/// A gateway on what the one before has stored.
fn keeping(site: &Site) -> GatewayBuilder {
    site.gateway().flag("--state-dir").flag(site.directory.join("state"))
}

async fn connected(name: &str) -> Connected {
    let site = Site::new(name);
    let gateway = keeping(&site).start().await;
    let proxy = Proxy::start(gateway.url()).await;
    let ide: Ide = site.ide(&proxy.url()).open().await;
    let connected = Connected { site, gateway, proxy, ide };
    connected.attached().await;
    connected
}

async fn restart(connected: &mut Connected) {
    connected.gateway.kill().await;
    connected.gateway = keeping(&connected.site).start().await;
    connected.proxy.lead_to(connected.gateway.url());
}

/// How often calls of this tool reached the server.
fn calls(connected: &Connected, server: &str, tool: &str) -> usize {
    let calls = connected.site.log(server).with_method("tools/call");
    calls.iter().filter(|call| call["params"]["name"] == tool).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_and_its_attachment_go_on_at_the_next_gateway() {
    let mut connected = connected("connect-goes-on").await;
    let before = connected.proxy.session_id();
    connected.ide.echoes("remote").await;
    for _ in 0..2 {
        restart(&mut connected).await;
        connected.ide.call_until_it_works("remote_echo", &json!({"text": "x"})).await;
        connected.attached().await;
        assert_eq!(connected.proxy.session_id(), before, "it is the same session");
        // Its channels are opened again.
        let colleague = connected.colleague();
        assert_eq!(colleague.call_tool_for_text("local_echo", json!({"text": "again"})).await, "again");
        connected.ide.echoes("local").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_attachment_comes_back_by_itself() {
    let mut connected = connected("connect-comes-back").await;
    let before = connected.proxy.session_id();
    restart(&mut connected).await;
    connected.attached().await;
    assert_eq!(connected.proxy.session_id(), before);
    let echo = connected.colleague().call_tool_for_text("local_echo", json!({"text": "x"})).await;
    assert_eq!(echo, "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_flight_are_answered_once_as_unknown_and_never_made_again() {
    let mut connected = connected("connect-in-flight").await;
    let own = connected.ide.begin("remote_sleep", json!({"ms": FOREVER_MS})).await;
    connected.site.log("remote").wait_for_calls("sleep", 1).await;
    // Another client's call, through the gateway to a server of the client's machine.
    let colleague = connected.colleague();
    let mut events = colleague
        .post_tool_call(&json!("through"), "local_sleep", json!({"ms": FOREVER_MS}))
        .await
        .into_events();
    let event = events.next().await.unwrap().id.unwrap();
    connected.site.log("local").wait_for_calls("sleep", 1).await;
    // Calls are written soon, not at once; what is written for a session that is opened later comes after them.
    connected.gateway.open().await;
    restart(&mut connected).await;
    let answer = connected.ide.answer_to(&own).await;
    assert!(error_of(&answer).contains("whether the call took effect is unknown"), "{answer}");
    assert_eq!(answer["error"]["data"]["outcome"], "unknown", "{answer}");
    let mut resumed = connected.colleague().get_stream(Some(&event)).await.into_events();
    let answer = resumed.next_message().await.unwrap();
    assert_eq!(unknown(&answer), ("through", "unknown"), "{answer}");
    connected.ide.call_until_it_works("remote_echo", &json!({"text": "x"})).await;
    connected.attached().await;
    connected.colleague().call_tool_for_text("local_echo", json!({"text": "x"})).await;
    assert_eq!((calls(&connected, "remote", "sleep"), calls(&connected, "local", "sleep")), (1, 1));
}

fn unknown(answer: &Value) -> (&str, &str) {
    (
        answer["id"].as_str().unwrap_or_default(),
        answer["error"]["data"]["outcome"].as_str().unwrap_or_default(),
    )
}
