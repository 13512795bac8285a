//! Any order of events: one lock, order kept, no request lost, none released or failed twice.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Call {
        is_read: bool,
        answer_only: bool,
    },
    Initialized,
    Listening {
        stays: bool,
    },
    RootsAnswered,
    Locked,
    /// Cancels the request at this index among all that were sent.
    Cancelled(usize),
    Tick {
        milliseconds: u64,
    },
    Ended,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any::<bool>(), any::<bool>()).prop_map(|(is_read, answer_only)| Step::Call { is_read, answer_only }),
        2 => Just(Step::Initialized),
        2 => any::<bool>().prop_map(|stays| Step::Listening { stays }),
        1 => Just(Step::RootsAnswered),
        1 => Just(Step::Locked),
        3 => (0..30_usize).prop_map(Step::Cancelled),
        5 => (0..6000_u64).prop_map(|milliseconds| Step::Tick { milliseconds }),
        1 => Just(Step::Ended),
    ]
}

/// The required behaviour of the gate, written down as simply as possible.
#[derive(Debug, Default)]
struct Model {
    waiting: Vec<Arc<Call>>,
    is_initialized: bool,
    is_answered: bool,
    is_open: bool,
    /// The number of questions since requests last failed.
    questions: usize,
}

/// A gate and its model, fed with the same events.
struct Run {
    bench: Bench,
    model: Model,
    time: Duration,
    sent: Vec<Arc<Call>>,
    readers: Vec<StreamReader>,
}

impl Run {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Call { is_read, answer_only } => self.call(*is_read, *answer_only),
            Step::Initialized => {
                self.model.is_initialized = true;
                let actions = self.gate(GateEvent::Initialized);
                self.expect_question(&actions);
            }
            Step::Listening { stays } => {
                let reader = self.bench.standalone.attach(None);
                let actions = self.gate(GateEvent::Listening);
                self.expect_question(&actions);
                self.readers.extend(Some(reader).filter(|_| *stays));
            }
            Step::RootsAnswered => self.answer_roots(),
            Step::Locked => {
                let actions = self.gate(GateEvent::Locked);
                assert_eq!(released(&actions), ids(&std::mem::take(&mut self.model.waiting)));
                self.model.is_open = true;
            }
            Step::Cancelled(place) => {
                let Some(call) = self.sent.get(*place).cloned() else { return };
                self.model.waiting.retain(|waiting| !Arc::ptr_eq(waiting, &call));
                assert!(self.gate(GateEvent::Cancelled(call)).is_empty());
            }
            Step::Tick { milliseconds } => {
                self.time += Duration::from_millis(*milliseconds);
                self.tick();
            }
            Step::Ended => {
                assert!(self.gate(GateEvent::Ended).is_empty());
                self.model.waiting.clear();
                self.model.is_open = true;
            }
        }
    }

    fn gate(&mut self, event: GateEvent) -> Vec<GateAction> {
        self.bench.step_after(self.time, event)
    }

    fn call(&mut self, is_read: bool, answer_only: bool) {
        let id = self.sent.len() as u64 + 1;
        let sent = self.bench.send_with(id, self.time, "{}", answer_only);
        self.sent.push(Arc::clone(&sent.call));
        if self.model.is_open {
            assert_eq!(released(&sent.actions), [id]);
        } else {
            self.model.waiting.push(sent.call);
            self.expect_question(&sent.actions);
        }
        self.readers.extend(Some(sent.reader).filter(|_| is_read));
    }

    fn answer_roots(&mut self) {
        let actions = self.bench.answer_roots();
        if self.model.is_answered || self.model.is_open {
            assert!(matches!(actions[..], [GateAction::IgnoreLateAnswer]), "{actions:?}");
        } else {
            assert!(matches!(actions[..], [GateAction::Vet(_)]), "{actions:?}");
        }
        self.model.is_answered = true;
    }

    fn tick(&mut self) {
        let mut actions = self.gate(GateEvent::Tick);
        let now = self.bench.start + self.time;
        let is_overdue = |call: &Arc<Call>| now.duration_since(call.began) >= DEADLINE;
        let may_fail = !self.model.is_answered && !self.model.is_open;
        if may_fail && self.model.waiting.iter().any(is_overdue) {
            let failure = actions.pop().into_iter().collect::<Vec<_>>();
            assert_eq!(failed(&failure).0, ids(&std::mem::take(&mut self.model.waiting)));
            self.expect_question(&actions);
            self.model.questions = 0;
        } else {
            self.expect_question(&actions);
        }
    }

    /// Checks that the client is asked only when it can answer and has not, on a stream that it reads, and not too
    /// often.
    fn expect_question(&mut self, actions: &[GateAction]) {
        if asked_on(actions).is_none() {
            return;
        }
        let [GateAction::RequestRoots(stream)] = actions else { unreachable!() };
        assert!(self.model.is_initialized && !self.model.is_answered && !self.model.is_open);
        assert!(stream.takes_requests(self.bench.start + self.time));
        self.model.questions += 1;
        assert!(self.model.questions <= MAX_ROOTS_REQUESTS);
    }
}

fn ids(calls: &[Arc<Call>]) -> Vec<u64> {
    calls.iter().map(|call| id_of(call)).collect()
}

#[test]
fn requests_are_kept_in_order_and_leave_once_whatever_happens() {
    let context = context();
    proptest!(ProptestConfig::with_cases(256), |(steps in proptest::collection::vec(step(), 0..60), many: bool)| {
        let bench = Bench::on(&context, many);
        let model = Model::default();
        let mut run = Run { bench, model, time: Duration::ZERO, sent: Vec::new(), readers: Vec::new() };
        for step in &steps {
            run.step(step);
        }
        // Every request that has not left yet is still there, in order.
        run.step(&Step::Locked);
        assert_eq!(run.bench.gate.bytes, 0);
    });
}

#[test]
fn the_bytes_that_wait_are_those_of_the_requests_that_wait() {
    let context = context();
    proptest!(ProptestConfig::with_cases(128), |(sizes in proptest::collection::vec(0..5000_usize, 1..20), cancelled: Vec<bool>)| {
        let mut bench = Bench::on(&context, true);
        let params = |size: usize| format!(r#"{{"x":"{}"}}"#, "a".repeat(size));
        let sent: Vec<_> = sizes.iter().zip(1..).map(|(size, id)| bench.send_with(id, Duration::ZERO, &params(*size), false)).collect();
        for (sent, is_cancelled) in sent.iter().zip(&cancelled) {
            if *is_cancelled {
                bench.step(GateEvent::Cancelled(Arc::clone(&sent.call)));
            }
        }
        let waiting: usize = bench.gate.queue.iter().map(|queued| queued.request.size()).sum();
        assert_eq!(bench.gate.bytes, waiting);
    });
}
