//! Runs every attempt of the hostile program `ringfence-attacker`: without a fence, where an attempt must succeed
//! to prove anything, and fenced in each tier, network mode and read mode, as root and as a plain user.
//!
//! The verdict rests on the effect, observed from outside after the run, then on the error. No test skips
//! itself: the first one asserts that the kernel has the features that the others need.

mod expected;
pub(crate) mod ground;
mod post_run_scan;
mod rows;
mod stage;
mod verdict;

use testkit::{KernelOffer, attacker_binary};
use tokio::process::Command;

use expected::{Expected, Fence, Network, ReadMode, Tier, expected_in, expected_without_fence};
use ground::{Caller, callers};
use stage::Stage;
use verdict::surprises;

async fn kernel_offer() -> KernelOffer {
    let output = Command::new(attacker_binary()).arg("kernel").output().await.unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn this_kernel_offers_all_that_the_attempts_need() {
    let offer = kernel_offer().await;
    assert!(offer.landlock_abi >= 6, "below that signals reach outside in Tier A: {offer:?}");
    assert!(offer.user_namespaces, "Tier B cannot be had, so half of this suite would test nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fence_the_attempts_succeed() {
    let mut found = Vec::new();
    for caller in callers() {
        let mut stage = Stage::new(caller, None).await;
        let run = stage.run_without_fence().await;
        let scan = stage.finish(&run.results).await;
        let findings = scan.compare(&run.results, |id| expected_without_fence(id, caller));
        found.extend(surprises(&format!("no fence, {caller}"), &findings, None));
    }
    assert_no_surprise(&found);
}

fn assert_no_surprise(found: &[String]) {
    assert!(found.is_empty(), "{} surprises\n{}", found.len(), found.join("\n"));
}

/// Runs all attempts in one kind of fence, as every caller.
async fn assert_holds(fence: Fence) {
    let mut found = Vec::new();
    for caller in callers() {
        found.extend(surprises_in(caller, fence, &[], |_| None).await);
    }
    assert_no_surprise(&found);
}

/// Runs all attempts in one fence. `otherwise` returns the expected outcome of rows that the options change.
async fn surprises_in(
    caller: Caller,
    fence: Fence,
    options: &[&str],
    otherwise: impl Fn(&str) -> Option<Expected>,
) -> Vec<String> {
    let mut stage = Stage::new(caller, Some(fence)).await;
    let run = stage.run_fenced(fence, options).await;
    let scan = stage.finish(&run.results).await;
    let expected = |id: &str| otherwise(id).unwrap_or_else(|| expected_in(id, fence, caller));
    let findings = scan.compare(&run.results, expected);
    let title = format!("{fence}, {caller}");
    let report = run.report();
    let found = surprises(&title, &findings, Some(&report));
    if !found.is_empty() {
        return found;
    }
    assert_eq!(report["tier"], fence.tier.name(), "{title}");
    assert_eq!(report["protections"].as_array().unwrap().len(), 29, "{title}");
    let network = report["network"].as_str().unwrap();
    let is_open = network.contains("not restricted");
    assert_eq!(is_open, matches!(fence.network, Network::All), "{title}: {network}");
    let names_loopback = network.contains("any address including loopback");
    assert_eq!(names_loopback, matches!(fence.network, Network::Ports), "{title}: {network}");
    found
}

const fn open(tier: Tier, network: Network) -> Fence {
    Fence { tier, network, read_mode: ReadMode::Open }
}

const fn strict(tier: Tier, network: Network) -> Fence {
    Fence { tier, network, read_mode: ReadMode::Strict }
}

#[tokio::test(flavor = "multi_thread")]
async fn tier_a_without_network_holds() {
    assert_holds(open(Tier::A, Network::None)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tier_a_with_all_of_the_network_holds() {
    assert_holds(open(Tier::A, Network::All)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tier_a_with_one_port_holds() {
    assert_holds(open(Tier::A, Network::Ports)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tier_a_with_strict_reads_holds() {
    assert_holds(strict(Tier::A, Network::None)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tier_b_without_network_holds() {
    assert_holds(open(Tier::B, Network::None)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tier_b_with_all_of_the_network_holds() {
    assert_holds(open(Tier::B, Network::All)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tier_b_with_one_port_holds() {
    assert_holds(open(Tier::B, Network::Ports)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tier_b_with_one_port_of_the_hosts_loopback_holds() {
    assert_holds(open(Tier::B, Network::Localhost)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tier_b_with_a_private_loopback_holds() {
    assert_holds(open(Tier::B, Network::Loopback)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tier_b_with_http_only_holds() {
    assert_holds(open(Tier::B, Network::Http)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tier_b_with_strict_reads_holds() {
    assert_holds(strict(Tier::B, Network::None)).await;
}

/// Runs all attempts in each of the tiers with more options, as every caller.
async fn assert_holds_with(
    options: &[&str],
    tiers: &[Tier],
    otherwise: impl Fn(&str, Tier) -> Option<Expected>,
) {
    let mut found = Vec::new();
    for caller in callers() {
        for tier in tiers {
            let fence = open(*tier, Network::None);
            found.extend(surprises_in(caller, fence, options, |id| otherwise(id, *tier)).await);
        }
    }
    assert_no_surprise(&found);
}

const BOTH_TIERS: &[Tier] = &[Tier::A, Tier::B];

/// Lets debugging calls and nested user namespaces through the syscall filter: the layers below must refuse the
/// access that they would give.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_filter_may_allow_is_still_refused_beneath_it() {
    let options = ["--allow-debug", "--allow-nested-userns"];
    assert_holds_with(&options, BOTH_TIERS, |id, _| match id {
        "K01" | "K20" | "K23" | "K24" => Some(Expected::Works),
        "P05" | "P06" | "P15" | "P23" | "P26" | "P31" => {
            Some(Expected::Refused(&["EPERM", "ESRCH", "EACCES"]))
        }
        _ => None,
    })
    .await;
}

/// Sockets with an abstract name stay out of reach, and none can be created outside the scope. From Landlock
/// ABI 9 on, sockets with a path outside are out of reach, too.
#[tokio::test(flavor = "multi_thread")]
async fn unix_sockets_that_are_allowed_are_reported_as_not_protected() {
    let has_rights_for_sockets = kernel_offer().await.landlock_abi >= 9;
    let options = ["--unix-sockets", "--allow-degraded", "unix_pathname"];
    assert_holds_with(&options, BOTH_TIERS, |id, _| match id {
        "N10" | "N12" | "N24" | "N25" | "N28" if has_rights_for_sockets => {
            Some(Expected::Refused(&["EACCES"]))
        }
        "N10" | "N12" | "N24" | "N25" | "N28" => Some(Expected::WorksAndIsReported("unix_pathname")),
        "F25" => Some(Expected::Refused(&["EACCES", "EROFS"])),
        _ => None,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_protection_that_the_command_cannot_have_is_refused_by_name() {
    let has_rights_for_sockets = kernel_offer().await.landlock_abi >= 9;
    for caller in callers() {
        let fence = open(Tier::A, Network::None);
        let mut stage = Stage::new(caller, Some(fence)).await;
        let output = stage.output_fenced(fence, &["--unix-sockets"]).await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let is_refused = output.status.code() == Some(125) && stderr.contains("unix_pathname");
        assert_eq!(is_refused, !has_rights_for_sockets, "{caller}: {stderr}");
        stage.finish(&[]).await;
    }
}

/// In Tier A all terminals of the caller lie in the directory that has the command's own.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_that_is_allowed_cannot_be_typed_into() {
    assert_holds_with(&["--pty"], BOTH_TIERS, |id, tier| {
        (id == "D08" && matches!(tier, Tier::A)).then_some(Expected::Works)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_temporary_files_there_are_none_anywhere() {
    assert_holds_with(&["--temp", "none"], BOTH_TIERS, |id, _| match id {
        "F36" | "F37" | "F38" => Some(Expected::Refused(&["EACCES", "EROFS"])),
        _ => None,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_memory_objects_are_the_hosts_in_tier_a_if_they_are_allowed() {
    assert_holds_with(&["--shm"], &[Tier::A], |id, _| matches!(id, "F36" | "I12").then_some(Expected::Works))
        .await;
}

/// Tier A cannot keep files of a scope, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_programs_outside_obey_can_be_kept() {
    let options = ["--protect-metadata", "--allow-degraded", "scope_metadata"];
    assert_holds_with(&options, BOTH_TIERS, |id, tier| {
        (id.starts_with('M') && matches!(tier, Tier::B))
            .then_some(Expected::Refused(&["EROFS", "EBUSY", "EXDEV", "EEXIST", "EISDIR"]))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_with_a_second_name_outside_can_be_protected() {
    assert_holds_with(&["--hardlinks", "protect"], &[Tier::B], |id, _| {
        (id == "F11").then_some(Expected::Refused(&["EROFS"]))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_with_files_that_have_a_second_name_outside_can_be_refused() {
    for caller in callers() {
        for tier in BOTH_TIERS {
            let fence = open(*tier, Network::None);
            let mut stage = Stage::new(caller, Some(fence)).await;
            let output = stage.output_fenced(fence, &["--hardlinks", "refuse"]).await;
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(125), "{fence}, {caller}: {stderr}");
            assert!(stderr.contains("ringfence: ") && stderr.contains("hint: "), "{stderr}");
            assert!(output.stdout.is_empty(), "something ran");
            stage.finish(&[]).await;
        }
    }
}
