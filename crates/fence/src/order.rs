//! What passes between the parent and its launcher: the order through one descriptor, events through
//! another. Nothing of it is on the command line or in the environment, where others could read it.

use std::os::fd::RawFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::confinement::ProtectionName;
use crate::plan::Steps;
use crate::raw_path::{self, Raw};

/// The argument that makes the binary a launcher.
pub(crate) const LAUNCH_ARGUMENT: &str = "fence-launch";
/// The argument that makes it try what this host offers.
pub(crate) const PROBE_ARGUMENT: &str = "fence-probe";

/// The argument that makes it a launcher that waits for orders.
pub(crate) const ZYGOTE_ARGUMENT: &str = "fence-zygote";

/// Where a waiting launcher gets its orders.
pub(crate) const ZYGOTE_FD: RawFd = 3;
/// The most descriptors that a launcher is started with.
pub(crate) const MAX_PASSED: usize = 16;

/// Descriptors that a launcher is started with.
pub(crate) const ORDER_FD: RawFd = 3;
pub(crate) const EVENTS_FD: RawFd = 4;
/// Readable when the tree must end: the parent closed it, or is no more.
pub(crate) const LIFELINE_FD: RawFd = 5;
/// Listeners go back through it.
pub(crate) const LISTENERS_FD: RawFd = 6;
/// The first of the control groups to join.
pub(crate) const CGROUP_FD: RawFd = 7;

/// An event is written with one system call, which the kernel keeps whole up to this size.
pub(crate) const MAX_EVENT: usize = 4096;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) steps: Steps,
    /// `None`: only the fence is tried.
    pub(crate) command: Option<OrderedCommand>,
    pub(crate) parent: i32,
    /// The caller's, for the command.
    pub(crate) umask: u32,
    pub(crate) cgroups: usize,
    pub(crate) canaries: Canaries,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OrderedCommand {
    #[serde(with = "raw_path")]
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<Raw>,
    pub(crate) environment: Vec<(Raw, Raw)>,
    #[serde(with = "raw_path")]
    pub(crate) directory: PathBuf,
}

/// What the launcher tries in vain before it starts the command.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Canaries {
    /// A directory outside, where a file must not be creatable.
    #[serde(with = "raw_path")]
    pub(crate) outside: PathBuf,
    /// A denied path that is there.
    pub(crate) denied: Option<DeniedCanary>,
    /// Also try the system calls of other architectures, which costs a process.
    pub(crate) foreign_calls: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DeniedCanary {
    #[serde(with = "raw_path")]
    pub(crate) path: PathBuf,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    /// The process that waits for the command, as the parent sees it.
    Supervisor {
        pid: i32,
    },
    /// All layers are on, and these were tried.
    Confined {
        shown: Vec<ProtectionName>,
    },
    Started,
    /// Nothing ran.
    Refused {
        step: String,
        reason: String,
    },
    ExecFailed {
        errno: i32,
    },
    Ended {
        code: Option<i32>,
        signal: Option<i32>,
    },
}
