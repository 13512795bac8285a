//! The data that `ringfence-attacker` and the escape tests exchange: the stage of the attempts, the outcome of
//! each, and what the victim noticed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The targets of the attempts. Files are named after the row that attacks them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttackStage {
    /// The workspace, where everything is allowed.
    pub scope: PathBuf,
    /// Its sibling, where nothing is allowed; the working directory of the victim.
    pub outside: PathBuf,
    /// The home of the caller; has `.ssh/id_rsa`.
    pub home: PathBuf,
    /// The directory of the programs: readable, not writable.
    pub programs: PathBuf,
    /// The executable that built the fence.
    pub launcher: PathBuf,
    /// A unique name, for files in shared directories.
    pub unique_name: String,
    /// The temporary directory of another fenced command.
    pub other_temp: PathBuf,
    /// The number of the mount of the host's root, as `statmount` takes it.
    pub root_mount: u64,
    pub victim: VictimAddress,
    /// Descriptors that the launcher inherits: a writable file, a connected socket, and a unix socket in
    /// which a descriptor waits.
    pub inherited: InheritedDescriptors,
}

impl AttackStage {
    pub fn in_scope(&self, name: impl AsRef<Path>) -> PathBuf {
        self.scope.join(name)
    }

    pub fn outside(&self, name: impl AsRef<Path>) -> PathBuf {
        self.outside.join(name)
    }

    pub fn private_key(&self) -> PathBuf {
        self.home.join(".ssh/id_rsa")
    }

    pub fn unix_stream(&self) -> PathBuf {
        self.outside("stream.sock")
    }

    pub fn unix_datagram(&self) -> PathBuf {
        self.outside("datagram.sock")
    }

    /// A copy of the attacker that belongs to root and has the set-user-id bit.
    pub fn setuid_program(&self) -> PathBuf {
        self.programs.join("attacker-setuid")
    }

    /// A copy of the attacker with file capabilities.
    pub fn capable_program(&self) -> PathBuf {
        self.programs.join("attacker-capable")
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InheritedDescriptors {
    pub file: i32,
    pub socket: i32,
    pub unix: i32,
}

/// The addresses of the victim, which it prints when it is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VictimAddress {
    pub pid: i32,
    /// On 127.0.0.1, never allowed.
    pub tcp_port: u16,
    /// On `::1`, never allowed.
    pub tcp6_port: u16,
    /// On 127.0.0.1, allowed by modes that name a port.
    pub allowed_port: u16,
    pub udp_port: u16,
    pub abstract_name: String,
    pub shared_memory: i32,
    pub queue: String,
    /// A POSIX queue that is only there to be removed.
    pub removed_queue: String,
    pub queues: VictimQueues,
    /// The id of a System V semaphore.
    pub semaphore: i32,
    /// The name of a POSIX shared memory object with [`SEGMENT_SECRET`].
    pub shared_object: String,
    /// The path of a terminal whose other end the victim reads.
    pub terminal: PathBuf,
    /// The address of [`MEMORY_SECRET`].
    pub secret_address: usize,
}

/// The ids of the victim's System V queues, one for each kind of attack.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct VictimQueues {
    /// Empty at first.
    pub written: i32,
    /// Holds one message at first.
    pub read: i32,
    pub removed: i32,
}

/// A secret in the memory of the victim.
pub const MEMORY_SECRET: &str = "secret-in-memory";
/// A secret in the victim's environment.
pub const ENVIRONMENT_SECRET: &str = "secret-in-environment";
/// A secret in the victim's arguments.
pub const ARGUMENT_SECRET: &str = "secret-in-arguments";
/// A secret in the victim's segment of shared memory.
pub const SEGMENT_SECRET: &str = "secret-in-segment";
/// A secret in the caller's `~/.ssh/id_rsa`.
pub const KEY_SECRET: &str = "secret-in-private-key";

/// Everything that reached the victim.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VictimReport {
    /// Every text received on any of its sockets: the names of rows.
    pub received: BTreeSet<String>,
    /// The numbers of the signals that arrived.
    pub signals: BTreeSet<i32>,
    /// The text in its segment of shared memory.
    pub segment: String,
    /// The number of messages in its POSIX queue.
    pub queued: i64,
    /// The number of messages in the System V queues to write and to read; `None` if one was removed.
    pub messages: Option<[u64; 2]>,
    /// Whether the System V queue to remove is there.
    pub has_queue: bool,
    /// Whether the POSIX queue to remove is there.
    pub has_named_queue: bool,
    /// The value of its semaphore, which begins with 1.
    pub semaphore: i32,
}

/// The result of one row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttackResult {
    pub id: String,
    #[serde(flatten)]
    pub outcome: AttackOutcome,
    /// What the attempt read or learned.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum AttackOutcome {
    Allowed,
    /// The name of the error, or `none` if the attempt neither failed nor gained anything.
    Refused {
        errno: String,
    },
    Killed {
        signal: i32,
    },
    /// It neither succeeded nor failed within the deadline.
    Hung,
}

/// The kernel's features, found by trying them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KernelOffer {
    /// 0 without Landlock.
    pub landlock_abi: i64,
    pub user_namespaces: bool,
}
