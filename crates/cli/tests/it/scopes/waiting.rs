//! Between `initialize` and the lock: requests wait in order, the gateway asks the client on a stream that it reads,
//! and the errors of requests that time out name the missing step.

use serde_json::{Value, json};
use testkit::{
    EventStream, Gateway, MessageLog, NEWEST, Project, RawClient, ReplyBody, fixture_binary, roots, text_of,
    wait_until,
};

use super::{
    begin_asked_call, initialize, lock, only_message, open, project_with_secret, roots_question,
    say_initialized, window, with_roots, working_directory,
};

/// Starts a gateway whose servers log every message to a file in their workspace.
async fn logging_gateway() -> Gateway {
    Gateway::builder().fixture_flags(["--message-log", "messages"]).start().await
}

fn message_log(project: &Project) -> MessageLog {
    MessageLog::new(project.path.join("messages"))
}

/// The texts of the `echo` calls that reached the server, in order.
fn echoed(log: &MessageLog) -> Vec<Value> {
    let calls = log.with_method("tools/call").into_iter();
    calls
        .filter(|call| call["params"]["name"] == "echo")
        .map(|mut call| call["params"]["arguments"]["text"].take())
        .collect()
}

async fn post_echo(client: &RawClient, text: &str) -> EventStream {
    client.post_tool_call(&json!(text), "echo", json!({ "text": text })).await.into_events()
}

#[tokio::test]
async fn fifty_requests_wait_and_reach_the_server_once_each_in_their_order() {
    const REQUESTS: usize = 50;
    let gateway = logging_gateway().await;
    let project = project_with_secret("fifty");
    let client = open(&gateway).await;
    let texts: Vec<String> = (0..REQUESTS).map(|number| format!("request {number}")).collect();
    let mut first = post_echo(&client, &texts[0]).await;
    let question = roots_question(&mut first).await;
    let mut streams = vec![first];
    for text in &texts[1..] {
        // This returns once the gateway has opened a stream; by then the request waits.
        streams.push(post_echo(&client, text).await);
    }
    assert_eq!(message_log(&project).lines(), Vec::<String>::new());
    client.respond(&question, roots(&[&project.path])).await;
    for (text, stream) in texts.iter().zip(streams) {
        let answer = only_message(stream).await;
        assert_eq!((&answer["id"], &text_of(&answer)), (&json!(text), text));
    }
    assert_eq!(echoed(&message_log(&project)), texts);
    assert_eq!(gateway.counter("stray_answers").await, 0);
}

#[tokio::test]
async fn requests_that_come_all_at_once_before_the_lock_are_each_answered_once() {
    let gateway = logging_gateway().await;
    let project = project_with_secret("at-once");
    let client = open(&gateway).await;
    let (events, question) = begin_asked_call(&client, &json!("first"), "working_directory").await;
    let mut requests = tokio::task::JoinSet::new();
    for number in 0..100 {
        let call = client.post_tool_call(&json!(number), "echo", json!({"text": number.to_string()}));
        requests.spawn(call.into_future());
        if number == 50 {
            client.respond(&question, roots(&[&project.path])).await;
        }
    }
    text_of(&only_message(events).await);
    let mut answered = Vec::new();
    while let Some(reply) = requests.join_next().await {
        let reply = reply.unwrap();
        let messages = match reply.body {
            ReplyBody::Json(message) => vec![message],
            ReplyBody::Sse(mut events) => events.remaining_messages().await,
            other => panic!("{other:?}"),
        };
        let mut answers = messages.into_iter().filter(|message| message.get("method").is_none());
        let answer = answers.next().unwrap();
        assert_eq!(answers.next(), None);
        assert_eq!(text_of(&answer), answer["id"].to_string());
        answered.push(answer["id"].as_u64().unwrap());
    }
    answered.sort_unstable();
    assert_eq!(answered, (0..100).collect::<Vec<_>>());
    let mut reached: Vec<u64> =
        echoed(&message_log(&project)).iter().map(|text| text.as_str().unwrap().parse().unwrap()).collect();
    reached.sort_unstable();
    assert_eq!(reached, answered, "each was sent once");
}

#[tokio::test]
async fn the_handshake_and_ping_are_answered_before_anything_is_known_of_roots() {
    let gateway = logging_gateway().await;
    let project = project_with_secret("handshake");
    let mut client = gateway.client();
    let opened = client.open(with_roots(), NEWEST).await;
    assert_eq!(opened.result["serverInfo"]["name"], "ringfence-fixture", "{}", opened.result);
    assert!(opened.result["capabilities"]["tools"].is_object(), "{}", opened.result);
    let (events, question) = begin_asked_call(&client, &json!("call"), "working_directory").await;
    for _ in 0..3 {
        let reply = client.post_request(&json!("ping"), "ping", None).await;
        assert_eq!((reply.status.as_u16(), &reply.json()["result"]), (200, &json!({})));
    }
    assert_eq!(message_log(&project).lines(), Vec::<String>::new(), "no server runs there yet");
    client.respond(&question, roots(&[&project.path])).await;
    assert_eq!(text_of(&only_message(events).await), project.path.to_string_lossy());
    // The server got the client's `initialize` exactly once.
    let log = message_log(&project);
    assert_eq!(log.with_method("initialize").len(), 1);
    assert_eq!(log.with_method("notifications/initialized").len(), 1);
    assert_eq!(log.with_method("initialize")[0]["params"]["clientInfo"]["name"], "ringfence-testkit");
    assert_eq!(log.with_method("ping").len(), 0);
    assert_eq!(client.request("ping", None).await["result"], json!({}));
}

#[tokio::test]
async fn a_request_that_was_cancelled_while_it_waited_never_reaches_the_server() {
    let gateway = logging_gateway().await;
    let project = project_with_secret("cancelled");
    let client = open(&gateway).await;
    let mut first = post_echo(&client, "first").await;
    let question = roots_question(&mut first).await;
    let second = post_echo(&client, "second").await;
    let third = post_echo(&client, "third").await;
    let cancelled = client.notify("notifications/cancelled", Some(json!({"requestId": "second"}))).await;
    assert_eq!(cancelled.status, 202);
    let answer = only_message(second).await;
    assert_eq!(answer["error"]["data"]["reason"], "cancelled", "{answer}");
    client.respond(&question, roots(&[&project.path])).await;
    assert_eq!(text_of(&only_message(first).await), "first");
    assert_eq!(text_of(&only_message(third).await), "third");
    assert_eq!(echoed(&message_log(&project)), ["first", "third"]);
    assert_eq!(message_log(&project).with_method("notifications/cancelled").len(), 0);
}

#[tokio::test]
async fn tools_can_be_listed_first() {
    let gateway = Gateway::builder().start().await;
    let project = project_with_secret("tools-first");
    let client = open(&gateway).await;
    let exchange = client.request_answering("tools/list", None, |_| Ok(roots(&[&project.path]))).await;
    assert_eq!(exchange.server_requests.len(), 1);
    assert!(exchange.response["result"]["tools"].is_array(), "{}", exchange.response);
    assert_eq!(working_directory(&client).await, project.path);
}

fn assert_timed_out(answer: &Value, missing: &str) {
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
    assert_eq!(answer["error"]["data"], json!({"reason": "scope_timeout", "missing": missing}), "{answer}");
}

async fn hasty_gateway() -> Gateway {
    Gateway::builder().flags(["--scope-timeout", "3"]).start().await
}

#[tokio::test]
async fn a_client_that_never_says_initialized_hears_so_and_may_still_say_it() {
    let gateway = hasty_gateway().await;
    let project = project_with_secret("uninitialized");
    let mut client = gateway.client();
    initialize(&mut client, NEWEST).await;
    let get = client.get_stream(None).await.into_events();
    let answer = client.request("tools/list", None).await;
    assert_timed_out(&answer, "initialized");
    assert!(answer["error"]["message"].as_str().unwrap().contains("notifications/initialized"), "{answer}");

    say_initialized(&client).await;
    lock_by_whichever_stream(&client, get, &project).await;
    assert_eq!(working_directory(&client).await, project.path);
}

/// Answers the `roots/list` on the client's GET stream.
async fn lock_by_whichever_stream(client: &RawClient, mut get: EventStream, project: &Project) {
    let question = roots_question(&mut get).await;
    assert_eq!(client.respond(&question, roots(&[&project.path])).await.status, 202);
}

#[tokio::test]
async fn a_client_that_reads_no_stream_hears_so_and_may_still_read_one() {
    let gateway = hasty_gateway().await;
    let project = project_with_secret("batches-only");
    let mut client = gateway.client();
    initialize(&mut client, "2025-03-26").await;
    say_initialized(&client).await;
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "x"}}},
    ]);
    let reply = client.post(batch.to_string()).await;
    let answers = reply.json().as_array().unwrap();
    assert_eq!(answers.len(), 2, "{answers:?}");
    for answer in answers {
        assert_timed_out(answer, "stream");
        assert!(answer["error"]["message"].as_str().unwrap().contains("GET"), "{answer}");
    }
    assert_eq!(lock(&client, roots(&[&project.path])).await, project.path.to_string_lossy());
    // The control: now that the scope is known, batches are served.
    let reply = client.post(batch.to_string()).await;
    assert_eq!(text_of(&reply.json()[1]), "x");
}

#[tokio::test]
async fn a_batch_waits_for_the_answer_on_the_other_stream() {
    let gateway = Gateway::builder().start().await;
    let project = project_with_secret("batch-and-stream");
    let mut client = gateway.client();
    initialize(&mut client, "2025-03-26").await;
    say_initialized(&client).await;
    let batch = json!([{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, {"jsonrpc": "2.0", "id": 2, "method": "ping"}]);
    let (reply, ()) = tokio::join!(client.post(batch.to_string()).into_future(), async {
        let get = client.get_stream(None).await.into_events();
        lock_by_whichever_stream(&client, get, &project).await;
    });
    let answers = reply.json().as_array().unwrap();
    assert!(answers[0]["result"]["tools"].is_array(), "{answers:?}");
    assert_eq!(answers[1], json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
}

#[tokio::test]
async fn a_client_that_does_not_answer_hears_so_and_is_asked_again_by_its_next_request() {
    let gateway = hasty_gateway().await;
    let project = project_with_secret("silent");
    let client = open(&gateway).await;
    let mut questions = Vec::new();
    for _ in 0..2 {
        let id = client.next_id();
        let (events, question) = begin_asked_call(&client, &id, "working_directory").await;
        let answer = only_message(events).await;
        assert_timed_out(&answer, "roots");
        assert!(answer["error"]["message"].as_str().unwrap().contains("roots/list"), "{answer}");
        questions.push(question);
    }
    assert_ne!(questions[0], questions[1]);
    assert_eq!(lock(&client, roots(&[&project.path])).await, project.path.to_string_lossy());
}

#[tokio::test]
async fn an_answer_after_the_deadline_still_locks() {
    let gateway = hasty_gateway().await;
    let (project, other) = (project_with_secret("late"), project_with_secret("later"));
    let client = open(&gateway).await;
    let (events, question) = begin_asked_call(&client, &json!("call"), "working_directory").await;
    assert_timed_out(&only_message(events).await, "roots");
    client.respond(&question, roots(&[&project.path])).await;
    let exchange =
        client.call_tool_answering("working_directory", json!({}), |_| Ok(roots(&[&other.path]))).await;
    assert_eq!(text_of(&exchange.response), project.path.to_string_lossy());
    assert_eq!(exchange.server_requests, Vec::<Value>::new());
}

#[tokio::test]
async fn a_question_on_a_stream_that_closed_is_asked_again_on_a_waiting_request() {
    let gateway = Gateway::builder().start().await;
    let project = project_with_secret("closed");
    let client = open(&gateway).await;
    let mut get = client.get_stream(None).await.into_events();
    let first = roots_question(&mut get).await;
    drop(get);
    let (events, second) = begin_asked_call(&client, &json!("call"), "working_directory").await;
    assert_ne!(first, second);
    client.respond(&second, roots(&[&project.path])).await;
    assert_eq!(text_of(&only_message(events).await), project.path.to_string_lossy());
}

#[tokio::test]
async fn a_client_that_does_not_read_its_other_stream_is_asked_on_its_request_too() {
    let gateway = Gateway::builder().start().await;
    let project = project_with_secret("unread");
    let client = open(&gateway).await;
    // The client keeps this stream open but does not answer the question on it.
    let mut get = client.get_stream(None).await.into_events();
    let first = roots_question(&mut get).await;
    let (events, second) = begin_asked_call(&client, &json!("call"), "working_directory").await;
    assert_ne!(first, second);
    client.respond(&second, roots(&[&project.path])).await;
    assert_eq!(text_of(&only_message(events).await), project.path.to_string_lossy());
    drop(get);
}

#[tokio::test]
async fn a_client_is_asked_three_times_at_most_before_its_requests_fail() {
    let gateway = Gateway::builder().flags(["--scope-timeout", "15"]).start().await;
    let project = project_with_secret("three");
    let client = open(&gateway).await;
    let mut questions = Vec::new();
    for number in 0..3 {
        // Each stream is closed at once, which does not cancel its request.
        let (events, question) = begin_asked_call(&client, &json!(number), "working_directory").await;
        assert!(!questions.contains(&question), "{question} again after {questions:?}");
        questions.push(question);
        drop(events);
    }
    let mut events =
        client.post_tool_call(&json!("fourth"), "working_directory", json!({})).await.into_events();
    let messages = events.remaining_messages().await;
    assert_eq!(messages.len(), 1, "it was not asked: {messages:?}");
    assert_timed_out(&messages[0], "roots");

    let (events, question) = begin_asked_call(&client, &json!("fifth"), "working_directory").await;
    assert!(!questions.contains(&question), "{question} again after {questions:?}");
    // All the questions are still open, and the first answer counts.
    client.respond(&questions[1], roots(&[&project.path])).await;
    assert_eq!(text_of(&only_message(events).await), project.path.to_string_lossy());
}

#[tokio::test]
async fn a_session_that_waits_keeps_nobody_else_waiting() {
    let gateway = Gateway::builder().start().await;
    let (silent, project) = (open(&gateway).await, project_with_secret("other"));
    let (_events, _question) = begin_asked_call(&silent, &json!("call"), "working_directory").await;
    let client = window(&gateway, &project.path).await;
    assert_eq!(client.call_tool_for_text("echo", json!({"text": "served"})).await, "served");
}

#[tokio::test]
async fn a_session_that_is_deleted_while_it_waits_answers_whoever_waited_and_starts_nothing() {
    let gateway = logging_gateway().await;
    let project = project_with_secret("deleted");
    let client = open(&gateway).await;
    let (events, question) = begin_asked_call(&client, &json!("call"), "working_directory").await;
    assert_eq!(client.delete().await.status, 204);
    let answer = only_message(events).await;
    assert_eq!(answer["error"]["data"]["reason"], "session_ended", "{answer}");
    assert_eq!(client.respond(&question, roots(&[&project.path])).await.status, 404);
    wait_until("nothing runs", async || gateway.descendants().is_empty()).await;
    assert_eq!(message_log(&project).lines(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_end_in_the_middle_of_their_lock_leave_nothing_behind() {
    let gateway = Gateway::builder().start().await;
    let project = project_with_secret("hasty");
    for _ in 0..20 {
        let client = open(&gateway).await;
        let (events, question) = begin_asked_call(&client, &json!("call"), "working_directory").await;
        let (answered, deleted) =
            tokio::join!(client.respond(&question, roots(&[&project.path])), client.delete().into_future(),);
        assert!(answered.status == 202 || answered.status == 404, "{}", answered.status);
        assert_eq!(deleted.status, 204);
        // The call is answered once, whichever came first.
        let answer = only_message(events).await;
        assert_eq!(answer["id"], "call");
    }
    wait_until("nothing runs", async || gateway.descendants().is_empty()).await;
    assert_eq!(gateway.open_sessions().await, 0);
    // The control: a client that stays is served.
    assert_eq!(working_directory(&window(&gateway, &project.path).await).await, project.path);
}

#[tokio::test]
async fn clients_that_come_and_go_in_the_middle_of_the_handshake_disturb_nobody() {
    let gateway = Gateway::builder()
        .flags(["--handshake-timeout", "8", "--idle-timeout", "8", "--scope-timeout", "8"])
        .start()
        .await;
    let project = project_with_secret("come-and-go");
    for number in 0..12 {
        let mut client = gateway.client();
        initialize(&mut client, NEWEST).await;
        if number % 3 > 0 {
            say_initialized(&client).await;
        }
        if number % 3 > 1 {
            let (events, _) = begin_asked_call(&client, &json!("call"), "working_directory").await;
            drop(events);
        }
    }
    assert_eq!(working_directory(&window(&gateway, &project.path).await).await, project.path);
    wait_until("all of them are gone", async || gateway.open_sessions().await == 0).await;
    wait_until("nothing runs", async || gateway.descendants().is_empty()).await;
}

#[tokio::test]
async fn a_server_that_is_another_in_its_workspace_than_was_foretold_ends_the_session_once() {
    let fixture = fixture_binary();
    let script = format!(
        "if [ -e old ]; then exec {0} --version-cap 2025-06-18; else exec {0}; fi",
        fixture.to_str().unwrap()
    );
    let gateway = Gateway::builder()
        .flag("--read")
        .flag(fixture.parent().unwrap())
        .command(["sh", "-c", &script])
        .start()
        .await;
    let (new, old) = (project_with_secret("new"), project_with_secret("old"));
    std::fs::write(old.path.join("old"), "").unwrap();
    // The control: in this workspace the server answers as it did when it was probed.
    window(&gateway, &new.path).await;

    let mut client = open(&gateway).await;
    let exchange = client.request_answering("tools/list", None, |_| Ok(roots(&[&old.path]))).await;
    assert!(exchange.response["error"].is_object(), "{}", exchange.response);
    wait_until("the session is unknown, so that its client starts over", async || {
        client.post_request(&json!("later"), "ping", None).await.status == 404
    })
    .await;
    // The next `initialize` of this kind gets the version that the server has in that workspace, and is served.
    let opened = client.open(with_roots(), NEWEST).await;
    assert_eq!(opened.protocol_version, "2025-06-18");
    assert_eq!(lock(&client, roots(&[&old.path])).await, old.path.to_string_lossy());
}
