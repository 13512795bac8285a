//! `--shared`: one process serves all clients, and no client notices the others.

use serde_json::{Value, json};
use testkit::{
    EventStream, Exchange, Gateway, MessageLog, NEWEST, RawClient, WorkspaceDir, process_exists, wait_until,
    workspace_dir,
};

const LIST_CHANGED: &str = "notifications/tools/list_changed";

/// Far longer than any test, so such a call ends only by being cancelled, or with its session.
const FOREVER_MS: u64 = 3_600_000;

/// A gateway with one fixture that logs the messages it reads.
struct Shared {
    gateway: Gateway,
    log: MessageLog,
    directory: WorkspaceDir,
}

impl Shared {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    async fn start_with(fixture_flags: &[&str]) -> Self {
        let directory = workspace_dir("shared");
        let log = MessageLog::new(directory.join("messages"));
        let start_log = directory.join("starts");
        let mut flags = vec!["--message-log".into(), log.path().as_os_str().to_owned()];
        flags.extend(["--start-log".into(), start_log.into_os_string()]);
        flags.extend(fixture_flags.iter().map(Into::into));
        let gateway = Gateway::unfenced().flag("--shared").fixture_flags(flags).start().await;
        Self { gateway, log, directory }
    }

    /// Opens a session of a client that supports sampling and elicitation.
    async fn client(&self) -> RawClient {
        self.client_with(json!({"sampling": {}, "elicitation": {}})).await
    }

    async fn client_with(&self, capabilities: Value) -> RawClient {
        let mut client = self.gateway.client();
        client.open(capabilities, NEWEST).await;
        client
    }

    /// As [`Self::client`], with the client's standalone stream.
    async fn listening_client(&self) -> (RawClient, EventStream) {
        let client = self.client().await;
        let events = client.listen().await;
        (client, events)
    }

    /// Starts a call that runs until it is cancelled; returns once it reached the server.
    async fn start_endless_call(&self, client: &RawClient, id: Value) -> EventStream {
        let sleeping = self.calls_of("sleep");
        let reply = client.post_tool_call(&id, "sleep", json!({"ms": FOREVER_MS})).await;
        self.log.wait_for_calls("sleep", sleeping + 1).await;
        reply.into_events()
    }

    fn calls_of(&self, tool: &str) -> usize {
        let calls = self.log.with_method("tools/call");
        calls.iter().filter(|call| call["params"]["name"] == tool).count()
    }

    fn starts(&self) -> usize {
        std::fs::read_to_string(self.directory.join("starts")).unwrap().lines().count()
    }
}

async fn pid(client: &RawClient) -> String {
    client.call_tool_for_text("pid", json!({})).await
}

/// Makes the server send a marker to every listening client. Messages that a client must not get would arrive
/// before it.
async fn send_marker(client: &RawClient) {
    client.call_tool_for_text("notify_list_changed", json!({})).await;
}

async fn messages_before_marker(events: &mut EventStream) -> Vec<Value> {
    let mut messages = Vec::new();
    loop {
        let message = events.next_message().await.expect("the stream stays open");
        if message["method"] == LIST_CHANGED {
            return messages;
        }
        messages.push(message);
    }
}

/// Reads a request of the server, which must come next on a call's stream.
async fn next_server_request(events: &mut EventStream) -> Value {
    let message = events.next_message().await.expect("the server asks before the stream ends");
    assert!(message.get("method").is_some() && message.get("id").is_some(), "{message}");
    message
}

fn sampling_answer(text: &str) -> Value {
    json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": text}})
}

fn result_text(response: &Value) -> &str {
    response["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {response}"))
}

#[tokio::test]
async fn one_process_and_one_handshake_serve_every_client() {
    let shared = Shared::start().await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(shared.client().await);
    }
    let first_pid = pid(&clients[0]).await;
    for client in &clients {
        assert_eq!(pid(client).await, first_pid);
    }
    let mut ids: Vec<_> = clients.iter().map(|client| client.session_id().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), clients.len(), "each client has a session id of its own");
    assert_eq!(shared.gateway.descendants(), [first_pid.parse::<u32>().unwrap()]);
    assert_eq!(shared.log.with_method("initialize").len(), 1);
    assert_eq!(shared.log.with_method("notifications/initialized").len(), 1);
    let report = shared.gateway.report().await;
    assert_eq!((report["lifecycle"].as_str(), report["sessions"].as_u64()), (Some("shared"), Some(5)));
}

#[tokio::test]
async fn the_handshake_declares_what_some_client_may_be_able_to_do() {
    let shared = Shared::start().await;
    let initialize = &shared.log.with_method("initialize")[0];
    let declared = &initialize["params"]["capabilities"];
    assert!(declared["sampling"].is_object() && declared["elicitation"].is_object(), "{initialize}");
    assert_eq!(initialize["params"]["protocolVersion"], NEWEST);
}

#[tokio::test]
async fn each_client_gets_the_older_of_its_version_and_the_servers() {
    let cases = [
        (None, "2025-03-26", "2025-03-26"),
        (None, "2025-06-18", "2025-06-18"),
        (None, NEWEST, NEWEST),
        (None, "2099-01-01", NEWEST),
        (Some("2025-06-18"), "2025-03-26", "2025-03-26"),
        (Some("2025-06-18"), "2025-06-18", "2025-06-18"),
        (Some("2025-06-18"), NEWEST, "2025-06-18"),
    ];
    let uncapped = Shared::start().await;
    let capped = Shared::start_with(&["--version-cap", "2025-06-18"]).await;
    for (cap, requested, expected) in cases {
        let shared = if cap.is_some() { &capped } else { &uncapped };
        let mut client = shared.gateway.client();
        let opened = client.open(json!({}), requested).await;
        assert_eq!(opened.protocol_version, expected, "{requested} with the server at {cap:?}");
        assert_eq!(opened.result["serverInfo"]["name"], "ringfence-fixture");
        assert_eq!(client.call_tool_for_text("echo", json!({"text": requested})).await, requested);
    }
    assert_eq!(uncapped.log.with_method("initialize").len(), 1);
}

#[tokio::test]
async fn equal_ids_and_equal_progress_tokens_of_many_clients_are_kept_apart() {
    const CLIENTS: u64 = 6;
    let shared = Shared::start().await;
    let mut running = tokio::task::JoinSet::new();
    for number in 1..=CLIENTS {
        let client = shared.client().await;
        running.spawn(async move {
            // The total that the server reports is different for every client.
            let arguments = json!({"ms": 20 * (10 + number), "progress_every_ms": 20});
            let params = json!({"name": "sleep", "arguments": arguments, "_meta": {"progressToken": "same"}});
            let id = json!(7);
            let reply = client.post_request(&id, "tools/call", Some(params)).await;
            let text = format!("client {number}");
            let params = json!({"name": "echo", "arguments": {"text": text}});
            let echo = client.request_with_id(&json!("seven"), "tools/call", Some(params)).await;
            assert_eq!(result_text(&echo), text);
            (number, client.finish_exchange(&id, reply, |ask| panic!("unexpected request: {ask}")).await)
        });
    }
    while let Some(finished) = running.join_next().await {
        let (number, exchange) = finished.unwrap();
        assert_eq!(exchange.response["id"], 7);
        assert_eq!(result_text(&exchange.response), "slept");
        let expected: Vec<Value> = (1..=10 + number)
            .map(|step| json!({"progressToken": "same", "progress": step, "total": 10 + number}))
            .collect();
        let seen: Vec<&Value> = exchange.notifications.iter().map(|message| &message["params"]).collect();
        assert_eq!(seen, expected.iter().collect::<Vec<_>>(), "client {number}");
    }
}

#[tokio::test]
async fn a_log_message_reaches_only_the_client_whose_call_runs() {
    let shared = Shared::start().await;
    let caller = shared.client().await;
    let (_bystander, mut bystander_events) = shared.listening_client().await;
    let exchange = log(&caller, "info", "for the caller").await;
    assert_eq!(logged_texts(&exchange), ["for the caller"]);
    send_marker(&caller).await;
    assert_eq!(messages_before_marker(&mut bystander_events).await, Vec::<Value>::new());
    assert_eq!(shared.gateway.counter("dropped_notifications").await, 0);
}

async fn log(client: &RawClient, level: &str, text: &str) -> Exchange {
    let refuse = |ask: &Value| panic!("unexpected request: {ask}");
    client.call_tool_answering("log", json!({"level": level, "text": text}), refuse).await
}

fn logged_texts(exchange: &Exchange) -> Vec<&str> {
    let logs = exchange.notifications.iter().filter(|message| message["method"] == "notifications/message");
    logs.map(|message| message["params"]["data"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn each_client_hears_its_own_log_level_and_the_server_the_lowest() {
    let shared = Shared::start().await;
    let (strict, curious) = (shared.client().await, shared.client().await);
    for (client, level) in [(&strict, "error"), (&curious, "debug"), (&strict, "error")] {
        let response = client.request("logging/setLevel", Some(json!({"level": level}))).await;
        assert_eq!(response["result"], json!({}));
    }
    let sent: Vec<Value> = shared.log.with_method("logging/setLevel");
    let levels: Vec<&Value> = sent.iter().map(|message| &message["params"]["level"]).collect();
    assert_eq!(levels, ["error", "debug", "debug"]);

    assert_eq!(logged_texts(&log(&strict, "info", "too low").await), Vec::<&str>::new());
    assert_eq!(logged_texts(&log(&strict, "error", "high enough").await), ["high enough"]);
    assert_eq!(logged_texts(&log(&curious, "info", "low").await), ["low"]);
}

#[tokio::test]
async fn a_log_message_that_nobody_owns_is_dropped_and_counted() {
    let shared = Shared::start().await;
    let (client, mut events) = shared.listening_client().await;
    let other = shared.client().await;

    client.call_tool_for_text("log_unowned", json!({"text": "no call runs"})).await;
    wait_until("the log is dropped", async || shared.gateway.counter("dropped_notifications").await == 1)
        .await;

    let mut endless = shared.start_endless_call(&other, json!(1)).await;
    let exchange = log(&client, "info", "calls of two clients run").await;
    assert_eq!(logged_texts(&exchange), Vec::<&str>::new());
    assert_eq!(shared.gateway.counter("dropped_notifications").await, 2);

    send_marker(&client).await;
    assert_eq!(messages_before_marker(&mut events).await, Vec::<Value>::new());
    other.delete().await;
    let left = endless.remaining_messages().await;
    assert!(left.iter().all(|message| message["method"] != "notifications/message"), "{left:?}");
}

#[tokio::test]
async fn an_updated_resource_is_news_for_its_subscribers_only() {
    const URI: &str = "test://watched-resource";
    let shared = Shared::start().await;
    let (first, mut first_events) = shared.listening_client().await;
    let (second, mut second_events) = shared.listening_client().await;
    let (stranger, mut stranger_events) = shared.listening_client().await;
    let update =
        json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": URI}});
    let uri = || Some(json!({"uri": URI}));
    let notify = async || stranger.call_tool_for_text("notify_resource", json!({"uri": URI})).await;

    assert_eq!(notify().await, "not subscribed");
    for client in [&first, &second] {
        assert_eq!(client.request("resources/subscribe", uri()).await["result"], json!({}));
    }
    assert_eq!(notify().await, "notified");
    send_marker(&stranger).await;
    assert_eq!(messages_before_marker(&mut first_events).await, std::slice::from_ref(&update));
    assert_eq!(messages_before_marker(&mut second_events).await, std::slice::from_ref(&update));
    assert_eq!(messages_before_marker(&mut stranger_events).await, Vec::<Value>::new());

    assert_eq!(first.request("resources/unsubscribe", uri()).await["result"], json!({}));
    assert_eq!(notify().await, "notified", "the second client is still subscribed");
    send_marker(&stranger).await;
    assert_eq!(messages_before_marker(&mut first_events).await, Vec::<Value>::new());
    assert_eq!(messages_before_marker(&mut second_events).await, std::slice::from_ref(&update));
    assert_eq!(shared.log.with_method("resources/unsubscribe").len(), 0);

    assert_eq!(second.request("resources/unsubscribe", uri()).await["result"], json!({}));
    assert_eq!(notify().await, "not subscribed");
    assert_eq!(shared.log.with_method("resources/unsubscribe").len(), 1);
}

#[tokio::test]
async fn the_end_of_one_subscriber_leaves_the_subscription_of_another() {
    let shared = Shared::start().await;
    let (first, _) = shared.listening_client().await;
    let (second, mut second_events) = shared.listening_client().await;
    let uri = json!({"uri": "test://watched-resource"});
    for client in [&first, &second] {
        client.request("resources/subscribe", Some(uri.clone())).await;
    }
    assert_eq!(first.delete().await.status, 204);
    assert_eq!(second.call_tool_for_text("notify_resource", uri).await, "notified");
    send_marker(&second).await;
    assert_eq!(messages_before_marker(&mut second_events).await.len(), 1);
}

#[tokio::test]
async fn the_end_of_the_last_subscriber_ends_the_subscription() {
    let shared = Shared::start().await;
    let (subscriber, witness) = (shared.client().await, shared.client().await);
    let uri = json!({"uri": "test://watched-resource"});
    subscriber.request("resources/subscribe", Some(uri.clone())).await;
    assert_eq!(witness.call_tool_for_text("notify_resource", uri.clone()).await, "notified");
    assert_eq!(subscriber.delete().await.status, 204);
    assert_eq!(witness.call_tool_for_text("notify_resource", uri).await, "not subscribed");
}

#[tokio::test]
async fn a_restarted_server_knows_the_subscriptions_and_the_log_level_again() {
    let shared = Shared::start().await;
    let (client, mut events) = shared.listening_client().await;
    let uri = json!({"uri": "test://watched-resource"});
    client.request("resources/subscribe", Some(uri.clone())).await;
    client.request("logging/setLevel", Some(json!({"level": "error"}))).await;
    let lost = client.call_tool("crash", json!({})).await;
    assert_eq!(lost["error"]["data"]["reason"], "upstream_exited");
    assert_eq!(client.call_tool_for_text("notify_resource", uri).await, "notified");
    send_marker(&client).await;
    assert_eq!(messages_before_marker(&mut events).await.len(), 1);
    assert_eq!(shared.log.with_method("logging/setLevel").len(), 2);
}

#[tokio::test]
async fn a_changed_list_is_news_for_everybody_once() {
    let shared = Shared::start().await;
    let mut listeners = Vec::new();
    for _ in 0..4 {
        listeners.push(shared.listening_client().await);
    }
    send_marker(&listeners[0].0).await;
    for (client, events) in &mut listeners {
        assert_eq!(events.next_message().await.unwrap()["method"], LIST_CHANGED);
        // Nothing may follow until the session ends, so no second copy either.
        client.delete().await;
        assert_eq!(events.remaining_messages().await, Vec::<Value>::new());
    }
}

#[tokio::test]
async fn a_question_reaches_the_one_client_whose_call_runs() {
    let shared = Shared::start().await;
    let (caller, mut caller_events) = shared.listening_client().await;
    let (bystander, mut bystander_events) = shared.listening_client().await;
    for (kind, method) in [("sampling", "sampling/createMessage"), ("elicitation", "elicitation/create")] {
        let arguments = json!({"kind": kind, "tag": "a tag"});
        let answer = json!({"action": "accept", "content": {"answer": kind}});
        let exchange = caller.call_tool_answering("ask", arguments, |_| Ok(answer.clone())).await;
        assert_eq!(exchange.server_requests.len(), 1);
        assert_eq!(exchange.server_requests[0]["method"], method);
        assert!(exchange.server_requests[0]["params"].to_string().contains("a tag"));
        assert_eq!(serde_json::from_str::<Value>(result_text(&exchange.response)).unwrap(), answer);
    }
    send_marker(&bystander).await;
    assert_eq!(messages_before_marker(&mut bystander_events).await, Vec::<Value>::new());
    assert_eq!(messages_before_marker(&mut caller_events).await, Vec::<Value>::new());
    assert_eq!(shared.gateway.counter("unattributed_requests").await, 0);
}

#[tokio::test]
async fn a_question_while_calls_of_two_clients_run_is_refused_and_reaches_nobody() {
    let shared = Shared::start().await;
    let (asking, mut asking_events) = shared.listening_client().await;
    let (other, mut other_events) = shared.listening_client().await;
    let ask = || json!({"kind": "sampling", "tag": "whose?"});
    let mut endless = shared.start_endless_call(&other, json!(1)).await;

    let exchange = asking.call_tool_answering("ask", ask(), |_| Ok(sampling_answer("wrong"))).await;
    assert_eq!(exchange.server_requests, Vec::<Value>::new());
    let refusal: Value = serde_json::from_str(result_text(&exchange.response)).unwrap();
    assert_eq!(refusal["code"], -32000);
    assert!(refusal["message"].as_str().unwrap().contains("cannot be attributed"), "{refusal}");
    assert_eq!(shared.gateway.counter("unattributed_requests").await, 1);

    send_marker(&asking).await;
    assert_eq!(messages_before_marker(&mut asking_events).await, Vec::<Value>::new());
    assert_eq!(messages_before_marker(&mut other_events).await, Vec::<Value>::new());
    other.notify("notifications/cancelled", Some(json!({"requestId": 1}))).await;
    let left = endless.remaining_messages().await;
    assert_eq!(left.len(), 1, "only the end of the cancelled call: {left:?}");
    assert_eq!(left[0]["error"]["data"]["reason"], "cancelled");

    // The control: with the other call gone, the same question is asked.
    let exchange = asking.call_tool_answering("ask", ask(), |_| Ok(sampling_answer("right"))).await;
    assert_eq!(exchange.server_requests.len(), 1);
    assert!(result_text(&exchange.response).contains("right"));
}

#[tokio::test]
async fn a_question_while_no_call_runs_is_refused_and_reaches_nobody() {
    let shared = Shared::start().await;
    let (client, mut events) = shared.listening_client().await;
    client.call_tool_for_text("ask_unowned", json!({"kind": "elicitation", "tag": "whose?"})).await;
    // Wait first: asking for the outcome is a call, to which the question could be attributed.
    wait_until("it is refused", async || shared.gateway.counter("unattributed_requests").await == 1).await;
    let outcome = async || client.call_tool_for_text("ask_unowned_result", json!({})).await;
    wait_until("the server has its answer", async || outcome().await != "pending").await;
    let refusal: Value = serde_json::from_str(&outcome().await).unwrap();
    assert_eq!(refusal["code"], -32000);
    assert!(refusal["message"].as_str().unwrap().contains("cannot be attributed"), "{refusal}");
    send_marker(&client).await;
    assert_eq!(messages_before_marker(&mut events).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_client_is_not_asked_for_what_it_did_not_declare() {
    let shared = Shared::start().await;
    let plain = shared.client_with(json!({})).await;
    let sampling_only = shared.client_with(json!({"sampling": {}})).await;
    for (client, kind) in [(&plain, "sampling"), (&plain, "elicitation"), (&sampling_only, "elicitation")] {
        let arguments = json!({"kind": kind, "tag": "undeclared"});
        let exchange = client.call_tool_answering("ask", arguments, |_| Ok(json!({}))).await;
        assert_eq!(exchange.server_requests, Vec::<Value>::new(), "{kind}");
        let refusal: Value = serde_json::from_str(result_text(&exchange.response)).unwrap();
        assert_eq!(refusal["code"], -32601, "{kind}: {refusal}");
        assert!(refusal["message"].as_str().unwrap().contains("did not declare"), "{refusal}");
    }
    // The control: a declared capability is asked for.
    let arguments = json!({"kind": "sampling", "tag": "declared"});
    let exchange = sampling_only.call_tool_answering("ask", arguments, |_| Ok(sampling_answer("yes"))).await;
    assert!(result_text(&exchange.response).contains("yes"));
}

#[tokio::test]
async fn a_client_cannot_answer_what_another_was_asked() {
    let shared = Shared::start().await;
    let (asked, other) = (shared.client().await, shared.client().await);
    let id = json!(1);
    let arguments = json!({"kind": "sampling", "tag": "for one only"});
    let mut events = asked.post_tool_call(&id, "ask", arguments).await.into_events();
    let question = next_server_request(&mut events).await;

    assert_eq!(other.respond(&question["id"], sampling_answer("forged")).await.status, 202);
    assert_eq!(shared.gateway.counter("stray_answers").await, 1);

    asked.respond(&question["id"], sampling_answer("genuine")).await;
    let answer = events.next_message().await.unwrap();
    assert!(result_text(&answer).contains("genuine"), "{answer}");
}

async fn start_task(client: &RawClient, ms: u64) -> String {
    let params = json!({"name": "sleep", "arguments": {"ms": ms}, "task": {"ttl": 60_000}});
    let response = client.request("tools/call", Some(params)).await;
    let id = response["result"]["task"]["taskId"].as_str();
    id.unwrap_or_else(|| panic!("no task in {response}")).to_owned()
}

async fn listed_tasks(client: &RawClient) -> Vec<String> {
    let response = client.request("tasks/list", None).await;
    let tasks = response["result"]["tasks"].as_array().unwrap_or_else(|| panic!("{response}")).clone();
    tasks.iter().map(|task| task["taskId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_task_exists_only_for_the_client_that_started_it() {
    let shared = Shared::start().await;
    let (owner, stranger) = (shared.client().await, shared.client().await);
    let task = start_task(&owner, FOREVER_MS).await;
    let own_task = start_task(&stranger, 1).await;
    let named = |task: &str| Some(json!({"taskId": task}));

    assert_eq!(listed_tasks(&owner).await, std::slice::from_ref(&task));
    assert_eq!(listed_tasks(&stranger).await, std::slice::from_ref(&own_task));
    for method in ["tasks/get", "tasks/cancel", "tasks/result"] {
        let refused = stranger.request(method, named(&task)).await;
        assert_eq!(refused["error"]["code"], -32602, "{method}: {refused}");
        let unknown = stranger.request(method, named("no-such-task")).await;
        assert_eq!(refused["error"], unknown["error"], "{method}: it must not tell that the task exists");
    }
    let status = owner.request("tasks/get", named(&task)).await;
    assert_eq!(status["result"]["status"], "working", "the stranger's tasks/cancel did nothing");

    let result = stranger.request("tasks/result", named(&own_task)).await;
    assert_eq!(result_text(&result), "slept");
    let cancelled = owner.request("tasks/cancel", named(&task)).await;
    assert_eq!(cancelled["result"]["status"], "cancelled");
}

/// Starts a call that ends exactly when the test answers the returned question.
async fn start_asking_call(client: &RawClient, id: &Value) -> (EventStream, Value) {
    let arguments = json!({"kind": "sampling", "tag": "hold on"});
    let mut events = client.post_tool_call(id, "ask", arguments).await.into_events();
    let question = next_server_request(&mut events).await;
    (events, question)
}

#[tokio::test]
async fn a_cancellation_does_not_touch_another_clients_call_with_the_same_id() {
    let shared = Shared::start().await;
    let (cancelling, other) = (shared.client().await, shared.client().await);
    let id = json!(42);
    let (mut other_events, question) = start_asking_call(&other, &id).await;
    let mut endless = shared.start_endless_call(&cancelling, id.clone()).await;

    let cancelled = Some(json!({"requestId": id, "reason": "enough"}));
    assert_eq!(cancelling.notify("notifications/cancelled", cancelled).await.status, 202);
    let answer = endless.next_message().await.unwrap();
    assert_eq!(answer["id"], id);
    assert_eq!(answer["error"]["data"]["reason"], "cancelled");

    let sent = shared.log.with_method("notifications/cancelled");
    let count = cancelling.call_tool_for_text("cancelled_count", json!({})).await;
    assert_eq!(count, "1", "{sent:?}");
    other.respond(&question["id"], sampling_answer("still here")).await;
    let answer = other_events.next_message().await.unwrap();
    assert!(answer["id"] == id && result_text(&answer).contains("still here"), "{answer}");
}

#[tokio::test]
async fn the_end_of_one_session_cancels_its_own_calls_only() {
    let shared = Shared::start().await;
    let (leaving, staying) = (shared.client().await, shared.client().await);
    let id = json!("the same");
    let (mut staying_events, question) = start_asking_call(&staying, &id).await;
    let mut endless = shared.start_endless_call(&leaving, id.clone()).await;

    assert_eq!(leaving.delete().await.status, 204);
    let answer = endless.next_message().await.unwrap();
    assert_eq!((&answer["id"], &answer["error"]["data"]["reason"]), (&id, &json!("session_ended")));
    let count = async || staying.call_tool_for_text("cancelled_count", json!({})).await;
    wait_until("the server was told", async || count().await == "1").await;

    staying.respond(&question["id"], sampling_answer("still here")).await;
    let answer = staying_events.next_message().await.unwrap();
    assert!(answer["id"] == id && result_text(&answer).contains("still here"), "{answer}");
    assert_eq!(count().await, "1");
}

#[tokio::test]
async fn the_end_of_an_asked_session_answers_the_server() {
    let shared = Shared::start().await;
    let (asked, other) = (shared.client().await, shared.client().await);
    let (_events, _question) = start_asking_call(&asked, &json!(1)).await;
    asked.delete().await;
    wait_until("the server got an error for an answer", async || {
        shared.log.messages().iter().any(|message| message["error"]["data"]["reason"] == "session_ended")
    })
    .await;
    assert_eq!(other.call_tool_for_text("echo", json!({"text": "fine"})).await, "fine");
}

#[tokio::test]
async fn changed_roots_of_one_client_are_no_news_for_a_shared_server() {
    let shared = Shared::start().await;
    let client = shared.client_with(json!({"roots": {"listChanged": true}})).await;
    assert_eq!(client.notify("notifications/roots/list_changed", None).await.status, 202);
    client.call_tool_for_text("echo", json!({"text": "after it"})).await;
    assert_eq!(shared.log.with_method("notifications/roots/list_changed").len(), 0);

    // The control: a session whose scope came from its roots ends, and even then its server is not notified.
    let directory = workspace_dir("roots");
    let log = MessageLog::new(directory.join("messages"));
    let flags = ["--message-log".as_ref(), log.path().as_os_str()];
    let gateway = Gateway::unfenced().fixture_flags(flags).start().await;
    let mut client = gateway.client();
    client.open(json!({"roots": {"listChanged": true}}), NEWEST).await;
    let root = json!({"uri": format!("file://{}", directory.path().display())});
    let locked = client.call_tool_answering("pid", json!({}), |_| Ok(json!({"roots": [root]}))).await;
    assert_eq!(locked.server_requests.len(), 1, "{locked:?}");
    let refused = client.notify("notifications/roots/list_changed", None).await;
    assert_eq!(refused.status, 403, "{:?}", refused.body);
    assert_eq!(refused.json()["error"]["data"]["reason"], "roots_change_rejected");
    let later = client.post_tool_call(&json!(99), "echo", json!({"text": "after it"})).await;
    assert_eq!(later.status, 403, "{:?}", later.body);
    assert_eq!(later.json()["error"]["data"]["reason"], "roots_change_rejected");
    let process = result_text(&locked.response).parse().unwrap();
    wait_until("its process is gone", async || !process_exists(process)).await;
    assert_eq!(log.with_method("notifications/roots/list_changed").len(), 0);
}

#[tokio::test]
async fn a_shared_server_that_asks_for_roots_hears_the_fixed_scope_whoever_calls() {
    let shared = Shared::start().await;
    let scope = std::env::current_dir().unwrap().canonicalize().unwrap();
    for capabilities in [json!({}), json!({"roots": {}})] {
        let client = shared.client_with(capabilities).await;
        let nobody = |question: &Value| panic!("the client is asked {question}");
        let exchange = client.call_tool_answering("ask", json!({"kind": "roots"}), nobody).await;
        let heard: Value = serde_json::from_str(result_text(&exchange.response)).unwrap();
        assert_eq!(heard["roots"][0]["uri"], format!("file://{}", scope.display()), "{heard}");
        assert_eq!(heard["roots"].as_array().map(Vec::len), Some(1), "{heard}");
    }
}

#[tokio::test]
async fn a_crash_fails_the_calls_of_all_clients_and_the_next_call_starts_one_process() {
    let shared = Shared::start().await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(shared.client().await);
    }
    let old_pid = pid(&clients[0]).await;
    let mut endless = Vec::new();
    for client in &clients {
        for id in [1, 2] {
            endless.push((json!(id), shared.start_endless_call(client, json!(id)).await));
        }
    }
    let crashed = clients[0].call_tool("crash", json!({"code": 7, "stderr": "boom\n"})).await;
    let mut errors = vec![crashed["error"].clone()];
    for (id, mut events) in endless {
        let left = events.remaining_messages().await;
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0]["id"], id);
        errors.push(left[0]["error"].clone());
    }
    for error in errors {
        assert_eq!(error["code"], -32000, "{error}");
        assert_eq!(error["data"]["exit_code"], 7, "{error}");
        assert_eq!(error["data"]["stderr"], "", "it may be about another principal: {error}");
    }

    let (first, second, third) = tokio::join!(pid(&clients[0]), pid(&clients[1]), pid(&clients[2]));
    assert!(first == second && second == third && first != old_pid, "{first} {second} {third} {old_pid}");
    assert_eq!(shared.starts(), 2);
    assert_eq!(shared.log.with_method("initialize").len(), 2, "the handshake was replayed");
    assert_eq!(shared.log.with_method("notifications/initialized").len(), 2);
    assert_eq!(shared.calls_of("sleep"), 6, "no lost call was sent again");
    assert_eq!(shared.gateway.descendants().len(), 1);
}

#[tokio::test]
async fn the_end_of_a_session_leaves_the_process_to_the_others() {
    let shared = Shared::start().await;
    let (leaving, staying) = (shared.client().await, shared.client().await);
    let shared_pid = pid(&staying).await;
    assert_eq!(leaving.delete().await.status, 204);
    let gone = leaving.post_tool_call(&json!(1), "pid", json!({})).await;
    assert_eq!((gone.status.as_u16(), &gone.json()["error"]["code"]), (404, &json!(-32001)));
    assert_eq!(pid(&staying).await, shared_pid);

    assert_eq!(staying.delete().await.status, 204);
    assert_eq!(pid(&shared.client().await).await, shared_pid, "it waits for the next client");
    assert_eq!(shared.starts(), 1);
}

#[tokio::test]
async fn ending_the_gateway_ends_the_shared_process() {
    let mut shared = Shared::start().await;
    let process: u32 = pid(&shared.client().await).await.parse().unwrap();
    assert!(process_exists(process));
    assert!(shared.gateway.terminate().await.success());
    assert!(!process_exists(process));
}
