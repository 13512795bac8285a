//! Policies and hosts out of a fuzzer's choices.

use std::collections::BTreeSet;
use std::path::PathBuf;

use arbitrary::{Result, Unstructured};

use super::ground::Ground;
use crate::confinement::ProtectionName;
use crate::kernel::{CgroupVersion, Kernel, LimitSupport, Namespaces};
use crate::paths::{DeniedPath, VettedDirectory};
use crate::policy::{
    Allowance, HardlinkCount, Limit, LimitOrigin, Limits, MetadataChoice, Network, Policy, ReadMode, Temp,
    TierChoice, UnixSockets,
};

const ALLOWANCES: &[Allowance] = &[
    Allowance::SharedMemory,
    Allowance::Terminals,
    Allowance::Debugging,
    Allowance::NestedUserns,
    Allowance::Root,
];

pub(super) fn choose(ground: &Ground, choices: &mut Unstructured<'_>) -> Result<(Policy, Kernel)> {
    let kernel = kernel(choices)?;
    let policy = Policy {
        scope: directories(ground, choices)?,
        read_only: choices.ratio(1, 4)?,
        staged: None,
        mirrored: Vec::new(),
        read_write: directories(ground, choices)?,
        read: if choices.arbitrary()? {
            ReadMode::Open { also: paths(ground, choices)? }
        } else {
            ReadMode::Strict { readable: paths(ground, choices)? }
        },
        deny_read: paths(ground, choices)?.iter().flat_map(|path| DeniedPath::resolve(path)).collect(),
        hidden: paths(ground, choices)?,
        protected: if choices.ratio(1, 8)? { paths(ground, choices)? } else { Vec::new() },
        git: Vec::new(),
        metadata: metadata(choices)?,
        temp: if choices.arbitrary()? {
            let directory = choices.choose(&ground.directories)?.path().to_owned();
            Temp::Private { directory, bytes: choices.arbitrary()? }
        } else {
            Temp::None
        },
        network: network(choices)?,
        unix_sockets: *choices.choose(&[UnixSockets::Deny, UnixSockets::Allow])?,
        allowances: some_of(ALLOWANCES, choices)?,
        limits: limits(choices)?,
        tier: *choices.choose(&[TierChoice::Auto, TierChoice::A, TierChoice::B])?,
        allow_degraded: match choices.int_in_range(0..=3)? {
            0 => BTreeSet::new(),
            1 => ProtectionName::ALL.iter().copied().collect(),
            _ => some_of(ProtectionName::ALL, choices)?,
        },
        require: if choices.ratio(1, 8)? { some_of(ProtectionName::ALL, choices)? } else { BTreeSet::new() },
        user: None,
        shared_hardlinks: if choices.arbitrary()? {
            Some(HardlinkCount { shared: choices.int_in_range(0..=2)?, is_partial: choices.arbitrary()? })
        } else {
            None
        },
    };
    Ok((policy, kernel))
}

fn kernel(choices: &mut Unstructured<'_>) -> Result<Kernel> {
    let missing = || Namespaces::Missing { step: "unshare".to_owned(), reason: "refused".to_owned() };
    let version = *choices.choose(&[None, Some(CgroupVersion::V1), Some(CgroupVersion::V2)])?;
    // Without control groups there are no controllers.
    let mut has = || Ok::<bool, arbitrary::Error>(choices.arbitrary()? && version.is_some());
    let limits = LimitSupport { version, memory: has()?, processes: has()?, cpu: has()? };
    Ok(Kernel {
        landlock: choices.int_in_range(0..=10)?,
        seccomp: choices.ratio(31, 32)?,
        namespaces: if choices.ratio(2, 3)? { Namespaces::Available } else { missing() },
        limits,
        is_root: choices.ratio(1, 4)?,
    })
}

fn directories(ground: &Ground, choices: &mut Unstructured<'_>) -> Result<Vec<VettedDirectory>> {
    let count = choices.int_in_range(0..=2)?;
    (0..count).map(|_| choices.choose(&ground.directories).cloned()).collect()
}

fn paths(ground: &Ground, choices: &mut Unstructured<'_>) -> Result<Vec<PathBuf>> {
    let count = choices.int_in_range(0..=4)?;
    (0..count).map(|_| choices.choose(&ground.paths).cloned()).collect()
}

fn some_of<T: Copy + Ord>(all: &[T], choices: &mut Unstructured<'_>) -> Result<BTreeSet<T>> {
    let count = choices.int_in_range(0..=all.len())?;
    (0..count).map(|_| choices.choose(all).copied()).collect()
}

fn metadata(choices: &mut Unstructured<'_>) -> Result<MetadataChoice> {
    Ok(match choices.int_in_range(0..=2)? {
        0 => MetadataChoice::Writable,
        1 => MetadataChoice::Kept { except: BTreeSet::new() },
        _ => MetadataChoice::Kept { except: [".git".to_owned()].into() },
    })
}

fn network(choices: &mut Unstructured<'_>) -> Result<Network> {
    Ok(match choices.int_in_range(0..=4)? {
        0 => Network::All,
        1 => Network::None,
        2 => Network::Localhost { ports: ports(choices)? },
        3 => Network::Http {
            hosts: if choices.arbitrary()? { Some(vec!["example.org".to_owned()]) } else { None },
        },
        _ => Network::Ports { ports: ports(choices)? },
    })
}

fn ports(choices: &mut Unstructured<'_>) -> Result<Vec<u16>> {
    let count = choices.int_in_range(0..=2)?;
    (0..count).map(|_| choices.arbitrary()).collect()
}

fn limits(choices: &mut Unstructured<'_>) -> Result<Limits> {
    Ok(Limits {
        memory: limit(choices)?,
        processes: limit(choices)?,
        cpus: if choices.ratio(1, 8)? { Some(1.5) } else { None },
        open_files: choices.arbitrary()?,
        file_size: choices.arbitrary()?,
    })
}

fn limit(choices: &mut Unstructured<'_>) -> Result<Option<Limit<u64>>> {
    let origin = *choices.choose(&[None, Some(LimitOrigin::Asked), Some(LimitOrigin::Default)])?;
    Ok(origin.map(|origin| Limit { value: 64, origin }))
}
