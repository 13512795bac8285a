//! Refuses policies that contradict themselves, or that a tier cannot express to the kernel. Pure, like the plan.

use std::path::Path;

use crate::confinement::ProtectionName;
use crate::plan::{ReadPlan, is_visible, read_plan, writable_temp};
use crate::policy::{Network, Policy, Tier};
use crate::refusal::{Refusal, namespace_remedy};

pub(crate) fn check(policy: &Policy, tier: Tier) -> Result<(), Refusal> {
    if policy.scope.is_empty() {
        return Err(Refusal::of("scope", "no directory was named", "name one with --scope DIR"));
    }
    if tier == Tier::A && policy.staged.is_some() {
        let reason = "a copy of the scope cannot take its place without a mount namespace";
        return Err(Refusal::of("staged scope", reason, namespace_remedy()));
    }
    if policy.user.is_some() && policy.staged.is_some() {
        let reason =
            "a copy of the scope belongs to the user that runs ringfence, and the command runs as another";
        return Err(Refusal::of("staged scope", reason, "leave --principal-uids out"));
    }
    for denied in &policy.deny_read {
        if let Some(root) = policy.scope.iter().find(|root| root.path().starts_with(&denied.path)) {
            return Err(Refusal::of(
                "deny_read",
                format!(
                    "{} is to be written, but {} must not be read",
                    root.path().display(),
                    denied.path.display()
                ),
                "name another scope, or take the path off the list with --allow-sensitive-reads",
            ));
        }
        // In Tier B the temporary directories are new and empty.
        let is_temporary = || writable_temp(policy, tier).iter().any(|temp| denied.path.starts_with(temp));
        if is_visible(policy, &denied.path) || (tier == Tier::A && is_temporary()) {
            check_denied_in_scope(policy, &denied.path, tier)?;
        }
    }
    check_readable(policy, tier)?;
    for protected in &policy.protected {
        if tier == Tier::A {
            return Err(Refusal::of(
                "protected paths",
                format!(
                    "{} cannot be read-only inside a writable scope without a mount namespace",
                    protected.display()
                ),
                "use --tier b where the host allows it",
            ));
        }
        if policy.read_only || !is_visible(policy, protected) {
            return Err(Refusal::of(
                "protected paths",
                format!("{} is not inside the scope", protected.display()),
                "everything outside the scope is read-only already",
            ));
        }
    }
    check_network(policy, tier)
}

/// A part of a writable directory cannot be denied for good. A mount over it is lost when a program outside replaces
/// the file, as editors do when they save, and does not cover a file that is made later.
fn check_denied_in_scope(policy: &Policy, denied: &Path, tier: Tier) -> Result<(), Refusal> {
    let is_accepted = policy.allow_degraded.contains(&ProtectionName::DenyRead);
    if tier == Tier::B && is_accepted {
        return Ok(());
    }
    let remedy = "name a narrower scope, or take the path off the list with --allow-sensitive-reads";
    let remedy = match tier {
        Tier::A => remedy.to_owned(),
        Tier::B => format!(
            "{remedy}; --allow-degraded deny_read covers it for as long as no program outside replaces the file"
        ),
    };
    Err(Refusal::of(
        "deny_read",
        format!("{} lies inside the scope or what may be written", denied.display()),
        remedy,
    ))
}

/// In Tier A a denied path inside a readable one can only be kept out where the readable one is expanded.
fn check_readable(policy: &Policy, tier: Tier) -> Result<(), Refusal> {
    let (plan, listed) = read_plan(policy);
    if let Some(both) = listed.iter().find(|path| policy.deny_read.iter().any(|denied| denied.path == **path))
    {
        return Err(Refusal::of(
            "deny_read",
            format!("{} is to be read and must not be read", both.display()),
            "drop one of the two, or take the path off the default list with --allow-sensitive-reads",
        ));
    }
    if tier == Tier::B {
        return Ok(());
    }
    let system = match plan {
        ReadPlan::Only(paths) => paths,
        ReadPlan::AllExcept(_) | ReadPlan::OwnRoot => Vec::new(),
    };
    for readable in listed.iter().chain(&system) {
        if let Some(denied) = policy.deny_read.iter().find(|denied| denied.path.starts_with(readable)) {
            return Err(Refusal::of(
                "deny_read",
                format!("{} lies inside {}, which is to be read", denied.path.display(), readable.display()),
                "name a narrower --read, take the path off the list with --allow-sensitive-reads, or use --tier b",
            ));
        }
    }
    Ok(())
}

fn check_network(policy: &Policy, tier: Tier) -> Result<(), Refusal> {
    if policy.network.needs_namespace() && tier == Tier::A {
        return Err(Refusal::of(
            "tcp",
            format!(
                "network mode {} needs a network namespace, which Tier A does not have",
                policy.network.name()
            ),
            format!("{}; or use --net none, or --net ports for a filter by port alone", namespace_remedy()),
        ));
    }
    if let Network::Ports { ports } | Network::Localhost { ports } = &policy.network
        && ports.contains(&0)
    {
        return Err(Refusal::of("network", "port 0 is not a port", "name ports from 1 to 65535"));
    }
    if matches!(&policy.network, Network::Ports { ports } if ports.is_empty()) {
        return Err(Refusal::of(
            "network",
            "mode ports without a port",
            "name one with --port, or use --net none",
        ));
    }
    Ok(())
}
