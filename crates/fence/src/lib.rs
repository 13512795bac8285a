//! Kernel confinement for any command.
//!
//! A [`Policy`] says what a command may do. [`plan()`] turns it, for the [`Kernel`] at hand, into a [`Plan`] of
//! what each layer does, or into a [`Refusal`]. A [`Launcher`] starts the command inside and returns a
//! [`Fenced`] process with the [`Confinement`] that was really put around it.

mod assessment;
#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(target_os = "linux")]
mod children;
mod confinement;
mod consistency;
pub mod environment;
mod fence_setup;
mod kernel;
#[cfg(target_os = "linux")]
mod launch;
#[cfg(target_os = "linux")]
mod launcher;
#[cfg(target_os = "macos")]
pub mod macos;
mod membership;
mod memory;
#[cfg(target_os = "linux")]
pub mod nested;
pub mod network;
mod order;
#[cfg(target_os = "linux")]
mod passing;
mod paths;
#[cfg(target_os = "linux")]
mod peers;
mod plan;
mod policy;
mod raw_path;
mod refusal;
pub mod scope_scan;
#[cfg(test)]
mod scratch;
pub mod seatbelt;
mod session_directory;
#[cfg(target_os = "linux")]
mod spawn;
#[cfg(target_os = "linux")]
mod supervisor_registry;
pub mod toolchain;
#[cfg(target_os = "linux")]
mod zygote;

#[cfg(target_os = "linux")]
pub use cgroup::LimitHit;
#[cfg(target_os = "linux")]
pub use children::children_of;
pub use confinement::{Confinement, Protection, ProtectionName, Status, Verified};
pub use fence_setup::{
    CacheChoice, FenceSettings, FenceSetup, FenceSetupError, HardlinkChoice, HostEnvironment, HostFacts,
    ReadChoice, ScopeChoice,
};
pub use kernel::{CgroupVersion, Kernel, LimitSupport, Namespaces};
#[cfg(target_os = "linux")]
pub use launch::{Ending, Fenced, LaunchError, Launcher, Remote, Stdio};
#[cfg(target_os = "linux")]
pub use launcher::run_if_launcher;
pub use membership::{Membership, membership_of};
pub use memory::give_back_memory;
pub use paths::{DeniedKind, DeniedPath, ScopeError, VettedDirectory, sensitive_paths, vet_scope};
#[cfg(target_os = "linux")]
pub use peers::{Peer, Peers};
pub use plan::{Plan, plan};
pub use policy::{
    Allowance, Command, HardlinkCount, Limit, LimitOrigin, Limits, Network, Policy, ReadMode, Temp, Tier,
    TierChoice, UnixSockets,
};
pub use refusal::{Missing, Refusal};
pub use session_directory::{OwnDirectory, SessionDirectory, remove_tree};
