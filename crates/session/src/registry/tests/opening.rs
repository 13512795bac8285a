//! How sessions are opened, and why some are not.

use std::path::Path;
use std::pin::pin;
use std::task::{Context, Waker};

use serde_json::{Value, json};
use wire::{ErrorReply, Version};

use super::*;

fn in_directory(principal: &str, path: &Path) -> Caller {
    let workspace = Some(WorkspaceChoice::NamedOrPath(path.to_str().unwrap().to_owned()));
    Caller { workspace, ..caller(principal) }
}

#[tokio::test]
async fn a_client_is_answered_with_the_revision_that_it_asked_for() {
    let sessions = gateway();
    let (session, answer) = sessions.open(caller("me"), initialize(WITH_ROOTS)).await.unwrap();
    let answer: Value = serde_json::from_slice(&answer.into_bytes()).unwrap();
    assert_eq!(answer["id"], 0);
    assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(answer["result"]["serverInfo"]["name"], "ringfence");
    assert_eq!(session.version().unwrap().as_str(), "2025-06-18");
    assert_eq!(sessions.counters().sessions_opened.get(), 1);
}

#[tokio::test]
async fn a_client_with_roots_opens_a_session_without_a_scope() {
    let session = open(&gateway(), "me").await;
    assert!(session.scope().is_none() && session.route().is_none());
}

#[tokio::test]
async fn a_client_that_names_its_workspace_has_its_scope_at_once() {
    let directory = workspace_dir("registry");
    let sessions = gateway();
    let caller = in_directory("me", directory.path());
    let (session, _) = sessions.open(caller, initialize(WITH_ROOTS)).await.unwrap();
    assert_eq!(session.scope().unwrap().paths(), [directory.path()]);
    assert!(session.route().is_some());
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_needs_a_default() {
    let sessions = gateway();
    let refused = sessions.open(caller("me"), initialize("{}")).await.unwrap_err();
    assert!(matches!(refused, Refusal::Scope { refusal: ScopeRefusal::NoDefault }), "{refused:?}");
    assert_eq!((sessions.count(), sessions.instances()), (0, 0));

    let directory = workspace_dir("registry");
    let default = Some(vec![directory.path().to_owned()]);
    let sessions = super::sessions(Settings::default(), ScopeRules { default, ..rules() });
    let (session, _) = sessions.open(caller("me"), initialize("{}")).await.unwrap();
    assert_eq!(session.scope().unwrap().paths(), [directory.path()]);
}

#[tokio::test]
async fn a_workspace_of_another_principal_is_refused() {
    let directory = workspace_dir("registry");
    let sessions = gateway();
    let open = |whose| sessions.open(in_directory(whose, directory.path()), initialize(WITH_ROOTS));
    let (mine, _) = open("me").await.unwrap();
    let refused = open("you").await.unwrap_err();
    assert!(matches!(refused, Refusal::Scope { refusal: ScopeRefusal::OthersScope(_) }), "{refused:?}");
    assert!(open("me").await.is_ok(), "another session of the same principal may");
    assert_eq!(sessions.count(), 2);
    assert!(!mine.has_ended());
}

#[tokio::test]
async fn an_initialize_that_cannot_be_read_takes_no_place() {
    let sessions = gateway();
    for params in ["[]", "{}", r#"{"protocolVersion":7}"#] {
        let refused = sessions.open(caller("me"), request(0, "initialize", params)).await.unwrap_err();
        assert!(matches!(refused, Refusal::BadInitialize(_)), "{params}: {refused:?}");
    }
    assert_eq!((sessions.count(), sessions.instances()), (0, 0));
}

#[tokio::test]
async fn no_session_is_opened_while_the_gateway_closes() {
    let sessions = gateway();
    sessions.is_closing.store(true, Ordering::Relaxed);
    let refused = sessions.open(caller("me"), initialize(WITH_ROOTS)).await.unwrap_err();
    assert!(sessions.is_closing() && matches!(refused, Refusal::ShuttingDown));
}

#[tokio::test]
async fn sessions_are_bounded_and_one_that_ended_makes_room() {
    let sessions = super::sessions(Settings { max_sessions: 1, ..Settings::default() }, rules());
    let first = open(&sessions, "me").await;
    let refused = sessions.open(caller("me"), initialize(WITH_ROOTS)).await.unwrap_err();
    assert!(matches!(refused, Refusal::TooManySessions { limit: 1 }), "{refused:?}");
    sessions.end(first.key(), EndReason::Deleted).await.unwrap();
    drop(first);
    open(&sessions, "me").await;
}

#[test]
fn a_session_whose_opener_went_away_ends() {
    let mut one_thread_for_files = tokio::runtime::Builder::new_current_thread();
    one_thread_for_files.max_blocking_threads(1).enable_all();
    one_thread_for_files.build().unwrap().block_on(async {
        let directory = workspace_dir("registry");
        let default = Some(vec![directory.path().to_owned()]);
        let sessions = super::sessions(Settings::default(), ScopeRules { default, ..rules() });
        // Occupies the only blocking thread until the opener has gone away.
        let (release, released) = std::sync::mpsc::channel::<()>();
        let taken = tokio::task::spawn_blocking(move || released.recv());
        {
            let opening = pin!(sessions.open(caller("me"), initialize("{}")));
            let mut context = Context::from_waker(Waker::noop());
            assert!(opening.poll(&mut context).is_pending(), "its directories are looked at");
            assert_eq!(sessions.instances(), 1);
        }
        drop(release);
        let _ = taken.await;
        // The session ends in tasks of this thread, which take a few turns.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(sessions.instances(), 0);
        assert_eq!((sessions.count(), sessions.counters().sessions_opened.get()), (0, 0));
    });
}

#[tokio::test]
async fn a_window_keeps_the_name_that_it_gave_itself() {
    let sessions = gateway();
    let window = Instance::named("window").unwrap();
    let named = Caller { instance: Some(window.clone()), ..caller("me") };
    let (named, _) = sessions.open(named, initialize(WITH_ROOTS)).await.unwrap();
    assert_eq!(named.instance(), &window);
    assert!(named.client().record().is_instance_named);
    let unnamed = open(&sessions, "me").await;
    assert!(!unnamed.client().record().is_instance_named);
    assert_eq!(sessions.instances(), 2);
}

#[tokio::test]
async fn a_client_that_the_gateway_spoke_for_may_initialize_once() {
    let directory = workspace_dir("registry");
    let sessions = gateway();
    let caller = in_directory("me", directory.path());
    let client = json!({"name": "late", "version": "1"});
    let (session, answer) = sessions.begin(caller, &client, Version::NEWEST).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["protocolVersion"], Version::NEWEST.as_str());

    let late = session.initialize_late(&initialize(WITH_ROOTS)).unwrap();
    let late: Value = serde_json::from_slice(&late.into_bytes()).unwrap();
    assert_eq!(late["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(session.version().unwrap().as_str(), "2025-06-18");
    let again = session.initialize_late(&initialize(WITH_ROOTS));
    assert!(matches!(again, Err(Refusal::AlreadyInitialized)));
}

#[tokio::test]
async fn a_session_is_found_by_its_principal_and_id() {
    let sessions = gateway();
    let session = open(&sessions, "me").await;
    assert!(Arc::ptr_eq(&sessions.find(session.key()).unwrap(), &session));
    let others = SessionKey { principal: Principal::named("you").unwrap(), id: session.id() };
    assert!(matches!(sessions.find(&others), Err(Refusal::SessionNotFound)));
    let unknown = SessionKey { id: SessionId::random(), ..session.key().clone() };
    assert!(matches!(sessions.find(&unknown), Err(Refusal::SessionNotFound)));
}

#[tokio::test]
async fn a_session_that_ends_by_itself_is_refused_with_its_reason() {
    let sessions = gateway();
    let session = open(&sessions, "me").await;
    let error = Some(ErrorReply::new(-7, "why"));
    session.end_with(EndReason::ScopeRefused, error).await;
    let refused = sessions.find(session.key()).unwrap_err();
    assert!(matches!(&refused, Refusal::Terminated(reply) if reply.message == "why"), "{refused:?}");
}

#[tokio::test]
async fn an_operator_finds_a_session_by_its_handle() {
    let sessions = gateway();
    let (session, _other) = (open(&sessions, "me").await, open(&sessions, "me").await);
    let handle = session.handle().to_string();
    assert!(Arc::ptr_eq(&sessions.find_by_handle(&handle).unwrap(), &session));
    assert!(sessions.find_by_handle("unknown").is_none());
}

#[tokio::test]
async fn an_overview_names_the_oldest_session_first() {
    let sessions = gateway();
    let (first, second) = (open(&sessions, "me").await, open(&sessions, "you").await);
    let overview = sessions.overview(&crate::session_context::SessionQuery::default());
    let handles: Vec<_> = overview.iter().map(|one| one.session.clone()).collect();
    assert_eq!(handles, [first, second].map(|session| session.handle().to_string()));
    let [first, _] = &overview[..] else { panic!("two sessions") };
    assert_eq!((first.principal.as_str(), first.client.as_str()), ("me", "test/1"));
    assert_eq!((first.state, first.lifecycle, first.in_flight), ("opening", "mixed", 0));
}
