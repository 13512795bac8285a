//! A server that needs input before it answers: the client is asked with the requests of its own era.

use std::sync::Arc;

use axum::response::Response;
use serde_json::{Value, json};
use testkit::wait_until;

use super::{ModernServer, elicitation, input_required};
use crate::conversation::Conversation;
use crate::scripted_server::{Seen, document};

/// A server that answers calls with `answer`, given the request, its input responses and its state.
async fn asking(
    answer: impl Fn(&Seen, &Value, Option<&str>) -> Response + Send + Sync + 'static,
) -> ModernServer {
    let answer = Arc::new(answer);
    ModernServer::start(json!({ "tools": {} }), move |seen| {
        let answer = Arc::clone(&answer);
        async move {
            let params = &seen.message["params"];
            let is_call = seen.method() == "tools/call";
            is_call.then(|| answer(&seen, &params["inputResponses"], params["requestState"].as_str()))
        }
    })
    .await
}

fn done(seen: &Seen, known: &Value) -> Response {
    document(&seen.result(json!({ "resultType": "complete", "known": known })))
}

fn reply(client: &Conversation, question: &Value, result: Value) {
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
}

#[tokio::test]
async fn a_question_becomes_a_request_and_its_answer_goes_with_the_same_call_again() {
    let server = asking(|seen, known, state| match (known.is_object(), state) {
        (false, None) => input_required(seen, json!({ "colour": elicitation("which?") }), Some("s\u{e9}\"1")),
        _ => done(seen, known),
    })
    .await;
    let mut client = server.greeted().await;
    client.call_tool(1, "paint", json!({ "wall": 3 }));
    let question = client.message().await;
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"], json!({ "message": "which?", "requestedSchema": {} }));
    assert!(question["id"].as_str().unwrap().starts_with("ringfence-input-"), "{question}");
    let blue = json!({ "action": "accept", "content": { "answer": "blue" } });
    reply(&client, &question, blue.clone());
    let answer = client.message().await;
    assert_eq!((&answer["id"], &answer["result"]["known"]), (&json!(1), &json!({ "colour": blue })));

    let calls = server.requests("tools/call");
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[1].message["params"]["requestState"], "s\u{e9}\"1");
    assert_ne!(calls[0].message["id"], calls[1].message["id"]);
    let without = |seen: &Seen| {
        let mut params = seen.message["params"].clone();
        params.as_object_mut().unwrap().retain(|key, _| key != "inputResponses" && key != "requestState");
        params
    };
    assert_eq!(without(&calls[0]), without(&calls[1]));
    assert_eq!(calls[1].header("mcp-name"), Some("paint"));
}

#[tokio::test]
async fn several_questions_at_once_may_be_answered_in_any_order_and_more_may_follow() {
    let server = asking(|seen, known, state| match state {
        None => input_required(seen, json!({ "b": elicitation("b?"), "a": elicitation("a?") }), Some("1")),
        Some("1") => input_required(seen, json!({ "c": elicitation("c?") }), Some("2")),
        Some(_) => done(seen, known),
    })
    .await;
    let mut client = server.greeted().await;
    client.call_tool(1, "t", json!({}));
    let (first, second) = (client.message().await, client.message().await);
    assert_ne!(first["id"], second["id"]);
    // Other calls continue meanwhile.
    client.request(2, "tools/list");
    assert_eq!(client.message().await["id"], 2);
    for question in [&second, &first] {
        reply(&client, question, json!({ "action": "accept", "about": question["params"]["message"] }));
    }
    let third = client.message().await;
    reply(&client, &third, json!({ "action": "decline" }));
    assert_eq!(client.answer(1).await["result"]["known"], json!({ "c": { "action": "decline" } }));
    let second_round = &server.requests("tools/call")[1].message["params"]["inputResponses"];
    assert_eq!((&second_round["a"]["about"], &second_round["b"]["about"]), (&json!("a?"), &json!("b?")));
}

#[tokio::test]
async fn a_server_that_only_wants_its_state_back_gets_it_at_once() {
    let server = asking(|seen, known, state| match state {
        None => input_required(seen, Value::Null, Some("1")),
        Some("1") => input_required(seen, json!({}), Some("2")),
        Some(state) => {
            assert!(known.is_null(), "{known}");
            done(seen, &json!(state))
        }
    })
    .await;
    let mut client = server.greeted().await;
    client.call_tool(1, "t", json!({}));
    assert_eq!(client.message().await["result"]["known"], "2");
}

#[tokio::test]
async fn all_three_kinds_of_questions_are_asked_and_no_others() {
    let capabilities = json!({ "elicitation": { "url": {} }, "sampling": {}, "roots": {} });
    let server = asking(|seen, known, _| {
        if known.is_object() {
            return done(seen, known);
        }
        let method = seen.message["params"]["name"].clone();
        input_required(
            seen,
            json!({ "q": { "method": method, "params": { "mode": "url", "url": "x" } } }),
            None,
        )
    })
    .await;
    let mut client = Conversation::open(&server.server.url);
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities });
    client.send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }));
    client.answer(0).await;
    for (id, method) in (1..).zip(["elicitation/create", "sampling/createMessage", "roots/list"]) {
        client.call_tool(id, method, json!({}));
        let question = client.message().await;
        assert_eq!(question["method"], method);
        // The client's era requires an id for an elicitation at a URL.
        assert_eq!(question["params"]["elicitationId"].is_string(), method == "elicitation/create");
        reply(&client, &question, json!({}));
        assert!(client.answer(id).await["result"].is_object());
    }
    for (id, method) in (10..).zip(["tools/call", "ping", "roots/list\u{0}"]) {
        client.call_tool(id, method, json!({}));
        assert_eq!(client.failure(id).await.0, "upstream_input", "{method}");
    }
}

#[tokio::test]
async fn a_client_is_not_asked_what_it_cannot_answer() {
    let server = asking(|seen, known, _| {
        assert!(known.is_null(), "{known}");
        input_required(seen, json!({ "q": { "method": "sampling/createMessage" } }), None)
    })
    .await;
    let mut client = server.greeted().await;
    client.call_tool(1, "t", json!({}));
    let (reason, message) = client.failure(1).await;
    assert_eq!(reason, "upstream_input");
    assert!(message.contains("does not support sampling/createMessage"), "{message}");
}

#[tokio::test]
async fn an_error_in_place_of_an_answer_fails_the_call_and_withdraws_the_other_questions() {
    let server = asking(|seen, _, _| {
        input_required(seen, json!({ "a": elicitation("a?"), "b": elicitation("b?") }), None)
    })
    .await;
    let mut client = server.greeted().await;
    client.call_tool(1, "t", json!({}));
    let (first, second) = (client.message().await, client.message().await);
    let error = json!({ "code": -1, "message": "nobody is here" });
    // An error for either question is enough.
    client.send(&json!({ "jsonrpc": "2.0", "id": second["id"], "error": error }));
    let (reason, message) = client.failure(1).await;
    assert_eq!(reason, "input_refused");
    assert!(message.contains("elicitation/create") && message.contains("nobody is here"), "{message}");
    let withdrawn = client.message().await;
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], first["id"]);
    // An answer that comes too late is harmless.
    reply(&client, &first, json!({ "action": "accept" }));
    client.request(2, "tools/list");
    assert_eq!(client.message().await["id"], 2);
    assert_eq!(server.server.count("POST", "tools/call"), 1);
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_it_waits_for_an_answer_withdraws_the_question() {
    let server = asking(|seen, known, _| {
        assert!(known.is_null(), "{known}");
        input_required(seen, json!({ "a": elicitation("a?") }), None)
    })
    .await;
    let mut client = server.greeted().await;
    client.call_tool(1, "t", json!({}));
    let question = client.message().await;
    let params = json!({ "requestId": 1 });
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
    let withdrawn = client.message().await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    reply(&client, &question, json!({ "action": "accept" }));
    client.request(2, "tools/list");
    assert_eq!(client.message().await["id"], 2, "the cancelled call stays unanswered");
    assert_eq!(server.server.count("POST", "tools/call"), 1);
}

#[tokio::test]
async fn a_server_that_asks_for_ever_is_given_up() {
    let server = asking(|seen, _, _| input_required(seen, Value::Null, Some("again"))).await;
    let mut client = server.greeted().await;
    client.call_tool(1, "t", json!({}));
    let (reason, message) = client.failure(1).await;
    assert_eq!(reason, "upstream_input");
    assert!(message.contains("it asks too often"), "{message}");
    wait_until("it stops", async || server.server.count("POST", "tools/call") == 17).await;
}
