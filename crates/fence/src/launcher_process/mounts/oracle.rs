//! What must hold for any policy on any host, from the plan to the mounts. Called by the fuzz target `plan` and, with
//! the corpus that it kept, by a test.
//!
//! The policies speak of a small tree of files that really exists, with links in it, because the survey of what a root
//! shows looks at the host.

mod claims;
mod ground;
mod policies;

use std::path::{Path, PathBuf};

use arbitrary::Unstructured;

use self::ground::{Ground, ground};
use super::{Shown, survey};
use crate::confinement::{ProtectionName, Status};
use crate::launcher_process::reads::{self, Denied, FoundKind};
use crate::plan::{Plan, ReadPlan, is_visible, plan};
use crate::policy::{Allowance, Policy, ReadMode, Temp, Tier};

/// Panics if a plan or its mounts break a promise on this input.
pub fn check(data: &[u8]) {
    let ground = ground();
    let mut choices = Unstructured::new(data);
    let Ok((policy, kernel)) = policies::choose(ground, &mut choices) else { return };
    match plan(&policy, &kernel) {
        Err(refusal) => {
            assert!(refusal.unmet.iter().all(|unmet| !unmet.reason.is_empty() && !unmet.remedy.is_empty()));
            assert!(!refusal.unmet.is_empty());
        }
        Ok(plan) => {
            check_denied_in_scope(&policy, &plan);
            check_writable(&policy, &plan);
            claims::check(&policy, &plan);
            match plan.tier {
                Tier::A => check_reads_of_tier_a(ground, &policy, &plan),
                Tier::B => check_reads_of_tier_b(ground, &policy, &plan),
            }
        }
    }
}

/// What is denied inside a directory that can be written is never called denied for good.
fn check_denied_in_scope(policy: &Policy, plan: &Plan) {
    if policy.deny_read.iter().any(|denied| is_visible(policy, &denied.path)) {
        assert_eq!(status(plan, ProtectionName::DenyRead), Status::Partial);
        assert!(policy.allow_degraded.contains(&ProtectionName::DenyRead));
    }
}

fn status(plan: &Plan, name: ProtectionName) -> Status {
    let Some(protection) = plan.confinement.protection(name) else { panic!("{name} is not reported") };
    protection.status
}

/// Nothing can be written but the scope, what is listed beside it, and temporary files.
fn check_writable(policy: &Policy, plan: &Plan) {
    let landlock = &plan.steps.landlock;
    for root in &landlock.read_write {
        let is_listed = policy.read_write.contains(root);
        assert!(is_listed || (policy.scope.contains(root) && !policy.read_only), "{}", root.path().display());
    }
    assert!(landlock.read_only.iter().all(|root| policy.scope.contains(root)));
    for path in &landlock.writable_temp {
        let is_own = match &policy.temp {
            Temp::Private { directory, .. } if plan.tier == Tier::A => path == directory,
            Temp::Private { .. } => super::TEMPORARY.iter().any(|temp| path == Path::new(temp)),
            Temp::None => false,
        };
        let is_shared_memory = policy.allows(Allowance::SharedMemory) && path == Path::new("/dev/shm");
        assert!(is_own || is_shared_memory, "{}", path.display());
    }
    let namespaces = plan.steps.namespaces.as_ref();
    assert_eq!(namespaces.is_some(), plan.tier == Tier::B);
    let protected = namespaces.map_or(&[][..], |namespaces| &namespaces.protected);
    assert_eq!(protected, policy.protected, "what is to stay as it is");
}

/// The paths that a policy lists for reading, as they are written.
fn listed(policy: &Policy) -> &[PathBuf] {
    let (ReadMode::Open { also: listed } | ReadMode::Strict { readable: listed }) = &policy.read;
    listed
}

/// Whether a file may be read though it is denied: of every denied path above it, the policy lists something below.
fn is_named(policy: &Policy, file: &Path) -> bool {
    let roots = policy.scope.iter().chain(&policy.read_write).map(|root| root.path().to_owned());
    let temp = match &policy.temp {
        Temp::Private { directory, .. } => Some(directory.clone()),
        Temp::None => None,
    };
    // Where links lead counts as written: the way there must lie below the denied path too.
    let listed = listed(policy).iter().map(|path| (path.clone(), path.canonicalize().unwrap_or_default()));
    let named: Vec<(PathBuf, PathBuf)> =
        listed.chain(roots.chain(temp).map(|path| (path.clone(), path))).collect();
    policy.deny_read.iter().filter(|denied| file.starts_with(&denied.path)).all(|denied| {
        let is_below = |path: &Path| path.starts_with(&denied.path) && path != denied.path;
        named.iter().any(|(written, real)| is_below(written) && is_below(real) && file.starts_with(real))
    })
}

fn check_reads_of_tier_b(ground: &Ground, policy: &Policy, plan: &Plan) {
    let Some(namespaces) = &plan.steps.namespaces else { panic!("Tier B has namespaces") };
    let Ok(Shown { readable, links }) = survey(namespaces, &plan.steps) else { return };
    let roots = || plan.steps.landlock.read_write.iter().chain(&plan.steps.landlock.read_only);
    for file in &ground.files {
        let is_denied = policy.deny_read.iter().any(|denied| file.starts_with(&denied.path));
        let is_masked = namespaces.masked.iter().any(|masked| file.starts_with(&masked.path));
        // What can be written is mounted over what is shown.
        let is_in_root = roots().any(|root| file.starts_with(root.path()));
        let is_shown =
            if is_in_root { !is_masked } else { readable.keys().any(|tree| file.starts_with(tree)) };
        assert!(
            !(is_shown && is_denied) || is_named(policy, file),
            "{} is shown: {policy:?}",
            file.display()
        );
    }
    for path in readable.keys().chain(links.keys()) {
        let is_writable = roots().any(|root| path.starts_with(root.path()));
        assert!(!is_writable, "{} is the command's own", path.display());
        let above = path.ancestors().skip(1).find(|above| readable.contains_key(*above));
        assert_eq!(above, None, "{} is shown twice", path.display());
    }
}

fn check_reads_of_tier_a(ground: &Ground, policy: &Policy, plan: &Plan) {
    let landlock = &plan.steps.landlock;
    if landlock.version == 0
        || listed(policy).iter().any(|path| path.canonicalize().ok().as_ref() != Some(path))
    {
        // Links on a list are followed before a policy is made.
        return;
    }
    let mut granted: Vec<PathBuf> = landlock.also_readable.clone();
    granted.extend(landlock.read_write.iter().chain(&landlock.read_only).map(|root| root.path().to_owned()));
    granted.extend(landlock.writable_temp.iter().cloned());
    match &landlock.read {
        ReadPlan::OwnRoot => panic!("Tier A has no root of its own"),
        ReadPlan::Only(paths) => granted.extend(paths.iter().cloned()),
        ReadPlan::AllExcept(denied) => {
            let denied = Denied::of(denied.iter().map(PathBuf::as_path));
            let walked = reads::all_except(Path::new("/"), &denied, &mut |found| {
                if let FoundKind::Tree { .. } = found.kind {
                    granted.push(found.path);
                }
                Ok(())
            });
            assert!(walked.is_ok());
        }
    }
    for file in &ground.files {
        let is_denied = policy.deny_read.iter().any(|denied| file.starts_with(&denied.path));
        let is_granted = granted.iter().any(|tree| file.starts_with(tree));
        assert!(
            !(is_granted && is_denied) || is_named(policy, file),
            "{} is granted: {policy:?}",
            file.display()
        );
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_fuzzing_kept_of_policies_is_planned_as_promised() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/plan");
        let mut files = 0;
        for file in std::fs::read_dir(corpus).unwrap() {
            super::check(&std::fs::read(file.unwrap().path()).unwrap());
            files += 1;
        }
        assert!(files > 0);
    }
}
