//! Several clients in one session, several machines one after the other, and a token that is refused many times.

use serde_json::json;
use testkit::{NEWEST, text_of, wait_until};

use super::machine::Machine;
use super::{Connected, FOREVER_MS, Site};

#[tokio::test(flavor = "multi_thread")]
async fn of_two_machines_the_last_one_counts() {
    let site = Site::new("connect-two-machines");
    let gateway = site.gateway().start().await;
    let mut client = gateway.client();
    client.open(json!({}), NEWEST).await;
    let attach =
        async |name| Machine::attach(client.url(), client.session_id().unwrap(), None, name).await.unwrap();
    let first = attach("first").await;
    wait_until("the first machine answers", async || {
        client.call_tool("local_where", json!({})).await["result"]["content"][0]["text"] == "first"
    })
    .await;
    let _second = attach("second").await;
    wait_until("the second machine answers", async || {
        let answer = client.call_tool("local_where", json!({})).await;
        answer["result"]["content"][0]["text"] == "second"
    })
    .await;
    drop(first);
    assert_eq!(client.call_tool_for_text("local_where", json!({})).await, "second");
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_two_clients_of_a_session_may_be_equal() {
    let mut connected = Connected::start("connect-equal-ids").await;
    connected.ide.begin("remote_sleep", json!({"ms": FOREVER_MS})).await;
    connected.site.log("remote").wait_for_calls("sleep", 1).await;
    let colleague = connected.colleague();
    for id in 0..100 {
        let params = json!({"name": "remote_echo", "arguments": {"text": "x"}});
        let answer = colleague.request_with_id(&json!(id), "tools/call", Some(params)).await;
        assert_eq!(text_of(&answer), "x");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_is_named_however_often_it_was_tried() {
    let site = Site::new("connect-refused-often");
    super::tokens::write_tokens(&site);
    let gateway = site.gateway().flag("--auth-token-file").flag(site.directory.join("tokens")).start().await;
    let mut ide = site.ide(gateway.url()).env("RINGFENCE_TOKEN", "nobodys-token-0123456789").open().await;
    for _ in 0..500 {
        let refused = ide.call("remote_echo", json!({"text": "x"})).await;
        assert!(super::error_of(&refused).contains("401"), "{refused}");
    }
}
