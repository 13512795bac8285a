//! Plans for policies and hosts that are given, not read from this machine.

use super::*;
use crate::confinement::{ProtectionName, Status};
use crate::kernel::{CgroupVersion, LimitSupport};
use crate::policy::Limits;

fn vetted(path: &str) -> VettedDirectory {
    serde_json::from_value(serde_json::json!({"path": path, "device": 1, "inode": 2})).unwrap()
}

pub(crate) fn policy() -> Policy {
    Policy {
        scope: vec![vetted("/srv/project")],
        read_only: false,
        staged: None,
        mirrored: Vec::new(),
        read_write: vec![vetted("/home/u/.cache/ringfence/sessions/1/home")],
        read: ReadMode::Open { also: Vec::new() },
        deny_read: vec![DeniedPath { path: "/home/u/.ssh".into(), kind: DeniedKind::Directory }],
        hidden: vec!["/home/u/.cache/ringfence".into()],
        protected: Vec::new(),
        git: Vec::new(),
        metadata: crate::policy::MetadataChoice::Writable,
        temp: Temp::Private { directory: "/home/u/.cache/ringfence/sessions/1/temp".into(), bytes: 1 << 20 },
        network: Network::All,
        unix_sockets: UnixSockets::Deny,
        allowances: std::collections::BTreeSet::new(),
        limits: Limits::default(),
        tier: TierChoice::Auto,
        allow_degraded: std::collections::BTreeSet::new(),
        require: std::collections::BTreeSet::new(),
        user: None,
        shared_hardlinks: None,
    }
}

fn kernel(landlock: u32, has_namespaces: bool) -> Kernel {
    let missing = || Namespaces::Missing { step: "unshare".to_owned(), reason: "refused".to_owned() };
    Kernel {
        landlock,
        seccomp: true,
        namespaces: if has_namespaces { Namespaces::Available } else { missing() },
        limits: LimitSupport::default(),
        is_root: false,
    }
}

pub(crate) fn tier_b() -> Plan {
    plan(&policy(), &kernel(7, true)).unwrap()
}

fn missing(policy: &Policy, kernel: &Kernel) -> Vec<String> {
    plan(policy, kernel).unwrap_err().unmet.into_iter().map(|unmet| unmet.what).collect()
}

#[test]
fn the_best_tier_is_taken() {
    assert_eq!(plan(&policy(), &kernel(7, true)).unwrap().tier, Tier::B);
    let without = plan(&policy(), &kernel(7, false)).unwrap();
    assert_eq!(without.tier, Tier::A);
    assert!(without.steps.namespaces.is_none());
    let visibility = without.confinement.protection(ProtectionName::ProcVisibility).unwrap();
    assert_eq!(visibility.status, Status::Unenforced);
}

#[test]
fn old_kernels_are_refused_where_the_scope_would_not_hold() {
    // Debian 12 and Ubuntu 22.04 without namespaces.
    for landlock in 0..3 {
        assert!(missing(&policy(), &kernel(landlock, false)).contains(&"fs_write_scope".to_owned()));
        assert!(plan(&policy(), &kernel(landlock, true)).is_ok() || landlock == 0);
    }
    // Ubuntu 24.04: the scope holds, but signals are not confined, and the user must accept that.
    let ubuntu = kernel(4, false);
    assert_eq!(missing(&policy(), &ubuntu), ["signals", "tree_kill"]);
    let accepted =
        Policy { allow_degraded: [ProtectionName::Signals, ProtectionName::TreeKill].into(), ..policy() };
    let planned = plan(&accepted, &ubuntu).unwrap();
    assert_eq!(planned.confinement.protection(ProtectionName::Signals).unwrap().status, Status::Unenforced);
}

#[test]
fn what_needs_a_network_namespace_is_refused_without() {
    for network in [Network::Localhost { ports: vec![80] }, Network::Http { hosts: None }] {
        let policy = Policy { network, ..policy() };
        assert_eq!(missing(&policy, &kernel(9, false)), ["tcp"]);
        assert!(plan(&policy, &kernel(9, true)).is_ok());
    }
    let ports = Policy { network: Network::Ports { ports: vec![443] }, ..policy() };
    assert!(plan(&ports, &kernel(7, false)).is_ok());
    let old = Policy { allow_degraded: [ProtectionName::Signals, ProtectionName::TreeKill].into(), ..ports };
    assert_eq!(missing(&old, &kernel(3, false)), ["tcp"]);
}

#[test]
fn root_needs_namespaces_or_its_own_word() {
    let root = Kernel { is_root: true, ..kernel(7, false) };
    assert_eq!(missing(&policy(), &root), ["root"]);
    assert!(plan(&Policy { allowances: [Allowance::Root].into(), ..policy() }, &root).is_ok());
    assert!(plan(&policy(), &Kernel { is_root: true, ..kernel(7, true) }).is_ok());
}

#[test]
fn a_scope_that_is_only_read_is_not_among_what_may_be_written() {
    let read_only = Policy { read_only: true, ..policy() };
    for has_namespaces in [true, false] {
        let plan = plan(&read_only, &kernel(7, has_namespaces)).unwrap();
        assert_eq!(plan.steps.landlock.read_only, policy().scope);
        assert_eq!(plan.steps.landlock.read_write, policy().read_write);
    }
}

#[test]
fn contradictions_are_refused() {
    let deny = |path: &str| vec![DeniedPath { path: path.into(), kind: DeniedKind::Directory }];
    let around = Policy { deny_read: deny("/srv"), ..policy() };
    assert_eq!(missing(&around, &kernel(7, true)), ["deny_read"]);
    let inside = Policy { deny_read: deny("/srv/project/secrets"), ..policy() };
    assert_eq!(missing(&inside, &kernel(7, false)), ["deny_read"]);
    assert_eq!(missing(&inside, &kernel(7, true)), ["deny_read"], "no mask holds inside a scope");
    let accepted = Policy { allow_degraded: [ProtectionName::DenyRead].into(), ..inside };
    let masked = plan(&accepted, &kernel(7, true)).unwrap();
    assert_eq!(masked.confinement.protection(ProtectionName::DenyRead).unwrap().status, Status::Partial);
    assert_eq!(masked.steps.namespaces.unwrap().masked, accepted.deny_read);
    assert_eq!(missing(&accepted, &kernel(7, false)), ["deny_read"]);
    let both = Policy { read: ReadMode::Open { also: vec!["/home/u/.ssh".into()] }, ..policy() };
    assert_eq!(missing(&both, &kernel(7, true)), ["deny_read"]);
    let in_readable = Policy {
        read: ReadMode::Strict { readable: vec!["/home/u".into()] },
        tier: TierChoice::A,
        ..policy()
    };
    assert_eq!(missing(&in_readable, &kernel(7, true)), ["deny_read"]);
    let protected = Policy { protected: vec!["/srv/project/.git/hooks".into()], ..policy() };
    assert_eq!(missing(&protected, &kernel(7, false)), ["protected paths"]);
    assert_eq!(missing(&Policy { scope: Vec::new(), ..policy() }, &kernel(7, true)), ["scope"]);
}

#[test]
fn a_limit_that_was_asked_for_is_not_optional() {
    let limit = |origin| Limits { memory: Some(Limit { value: 1 << 30, origin }), ..Limits::default() };
    let asked = Policy { limits: limit(LimitOrigin::Asked), ..policy() };
    assert_eq!(missing(&asked, &kernel(7, true)), ["memory_limit"]);
    let default = Policy { limits: limit(LimitOrigin::Default), ..policy() };
    assert!(plan(&default, &kernel(7, true)).is_ok());
    let required = Policy { require: [ProtectionName::MemoryLimit].into(), ..default };
    assert_eq!(missing(&required, &kernel(7, true)), ["memory_limit"]);
    let grouped =
        LimitSupport { version: Some(CgroupVersion::V2), memory: true, processes: true, cpu: false };
    let host = Kernel { limits: grouped, ..kernel(7, true) };
    assert_eq!(plan(&asked, &host).unwrap().cgroup.memory, Some(1 << 30));
    let cpus = Policy { limits: Limits { cpus: Some(1.0), ..Limits::default() }, ..policy() };
    assert_eq!(missing(&cpus, &host), ["cpu limit"]);
}

#[test]
fn one_directory_of_a_hidden_one_can_be_shown() {
    let package = PathBuf::from("/home/u/.cache/ringfence/packages/x/1/tree");
    let readable = vec![package.clone()];
    for read in [ReadMode::Open { also: readable.clone() }, ReadMode::Strict { readable }] {
        let shown = Policy { read, ..policy() };
        let without = plan(&shown, &kernel(7, false)).unwrap();
        assert_eq!(without.steps.landlock.also_readable, std::slice::from_ref(&package));
        if let ReadPlan::AllExcept(denied) = &without.steps.landlock.read {
            assert!(denied.contains(&shown.hidden[0]));
        }
        let namespaces = plan(&shown, &kernel(7, true)).unwrap().steps.namespaces.unwrap();
        assert!(namespaces.shown.contains(&package));
        assert!(namespaces.absent.contains(&shown.hidden[0]));
    }
}

#[test]
fn a_refusal_says_what_to_do() {
    let refusal = plan(&policy(), &kernel(4, false)).unwrap_err();
    assert!(refusal.hint().contains("--allow-degraded signals"), "{}", refusal.hint());
    assert!(!refusal.hint().contains("sysctl"));
}

#[test]
fn unix_sockets_are_open_only_where_something_else_holds() {
    let open = Policy { unix_sockets: UnixSockets::Allow, ..policy() };
    assert_eq!(missing(&open, &kernel(7, true)), ["unix_pathname"]);
    assert!(plan(&open, &kernel(9, true)).is_ok());
    assert!(plan(&Policy { network: Network::None, ..open }, &kernel(7, true)).is_ok());
}

#[test]
fn nothing_is_called_configured_without_a_step_behind_it() {
    // Every gap is accepted, so the report alone says what holds.
    let accepted = Policy { allow_degraded: ProtectionName::ALL.iter().copied().collect(), ..policy() };
    let status = |policy: &Policy, host: &Kernel, name| {
        plan(policy, host).unwrap().confinement.protection(name).unwrap().status
    };
    let (bare, landlocked) = (kernel(0, false), kernel(7, false));
    let debugging = Policy { allowances: [Allowance::Debugging].into(), ..accepted.clone() };
    assert_eq!(status(&debugging, &bare, ProtectionName::Ptrace), Status::Unenforced);
    assert_eq!(status(&debugging, &landlocked, ProtectionName::Ptrace), Status::Configured);
    let without_temp = Policy { temp: Temp::None, ..accepted.clone() };
    for policy in [&accepted, &without_temp] {
        assert_eq!(status(policy, &bare, ProtectionName::TempIsolation), Status::Unenforced);
        assert_eq!(status(policy, &landlocked, ProtectionName::TempIsolation), Status::Configured);
    }
    let read_only = Policy { read_only: true, ..accepted.clone() };
    assert_eq!(status(&read_only, &bare, ProtectionName::ScopeMetadata), Status::Unenforced);
    assert_eq!(status(&read_only, &landlocked, ProtectionName::ScopeMetadata), Status::Configured);
    let limited = |origin| {
        let processes = Some(Limit { value: 64, origin });
        Policy { limits: Limits { processes, ..Limits::default() }, ..accepted.clone() }
    };
    let default = limited(LimitOrigin::Default);
    assert_eq!(plan(&default, &landlocked).unwrap().steps.limits.processes, None);
    assert_eq!(status(&default, &landlocked, ProtectionName::PidLimit), Status::Unenforced);
    assert_eq!(status(&limited(LimitOrigin::Asked), &landlocked, ProtectionName::PidLimit), Status::Partial);
}

#[test]
fn a_denied_path_in_the_temporary_directory_of_tier_a_is_refused() {
    let inside = |path: &str| Policy {
        deny_read: vec![DeniedPath { path: path.into(), kind: DeniedKind::File }],
        allowances: [Allowance::SharedMemory].into(),
        ..policy()
    };
    for path in ["/home/u/.cache/ringfence/sessions/1/temp/secret", "/dev/shm/secret"] {
        assert_eq!(missing(&inside(path), &kernel(7, false)), ["deny_read"], "{path}");
        assert!(plan(&inside(path), &kernel(7, true)).is_ok(), "{path}: new and empty");
    }
}
