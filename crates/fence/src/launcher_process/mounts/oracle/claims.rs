//! The report of a plan: what it calls configured, even in part, has a step behind it, and nothing was tried yet.

use crate::confinement::{ProtectionName, Status};
use crate::plan::{NetworkNamespace, Plan, ReadPlan};
use crate::policy::{Network, Policy, Temp, Tier, UnixSockets};

pub(super) fn check(policy: &Policy, plan: &Plan) {
    assert_eq!(plan.confinement.tier, plan.tier);
    assert_eq!((plan.steps.tier, plan.steps.seccomp.tier), (plan.tier, plan.tier));
    assert_eq!(plan.steps.seccomp.network, policy.network);
    for &name in ProtectionName::ALL {
        let Some(protection) = plan.confinement.protection(name) else { panic!("{name} is not reported") };
        match protection.status {
            Status::Enforced => panic!("{name} was not tried: {protection:?}"),
            Status::Configured => {
                assert!(has_step(policy, plan, name), "{name} is not configured: {protection:?}");
            }
            Status::Partial | Status::Unenforced => {
                assert!(protection.note.is_some(), "{name} does not say what is missing");
                let is_required = policy.require.contains(&name);
                assert!(!is_required || policy.allow_degraded.contains(&name), "{name} was required");
                let is_partial = protection.status == Status::Partial;
                assert!(!is_partial || has_partial_step(plan, name), "{name} is not enforced at all");
            }
            Status::NotRequested => {}
        }
    }
}

fn has_step(policy: &Policy, plan: &Plan, name: ProtectionName) -> bool {
    use ProtectionName as Name;
    let (steps, landlock, seccomp) = (&plan.steps, &plan.steps.landlock, &plan.steps.seccomp);
    let namespaces = steps.namespaces.as_ref();
    let has_own_network = namespaces.is_some_and(|plan| plan.network != NetworkNamespace::Shared);
    let has_files = namespaces.is_some() || landlock.version > 0;
    match name {
        Name::FsWriteScope => namespaces.is_some() || landlock.version >= 3,
        Name::FsReadScope => match (namespaces, &landlock.read) {
            (Some(plan), _) => {
                !plan.whole_sys && !plan.shown.iter().any(|path| is_root(path) && !lists_root(policy))
            }
            (None, ReadPlan::Only(_)) => landlock.version > 0,
            (None, _) => false,
        },
        Name::DenyRead => match (namespaces, &landlock.read) {
            (Some(plan), _) => plan.masked.is_empty() && plan.denied == policy.deny_read,
            (None, ReadPlan::AllExcept(denied)) => {
                landlock.version > 0 && policy.deny_read.iter().all(|path| denied.contains(&path.path))
            }
            (None, _) => landlock.version > 0,
        },
        Name::ScopeMetadata if policy.read_only => has_files && landlock.read_only == policy.scope,
        Name::FsMetadataWrites | Name::FsMetadataReads | Name::ProcVisibility | Name::ScopeMetadata => {
            namespaces.is_some()
        }
        Name::Tcp => match &policy.network {
            Network::All => false,
            Network::None => true,
            Network::Localhost { .. } | Network::Http { .. } => has_own_network,
            Network::Ports { ports } => landlock.version >= 4 && landlock.tcp_connect.as_ref() == Some(ports),
        },
        Name::Udp => policy.network != Network::All,
        Name::UnixPathname => seccomp.unix_sockets == UnixSockets::Deny || landlock.version >= 9,
        Name::UnixAbstract => {
            seccomp.unix_sockets == UnixSockets::Deny || has_own_network || landlock.version >= 6
        }
        Name::Signals | Name::TreeKill => namespaces.is_some() || landlock.version >= 6,
        Name::Ptrace => !seccomp.debug || has_files,
        Name::NestedUserns => !seccomp.nested_userns,
        Name::DeviceIoctl => landlock.version >= 5,
        Name::TempIsolation => match policy.temp {
            Temp::None => has_files,
            Temp::Private { .. } if plan.tier == Tier::B => {
                namespaces.is_some_and(|plan| plan.temp_bytes.is_some())
            }
            Temp::Private { .. } => landlock.version > 0,
        },
        Name::MemoryLimit => plan.cgroup.memory.is_some(),
        Name::PidLimit => {
            plan.cgroup.processes.is_some() || (namespaces.is_some() && steps.limits.processes.is_some())
        }
        Name::Hardlinks => {
            policy.shared_hardlinks.is_some_and(|count| count.shared == 0 && !count.is_partial)
        }
        // The launcher takes these steps for every plan.
        Name::OtherFamilies
        | Name::SchedControl
        | Name::SysvIpc
        | Name::Keyring
        | Name::IoUring
        | Name::NoNewPrivs
        | Name::Capabilities
        | Name::InheritedFds
        | Name::Environment => true,
    }
}

fn is_root(path: &std::path::Path) -> bool {
    path.parent().is_none()
}

fn lists_root(policy: &Policy) -> bool {
    super::listed(policy).iter().any(|path| is_root(path))
}

fn has_partial_step(plan: &Plan, name: ProtectionName) -> bool {
    use ProtectionName as Name;
    match name {
        Name::FsWriteScope => plan.steps.landlock.version > 0,
        Name::DenyRead => plan.steps.namespaces.as_ref().is_some_and(|plan| !plan.masked.is_empty()),
        Name::PidLimit => plan.steps.limits.processes.is_some(),
        _ => true,
    }
}
