//! The expected outcome of every attempt in each kind of fence and without one. The tables are in `rows.rs`;
//! `ringfence-attacker` implements the rows under the same ids.
//!
//! Tier B has private, writable temporary directories, so F36–F38 work
//! there and must leave nothing on the host. The default deny list is on, so R01, R02, R05 and R06 are refused
//! in Tier A too. In the network modes `all` and `ports`, Tier B has no network namespace.

use std::fmt;

use super::ground::Caller;
use super::rows::{DENIED, FILTERED, GAINS_NOTHING, NETWORK_ROWS, ROWS, UNKNOWN_CALL};

/// The expected outcome of one attempt.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    /// Fails with one of these errors, and changes nothing.
    Refused(&'static [&'static str]),
    /// Succeeds, and has its effect if that can be observed.
    Works,
    /// As [`Self::Works`], and the report says that this protection is not enforced.
    WorksAndIsReported(&'static str),
    /// Succeeds inside without any effect outside.
    WorksInPrivate,
    /// May succeed or fail inside, but must not hang or have any effect outside.
    ReachesNothing,
    /// The attacker is killed by this signal, and nothing changes.
    Killed(i32),
}

use Expected::{ReachesNothing, Refused, Works};

#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    pub(super) tier: Tier,
    pub(super) network: Network,
    pub(super) read_mode: ReadMode,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Tier {
    A,
    B,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Network {
    All,
    None,
    /// With the victim's allowed port mirrored.
    Localhost,
    /// The same mode, with no port of the host mirrored.
    Loopback,
    Http,
    /// Only the victim's allowed port.
    Ports,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ReadMode {
    Open,
    Strict,
}

impl Tier {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

impl Network {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::None => "none",
            Self::Localhost | Self::Loopback => "localhost",
            Self::Http => "http",
            Self::Ports => "ports",
        }
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reads = match self.read_mode {
            ReadMode::Open => "open",
            ReadMode::Strict => "strict",
        };
        write!(f, "tier {}, network {}, {reads} reads", self.tier.name(), self.network.name())
    }
}

/// The ids of all rows, in alphabetical order.
pub(super) fn all_ids() -> Vec<&'static str> {
    let of_tiers = ROWS.iter().map(|(id, ..)| *id);
    let mut ids: Vec<&str> = of_tiers.chain(NETWORK_ROWS.iter().map(|(id, _)| *id)).collect();
    ids.sort_unstable();
    ids
}

pub(super) fn expected_in(id: &str, fence: Fence, caller: Caller) -> Expected {
    if let Some(expected) = by_mode(id, fence, caller) {
        return expected;
    }
    if let Some((_, tier_a, tier_b)) = ROWS.iter().find(|(row, ..)| *row == id) {
        return match fence.tier {
            Tier::A => *tier_a,
            Tier::B => *tier_b,
        };
    }
    let (_, [none, all, ports, private]) = NETWORK_ROWS.iter().find(|(row, _)| *row == id).unwrap();
    match fence.network {
        Network::None => *none,
        Network::All => *all,
        Network::Ports => *ports,
        Network::Localhost | Network::Loopback | Network::Http => *private,
    }
}

/// The outcome of a row that a read mode, a mirrored port or a caller changes.
fn by_mode(id: &str, fence: Fence, caller: Caller) -> Option<Expected> {
    match (id, fence) {
        // Emptying the bounding set takes a privilege (CAP_SETPCAP) that a plain user lacks in Tier A.
        ("K15b", Fence { tier: Tier::A, .. }) if !caller.is_root() => Some(Refused(&["none"])),
        ("F30" | "F45" | "F46" | "F48" | "F51" | "X5", Fence { read_mode: ReadMode::Strict, .. }) => {
            Some(Refused(&["EACCES", "ENOENT"]))
        }
        ("N23", Fence { network: Network::Localhost, .. }) => Some(Works),
        _ => None,
    }
}

/// The positive control: every attempt succeeds, except those that the kernel allows to no process or only to root.
pub(super) fn expected_without_fence(id: &str, caller: Caller) -> Expected {
    match id {
        // This kernel has no x32.
        "N22" => UNKNOWN_CALL,
        // These check properties that hold only inside a fence.
        "K14" | "K15b" => Refused(&["none"]),
        "K15" if caller.is_root() => Refused(&["none"]),
        "F32" | "N05" | "N06" | "N33" | "W8" | "K04" | "K05" | "K06" | "K07" | "K17" | "K19" | "K26"
        | "K28" | "K29" | "K30" | "K33" | "F49" | "D07" | "P23" | "P32"
            if !caller.is_root() =>
        {
            FILTERED
        }
        "D01" | "D02" | "D03" | "D04" | "D05" | "D06" | "Q13" if !caller.is_root() => DENIED,
        "Q11" if !caller.is_root() => Refused(&["EACCES", "EPERM"]),
        // A kernel setting decides whether unprivileged processes may.
        "K13" | "K21" | "K31" if !caller.is_root() => ReachesNothing,
        // Only root can prepare these.
        "X1" | "X2" if caller == Caller::Own => GAINS_NOTHING,
        _ => Works,
    }
}
