//! From the first request to the locked scope.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn the_first_answer_about_roots_locks_the_scope_and_lets_the_calls_through() {
    let bench = Bench::new().await;
    let (mut first, mut second) = (bench.call(1, "tools/list"), bench.call(2, "prompts/list"));
    assert!(next_text(&mut first).is_none(), "nothing is asked before the handshake is finished");
    bench.finish_handshake().await;
    let number = asked_for_roots(&mut first);
    bench.answer_roots(number, "");
    bench.settle().await;
    assert_eq!(bench.session.scope().unwrap().paths(), [bench.directory.path()]);
    assert!(next_json(&mut first)["result"]["tools"].is_array());
    assert!(next_json(&mut second)["result"]["prompts"].is_array());
    assert_eq!(bench.session.overview().state, "ready");
}

#[tokio::test]
async fn a_second_answer_about_roots_changes_nothing() {
    let bench = Bench::new().await;
    bench.finish_handshake().await;
    let mut reader = bench.call(1, "tools/list");
    let number = asked_for_roots(&mut reader);
    std::fs::create_dir(bench.directory.join("other")).unwrap();
    bench.answer_roots(number, "");
    bench.answer_roots(number, "other");
    bench.settle().await;
    assert_eq!(bench.session.scope().unwrap().paths(), [bench.directory.path()]);
    assert_eq!(bench.session.context.counters.late_answers.get(), 1);
}

#[tokio::test]
async fn a_client_is_asked_on_the_stream_that_it_opens() {
    let bench = Bench::new().await;
    bench.finish_handshake().await;
    let mut listening = bench.session.listen(None, None).unwrap();
    asked_for_roots(&mut listening);
    assert!(next_text(&mut bench.call(1, "tools/list")).is_none(), "it was asked there");
}

#[tokio::test]
async fn a_handshake_is_finished_once() {
    let bench = Bench::new().await;
    let mut listening = bench.session.listen(None, None).unwrap();
    bench.finish_handshake().await;
    bench.finish_handshake().await;
    asked_for_roots(&mut listening);
    assert!(next_text(&mut listening).is_none());
}

#[tokio::test]
async fn a_call_in_a_batch_waits_without_being_asked_on() {
    let bench = Bench::new().await;
    bench.finish_handshake().await;
    let mut reader = bench.session.call_in_batch(request(1, "tools/list", "{}")).unwrap();
    assert!(next_text(&mut reader).is_none());
    let mut listening = bench.session.listen(None, None).unwrap();
    let number = asked_for_roots(&mut listening);
    bench.answer_roots(number, "");
    bench.settle().await;
    assert!(next_json(&mut reader)["result"]["tools"].is_array());
}

#[tokio::test]
async fn roots_that_cannot_be_used_end_the_session_with_the_reason() {
    let bench = Bench::new().await;
    bench.finish_handshake().await;
    let mut reader = bench.call(1, "tools/list");
    let number = asked_for_roots(&mut reader);
    bench.answer_roots(number, "missing");
    bench.settle().await;
    let error = &next_json(&mut reader)["error"];
    assert_eq!(error["data"]["reason"], "scope_refused");
    assert!(error["data"]["hint"].is_string());
    assert_eq!(bench.session.client().ended().unwrap().reason, EndReason::ScopeRefused);
    let refused = bench.sessions.find(bench.session.key()).unwrap_err();
    assert!(matches!(refused, Refusal::Terminated(_)), "{refused:?}");
}

#[tokio::test]
async fn a_client_without_roots_gets_the_default_or_no_session() {
    let bench = Bench::new().await;
    bench.finish_handshake().await;
    let mut reader = bench.call(1, "tools/list");
    let number = asked_for_roots(&mut reader);
    bench.session.answer(&response(number, r#"{"roots":[]}"#));
    bench.settle().await;
    assert_eq!(bench.session.client().ended().unwrap().reason, EndReason::ScopeRefused);
}

#[tokio::test]
async fn a_directory_of_another_principal_ends_the_session() {
    let bench = Bench::new().await;
    let uri = wire::file_uri(bench.directory.path().as_os_str().as_encoded_bytes());
    let roots = json!({ "roots": [{ "uri": uri }] }).to_string();
    let (other, _) = bench.sessions.open(caller("you"), initialize(r#"{"roots":{}}"#)).await.unwrap();
    for session in [&bench.session, &other] {
        session.notify(&notification("notifications/initialized", "{}")).await.unwrap();
        let mut listening = session.listen(None, None).unwrap();
        session.answer(&response(asked_for_roots(&mut listening), &roots));
        bench.settle().await;
    }
    assert!(!bench.session.has_ended());
    assert_eq!(other.client().ended().unwrap().reason, EndReason::ScopeRefused);
}

#[tokio::test]
async fn calls_fail_when_the_scope_is_not_known_in_time() {
    let settings = Settings { scope_timeout: Duration::ZERO, ..Settings::default() };
    let bench = Bench::with(settings, rules()).await;
    let mut reader = bench.call(1, "tools/list");
    assert_eq!(bench.session.tick(Instant::now()), None, "the session itself goes on");
    let error = &next_json(&mut reader)["error"]["data"];
    assert_eq!((&error["reason"], &error["missing"]), (&json!("scope_timeout"), &json!("initialized")));
    assert_eq!(bench.session.calls_in_flight(), 0);
}

#[tokio::test]
async fn a_scope_is_locked_once() {
    let bench = Bench::ready().await;
    bench.session.lock_scope(Scope::nothing()).await.unwrap();
    assert_eq!(bench.session.scope().unwrap().paths(), [bench.directory.path()]);
}
