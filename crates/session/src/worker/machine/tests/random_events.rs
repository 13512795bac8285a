//! Any order of events: no call is sent twice, none is answered twice, none is lost, and no id is used twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use proptest::prelude::*;
use upstream::{Lifecycle, StartError};
use wire::Id;

use crate::client::Call;
use crate::messages::cancellation;
use crate::testing;
use crate::worker::action::Action;
use crate::worker::queue::Work;
use crate::worker::testing::{INITIALIZED, Rig};

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A call of the first or the second client.
    Submit(bool),
    Ask,
    Greeted,
    StartFailed,
    Settled,
    FinishHandshake,
    /// The upstream answers one of the requests that it was sent, perhaps for the second time.
    Answer(usize),
    /// The upstream answers a request that it was never sent.
    Stray(u64),
    NotSent(usize),
    Died,
    Cancel(usize),
    GiveUp(usize),
    Stop,
    Pass(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => any::<bool>().prop_map(Event::Submit),
        1 => Just(Event::Ask),
        4 => Just(Event::Greeted),
        1 => Just(Event::StartFailed),
        3 => Just(Event::Settled),
        1 => Just(Event::FinishHandshake),
        6 => (0..16_usize).prop_map(Event::Answer),
        1 => (0..40_u64).prop_map(Event::Stray),
        1 => (0..16_usize).prop_map(Event::NotSent),
        2 => Just(Event::Died),
        2 => (0..16_usize).prop_map(Event::Cancel),
        1 => (0..16_usize).prop_map(Event::GiveUp),
        1 => (0..2000_u64).prop_map(Event::Pass),
    ];
    let stop = prop_oneof![3 => Just(None), 1 => Just(Some(Event::Stop))];
    (prop::collection::vec(event.clone(), 0..40), stop, prop::collection::vec(event, 0..10))
        .prop_map(|(first, stop, last)| first.into_iter().chain(stop).chain(last).collect())
}

/// What the machine did with each call, by the number of the call.
#[derive(Default)]
struct Seen {
    calls: Vec<Arc<Call>>,
    /// The ids of the requests that the upstream was sent.
    sent: Vec<u64>,
    sends: BTreeMap<usize, u32>,
    ends: BTreeMap<usize, u32>,
    given_up: BTreeSet<usize>,
    is_stopped: bool,
}

struct Run {
    rig: Rig,
    seen: Seen,
    questions: Vec<crate::worker::testing::Asked<wire::Response>>,
}

impl Run {
    fn new(lifecycle: Lifecycle, asks_for_roots: bool) -> Self {
        let mut rig = Rig::with(lifecycle, |terms, greeting| {
            terms.asks_for_roots = Arc::new(AtomicBool::new(asks_for_roots));
            Arc::make_mut(&mut terms.upstream).is_guarded = true;
            greeting.initialized = asks_for_roots.then(|| INITIALIZED.into());
        });
        rig.join("a");
        if lifecycle.serves_many() {
            rig.join("b");
        }
        Self { rig, seen: Seen::default(), questions: Vec::new() }
    }

    fn happen(&mut self, event: Event) {
        let now = self.rig.now;
        let actions = match event {
            Event::Submit(is_second) => self.submit(is_second),
            Event::Ask => {
                let (sender, receiver) = tokio::sync::oneshot::channel();
                self.questions.push(receiver);
                let question = crate::worker::queue::Question {
                    method: "ping",
                    params: serde_json::Value::Null,
                    answer: sender,
                };
                self.rig.machine.submit(Work::Ask(Box::new(question)), now)
            }
            Event::Greeted => self.rig.machine.greeted(testing::initialize_result("2025-11-25", "{}"), now),
            Event::StartFailed => self.rig.machine.start_failed(&StartError::ScopeChanged, now),
            Event::Settled => {
                let generation = self.rig.machine.condition().1;
                self.rig.machine.settled(generation, now)
            }
            Event::FinishHandshake => self.rig.machine.finish_handshake(INITIALIZED.into()),
            Event::Answer(which) => match pick(&self.seen.sent, which) {
                Some(id) => {
                    self.rig.machine.receive(wire::Message::Response(testing::response(id, "{}")), now)
                }
                None => Vec::new(),
            },
            Event::Stray(id) => {
                let response = testing::message(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{}}}}"#));
                self.rig.machine.receive(response, now)
            }
            Event::NotSent(which) => {
                pick(&self.seen.sent, which).map(|id| self.rig.machine.not_sent(id)).unwrap_or_default()
            }
            Event::Died => {
                let generation = self.rig.machine.condition().1;
                self.rig.machine.died(generation, None, Duration::ZERO, "", now)
            }
            Event::Cancel(which) => self.cancel(which),
            Event::GiveUp(which) => {
                self.rig.machine.note_unanswered(now);
                self.cancel(which)
            }
            Event::Stop => {
                self.seen.is_stopped = true;
                self.rig.machine.stop().1
            }
            Event::Pass(milliseconds) => {
                self.rig.pass(Duration::from_millis(milliseconds));
                Vec::new()
            }
        };
        self.perform(actions);
    }

    fn submit(&mut self, is_second: bool) -> Vec<Action> {
        let number = self.seen.calls.len();
        let name = if is_second && self.rig.machine.terms.serves_many() { "b" } else { "a" };
        let request = testing::request(number as u64, "tools/call", &format!(r#"{{"n":{number}}}"#));
        let (call, _) = testing::call(self.rig.client(name), &request);
        self.seen.calls.push(Arc::clone(&call));
        self.rig.machine.submit(Work::Call(call, Box::new(request)), self.rig.now)
    }

    fn cancel(&mut self, which: usize) -> Vec<Action> {
        let Some(call) = pick(&self.seen.calls, which) else { return Vec::new() };
        if call.client.cancel(&call.client_id).is_some() {
            self.seen.given_up.insert(number(&call.client_id));
        }
        self.rig.machine.withdraw(&call, |id| cancellation(id, "changed its mind"))
    }

    fn perform(&mut self, actions: Vec<Action>) {
        let mut is_over = false;
        for action in &actions {
            match action {
                Action::SendCall { id, line, .. } => {
                    assert!(!self.seen.sent.contains(id), "the id {id} was used twice");
                    self.seen.sent.push(*id);
                    let line: serde_json::Value = serde_json::from_slice(line).unwrap();
                    if let Some(call) = line["params"]["n"].as_u64() {
                        let call = usize::try_from(call).unwrap();
                        assert!(!self.seen.given_up.contains(&call), "{call} was given up before");
                        *self.seen.sends.entry(call).or_default() += 1;
                    }
                }
                Action::Answer { call, .. } | Action::Fail { call, .. } => {
                    *self.seen.ends.entry(number(&call.client_id)).or_default() += 1;
                }
                Action::Retire => is_over = true,
                _ => {}
            }
        }
        self.rig.perform(actions);
        if is_over {
            self.happen(Event::Stop);
        }
    }

    /// Lets the upstream come up and answer everything, so that no call can wait any longer.
    fn finish(&mut self) {
        self.happen(Event::Greeted);
        self.happen(Event::Settled);
        for which in 0..self.seen.sent.len() {
            self.happen(Event::Answer(which));
        }
    }

    fn check(&mut self) {
        for (call, sends) in &self.seen.sends {
            assert_eq!(*sends, 1, "the call {call} was sent {sends} times");
        }
        for (call, ends) in &self.seen.ends {
            assert_eq!(*ends, 1, "the call {call} was answered {ends} times");
        }
        if self.seen.is_stopped {
            return;
        }
        for call in 0..self.seen.calls.len() {
            let has_ended = self.seen.ends.contains_key(&call) || self.seen.given_up.contains(&call);
            assert!(has_ended, "the call {call} was lost");
        }
        for question in &mut self.questions {
            let outcome = question.try_recv();
            assert_ne!(outcome.err(), Some(tokio::sync::oneshot::error::TryRecvError::Empty));
        }
        assert!(self.rig.machine.routing.pending.is_empty());
    }
}

fn pick<T: Clone>(of: &[T], which: usize) -> Option<T> {
    of.get(which.checked_rem(of.len())?).cloned()
}

fn number(id: &Id) -> usize {
    usize::try_from(id.as_number().unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_call_is_sent_and_answered_at_most_once_and_none_is_lost(
        events in events(),
        lifecycle in prop::sample::select(vec![Lifecycle::Session, Lifecycle::Shared]),
        asks_for_roots: bool,
    ) {
        let mut run = Run::new(lifecycle, asks_for_roots);
        for event in events {
            run.happen(event);
        }
        run.finish();
        run.check();
    }

    #[test]
    fn a_worker_for_one_call_sends_and_answers_it_at_most_once(events in events(), asks_for_roots: bool) {
        let mut run = Run::new(Lifecycle::Call, asks_for_roots);
        run.happen(Event::Submit(false));
        for event in events {
            run.happen(event);
        }
        run.finish();
        run.check();
    }
}
