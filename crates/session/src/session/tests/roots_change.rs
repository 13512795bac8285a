//! What a change of the client's roots does to a session whose scope came from them.

use super::*;

const CHANGED: &str = "notifications/roots/list_changed";

/// A session with this policy for changes, whose scope is locked to the client's roots.
async fn locked(on_change: OnRootsChange) -> (Bench, StreamReader) {
    let bench = Bench::with(Settings::default(), ScopeRules { on_change, ..rules() }).await;
    bench.finish_handshake().await;
    let mut listening = bench.session.listen(None, None).unwrap();
    let number = asked_for_roots(&mut listening);
    bench.answer_roots(number, "");
    bench.settle().await;
    assert!(bench.session.scope().is_some());
    (bench, listening)
}

async fn change(bench: &Bench) -> Result<(), Refusal> {
    bench.session.notify(&notification(CHANGED, "{}")).await
}

#[tokio::test]
async fn a_change_may_end_the_session_with_the_reason() {
    let (bench, _listening) = locked(OnRootsChange::Terminate).await;
    let refused = change(&bench).await.unwrap_err();
    assert!(matches!(&refused, Refusal::Terminated(_)), "{refused:?}");
    assert_eq!(bench.session.client().ended().unwrap().reason, EndReason::RootsChangeRejected);
    assert!(matches!(bench.sessions.find(bench.session.key()), Err(Refusal::Terminated(_))));
}

#[tokio::test]
async fn a_change_may_make_the_client_start_over() {
    let (bench, _listening) = locked(OnRootsChange::Reinit).await;
    assert!(matches!(change(&bench).await, Err(Refusal::SessionNotFound)));
    assert_eq!(bench.session.client().ended().unwrap().reason, EndReason::RootsChanged);
    assert!(matches!(bench.sessions.find(bench.session.key()), Err(Refusal::SessionNotFound)));
}

#[tokio::test]
async fn a_change_may_be_ignored() {
    let (bench, mut listening) = locked(OnRootsChange::Ignore).await;
    change(&bench).await.unwrap();
    assert!(!bench.session.has_ended() && next_text(&mut listening).is_none());
}

#[tokio::test]
async fn a_change_may_be_compared_and_is_asked_for_once() {
    let (bench, mut listening) = locked(OnRootsChange::Compare).await;
    change(&bench).await.unwrap();
    change(&bench).await.unwrap();
    let number = asked_for_roots(&mut listening);
    assert!(next_text(&mut listening).is_none(), "one question at a time");
    bench.answer_roots(number, "");
    bench.settle().await;
    change(&bench).await.unwrap();
    asked_for_roots(&mut listening);
}

#[tokio::test]
async fn roots_within_the_scope_go_on_and_do_not_widen_it() {
    let (bench, mut listening) = locked(OnRootsChange::Compare).await;
    std::fs::create_dir(bench.directory.join("below")).unwrap();
    change(&bench).await.unwrap();
    bench.answer_roots(asked_for_roots(&mut listening), "below");
    bench.settle().await;
    assert!(!bench.session.has_ended());
    assert_eq!(bench.session.scope().unwrap().paths(), [bench.directory.path()]);
}

#[tokio::test]
async fn roots_outside_of_the_scope_end_the_session() {
    let (bench, mut listening) = locked(OnRootsChange::Compare).await;
    let outside = workspace_dir("session-outside");
    change(&bench).await.unwrap();
    let number = asked_for_roots(&mut listening);
    let uri = wire::file_uri(outside.path().as_os_str().as_encoded_bytes());
    bench.session.answer(&response(number, &json!({ "roots": [{ "uri": uri }] }).to_string()));
    bench.settle().await;
    assert_eq!(bench.session.client().ended().unwrap().reason, EndReason::RootsChangeRejected);
}

#[tokio::test]
async fn roots_that_cannot_be_compared_end_the_session() {
    let (bench, mut listening) = locked(OnRootsChange::Compare).await;
    change(&bench).await.unwrap();
    bench.answer_roots(asked_for_roots(&mut listening), "missing");
    bench.settle().await;
    assert_eq!(bench.session.client().ended().unwrap().reason, EndReason::RootsChangeRejected);
}

#[tokio::test]
async fn a_client_that_does_not_tell_its_changed_roots_loses_its_session() {
    let (bench, _listening) = locked(OnRootsChange::Compare).await;
    change(&bench).await.unwrap();
    assert_eq!(bench.session.tick(Instant::now()), None);
    let later = Instant::now() + bench.session.context.settings.scope_timeout;
    bench.session.tick(later);
    bench.settle().await;
    assert_eq!(bench.session.client().ended().unwrap().reason, EndReason::RootsChangeRejected);
}

#[tokio::test]
async fn roots_do_not_matter_where_the_scope_came_from_elsewhere() {
    let bench = Bench::ready().await;
    change(&bench).await.unwrap();
    assert!(!bench.session.has_ended());
}

#[tokio::test]
async fn a_change_before_the_scope_is_known_does_not_matter() {
    let bench = Bench::new().await;
    change(&bench).await.unwrap();
    assert!(!bench.session.has_ended());
}
