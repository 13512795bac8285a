//! Tests of sessions without servers: from the first request to the locked scope, and what ends them.

mod locking;
mod roots_change;

use serde_json::json;
use testkit::{WorkspaceDir, workspace_dir};

use super::*;
use crate::record::EndReason;
use crate::registry::{Caller, Sessions};
use crate::scope::{OnRootsChange, ScopeRules, WorkspaceChoice};
use crate::settings::Settings;
use crate::testing::{
    caller, initialize, next_json, next_text, notification, request, response, rules, sessions, settle,
};

/// A session, its gateway, and a directory for it.
struct Bench {
    sessions: Arc<Sessions>,
    session: Arc<Session>,
    directory: WorkspaceDir,
}

impl Bench {
    async fn new() -> Self {
        Self::with(Settings::default(), rules()).await
    }

    async fn with(settings: Settings, rules: ScopeRules) -> Self {
        let sessions = sessions(settings, rules);
        let (session, _) = sessions.open(caller("me"), initialize(r#"{"roots":{}}"#)).await.unwrap();
        Self { sessions, session, directory: workspace_dir("session") }
    }

    /// A session that was opened with a workspace, so that its scope is known.
    async fn ready() -> Self {
        let (sessions, directory) = (sessions(Settings::default(), rules()), workspace_dir("session"));
        let workspace = Some(WorkspaceChoice::NamedOrPath(directory.path().to_str().unwrap().to_owned()));
        let caller = Caller { workspace, ..caller("me") };
        let (session, _) = sessions.open(caller, initialize("{}")).await.unwrap();
        Self { sessions, session, directory }
    }

    async fn finish_handshake(&self) {
        self.session.notify(&notification("notifications/initialized", "{}")).await.unwrap();
    }

    fn call(&self, id: u64, method: &str) -> StreamReader {
        self.session.call(request(id, method, "{}")).unwrap()
    }

    /// Answers this `roots/list` request with a directory below the bench's own.
    fn answer_roots(&self, number: u64, below: &str) {
        let uri = wire::file_uri(self.directory.join(below).as_os_str().as_encoded_bytes());
        let roots = json!({ "roots": [{ "uri": uri }] });
        self.session.answer(&response(number, &roots.to_string()));
    }

    async fn settle(&self) {
        settle(&self.session.context).await;
    }
}

/// The id of the `roots/list` request that comes next.
fn asked_for_roots(reader: &mut StreamReader) -> u64 {
    let asked = next_json(reader);
    assert_eq!(asked["method"], "roots/list", "{asked}");
    asked["id"].as_u64().unwrap()
}

#[tokio::test]
async fn a_session_is_initialised_once() {
    let bench = Bench::new().await;
    let again = bench.session.call(initialize("{}"));
    assert!(matches!(again, Err(Refusal::AlreadyInitialized)));
    assert!(matches!(bench.session.initialize_late(&initialize("{}")), Err(Refusal::AlreadyInitialized)));
}

#[tokio::test]
async fn a_ping_is_answered_before_the_scope_is_known_and_not_after_the_end() {
    let bench = Bench::new().await;
    let pong = next_json(&mut bench.call(9, "ping"));
    assert_eq!((&pong["id"], &pong["result"]), (&json!(9), &json!({})));
    bench.session.end(EndReason::Deleted).await;
    assert!(matches!(bench.session.call(request(9, "ping", "{}")), Err(Refusal::SessionNotFound)));
}

#[tokio::test]
async fn calls_beyond_the_rate_are_refused_and_do_not_begin() {
    let settings = Settings { calls_per_second: std::num::NonZeroU32::new(1), ..Settings::default() };
    let bench = Bench::with(settings, rules()).await;
    let _first = bench.call(1, "tools/list");
    let refused = bench.session.call(request(2, "tools/list", "{}"));
    assert!(matches!(refused, Err(Refusal::TooFast { .. })), "{refused:?}");
    assert_eq!(bench.session.calls_in_flight(), 1);
}

#[tokio::test]
async fn answers_to_what_was_not_asked_are_counted() {
    let bench = Bench::new().await;
    bench.session.answer(&response(1, "{}"));
    bench.session.answer(&response(99, "{}"));
    let counters = &bench.session.context.counters;
    assert_eq!((counters.stray_answers.get(), counters.late_answers.get()), (2, 0));
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_it_waits_is_answered_once() {
    let bench = Bench::new().await;
    let (mut cancelled, mut other) = (bench.call(1, "tools/list"), bench.call(2, "tools/list"));
    let cancel = notification("notifications/cancelled", r#"{"requestId":1}"#);
    bench.session.notify(&cancel).await.unwrap();
    assert_eq!(next_json(&mut cancelled)["error"]["data"]["reason"], "cancelled");
    bench.session.lock_scope(Scope::nothing()).await.unwrap();
    assert!(next_text(&mut cancelled).is_none());
    assert!(next_json(&mut other)["result"]["tools"].is_array());
}

#[tokio::test]
async fn a_session_with_its_scope_answers_calls_at_once() {
    let bench = Bench::ready().await;
    assert!(next_json(&mut bench.call(1, "tools/list"))["result"]["tools"].is_array());
    assert_eq!(next_json(&mut bench.call(2, "ping"))["result"], json!({}));
    assert_eq!(bench.session.calls_in_flight(), 0);
    let unknown = bench.session.call(request(3, "tools/call", r#"{"name":"nothing"}"#));
    assert!(next_json(&mut unknown.unwrap())["error"].is_object());
}

#[tokio::test]
async fn the_end_answers_calls_that_wait_for_the_scope() {
    let bench = Bench::new().await;
    let mut waiting = bench.call(1, "tools/list");
    bench.session.end(EndReason::Deleted).await;
    assert_eq!(next_json(&mut waiting)["error"]["data"]["reason"], "session_ended");
    bench.session.lock_scope(Scope::nothing()).await.unwrap();
    assert!(next_text(&mut waiting).is_none() && bench.session.route().is_none());
}

#[tokio::test]
async fn a_session_without_a_route_has_no_servers_or_tools_to_report() {
    let bench = Bench::new().await;
    assert!(bench.session.servers().is_empty() && bench.session.tools().await.is_empty());
    assert!(!bench.session.is_attached() && bench.session.session_id_at("server").is_none());
}

#[tokio::test]
async fn an_overview_tells_how_far_a_session_has_come() {
    let bench = Bench::new().await;
    assert_eq!(bench.session.overview().state, "opening");
    bench.finish_handshake().await;
    assert_eq!(bench.session.overview().state, "awaiting_scope");
    bench.session.end(EndReason::Deleted).await;
    assert_eq!(bench.session.overview().state, "draining");
    let ready = Bench::ready().await.session.overview();
    assert_eq!((ready.state, ready.scope_source), ("ready", Some("workspace")));
}
