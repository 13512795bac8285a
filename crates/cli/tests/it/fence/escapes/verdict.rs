//! Compares the outcomes of the attempts with the expected ones.

use serde_json::Value;
use testkit::{AttackOutcome, AttackResult};

use super::expected::Expected;

/// One attempt with its observed effect and its expected outcome.
pub(super) struct Finding<'a> {
    pub(super) result: &'a AttackResult,
    /// Whether something changed outside; `None` if the effect cannot be observed.
    pub(super) effect: Option<bool>,
    pub(super) expected: Expected,
}

/// Describes each unexpected outcome in one line. `report` is the fence's own report.
pub(super) fn surprises(title: &str, findings: &[Finding<'_>], report: Option<&Value>) -> Vec<String> {
    let told = |finding: &Finding<'_>| {
        let why = surprise(finding, report)?;
        let Finding { result, effect, expected } = finding;
        let AttackResult { id, outcome, detail } = result;
        let was = format!("{outcome:?}, effect {effect:?}, {detail:?}");
        Some(format!("{title}: {id:4} {why}: {was}; expected {expected:?}"))
    };
    findings.iter().filter_map(told).collect()
}

fn surprise(finding: &Finding<'_>, report: Option<&Value>) -> Option<&'static str> {
    let Finding { result, effect, expected } = finding;
    let is_allowed = result.outcome == AttackOutcome::Allowed;
    match expected {
        Expected::Works | Expected::WorksAndIsReported(_) | Expected::WorksInPrivate if !is_allowed => {
            Some("did not work")
        }
        Expected::Works | Expected::WorksAndIsReported(_) if *effect == Some(false) => Some("had no effect"),
        Expected::WorksAndIsReported(name) if is_enforced(report, name) => Some("is not reported"),
        Expected::Works | Expected::WorksAndIsReported(_) => None,
        _ if *effect == Some(true) => Some("ESCAPED"),
        Expected::WorksInPrivate => None,
        Expected::ReachesNothing => (result.outcome == AttackOutcome::Hung).then_some("hung"),
        Expected::Refused(errors) => match &result.outcome {
            AttackOutcome::Refused { errno } if errors.contains(&errno.as_str()) => None,
            AttackOutcome::Refused { .. } => Some("another error"),
            _ => Some("not refused"),
        },
        Expected::Killed(signal) => {
            (result.outcome != AttackOutcome::Killed { signal: *signal }).then_some("not killed")
        }
    }
}

/// Whether the report claims that a protection holds, or does not mention it.
fn is_enforced(report: Option<&Value>, name: &str) -> bool {
    let Some(report) = report else { return false };
    let protections = report["protections"].as_array().expect("a report lists protections");
    let status = protections.iter().find(|protection| protection["name"] == name);
    status.is_none_or(|protection| protection["status"] == "enforced" || protection["status"] == "configured")
}
