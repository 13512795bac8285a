//! The end of the handshake, sessions that leave a shared worker, rest, stop, and workers for one call.

use std::time::Duration;

use bytes::Bytes;
use upstream::{Lifecycle, StartError};
use wire::LineBuffer;

use crate::testing;
use crate::worker::testing::{INITIALIZED, Rig, cancelled, sorted};

#[test]
fn the_end_of_the_handshake_is_written_once_to_an_upstream_that_is_up() {
    let mut rig = Rig::up(Lifecycle::Session);
    assert_eq!(rig.finish_handshake(), ["send notifications/initialized"]);
    assert!(rig.finish_handshake().is_empty());
    assert_eq!(rig.tool("a", 7), ["call #1 tools/call {}"]);
}

#[test]
fn a_handshake_that_ends_before_the_upstream_is_up_is_finished_when_it_is() {
    let mut rig = Rig::new(Lifecycle::Session);
    rig.join("a");
    assert!(rig.finish_handshake().is_empty(), "down");
    rig.ready();
    assert_eq!(rig.greeted(), ["send notifications/initialized", "tell a CameUp"]);

    let mut rig = Rig::new(Lifecycle::Session);
    rig.join("a");
    rig.tool("a", 7);
    assert!(rig.finish_handshake().is_empty(), "starting");
    assert_eq!(rig.greeted(), ["send notifications/initialized", "call #1 tools/call {}", "tell a CameUp"]);
}

#[test]
fn the_first_words_that_end_a_handshake_are_replayed_to_every_generation() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.finish_handshake();
    let other = Bytes::from(r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}"#);
    assert!(rig.machine.finish_handshake(other).is_empty());
    rig.died();
    rig.ready();
    assert_eq!(rig.greeted(), ["send notifications/initialized", "tell a CameUp"]);
}

#[test]
fn a_shared_upstream_hears_nothing_of_its_clients_handshakes() {
    let mut rig =
        Rig::with(Lifecycle::Workspace, |_, greeting| greeting.initialized = Some(INITIALIZED.into()));
    rig.join("a");
    rig.ready();
    assert_eq!(rig.greeted(), ["send notifications/initialized", "tell a CameUp"]);
    assert!(rig.finish_handshake().is_empty());
    let mut rig = Rig::up(Lifecycle::Shared);
    assert!(rig.finish_handshake().is_empty());
}

#[test]
fn a_session_that_leaves_takes_its_calls_requests_and_subscriptions_along() {
    let mut rig = Rig::shared();
    rig.call("a", 1, "resources/subscribe", r#"{"uri":"x:y"}"#);
    rig.answered(1, "{}");
    rig.tool("a", 7);
    rig.tool("b", 7);
    rig.accepted("5", "a", 31);
    rig.accepted("6", "b", 31);
    assert_eq!(
        rig.leave("a"),
        [
            format!("send {}", cancelled(2, "the client ended its session")),
            "send #5 ! The session ended while this call was running".to_owned(),
            r#"send #4 resources/unsubscribe {"uri":"x:y"}"#.to_owned(),
        ]
    );
    assert_eq!(rig.answered(2, "{}"), ["note LateAnswer"]);
    assert_eq!(rig.answered(3, "{}"), ["answer b #7 = {}"], "the other session goes on");
    let actions = rig.machine.answer_request(&testing::id("6"), Bytes::from(r#"{"id":6,"result":{}}"#));
    assert_eq!(rig.perform(actions), ["send #6 = {}"]);
}

#[test]
fn the_upstream_stays_subscribed_for_the_sessions_that_stay() {
    let mut rig = Rig::shared();
    for (client, id) in [("a", 1), ("b", 2)] {
        rig.call(client, 1, "resources/subscribe", r#"{"uri":"x:y"}"#);
        rig.answered(id, "{}");
    }
    assert!(rig.leave("a").is_empty());
    assert_eq!(rig.leave("b"), [r#"send #3 resources/unsubscribe {"uri":"x:y"}"#]);
}

#[test]
fn leaving_a_worker_that_does_not_run_writes_nothing_and_is_remembered() {
    let mut rig = Rig::shared();
    rig.call("a", 1, "resources/subscribe", r#"{"uri":"x:y"}"#);
    rig.answered(1, "{}");
    rig.died();
    assert!(rig.leave("a").is_empty());
    rig.ready();
    assert_eq!(rig.greeted(), ["tell b CameUp"], "nothing is subscribed again");
}

#[test]
fn a_worker_is_deserted_some_time_after_its_last_session_left() {
    let mut rig = Rig::shared();
    let minute = Duration::from_secs(60);
    rig.pass(minute * 5);
    assert!(!rig.machine.is_deserted(minute, rig.now), "it is used");
    rig.leave("a");
    rig.pass(minute * 5);
    assert!(!rig.machine.is_deserted(minute, rig.now), "by one");
    rig.leave("b");
    assert!(!rig.machine.is_deserted(minute, rig.now));
    rig.pass(minute);
    assert!(rig.machine.is_deserted(minute, rig.now));
    rig.join("c");
    assert!(!rig.machine.is_deserted(minute, rig.now));
}

#[test]
fn a_worker_that_no_session_ever_joined_is_deserted_from_its_beginning() {
    let mut rig = Rig::new(Lifecycle::Shared);
    assert!(!rig.machine.is_deserted(Duration::from_secs(1), rig.now));
    rig.pass(Duration::from_secs(1));
    assert!(rig.machine.is_deserted(Duration::from_secs(1), rig.now));
}

#[test]
fn a_deserted_worker_rests_and_the_next_call_wakes_it() {
    let minute = Duration::from_secs(60);
    let mut rig = Rig::up(Lifecycle::Shared);
    let moment = Duration::from_millis(1);
    rig.leave("a");
    rig.pass(minute.checked_sub(moment).unwrap());
    assert!(!rig.machine.rest(minute, rig.now), "too soon");
    rig.pass(moment);
    assert!(rig.machine.rest(minute, rig.now));
    assert_eq!(rig.machine.condition(), ("down", 1));
    assert!(!rig.machine.rest(minute, rig.now), "it rests already");
    assert!(rig.died().is_empty(), "its end is no crash");
    rig.join("b");
    assert_eq!(rig.tool("b", 7), ["start 2"]);
    assert_eq!(rig.greeted(), ["call #1 tools/call {}", "tell b CameUp"]);
}

#[test]
fn only_a_worker_that_is_up_and_unused_rests() {
    let mut rig = Rig::new(Lifecycle::Shared);
    assert!(!rig.machine.rest(Duration::ZERO, rig.now), "down");
    rig.ready();
    assert!(!rig.machine.rest(Duration::ZERO, rig.now), "starting");
    rig.greeted();
    rig.join("a");
    assert!(!rig.machine.rest(Duration::ZERO, rig.now), "used");
    rig.leave("a");
    rig.stop();
    assert!(!rig.machine.rest(Duration::ZERO, rig.now), "stopped");
    assert_eq!(rig.machine.condition(), ("stopped", 1));
}

#[test]
fn a_worker_that_is_down_stops() {
    let mut rig = Rig::new(Lifecycle::Session);
    rig.join("a");
    assert_eq!(rig.stop(), (false, vec![]));
    assert_eq!(rig.machine.condition(), ("stopped", 0));
    assert_eq!(rig.tool("a", 7), ["fail a #7: the MCP server is being stopped"]);
}

#[test]
fn stopping_refuses_what_waits_for_the_start() {
    let mut rig = Rig::new(Lifecycle::Session);
    rig.join("a");
    rig.tool("a", 7);
    let (mut ready, _) = rig.ready();
    assert_eq!(rig.stop(), (false, vec!["fail a #7: the MCP server is being stopped".to_owned()]));
    assert!(matches!(ready.try_recv().unwrap(), Err(StartError::Stopped)));
}

#[test]
fn stopping_refuses_what_waits_for_the_roots() {
    let mut rig = Rig::with(Lifecycle::Session, |terms, greeting| {
        terms.asks_for_roots.store(true, std::sync::atomic::Ordering::Relaxed);
        greeting.initialized = Some(INITIALIZED.into());
    });
    rig.join("a");
    rig.start();
    rig.tool("a", 7);
    assert_eq!(rig.stop(), (true, vec!["fail a #7: the MCP server is being stopped".to_owned()]));
    assert!(rig.settled(1).is_empty());
}

#[test]
fn stopping_an_upstream_in_use_leaves_its_calls_to_their_session() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    rig.accepted("5", "a", 31);
    let (mut asked, _) = rig.ask("ping");
    assert_eq!(rig.stop(), (true, vec!["withdraw a #31: none".to_owned()]));
    assert!(asked.try_recv().is_err());
    assert_eq!(rig.answered(1, "{}"), ["note LateAnswer"]);
    assert!(rig.cancel("a", 7).is_empty());
}

#[test]
fn a_worker_stops_once_and_for_good() {
    let mut rig = Rig::up(Lifecycle::Session);
    assert_eq!(rig.stop(), (true, vec![]));
    assert_eq!(rig.stop(), (false, vec![]));
    assert!(rig.start_failed().is_empty());
    assert!(rig.died().is_empty());
    assert!(rig.finish_handshake().is_empty());
    assert_eq!(rig.machine.condition(), ("stopped", 1));
    assert!(!rig.machine.is_down(), "that would let it be started again");
}

/// A process for one call, which is in flight as #1.
fn for_one_call() -> Rig {
    let mut rig = Rig::new(Lifecycle::Call);
    rig.join("a");
    assert_eq!(rig.tool("a", 7), ["start 1"]);
    assert_eq!(rig.greeted(), ["call #1 tools/call {}", "tell a CameUp"]);
    rig
}

#[test]
fn a_worker_for_one_call_retires_however_the_call_ends() {
    assert_eq!(for_one_call().answered(1, "{}"), ["answer a #7 = {}", "retire"], "answered");

    let mut rig = for_one_call();
    let actions = rig.machine.not_sent(1);
    assert_eq!(rig.perform(actions), ["fail a #7: upstream_not_reading", "retire"], "not read");

    let mut rig = for_one_call();
    assert_eq!(rig.died(), ["note died, 1 lost", "fail a #7: upstream_exited", "retire"], "died");

    let mut rig = for_one_call();
    let notice = format!("send {}", cancelled(1, "changed its mind"));
    assert_eq!(rig.cancel("a", 7), [notice, "retire".to_owned()], "cancelled");

    let mut rig = for_one_call();
    let mut lines = LineBuffer::new(8);
    lines.space().extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n");
    let actions = rig.machine.lose_line(&lines.next_line().unwrap().unwrap_err());
    assert_eq!(rig.perform(actions), ["fail a #7: answer_too_long", "retire"], "too long");
}

#[test]
fn a_worker_for_one_call_retires_if_it_cannot_start() {
    let mut rig = Rig::new(Lifecycle::Call);
    rig.join("a");
    rig.tool("a", 7);
    assert_eq!(rig.start_failed(), ["fail a #7: cannot start the MCP server `server`: no room", "retire"]);
}

#[test]
fn a_worker_for_one_call_retires_if_the_call_is_cancelled_while_it_waits() {
    let mut rig = Rig::new(Lifecycle::Call);
    rig.join("a");
    rig.tool("a", 7);
    assert_eq!(rig.cancel("a", 7), ["retire"]);
    assert_eq!(rig.greeted(), ["retire", "tell a CameUp"], "if that was not performed yet");
}

#[test]
fn stopping_a_worker_for_one_call_does_not_retire_it_again() {
    let mut rig = Rig::new(Lifecycle::Call);
    rig.join("a");
    rig.tool("a", 7);
    assert_eq!(rig.stop(), (false, vec!["fail a #7: the MCP server is being stopped".to_owned()]));
}

#[test]
fn questions_of_the_gateway_do_not_retire_a_worker_for_one_call() {
    let mut rig = Rig::new(Lifecycle::Call);
    let (mut asked, _) = rig.ask("tools/list");
    assert_eq!(rig.greeted(), ["call #1 tools/list {}"]);
    assert!(rig.answered(1, "{}").is_empty());
    assert!(asked.try_recv().unwrap().is_ok());
}

#[test]
fn workers_for_more_than_one_call_never_retire() {
    for lifecycle in [Lifecycle::Session, Lifecycle::Workspace, Lifecycle::Shared] {
        let mut rig = Rig::up(lifecycle);
        rig.tool("a", 7);
        let answered = rig.answered(1, "{}");
        rig.tool("a", 8);
        let died = sorted(rig.died());
        assert_eq!(answered, ["answer a #7 = {}"]);
        assert_eq!(died, ["fail a #8: upstream_exited", "note died, 1 lost"]);
    }
}

#[test]
fn a_worker_whose_client_is_gone_rests_when_nothing_is_under_way() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    assert!(!rig.machine.rest_unattended(), "a call is in flight");
    rig.answered(1, "{}");
    rig.accepted("5", "a", 31);
    assert!(!rig.machine.rest_unattended(), "the client is asked something");
    let mut rig = Rig::up(Lifecycle::Session);
    assert!(rig.machine.rest_unattended());
    assert!(!rig.machine.rest_unattended(), "it rests already");
    // The next call starts a new generation, which is no restart after a crash.
    assert_eq!(rig.tool("a", 8), ["start 2"]);
}
