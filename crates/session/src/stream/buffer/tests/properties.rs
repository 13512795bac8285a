//! Any order of messages and connections: replay gives exactly the later messages that are kept, requests and answers
//! are never lost, and the bounds hold.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Push {
        count: usize,
        size: usize,
        keep: Keep,
    },
    Answer {
        size: usize,
    },
    End,
    Attach {
        after: Option<u64>,
    },
    /// The newest connection reads this many messages.
    Read {
        count: usize,
    },
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0..100_usize, 1 => Just(MAX_STREAM_BYTES / 3), 1 => Just(MAX_STREAM_BYTES + 1)]
}

fn step() -> impl Strategy<Value = Step> {
    let keep = prop_oneof![3 => Just(Keep::IfRoom), 1 => Just(Keep::Always)];
    let count = prop_oneof![4 => 1..4_usize, 1 => 1..MAX_STREAM_EVENTS + 20];
    prop_oneof![
        8 => (count, size(), keep).prop_map(|(count, size, keep)| Step::Push { count, size, keep }),
        1 => size().prop_map(|size| Step::Answer { size }),
        1 => Just(Step::End),
        3 => proptest::option::of(0..400_u64).prop_map(|after| Step::Attach { after }),
        6 => (0..200_usize).prop_map(|count| Step::Read { count }),
    ]
}

/// One message as it was pushed.
#[derive(Clone, Copy, Debug)]
struct Pushed {
    sequence: u64,
    size: usize,
    keep: Keep,
    is_answer: bool,
}

/// A buffer, and everything that was ever pushed and read.
struct Run {
    buffer: StreamBuffer,
    /// One large allocation that all messages are slices of.
    bytes: Bytes,
    pushed: Vec<Pushed>,
    delivered: u64,
    is_ended: bool,
    connection: Option<(Claim, u64)>,
    old_claims: Vec<Claim>,
}

impl Run {
    fn new(bytes: &Bytes) -> Self {
        Self {
            buffer: StreamBuffer::of_epoch(0),
            bytes: bytes.clone(),
            pushed: Vec::new(),
            delivered: 0,
            is_ended: false,
            connection: None,
            old_claims: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Push { count, size, keep } => {
                for _ in 0..count {
                    self.push(size, keep, false);
                }
            }
            Step::Answer { size } => self.push(size, Keep::Always, true),
            Step::End => {
                self.buffer.end();
                self.is_ended = true;
            }
            Step::Attach { after } => {
                let (claim, position) = self.buffer.attach(after);
                assert_eq!(position, after.unwrap_or(self.delivered));
                self.old_claims.extend(self.connection.replace((claim, position)).map(|(old, _)| old));
            }
            Step::Read { count } => {
                for _ in 0..count {
                    self.read();
                }
            }
        }
        self.check();
    }

    fn push(&mut self, size: usize, keep: Keep, is_answer: bool) {
        let before = self.kept();
        let dropped = self.buffer.push(self.bytes.slice(..size).into(), keep, is_answer);
        if self.is_ended {
            assert_eq!((dropped, self.kept()), (0, before), "nothing follows the end");
            return;
        }
        let sequence = self.pushed.len() as u64 + 1;
        self.pushed.push(Pushed { sequence, size, keep, is_answer });
        self.is_ended = is_answer;
        let kept = self.kept();
        let went: Vec<_> =
            before.iter().chain([&sequence]).filter(|was| kept.binary_search(was).is_err()).collect();
        let lost: Vec<_> = went.iter().filter(|sequence| ***sequence > self.delivered).collect();
        assert_eq!(dropped, lost.len(), "what was lost is counted");
        assert!(lost.iter().all(|lost| self.pushed(***lost).keep == Keep::IfRoom));
    }

    fn pushed(&self, sequence: u64) -> Pushed {
        self.pushed[usize::try_from(sequence).unwrap() - 1]
    }

    fn kept(&self) -> Vec<u64> {
        self.buffer.events.iter().map(|kept| kept.delivery.sequence).collect()
    }

    /// Checks that the newest connection gets the first kept message after its position, and the others nothing.
    fn read(&mut self) {
        let Some((claim, position)) = self.connection else { return };
        let expected = self.kept().into_iter().find(|sequence| *sequence > position);
        match self.buffer.read(claim, position) {
            Read::Message(delivery) => {
                let pushed = self.pushed(delivery.sequence);
                assert_eq!(Some(delivery.sequence), expected);
                assert_eq!((delivery.text.len(), delivery.is_answer), (pushed.size, pushed.is_answer));
                self.connection = Some((claim, delivery.sequence));
                self.delivered = self.delivered.max(delivery.sequence);
            }
            Read::Empty => assert!(expected.is_none() && !self.is_ended),
            Read::Ended => assert!(expected.is_none() && self.is_ended),
            Read::TakenOver => panic!("it is the newest"),
        }
        for old in &self.old_claims {
            assert!(matches!(self.buffer.read(*old, 0), Read::TakenOver));
        }
    }

    fn check(&self) {
        let kept = self.kept();
        assert!(kept.is_sorted_by(|one, other| one < other));
        let bytes: usize = kept.iter().map(|sequence| self.pushed(*sequence).size).sum();
        assert_eq!(self.buffer.kept_bytes(), bytes);
        let must_stay = |pushed: &&Pushed| pushed.keep == Keep::Always && pushed.sequence > self.delivered;
        for pushed in self.pushed.iter().filter(must_stay) {
            assert!(kept.binary_search(&pushed.sequence).is_ok(), "{pushed:?} is still to be delivered");
        }
        if kept.len() > MAX_STREAM_EVENTS || bytes > MAX_STREAM_BYTES {
            let is_needed = |sequence: &u64| must_stay(&&self.pushed(*sequence));
            // Messages delivered since the last push may still be kept: the next push drops them.
            let undelivered: Vec<_> = kept.iter().filter(|sequence| **sequence > self.delivered).collect();
            assert!(undelivered.into_iter().all(is_needed), "only these exceed the bounds");
        }
        assert_eq!(self.buffer.is_ended(), self.is_ended);
    }
}

#[test]
fn nothing_that_matters_is_lost_and_the_bounds_hold_whatever_happens() {
    let bytes = Bytes::from(vec![b'x'; MAX_STREAM_BYTES + 1]);
    proptest!(ProptestConfig::with_cases(128), |(steps in vec(step(), 0..40))| {
        let mut run = Run::new(&bytes);
        for step in &steps {
            run.step(step);
        }
    });
}

#[test]
fn replay_after_any_event_gives_exactly_what_followed_and_is_kept() {
    let bytes = Bytes::from(vec![b'x'; MAX_STREAM_BYTES + 1]);
    proptest!(ProptestConfig::with_cases(128), |(steps in vec(step(), 0..30), after in vec(0..700_u64, 1..5))| {
        let mut run = Run::new(&bytes);
        for step in &steps {
            run.step(step);
        }
        let kept = run.kept();
        for after in after {
            let followed: Vec<_> = kept.iter().copied().filter(|sequence| *sequence > after).collect();
            assert_eq!(replay(&mut run.buffer, Some(after)), followed);
            assert_eq!(run.kept(), kept, "reading forgets nothing");
        }
    });
}

#[test]
fn below_the_bounds_every_message_can_be_replayed() {
    proptest!(ProptestConfig::with_cases(64), |(keeps in vec(any::<bool>(), 0..MAX_STREAM_EVENTS), reads in 0..300_usize, after in 0..300_u64)| {
        let mut buffer = StreamBuffer::of_epoch(0);
        for keep in &keeps {
            buffer.push(text(1), if *keep { Keep::Always } else { Keep::IfRoom }, false);
        }
        let (claim, mut position) = buffer.attach(None);
        for _ in 0..reads {
            if let Read::Message(delivery) = buffer.read(claim, position) {
                position = delivery.sequence;
            }
        }
        let all: Vec<u64> = (after + 1..=keeps.len() as u64).collect();
        assert_eq!(replay(&mut buffer, Some(after)), all);
    });
}

#[test]
fn connections_that_follow_each_other_get_every_message_once() {
    proptest!(ProptestConfig::with_cases(64), |(reads in vec((0..5_usize, 0..5_usize), 0..30))| {
        let mut buffer = StreamBuffer::of_epoch(0);
        let (mut pushed, mut seen) = (0, Vec::new());
        for (pushes, reads) in reads {
            for _ in 0..pushes {
                buffer.push(text(1), Keep::IfRoom, false);
                pushed += 1;
            }
            let (claim, mut position) = buffer.attach(None);
            for _ in 0..reads {
                if let Read::Message(delivery) = buffer.read(claim, position) {
                    position = delivery.sequence;
                    seen.push(position);
                }
            }
            buffer.detach(claim);
        }
        seen.extend(replay(&mut buffer, None));
        assert_eq!(seen, (1..=pushed).collect::<Vec<u64>>());
    });
}
