//! Kernel confinement for any command.
//!
//! [`FenceSetup`] is the way in: it vets a scope and makes directories for a session, launches a command there,
//! and cleans up. The [`RunningFence`] it returns serves the command's private network and waits for its end.
//!
//! ```no_run
//! # fn example(settings: &fence::FenceSettings, stdio: fence::Stdio<'_>) -> Result<(), fence::FenceError> {
//! use fence::{CacheChoice, FenceSetup, FencedCommand, HostEnvironment, Launcher, ScopeChoice};
//! use std::time::Duration;
//!
//! let host = HostEnvironment::of_this_process()?;
//! let setup = FenceSetup::new(settings, ScopeChoice::Empty, CacheChoice::Private, &host)?;
//! let command = FencedCommand { program: "/bin/true".into(), ..FencedCommand::default() };
//! let running = setup.launch(&Launcher::new(), command, stdio)?;
//! let ending = running.attend_blocking(Duration::from_secs(60), |error| eprintln!("no network: {error}"))?;
//! for warning in setup.clean_up().warnings() {
//!     eprintln!("{warning}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Below that, a [`Policy`] says what a command may do. [`plan()`] turns it, for the [`Kernel`] of this host, into a
//! [`Plan`] of what each layer does, or into a [`Refusal`]. A [`Launcher`] starts the command inside and returns a
//! [`Fenced`] process with the [`Confinement`] that was really put around it.

mod assessment;
mod confinement;
mod consistency;
pub mod environment;
mod error;
mod executed_later;
mod git_directory;
mod git_settings;
mod host_environment;
mod kernel;
mod link_walk;
mod memory;
mod metadata;
mod mount_table;
mod network;
mod passed_files;
mod paths;
mod placeholders;
mod plan;
mod policy;
mod private_tree;
mod raw_path;
mod refusal;
mod refused_path;
mod reserved;
mod scope_scan;
mod session_directory;
mod settings;
mod setup;
mod staged;
mod stdio;
mod tool_caches;
mod tool_versions;
pub mod toolchain;
mod unfenced;

#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(target_os = "linux")]
mod fd_passing;
#[cfg(target_os = "linux")]
mod handover;
#[cfg(target_os = "linux")]
mod kernel_features;
#[cfg(target_os = "linux")]
mod launch;
#[cfg(target_os = "linux")]
mod launch_request;
#[cfg(target_os = "linux")]
mod launcher_process;
#[cfg(target_os = "linux")]
pub mod nested;
#[cfg(target_os = "linux")]
mod overlay;
#[cfg(target_os = "linux")]
mod peers;
#[cfg(target_os = "linux")]
mod process_table;
#[cfg(target_os = "linux")]
mod running_fence;
#[cfg(target_os = "linux")]
mod spawn;
#[cfg(target_os = "linux")]
mod supervisor_files;
#[cfg(target_os = "linux")]
mod supervisor_registry;

#[cfg(target_os = "macos")]
mod macos;
// A pure function, so it is tested on every system.
#[cfg(any(target_os = "macos", test))]
mod seatbelt;

#[cfg(test)]
mod test_directory;

pub use confinement::{Confinement, Protection, ProtectionName, Status, Verified};
pub use error::{FenceError, FenceSetupError, LaunchError};
pub use executed_later::is_executed_later;
pub use git_directory::{GitLeftOut, each_tracked_file, git_directories_beside};
pub use host_environment::{HostEnvironment, HostFacts};
pub use kernel::{CgroupVersion, Kernel, LimitSupport, Namespaces};
pub use memory::give_back_memory;
pub use metadata::{METADATA, executed_in, is_placeholder_name};
pub use network::{HostPattern, HostPatternError, ProxyReach, proxy_reach};
pub use passed_files::{MAX_PASSED_FILES, PassedFiles};
pub use paths::{
    DeniedKind, DeniedPath, DirectoryIdentity, ReservedPath, ScopeError, VettedDirectory, sensitive_paths,
    vet_scope,
};
pub use placeholders::LingeringPlaceholders;
pub use plan::{Plan, plan};
pub use policy::{
    Allowance, Command, GitChoice, GitDirectory, HardlinkCount, Limit, LimitOrigin, Limits, MetadataChoice,
    Network, Policy, ReadMode, SurroundingTree, Temp, Tier, TierChoice, UnixSockets,
};
pub use refusal::{Refusal, UnmetRequirement};
pub use refused_path::{missing_path, refused_path};
pub use reserved::Reserved;
pub use scope_scan::{PostRunScan, SharedFiles, lexical, shared_files};
pub use session_directory::{CleanUp, OwnDirectory, SessionDirectory, remove_tree};
pub use settings::{CacheChoice, FenceSettings, HardlinkChoice, ReadChoice, ScopeChoice};
pub use setup::FenceSetup;
pub use staged::{MAX_STAGED_TREES, StagedScope, StagedTree, WeakStagedScope};
pub use stdio::{ChildPipes, Pipes, Stdio};
pub use tool_caches::KeptCache;
pub use unfenced::spawn_unfenced;

#[cfg(all(target_os = "linux", any(test, fuzzing)))]
pub use launcher_process::oracle;

#[cfg(target_os = "linux")]
pub use {
    cgroup::LimitHit,
    handover::{PassedSockets, become_program},
    launch::{Ending, Fenced, Launcher, Remote},
    launcher_process::run_if_launcher,
    passed_files::take_passed_files,
    peers::{Peer, Peers},
    process_table::{
        Membership, ProcessStat, all_with_descendants, children_of, membership_of, variable_of,
        with_descendants,
    },
    running_fence::RunningFence,
    setup::FencedCommand,
};

#[cfg(target_os = "macos")]
pub use macos::{SeatbeltCommandError, seatbelt_command, seatbelt_confinement};
