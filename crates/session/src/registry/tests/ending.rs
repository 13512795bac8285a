//! How sessions end, and what the registry knows of them afterwards.

use std::time::Duration;

use wire::ErrorReply;

use super::*;

#[tokio::test]
async fn an_ended_session_is_unknown() {
    let sessions = gateway();
    let session = open(&sessions, "me").await;
    sessions.end(session.key(), EndReason::Deleted).await.unwrap();
    assert!(session.has_ended());
    assert!(matches!(sessions.find(session.key()), Err(Refusal::SessionNotFound)));
    assert_eq!((sessions.count(), sessions.counters().sessions_ended.get()), (0, 1));
}

#[tokio::test]
async fn a_session_ends_once() {
    let sessions = gateway();
    let session = open(&sessions, "me").await;
    sessions.end(session.key(), EndReason::Deleted).await.unwrap();
    let again = sessions.end(session.key(), EndReason::Deleted).await;
    assert!(matches!(again, Err(Refusal::SessionNotFound)));
    assert_eq!(sessions.counters().sessions_ended.get(), 1);
}

#[tokio::test]
async fn no_principal_ends_the_session_of_another() {
    let sessions = gateway();
    let session = open(&sessions, "me").await;
    let others = SessionKey { principal: Principal::named("you").unwrap(), id: session.id() };
    assert!(sessions.end(&others, EndReason::Deleted).await.is_err());
    assert!(!session.has_ended());
}

#[tokio::test]
async fn the_reason_of_a_session_that_ended_by_itself_outlives_it() {
    let sessions = gateway();
    let session = open(&sessions, "me").await;
    let error = Some(ErrorReply::new(-7, "why"));
    session.end_with(EndReason::RootsChangeRejected, error).await;
    sessions.end(session.key(), EndReason::Idle).await.unwrap();
    assert_eq!(
        session.client().ended().unwrap().reason,
        EndReason::RootsChangeRejected,
        "the first one counts"
    );
    let refused = sessions.find(session.key()).unwrap_err();
    assert!(matches!(&refused, Refusal::Terminated(reply) if reply.message == "why"), "{refused:?}");
}

#[tokio::test]
async fn a_session_that_never_finished_its_handshake_is_ended() {
    let sessions = gateway();
    let session = open(&sessions, "me").await;
    let later = Instant::now() + sessions.context.settings.handshake_timeout;
    assert!(!sessions.tick(later), "no call is in flight");
    settle(&sessions.context).await;
    assert_eq!(sessions.count(), 0);
    assert_eq!(session.client().ended().unwrap().reason, EndReason::NeverInitialized);
}

#[tokio::test]
async fn a_session_that_ended_by_itself_is_put_away_at_the_next_beat() {
    let sessions = gateway();
    let session = open(&sessions, "me").await;
    session.end(EndReason::UpstreamChanged).await;
    assert_eq!(sessions.count(), 1);
    sessions.tick(Instant::now());
    settle(&sessions.context).await;
    assert_eq!((sessions.count(), sessions.counters().sessions_ended.get()), (0, 1));
}

#[tokio::test]
async fn calls_in_flight_make_a_gateway_busy_and_keep_their_session() {
    // The call waits for a scope without a time limit.
    let settings = Settings { scope_timeout: Duration::MAX, ..Settings::default() };
    let sessions = super::sessions(settings, rules());
    let session = open(&sessions, "me").await;
    let _reader = session.call(request(1, "tools/list", "{}")).unwrap();
    assert!(sessions.tick(Instant::now() + sessions.context.settings.idle_timeout * 2));
    settle(&sessions.context).await;
    assert_eq!(sessions.count(), 1);
}

#[tokio::test]
async fn the_end_of_a_gateway_is_the_end_of_all_sessions() {
    let sessions = gateway();
    let open = [open(&sessions, "me").await, open(&sessions, "you").await];
    sessions.end_all().await;
    assert_eq!((sessions.count(), sessions.all().len()), (0, 0));
    for session in open {
        assert_eq!(session.client().ended().unwrap().reason, EndReason::Shutdown);
    }
}

#[tokio::test]
async fn servers_that_were_replaced_stay_for_the_sessions_that_use_them() {
    let sessions = gateway();
    let session = open(&sessions, "me").await;
    sessions.replace(no_servers());
    settle(&sessions.context).await;
    sessions.rest_idle();
    assert_eq!(sessions.retired.lock().len(), 1);
    sessions.end(session.key(), EndReason::Deleted).await.unwrap();
    drop(session);
    sessions.rest_idle();
    assert!(sessions.retired.lock().is_empty());
}

#[tokio::test]
async fn several_servers_have_one_name_and_no_lifecycle_in_common() {
    let sessions = gateway();
    assert_eq!((sessions.name().as_str(), sessions.lifecycle()), ("servers", "mixed"));
    assert!(sessions.servers().is_empty() && sessions.local_is_here());

    let one = crate::testing::upstream(upstream::Lifecycle::Workspace);
    let one = ServerSet::one(Arc::into_inner(one).unwrap());
    let sessions = Sessions::new(one, Settings::default(), rules(), None, None);
    assert_eq!((sessions.name().as_str(), sessions.lifecycle()), ("server", "workspace"));
    assert_eq!(sessions.servers(), ["server"]);
}
