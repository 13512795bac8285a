//! The report of a fence: what it calls enforced was tried in that launch, in both tiers, as root and as a plain user.
//! That the canaries notice where there is no fence is tested beside them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::escapes::ground::callers;
use super::programs::fenced_run::FencedRun;

/// What cannot be tried before the command runs, or only at a cost.
const UNTRIED: &[&str] = &["tree_kill", "hardlinks"];
/// What of Unix sockets only Landlock holds, where there is no network namespace.
const UNTRIED_SOCKETS: &[&str] = &["unix_pathname", "unix_abstract"];

const SHAPES: &[&[&str]] = &[
    &["--net", "all", "--read-mode", "open"],
    &["--net", "all", "--read-mode", "strict"],
    &["--net", "none", "--read-mode", "strict"],
    &["--net", "ports", "--tcp-port", "443"],
    &["--net", "none", "--unix-sockets", "--allow-degraded", "unix_pathname"],
    &["--net", "none", "--temp", "none"],
    &["--net", "none", "--read-only"],
    &["--net", "none", "--allow-debug", "--allow-nested-userns"],
    &["--memory", "1G", "--processes", "64", "--allow-degraded", "memory_limit,pid_limit"],
];
/// Modes that need a network namespace.
const SHAPES_OF_TIER_B: &[&[&str]] = &[
    &["--net", "localhost", "--host-port", "8080"],
    &["--net", "http"],
    &["--net", "http", "--unix-sockets", "--allow-degraded", "unix_pathname"],
];

/// The report that is printed before the command runs.
async fn report(run: &FencedRun, options: &[&str]) -> Value {
    let options = [options, &["--report", "--json"]].concat();
    let ended = run.run(&options, ["true"]).await.succeeded();
    let line = ended.stderr.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.unwrap_or_else(|| panic!("no report in {}", ended.stderr))).unwrap()
}

fn named(report: &Value, status: &str) -> BTreeSet<String> {
    let protections = report["protections"].as_array().unwrap();
    assert_eq!(protections.len(), 29);
    let with_status = protections.iter().filter(|one| one["status"] == status);
    with_status.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

fn assert_tried(report: &Value, may_be_untried: &[&str], title: &str) {
    for protection in report["protections"].as_array().unwrap() {
        let is_enforced = protection["status"] == "enforced";
        assert_eq!(is_enforced, protection["verified"] == "canary", "{title}: {protection}");
    }
    let untried = named(report, "configured");
    let surplus: Vec<&String> =
        untried.iter().filter(|name| !may_be_untried.contains(&name.as_str())).collect();
    assert!(surplus.is_empty(), "{title}: {surplus:?} were not tried");
    assert!(untried.contains("tree_kill"), "{title}: it shows only at the end");
    assert!(named(report, "enforced").len() > 15, "{title}: {report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_report_calls_enforced_was_tried_whatever_the_policy_is() {
    for caller in callers() {
        for tier in ["a", "b"] {
            let run = FencedRun::new(tier, caller).await;
            make_secret(&run);
            let only_here = if tier == "b" { SHAPES_OF_TIER_B } else { &[] };
            for options in SHAPES.iter().chain(only_here) {
                let has_sockets = tier == "a" && options.contains(&"--unix-sockets");
                let sockets = if has_sockets { UNTRIED_SOCKETS } else { &[] };
                let title = format!("tier {tier}, {caller}, {options:?}");
                assert_tried(&report(&run, options).await, &[UNTRIED, sockets].concat(), &title);
            }
        }
    }
}

/// A plain user with an empty home has none of the secrets on the list.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_secrets_that_do_not_exist_is_configured_and_no_launch_is_refused_for_it() {
    let caller = *callers().last().unwrap();
    for tier in ["a", "b"] {
        let run = FencedRun::new(tier, caller).await;
        let required = ["--require", "deny_read"];
        let missing = report(&run, &required).await;
        assert!(named(&missing, "configured").contains("deny_read"), "tier {tier}: {missing}");
        make_secret(&run);
        let existing = report(&run, &required).await;
        assert!(named(&existing, "enforced").contains("deny_read"), "tier {tier}: {existing}");
    }
}

/// Makes one of the secrets on the list.
fn make_secret(run: &FencedRun) {
    std::fs::create_dir(run.ground.home().join(".ssh")).unwrap();
    run.ground.belongs_to_caller();
}
