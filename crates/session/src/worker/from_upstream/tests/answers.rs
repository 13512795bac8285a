//! Answers of an upstream reach the call that they are for, and no other.

use audit::CallOutcome;
use upstream::Lifecycle;

use crate::settings::MAX_TASKS;
use crate::testing;
use crate::worker::action::Action;
use crate::worker::testing::Rig;

#[test]
fn an_answer_goes_to_its_call_under_the_clients_id() {
    let mut rig = Rig::shared();
    rig.tool("a", 7);
    rig.tool("b", 7);
    assert_eq!(rig.answered(2, r#"{"of":"b"}"#), [r#"answer b #7 = {"of":"b"}"#]);
    assert_eq!(rig.answered(1, r#"{"of":"a"}"#), [r#"answer a #7 = {"of":"a"}"#]);
}

#[test]
fn an_answer_passes_byte_for_byte_but_for_its_id() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    let actions = rig.receive_raw(r#"{ "result":{"n":1.50, "é":"\u00e9"},"id":1 , "jsonrpc":"2.0"}"#);
    let [Action::Answer { text, .. }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(
        text.clone().into_bytes(),
        r#"{ "result":{"n":1.50, "é":"\u00e9"},"id":7 , "jsonrpc":"2.0"}"#.as_bytes()
    );
}

#[test]
fn an_error_of_the_upstream_is_an_answer_that_counts_as_one() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    rig.tool("a", 8);
    let actions = rig.receive_raw(r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}"#);
    assert!(matches!(actions[..], [Action::Answer { outcome: CallOutcome::Error, .. }]), "{actions:?}");
    let actions = rig.receive_raw(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    assert!(matches!(actions[..], [Action::Answer { outcome: CallOutcome::Ok, .. }]), "{actions:?}");
}

#[test]
fn a_call_is_answered_once() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    assert_eq!(rig.answered(1, "{}"), ["answer a #7 = {}"]);
    assert_eq!(rig.answered(1, "{}"), ["note LateAnswer"]);
}

#[test]
fn a_string_is_not_the_number_that_a_call_was_sent_under() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    assert_eq!(rig.receive(r#"{"jsonrpc":"2.0","id":"1","result":{}}"#), [r#"note StrayAnswer("1")"#]);
    assert_eq!(rig.answered(1, "{}"), ["answer a #7 = {}"], "the call still waits");
}

#[test]
fn answers_to_what_was_never_sent_are_strays() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    for id in ["2", "-1", "99999999999999999999999999", r#""x""#] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        assert_eq!(rig.receive(&text), [format!("note StrayAnswer({id})")]);
    }
}

#[test]
fn an_answer_of_an_earlier_generation_is_late() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.tool("a", 7);
    rig.died();
    rig.start();
    rig.tool("a", 7);
    assert_eq!(rig.answered(1, "{}"), ["note LateAnswer"]);
    assert_eq!(rig.answered(2, "{}"), ["answer a #7 = {}"]);
}

#[test]
fn under_verbose_meta_results_say_which_client_they_are_for() {
    let mut rig = Rig::with(Lifecycle::Session, |terms, _| terms.verbose_meta = true);
    rig.join("a");
    rig.start();
    rig.tool("a", 7);
    rig.tool("a", 8);
    let answer = rig.answered(1, r#"{"x":1}"#);
    let instance = rig.client("a").instance().as_str().to_owned();
    assert!(answer[0].starts_with("answer a #7 = {"), "{answer:?}");
    assert!(answer[0].contains("io.ringfence/instance") && answer[0].contains(&instance), "{answer:?}");
    let error = r#"{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"no"}}"#;
    assert_eq!(rig.receive(error), ["answer a #8 ! no"]);
}

#[test]
fn a_task_that_a_call_started_is_told_to_the_session() {
    for lifecycle in [Lifecycle::Session, Lifecycle::Shared] {
        let mut rig = Rig::up(lifecycle);
        rig.call("a", 7, "tools/call", r#"{"task":{}}"#);
        assert_eq!(
            rig.answered(1, r#"{"task":{"taskId":"t"}}"#),
            [r#"tell a TaskStarted("t")"#, r#"answer a #7 = {"task":{"taskId":"t"}}"#]
        );
    }
}

#[test]
fn an_answer_that_names_no_task_starts_none() {
    let mut rig = Rig::up(Lifecycle::Session);
    for (id, result) in [(1, "{}"), (2, r#"{"task":{}}"#), (3, r#"{"task":"t"}"#), (4, "7")] {
        rig.call("a", id, "tools/call", r#"{"task":{}}"#);
        assert_eq!(rig.answered(id, result), [format!("answer a #{id} = {result}")]);
    }
    rig.call("a", 5, "tools/call", r#"{"task":{}}"#);
    let error = r#"{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":"no"}}"#;
    assert_eq!(rig.receive(error), ["answer a #5 ! no"]);
}

#[test]
fn a_task_list_of_a_shared_upstream_shows_each_client_its_own() {
    let mut rig = Rig::shared();
    for (client, id) in [("a", 1), ("b", 2)] {
        rig.call(client, 7, "tools/call", r#"{"task":{}}"#);
        rig.answered(id, &format!(r#"{{"task":{{"taskId":"of-{client}"}}}}"#));
    }
    let all = r#"{"tasks":[{"taskId":"of-a"},{"taskId":"of-b"},{"taskId":"of-none"}]}"#;
    rig.call("a", 8, "tasks/list", "{}");
    assert_eq!(rig.answered(3, all), [r#"answer a #8 = {"tasks":[{"taskId":"of-a"}]}"#]);
    rig.call("b", 8, "tasks/list", "{}");
    assert_eq!(rig.answered(4, all), [r#"answer b #8 = {"tasks":[{"taskId":"of-b"}]}"#]);
}

#[test]
fn a_task_list_of_ones_own_process_passes_as_it_is() {
    let mut rig = Rig::up(Lifecycle::Session);
    rig.call("a", 8, "tasks/list", "{}");
    let all = r#"{"tasks":[{"taskId":"x"}]}"#;
    assert_eq!(rig.answered(1, all), [format!("answer a #8 = {all}")]);
}

#[test]
fn progress_of_the_oldest_tasks_is_forgotten_first() {
    let mut rig = Rig::up(Lifecycle::Session);
    let params = r#"{"task":{},"_meta":{"progressToken":"t"}}"#;
    for id in 1..=MAX_TASKS as u64 + 1 {
        rig.submit_call("a", testing::request(id, "tools/call", params));
        rig.answered(id, r#"{"task":{"taskId":"x"}}"#);
    }
    let progress = |id: usize| format!(r#"{{"progressToken":{id},"progress":1}}"#);
    assert_eq!(
        rig.notified("notifications/progress", &progress(1)),
        [r#"note DroppedNotification("notifications/progress")"#]
    );
    assert!(rig.notified("notifications/progress", &progress(2))[0].starts_with("deliver a Standalone"));
}
