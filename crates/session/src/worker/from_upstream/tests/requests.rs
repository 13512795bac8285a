//! Requests of an upstream: which ones the gateway answers, and which client is asked the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use upstream::{Lifecycle, Transport};

use crate::worker::action::Action;
use crate::worker::testing::Rig;

const ROOTS: [&str; 2] = [r#"send #5 = {"roots":[]}"#, "roots answered"];

#[test]
fn the_gateway_answers_for_roots_in_every_lifecycle() {
    for lifecycle in [Lifecycle::Session, Lifecycle::Call, Lifecycle::Workspace, Lifecycle::Shared] {
        let mut rig = Rig::up(lifecycle);
        assert_eq!(rig.requested(5, "roots/list"), ROOTS, "{lifecycle:?}");
    }
}

#[test]
fn roots_are_answered_under_the_upstreams_own_id() {
    let mut rig = Rig::up(Lifecycle::Session);
    let actions = rig.receive_raw(r#"{"jsonrpc":"2.0","id":"5","method":"roots/list"}"#);
    let Action::Send(line) = &actions[0] else { panic!("{actions:?}") };
    assert_eq!(line, r#"{"jsonrpc":"2.0","id":"5","result":{"roots":[]}}"#);
}

#[test]
fn a_server_that_asks_for_roots_before_its_first_call_has_that_habit() {
    let asks = Arc::new(AtomicBool::new(false));
    let rig = |asks: &Arc<AtomicBool>| {
        let mut rig = Rig::with(Lifecycle::Session, |terms, _| terms.asks_for_roots = Arc::clone(asks));
        rig.join("a");
        rig.start();
        rig
    };
    let mut busy = rig(&asks);
    busy.tool("a", 7);
    assert_eq!(busy.requested(5, "roots/list"), ROOTS);
    assert!(!asks.load(Ordering::Relaxed), "a call may have made it ask");
    assert_eq!(rig(&asks).requested(5, "roots/list"), ROOTS);
    assert!(asks.load(Ordering::Relaxed));
}

#[test]
fn each_generation_shows_its_habits_anew() {
    let asks = Arc::new(AtomicBool::new(false));
    let mut rig = Rig::with(Lifecycle::Session, |terms, _| terms.asks_for_roots = Arc::clone(&asks));
    rig.join("a");
    rig.start();
    rig.tool("a", 7);
    rig.died();
    rig.start();
    rig.requested(5, "roots/list");
    assert!(asks.load(Ordering::Relaxed));
}

#[test]
fn requests_of_ones_own_process_go_to_its_client() {
    let mut rig = Rig::up(Lifecycle::Session);
    for method in ["sampling/createMessage", "elicitation/create", "ping", "unheard/of"] {
        assert_eq!(rig.requested(5, method), [format!("ask a #5 {method}")]);
    }
}

#[test]
fn only_the_built_in_server_of_one_session_reaches_its_context() {
    const CONTEXT: &str = "io.ringfence/session_context";
    let rig = |lifecycle, keeps_state| {
        let mut rig = Rig::with_upstream(lifecycle, |upstream| {
            if let Transport::Process(program) = &mut upstream.transport {
                program.keeps_state = keeps_state;
            }
        });
        rig.join("a");
        rig.start();
        rig
    };
    assert_eq!(rig(Lifecycle::Session, true).requested(5, CONTEXT), ["context a #5"]);
    // As any other request that it makes up: a client allows it, or not.
    let asked = format!("ask a #5 {CONTEXT}");
    assert_eq!(rig(Lifecycle::Session, false).requested(5, CONTEXT), [asked]);
    for lifecycle in [Lifecycle::Workspace, Lifecycle::Shared] {
        let refused = rig(lifecycle, true).requested(5, CONTEXT);
        assert!(refused[0].contains("cannot be attributed"), "{refused:?}");
    }
}

#[test]
fn a_request_of_a_process_without_a_client_is_refused() {
    let mut rig = Rig::new(Lifecycle::Session);
    rig.start();
    assert_eq!(
        rig.requested(5, "sampling/createMessage"),
        ["send #5 ! the client is gone", "note unattributed sampling/createMessage"]
    );
}

#[test]
fn the_gateway_answers_the_ping_of_a_shared_upstream() {
    for lifecycle in [Lifecycle::Workspace, Lifecycle::Shared] {
        let mut rig = Rig::up(lifecycle);
        rig.tool("a", 7);
        assert_eq!(rig.requested(5, "ping"), ["send #5 = {}"]);
    }
}

#[test]
fn a_request_of_a_shared_upstream_goes_to_the_only_client_with_calls() {
    let mut rig = Rig::shared();
    rig.tool("b", 7);
    rig.tool("b", 8);
    for method in ["sampling/createMessage", "elicitation/create"] {
        assert_eq!(rig.requested(5, method), [format!("ask b #5 {method}")]);
    }
}

#[test]
fn a_request_of_a_shared_upstream_that_may_be_for_several_is_refused() {
    let mut rig = Rig::shared();
    let refused = |actions: Vec<String>| {
        actions[0].starts_with("send #5 ! this server is shared")
            && actions[1] == "note unattributed sampling/createMessage"
    };
    assert!(refused(rig.requested(5, "sampling/createMessage")), "no call is in flight");
    rig.tool("a", 7);
    rig.tool("b", 7);
    assert!(refused(rig.requested(5, "sampling/createMessage")), "two clients have calls");
    rig.cancel("b", 7);
    assert_eq!(rig.requested(5, "sampling/createMessage"), ["ask a #5 sampling/createMessage"]);
}

#[test]
fn a_request_of_a_shared_upstream_with_one_session_still_needs_a_call() {
    let mut rig = Rig::up(Lifecycle::Shared);
    let refused = rig.requested(5, "elicitation/create");
    assert!(refused[0].starts_with("send #5 ! this server is shared"), "{refused:?}");
}
