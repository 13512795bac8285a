//! Notifications of an upstream: progress, cancellations, logs, resources, tasks, lists and files.

use std::time::Duration;

use upstream::Lifecycle;

use crate::testing;
use crate::worker::testing::{Rig, cancelled, sorted};

const PROGRESS: &str = "notifications/progress";
const LOG: &str = "notifications/message";
const UPDATED: &str = "notifications/resources/updated";
const STATUS: &str = "notifications/tasks/status";

fn dropped(method: &str) -> [String; 1] {
    [format!("note DroppedNotification({method:?})")]
}

#[test]
fn progress_goes_to_its_call_under_the_clients_token() {
    for lifecycle in [Lifecycle::Session, Lifecycle::Workspace] {
        let mut rig = Rig::up(lifecycle);
        rig.call("a", 7, "tools/call", r#"{"_meta":{"progressToken":"mine"}}"#);
        assert_eq!(
            rig.notified(PROGRESS, r#"{"progressToken":1}"#),
            [r#"progress a #7: notifications/progress {"progressToken":"mine"}"#]
        );
    }
}

#[test]
fn progress_extends_the_time_of_its_call() {
    let mut rig = Rig::up(Lifecycle::Session);
    let request = testing::request(7, "tools/call", "{}");
    let (call, _) = testing::call(rig.client("a"), &request);
    let work = crate::worker::queue::Work::Call(std::sync::Arc::clone(&call), Box::new(request));
    rig.machine.submit(work, rig.now);
    let (limit, longest) = (Duration::from_secs(10), Duration::from_secs(100));
    rig.pass(Duration::from_secs(9));
    assert!(rig.notified(PROGRESS, r#"{"progressToken":1}"#).is_empty(), "the client wanted none");
    rig.pass(Duration::from_secs(9));
    assert_eq!(call.clock().overdue(rig.now, limit, longest), None);
    rig.pass(Duration::from_secs(1));
    assert!(call.clock().overdue(rig.now, limit, longest).is_some());
}

#[test]
fn progress_without_a_call_is_dropped() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.call("a", 7, "tools/call", r#"{"_meta":{"progressToken":1}}"#);
    for params in [r#"{"progressToken":"1"}"#, r#"{"progressToken":2}"#, "{}"] {
        assert_eq!(rig.notified(PROGRESS, params), dropped(PROGRESS), "{params}");
    }
    rig.answered(1, "{}");
    assert_eq!(rig.notified(PROGRESS, r#"{"progressToken":1}"#), dropped(PROGRESS), "the call is over");
}

#[test]
fn progress_of_the_gateways_own_questions_is_dropped() {
    let mut rig = Rig::up(Lifecycle::Session);
    let (_asked, _) = rig.ask("tools/list");
    assert_eq!(rig.notified(PROGRESS, r#"{"progressToken":1}"#), dropped(PROGRESS));
}

#[test]
fn progress_of_a_task_goes_on_after_the_answer_on_the_standalone_stream() {
    for lifecycle in [Lifecycle::Session, Lifecycle::Shared] {
        let mut rig = Rig::up(lifecycle);
        rig.call("a", 7, "tools/call", r#"{"task":{},"_meta":{"progressToken":"mine"}}"#);
        assert!(rig.notified(PROGRESS, r#"{"progressToken":1}"#)[0].starts_with("progress a #7"));
        rig.answered(1, r#"{"task":{"taskId":"t"}}"#);
        assert_eq!(
            rig.notified(PROGRESS, r#"{"progressToken":1}"#),
            [r#"deliver a Standalone notifications/progress {"progressToken":"mine"}"#]
        );
    }
}

#[test]
fn progress_of_a_task_whose_session_left_is_dropped() {
    let mut rig = Rig::shared();
    rig.call("a", 7, "tools/call", r#"{"task":{},"_meta":{"progressToken":"mine"}}"#);
    rig.answered(1, r#"{"task":{"taskId":"t"}}"#);
    rig.leave("a");
    assert_eq!(rig.notified(PROGRESS, r#"{"progressToken":1}"#), dropped(PROGRESS));
}

#[test]
fn progress_of_a_task_that_wanted_none_is_dropped() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.call("a", 7, "tools/call", r#"{"task":{}}"#);
    rig.answered(1, r#"{"task":{"taskId":"t"}}"#);
    assert_eq!(rig.notified(PROGRESS, r#"{"progressToken":1}"#), dropped(PROGRESS));
}

#[test]
fn the_upstream_takes_back_its_request_under_the_clients_number() {
    for lifecycle in [Lifecycle::Session, Lifecycle::Shared] {
        let mut rig = Rig::up(lifecycle);
        rig.accepted("5", "a", 31);
        let taken_back = rig.notified("notifications/cancelled", r#"{"requestId":5,"reason":"done"}"#);
        assert_eq!(taken_back, [format!("withdraw a #31: {}", cancelled(31, "done"))]);
        assert!(rig.notified("notifications/cancelled", r#"{"requestId":5}"#).is_empty(), "once");
    }
}

#[test]
fn a_request_is_taken_back_by_the_id_of_its_type() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.accepted(r#""5""#, "a", 31);
    for params in [r#"{"requestId":5}"#, r#"{"requestId":"6"}"#, "{}"] {
        assert!(rig.notified("notifications/cancelled", params).is_empty(), "{params}");
    }
    let taken_back = rig.notified("notifications/cancelled", r#"{"requestId":"5"}"#);
    assert!(taken_back[0].starts_with("withdraw a #31"), "{taken_back:?}");
}

#[test]
fn the_upstream_cannot_cancel_a_clients_call() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    assert!(rig.notified("notifications/cancelled", r#"{"requestId":1}"#).is_empty());
    assert_eq!(rig.answered(1, "{}"), ["answer a #7 = {}"]);
}

#[test]
fn logs_and_unknown_notifications_of_ones_own_process_go_to_its_client() {
    let mut rig = Rig::up(Lifecycle::Session);
    for method in [LOG, STATUS, "notifications/unheard_of"] {
        assert_eq!(rig.notified(method, "{}"), [format!("deliver a Call {method} {{}}")]);
    }
    rig.call("a", 7, "logging/setLevel", r#"{"level":"error"}"#);
    assert_eq!(
        rig.notified(LOG, r#"{"level":"debug"}"#),
        [r#"deliver a Call notifications/message {"level":"debug"}"#],
        "the process heard the level itself"
    );
}

#[test]
fn notifications_of_a_process_without_a_client_are_dropped() {
    let mut rig = Rig::new(Lifecycle::Session);
    rig.start();
    for method in [LOG, UPDATED, STATUS, "notifications/tools/list_changed", "notifications/x"] {
        assert_eq!(rig.notified(method, r#"{"uri":"x:y","taskId":"t"}"#), dropped(method));
    }
}

#[test]
fn logs_of_a_shared_upstream_go_to_the_only_client_with_calls() {
    let mut rig = Rig::shared();
    assert_eq!(rig.notified(LOG, "{}"), dropped(LOG), "no call");
    rig.tool("b", 7);
    rig.tool("b", 8);
    assert_eq!(rig.notified(LOG, "{}"), ["deliver b Call notifications/message {}"]);
    rig.tool("a", 7);
    assert_eq!(rig.notified(LOG, "{}"), dropped(LOG), "calls of two clients");
    rig.answered(1, "{}");
    rig.answered(2, "{}");
    assert_eq!(rig.notified(LOG, "{}"), ["deliver a Call notifications/message {}"]);
}

#[test]
fn questions_of_the_gateway_do_not_make_a_client_less_the_only_one() {
    let mut rig = Rig::shared();
    let (_asked, _) = rig.ask("tools/list");
    assert_eq!(rig.notified(LOG, "{}"), dropped(LOG));
    rig.tool("a", 7);
    assert_eq!(rig.notified(LOG, "{}"), ["deliver a Call notifications/message {}"]);
}

#[test]
fn logs_of_a_shared_upstream_below_the_clients_level_are_dropped() {
    let mut rig = Rig::shared();
    rig.call("a", 1, "logging/setLevel", r#"{"level":"debug"}"#);
    rig.answered(1, "{}");
    rig.call("b", 1, "logging/setLevel", r#"{"level":"warning"}"#);
    rig.answered(2, "{}");
    rig.tool("b", 7);
    for (level, is_wanted) in [("debug", false), ("notice", false), ("warning", true), ("alert", true)] {
        let actions = rig.notified(LOG, &format!(r#"{{"level":"{level}"}}"#));
        assert_eq!(actions[0].starts_with("deliver b"), is_wanted, "{level}: {actions:?}");
    }
    assert_eq!(rig.notified(LOG, "{}"), ["deliver b Call notifications/message {}"], "of no level");
    assert_eq!(
        rig.notified("notifications/x", r#"{"level":"debug"}"#),
        [r#"deliver b Call notifications/x {"level":"debug"}"#],
        "levels are of logs only"
    );
}

#[test]
fn updates_of_resources_go_to_the_client_of_ones_own_process() {
    let mut rig = Rig::up(Lifecycle::Session);
    assert_eq!(
        rig.notified(UPDATED, r#"{"uri":"x:y"}"#),
        [r#"deliver a Standalone notifications/resources/updated {"uri":"x:y"}"#]
    );
}

#[test]
fn updates_of_resources_of_a_shared_upstream_go_to_those_who_subscribed() {
    let mut rig = Rig::shared();
    let update = r#"{"uri":"x:y"}"#;
    assert_eq!(rig.notified(UPDATED, update), dropped(UPDATED));
    for (client, id) in [("a", 1), ("b", 2)] {
        rig.call(client, 7, "resources/subscribe", update);
        rig.answered(id, "{}");
    }
    let delivered = |client: &str| format!("deliver {client} Standalone {UPDATED} {update}");
    assert_eq!(sorted(rig.notified(UPDATED, update)), [delivered("a"), delivered("b")]);
    assert_eq!(rig.notified(UPDATED, r#"{"uri":"x:other"}"#), dropped(UPDATED));
    assert_eq!(rig.notified(UPDATED, "{}"), dropped(UPDATED));
    rig.call("a", 8, "resources/unsubscribe", update);
    assert_eq!(rig.notified(UPDATED, update), [delivered("b")]);
    rig.leave("b");
    assert_eq!(rig.notified(UPDATED, update), dropped(UPDATED));
}

#[test]
fn a_subscription_counts_only_once_it_is_granted() {
    let mut rig = Rig::shared();
    rig.call("a", 7, "resources/subscribe", r#"{"uri":"x:y"}"#);
    assert_eq!(rig.notified(UPDATED, r#"{"uri":"x:y"}"#), dropped(UPDATED));
}

#[test]
fn the_status_of_a_task_of_a_shared_upstream_goes_to_its_owner() {
    let mut rig = Rig::shared();
    rig.call("a", 7, "tools/call", r#"{"task":{}}"#);
    rig.answered(1, r#"{"task":{"taskId":"t"}}"#);
    rig.tool("b", 7);
    assert_eq!(
        rig.notified(STATUS, r#"{"taskId":"t"}"#),
        [r#"deliver a Call notifications/tasks/status {"taskId":"t"}"#]
    );
    assert_eq!(rig.notified(STATUS, r#"{"taskId":"unknown"}"#), dropped(STATUS));
    assert_eq!(rig.notified(STATUS, "{}"), dropped(STATUS));
    rig.leave("a");
    assert_eq!(rig.notified(STATUS, r#"{"taskId":"t"}"#), dropped(STATUS));
}

#[test]
fn a_changed_list_concerns_every_client() {
    let mut rig = Rig::shared();
    for list in ["tools", "prompts", "resources"] {
        let method = format!("notifications/{list}/list_changed");
        let delivered = |client: &str| format!("deliver {client} Standalone {method} {{}}");
        assert_eq!(sorted(rig.notified(&method, "{}")), [delivered("a"), delivered("b")]);
    }
}

#[test]
fn clients_of_several_servers_hear_of_changed_lists_through_their_session() {
    let mut rig = Rig::with(Lifecycle::Shared, |terms, _| terms.is_passed_through = false);
    rig.start();
    let method = "notifications/prompts/list_changed";
    assert_eq!(rig.notified(method, "{}"), dropped(method), "no session");
    rig.join("a");
    rig.join("b");
    for (list, event) in [("tools", "Tools"), ("prompts", "Prompts"), ("resources", "Resources")] {
        let told = |client: &str| format!("tell {client} ListChanged({event})");
        let actions = rig.notified(&format!("notifications/{list}/list_changed"), "{}");
        assert_eq!(sorted(actions), [told("a"), told("b")]);
    }
}

/// A worker of the built-in server, which reports what it does to files.
fn reporter(lifecycle: Lifecycle) -> Rig {
    let mut rig = Rig::with_upstream(lifecycle, |upstream| upstream.reports_files = true);
    rig.join("a");
    rig.start();
    rig
}

const FILES: &str = "notifications/io.ringfence/file_operations";

fn files_of(request: u64) -> String {
    let operation = r#"{"operation":"write","path":"/x","bytes":1,"outcome":"ok"}"#;
    format!(r#"{{"requestId":{request},"tool":"write_file","operations":[{operation}]}}"#)
}

#[test]
fn reported_files_are_recorded_for_the_client_of_the_call() {
    let mut rig = reporter(Lifecycle::Shared);
    rig.join("b");
    rig.tool("b", 7);
    rig.tool("a", 7);
    assert_eq!(rig.notified(FILES, &files_of(1)), ["files b write_file 1"]);
    assert_eq!(rig.notified(FILES, &files_of(2)), ["files a write_file 1"]);
    assert_eq!(rig.notified(FILES, &files_of(3)), ["files none write_file 1"]);
}

#[test]
fn reported_files_of_a_call_that_was_given_up_are_those_of_the_only_client() {
    let mut rig = reporter(Lifecycle::Session);
    rig.tool("a", 7);
    rig.cancel("a", 7);
    assert_eq!(rig.notified(FILES, &files_of(1)), ["files a write_file 1"]);
}

#[test]
fn reports_of_files_that_cannot_be_read_are_dropped() {
    let mut rig = reporter(Lifecycle::Session);
    for params in ["{}", r#"{"requestId":"1","tool":"t","operations":[]}"#] {
        assert_eq!(rig.notified(FILES, params), dropped(FILES));
    }
}

#[test]
fn another_server_cannot_write_to_the_audit_log() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    let actions = rig.notified(FILES, &files_of(1));
    assert!(actions[0].starts_with("deliver a Call"), "{actions:?}");
}
