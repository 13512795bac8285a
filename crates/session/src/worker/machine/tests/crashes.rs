//! Upstreams that die: what becomes of the calls, what the next generation is sent, and how soon it starts.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use upstream::{End, Lifecycle, StartError, Transport};
use wire::Version;

use crate::probe::{Advertised, Lookup, ProbeCache, Probed};
use crate::settings::{CRASH_AGE, FIRST_BACKOFF, MAX_BACKOFF};
use crate::testing;
use crate::worker::action::Action;
use crate::worker::testing::{INITIALIZED, Rig, sorted};

#[test]
fn calls_in_flight_fail_when_their_upstream_dies() {
    let mut rig = Rig::shared();
    rig.tool("a", 7);
    rig.tool("b", 7);
    assert_eq!(
        sorted(rig.died()),
        ["fail a #7: upstream_exited", "fail b #7: upstream_exited", "note died, 2 lost"]
    );
    assert_eq!(rig.machine.condition(), ("down", 1));
}

#[test]
fn a_call_whose_upstream_died_is_never_sent_again() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    rig.died();
    assert_eq!(rig.tool("a", 8), ["start 2"]);
    assert_eq!(rig.greeted(), ["call #2 tools/call {}", "tell a CameUp"]);
    assert_eq!(rig.answered(1, "{}"), ["note LateAnswer"], "an answer to the call of before");
    assert_eq!(rig.answered(2, "{}"), ["answer a #8 = {}"]);
}

#[test]
fn the_error_says_how_the_upstream_ended_and_what_it_said_last() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.submit_raw("a", testing::request(7, "tools/call", "{}"));
    let end = End::Lost("gone".to_owned());
    let actions = rig.machine.died(1, Some(&end), Duration::ZERO, "its last words", rig.now);
    let [_, Action::Fail { error, .. }] = &actions[..] else { panic!("{actions:?}") };
    assert!(error.message.contains("was lost (gone)"), "{}", error.message);
    assert_eq!(error.data.as_ref().unwrap()["stderr"], "its last words");
}

#[test]
fn an_upstream_that_closed_its_output_has_died_too() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.submit_raw("a", testing::request(7, "tools/call", "{}"));
    let actions = rig.machine.died(1, None, Duration::ZERO, "", rig.now);
    let [_, Action::Fail { error, .. }] = &actions[..] else { panic!("{actions:?}") };
    assert!(error.message.contains("closed its output"), "{}", error.message);
}

#[test]
fn questions_of_the_gateway_fail_when_the_upstream_dies() {
    let mut rig = Rig::up(Lifecycle::Session);
    let (mut asked, _) = rig.ask("tools/list");
    rig.died();
    assert!(matches!(asked.try_recv().unwrap(), Err(StartError::Stopped)));
}

#[test]
fn clients_are_not_asked_any_more_what_a_dead_upstream_wanted_to_know() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.accepted("5", "a", 31);
    assert_eq!(rig.died(), ["note died, 0 lost", "withdraw a #31: none"]);
    rig.start();
    assert_eq!(rig.died(), ["note died, 0 lost"], "once");
}

#[test]
fn a_generation_dies_once_and_only_while_it_is_in_use() {
    let mut rig = Rig::new(Lifecycle::Session);
    rig.join("a");
    assert!(rig.died().is_empty(), "down");
    rig.ready();
    assert!(rig.died().is_empty(), "starting: that is for start_failed");
    rig.greeted();
    let other = rig.machine.died(7, None, Duration::ZERO, "", rig.now);
    assert!(other.is_empty(), "another generation");
    assert_eq!(rig.died(), ["note died, 0 lost"]);
    assert!(rig.died().is_empty(), "twice");
    rig.start();
    let old = rig.machine.died(1, None, Duration::ZERO, "", rig.now);
    assert!(old.is_empty(), "the generation before");
    rig.stop();
    assert!(rig.died().is_empty(), "stopped");
}

#[test]
fn the_next_generation_hears_the_end_of_the_handshake_subscriptions_level_and_then_calls() {
    let mut rig =
        Rig::with(Lifecycle::Session, |_, greeting| greeting.initialized = Some(INITIALIZED.into()));
    rig.join("a");
    rig.start();
    rig.call("a", 1, "resources/subscribe", r#"{"uri":"x:y"}"#);
    rig.answered(1, "{}");
    rig.call("a", 2, "logging/setLevel", r#"{"level":"error"}"#);
    rig.answered(2, "{}");
    rig.died();
    rig.tool("a", 7);
    assert_eq!(
        rig.greeted(),
        [
            "send notifications/initialized",
            r#"send #3 resources/subscribe {"uri":"x:y"}"#,
            r#"send #4 logging/setLevel {"level":"error"}"#,
            "call #5 tools/call {}",
            "tell a CameUp"
        ]
    );
    assert!(rig.answered(3, "{}").is_empty(), "the gateway's own");
}

#[test]
fn an_upstream_that_forgot_its_session_hears_subscriptions_and_level_again() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.call("a", 1, "resources/subscribe", r#"{"uri":"x:y"}"#);
    rig.answered(1, "{}");
    let actions = rig.machine.replay();
    assert_eq!(rig.perform(actions), [r#"send #2 resources/subscribe {"uri":"x:y"}"#]);
}

#[test]
fn an_unsubscribed_resource_is_not_subscribed_again() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.call("a", 1, "resources/subscribe", r#"{"uri":"x:y"}"#);
    rig.answered(1, "{}");
    rig.call("a", 2, "resources/unsubscribe", r#"{"uri":"x:y"}"#);
    rig.answered(2, "{}");
    rig.died();
    rig.ready();
    assert_eq!(rig.greeted(), ["tell a CameUp"]);
}

#[test]
fn the_first_crash_is_forgiven_at_once() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.died();
    assert_eq!(rig.tool("a", 7), ["start 2"]);
}

#[test]
fn from_the_second_crash_in_a_row_each_start_waits_twice_as_long() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.died();
    let moment = Duration::from_millis(1);
    for (doubling, id) in (0..8_u32).zip(100..) {
        rig.start();
        rig.died();
        let wait = FIRST_BACKOFF.saturating_mul(1 << doubling).min(MAX_BACKOFF);
        rig.pass(wait.checked_sub(moment).unwrap());
        let refused = rig.tool("a", id);
        let reason = format!("fail a #{id}: the MCP server crashed {} times in a row", doubling + 2);
        assert!(refused[0].starts_with(&reason), "{refused:?}");
        assert!(refused[0].ends_with("(was lost (gone)): its last words"), "{refused:?}");
        rig.pass(moment);
    }
    assert_eq!(rig.tool("a", 7), ["start 10"]);
}

#[test]
fn starts_that_fail_count_as_crashes() {
    let mut rig = Rig::new(Lifecycle::Session);
    rig.join("a");
    for id in [1, 2] {
        assert_eq!(rig.tool("a", id), [format!("start {id}")]);
        rig.start_failed();
    }
    let refused = rig.tool("a", 3);
    assert!(refused[0].contains("crashed 2 times") && refused[0].contains("no room"), "{refused:?}");
    let (mut ready, _) = rig.ready();
    assert!(matches!(ready.try_recv().unwrap(), Err(StartError::CrashLoop { crashes: 2, .. })));
    rig.pass(FIRST_BACKOFF);
    assert_eq!(rig.tool("a", 4), ["start 3"]);
}

#[test]
fn an_upstream_that_lived_long_begins_a_new_count() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.died();
    rig.start();
    rig.died_after(CRASH_AGE);
    assert_eq!(rig.tool("a", 7), ["start 3"]);
}

#[test]
fn a_client_whose_machine_comes_and_goes_is_not_in_a_crash_loop() {
    let mut rig = Rig::with_upstream(Lifecycle::Session, |upstream| upstream.transport = Transport::Attached);
    rig.join("a");
    for _ in 0..5 {
        rig.ready();
        rig.start_failed_with(&StartError::NotAttached);
    }
    for _ in 0..5 {
        rig.start();
        rig.died();
    }
    assert_eq!(rig.tool("a", 7), ["start 11"]);
}

#[test]
fn progress_of_tasks_ends_with_the_process_that_ran_them() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.call("a", 7, "tools/call", r#"{"task":{},"_meta":{"progressToken":"t"}}"#);
    rig.answered(1, r#"{"task":{"taskId":"x"}}"#);
    rig.died();
    rig.start();
    assert_eq!(
        rig.notified("notifications/progress", r#"{"progressToken":1,"progress":1}"#),
        [r#"note DroppedNotification("notifications/progress")"#]
    );
}

#[test]
fn a_generation_of_another_protocol_version_ends_the_sessions() {
    let mut rig = Rig::new(Lifecycle::Session);
    rig.join("a");
    rig.ready();
    rig.greeted_with("2025-11-25", "{}");
    rig.died();
    rig.tool("a", 7);
    let (mut ready, _) = rig.ready();
    assert_eq!(
        rig.greeted_with("2025-06-18", "{}"),
        [
            "note Contradicted",
            "fail a #7: the MCP server offers other capabilities in this workspace than before; \
             start a new session",
            "tell a Contradicted"
        ]
    );
    assert!(matches!(ready.try_recv().unwrap(), Err(StartError::Contradiction)));
}

#[test]
fn clients_of_several_servers_do_not_mind_another_protocol_version() {
    let mut rig = Rig::with(Lifecycle::Session, |terms, _| terms.is_passed_through = false);
    rig.join("a");
    rig.ready();
    rig.greeted_with("2025-11-25", "{}");
    rig.died();
    rig.tool("a", 7);
    assert_eq!(rig.greeted_with("2025-06-18", "{}"), ["call #1 tools/call {}", "tell a CameUp"]);
}

/// A worker whose client was told that the server has tools.
fn advertised() -> Rig {
    let kind = [0; 32];
    let cache = Arc::new(Mutex::new(ProbeCache::new(None)));
    let initialize = Arc::new(testing::initialize_result("2025-11-25", r#"{"tools":{}}"#));
    let result = Ok(Probed { initialize, catalogue: None });
    let mut rig = Rig::with(Lifecycle::Session, |_, greeting| {
        assert!(matches!(cache.lock().lookup(kind, std::time::Instant::now()), Lookup::Probe(_)));
        cache.lock().finish(kind, result.clone(), std::time::Instant::now());
        greeting.advertised = Some(Advertised::new(&cache, kind, &result, Version::NEWEST));
    });
    rig.join("a");
    rig
}

#[test]
fn a_server_that_is_what_its_client_was_told_is_put_to_use() {
    let mut rig = advertised();
    rig.tool("a", 7);
    assert_eq!(rig.greeted_with("2025-11-25", r#"{"tools":{}}"#), ["call #1 tools/call {}", "tell a CameUp"]);
}

#[test]
fn a_server_that_contradicts_what_its_client_was_told_ends_the_session() {
    let mut rig = advertised();
    rig.tool("a", 7);
    let actions = rig.greeted_with("2025-11-25", r#"{"prompts":{}}"#);
    assert_eq!(actions.len(), 3, "{actions:?}");
    assert_eq!((actions[0].as_str(), actions[2].as_str()), ("note Contradicted", "tell a Contradicted"));
}

#[test]
fn a_later_generation_may_offer_something_else_at_the_same_version() {
    let mut rig = advertised();
    rig.ready();
    rig.greeted_with("2025-11-25", r#"{"tools":{}}"#);
    rig.died();
    rig.tool("a", 7);
    assert_eq!(
        rig.greeted_with("2025-11-25", r#"{"prompts":{}}"#),
        ["call #1 tools/call {}", "tell a CameUp"]
    );
}
