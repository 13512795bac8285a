//! What the parent and the launcher send each other: a request through one descriptor, events through another.
//! Nothing is on the command line or in the environment, where other processes could read it.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::confinement::{Confinement, ProtectionName};
use crate::passed_files::{self, PassedFiles};
use crate::plan::{NetworkNamespace, Steps};
use crate::raw_path::{self, Raw};

/// The argument that starts the binary as a launcher.
pub(crate) const LAUNCH_ARGUMENT: &str = "fence-launch";
/// The argument that starts it to find out what this host offers.
pub(crate) const PROBE_ARGUMENT: &str = "fence-probe";
/// The argument that starts it as a zygote.
pub(crate) const ZYGOTE_ARGUMENT: &str = "fence-zygote";

/// The descriptor at which a zygote receives requests.
pub(crate) const ZYGOTE_FD: RawFd = 3;
/// The most descriptors that a launcher is started with.
pub(crate) const MAX_PASSED: usize = 20;

/// What a zygote may have built ahead for a launch: namespaces with a root in them. Sent as one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    Nothing = 0,
    /// In the network of the host.
    HostNetwork = 1,
    /// In a network of its own.
    OwnNetwork = 2,
}

impl Ahead {
    pub(crate) fn of(steps: &Steps) -> Self {
        match (&steps.namespaces, steps.user) {
            // The maps of another user are written for that user alone.
            (None, _) | (_, Some(_)) => Self::Nothing,
            (Some(plan), None) if plan.network == NetworkNamespace::Shared => Self::HostNetwork,
            (Some(_), None) => Self::OwnNetwork,
        }
    }
}

/// The descriptors that a launcher is started with.
pub(crate) const REQUEST_FD: RawFd = 3;
pub(crate) const EVENTS_FD: RawFd = 4;
/// Readable when the tree must end: the parent has closed it or has ended.
pub(crate) const LIFELINE_FD: RawFd = 5;
/// The launcher sends listeners back through it.
pub(crate) const LISTENERS_FD: RawFd = 6;
/// The first of the control groups to join.
pub(crate) const CGROUP_FD: RawFd = 7;

/// The size up to which the kernel writes an event to the pipe in one piece.
pub(crate) const MAX_EVENT: usize = 4096;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchRequest {
    pub(crate) steps: Steps,
    /// `None` to put the fence up and run nothing in it.
    pub(crate) command: Option<RequestedCommand>,
    pub(crate) parent: i32,
    /// The caller's umask, for the command.
    pub(crate) umask: u32,
    pub(crate) cgroups: usize,
    /// How many mounts come after the control groups.
    pub(crate) mounts: usize,
    /// How many files for the command come after the mounts.
    pub(crate) files: usize,
    /// What the control groups to join limit.
    pub(crate) group: Option<RequestedGroup>,
    pub(crate) canaries: Canaries,
}

impl LaunchRequest {
    /// The descriptor of the first mount that comes with it.
    pub(crate) fn first_mount(&self) -> RawFd {
        CGROUP_FD + RawFd::try_from(self.cgroups).unwrap_or(0)
    }

    /// The descriptors that the command inherits besides its standard streams.
    pub(crate) fn passed_files(&self) -> Range<RawFd> {
        let first = self.first_mount() + RawFd::try_from(self.mounts).unwrap_or(0);
        first..first + RawFd::try_from(self.files).unwrap_or(0)
    }

    /// Tells the command the numbers of its files.
    pub(crate) fn name_passed_files(&mut self, files: Option<&PassedFiles>) {
        let numbers = self.passed_files();
        if let (Some(files), Some(command)) = (files, &mut self.command) {
            let value = passed_files::numbers_in_words(numbers.start, numbers.len());
            let variable = |text: &str| Raw::from(OsString::from(text));
            command.environment.push((variable(files.variable()), variable(&value)));
        }
    }
}

/// One group, in every hierarchy that it was made in.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RequestedGroup {
    /// The last part of its path.
    pub(crate) name: String,
    /// The limits that the kernel gave back as they were set.
    pub(crate) limits: Vec<ProtectionName>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RequestedCommand {
    #[serde(with = "raw_path")]
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<Raw>,
    pub(crate) environment: Vec<(Raw, Raw)>,
    #[serde(with = "raw_path")]
    pub(crate) directory: PathBuf,
    /// What the command is told of its fence, once the canaries have been tried.
    pub(crate) confinement: Option<RequestedReport>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RequestedReport {
    pub(crate) variable: Raw,
    pub(crate) confinement: Confinement,
}

/// What the launcher tries, and must fail at, before it starts the command.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Canaries {
    /// A directory outside the fence, where it must not be able to create a file.
    #[serde(with = "raw_path")]
    pub(crate) outside: PathBuf,
    /// The denied paths that exist.
    #[serde(with = "raw_path::list")]
    pub(crate) denied: Vec<PathBuf>,
    /// Also try the system calls of other architectures, which costs a process.
    pub(crate) foreign_calls: bool,
    pub(crate) host: HostIdentity,
}

/// What must be another one inside.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct HostIdentity {
    /// The device of the root directory.
    pub(crate) root_device: u64,
    pub(crate) ipc_namespace: Option<u64>,
    pub(crate) network_namespace: Option<u64>,
}

impl HostIdentity {
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Self {
            root_device: rustix::fs::stat("/")?.st_dev,
            ipc_namespace: namespace_of_this_process("ipc"),
            network_namespace: namespace_of_this_process("net"),
        })
    }
}

/// The number by which the kernel tells namespaces of one kind apart.
pub(crate) fn namespace_of_this_process(kind: &str) -> Option<u64> {
    rustix::fs::stat(format!("/proc/self/ns/{kind}")).ok().map(|stat| stat.st_ino)
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
    /// A program outside has replaced a file that the fence keeps, which took the mount away. The command is ended.
    MountLost {
        #[serde(with = "raw_path")]
        path: PathBuf,
    },
    Ended {
        code: Option<i32>,
        signal: Option<i32>,
    },
}
