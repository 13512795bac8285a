//! Tests of the state that keeps the sessions of a shared upstream apart.

use wire::Message;

use super::*;
use crate::testing;

fn request(method: &str, params: &str) -> Request {
    testing::request(1, method, params)
}

fn response(result: &str) -> Response {
    testing::response(1, result)
}

#[test]
fn the_upstream_stays_subscribed_while_anybody_is() {
    let mut view = SharedState::default();
    let (a, b) = (SessionId::random(), SessionId::random());
    let subscribe = request(method::SUBSCRIBE, r#"{"uri":"x:y"}"#);
    let unsubscribe = request(method::UNSUBSCRIBE, r#"{"uri":"x:y"}"#);
    for session in [a, b] {
        let Admission::Forward(purpose) = view.admit(session, &subscribe, true) else { panic!() };
        view.filter_answer(session, &purpose, &response("{}"), &Id::number(1));
    }
    assert_eq!(view.subscribers("x:y").count(), 2);
    assert!(matches!(view.admit(a, &unsubscribe, true), Admission::AnswerEmpty));
    assert_eq!(view.subscribers("x:y").collect::<Vec<_>>(), [b]);
    assert_eq!(view.replay(), [(method::SUBSCRIBE, json!({ "uri": "x:y" }))]);
    assert!(matches!(view.admit(b, &unsubscribe, true), Admission::Forward(_)));
}

#[test]
fn the_upstream_logs_for_the_most_curious_and_each_client_hears_its_own_level() {
    let mut view = SharedState::default();
    let (a, b, silent) = (SessionId::random(), SessionId::random(), SessionId::random());
    let level = |name| request(method::SET_LEVEL, &format!(r#"{{"level":"{name}"}}"#));
    assert!(matches!(
        view.admit(a, &level("debug"), true),
        Admission::ForwardLevel { upstream: LogLevel::Debug, .. }
    ));
    assert!(matches!(
        view.admit(b, &level("error"), true),
        Admission::ForwardLevel { upstream: LogLevel::Debug, .. }
    ));
    assert!(view.wants_log(a, Some(LogLevel::Info)));
    assert!(!view.wants_log(b, Some(LogLevel::Info)));
    assert!(view.wants_log(silent, Some(LogLevel::Debug)));
    assert_eq!(view.replay(), [(method::SET_LEVEL, json!({ "level": "debug" }))]);
    view.forget(a);
    assert!(matches!(
        view.admit(b, &level("error"), true),
        Admission::ForwardLevel { upstream: LogLevel::Error, .. }
    ));
}

#[test]
fn a_task_exists_only_for_its_owner() {
    let mut view = SharedState::default();
    let (a, b) = (SessionId::random(), SessionId::random());
    for (session, task) in [(a, "task-a"), (b, "task-b")] {
        let created = response(&format!(r#"{{"task":{{"taskId":"{task}"}}}}"#));
        view.filter_answer(session, &Purpose::StartTask, &created, &Id::number(1));
    }
    let get = request(method::TASKS_GET, r#"{"taskId":"task-a"}"#);
    assert!(matches!(view.admit(a, &get, true), Admission::Forward(_)));
    assert!(matches!(view.admit(b, &get, true), Admission::Refuse(_)));
    let all = response(r#"{"tasks":[{"taskId":"task-a","n":1.0},{"taskId":"task-b"}]}"#);
    let seen = view.filter_answer(a, &Purpose::ListTasks, &all, &Id::number(9)).into_bytes();
    assert_eq!(seen, &br#"{"jsonrpc":"2.0","id":9,"result":{"tasks":[{"taskId":"task-a","n":1.0}]}}"#[..]);
}

fn level(name: &str) -> Request {
    request(method::SET_LEVEL, &format!(r#"{{"level":"{name}"}}"#))
}

/// Subscribes a session, with the upstream's consent.
fn subscribe(state: &mut SharedState, session: SessionId, uri: &str) {
    let subscribe = request(method::SUBSCRIBE, &json!({ "uri": uri }).to_string());
    let Admission::Forward(purpose) = state.admit(session, &subscribe, true) else { panic!() };
    assert_eq!(purpose, Purpose::Subscribe(uri.to_owned()));
    state.filter_answer(session, &purpose, &response("{}"), &Id::number(1));
}

/// Answers a call of a session with a new task.
fn start_task(state: &mut SharedState, session: SessionId, task: &str) {
    let created = response(&json!({ "task": { "taskId": task } }).to_string());
    state.filter_answer(session, &Purpose::StartTask, &created, &Id::number(1));
}

#[test]
fn most_requests_are_forwarded_as_they_are() {
    let mut state = SharedState::default();
    for method in [method::TOOLS_CALL, method::RESOURCES_READ, method::PING, "unheard/of"] {
        for is_shared in [false, true] {
            let admission = state.admit(SessionId::random(), &request(method, "{}"), is_shared);
            assert!(matches!(admission, Admission::Forward(Purpose::Plain)), "{method}: {admission:?}");
        }
    }
}

#[test]
fn tasks_are_told_apart_only_where_an_upstream_is_shared() {
    let mut state = SharedState::default();
    let session = SessionId::random();
    for (method, params) in [
        (method::TASKS_GET, r#"{"taskId":"t"}"#),
        (method::TASKS_RESULT, r#"{"taskId":"t"}"#),
        (method::TASKS_CANCEL, r#"{"taskId":"t"}"#),
        (method::TASKS_LIST, "{}"),
        (method::TOOLS_CALL, r#"{"task":{}}"#),
    ] {
        let request = request(method, params);
        let own = state.admit(session, &request, false);
        assert!(matches!(own, Admission::Forward(Purpose::Plain)), "{method}: {own:?}");
        let shared = state.admit(session, &request, true);
        assert!(!matches!(shared, Admission::Forward(Purpose::Plain)), "{method}: {shared:?}");
    }
}

#[test]
fn a_task_request_that_names_no_task_is_refused() {
    let mut state = SharedState::default();
    let session = SessionId::random();
    start_task(&mut state, session, "t");
    for params in ["{}", r#"{"taskId":7}"#, r#"{"taskId":"other"}"#] {
        let Admission::Refuse(error) = state.admit(session, &request(method::TASKS_GET, params), true) else {
            panic!("{params}")
        };
        assert_eq!((error.code, error.message.as_str()), (code::INVALID_PARAMS, "Task not found"));
    }
}

#[test]
fn the_oldest_task_is_forgotten_when_there_are_too_many() {
    let mut state = SharedState::default();
    let session = SessionId::random();
    for number in 0..=MAX_TASKS {
        start_task(&mut state, session, &format!("t{number}"));
    }
    assert_eq!(state.task_owner("t0"), None);
    assert_eq!(state.task_owner("t1"), Some(session));
    assert_eq!(state.task_owner(&format!("t{MAX_TASKS}")), Some(session));
}

#[test]
fn an_error_neither_starts_a_task_nor_subscribes() {
    let mut state = SharedState::default();
    let session = SessionId::random();
    let text = r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","task":{"taskId":"t"}}}"#;
    let Ok(Message::Response(error)) = Message::parse(text.into()) else { panic!() };
    for purpose in [Purpose::StartTask, Purpose::Subscribe("x:y".to_owned()), Purpose::ListTasks] {
        let answer = state.filter_answer(session, &purpose, &error, &Id::number(9)).into_bytes();
        assert_eq!(answer, text.replace(r#""id":1"#, r#""id":9"#).as_bytes());
    }
    assert_eq!(state.task_owner("t"), None);
    assert_eq!(state.subscribers("x:y").count(), 0);
}

#[test]
fn a_list_of_tasks_keeps_the_rest_of_the_answer() {
    let mut state = SharedState::default();
    let session = SessionId::random();
    start_task(&mut state, session, "mine");
    let all = response(r#"{"tasks":[{"taskId":"mine"},{"taskId":7},{},"x"],"nextCursor":"c"}"#);
    let answer = state.filter_answer(session, &Purpose::ListTasks, &all, &Id::number(9)).into_bytes();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["result"], json!({ "tasks": [{ "taskId": "mine" }], "nextCursor": "c" }));
}

#[test]
fn a_list_without_tasks_is_an_empty_list() {
    let mut state = SharedState::default();
    for result in ["{}", r#"{"tasks":7}"#, "[]"] {
        let answer =
            state.filter_answer(SessionId::random(), &Purpose::ListTasks, &response(result), &Id::number(9));
        let answer: Value = serde_json::from_slice(&answer.into_bytes()).unwrap();
        assert_eq!(answer["result"], json!({ "tasks": [] }), "{result}");
    }
}

#[test]
fn a_session_may_hold_so_many_subscriptions_and_no_more() {
    let mut state = SharedState::default();
    let (full, other) = (SessionId::random(), SessionId::random());
    for number in 0..MAX_SUBSCRIPTIONS {
        subscribe(&mut state, full, &format!("x:{number}"));
    }
    let one_more = request(method::SUBSCRIBE, r#"{"uri":"x:more"}"#);
    assert!(matches!(state.admit(full, &one_more, true), Admission::Refuse(_)));
    assert!(matches!(state.admit(other, &one_more, true), Admission::Forward(_)));
    let unsubscribe = request(method::UNSUBSCRIBE, r#"{"uri":"x:0"}"#);
    state.admit(full, &unsubscribe, true);
    assert!(matches!(state.admit(full, &one_more, true), Admission::Forward(_)));
}

#[test]
fn requests_that_lack_what_they_are_about_are_the_upstreams_to_refuse() {
    let mut state = SharedState::default();
    for method in [method::SUBSCRIBE, method::UNSUBSCRIBE, method::SET_LEVEL] {
        let admission = state.admit(SessionId::random(), &request(method, "{}"), true);
        assert!(matches!(admission, Admission::Forward(Purpose::Plain)), "{method}: {admission:?}");
    }
    let unknown = state.admit(SessionId::random(), &level("loud"), true);
    assert!(matches!(unknown, Admission::Forward(Purpose::Plain)), "{unknown:?}");
}

#[test]
fn unsubscribing_from_what_was_never_subscribed_is_forwarded() {
    let mut state = SharedState::default();
    let unsubscribe = request(method::UNSUBSCRIBE, r#"{"uri":"x:y"}"#);
    let admission = state.admit(SessionId::random(), &unsubscribe, true);
    assert!(matches!(admission, Admission::Forward(Purpose::Plain)), "{admission:?}");
}

#[test]
fn subscriptions_and_levels_are_remembered_for_ones_own_process_too() {
    let mut state = SharedState::default();
    let session = SessionId::random();
    let subscribe = request(method::SUBSCRIBE, r#"{"uri":"x:y"}"#);
    let Admission::Forward(purpose) = state.admit(session, &subscribe, false) else { panic!() };
    state.filter_answer(session, &purpose, &response("{}"), &Id::number(1));
    state.admit(session, &level("notice"), false);
    assert_eq!(
        state.replay(),
        [(method::SUBSCRIBE, json!({ "uri": "x:y" })), (method::SET_LEVEL, json!({ "level": "notice" }))]
    );
}

#[test]
fn a_session_that_is_forgotten_leaves_nothing_behind() {
    let mut state = SharedState::default();
    let (gone, stays) = (SessionId::random(), SessionId::random());
    for (session, uri) in [(gone, "x:both"), (stays, "x:both"), (gone, "x:own")] {
        subscribe(&mut state, session, uri);
    }
    start_task(&mut state, gone, "of-gone");
    start_task(&mut state, stays, "of-stays");
    state.admit(gone, &level("debug"), true);
    state.admit(stays, &level("error"), true);
    assert_eq!(state.forget(gone), ["x:own"]);
    assert_eq!(state.subscribers("x:both").collect::<Vec<_>>(), [stays]);
    assert_eq!((state.task_owner("of-gone"), state.task_owner("of-stays")), (None, Some(stays)));
    assert_eq!(
        state.replay(),
        [(method::SUBSCRIBE, json!({ "uri": "x:both" })), (method::SET_LEVEL, json!({ "level": "error" }))]
    );
    assert!(state.forget(gone).is_empty(), "once");
}

#[test]
fn a_client_may_become_less_curious() {
    let mut state = SharedState::default();
    let session = SessionId::random();
    for (name, expected) in [("debug", LogLevel::Debug), ("emergency", LogLevel::Emergency)] {
        let Admission::ForwardLevel { own, upstream } = state.admit(session, &level(name), true) else {
            panic!()
        };
        assert_eq!((own, upstream), (expected, expected));
    }
    assert!(!state.wants_log(session, Some(LogLevel::Alert)));
    assert!(state.wants_log(session, Some(LogLevel::Emergency)));
    assert!(state.wants_log(session, None), "a message without a level");
}
