//! Who answers `initialize`, and what it waits for.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::plan::ServerPlan;
use crate::testing::{context, initialize, upstream};

/// Servers of which none ever shows what it offers.
fn hanging(names: &[&str]) -> Arc<Roster> {
    let plan = |name: &&str| {
        let upstream = (*upstream(Lifecycle::Session)).clone();
        ServerPlan::fixed(upstream::Upstream { name: (*name).to_owned(), ..upstream })
    };
    let terms = terms_of_one(None);
    let servers = ServerSet::Many { servers: names.iter().map(plan).collect(), terms };
    let roster = Roster::new(&context(), servers);
    for server in &roster.servers {
        server.hold_probes();
    }
    roster
}

/// How often a future that is to stay pending is looked at, with turns for all other tasks between.
const LOOKS: usize = 100;

#[tokio::test]
async fn initialize_waits_for_its_budget_alone_while_members_hang() {
    let (roster, no_session) = (hanging(&["one", "two", "three"]), NoSession::default());
    let handshake = Arc::new(initialize("{}"));
    let answer = |within| roster.answer(no_session.as_beneficiary(), &handshake, Version::NEWEST, within);
    // The control: with all the time in the world it waits for them.
    let mut patient = pin!(answer(Duration::from_secs(3600)));
    for _ in 0..LOOKS {
        let polled = patient.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Pending);
        tokio::task::yield_now().await;
    }
    // With none it waits for nothing else.
    let answer: Value = serde_json::from_str(&answer(Duration::ZERO).await).unwrap();
    assert_eq!(answer["serverInfo"]["name"], "ringfence");
    let capabilities = &answer["capabilities"];
    for unknown in ["tools", "prompts", "resources", "logging"] {
        assert!(capabilities[unknown].is_object(), "it may turn out to be there: {unknown}, {answer}");
    }
}

#[test]
fn the_budget_of_initialize_is_below_a_second() {
    const { assert!(PROBE_WITHIN.as_millis() < 1000) };
}
