//! Messages other than calls between a client and one of several servers: cancellations, questions, log levels,
//! updates and changed lists.

use serde_json::{Value, json};
use testkit::{EventStream, Exchange, Gateway, MessageLog, RawClient, wait_until};

use super::{Site, fixture, one_server, open, open_with, result, script, tools};

/// Far longer than any test, so such a call ends only by being cancelled.
const FOREVER_MS: u64 = 3_600_000;

/// A gateway with the servers `left` and `right`, which log the messages that they read.
struct Pair {
    _site: Site,
    gateway: Gateway,
    left: MessageLog,
    right: MessageLog,
}

impl Pair {
    async fn start() -> Self {
        let site = Site::new("pair", &json!({}));
        let [left, right] = ["left", "right"].map(|name| MessageLog::new(site.directory.join(name)));
        let logging = |log: &MessageLog| fixture(&["--message-log", log.path().to_str().unwrap()]);
        let configuration = json!({"servers": {"left": logging(&left), "right": logging(&right)}});
        site.write_configuration(&configuration.to_string());
        let gateway = site.start_unfenced().await;
        Self { _site: site, gateway, left, right }
    }

    async fn client(&self) -> RawClient {
        open_with(self.gateway.client(), json!({"sampling": {}, "elicitation": {}})).await
    }
}

async fn next_with_method(events: &mut EventStream, method: &str) -> Value {
    loop {
        let message = events.next_message().await.expect("the stream stays open");
        if message["method"] == method {
            return message;
        }
    }
}

#[tokio::test]
async fn a_cancellation_reaches_the_server_of_the_call_and_no_other() {
    let pair = Pair::start().await;
    let client = pair.client().await;
    let reply = client.post_tool_call(&json!("mine"), "left_sleep", json!({"ms": FOREVER_MS})).await;
    let _cancelled = reply.into_events();
    let other = client.post_tool_call(&json!("other"), "right_sleep", json!({"ms": FOREVER_MS})).await;
    let _other = other.into_events();
    pair.left.wait_for_calls("sleep", 1).await;
    pair.right.wait_for_calls("sleep", 1).await;
    let reply = client.notify("notifications/cancelled", Some(json!({"requestId": "mine"}))).await;
    assert_eq!(reply.status, 202);
    wait_until("the call is cancelled", async || {
        client.call_tool_for_text("left_cancelled_count", json!({})).await.starts_with('1')
    })
    .await;
    let cancelled = &pair.left.with_method("notifications/cancelled")[0]["params"]["requestId"];
    let called = pair.left.with_method("tools/call");
    let sleep = called.iter().find(|call| call["params"]["name"] == "sleep").unwrap();
    assert_eq!(*cancelled, sleep["id"], "the server knows the call by its own id");
    assert_eq!(pair.right.with_method("notifications/cancelled"), Vec::<Value>::new());
}

#[tokio::test]
async fn equal_ids_of_questions_from_two_servers_are_kept_apart() {
    let pair = Pair::start().await;
    let client = pair.client().await;
    let ask = async |tool: &str| -> Exchange {
        let arguments = json!({"kind": "sampling", "tag": tool});
        client
            .call_tool_answering(tool, arguments, |ask| {
                let text =
                    format!("for {}", ask["params"]["messages"][0]["content"]["text"].as_str().unwrap());
                Ok(json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": text}}))
            })
            .await
    };
    let (left, right) = tokio::join!(ask("left_ask"), ask("right_ask"));
    assert_eq!(left.server_requests.len() + right.server_requests.len(), 2, "each is asked once");
    for (exchange, tool) in [(left, "left_ask"), (right, "right_ask")] {
        let answer = exchange.response.to_string();
        assert!(answer.contains("for ") && answer.contains(tool), "{answer}");
    }
}

#[tokio::test]
async fn a_client_is_not_asked_what_it_cannot_answer() {
    let pair = Pair::start().await;
    let client = open(&pair.gateway).await;
    let asked = client
        .call_tool_answering("left_ask", json!({"kind": "sampling", "tag": "t"}), |ask| {
            panic!("asked: {ask}")
        })
        .await;
    assert!(asked.response.to_string().contains("-32"), "the server hears an error: {:?}", asked.response);
    let able = pair.client().await;
    let control = able
        .call_tool_answering("left_ask", json!({"kind": "sampling", "tag": "t"}), |_| {
            Ok(json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "yes"}}))
        })
        .await;
    assert_eq!(control.server_requests.len(), 1);
}

#[tokio::test]
async fn a_log_level_holds_for_servers_that_run_and_for_those_that_come_later() {
    let pair = Pair::start().await;
    let client = pair.client().await;
    client.call_tool_for_text("left_echo", json!({"text": "runs"})).await;
    result(&client, "logging/setLevel", json!({"level": "error"})).await;
    let levels = |log: &MessageLog| -> Vec<Value> {
        log.with_method("logging/setLevel").iter().map(|message| message["params"]["level"].clone()).collect()
    };
    wait_until("the server that runs is told", async || levels(&pair.left) == ["error"]).await;
    client.call_tool_for_text("right_echo", json!({"text": "comes"})).await;
    wait_until("the other is told when it starts", async || levels(&pair.right) == ["error"]).await;

    for (level, expected) in [("info", 0), ("error", 1)] {
        let arguments = json!({"level": level, "text": "said"});
        let exchange = client.call_tool_answering("right_log", arguments, |ask| panic!("{ask}")).await;
        let logs =
            exchange.notifications.iter().filter(|message| message["method"] == "notifications/message");
        assert_eq!(logs.count(), expected, "{level}");
    }
}

#[tokio::test]
async fn an_update_is_told_once_for_the_server_that_was_subscribed_to() {
    const URI: &str = "test://watched-resource";
    let site = Site::new("subscribed", &one_server("box", fixture(&[])));
    let gateway = site.start().await;
    let client = open(&gateway).await;
    let mut events = client.get_stream(None).await.into_events();
    result(&client, "resources/subscribe", json!({"uri": URI})).await;
    client.call_tool_for_text("box_notify_resource", json!({"uri": URI})).await;
    let update = next_with_method(&mut events, "notifications/resources/updated").await;
    assert_eq!(update["params"]["uri"], URI);
}

/// A server whose tool `grow` adds a tool and sends `list_changed`.
const GROWING: &str = r"
const tools = [{ name: 'grow', inputSchema: { type: 'object' } }];
serve({
    'tools/list': () => ({ tools }),
    'tools/call': () => {
        tools.push({ name: 'grown', inputSchema: { type: 'object' } });
        send({ method: 'notifications/tools/list_changed' });
        return { content: [{ type: 'text', text: 'done' }] };
    },
});
";

#[tokio::test]
async fn a_server_whose_list_grows_is_news_and_its_new_tool_can_be_called() {
    let site = Site::new("growing", &json!({}));
    let growing = script(&site, "growing", GROWING);
    site.write_configuration(&json!({"servers": {"still": fixture(&[]), "growing": growing}}).to_string());
    let gateway = site.start().await;
    let client = open(&gateway).await;
    let before = tools(&client).await;
    assert!(before.contains(&"growing_grow".to_owned()), "{before:?}: {}", gateway.log());
    let mut events = client.get_stream(None).await.into_events();
    assert_eq!(client.call_tool_for_text("growing_grow", json!({})).await, "done");
    next_with_method(&mut events, "notifications/tools/list_changed").await;
    let after = tools(&client).await;
    assert_eq!(after.len(), before.len() + 1, "{after:?}");
    assert!(after.contains(&"growing_grown".to_owned()), "{after:?}");
    assert_eq!(client.call_tool_for_text("growing_grown", json!({})).await, "done");

    let other = open(&gateway).await;
    assert_eq!(tools(&other).await, before, "another session has a process of its own");
}
