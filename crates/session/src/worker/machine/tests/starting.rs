//! From the first work to an upstream that is up, or to the reason why it is not.

use upstream::{Address, Lifecycle, MAX_OUTBOX_BYTES, StartError, Transport};

use crate::settings::MAX_WAITING;
use crate::testing;
use crate::worker::queue::Work;
use crate::worker::testing::{INITIALIZED, Rig};

/// A process per session that has not started, with one client: `a`.
fn down() -> Rig {
    let mut rig = Rig::new(Lifecycle::Session);
    rig.join("a");
    rig
}

#[test]
fn nothing_runs_before_there_is_work() {
    let rig = down();
    assert_eq!(rig.machine.condition(), ("down", 0));
    assert!(rig.machine.is_down());
}

#[test]
fn the_first_call_starts_a_generation() {
    let mut rig = down();
    assert_eq!(rig.tool("a", 7), ["start 1"]);
    assert_eq!(rig.machine.condition(), ("starting", 1));
}

#[test]
fn work_while_the_upstream_starts_starts_no_other() {
    let mut rig = down();
    rig.tool("a", 7);
    assert!(rig.tool("a", 8).is_empty());
    assert!(rig.ready().1.is_empty());
    assert!(rig.ask("ping").1.is_empty());
    assert_eq!(rig.machine.condition(), ("starting", 1));
}

#[test]
fn calls_that_waited_are_sent_in_their_order_once_the_upstream_is_greeted() {
    let mut rig = down();
    for id in [9, 7, 8] {
        rig.call("a", id, "tools/call", &format!(r#"{{"n":{id}}}"#));
    }
    assert_eq!(
        rig.greeted(),
        [
            r#"call #1 tools/call {"n":9}"#,
            r#"call #2 tools/call {"n":7}"#,
            r#"call #3 tools/call {"n":8}"#,
            "tell a CameUp"
        ]
    );
    assert_eq!(rig.machine.condition(), ("up", 1));
}

#[test]
fn a_call_to_an_upstream_that_is_up_is_sent_at_once() {
    let mut rig = Rig::up(Lifecycle::Session);
    assert_eq!(rig.tool("a", 7), ["call #1 tools/call {}"]);
}

#[test]
fn a_handshake_that_the_client_has_finished_is_finished_before_its_calls() {
    let mut rig =
        Rig::with(Lifecycle::Session, |_, greeting| greeting.initialized = Some(INITIALIZED.into()));
    rig.join("a");
    rig.tool("a", 7);
    assert_eq!(rig.greeted(), ["send notifications/initialized", "call #1 tools/call {}", "tell a CameUp"]);
}

#[test]
fn every_session_of_the_worker_hears_that_it_came_up() {
    let mut rig = Rig::new(Lifecycle::Shared);
    rig.join("a");
    rig.join("b");
    rig.tool("a", 7);
    let actions = crate::worker::testing::sorted(rig.greeted());
    assert_eq!(actions, ["call #1 tools/call {}", "tell a CameUp", "tell b CameUp"]);
}

#[test]
fn the_answer_to_initialize_reaches_those_who_wait_for_it() {
    let mut rig = down();
    let (mut early, actions) = rig.ready();
    assert_eq!(actions, ["start 1"]);
    assert!(early.try_recv().is_err(), "not greeted yet");
    rig.greeted_with("2025-06-18", r#"{"tools":{}}"#);
    assert_eq!(early.try_recv().unwrap().unwrap().version, Some(wire::Version::V2025_06_18));
    let (mut late, actions) = rig.ready();
    assert!(actions.is_empty());
    assert_eq!(late.try_recv().unwrap().unwrap().version, Some(wire::Version::V2025_06_18));
}

#[test]
fn a_question_of_the_gateway_starts_the_upstream_and_gets_its_answer() {
    let mut rig = down();
    let (mut answer, actions) = rig.ask("tools/list");
    assert_eq!(actions, ["start 1"]);
    assert_eq!(rig.greeted(), ["call #1 tools/list {}", "tell a CameUp"]);
    assert!(rig.answered(1, r#"{"tools":[]}"#).is_empty());
    let response = answer.try_recv().unwrap().unwrap();
    assert_eq!(response.outcome(), wire::Outcome::Result(r#"{"tools":[]}"#));
}

#[test]
fn a_start_that_fails_refuses_all_that_waits_with_its_reason() {
    let mut rig = down();
    let (mut ready, _) = rig.ready();
    let (mut asked, _) = rig.ask("ping");
    rig.tool("a", 7);
    assert_eq!(rig.start_failed(), ["fail a #7: cannot start the MCP server `server`: no room"]);
    assert!(matches!(ready.try_recv().unwrap(), Err(StartError::Spawn { .. })));
    assert!(matches!(asked.try_recv().unwrap(), Err(StartError::Spawn { .. })));
    assert_eq!(rig.machine.condition(), ("down", 1));
}

#[test]
fn what_an_upstream_says_after_its_start_was_given_up_changes_nothing() {
    let mut rig = down();
    assert!(rig.greeted().is_empty(), "down");
    rig.tool("a", 7);
    rig.start_failed();
    assert!(rig.greeted().is_empty(), "failed");
    assert_eq!(rig.machine.condition(), ("down", 1));
    rig.stop();
    assert!(rig.greeted().is_empty(), "stopped");
    assert_eq!(rig.machine.condition(), ("stopped", 1));
}

#[test]
fn an_upstream_that_is_up_cannot_fail_to_start() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    assert!(rig.start_failed().is_empty());
    assert_eq!(rig.answered(1, "{}"), ["answer a #7 = {}"]);
}

#[test]
fn only_the_newest_generation_is_wanted_while_it_starts() {
    let mut rig = down();
    assert!(!rig.machine.is_starting(0), "down");
    rig.tool("a", 7);
    assert!(rig.machine.is_starting(1));
    assert!(!rig.machine.is_starting(2));
    rig.start_failed();
    assert!(!rig.machine.is_starting(1), "failed");
    rig.tool("a", 8);
    assert!(!rig.machine.is_starting(1), "replaced");
    assert!(rig.machine.is_starting(2));
    rig.greeted();
    assert!(!rig.machine.is_starting(2), "up");
}

#[test]
fn so_much_work_may_wait_and_no_more() {
    let mut rig = down();
    for _ in 0..MAX_WAITING {
        rig.ready();
    }
    let refusal = ["fail a #7: the MCP server is still starting, and too many requests wait for it"];
    assert_eq!(rig.tool("a", 7), refusal);
    let (mut ready, _) = rig.ready();
    assert!(matches!(ready.try_recv().unwrap(), Err(StartError::TooManyWaiting)));
    assert_eq!(rig.greeted(), ["tell a CameUp"]);
    assert_eq!(rig.tool("a", 8), ["call #1 tools/call {}"], "the bound is about waiting only");
}

#[test]
fn so_many_bytes_may_wait_and_no_more() {
    let mut rig = down();
    let text = format!(r#"{{"text":"{}"}}"#, "x".repeat(MAX_OUTBOX_BYTES / 16));
    let large = testing::request(1, "tools/call", &text);
    let mut submit = |id| {
        let (call, _) = testing::call(rig.client("a"), &testing::request(id, "tools/call", "{}"));
        let actions = rig.machine.submit(Work::Call(call, Box::new(large.clone())), rig.now);
        rig.perform(actions)
    };
    let outcomes: Vec<_> = (1..=17).map(&mut submit).collect();
    assert_eq!(outcomes[0], ["start 1"]);
    assert!(outcomes[1..15].iter().all(Vec::is_empty));
    let refusal = "the MCP server is still starting, and too many requests wait for it";
    assert_eq!(outcomes[15], [format!("fail a #16: {refusal}")], "texts and frames exceed the bound");
    assert_eq!(outcomes[16], [format!("fail a #17: {refusal}")]);
    assert!(rig.tool("a", 18).is_empty(), "a small one still has room");
}

#[test]
fn the_greeting_has_an_id_and_its_answer_is_awaited() {
    let mut rig = down();
    rig.tool("a", 7);
    let (id, mut answer) = rig.machine.begin_greeting();
    assert_eq!(id, 1);
    assert!(rig.answered(1, r#"{"protocolVersion":"2025-11-25"}"#).is_empty());
    assert!(answer.try_recv().unwrap().is_ok());
    assert_eq!(rig.greeted(), ["call #2 tools/call {}", "tell a CameUp"]);
}

#[test]
fn the_answer_to_a_forgotten_greeting_is_late() {
    let mut rig = down();
    rig.tool("a", 7);
    let (id, mut answer) = rig.machine.begin_greeting();
    rig.machine.forget_request(id);
    assert_eq!(rig.answered(id, "{}"), ["note LateAnswer"]);
    assert!(answer.try_recv().is_err());
}

#[test]
fn every_generation_is_greeted_with_the_same_words() {
    let mut rig = down();
    let first = rig.machine.handshake();
    rig.start();
    rig.died();
    rig.start();
    assert!(std::sync::Arc::ptr_eq(&first, &rig.machine.handshake()));
}

#[test]
fn ids_toward_a_url_do_not_begin_where_other_clients_begin() {
    let http = |upstream: &mut upstream::Upstream| {
        upstream.transport = Transport::Http(Address { url: "http://localhost".to_owned(), headers: vec![] });
    };
    let mut firsts = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let mut rig = Rig::with_upstream(Lifecycle::Session, http);
        firsts.insert(rig.machine.begin_greeting().0);
    }
    assert_eq!(firsts.len(), 3);
    assert!(firsts.iter().all(|id| id & 0xffff == 1), "{firsts:?}");
}

#[test]
fn work_of_a_client_that_ended_while_it_waited_is_not_sent() {
    let mut rig = Rig::new(Lifecycle::Shared);
    rig.join("a");
    rig.join("b");
    rig.tool("a", 7);
    rig.tool("b", 8);
    rig.client("a").cancel(&wire::Id::number(7));
    rig.leave("a");
    assert_eq!(rig.greeted(), ["call #1 tools/call {}", "tell b CameUp"]);
    assert_eq!(rig.answered(1, "{}"), ["answer b #8 = {}"]);
}

#[test]
fn ready_is_refused_like_a_call_in_a_stopped_worker() {
    let mut rig = down();
    rig.stop();
    let (mut ready, actions) = rig.ready();
    assert!(actions.is_empty());
    assert!(matches!(ready.try_recv().unwrap(), Err(StartError::Stopped)));
    let (sender, mut asked) = tokio::sync::oneshot::channel();
    let question =
        crate::worker::queue::Question { method: "ping", params: serde_json::Value::Null, answer: sender };
    let actions = rig.machine.submit(Work::Ask(Box::new(question)), rig.now);
    assert!(rig.perform(actions).is_empty());
    assert!(matches!(asked.try_recv().unwrap(), Err(StartError::Stopped)));
    let request = testing::request(7, "tools/call", "{}");
    assert_eq!(rig.submit_call("a", request), ["fail a #7: the MCP server is being stopped"]);
}
