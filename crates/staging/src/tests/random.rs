//! Random work in a copy and in its base: what is applied is what the copy shows, an undo gives everything back, and no
//! change of the base is lost.

use proptest::prelude::*;

use super::kills::is_killed;
use super::stage::{METHODS, Stage};
use crate::{ApplyError, ApplyRequest};

const NAMES: [&str; 6] = ["a", "b", "d", "d/a", "d/e", "d/e/f"];

/// One operation of a shell, which may fail.
fn operation() -> impl Strategy<Value = String> {
    let name = || proptest::sample::select(NAMES.to_vec());
    prop_oneof![
        4 => (name(), 0..5).prop_map(|(name, text)| format!("[ -d {name} ] || [ -L {name} ] || echo {text} > {name}")),
        2 => name().prop_map(|name| format!("rm -rf {name}")),
        2 => name().prop_map(|name| format!("mkdir -p {name}")),
        1 => (name(), name()).prop_map(|(from, to)| format!("mv -T {from} {to}")),
        1 => (name(), name()).prop_map(|(target, name)| format!("ln -sfT {target} {name}")),
        2 => (name(), proptest::sample::select(vec!["600", "644", "700", "755"]))
            .prop_map(|(name, mode)| format!("[ -L {name} ] || chmod {mode} {name}")),
        1 => name().prop_map(|name| format!("[ -f {name} ] && cp {name} x && cp x {name} && rm x")),
    ]
}

fn script(operations: &[String]) -> String {
    operations
        .iter()
        .fold(String::new(), |script, operation| script + "( " + operation + " ) 2>/dev/null || true\n")
}

fn operations() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec(operation(), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_applied_is_what_the_copy_shows(start in operations(), work in operations(), more in operations(), method in 0..2_usize) {
        let stage = Stage::new("random");
        stage.sh(&script(&start));
        let copy = stage.create(METHODS[method]);
        let before = stage.snapshot();
        copy.sh(&script(&work));
        let view = copy.view(&stage.directory.join("view"));
        copy.apply_all().unwrap();
        prop_assert_eq!(stage.snapshot(), view.clone());
        prop_assert!(copy.seen().is_empty(), "{:?}", copy.listed());
        if copy.can_undo() {
            copy.undo().unwrap();
            prop_assert_eq!(stage.snapshot(), before);
            copy.apply_all().unwrap();
            prop_assert_eq!(stage.snapshot(), view.clone());
        }
        copy.sh(&script(&more));
        let next = copy.view(&stage.directory.join("view"));
        copy.apply_all().unwrap();
        prop_assert_eq!(stage.snapshot(), next);
        if copy.can_undo() && !copy.listed().is_empty() {
            copy.undo().unwrap();
            prop_assert_eq!(stage.snapshot(), view);
        }
    }

    /// Without ancestors nothing can be merged: every path is the base's or the copy's, and a refusal changes nothing.
    #[test]
    fn no_change_of_the_base_is_lost(start in operations(), theirs in operations(), mine in operations(), method in 0..2_usize) {
        let stage = Stage::new("random-base");
        stage.sh(&script(&start));
        let copy = stage.create(METHODS[method]);
        let original = stage.snapshot();
        copy.sh(&script(&theirs));
        stage.sh(&script(&mine));
        let changed = stage.snapshot();
        match copy.apply(&ApplyRequest::default(), &|_| None) {
            Ok(_) => {
                let now = stage.snapshot();
                for (path, facts) in changed.iter().filter(|(path, facts)| original.get(*path) != Some(facts)) {
                    // A directory may get another mode, if that alone differs.
                    let is_kept = now.get(path).is_some_and(|now| now.0 == facts.0 && now.2 == facts.2);
                    prop_assert!(is_kept || facts.0 == 'd', "{:?} {:?} {:?}", path, facts, now.get(path));
                }
            }
            Err(ApplyError::Conflicts(_)) => prop_assert_eq!(stage.snapshot(), changed),
            Err(error) => prop_assert!(false, "{error:?}"),
        }
    }
}

/// Sets how many rounds are tried; the suite has time for a few.
const KILL_ROUNDS: &str = "STAGING_TEST_KILL_ROUNDS";
const FEW_KILL_ROUNDS: u32 = 25;
/// An apply of the random work has fewer moments.
const MAX_MOMENTS: usize = 40;

fn kill_rounds() -> ProptestConfig {
    let cases = std::env::var(KILL_ROUNDS).map_or(FEW_KILL_ROUNDS, |rounds| rounds.parse().unwrap());
    // The same rounds every time, so that a failure comes again.
    let rng_seed = proptest::test_runner::RngSeed::Fixed(18);
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(kill_rounds())]

    /// Several copies of one base, whose applies and recoveries are killed.
    #[test]
    fn no_file_is_lost_or_crossed_by_kills(
        start in operations(), work in operations(), method in 0..2_usize,
        first in 0..MAX_MOMENTS, then in 0..MAX_MOMENTS,
    ) {
        let stage = Stage::new("random-kills");
        stage.sh(&script(&start));
        let copy = stage.create(METHODS[method]);
        let before = stage.snapshot();
        copy.sh(&script(&work));
        let view = copy.view(&stage.directory.join("view"));
        is_killed("apply", first, &stage);
        is_killed("recover", then, &stage);
        stage.workspaces.recover().unwrap();
        let now = stage.snapshot();
        prop_assert!(now == before || now == view, "killed at {first} and {then}: {now:?}");
        if now == view && copy.can_undo() {
            copy.undo().unwrap();
            prop_assert_eq!(stage.snapshot(), before);
        }
        copy.apply_all().unwrap();
        prop_assert_eq!(stage.snapshot(), view);
        prop_assert!(copy.seen().is_empty(), "{:?}", copy.listed());
    }
}
