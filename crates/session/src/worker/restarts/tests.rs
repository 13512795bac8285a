//! Tests of when an upstream that crashes may be started again.

use super::*;

/// The crash count and the wait with which a start would be refused.
fn refused(restarts: &Restarts, now: Instant) -> Option<(u32, Duration)> {
    match restarts.refusal(now)? {
        StartError::CrashLoop { crashes, retry_in, .. } => Some((crashes, retry_in)),
        other => panic!("{other:?}"),
    }
}

/// The state after this many crashes in a row, each of a process that died at once.
fn after(crashes: u32, now: Instant) -> Restarts {
    let mut restarts = Restarts::default();
    for _ in 0..crashes {
        restarts.count_crash(Duration::ZERO, now);
    }
    restarts
}

#[test]
fn the_first_start_and_the_one_after_the_first_crash_are_free() {
    let now = Instant::now();
    assert_eq!(refused(&after(0, now), now), None);
    assert_eq!(refused(&after(1, now), now), None);
}

#[test]
fn each_further_start_waits_twice_as_long_up_to_the_longest_wait() {
    let now = Instant::now();
    for (crashes, wait) in [(2, 500), (3, 1000), (4, 2000), (5, 4000), (8, 30_000), (9, 30_000), (99, 30_000)]
    {
        let expected = Some((crashes, Duration::from_millis(wait)));
        assert_eq!(refused(&after(crashes, now), now), expected, "{crashes}");
    }
}

#[test]
fn the_wait_grows_shorter_and_ends() {
    let now = Instant::now();
    let restarts = after(2, now);
    let almost = now + FIRST_BACKOFF.checked_sub(Duration::from_millis(1)).unwrap();
    assert_eq!(refused(&restarts, almost), Some((2, Duration::from_millis(1))));
    assert_eq!(refused(&restarts, now + FIRST_BACKOFF), None);
    assert_eq!(refused(&restarts, now + MAX_BACKOFF), None);
}

#[test]
fn the_wait_counts_from_the_last_crash() {
    let now = Instant::now();
    let mut restarts = after(2, now);
    let later = now + FIRST_BACKOFF;
    restarts.count_crash(Duration::ZERO, later);
    assert_eq!(refused(&restarts, later), Some((3, FIRST_BACKOFF * 2)));
}

#[test]
fn a_process_that_lived_long_begins_a_new_row_of_crashes() {
    let now = Instant::now();
    let mut restarts = after(5, now);
    restarts.count_crash(CRASH_AGE, now);
    assert_eq!(refused(&restarts, now), None);
    restarts.count_crash(CRASH_AGE.checked_sub(Duration::from_millis(1)).unwrap(), now);
    assert_eq!(refused(&restarts, now), Some((2, FIRST_BACKOFF)));
}

#[test]
fn the_refusal_tells_the_last_reason_and_the_last_words() {
    let now = Instant::now();
    let mut restarts = after(2, now);
    restarts.note_reason("the first".to_owned(), "one");
    restarts.note_reason("the second".to_owned(), "two");
    let Some(StartError::CrashLoop { reason, stderr, .. }) = restarts.refusal(now) else { panic!() };
    assert_eq!((reason.as_str(), stderr.as_str()), ("the second", "two"));
}
