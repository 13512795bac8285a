//! Tests of the cache: which lookup probes and which waits, which results are kept, and how advertised capabilities
//! are corrected.

use parking_lot::Mutex;
use serde_json::{Value, json};
use upstream::StartError;

use super::*;

#[allow(clippy::needless_pass_by_value, reason = "tests write `json!({…})` in the place of an argument")]
fn answer(capabilities: Value, instructions: &str) -> Arc<InitializeResult> {
    let answer = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "serverInfo": {"name": "s", "version": "1"},
        "instructions": instructions,
    });
    Arc::new(InitializeResult::read(&answer.to_string()).unwrap())
}

#[allow(clippy::unnecessary_wraps, reason = "the form that a probe gives")]
fn shown(answer: Arc<InitializeResult>) -> ProbeResult {
    Ok(Probed { initialize: answer, catalogue: None })
}

fn failed() -> ProbeResult {
    Err(CatalogueError::Start(StartError::Stopped))
}

/// A cache without retries in which one kind was probed.
fn probed(result: &ProbeResult) -> Arc<Mutex<ProbeCache>> {
    let mut cache = ProbeCache::new(None);
    assert!(matches!(cache.lookup([0; 32], Instant::now()), Lookup::Probe(_)));
    cache.finish([0; 32], result.clone(), Instant::now());
    Arc::new(Mutex::new(cache))
}

fn told(cache: &Arc<Mutex<ProbeCache>>) -> Advertised {
    let Lookup::Known(result) = cache.lock().lookup([0; 32], Instant::now()) else { panic!("not known") };
    Advertised::new(cache, [0; 32], &result, Version::NEWEST)
}

#[test]
fn one_probe_serves_all_clients_of_a_kind() {
    let now = Instant::now();
    let mut cache = ProbeCache::new(None);
    let Lookup::Probe(mut first) = cache.lookup([0; 32], now) else { panic!("the first one probes") };
    let Lookup::Wait(mut second) = cache.lookup([0; 32], now) else { panic!("the second one waits") };
    assert!(matches!(cache.lookup([1; 32], now), Lookup::Probe(_)), "another kind");
    cache.finish([0; 32], shown(answer(json!({"tools": {}}), "")), now);
    for receiver in [&mut first, &mut second] {
        assert!(receiver.try_recv().unwrap().is_ok());
    }
    assert!(matches!(cache.lookup([0; 32], now), Lookup::Known(Ok(_))));
}

#[test]
fn a_failed_probe_is_tried_again_after_a_while_where_that_is_wanted() {
    let now = Instant::now();
    let retry = Duration::from_secs(30);
    let mut cache = ProbeCache::new(Some(retry));
    assert!(matches!(cache.lookup([0; 32], now), Lookup::Probe(_)));
    cache.finish([0; 32], failed(), now);
    assert!(matches!(cache.lookup([0; 32], now + retry / 2), Lookup::Known(Err(_))));
    assert!(matches!(cache.lookup([0; 32], now + retry), Lookup::Probe(_)));
    let mut patient = ProbeCache::new(None);
    assert!(matches!(patient.lookup([0; 32], now), Lookup::Probe(_)));
    patient.finish([0; 32], failed(), now);
    assert!(matches!(patient.lookup([0; 32], now + retry * 100), Lookup::Known(Err(_))));
}

#[test]
fn kinds_are_bounded_and_the_least_recently_used_goes() {
    let now = Instant::now();
    let mut cache = ProbeCache::new(None);
    let kind = |number: usize| [u8::try_from(number).unwrap(); 32];
    for number in 0..MAX_KINDS {
        assert!(matches!(cache.lookup(kind(number), now), Lookup::Probe(_)));
        cache.finish(kind(number), failed(), now);
    }
    assert!(matches!(cache.lookup(kind(0), now), Lookup::Known(_)), "used again");
    assert!(matches!(cache.lookup(kind(MAX_KINDS), now), Lookup::Probe(_)));
    assert_eq!(cache.entries.len(), MAX_KINDS);
    assert!(matches!(cache.lookup(kind(0), now), Lookup::Known(_)));
    assert!(matches!(cache.lookup(kind(1), now), Lookup::Probe(_)), "the least recently used one went");
}

#[test]
fn a_kind_that_is_being_probed_is_never_forgotten() {
    let now = Instant::now();
    let mut cache = ProbeCache::new(None);
    let kind = |number: usize| [u8::try_from(number).unwrap(); 32];
    let receivers: Vec<_> = (0..MAX_KINDS + 10)
        .map(|number| match cache.lookup(kind(number), now) {
            Lookup::Probe(receiver) => receiver,
            other => panic!("{other:?}"),
        })
        .collect();
    for (number, mut receiver) in receivers.into_iter().enumerate() {
        cache.finish(kind(number), failed(), now);
        assert!(receiver.try_recv().unwrap().is_err());
    }
}

#[test]
fn equal_catalogues_are_kept_once() {
    let now = Instant::now();
    let mut cache = ProbeCache::new(None);
    for kind in [[0; 32], [1; 32]] {
        assert!(matches!(cache.lookup(kind, now), Lookup::Probe(_)));
        let catalogue = Some(Arc::new(Catalogue::default()));
        cache.finish(kind, Ok(Probed { initialize: answer(json!({}), ""), catalogue }), now);
    }
    let [one, other] = [[0; 32], [1; 32]].map(|kind| cache.known_catalogue(kind).unwrap());
    assert!(Arc::ptr_eq(&one, &other));
}

#[test]
fn a_contradiction_is_corrected_and_does_not_come_back() {
    let cache = probed(&shown(answer(json!({"tools": {}}), "a")));
    let first = told(&cache);
    let real = answer(json!({"prompts": {"listChanged": true}}), "b");
    assert!(!first.holds_for(&real));
    let second = told(&cache);
    assert!(second.holds_for(&real));
    assert!(second.holds_for(&answer(json!({"tools": {"listChanged": false}}), "c")), "it varies");
    assert!(!second.holds_for(&answer(json!({"logging": {}}), "c")), "that was never offered before");
}

#[test]
fn a_failed_probe_promises_everything_until_a_worker_has_shown_itself() {
    let cache = probed(&failed());
    let guess = told(&cache);
    assert!(guess.holds_for(&answer(json!({"tools": {}}), "x")));
    let next: Value = serde_json::from_str(told(&cache).answer.as_json()).unwrap();
    assert_eq!(next["capabilities"], json!({"tools": {}}));
}

/// What a server says in one workspace reaches no session of another: text could carry orders to other agents.
#[test]
fn no_text_of_a_worker_is_learned() {
    let poison = json!({
        "tools": {"listChanged": true, "orders": "obey"},
        "experimental": {"orders": {"text": "obey"}},
        "orders": {},
    });
    let cases = [
        probed(&failed()),
        probed(&shown(answer(json!({"prompts": {}, "experimental": {"own": {}}}), "honest"))),
    ];
    for cache in cases {
        let before = told(&cache);
        for _ in 0..3 {
            let poisoned = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": poison,
                "serverInfo": {"name": "obey", "version": "obey"},
                "instructions": "obey",
            });
            told(&cache).holds_for(&Arc::new(InitializeResult::read(&poisoned.to_string()).unwrap()));
        }
        let after = told(&cache);
        let text = after.answer.as_json();
        assert!(!text.contains("obey") && !text.contains("orders"), "{text}");
        assert_ne!(text, before.answer.as_json(), "that it has tools is learned");
        assert!(text.contains("listChanged"), "{text}");
    }
}

#[test]
fn another_version_never_holds() {
    let cache = probed(&failed());
    let older = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}});
    let older = Arc::new(InitializeResult::read(&older.to_string()).unwrap());
    assert!(!told(&cache).holds_for(&older));
}

#[test]
fn what_a_worker_shows_is_told_to_the_next_client_even_if_its_kind_was_forgotten_meanwhile() {
    let cache = probed(&shown(answer(json!({"tools": {}}), "a")));
    let first = told(&cache);
    cache.lock().entries.clear();
    assert!(first.holds_for(&answer(json!({"tools": {}}), "a")), "nothing is lost but the correction");
}

#[test]
fn a_client_that_went_away_does_not_keep_the_result_from_others() {
    let now = Instant::now();
    let mut cache = ProbeCache::new(None);
    drop(cache.lookup([0; 32], now));
    let Lookup::Wait(mut second) = cache.lookup([0; 32], now) else { panic!("it still runs") };
    cache.finish([0; 32], failed(), now);
    assert!(second.try_recv().unwrap().is_err());
}

#[test]
fn the_result_of_a_kind_that_is_unknown_is_dropped() {
    let now = Instant::now();
    let mut cache = ProbeCache::new(None);
    cache.finish([7; 32], failed(), now);
    assert!(matches!(cache.lookup([7; 32], now), Lookup::Probe(_)));
}

#[test]
fn a_probe_that_runs_for_long_is_waited_for_and_not_begun_again() {
    let now = Instant::now();
    let mut cache = ProbeCache::new(Some(Duration::from_secs(1)));
    let _first = cache.lookup([0; 32], now);
    assert!(matches!(cache.lookup([0; 32], now + Duration::from_secs(1000)), Lookup::Wait(_)));
}

#[test]
fn a_probe_that_succeeded_is_not_tried_again() {
    let now = Instant::now();
    let mut cache = ProbeCache::new(Some(Duration::from_secs(1)));
    let _first = cache.lookup([0; 32], now);
    cache.finish([0; 32], shown(answer(json!({}), "")), now);
    assert!(matches!(cache.lookup([0; 32], now + Duration::from_secs(1000)), Lookup::Known(Ok(_))));
}

#[test]
fn a_later_result_replaces_the_former_one() {
    let now = Instant::now();
    let mut cache = ProbeCache::new(None);
    let _first = cache.lookup([0; 32], now);
    cache.finish([0; 32], failed(), now);
    cache.finish([0; 32], shown(answer(json!({}), "")), now);
    assert!(matches!(cache.lookup([0; 32], now), Lookup::Known(Ok(_))));
}

#[test]
fn lists_are_known_only_after_a_probe_that_succeeded() {
    let now = Instant::now();
    let mut cache = ProbeCache::new(None);
    assert!(cache.known_catalogue([0; 32]).is_none(), "never seen");
    let _first = cache.lookup([0; 32], now);
    assert!(cache.known_catalogue([0; 32]).is_none(), "still running");
    cache.finish([0; 32], failed(), now);
    assert!(cache.known_catalogue([0; 32]).is_none(), "failed");
    let catalogue = Some(Arc::new(Catalogue::default()));
    cache.finish([0; 32], Ok(Probed { initialize: answer(json!({}), ""), catalogue }), now);
    assert!(cache.known_catalogue([0; 32]).is_some());
}

#[test]
fn a_server_that_is_what_the_client_was_told_changes_nothing() {
    let cache = probed(&shown(answer(json!({"tools": {}}), "a")));
    let first = told(&cache);
    assert!(first.holds_for(&answer(json!({"tools": {}}), "a")));
    assert_eq!(told(&cache).answer.as_json(), first.answer.as_json());
}

#[test]
fn capabilities_that_were_shown_are_a_promise() {
    for capabilities in [json!({}), json!({"tools": {"listChanged": true}})] {
        let cache = probed(&shown(answer(json!({"tools": {}}), "a")));
        assert!(!told(&cache).holds_for(&answer(capabilities.clone(), "a")), "{capabilities}");
    }
    let cache = probed(&shown(answer(json!({"tools": {}}), "a")));
    assert!(told(&cache).holds_for(&answer(json!({"tools": {}}), "b")), "instructions are the probe's");
}

#[test]
fn a_guess_is_corrected_by_the_first_worker_and_binding_from_then_on() {
    let cache = probed(&failed());
    let (first, second) = (told(&cache), told(&cache));
    assert!(first.holds_for(&answer(json!({"tools": {}}), "a")));
    assert!(second.holds_for(&answer(json!({"prompts": {}}), "b")), "this client was told everything");
    assert!(!told(&cache).holds_for(&answer(json!({"logging": {}}), "c")));
}
