//! Servers that ask for their roots when they start: their calls wait until the roots were processed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use upstream::{Lifecycle, StartError};

use crate::settings::MAX_WAITING;
use crate::worker::testing::{INITIALIZED, Rig};

/// A worker whose server is known to ask for its roots; the client has finished its handshake.
fn asker() -> (Rig, Arc<AtomicBool>) {
    let asks = Arc::new(AtomicBool::new(true));
    let mut rig = Rig::with(Lifecycle::Session, |terms, greeting| {
        terms.asks_for_roots = Arc::clone(&asks);
        greeting.initialized = Some(INITIALIZED.into());
    });
    rig.join("a");
    (rig, asks)
}

/// The same, greeted and waiting for its roots.
fn settling() -> Rig {
    let (mut rig, _) = asker();
    rig.ready();
    assert_eq!(rig.greeted(), ["send notifications/initialized", "settle 1", "tell a CameUp"]);
    rig
}

#[test]
fn calls_wait_until_the_server_has_processed_its_roots() {
    let (mut rig, _) = asker();
    rig.tool("a", 7);
    assert_eq!(rig.greeted(), ["send notifications/initialized", "settle 1", "tell a CameUp"]);
    assert!(rig.tool("a", 8).is_empty());
    assert_eq!(rig.settled(1), ["call #1 tools/call {}", "call #2 tools/call {}"]);
    assert_eq!(rig.tool("a", 9), ["call #3 tools/call {}"]);
}

#[test]
fn questions_of_the_gateway_do_not_wait_for_the_roots() {
    let (mut rig, _) = asker();
    let (mut ready, _) = rig.ready();
    let (_waiting, _) = rig.ask("ping");
    rig.tool("a", 7);
    assert_eq!(
        rig.greeted(),
        ["send notifications/initialized", "settle 1", "call #1 ping {}", "tell a CameUp"]
    );
    assert!(ready.try_recv().unwrap().is_ok());
    let (_asked, actions) = rig.ask("ping");
    assert_eq!(actions, ["call #2 ping {}"]);
    assert!(rig.ready().0.try_recv().unwrap().is_ok());
}

#[test]
fn a_settling_worker_is_reported_as_up() {
    assert_eq!(settling().machine.condition(), ("up", 1));
}

#[test]
fn a_server_that_never_asked_is_put_to_use_at_once() {
    let (mut rig, asks) = asker();
    asks.store(false, Ordering::Relaxed);
    rig.tool("a", 7);
    assert_eq!(rig.greeted(), ["send notifications/initialized", "call #1 tools/call {}", "tell a CameUp"]);
}

#[test]
fn a_server_does_not_settle_before_the_handshake_is_finished() {
    let mut rig = Rig::with(Lifecycle::Session, |terms, _| {
        terms.asks_for_roots = Arc::new(AtomicBool::new(true));
    });
    rig.join("a");
    rig.ready();
    assert_eq!(rig.greeted(), ["tell a CameUp"]);
    assert_eq!(rig.finish_handshake(), ["send notifications/initialized", "settle 1"]);
    assert!(rig.tool("a", 7).is_empty());
    assert_eq!(rig.settled(1), ["call #1 tools/call {}"]);
}

#[test]
fn the_end_of_another_generations_wait_lets_nothing_through() {
    let mut rig = settling();
    rig.tool("a", 7);
    assert!(rig.settled(0).is_empty());
    assert!(rig.settled(2).is_empty());
    assert_eq!(rig.settled(1), ["call #1 tools/call {}"]);
    assert!(rig.settled(1).is_empty(), "it is up");
}

#[test]
fn calls_that_waited_for_roots_when_the_server_died_go_to_the_next_generation() {
    let mut rig = settling();
    rig.tool("a", 7);
    rig.tool("a", 8);
    assert_eq!(rig.died(), ["note died, 0 lost", "start 2"]);
    assert!(rig.settled(1).is_empty(), "that generation is gone");
    rig.greeted();
    assert_eq!(rig.settled(2), ["call #1 tools/call {}", "call #2 tools/call {}"]);
}

#[test]
fn calls_that_waited_for_roots_fail_if_no_next_generation_may_start() {
    let (mut rig, _) = asker();
    rig.tool("a", 7);
    rig.start_failed();
    rig.ready();
    rig.greeted();
    rig.tool("a", 8);
    let actions = rig.died();
    assert_eq!(actions.len(), 2, "{actions:?}");
    assert!(actions[1].starts_with("fail a #8: the MCP server crashed 2 times in a row"), "{actions:?}");
    assert_eq!(rig.machine.condition(), ("down", 2));
}

#[test]
fn a_question_that_runs_when_a_settling_server_dies_is_answered_with_an_error() {
    let mut rig = settling();
    let (mut asked, _) = rig.ask("ping");
    rig.died();
    assert!(matches!(asked.try_recv().unwrap(), Err(StartError::Stopped)));
}

#[test]
fn so_many_calls_may_wait_for_roots_and_no_more() {
    let mut rig = settling();
    for id in 1..=1024 {
        assert!(rig.tool("a", id).is_empty());
    }
    assert_eq!(MAX_WAITING, 1024);
    rig.join("b");
    assert_eq!(
        rig.tool("b", 7),
        ["fail b #7: the MCP server is still starting, and too many requests wait for it"]
    );
    let (_asked, actions) = rig.ask("ping");
    assert_eq!(actions, ["call #1 ping {}"], "a question does not wait, so it is not counted");
}

#[test]
fn a_call_that_is_cancelled_while_it_waits_for_roots_is_not_sent() {
    let mut rig = settling();
    rig.tool("a", 7);
    rig.tool("a", 8);
    assert!(rig.cancel("a", 7).is_empty());
    assert_eq!(rig.settled(1), ["call #1 tools/call {}"]);
    assert_eq!(rig.answered(1, "{}"), ["answer a #8 = {}"]);
}

#[test]
fn a_server_that_lost_the_habit_is_not_waited_for_again() {
    let mut rig = settling();
    rig.machine.forget_roots_habit();
    rig.settled(1);
    rig.died();
    rig.tool("a", 7);
    assert_eq!(rig.greeted(), ["send notifications/initialized", "call #1 tools/call {}", "tell a CameUp"]);
}

#[test]
fn lines_for_a_server_that_settles_are_written() {
    let mut rig = settling();
    let line = bytes::Bytes::from(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
    let actions = rig.machine.send_if_up(line);
    assert_eq!(rig.perform(actions), ["send notifications/x"]);
    let session = rig.client("a").id();
    let actions = rig.machine.set_level(session, wire::LogLevel::Info);
    assert_eq!(rig.perform(actions), [r#"send #1 logging/setLevel {"level":"info"}"#]);
}
