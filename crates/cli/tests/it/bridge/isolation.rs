//! Many clients at once with the same JSON-RPC ids: every answer, question and value stays with its owner.

use std::collections::HashMap;

use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, RawClient, wait_until};
use tokio::task::JoinSet;

const CLIENTS: u64 = 64;
const CALLS_PER_CLIENT: u64 = 200;
const IN_FLIGHT_PER_CLIENT: u64 = 4;

async fn client(gateway: &Gateway) -> RawClient {
    let mut client = gateway.client();
    client.open(json!({"sampling": {}, "elicitation": {}}), NEWEST).await;
    client
}

/// Runs one lane of a client: its share of the ids `1..=200`, one call after the other.
async fn run_lane(client: RawClient, number: u64, lane: u64) -> Vec<(u64, Vec<Value>)> {
    let mut answers = Vec::new();
    for id in (1 + lane..=CALLS_PER_CLIENT).step_by(usize::try_from(IN_FLIGHT_PER_CLIENT).unwrap()) {
        let nonce = nonce(number, id);
        let reply = client.post_tool_call(&json!(id), "echo", json!({"text": nonce})).await;
        answers.push((id, reply.all_messages().await));
    }
    answers
}

fn nonce(client: u64, id: u64) -> String {
    // Spread over all bits, so that no two nonces look alike.
    let mixed = (client * 1_000 + id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("client {client} call {id} {mixed:016x}")
}

async fn no_answer_is_crossed_lost_or_duplicated(lifecycle: &str) {
    let gateway = Gateway::builder().flag(lifecycle).start().await;
    // The server of a shared gateway runs in its fence from before the first client until after the last.
    let mut stays = gateway.descendants();
    stays.retain(|_| lifecycle == "--shared");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(client(&gateway).await);
    }
    let mut lanes = JoinSet::new();
    for (number, client) in (0..).zip(&clients) {
        for lane in 0..IN_FLIGHT_PER_CLIENT {
            let client = client.clone();
            lanes.spawn(async move { (number, run_lane(client, number, lane).await) });
        }
    }
    let mut answered: HashMap<(u64, u64), usize> = HashMap::new();
    let mut wrong = Vec::new();
    while let Some(lane) = lanes.join_next().await {
        let (number, answers) = lane.unwrap();
        for (id, messages) in answers {
            *answered.entry((number, id)).or_default() += messages.len();
            let expected = json!({
                "jsonrpc": "2.0",
                "id": id,
                "result": {"content": [{"type": "text", "text": nonce(number, id)}]},
            });
            wrong.extend(messages.into_iter().filter(|message| *message != expected));
        }
    }
    assert_eq!(wrong, Vec::<Value>::new(), "crossed");
    assert_eq!(answered.len() as u64, CLIENTS * CALLS_PER_CLIENT, "lost");
    let uneven: Vec<_> = answered.iter().filter(|(_, count)| **count != 1).collect();
    assert_eq!(uneven, Vec::<(&(u64, u64), &usize)>::new(), "lost or duplicated");
    check_counters(&gateway).await;

    for client in &clients {
        assert_eq!(client.delete().await.status, 204);
    }
    wait_until("the other processes are gone", async || gateway.descendants() == stays).await;
    assert_eq!(stays.is_empty(), lifecycle != "--shared");
}

async fn check_counters(gateway: &Gateway) {
    let counters = gateway.report().await["counters"].clone();
    assert_eq!(counters["calls"], CLIENTS * CALLS_PER_CLIENT, "{counters}");
    for never in ["stray_answers", "late_answers", "bad_lines", "timeouts", "worker_deaths"] {
        assert_eq!(counters[never], 0, "{never}: {counters}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_with_equal_ids_stays_apart_with_a_process_per_session() {
    no_answer_is_crossed_lost_or_duplicated("--session-isolation").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_with_equal_ids_stays_apart_in_one_shared_process() {
    no_answer_is_crossed_lost_or_duplicated("--shared").await;
}

#[tokio::test]
async fn every_session_has_a_process_and_a_memory_of_its_own() {
    // Without fences, because inside them the servers have the same pid.
    let gateway = Gateway::unfenced().start().await;
    gateway.wait_for_probe().await;
    let (first, second) = (client(&gateway).await, client(&gateway).await);
    let set = json!({"key": "k", "value": "of the first"});
    let get =
        |client: RawClient| async move { client.call_tool_for_text("state_get", json!({"key": "k"})).await };
    first.call_tool_for_text("state_set", set.clone()).await;
    assert_eq!(get(first.clone()).await, "of the first");
    assert_eq!(get(second.clone()).await, "");
    let (first_pid, second_pid) =
        tokio::join!(first.call_tool_for_text("pid", json!({})), second.call_tool_for_text("pid", json!({})));
    assert_ne!(first_pid, second_pid);
    assert_eq!(gateway.descendants().len(), 2);

    // The control: where the process is shared, the same tool shows the value to other clients.
    let gateway = Gateway::builder().flag("--shared").start().await;
    let (first, second) = (client(&gateway).await, client(&gateway).await);
    first.call_tool_for_text("state_set", set).await;
    assert_eq!(get(second).await, "of the first");
}

#[tokio::test]
async fn questions_to_eight_clients_at_once_each_reach_their_own() {
    const ROUNDS: usize = 10;
    let gateway = Gateway::builder().start().await;
    let mut asked = JoinSet::new();
    for number in 0..8 {
        let client = client(&gateway).await;
        asked.spawn(async move {
            for round in 0..ROUNDS {
                for kind in ["sampling", "elicitation"] {
                    is_asked_its_own_question(&client, kind, &format!("client {number} round {round}")).await;
                }
            }
        });
    }
    while let Some(finished) = asked.join_next().await {
        finished.unwrap();
    }
    assert_eq!(gateway.counter("stray_answers").await, 0);
}

/// The ids of the questions are equal in all processes, so only tag and answer tell them apart.
async fn is_asked_its_own_question(client: &RawClient, kind: &str, tag: &str) {
    let exchange = client
        .call_tool_answering("ask", json!({"kind": kind, "tag": tag}), |question| {
            let params = &question["params"];
            let seen = params["message"].as_str().or(params["messages"][0]["content"]["text"].as_str());
            Ok(json!({"action": "accept", "content": {"answer": seen.unwrap_or("no tag")}}))
        })
        .await;
    assert_eq!(exchange.server_requests.len(), 1, "{tag}");
    let text = exchange.response["result"]["content"][0]["text"].as_str().unwrap();
    let answer: Value = serde_json::from_str(text).unwrap();
    assert_eq!(answer, json!({"action": "accept", "content": {"answer": tag}}));
}

#[tokio::test]
async fn an_event_id_of_another_session_opens_none_of_its_messages() {
    for lifecycle in ["--session-isolation", "--shared"] {
        let gateway = Gateway::builder().flag(lifecycle).start().await;
        let (owner, stranger) = (client(&gateway).await, client(&gateway).await);
        let id = json!(1);
        let arguments = json!({"kind": "sampling", "tag": "private"});
        let mut events = owner.post_tool_call(&id, "ask", arguments).await.into_events();
        let priming = events.next().await.unwrap().id.unwrap();
        let question = events.next_message().await.unwrap();
        let event_id = events.last_event_id().unwrap().to_owned();

        for event in [&priming, &event_id] {
            let reply = stranger.get_stream(Some(event)).await;
            assert_eq!(reply.status, 400, "{lifecycle} {event}: {:?}", reply.body);
        }
        // The control: the owner can resume the stream.
        drop(events);
        let mut events = owner.get_stream(Some(&event_id)).await.into_events();
        owner.respond(&question["id"], json!({"done": true})).await;
        assert_eq!(events.next_message().await.unwrap()["id"], id);
    }
}
