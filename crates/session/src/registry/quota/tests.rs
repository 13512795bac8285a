//! Tests of the number of sessions, the rate of calls, and scopes that overlap between principals.

use proptest::prelude::*;
use serde_json::json;
use upstream::Directories;

use super::*;
use crate::scope::ScopeSource;

fn key(principal: &Principal) -> SessionKey {
    SessionKey { principal: principal.clone(), id: SessionId::random() }
}

#[test]
fn places_are_counted_by_window_and_given_back() {
    let quotas =
        Quotas::new(&Settings { max_sessions: 3, max_sessions_per_instance: Some(1), ..Settings::default() });
    let (me, window) = (Principal::anonymous(), Instance::named("w").unwrap());
    let first = quotas.enter(&key(&me), &window, &Arc::default()).unwrap();
    assert!(matches!(
        quotas.enter(&key(&me), &window, &Arc::default()),
        Err(Refusal::TooManyOfOne { limit: 1, .. })
    ));
    let _second = quotas.enter(&key(&me), &Instance::random(), &Arc::default()).unwrap();
    let _third = quotas.enter(&key(&me), &Instance::random(), &Arc::default()).unwrap();
    assert!(matches!(
        quotas.enter(&key(&me), &Instance::random(), &Arc::default()),
        Err(Refusal::TooManySessions { limit: 3 })
    ));
    drop(first);
    assert!(quotas.enter(&key(&me), &window, &Arc::default()).is_ok());
    assert_eq!(quotas.instances(), 2);
}

#[test]
fn calls_beyond_the_rate_are_refused_with_a_time() {
    let quotas = Quotas::new(&Settings { calls_per_second: NonZeroU32::new(2), ..Settings::default() });
    let place = quotas.enter(&key(&Principal::anonymous()), &Instance::random(), &Arc::default()).unwrap();
    assert!(place.admit_call().is_ok() && place.admit_call().is_ok());
    assert!(matches!(place.admit_call(), Err(Refusal::TooFast { retry_after }) if !retry_after.is_zero()));
}

fn principal(name: &str) -> Principal {
    Principal::named(name).unwrap()
}

fn window(name: &str) -> Instance {
    Instance::named(name).unwrap()
}

/// Quotas that refuse nothing.
fn unlimited() -> Arc<Quotas> {
    Quotas::new(&Settings::default())
}

fn place(quotas: &Arc<Quotas>, whose: &str) -> Place {
    quotas.enter(&key(&principal(whose)), &Instance::random(), &Arc::default()).unwrap()
}

/// A scope of directories that need not exist.
fn scope(paths: &[&str]) -> Scope {
    let vetted =
        |path: &&str| serde_json::from_value(json!({"path": path, "device": 1, "inode": 2})).unwrap();
    let roots = paths.iter().map(vetted).collect();
    let directories = Arc::new(Directories::of(roots));
    Scope { directories, label: None, source: ScopeSource::Roots, copy: None }
}

#[test]
fn each_principal_has_its_own_number_of_places() {
    let quotas = Quotas::new(&Settings { max_sessions_per_principal: Some(2), ..Settings::default() });
    let enter = |whose: &str| quotas.enter(&key(&principal(whose)), &Instance::random(), &Arc::default());
    let mine = [enter("me").unwrap(), enter("me").unwrap()];
    let refused = enter("me");
    assert!(matches!(refused, Err(Refusal::TooManyOfOne { limit: 2, whose: "caller" })), "{refused:?}");
    assert!(enter("you").is_ok());
    drop(mine);
    assert!(enter("me").is_ok());
}

#[test]
fn windows_of_different_principals_may_have_the_same_name() {
    let quotas = Quotas::new(&Settings { max_sessions_per_instance: Some(1), ..Settings::default() });
    let _mine = quotas.enter(&key(&principal("me")), &window("w"), &Arc::default()).unwrap();
    let _yours = quotas.enter(&key(&principal("you")), &window("w"), &Arc::default()).unwrap();
    assert_eq!(quotas.instances(), 2);
    let refused = quotas.enter(&key(&principal("me")), &window("w"), &Arc::default());
    assert!(matches!(refused, Err(Refusal::TooManyOfOne { whose: "client window", .. })), "{refused:?}");
}

#[test]
fn a_refused_session_takes_no_place() {
    let quotas = Quotas::new(&Settings { max_sessions_per_principal: Some(1), ..Settings::default() });
    let first = quotas.enter(&key(&principal("me")), &window("a"), &Arc::default()).unwrap();
    for _ in 0..3 {
        assert!(quotas.enter(&key(&principal("me")), &window("b"), &Arc::default()).is_err());
    }
    assert_eq!(quotas.instances(), 1);
    assert_eq!(quotas.lock().sessions, 1);
    drop(first);
    let taken = quotas.lock();
    assert!(taken.sessions == 0 && taken.principals.is_empty() && taken.instances.is_empty());
}

#[test]
fn sessions_of_one_window_are_one_window() {
    let quotas = unlimited();
    let _places =
        [1, 2].map(|_| quotas.enter(&key(&principal("me")), &window("w"), &Arc::default()).unwrap());
    assert_eq!(quotas.instances(), 1);
}

#[test]
fn without_a_rate_calls_are_not_counted() {
    let place = place(&unlimited(), "me");
    assert!((0..10_000).all(|_| place.admit_call().is_ok()));
}

#[test]
fn the_rate_of_a_principal_is_that_of_all_its_sessions_and_of_no_other() {
    let quotas = Quotas::new(&Settings { calls_per_second: NonZeroU32::new(2), ..Settings::default() });
    let [one, other, yours] = ["me", "me", "you"].map(|whose| place(&quotas, whose));
    assert!(one.admit_call().is_ok() && other.admit_call().is_ok());
    assert!(one.admit_call().is_err() && other.admit_call().is_err());
    assert!(yours.admit_call().is_ok());
}

#[test]
fn the_rate_of_a_window_leaves_the_others_alone() {
    let settings = Settings { instance_calls_per_second: NonZeroU32::new(1), ..Settings::default() };
    let quotas = Quotas::new(&settings);
    let [busy, quiet] = [place(&quotas, "me"), place(&quotas, "me")];
    assert!(busy.admit_call().is_ok() && busy.admit_call().is_err());
    assert!(quiet.admit_call().is_ok());
}

#[test]
fn no_session_works_in_the_directory_of_another_principal() {
    for (mine, yours, is_allowed) in [
        (&["/srv/a"][..], &["/srv/a"][..], false),
        (&["/srv/a"], &["/srv/a/below"], false),
        (&["/srv/a/below"], &["/srv/a"], false),
        (&["/srv/a", "/srv/b"], &["/srv/c", "/srv/b"], false),
        (&["/srv/a"], &["/srv/ab"], true),
        (&["/srv/a"], &[], true),
        (&[], &[], true),
    ] {
        let quotas = unlimited();
        let (me, you) = (place(&quotas, "me"), place(&quotas, "you"));
        me.check_neighbours(scope(mine)).unwrap();
        let checked = you.check_neighbours(scope(yours));
        assert_eq!(checked.is_ok(), is_allowed, "{mine:?} {yours:?}");
        if let Err(refusal) = checked {
            assert_eq!(
                refusal,
                ScopeRefusal::OthersScope(yours[0].into()),
                "the directory that was asked for"
            );
        }
    }
}

#[test]
fn sessions_of_one_principal_may_work_in_one_directory() {
    let quotas = unlimited();
    let places = [place(&quotas, "me"), place(&quotas, "me")];
    assert!(places.iter().all(|place| place.check_neighbours(scope(&["/srv/a"])).is_ok()));
}

#[test]
fn a_directory_is_free_when_its_session_is_gone() {
    let quotas = unlimited();
    let (me, you) = (place(&quotas, "me"), place(&quotas, "you"));
    me.check_neighbours(scope(&["/srv/a"])).unwrap();
    drop(me);
    assert!(you.check_neighbours(scope(&["/srv/a"])).is_ok());
}

#[test]
fn a_refused_scope_keeps_no_directory_from_others() {
    let quotas = unlimited();
    let [me, you, third] = ["me", "you", "third"].map(|whose| place(&quotas, whose));
    me.check_neighbours(scope(&["/srv/a"])).unwrap();
    assert!(you.check_neighbours(scope(&["/srv/b", "/srv/a"])).is_err());
    assert!(third.check_neighbours(scope(&["/srv/b"])).is_ok());
}

#[test]
fn places_are_counted_exactly_whatever_comes_and_goes() {
    let settings = Settings {
        max_sessions: 6,
        max_sessions_per_principal: Some(4),
        max_sessions_per_instance: Some(2),
        ..Settings::default()
    };
    let step = (0..3_usize, 0..3_usize, proptest::option::weighted(0.3, 0..8_usize));
    proptest!(ProptestConfig::with_cases(128), |(steps in proptest::collection::vec(step, 0..40))| {
        let quotas = Quotas::new(&settings);
        let mut places: Vec<(usize, usize, Place)> = Vec::new();
        for (whose, which, leaves) in steps {
            if let Some(leaves) = leaves {
                if leaves < places.len() {
                    places.swap_remove(leaves);
                }
                continue;
            }
            let of_principal = places.iter().filter(|(other, ..)| *other == whose).count();
            let of_window = places.iter().filter(|(a, b, _)| (*a, *b) == (whose, which)).count();
            let fits = places.len() < 6 && of_principal < 4 && of_window < 2;
            let entered =
                quotas.enter(&key(&principal(&format!("p{whose}"))), &window(&format!("w{which}")), &Arc::default());
            assert_eq!(entered.is_ok(), fits);
            places.extend(entered.ok().map(|place| (whose, which, place)));
        }
        let mut windows: Vec<_> = places.iter().map(|(whose, which, _)| (whose, which)).collect();
        windows.sort_unstable();
        windows.dedup();
        assert_eq!(quotas.lock().sessions, places.len());
        assert_eq!(quotas.instances(), windows.len());
    });
}
