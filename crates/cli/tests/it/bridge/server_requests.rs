//! Requests from a server to its client: which stream carries them, and whose answer counts.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use testkit::{EventStream, Gateway, MessageLog, NEWEST, RawClient, WorkspaceDir, wait_until, workspace_dir};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Far longer than any test, so such a call ends only by being cancelled, or with its session.
const FOREVER_MS: u64 = 3_600_000;

/// Every kind of server request with its method, and whether it needs a capability. Roots are missing, because the
/// gateway itself answers requests for them.
const KINDS: [(&str, &str, bool); 3] = [
    ("sampling", "sampling/createMessage", true),
    ("elicitation", "elicitation/create", true),
    ("ping", "ping", false),
];

fn all_capabilities() -> Value {
    json!({"sampling": {}, "elicitation": {}})
}

async fn open(gateway: &Gateway, version: &str) -> RawClient {
    let mut client = gateway.client();
    client.open(all_capabilities(), version).await;
    client
}

/// Starts a gateway with a fixture that logs the messages it reads.
async fn logged_gateway() -> (Gateway, MessageLog, WorkspaceDir) {
    let directory = workspace_dir("server-requests");
    let log = MessageLog::new(directory.join("messages"));
    let gateway =
        Gateway::unfenced().fixture_flags(["--message-log".as_ref(), log.path().as_os_str()]).start().await;
    (gateway, log, directory)
}

/// Starts a call of `ask` and returns its stream and the question that came on it.
async fn start_asking(client: &RawClient, id: &Value, kind: &str) -> (EventStream, Value) {
    let mut events = client.post_tool_call(id, "ask", json!({"kind": kind})).await.into_events();
    let question = events.next_message().await.unwrap();
    (events, question)
}

/// Makes the server write `lines` during a batch, whose own answer cannot carry requests. When this returns, the
/// gateway has read them.
async fn write_in_batch(client: &RawClient, lines: &str) {
    let call = json!([{
        "jsonrpc": "2.0",
        "id": client.next_id(),
        "method": "tools/call",
        "params": {"name": "raw_stdout", "arguments": {"line": lines}},
    }]);
    let reply = client.post(call.to_string()).await;
    assert_eq!(reply.json()[0]["result"]["content"][0]["text"], "written");
}

/// The answers that reached the server, byte for byte.
fn answers(log: &MessageLog) -> Vec<String> {
    let is_answer = |line: &String| serde_json::from_str::<Value>(line).unwrap().get("method").is_none();
    log.lines().into_iter().filter(is_answer).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_question_comes_on_the_stream_of_the_call_that_asks() {
    let (gateway, _log, _directory) = logged_gateway().await;
    let client = open(&gateway, NEWEST).await;
    let mut listening = client.listen().await;
    for (kind, method, _) in KINDS {
        let tag = format!("tag of {kind}");
        let answer = json!({"answered": kind});
        let exchange = client
            .call_tool_answering("ask", json!({"kind": kind, "tag": tag}), |_| Ok(answer.clone()))
            .await;
        let questions = &exchange.server_requests;
        assert_eq!(questions.len(), 1, "{kind}: {questions:?}");
        assert_eq!(questions[0]["method"], method);
        match kind {
            "sampling" => assert_eq!(questions[0]["params"]["messages"][0]["content"]["text"], tag),
            "elicitation" => assert_eq!(questions[0]["params"]["message"], tag),
            _ => assert_eq!(questions[0].get("params"), None),
        }
        let result = &exchange.response["result"]["content"][0]["text"];
        assert_eq!(result.as_str().map(|text| serde_json::from_str(text).unwrap()), Some(answer), "{kind}");
    }
    client.call_tool_for_text("notify_list_changed", json!({})).await;
    let first = listening.next_message().await.unwrap();
    assert_eq!(first["method"], "notifications/tools/list_changed", "no question went to the other stream");
}

#[tokio::test(flavor = "multi_thread")]
async fn question_and_answer_pass_byte_for_byte_except_for_the_id() {
    let (gateway, log, _directory) = logged_gateway().await;
    let client = open(&gateway, NEWEST).await;
    let mut listening = client.listen().await;
    let question = r#"{"jsonrpc":"2.0", "method":"sampling/createMessage","params":{"n":123456789012345678901234567890,"a":1,"a":2,"t":"\u00e9é🦀"},"id":@ID@}"#;
    let answer = "{\"jsonrpc\":\"2.0\",\n\"id\":@ID@,\"result\":{\"n\":98765432109876543210.50,\"b\":1,\"b\":2,\"t\":\"\\n é\"}}";
    for upstream_id in ["\"a question 🦀\"", "123456789012345678901234567890", "0"] {
        let line = question.replace("@ID@", upstream_id);
        let id = client.next_id();
        let reply = client.post_tool_call(&id, "raw_stdout", json!({"line": line})).await;
        let mut events = reply.into_events();
        let event = loop {
            let event = events.next().await.unwrap();
            if event.message().is_some() {
                break event;
            }
        };
        let client_side_id = event.message().unwrap()["id"].to_string();
        assert_eq!(event.data.unwrap(), question.replace("@ID@", &client_side_id));
        assert_eq!(client.post(answer.replace("@ID@", &client_side_id)).await.status, 202);
        let expected = answer.replace('\n', " ").replace("@ID@", upstream_id);
        wait_until("the answer reached the server", async || answers(&log).contains(&expected)).await;
    }
    client.call_tool_for_text("notify_list_changed", json!({})).await;
    assert!(listening.next_message().await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn with_several_calls_in_flight_the_newest_is_asked() {
    let (gateway, _log, _directory) = logged_gateway().await;
    let client = open(&gateway, "2025-03-26").await;
    let mut listening = client.listen().await;
    let mut streams = Vec::new();
    for id in ["older", "newer"] {
        let reply = client.post_tool_call(&json!(id), "sleep", json!({"ms": FOREVER_MS})).await;
        streams.push((id, reply.into_events()));
    }
    write_in_batch(&client, r#"{"jsonrpc":"2.0","id":"q","method":"ping"}"#).await;
    assert_eq!(streams[1].1.next_message().await.unwrap()["method"], "ping");
    for (id, events) in &mut streams {
        client.notify("notifications/cancelled", Some(json!({"requestId": id}))).await;
        assert_eq!(events.next_message().await.unwrap()["id"], *id, "nothing came before the end");
    }
    client.call_tool_for_text("notify_list_changed", json!({})).await;
    assert!(listening.next_message().await.unwrap().get("id").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn with_no_call_in_flight_the_get_stream_is_asked() {
    let (gateway, _log, _directory) = logged_gateway().await;
    let client = open(&gateway, NEWEST).await;
    let mut listening = client.listen().await;
    for (kind, method, _) in KINDS {
        client.call_tool_for_text("ask_unowned", json!({"kind": kind, "tag": "x"})).await;
        let question = listening.next_message().await.unwrap();
        assert_eq!(question["method"], method);
        assert_eq!(client.respond(&question["id"], json!({"answered": kind})).await.status, 202);
        let expected = json!({"answered": kind}).to_string();
        wait_until("the answer reached the server", async || {
            client.call_tool_for_text("ask_unowned_result", json!({})).await == expected
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_stream_a_question_waits_for_the_get_stream() {
    let (gateway, log, _directory) = logged_gateway().await;
    let client = open(&gateway, "2025-03-26").await;
    write_in_batch(&client, r#"{"jsonrpc":"2.0","id":"waiting","method":"elicitation/create"}"#).await;
    let mut listening = client.listen().await;
    let question = listening.next_message().await.unwrap();
    assert_eq!(question["method"], "elicitation/create");
    client.respond(&question["id"], json!({"action": "decline"})).await;
    wait_until("the answer reached the server", async || !answers(&log).is_empty()).await;
    let answer: Value = serde_json::from_str(&answers(&log)[0]).unwrap();
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": "waiting", "result": {"action": "decline"}}));
}

/// The roots that a server sees: the one directory of its session.
fn roots_of(directory: &Path) -> Value {
    let name = directory.file_name().unwrap().to_str().unwrap();
    json!({"roots": [{"uri": format!("file://{}", directory.display()), "name": name}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_roots_hears_the_scope_and_its_client_hears_nothing() {
    let (default, project) = (workspace_dir("default"), workspace_dir("project"));
    let gateway = Gateway::unfenced().current_dir(default.path()).start().await;
    for (capabilities, scope) in [
        (all_capabilities(), &default),
        (json!({"sampling": {}, "elicitation": {}, "roots": {"listChanged": true}}), &project),
    ] {
        let mut client = gateway.client();
        client.open(capabilities, NEWEST).await;
        // The gateway itself asks clients that support roots, once.
        let root = json!({"uri": format!("file://{}", scope.path().display())});
        let answer = |question: &Value| {
            assert_eq!(question["method"], "roots/list");
            Ok(json!({"roots": [root]}))
        };
        client.call_tool_answering("echo", json!({"text": "the scope is locked"}), answer).await;

        let mut listening = client.listen().await;
        let nobody = |question: &Value| panic!("the client is asked {question}");
        let exchange = client.call_tool_answering("ask", json!({"kind": "roots"}), nobody).await;
        let heard = exchange.response["result"]["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(heard).unwrap(), roots_of(scope.path()));

        client.call_tool_for_text("ask_unowned", json!({"kind": "roots"})).await;
        let outcome = async || client.call_tool_for_text("ask_unowned_result", json!({})).await;
        wait_until("the server has its answer", async || outcome().await != "pending").await;
        assert_eq!(serde_json::from_str::<Value>(&outcome().await).unwrap(), roots_of(scope.path()));
        client.call_tool_for_text("notify_list_changed", json!({})).await;
        let first = listening.next_message().await.unwrap();
        assert_eq!(first["method"], "notifications/tools/list_changed", "nothing was asked before");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_on_a_lost_stream_is_asked_again_on_its_resumption() {
    let (gateway, _log, _directory) = logged_gateway().await;
    let client = open(&gateway, NEWEST).await;
    let id = client.next_id();
    let mut events = client.post_tool_call(&id, "ask", json!({"kind": "sampling"})).await.into_events();
    let priming = events.next().await.unwrap();
    assert_eq!(priming.message(), None);
    drop(events);
    let mut resumed = client.get_stream(priming.id.as_deref()).await.into_events();
    let question = resumed.next_message().await.unwrap();
    client.respond(&question["id"], json!({"after": "resumption"})).await;
    let answer = resumed.next_message().await.unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], json!({"after": "resumption"}).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_answer_to_what_was_asked_is_passed_on_and_only_once() {
    let (gateway, log, _directory) = logged_gateway().await;
    let client = open(&gateway, NEWEST).await;
    let stranger = open(&gateway, NEWEST).await;
    let id = client.next_id();
    let (mut events, question) = start_asking(&client, &id, "sampling").await;
    let asked = question["id"].as_u64().unwrap();
    let wrong = [json!(asked + 1000), json!(asked.to_string()), json!(-1), json!("no"), json!(0)];
    for wrong in &wrong {
        assert_eq!(client.respond(wrong, json!({"wrong": true})).await.status, 202, "{wrong}");
        assert_eq!(client.respond_error(wrong, json!({"code": 1, "message": "wrong"})).await.status, 202);
    }
    assert_eq!(stranger.respond(&question["id"], json!({"wrong": true})).await.status, 202);
    assert_eq!(gateway.counter("stray_answers").await, 2 * 5 + 1);
    assert_eq!(client.respond(&question["id"], json!({"right": true})).await.status, 202);
    let answer = events.next_message().await.unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], json!({"right": true}).to_string());
    assert_eq!(client.respond(&question["id"], json!({"again": true})).await.status, 202);
    assert_eq!(gateway.counter("stray_answers").await, 2 * 5 + 1);
    assert_eq!(gateway.counter("late_answers").await, 1);
    client.request("ping", None).await;
    let passed_on = answers(&log);
    assert_eq!(passed_on.len(), 1, "{passed_on:?}");
    assert!(passed_on[0].contains("right"), "{passed_on:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_a_null_id_is_refused() {
    let (gateway, _log, _directory) = logged_gateway().await;
    let client = open(&gateway, NEWEST).await;
    let (mut events, question) = start_asking(&client, &client.next_id(), "ping").await;
    assert_eq!(client.respond(&Value::Null, json!({})).await.status, 400);
    assert_eq!(client.respond(&question["id"], json!({})).await.status, 202);
    assert_eq!(events.next_message().await.unwrap()["result"]["content"][0]["text"], "{}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_client_reaches_the_server() {
    let (gateway, _log, _directory) = logged_gateway().await;
    let client = open(&gateway, NEWEST).await;
    for (kind, ..) in KINDS {
        let error = json!({"code": -1, "message": "the user said no", "data": {"kind": kind}});
        let exchange = client.call_tool_answering("ask", json!({"kind": kind}), |_| Err(error.clone())).await;
        let text = exchange.response["result"]["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), error);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_not_asked_for_what_it_did_not_declare() {
    let (gateway, _log, _directory) = logged_gateway().await;
    let mut silent = gateway.client();
    silent.open(json!({}), NEWEST).await;
    let able = open(&gateway, NEWEST).await;
    for (kind, method, needs_capability) in KINDS {
        let ask = json!({"kind": kind});
        let exchange = silent.call_tool_answering("ask", ask.clone(), |_| Ok(json!({}))).await;
        let text = exchange.response["result"]["content"][0]["text"].as_str().unwrap();
        if needs_capability {
            let error: Value = serde_json::from_str(text).unwrap();
            assert_eq!(error["code"], -32601, "{kind}: {error}");
            assert!(error["message"].as_str().unwrap().contains(method), "{error}");
            assert!(exchange.server_requests.is_empty(), "{:?}", exchange.server_requests);
        } else {
            assert_eq!((text, exchange.server_requests.len()), ("{}", 1), "{kind}");
        }
        let control = able.call_tool_answering("ask", ask, |_| Ok(json!({}))).await;
        assert_eq!(control.server_requests.len(), 1, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_the_server_takes_back_is_taken_back_from_the_client() {
    let (gateway, log, _directory) = logged_gateway().await;
    let client = open(&gateway, NEWEST).await;
    let lines = [
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"never asked"}}"#,
        r#"{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q","reason":"no longer needed"}}"#,
    ]
    .join("\n");
    let exchange_id = client.next_id();
    let mut events =
        client.post_tool_call(&exchange_id, "raw_stdout", json!({"line": lines})).await.into_events();
    let messages = events.remaining_messages().await;
    assert_eq!(messages.len(), 3, "{messages:?}");
    assert_eq!(messages[0]["method"], "sampling/createMessage");
    assert_eq!(messages[1]["method"], "notifications/cancelled");
    assert_eq!(messages[1]["params"], json!({"requestId": messages[0]["id"], "reason": "no longer needed"}));
    assert_eq!(messages[2]["id"], exchange_id);
    assert_eq!(client.respond(&messages[0]["id"], json!({"late": true})).await.status, 202);
    assert_eq!(gateway.counter("late_answers").await, 1);
    client.request("ping", None).await;
    assert!(answers(&log).is_empty(), "{:?}", answers(&log));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_of_a_server_that_died_is_taken_back() {
    let (gateway, log, _directory) = logged_gateway().await;
    let client = open(&gateway, NEWEST).await;
    let mut listening = client.listen().await;
    let (mut events, question) = start_asking(&client, &client.next_id(), "elicitation").await;
    client.call_tool("crash", json!({})).await;
    assert_eq!(events.next_message().await.unwrap()["error"]["data"]["reason"], "upstream_exited");
    let notice = listening.next_message().await.unwrap();
    assert_eq!(notice["method"], "notifications/cancelled");
    assert_eq!(notice["params"]["requestId"], question["id"]);
    assert_eq!(client.respond(&question["id"], json!({"late": true})).await.status, 202);
    client.call_tool_for_text("pid", json!({})).await;
    assert!(answers(&log).is_empty(), "the next process hears no answer to what it never asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_clients_are_each_asked_by_their_own_server() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 10;
    let gateway = Gateway::unfenced().start().await;
    let together = Arc::new(Barrier::new(CLIENTS));
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let client = open(&gateway, NEWEST).await;
        let together = Arc::clone(&together);
        clients.spawn(async move {
            for round in 0..ROUNDS {
                let tag = format!("client {number} round {round}");
                together.wait().await;
                let arguments = json!({"kind": "sampling", "tag": tag});
                let echo = |question: &Value| Ok(question["params"]["messages"][0]["content"].clone());
                let exchange = client.call_tool_answering("ask", arguments, echo).await;
                let texts = exchange.server_requests.iter();
                let texts = texts.map(|question| &question["params"]["messages"][0]["content"]["text"]);
                assert_eq!(texts.collect::<Vec<_>>(), [tag.as_str()]);
                let answer = exchange.response["result"]["content"][0]["text"].as_str().unwrap();
                assert_eq!(serde_json::from_str::<Value>(answer).unwrap()["text"], tag);
            }
        });
    }
    clients.join_all().await;
    assert_eq!(gateway.counter("stray_answers").await, 0);
}
