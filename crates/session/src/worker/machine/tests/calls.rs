//! Calls of clients: how they are written, and how they end without an answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use upstream::{Lifecycle, StartError, Urgency};
use wire::{LineBuffer, LogLevel};

use crate::settings::{BREAKER_PAUSE, MAX_UNANSWERED};
use crate::testing;
use crate::worker::action::Action;
use crate::worker::testing::{Rig, cancelled};

#[test]
fn a_call_passes_byte_for_byte_but_for_its_id_and_progress_token() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 6);
    let text = r#"{ "jsonrpc":"2.0","method":"tools/call","id":7,"params":{"_meta":{"progressToken":"t"},"x":1.50}}"#;
    let wire::Message::Request(request) = testing::message(text) else { panic!() };
    let actions = rig.submit_raw("a", request);
    let [Action::SendCall { id: 2, line, .. }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(
        line,
        r#"{ "jsonrpc":"2.0","method":"tools/call","id":2,"params":{"_meta":{"progressToken":2},"x":1.50}}"#
    );
}

#[test]
fn a_call_that_is_alone_is_written_at_once_and_others_may_share_a_write() {
    let mut rig = Rig::up(Lifecycle::Session);
    let urgency = |actions: &[Action]| match actions {
        [Action::SendCall { urgency, .. }] => *urgency,
        other => panic!("{other:?}"),
    };
    let submit = |rig: &mut Rig, id| urgency(&rig.submit_raw("a", testing::request(id, "tools/call", "{}")));
    assert_eq!(submit(&mut rig, 7), Urgency::Now);
    assert_eq!(submit(&mut rig, 8), Urgency::WithOthers);
    rig.answered(1, "{}");
    rig.answered(2, "{}");
    assert_eq!(submit(&mut rig, 9), Urgency::Now);
}

#[test]
fn the_time_of_a_call_counts_from_when_it_was_sent() {
    let mut rig = Rig::new(Lifecycle::Session);
    rig.join("a");
    let request = testing::request(7, "tools/call", "{}");
    let (call, _) = testing::call(rig.client("a"), &request);
    let work = crate::worker::machine::Work::Call(Arc::clone(&call), Box::new(request));
    rig.machine.submit(work, rig.now);
    let (limit, longest) = (Duration::from_secs(10), Duration::from_secs(100));
    rig.pass(limit * 2);
    assert_eq!(call.clock().overdue(rig.now, limit, longest), None, "it waits for the start");
    assert_eq!(call.sent_as(), None);
    rig.greeted();
    assert_eq!(call.sent_as(), Some(1));
    assert_eq!(call.clock().overdue(rig.now, limit, longest), None);
    assert!(call.clock().overdue(rig.now + limit, limit, longest).is_some());
}

#[test]
fn a_call_that_the_upstream_does_not_read_fails() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    let actions = rig.machine.not_sent(1);
    assert_eq!(rig.perform(actions), ["fail a #7: upstream_not_reading"]);
    assert!(rig.machine.not_sent(1).is_empty(), "once");
    assert_eq!(rig.answered(1, "{}"), ["note LateAnswer"]);
}

#[test]
fn a_question_that_the_upstream_does_not_read_is_over() {
    let mut rig = Rig::up(Lifecycle::Session);
    let (mut asked, _) = rig.ask("ping");
    assert!(rig.machine.not_sent(1).is_empty());
    assert!(matches!(asked.try_recv(), Err(tokio::sync::oneshot::error::TryRecvError::Closed)));
}

#[test]
fn a_cancelled_call_is_taken_back_from_the_upstream() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    assert_eq!(rig.cancel("a", 7), [format!("send {}", cancelled(1, "changed its mind"))]);
    assert_eq!(rig.answered(1, "{}"), ["note LateAnswer"]);
}

#[test]
fn a_call_that_is_cancelled_before_its_upstream_is_up_is_never_sent() {
    let mut rig = Rig::new(Lifecycle::Session);
    rig.join("a");
    rig.tool("a", 7);
    rig.tool("a", 8);
    assert!(rig.cancel("a", 7).is_empty());
    assert_eq!(rig.greeted(), ["call #1 tools/call {}", "tell a CameUp"]);
    assert_eq!(rig.answered(1, "{}"), ["answer a #8 = {}"]);
}

#[test]
fn a_call_that_was_answered_cannot_be_taken_back() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    rig.answered(1, "{}");
    assert!(rig.cancel("a", 7).is_empty());
}

#[test]
fn taking_a_call_back_from_an_upstream_that_died_writes_nothing_to_the_next() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    rig.died();
    rig.start();
    assert!(rig.cancel("a", 7).is_empty());
}

#[test]
fn lines_are_written_only_to_an_upstream_that_runs() {
    let mut rig = Rig::new(Lifecycle::Session);
    rig.join("a");
    let send = |rig: &Rig| {
        let actions = rig.machine.send_if_up(Bytes::from(r#"{"method":"notifications/x"}"#));
        rig.perform(actions)
    };
    assert!(send(&rig).is_empty(), "down");
    rig.ready();
    assert!(send(&rig).is_empty(), "starting");
    rig.greeted();
    assert_eq!(send(&rig), ["send notifications/x"]);
    rig.stop();
    assert!(send(&rig).is_empty(), "stopped");
}

#[test]
fn a_clients_answer_reaches_the_upstream_once() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.accepted("5", "a", 1);
    let line = || Bytes::from(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    let actions = rig.machine.answer_request(&testing::id("5"), line());
    assert_eq!(rig.perform(actions), ["send #5 = {}"]);
    assert!(rig.machine.answer_request(&testing::id("5"), line()).is_empty());
    assert!(rig.machine.answer_request(&testing::id("6"), line()).is_empty(), "never asked");
}

#[test]
fn a_clients_answer_is_for_the_id_of_its_type() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.accepted(r#""5""#, "a", 1);
    let line = || Bytes::from(r#"{"jsonrpc":"2.0","id":"5","result":{}}"#);
    assert!(rig.machine.answer_request(&testing::id("5"), line()).is_empty());
    let actions = rig.machine.answer_request(&testing::id(r#""5""#), line());
    assert_eq!(rig.perform(actions), [r#"send #"5" = {}"#]);
}

#[test]
fn a_clients_answer_does_not_reach_the_next_generation() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.accepted("5", "a", 1);
    rig.died();
    rig.start();
    let line = Bytes::from(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    assert!(rig.machine.answer_request(&testing::id("5"), line).is_empty());
}

#[test]
fn a_request_id_that_the_upstream_uses_twice_is_noted() {
    let mut rig = Rig::up(Lifecycle::Session);
    assert!(rig.accepted("5", "a", 1).is_empty());
    assert!(rig.accepted(r#""5""#, "a", 2).is_empty(), "another id");
    assert_eq!(rig.accepted("5", "a", 3), ["note RequestIdUsedTwice(5)"]);
}

#[test]
fn questions_that_are_not_waited_for_any_more_are_forgotten_with_the_next_one() {
    let mut rig = Rig::up(Lifecycle::Session);
    let (first, _) = rig.ask("ping");
    let (_second, _) = rig.ask("ping");
    assert_eq!(rig.machine.routing.pending.len(), 2);
    drop(first);
    let (_third, _) = rig.ask("ping");
    assert_eq!(rig.machine.routing.pending.len(), 2);
    assert_eq!(rig.answered(1, "{}"), ["note LateAnswer"]);
}

#[test]
fn a_line_too_long_to_be_kept_fails_the_call_that_it_answers() {
    let lost = |text: &str| {
        let mut lines = LineBuffer::new(16);
        lines.space().extend_from_slice(text.as_bytes());
        lines.next_line().unwrap().unwrap_err()
    };
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    let (mut asked, _) = rig.ask("ping");
    let rest = r#""result":{"text":"a long one"}}"#;
    for other in ["9", r#""1""#] {
        let line = lost(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{other},{rest}\n"));
        assert!(rig.machine.lose_line(&line).is_empty(), "{other}");
    }
    let line = lost(&format!("{{\"jsonrpc\":\"2.0\",\"id\":1,{rest}\n"));
    let actions = rig.machine.lose_line(&line);
    assert_eq!(rig.perform(actions), ["fail a #7: answer_too_long"]);
    assert!(rig.machine.lose_line(&line).is_empty(), "once");
    let line = lost(&format!("{{\"jsonrpc\":\"2.0\",\"id\":2,{rest}\n"));
    assert!(rig.machine.lose_line(&line).is_empty());
    assert!(asked.try_recv().is_err());
}

#[test]
fn subscriptions_are_noted_once_the_upstream_has_agreed() {
    let mut rig = Rig::up(Lifecycle::Session);
    assert_eq!(
        rig.call("a", 7, "resources/subscribe", r#"{"uri":"x:y"}"#),
        [r#"call #1 resources/subscribe {"uri":"x:y"}"#]
    );
    assert_eq!(rig.answered(1, "{}"), ["subscription a x:y true", "answer a #7 = {}"]);
    assert_eq!(
        rig.call("a", 8, "resources/unsubscribe", r#"{"uri":"x:y"}"#),
        ["subscription a x:y false", r#"call #2 resources/unsubscribe {"uri":"x:y"}"#]
    );
}

#[test]
fn a_subscription_that_the_upstream_refuses_is_none() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.call("a", 7, "resources/subscribe", r#"{"uri":"x:y"}"#);
    let refusal = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no such thing"}}"#;
    assert_eq!(rig.receive(refusal), ["answer a #7 ! no such thing"]);
    assert!(rig.machine.replay().is_empty());
}

#[test]
fn a_shared_upstream_hears_the_first_subscription_and_the_last_unsubscription() {
    let mut rig = Rig::shared();
    for (client, id) in [("a", 1), ("b", 2)] {
        rig.call(client, 7, "resources/subscribe", r#"{"uri":"x:y"}"#);
        rig.answered(id, "{}");
    }
    let answered = rig.call("a", 8, "resources/unsubscribe", r#"{"uri":"x:y"}"#);
    assert_eq!(answered.last().unwrap(), "answer a #8 = {}");
    assert!(answered.iter().all(|action| !action.starts_with("call")), "{answered:?}");
    let forwarded = rig.call("b", 8, "resources/unsubscribe", r#"{"uri":"x:y"}"#);
    assert!(forwarded.last().unwrap().starts_with("call "), "{forwarded:?}");
}

#[test]
fn each_client_has_its_level_and_the_upstream_the_lowest_of_them() {
    let mut rig = Rig::shared();
    assert_eq!(
        rig.call("a", 7, "logging/setLevel", r#"{"level":"info"}"#),
        ["level a info", r#"call #1 logging/setLevel {"level":"info"}"#]
    );
    assert_eq!(
        rig.call("b", 7, "logging/setLevel", r#"{"level":"error"}"#),
        ["level b error", r#"call #2 logging/setLevel {"level":"info"}"#]
    );
}

#[test]
fn a_level_is_told_to_an_upstream_that_runs_and_replayed_to_one_that_starts() {
    let mut rig = Rig::new(Lifecycle::Session);
    rig.join("a");
    let session = rig.client("a").id();
    assert!(rig.machine.set_level(session, LogLevel::Error).is_empty());
    rig.ready();
    assert_eq!(rig.greeted(), [r#"send #1 logging/setLevel {"level":"error"}"#, "tell a CameUp"]);
    let actions = rig.machine.set_level(session, LogLevel::Debug);
    assert_eq!(rig.perform(actions), [r#"send #2 logging/setLevel {"level":"debug"}"#]);
    assert!(rig.answered(2, "{}").is_empty(), "the gateway's own, whose answer does not matter");
}

#[test]
fn a_task_of_another_client_is_refused_without_asking_the_upstream() {
    let mut rig = Rig::shared();
    rig.call("a", 7, "tools/call", r#"{"task":{}}"#);
    rig.answered(1, r#"{"task":{"taskId":"t"}}"#);
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let request = testing::request(8, method, r#"{"taskId":"t"}"#);
        assert_eq!(rig.submit_call("b", request), ["fail b #8: Task not found"], "{method}");
    }
    assert!(rig.call("a", 8, "tasks/get", r#"{"taskId":"t"}"#)[0].starts_with("call "));
}

/// One of several servers, which has left this many calls unanswered.
fn silent(calls: u32) -> Rig {
    let mut rig = Rig::with_upstream(Lifecycle::Session, |upstream| upstream.is_guarded = true);
    rig.join("a");
    rig.start();
    for id in 0..u64::from(calls) {
        rig.tool("a", id);
        assert_eq!(rig.give_up("a", id), [format!("send {}", cancelled(id + 1, "timeout"))]);
        rig.client("a").cancel(&wire::Id::number(id));
    }
    rig
}

#[test]
fn a_server_that_left_several_calls_unanswered_gets_no_more_for_a_while() {
    assert_eq!(silent(MAX_UNANSWERED - 1).tool("a", 70), ["call #3 tools/call {}"]);
    let mut rig = silent(MAX_UNANSWERED);
    let refused = rig.tool("a", 70);
    assert!(
        refused[0].starts_with("fail a #70: the MCP server left the last 3 calls unanswered"),
        "{refused:?}"
    );
    let (mut asked, _) = rig.ask("ping");
    assert!(matches!(asked.try_recv().unwrap(), Err(StartError::NotAnswering { unanswered: 3, .. })));
    rig.pass(BREAKER_PAUSE);
    assert_eq!(rig.tool("a", 71), ["call #4 tools/call {}"]);
}

#[test]
fn an_answer_ends_the_pause_even_one_that_is_late() {
    let mut rig = silent(MAX_UNANSWERED);
    assert_eq!(rig.answered(1, "{}"), ["note LateAnswer"]);
    assert_eq!(rig.tool("a", 70), ["call #4 tools/call {}"]);
}

#[test]
fn another_silent_call_after_the_pause_begins_the_next_pause() {
    let mut rig = silent(MAX_UNANSWERED);
    rig.pass(BREAKER_PAUSE);
    rig.tool("a", 70);
    rig.give_up("a", 70);
    assert!(rig.tool("a", 71)[0].starts_with("fail a #71: the MCP server left the last 4 calls"));
}

#[test]
fn a_server_that_is_alone_is_never_paused() {
    let mut rig = Rig::up(Lifecycle::Session);
    for id in 0..10 {
        rig.tool("a", id);
        rig.give_up("a", id);
    }
    assert_eq!(rig.tool("a", 70), ["call #11 tools/call {}"]);
}
