//! Tests of the requests to a client.

use proptest::prelude::*;

use super::*;

fn stream() -> Arc<Stream> {
    Stream::new(1, false, &Arc::default())
}

fn of_upstream(id: u64) -> ServerRequestKind {
    ServerRequestKind::Upstream { worker: WorkerId::next(), id: Id::number(id), progress_token: None }
}

#[test]
fn only_numbers_that_were_given_can_be_answered() {
    let mut requests = ServerRequests::new(0);
    assert!(matches!(requests.answer(&Id::number(1)), Answered::Stray), "not given yet");
    assert_eq!(requests.add(of_upstream(9), stream(), Instant::now()), 1);
    for stray in ["0", "2", r#""1""#, "-1", "18446744073709551616"] {
        let id = Id::from_raw(serde_json::from_str(stray).unwrap()).unwrap();
        assert!(matches!(requests.answer(&id), Answered::Stray), "{stray}");
    }
    assert!(matches!(requests.answer(&Id::number(1)), Answered::Request(_)));
    assert!(matches!(requests.answer(&Id::number(1)), Answered::Late));
}

#[test]
fn a_withdrawn_request_is_handed_out_once() {
    let mut requests = ServerRequests::new(0);
    let number = requests.add(of_upstream(9), stream(), Instant::now());
    assert!(requests.stream_of(number).is_some());
    assert!(requests.withdraw(number).is_some());
    assert!(requests.withdraw(number).is_none() && requests.stream_of(number).is_none());
    assert_eq!(requests.len(), 0);
}

#[test]
fn only_requests_of_upstreams_stop_the_time_of_calls() {
    let mut requests = ServerRequests::new(0);
    requests.add(ServerRequestKind::Roots(RootsPurpose::Lock), stream(), Instant::now());
    requests.add(ServerRequestKind::Roots(RootsPurpose::Compare), stream(), Instant::now());
    assert!(!requests.has_upstream_request());
    let number = requests.add(of_upstream(9), stream(), Instant::now());
    assert!(requests.has_upstream_request());
    requests.answer(&Id::number(number));
    assert!(!requests.has_upstream_request());
}

#[test]
fn numbers_go_on_after_everything_was_cleared() {
    let mut requests = ServerRequests::new(0);
    requests.add(of_upstream(9), stream(), Instant::now());
    requests.clear();
    assert!(matches!(requests.answer(&Id::number(1)), Answered::Late));
    assert_eq!(requests.add(of_upstream(9), stream(), Instant::now()), 2);
}

#[derive(Clone, Debug)]
enum Step {
    Add,
    Answer(u64),
    Withdraw(u64),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Add),
        4 => (0..12_u64).prop_map(Step::Answer),
        2 => (0..12_u64).prop_map(Step::Withdraw),
        1 => Just(Step::Clear),
    ]
}

#[test]
fn each_request_is_answered_or_taken_back_once_whatever_happens() {
    proptest!(ProptestConfig::with_cases(128), |(steps in proptest::collection::vec(step(), 0..40))| {
        let mut requests = ServerRequests::new(0);
        let (mut given, mut open) = (0, std::collections::BTreeSet::new());
        for step in steps {
            match step {
                Step::Add => {
                    given += 1;
                    assert_eq!(requests.add(of_upstream(given), stream(), Instant::now()), given);
                    open.insert(given);
                }
                Step::Answer(number) => match requests.answer(&Id::number(number)) {
                    Answered::Request(request) => {
                        assert!(open.remove(&number));
                        let ServerRequestKind::Upstream { id, .. } = request.kind else { unreachable!() };
                        assert_eq!(id, Id::number(number), "the request that has this number");
                    }
                    Answered::Late => assert!(!open.contains(&number) && (1..=given).contains(&number)),
                    Answered::Stray => assert!(!(1..=given).contains(&number)),
                },
                Step::Withdraw(number) => {
                    assert_eq!(requests.withdraw(number).is_some(), open.remove(&number));
                }
                Step::Clear => {
                    requests.clear();
                    open.clear();
                }
            }
            assert_eq!(requests.len(), open.len());
        }
    });
}
