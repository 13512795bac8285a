//! Tries the canaries where there is no fence. Each must notice, for every shape of policy: a canary that passes here
//! shows nothing, and what it speaks of must not be called enforced.

use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use super::*;
use crate::confinement::Status;
use crate::kernel::{CgroupVersion, Kernel, LimitSupport, Namespaces};
use crate::launch_request::{Canaries, HostIdentity, RequestedGroup};
use crate::launcher_process::process_attributes;
use crate::paths::{DeniedKind, DeniedPath, VettedDirectory};
use crate::plan::{Plan, plan};
use crate::policy::{
    Allowance, HardlinkCount, Limit, LimitOrigin, Limits, MetadataChoice, Network, Policy, ReadMode, Temp,
    TierChoice, UnixSockets,
};

struct Ground {
    scope: PathBuf,
    outside: PathBuf,
    secret: PathBuf,
    hook: PathBuf,
}

impl Ground {
    fn new(name: &str) -> Self {
        let base = crate::test_directory::directory(name);
        let made = |name: &str| {
            std::fs::create_dir(base.join(name)).unwrap();
            base.join(name)
        };
        let ground = Self {
            scope: made("scope"),
            outside: made("outside"),
            secret: base.join("secret"),
            hook: base.join("scope/hook"),
        };
        std::fs::write(&ground.secret, "secret").unwrap();
        std::fs::write(&ground.hook, "").unwrap();
        ground
    }

    fn policy(&self) -> Policy {
        Policy {
            scope: vec![vetted(&self.scope)],
            read_only: false,
            staged: None,
            mirrored: Vec::new(),
            read_write: Vec::new(),
            read: ReadMode::Open { also: Vec::new() },
            deny_read: vec![DeniedPath { path: self.secret.clone(), kind: DeniedKind::File }],
            hidden: vec![self.outside.clone()],
            protected: Vec::new(),
            git: Vec::new(),
            metadata: MetadataChoice::Kept { except: std::collections::BTreeSet::new() },
            temp: Temp::Private { directory: self.scope.join("temp"), bytes: 1 << 20 },
            network: Network::All,
            unix_sockets: UnixSockets::Deny,
            allowances: [Allowance::Root].into(),
            limits: Limits::default(),
            tier: TierChoice::Auto,
            allow_degraded: Name::ALL.iter().copied().collect(),
            require: std::collections::BTreeSet::new(),
            user: None,
            shared_hardlinks: None,
        }
    }

    fn request(&self, plan: &Plan) -> LaunchRequest {
        let mut steps = plan.steps.clone();
        if let Some(namespaces) = &mut steps.namespaces {
            namespaces.protected.push(self.hook.clone());
        }
        LaunchRequest {
            steps,
            command: None,
            parent: rustix::process::getpid().as_raw_nonzero().get(),
            umask: 0o022,
            cgroups: 0,
            mounts: 0,
            files: 0,
            group: Some(RequestedGroup {
                name: "ringfence-0-0".to_owned(),
                limits: vec![Name::MemoryLimit, Name::PidLimit],
            }),
            canaries: Canaries {
                outside: self.outside.clone(),
                denied: plan.denied.clone(),
                foreign_calls: false,
                host: HostIdentity::read().unwrap(),
            },
        }
    }
}

fn vetted(path: &Path) -> VettedDirectory {
    let found = path.metadata().unwrap();
    serde_json::from_value(serde_json::json!({"path": path, "device": found.dev(), "inode": found.ino()}))
        .unwrap()
}

fn kernel(landlock: u32, has_namespaces: bool, is_root: bool, has_groups: bool) -> Kernel {
    let missing = || Namespaces::Missing { step: "unshare".to_owned(), reason: "refused".to_owned() };
    let grouped = LimitSupport { version: Some(CgroupVersion::V2), memory: true, processes: true, cpu: true };
    Kernel {
        landlock,
        seccomp: true,
        namespaces: if has_namespaces { Namespaces::Available } else { missing() },
        limits: if has_groups { grouped } else { LimitSupport::default() },
        is_root,
    }
}

/// Every kind of host: both tiers, root and plain, kernels with more and less.
fn hosts() -> Vec<Kernel> {
    let mut hosts = Vec::new();
    for landlock in [0, 4, 7, 9] {
        for has_namespaces in [false, true] {
            for is_root in [false, true] {
                hosts.extend([false, true].map(|groups| kernel(landlock, has_namespaces, is_root, groups)));
            }
        }
    }
    hosts
}

/// A change that makes another shape of a policy.
type Variation = fn(&mut Policy);

const NETWORKS: &[Variation] = &[
    |policy| policy.network = Network::All,
    |policy| policy.network = Network::None,
    |policy| policy.network = Network::Localhost { ports: vec![80] },
    |policy| policy.network = Network::Http { hosts: None },
    |policy| policy.network = Network::Ports { ports: vec![443] },
];

const VARIATIONS: &[Variation] = &[
    |_| {},
    |policy| policy.read = ReadMode::Strict { readable: Vec::new() },
    |policy| policy.read_only = true,
    |policy| policy.metadata = MetadataChoice::Writable,
    |policy| policy.temp = Temp::None,
    |policy| policy.unix_sockets = UnixSockets::Allow,
    |policy| policy.deny_read = Vec::new(),
    |policy| policy.deny_read.iter_mut().for_each(|denied| denied.kind = DeniedKind::Missing),
    |policy| {
        policy.allowances.extend([Allowance::Debugging, Allowance::NestedUserns, Allowance::SharedMemory]);
    },
    |policy| policy.shared_hardlinks = Some(HardlinkCount { shared: 0, is_partial: false }),
    |policy| {
        let limit = |value| Some(Limit { value, origin: LimitOrigin::Asked });
        policy.limits = Limits { memory: limit(1 << 30), processes: limit(64), ..Limits::default() };
    },
];

/// Calls `each` for every shape of policy that some kind of host can have.
fn for_every_shape(ground: &Ground, mut each: impl FnMut(&Policy, &Kernel, &Plan)) {
    let mut shapes = 0;
    for host in hosts() {
        for network in NETWORKS {
            for vary in VARIATIONS {
                let mut policy = ground.policy();
                network(&mut policy);
                vary(&mut policy);
                // What a tier cannot express is refused.
                if let Ok(plan) = plan(&policy, &host) {
                    shapes += 1;
                    each(&policy, &host, &plan);
                }
            }
        }
    }
    assert!(shapes > 1000, "{shapes}");
}

/// Keeps a second thread alive, because a process with one could really leave its user namespace.
fn with_another_thread(body: impl FnOnce()) {
    let (done, wait) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || wait.recv());
        body();
        drop(done);
    });
}

#[test]
fn without_a_fence_every_canary_notices_whatever_the_policy_is() {
    let ground = Ground::new("canaries-outside");
    let leaked = std::fs::File::open(&ground.secret).unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    assert!(leaked.as_raw_fd() > 2);
    let is_plain = rustix::thread::capabilities(None).unwrap().permitted.is_empty();
    with_another_thread(|| {
        for_every_shape(&ground, |policy, host, plan| {
            let request = ground.request(plan);
            for canary in BEFORE_FILTER.iter().chain(BEHIND_FILTER) {
                for name in canary(&request).unwrap_or_default() {
                    // A plain process has none to begin with.
                    let holds_anyway = *name == Name::Capabilities && is_plain;
                    assert!(holds_anyway, "{name} is not really tried: {policy:?} on {host:?}");
                }
            }
            assert!(process_attributes::join_cgroups(&request).unwrap().is_empty());
        });
    });
}

#[test]
fn no_protection_is_called_enforced_before_it_was_tried() {
    let ground = Ground::new("canaries-report");
    for_every_shape(&ground, |policy, host, plan| {
        let mut report = plan.confinement.clone();
        let is_enforced = report.protections.iter().any(|one| one.status == Status::Enforced);
        assert!(!is_enforced, "{policy:?} on {host:?}");
        let configured: Vec<Name> = report
            .protections
            .iter()
            .filter(|one| one.status == Status::Configured)
            .map(|one| one.name)
            .collect();
        report.confirm(Name::ALL);
        for one in &report.protections {
            let may_be = configured.contains(&one.name);
            assert_eq!(one.status == Status::Enforced, may_be, "{}: {policy:?} on {host:?}", one.name);
        }
    });
}
